"""Coarser groups (`--by sex`, `--by ethnicity`) as equally weighted means of the fine ones.

Pairs are never pooled: a pooled sex difference can be a difference of the ethnicity mix. A level's mean is
the unweighted mean of its fine groups that have pairs, V = sum w^2 V with Satterthwaite df. Two levels are
compared over the strata (the other factor) in which both have pairs, for the same reason. The interaction
compares these differences between strata: Games and Howell's comparison of "b minus a" instead of means.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from harness.stats.contrasts import PairwiseContrasts, combine, contrasts
from harness.stats.groups import GroupMeans
from harness.stats.numerics import Bools, Floats, Ints
from harness.stats.omnibus import OmnibusTest, games_howell, htz_contrasts


@dataclass(frozen=True)
class Aggregate:
    """Means of coarse levels.

    Attributes:
        means: the L levels as groups, arrays of shape (L, c). Pairs and identities are those of all fine
            groups; one fine group without a standard error leaves a level without one.
        weights: of each fine group in each level, shape (L, k, c); 0 for groups without pairs.
    """

    means: GroupMeans
    weights: Floats


def aggregate(groups: GroupMeans, levels: Ints, strata: Ints) -> Aggregate:
    """Average the fine groups of each level that have pairs, with equal weights.

    Args:
        groups: k fine groups.
        levels: shape (k,), code 0..L-1 of the level of each fine group.
        strata: shape (k,), code of what is balanced over (the other factor).

    Raises:
        ValueError: if a code array has another length, or a level has two groups in one stratum.
    """
    _check(groups, levels, strata)
    there = np.isfinite(groups.delta)
    rows = np.stack([there & (levels == level)[:, None] for level in range(levels.max() + 1)])
    weights = _equal(rows)
    delta, se, df = combine(groups, weights)
    missing = ~rows.any(axis=1)
    identities = [np.where(row, groups.n_identities, 0).sum(axis=0) for row in rows]
    if groups.people is not None:
        identities = [groups.people.distinct(row) for row in rows]
    means = GroupMeans(
        delta=np.where(missing, np.nan, delta),
        se=np.where(missing, np.nan, se),
        df=np.where(missing, np.nan, df),
        n_pairs=np.stack([np.where(row, groups.n_pairs, 0).sum(axis=0) for row in rows]),
        n_identities=np.stack(identities),
        few_identities=np.asarray((rows & groups.few_identities).any(axis=1)),
        skewed=np.asarray((rows & groups.skewed).any(axis=1)),
        skew=_skew(groups, weights),
    )
    return Aggregate(means, weights)


def _skew(groups: GroupMeans, weights: Floats) -> Floats:
    """Return the skewness of the levels' means, 0 where none of their groups varies.

    Third moments of independent means add like variances, so it is sum(se^3 k) / sum(se^2)^1.5.
    """
    errors = np.where(weights > 0.0, weights * groups.se, 0.0)
    largest = errors.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = errors / largest
        skew = (share**3 * groups.skew).sum(axis=1) / (share**2).sum(axis=1) ** 1.5
    return np.where(np.isfinite(skew), skew, 0.0)


def _check(groups: GroupMeans, levels: Ints, strata: Ints) -> None:
    if levels.shape != (groups.n_groups,) or strata.shape != (groups.n_groups,):
        raise ValueError(
            f"levels and strata must have shape ({groups.n_groups},), got {levels.shape} and {strata.shape}"
        )
    if len(set(zip(levels.tolist(), strata.tolist(), strict=True))) < groups.n_groups:
        raise ValueError("a level must have one group in each stratum, got two")


def _equal(rows: Bools) -> Floats:
    """Return equal weights over the marked groups of each row, shape (r, k, c)."""
    return np.asarray(rows / np.maximum(rows.sum(axis=1, keepdims=True), 1))


def compare_levels(
    groups: GroupMeans, levels: Ints, strata: Ints, *, level: float
) -> tuple[PairwiseContrasts, Bools]:
    """Compare all levels with each other, each pair over the strata in which both have pairs.

    Returns:
        The comparisons of r pairs of levels, and the strata behind each, shape (r, S, c).
    """
    _check(groups, levels, strata)
    there = np.isfinite(groups.delta)
    index = range(levels.max() + 1)
    pairs = np.array(list(combinations(index, 2)), dtype=np.int64).reshape(-1, 2)
    used = np.stack(
        [_strata_of(there, levels, strata, a) & _strata_of(there, levels, strata, b) for a, b in pairs]
    )
    fine = used[:, strata]
    sides = [_equal(fine & (levels == pairs[:, [side]])[:, :, None]) for side in (0, 1)]
    return contrasts(groups, pairs[:, 0], pairs[:, 1], (sides[0], sides[1]), level=level), used


def _strata_of(there: Bools, levels: Ints, strata: Ints, level: int) -> Bools:
    """Return the strata in which a level has pairs, shape (S, c)."""
    out = np.zeros((strata.max() + 1, there.shape[1]), dtype=bool)
    own = levels == level
    out[strata[own]] = there[own]
    return out


def level_htz(groups: GroupMeans, levels: Ints) -> OmnibusTest:
    """Test with HTZ that the levels' means are equal; undefined if a fine group has no variance."""
    averages = np.stack([(levels == level) / (levels == level).sum() for level in range(levels.max() + 1)])
    return htz_contrasts(groups, averages[1:] - averages[0])


