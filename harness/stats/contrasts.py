"""Differences between groups: single intervals, simultaneous bands, and the p values that go with each.

A difference is a contrast of group means, sum_a w_a m_a. For groups that share nobody its variance is
V = sum w_a^2 V_a with degrees of freedom after Satterthwaite (1946) and Welch (1947),

    df = (sum w_a^2 V_a)^2 / sum (w_a^4 V_a^2 / nu_a)

Groups that share people bring their joint covariance (``harness.stats.people``). The bands are Games and
Howell's (1976) on these: quantile of the studentized range over sqrt(2), times se; the simultaneous p is the
tail of the same distribution, so that p <= 1 - level exactly where the band excludes 0. On cells of the
method `t` this is Welch's t test with the classical Games-Howell bands.
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
    "one_zero_variance": "one of the two groups has no variance, so it leaves the simultaneous comparison",
    "df_below_2": "the simultaneous band needs at least two degrees of freedom",
}
"""What each reason code means, as a sentence for a reader."""


@dataclass(frozen=True)
class PairwiseContrasts:
    """Differences between k means; arrays of shape (r, c) unless said otherwise.

    Attributes:
        level: confidence level of intervals and bands.
        a, b: indices of the two means of each row, shape (r,).
        difference: mean of b minus mean of a.
        se, df: of the difference; NaN when undefined (se is 0 for zero variance).
        low, high: the interval of this one difference; NaN unless the status is `ok`.
        band_low, band_high: simultaneous over all rows that compare two means with a variance; NaN for the
            others and when df < 2.
        p: two-sided p value of no difference, unadjusted; NaN unless the status is `ok`.
        p_simultaneous: adjusted like the band, NaN where that is.
        status: `ok`, `zero_variance` or `undefined`.
        reason: key of `REASONS`, empty for `ok`; beside `ok` it says why there is no band.
        few_identities, skewed: set if either side has the flag.
        n_groups: means the band is simultaneous over, shape (c,).
        simultaneous: how: `games-howell`, or `bonferroni` where the rows compare no one set of means; (c,).
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
    p_simultaneous: Floats
    status: NDArray[np.str_]
    reason: NDArray[np.str_]
    few_identities: Bools
    skewed: Bools
    n_groups: Ints
    simultaneous: NDArray[np.str_]


