"""One test of "all means are equal": Games and Howell's decides, HTZ and Welch's stand beside it.

Games-Howell takes the smallest of the simultaneous p values of all pairs, so that the test is rejected
exactly where a simultaneous band excludes 0.

HTZ, a diagnostic, is the Wald test on CR2 variances with an approximate Hotelling distribution whose degrees
of freedom match the total variance of the covariance estimate (Pustejovsky & Tipton 2018, section 3.2). For
q linear contrasts C of independent group means, with working variance v_a = 1 / n_a (equal variance of all
pairs),

    eta = q (q + 1) / (2 sum_a h_a^2 / nu_a),   h_a = v_a c_a' (C diag(v) C')^-1 c_a
    Q = (C m)' (C diag(V) C')^-1 C m,           F = (eta - q + 1) / (eta q) Q on q and eta - q + 1 df

where V_a is the CR2 variance and nu_a its Satterthwaite df: inside a group every cluster's part of the CR2
matrix is c_a c_a' times a quadratic form with trace v_a and squared norm v_a^2 / nu_a. For equality of all
means h_a = 1 - n_a / N. For q = 1 it is the Satterthwaite t test of clubSandwich, squared.

It is no test to decide by: for eight equal groups of 40 with 0/1 scores at .1 it rejects 14 % at a nominal
5 %, and families of rows with unequal sizes and spreads err in 16.5 % (Games-Howell: 6.4 %).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from harness.stats.contrasts import PairwiseContrasts
from harness.stats.groups import GroupMeans
from harness.stats.numerics import Bools, Floats

REASONS = {
    "fewer_than_two_groups": "fewer than two groups have a variance",
    "fewer_than_two_strata": "fewer than two strata have both levels with a variance",
    "group_without_variance": "a group of the contrast is undefined or has zero variance",
    "too_few_identities": "the groups have too few identities",
}
"""What each reason code means, as a sentence for a reader."""


@dataclass(frozen=True)
class OmnibusTest:
    """One test for each concept; arrays of shape (c,) unless said otherwise.

    Attributes:
        method: `games-howell`, `htz` or `welch`.
        statistic: F; of Games-Howell the studentized range of the pair with the smallest p; NaN when
            undefined.
        df1, df2: its degrees of freedom; of Games-Howell the number of means, and the pair's df.
        p: p value; NaN when undefined.
        status: `ok` or `undefined`.
        reason: key of `REASONS`, empty for `ok`.
        used: groups in the test, shape (k, c).
        left_out: groups that have zero variance and are named beside the test, shape (k, c).
        few_identities, skewed: a used group has the flag.
    """

    method: str
    statistic: Floats
    df1: Floats
    df2: Floats
    p: Floats
    status: NDArray[np.str_]
    reason: NDArray[np.str_]
    used: Bools
    left_out: Bools
    few_identities: Bools
    skewed: Bools


def games_howell(groups: GroupMeans, found: PairwiseContrasts, used: Bools | None = None) -> OmnibusTest:
    """Test that all means are equal by the smallest simultaneous p of their pairs.

    Args:
        groups: k means.
        found: the differences of these means, or of sums of them.
        used: which of the means are compared, shape (k, c); None for all with a variance.
    """
    used = groups.usable if used is None else used
    p = np.where(np.isnan(found.p_simultaneous), np.inf, found.p_simultaneous)
    concepts = np.arange(p.shape[1])
    best = p.argmin(axis=0), concepts
    ok = np.isfinite(p[best])
    with np.errstate(invalid="ignore", divide="ignore"):
        ranges = np.sqrt(2.0) * np.abs(found.difference[best] / found.se[best])
    return OmnibusTest(
        method="games-howell",
        statistic=np.where(ok, ranges, np.nan),
        df1=np.where(ok, found.n_groups, np.nan),
        df2=np.where(ok, found.df[best], np.nan),
        p=np.where(ok, p[best], np.nan),
        status=np.where(ok, "ok", "undefined"),
        reason=np.select([ok, found.n_groups >= 2], ["", "too_few_identities"], "fewer_than_two_groups"),
        used=used,
        left_out=groups.zero_variance,
        few_identities=np.asarray((used & groups.few_identities).any(axis=0)),
        skewed=np.asarray((used & groups.skewed).any(axis=0)),
    )


def htz(groups: GroupMeans) -> OmnibusTest:
    """Test that all groups have the same mean delta (cells of the method `cluster`)."""
    used = groups.usable
    q, wald = _wald(groups)
    n = np.where(used, groups.n_pairs, 0)
    total = np.maximum(n.sum(axis=0), 1)
    spread = np.where(used, (1.0 - n / total) ** 2 / groups.df, 0.0).sum(axis=0)
    return _hotelling(groups, used, q, wald, spread)


def htz_contrasts(groups: GroupMeans, contrasts: Floats) -> OmnibusTest:
    """Test that all of q linear contrasts of the group means are zero.

    Args:
        groups: k groups.
        contrasts: shape (q, k), linearly independent rows. A concept for which a group with a nonzero
            coefficient has no positive variance is undefined.

    Raises:
        ValueError: if the matrix does not have one column for each group.
    """
    if contrasts.ndim != 2 or contrasts.shape[1] != groups.n_groups:
        raise ValueError(f"contrasts must have shape (q, {groups.n_groups}), got {contrasts.shape}")
    needed = np.any(contrasts != 0.0, axis=0)[:, None]
    whole = (groups.usable | ~needed).all(axis=0)
    n_concepts = groups.delta.shape[1]
    wald, spread = np.full((2, n_concepts), np.nan)
    for concept in np.flatnonzero(whole):
        here = needed[:, 0]
        c = contrasts[:, here]
        unit = groups.se[here, concept].max()
        variances = (groups.se[here, concept] / unit) ** 2
        difference = c @ (groups.delta[here, concept] / unit)
        wald[concept] = difference @ np.linalg.solve((c * variances) @ c.T, difference)
        working = 1.0 / groups.n_pairs[here, concept]
        weight = working * np.einsum("qk,qk->k", c, np.linalg.solve((c * working) @ c.T, c))
        spread[concept] = (weight**2 / groups.df[here, concept]).sum()
    q = np.where(whole, float(len(contrasts)), 0.0)
    test = _hotelling(groups, needed & whole, q, wald, spread)
    return replace(test, reason=np.where(whole, test.reason, "group_without_variance"))


def welch_anova(groups: GroupMeans) -> OmnibusTest:
    """Test equal means of independent pairs with unequal variances (Welch 1951; cells of the method `t`)."""
    used = groups.usable
    q, wald = _wald(groups)
    weights = _weights(groups)
    share = weights / np.where(q >= 1, weights.sum(axis=0), 1.0)
    spread = np.where(used, (1.0 - share) ** 2 / groups.df, 0.0).sum(axis=0)
    k = q + 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        middle = spread / (k**2 - 1.0)
        statistic = wald / q / (1.0 + 2.0 * (k - 2.0) * middle)
        df2 = 1.0 / (3.0 * middle)
    return _result("welch", groups, used, q, statistic, df2)


def _weights(groups: GroupMeans) -> Floats:
    """Return inverse variances of the usable groups, scaled so that the largest is 1; 0 elsewhere."""
    errors = np.where(groups.usable, groups.se, np.inf)
    smallest = errors.min(axis=0)
    with np.errstate(invalid="ignore"):
        return np.where(groups.usable, (smallest / errors) ** 2, 0.0)


def _wald(groups: GroupMeans) -> tuple[Floats, Floats]:
    """Return q and the Wald statistic of equal means, sum (m_a - m)^2 / V_a about the weighted mean."""
    used = groups.usable
    weights = _weights(groups)
    total = np.maximum(weights.sum(axis=0), 1.0)
    means = np.where(used, groups.delta, 0.0)
    # Centred on a first guess before the weighted mean is taken, so that a large common delta cancels.
    centre = np.where(weights == 1.0, means, 0.0).sum(axis=0) / np.maximum((weights == 1.0).sum(axis=0), 1)
    means = np.where(used, groups.delta - centre, 0.0)
    away = means - (weights * means).sum(axis=0) / total
    errors = np.where(used, groups.se, 1.0)
    return used.sum(axis=0) - 1.0, np.where(used, (away / errors) ** 2, 0.0).sum(axis=0)


def _hotelling(groups: GroupMeans, used: Bools, q: Floats, wald: Floats, spread: Floats) -> OmnibusTest:
    with np.errstate(invalid="ignore", divide="ignore"):
        eta = q * (q + 1.0) / (2.0 * spread)
        df2 = eta - q + 1.0
        statistic = df2 / (eta * q) * wald
    return _result("htz", groups, used, q, statistic, df2)


def _result(
    method: str, groups: GroupMeans, used: Bools, q: Floats, statistic: Floats, df2: Floats
) -> OmnibusTest:
    with np.errstate(invalid="ignore"):
        ok = (q >= 1) & (df2 > 0)
    blank = np.full(q.shape, np.nan)
    p = blank.copy()
    p[ok] = special.fdtrc(q[ok], df2[ok], statistic[ok])
    return OmnibusTest(
        method=method,
        statistic=np.where(ok, statistic, blank),
        df1=np.where(ok, q, blank),
        df2=np.where(ok, df2, blank),
        p=p,
        status=np.where(ok, "ok", "undefined"),
        reason=np.select([ok, q >= 1], ["", "too_few_identities"], "fewer_than_two_groups"),
        used=used,
        left_out=groups.zero_variance,
        few_identities=np.asarray((used & groups.few_identities).any(axis=0)),
        skewed=np.asarray((used & groups.skewed).any(axis=0)),
    )


def equal_means(k: int) -> Floats:
    """Return the contrasts of every group with the first, shape (k - 1, k)."""
    return np.hstack([-np.ones((k - 1, 1)), np.eye(k - 1)])