@dataclass(frozen=True)
class Interaction:
    """How the difference of two levels, b minus a, changes from stratum to stratum.

    Attributes:
        a, b: the levels.
        strata: shape (s,), those in which both levels exist.
        within: the difference in each of the strata, s rows; their bands are none of this family.
        between: the differences of these between two strata, indices into ``strata``.
        used: groups behind ``between``, shape (k, c).
    """

    a: int
    b: int
    strata: Ints
    within: PairwiseContrasts
    between: PairwiseContrasts
    used: Bools


def interactions(groups: GroupMeans, levels: Ints, strata: Ints, *, level: float) -> list[Interaction]:
    """Compare the differences between levels over the strata, for every pair of levels.

    Several pairs of levels share the error of one interaction test (Bonferroni).

    Returns:
        One entry for each pair of levels that two strata or more have in common.
    """
    _check(groups, levels, strata)
    shared = [
        (a, b, np.intersect1d(strata[levels == a], strata[levels == b]))
        for a, b in combinations(range(levels.max() + 1), 2)
    ]
    shared = [item for item in shared if len(item[2]) > 1]
    found = []
    for a, b, own in shared:
        rows = [((levels == b) * 1.0 - (levels == a)) * (strata == stratum) for stratum in own]
        found.append(_interaction(groups, np.stack(rows), (a, b), own, level, len(shared)))
    return found


def _interaction(
    groups: GroupMeans, differences: Floats, pair: tuple[int, int], own: Ints, level: float, families: int
) -> Interaction:
    """Compare strata; ``differences`` are the weights of b minus a in each, shape (s, k)."""
    usable = groups.usable
    whole = np.stack([(usable | (row == 0.0)[:, None]).all(axis=0) for row in differences])
    whole &= whole.sum(axis=0) > 1
    first, second = np.triu_indices(len(own), 1)
    both = (whole[first] & whole[second])[:, None].astype(np.float64)
    strata = (differences[first][:, :, None] * both, differences[second][:, :, None] * both)
    levels = ((-differences).clip(min=0.0)[:, :, None], differences.clip(min=0.0)[:, :, None])
    a, b = (np.full(len(own), name, dtype=np.int64) for name in pair)
    return Interaction(
        *pair,
        strata=own,
        within=contrasts(groups, a, b, levels, level=level),
        between=contrasts(groups, first, second, strata, level=level, families=families),
        used=(whole[:, None] & (differences != 0.0)[:, :, None]).any(axis=0),
    )


def interaction_test(groups: GroupMeans, found: list[Interaction]) -> OmnibusTest:
    """Test that the differences between levels are the same in all strata: the smallest simultaneous p.

    Args:
        groups: k fine groups.
        found: at least one pair of levels.
    """
    used = np.any([item.used for item in found], axis=0)
    tests = [games_howell(groups, item.between, used) for item in found]
    best = np.stack([np.where(np.isnan(test.p), np.inf, test.p) for test in tests]).argmin(axis=0)
    columns = np.arange(len(best))
    smallest = {
        name: np.stack([getattr(test, name) for test in tests])[best, columns]
        for name in ("statistic", "df1", "df2", "p", "status", "reason")
    }
    few = smallest["reason"] == "fewer_than_two_groups"
    smallest["reason"] = np.where(few, "fewer_than_two_strata", smallest["reason"])
    return replace(tests[0], **smallest)