def satterthwaite(errors: Floats, dfs: Floats) -> Floats:
    """Return the degrees of freedom of a sum of independent variance estimates over the first axis.

    (sum V)^2 / sum (V^2 / nu) with V the squares of the standard errors `errors`; errors of zero add
    nothing. NaN when all are zero or one is NaN.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (errors / errors.max(axis=0)) ** 2
        df: Floats = share.sum(axis=0) ** 2 / (share**2 / dfs).sum(axis=0)
    return df


def combine(groups: GroupMeans, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Return estimate, se and df of weighted sums of group means, shape (r, c) each.

    Args:
        groups: k groups.
        weights: shape (r, k, c) or (r, k, 1); a group of weight 0 does not enter.

    Returns:
        NaN where a group that enters is undefined; se 0 where none of them varies, df then their sum.
    """
    weights = np.broadcast_to(weights, (len(weights), *groups.delta.shape))
    enters = weights != 0.0
    estimate = np.where(enters, weights * np.where(enters, groups.delta, 0.0), 0.0).sum(axis=1)
    errors = np.where(enters, np.abs(weights) * groups.se, 0.0)
    largest = errors.max(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        se = largest * np.sqrt(((errors / largest[:, None]) ** 2).sum(axis=1))
    dfs = np.where(enters, groups.df, 1.0)
    df = satterthwaite(np.moveaxis(errors, 1, 0), np.moveaxis(dfs, 1, 0))
    if groups.people is not None:
        se, df = groups.people.variance(groups.se, weights)
    flat = largest == 0.0
    return estimate, np.where(flat, 0.0, se), np.where(flat, np.where(enters, groups.df, 0.0).sum(axis=1), df)


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
    a, b = (index.astype(np.int64) for index in np.triu_indices(groups.n_groups, 1))
    unit = np.eye(groups.n_groups)
    return contrasts(groups, a, b, (unit[a][:, :, None], unit[b][:, :, None]), level=level)


def contrasts(
    groups: GroupMeans, a: Ints, b: Ints, sides: tuple[Floats, Floats], *, level: float, families: int = 1
) -> PairwiseContrasts:
    """Compare means that are themselves weighted sums of group means.

    Where all rows compare the same means the family is Games and Howell's. The rows of one mean may rest on
    different groups though (levels of an axis with gaps); nobody's range then is the studentized one, and
    the p values are Bonferroni's over the rows.

    Args:
        groups: k groups.
        a, b: shape (r,), which two means each row compares.
        sides: the group weights behind a and behind b, shape (r, k, c) or (r, k, 1) each; all 0 for a row
            that can't be compared.
        level: of intervals and bands, in (0, 1).
        families: equal families that share 1 - level (Bonferroni), this being one.

    Raises:
        ValueError: for a level outside (0, 1).
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")
    difference, se, df = combine(groups, sides[1] - sides[0])
    enters = [side != 0.0 for side in sides]
    compared = enters[0].any(axis=1) & enters[1].any(axis=1)
    difference = np.where(compared, difference, np.nan)
    defined = compared & np.isfinite(se) & np.isfinite(difference)
    ok = defined & (se > 0.0)
    varies = [(side & (groups.se > 0.0)).any(axis=1) for side in enters]
    in_band = ok & varies[0] & varies[1]
    usable_se, usable_df = np.where(ok, se, np.nan), np.where(ok, df, np.nan)
    half = special.stdtrit(usable_df, 0.5 + level / 2.0) * usable_se
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.abs(difference / usable_se)
    n_means, tukey = _family((a, b), sides, in_band)
    critical, p_simultaneous = _simultaneous(t, usable_df, in_band, n_means, tukey, level, families)
    band = critical * usable_se
    either = enters[0] | enters[1]
    return PairwiseContrasts(
        level=level,
        a=a,
        b=b,
        difference=difference,
        se=np.where(defined, se, np.nan),
        df=usable_df,
        low=difference - half,
        high=difference + half,
        band_low=difference - band,
        band_high=difference + band,
        p=2.0 * special.stdtr(usable_df, -t),
        p_simultaneous=p_simultaneous,
        status=np.select([ok, defined], ["ok", "zero_variance"], "undefined"),
        reason=np.select(
            [ok & np.isfinite(band), in_band, ok, defined],
            ["", "df_below_2", "one_zero_variance", "both_zero_variance"],
            "group_undefined",
        ),
        few_identities=(either & groups.few_identities).any(axis=1),
        skewed=(either & groups.skewed).any(axis=1),
        n_groups=n_means,
        simultaneous=np.where(tukey, "games-howell", "bonferroni"),
    )


def _family(names: tuple[Ints, Ints], sides: tuple[Floats, Floats], in_band: Bools) -> tuple[Ints, Bools]:
    """Return how many means are compared with a variance, and whether each is one and the same throughout.

    Shapes (c,). A mean is the same throughout if the weights behind it are equal in every row.
    """
    n_concepts = in_band.shape[1]
    counts, tukey = np.zeros(n_concepts, dtype=np.int64), np.ones(n_concepts, dtype=bool)
    for name in np.unique(names):
        rows = [np.where((own == name)[:, None], in_band, False)[:, None, :] for own in names]
        there = rows[0].any(axis=(0, 1)) | rows[1].any(axis=(0, 1))
        parts = list(zip(rows, sides, strict=True))
        largest = np.max([np.where(row, side, -np.inf).max(axis=0) for row, side in parts], axis=0)
        smallest = np.min([np.where(row, side, np.inf).min(axis=0) for row, side in parts], axis=0)
        counts += there
        tukey &= (largest == smallest).all(axis=0) | ~there
    # Two of three rows leave a mean out of a comparison: then the range is no longer that of all means.
    tukey &= in_band.sum(axis=0) == counts * (counts - 1) // 2
    return counts, tukey


def _simultaneous(
    t: Floats, df: Floats, in_band: Bools, n_means: Ints, tukey: Bools, level: float, families: int
) -> tuple[Floats, Floats]:
    """Return critical values of |t| and p values, NaN outside the band's family and below 2 df."""
    critical, p = np.full((2, *t.shape), np.nan)
    inner = 1.0 - (1.0 - level) / families
    # Two means have one difference, whose p needs no range: the rows' own t is both, digit for digit.
    tukey = tukey & (n_means > 2)
    for k in np.unique(n_means[tukey]):
        here = tukey & (n_means == k)
        freedom = np.where(in_band[:, here], df[:, here], np.nan)
        critical[:, here] = studentized.quantile(inner, int(k), freedom) / np.sqrt(2.0)
        p[:, here] = studentized.p_values(np.sqrt(2.0) * t[:, here], int(k), freedom)
    here = ~tukey
    rows = in_band[:, here].sum(axis=0)
    freedom = np.where(in_band & (df >= studentized.MIN_DF), df, np.nan)[:, here]
    with np.errstate(invalid="ignore", divide="ignore"):
        critical[:, here] = -special.stdtrit(freedom, (1.0 - inner) / (2.0 * rows))
    p[:, here] = rows * 2.0 * special.stdtr(freedom, -t[:, here])
    return critical, np.minimum(1.0, families * p)
