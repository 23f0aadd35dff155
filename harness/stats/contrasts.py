"""Differences between groups: pairwise intervals and simultaneous bands.

The groups are independent (an identity belongs to one group), so se^2 = V_a + V_b, and the degrees of
freedom combine after Satterthwaite (1946) and Welch (1947):

    df = (V_a + V_b)^2 / (V_a^2 / nu_a + V_b^2 / nu_b)

The bands are Games and Howell's (1976) on these: quantile of the studentized range over sqrt(2), times se.
On cells of the method `t` this is Welch's t test with the classical Games-Howell bands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from harness.stats import studentized
from harness.stats.groups import GroupMeans
from harness.stats.numerics import Bools, Floats, Ints

REASONS = {
    "group_undefined": "one of the two groups has no variance estimate",
    "both_zero_variance": "neither group's deltas vary beyond floating-point rounding",
    "df_below_2": "the simultaneous band needs at least two degrees of freedom",
}
"""What each reason code means, as a sentence for a reader."""


@dataclass(frozen=True)
class PairwiseContrasts:
    """All differences between k groups; arrays of shape (k (k - 1) / 2, c) unless said otherwise.

    Attributes:
        level: confidence level of intervals and bands.
        a, b: group indices of each row, shape (k (k - 1) / 2,).
        difference: mean delta of b minus mean delta of a.
        se, df: of the difference; NaN when undefined (se is 0 when both groups have zero variance).
        low, high: the interval of this one difference; NaN unless the status is `ok`.
        band_low, band_high: simultaneous over all pairs of the defined groups; NaN also when df < 2.
        p: two-sided p value of no difference, unadjusted; NaN unless the status is `ok`.
        status: `ok`, `zero_variance` or `undefined`.
        reason: key of `REASONS`, empty for `ok`; `df_below_2` beside `ok` says why there is no band.
        few_identities, skewed: set if either group has the flag.
        n_groups: groups the band is simultaneous over, shape (c,).
    """

    level: float
    a: Ints
    b: Ints
    difference: Floats
    se: Floats
    df: Floats
    low: Floats
    high: Floats
    band_low: Floats
    band_high: Floats
    p: Floats
    status: NDArray[np.str_]
    reason: NDArray[np.str_]
    few_identities: Bools
    skewed: Bools
    n_groups: Ints


def satterthwaite(errors: Floats, dfs: Floats) -> Floats:
    """Return the degrees of freedom of a sum of independent variance estimates over the first axis.

    (sum V)^2 / sum (V^2 / nu) with V the squares of the standard errors `errors`; errors of zero add
    nothing. NaN when all are zero or one is NaN.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (errors / errors.max(axis=0)) ** 2
        df: Floats = share.sum(axis=0) ** 2 / (share**2 / dfs).sum(axis=0)
    return df


def pairwise(groups: GroupMeans, *, level: float = 0.999) -> PairwiseContrasts:
    """Compare all groups with each other.

    Args:
        groups: k groups, at least 2.
        level: confidence level of the single intervals and of the simultaneous bands.

    Raises:
        ValueError: for fewer than two groups or a level outside (0, 1).
    """
    if groups.n_groups < 2:
        raise ValueError(f"a comparison needs at least 2 groups, got {groups.n_groups}")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")
    a, b = (index.astype(np.int64) for index in np.triu_indices(groups.n_groups, 1))
    difference = groups.delta[b] - groups.delta[a]
    se = np.hypot(groups.se[a], groups.se[b])
    df = satterthwaite(np.stack([groups.se[a], groups.se[b]]), np.stack([groups.df[a], groups.df[b]]))
    defined = groups.defined[a] & groups.defined[b]
    ok = defined & (se > 0.0)
    half, band, p = _half_widths(groups, difference, np.where(ok, se, np.nan), df, level)
    return PairwiseContrasts(
        level=level,
        a=a,
        b=b,
        difference=difference,
        se=np.where(defined, se, np.nan),
        df=np.where(ok, df, np.nan),
        low=difference - half,
        high=difference + half,
        band_low=difference - band,
        band_high=difference + band,
        p=p,
        status=np.select([ok, defined], ["ok", "zero_variance"], "undefined"),
        reason=np.select(
            [ok & np.isfinite(band), ok, defined], ["", "df_below_2", "both_zero_variance"], "group_undefined"
        ),
        few_identities=groups.few_identities[a] | groups.few_identities[b],
        skewed=groups.skewed[a] | groups.skewed[b],
        n_groups=groups.defined.sum(axis=0),
    )


def _half_widths(
    groups: GroupMeans, difference: Floats, se: Floats, df: Floats, level: float
) -> tuple[Floats, Floats, Floats]:
    """Return half widths of interval and band, and p; NaN where se is."""
    half = special.stdtrit(df, 0.5 + level / 2.0) * se
    band = np.full(se.shape, np.nan)
    counts = groups.defined.sum(axis=0)
    for k in np.unique(counts[counts >= 2]):
        here = counts == k
        band[:, here] = studentized.quantile(level, int(k), df[:, here]) / np.sqrt(2.0) * se[:, here]
    return half, band, 2.0 * special.stdtr(df, -np.abs(difference / se))
