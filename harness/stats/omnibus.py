"""One test of "all groups have the same mean delta": HTZ for clustered data, Welch for independent pairs.

HTZ is the Wald test on CR2 variances with an approximate Hotelling distribution whose degrees of freedom
match the total variance of the covariance estimate (Pustejovsky & Tipton 2018, section 3.2). For q linear
contrasts C of independent group means, with working variance v_a = 1 / n_a (equal variance of all pairs),

    eta = q (q + 1) / (2 sum_a h_a^2 / nu_a),   h_a = v_a c_a' (C diag(v) C')^-1 c_a
    Q = (C m)' (C diag(V) C')^-1 C m,           F = (eta - q + 1) / (eta q) Q on q and eta - q + 1 df

where V_a is the CR2 variance and nu_a its Satterthwaite df: inside a group every cluster's part of the CR2
matrix is c_a c_a' times a quadratic form with trace v_a and squared norm v_a^2 / nu_a. For equality of all
means h_a = 1 - n_a / N. For q = 1 it is the Satterthwaite t test of clubSandwich, squared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from harness.stats.groups import GroupMeans
from harness.stats.numerics import Bools, Floats, Ints

FEW_IDENTITIES = 20

REASONS = {
    "fewer_than_two_groups": "fewer than two groups have a variance",
    "group_without_variance": "a group of the contrast is undefined or has zero variance",
    "too_few_identities": "the groups have too few identities for this many contrasts",
}
"""What each reason code means, as a sentence for a reader."""


@dataclass(frozen=True)
class OmnibusTest:
    """One test for each concept; arrays of shape (c,) unless said otherwise.

    Attributes:
        method: `htz` or `welch`.
        statistic: F; NaN when undefined.
        df1, df2: its degrees of freedom; NaN when undefined.
        p: p value; NaN when undefined.
        status: `ok` or `undefined`.
        reason: key of `REASONS`, empty for `ok`.
        used: groups in the test, shape (k, c).
        left_out: groups that have zero variance and are named beside the test, shape (k, c).
        few_identities: a used group has fewer than 20 identities (HTZ is then only roughly calibrated).
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
    few = np.asarray((used & (groups.n_identities < FEW_IDENTITIES)).any(axis=0))
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
        few_identities=few,
    )


def equal_means(k: int) -> Floats:
    """Return the contrasts of every group with the first, shape (k - 1, k)."""
    return np.hstack([-np.ones((k - 1, 1)), np.eye(k - 1)])


def interaction_contrasts(levels: Ints, strata: Ints) -> Floats:
    """Return the contrasts whose vanishing means that level differences are the same in all strata.

    Args:
        levels: shape (k,), code of the first factor of each group (say sex).
        strata: shape (k,), code of the second factor (say ethnicity); each combination exactly once.

    Returns:
        Shape ((L - 1) (S - 1), k).

    Raises:
        ValueError: if a combination is missing or doubled.
    """
    _, level = np.unique(levels, return_inverse=True)
    _, stratum = np.unique(strata, return_inverse=True)
    n_levels, n_strata = level.max(initial=-1) + 1, stratum.max(initial=-1) + 1
    cells = np.unique(level * n_strata + stratum)
    if len(cells) != len(level) or len(cells) != n_levels * n_strata:
        raise ValueError(
            f"an interaction needs every one of {n_levels} x {n_strata} combinations exactly once, "
            f"got {len(level)} groups in {len(cells)} combinations"
        )
    grid = np.kron(equal_means(n_levels), equal_means(n_strata))
    return np.asarray(grid[:, level * n_strata + stratum])
