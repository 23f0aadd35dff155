"""Coarser groups (`--by sex`, `--by ethnicity`) as equally weighted means of the fine ones.

Pairs are never pooled: a pooled sex difference can be a difference of the ethnicity mix. The mean of a
level is the unweighted mean of its fine groups, V = sum w^2 V with Satterthwaite df. Where fine groups are
missing, levels are compared on their common support: the largest set of levels and strata (the other factor)
in which every combination is defined. What `contrasts.pairwise` makes of the result is the equally weighted
difference with the right df.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from harness.stats.cells import missing_patterns
from harness.stats.contrasts import satterthwaite
from harness.stats.groups import GroupMeans
from harness.stats.numerics import Bools, Floats, Ints
from harness.stats.omnibus import OmnibusTest, htz_contrasts, interaction_contrasts


@dataclass(frozen=True)
class Aggregate:
    """Means of coarse levels.

    Attributes:
        levels: shape (L,), the codes of the levels, ascending.
        means: the levels as groups, arrays of shape (L, c); undefined for a level outside the common support.
        used: fine groups that entered, shape (k, c).
        left_out: defined fine groups that did not, because their stratum has a gap, shape (k, c).
    """

    levels: Ints
    means: GroupMeans
    used: Bools
    left_out: Bools


def _common_support(defined: Bools, levels: Ints, strata: Ints) -> Bools:
    """Say for each concept which fine groups form the largest complete grid, shape (k, c)."""
    used = np.zeros_like(defined)
    for columns, rows in missing_patterns(defined):
        if len(rows):
            kept = rows[_largest_grid(levels[rows], strata[rows])]
            used[np.ix_(kept, columns)] = True
    return used


def _largest_grid(levels: Ints, strata: Ints) -> Bools:
    """Mark the groups of the largest set of levels times strata without a gap.

    Two levels or more go before one, then more groups, then more levels. Every subset of the shorter side is
    tried with all of the other side that it leaves complete, which finds the optimum.
    """
    _, level = np.unique(levels, return_inverse=True)
    _, stratum = np.unique(strata, return_inverse=True)
    there = np.zeros((level.max() + 1, stratum.max() + 1), dtype=bool)
    there[level, stratum] = True
    by_level = there.shape[0] <= there.shape[1]
    table = there if by_level else there.T
    best, chosen = (False, 0, 0), np.zeros_like(table)
    for size in range(1, len(table) + 1):
        for subset in combinations(range(len(table)), size):
            across = table[list(subset)].all(axis=0)
            width = int(across.sum())
            n_levels = size if by_level else width
            score = (n_levels >= 2 and width > 0, size * width, n_levels)
            if score > best:
                best, chosen = score, np.outer(np.isin(np.arange(len(table)), subset), across)
    grid = chosen if by_level else chosen.T
    return np.asarray(grid[level, stratum])


def aggregate(groups: GroupMeans, levels: Ints, strata: Ints) -> Aggregate:
    """Average the fine groups of each level with equal weights.

    Args:
        groups: k fine groups.
        levels: shape (k,), code of the level of each fine group.
        strata: shape (k,), code of what is balanced over (the other factor).

    Raises:
        ValueError: if a code array has another length, or a level has two groups in one stratum.
    """
    if levels.shape != (groups.n_groups,) or strata.shape != (groups.n_groups,):
        raise ValueError(
            f"levels and strata must have shape ({groups.n_groups},), got {levels.shape} and {strata.shape}"
        )
    if len(set(zip(levels.tolist(), strata.tolist(), strict=True))) < groups.n_groups:
        raise ValueError("a level must have one group in each stratum, got two")
    defined = groups.defined
    used = _common_support(defined, levels, strata)
    names = np.unique(levels)
    parts = [_mean_of(groups, used & (levels == level)[:, None]) for level in names]
    delta, se, df, skew = (np.stack(column) for column in zip(*parts, strict=True))
    rows = [used & (levels == level)[:, None] for level in names]
    means = GroupMeans(
        delta=delta,
        se=se,
        df=df,
        n_pairs=np.stack([np.where(row, groups.n_pairs, 0).sum(axis=0) for row in rows]),
        n_identities=np.stack([np.where(row, groups.n_identities, 0).sum(axis=0) for row in rows]),
        few_identities=np.stack([(row & groups.few_identities).any(axis=0) for row in rows]),
        skewed=np.stack([(row & groups.skewed).any(axis=0) for row in rows]),
        skew=skew,
    )
    return Aggregate(levels=names, means=means, used=used, left_out=defined & ~used)


def _mean_of(groups: GroupMeans, rows: Bools) -> tuple[Floats, Floats, Floats, Floats]:
    """Return delta, se, df and skewness of the unweighted mean of the marked rows; NaN where there are none.

    Third moments of independent means add like variances, so the skewness is sum(se^3 k) / sum(se^2)^1.5.
    """
    count = rows.sum(axis=0)
    errors = np.where(rows, groups.se, 0.0)
    largest = errors.max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        delta = np.where(rows, groups.delta / count, 0.0).sum(axis=0)
        share = np.where(rows, errors / largest, 0.0)
        size = np.sqrt((share**2).sum(axis=0))
        se = largest * size / count
        skew = (share**3 * np.where(rows, groups.skew, 0.0)).sum(axis=0) / size**3
        df = satterthwaite(errors, np.where(rows, groups.df, 1.0))
    flat = (count > 0) & (largest == 0.0)
    se = np.where(flat, 0.0, se)
    df = np.where(flat, np.where(rows, groups.df, 0.0).sum(axis=0), df)
    skew = np.where(flat | (count == 0), 0.0, skew)
    delta, se, df = (np.where(count == 0, np.nan, values) for values in (delta, se, df))
    return delta, se, df, skew


def level_omnibus(groups: GroupMeans, levels: Ints, strata: Ints) -> OmnibusTest:
    """Test with HTZ that the equally weighted means of the levels are equal, on the common support."""

    def contrasts(rows: Ints) -> Floats:
        names = np.unique(levels[rows])
        averages = np.stack([(levels[rows] == name) / (levels[rows] == name).sum() for name in names])
        return np.asarray(averages[1:] - averages[0])

    return _test_by_support(groups, aggregate(groups, levels, strata).used, contrasts)


def interaction(groups: GroupMeans, levels: Ints, strata: Ints) -> OmnibusTest:
    """Test with HTZ that differences between levels are the same in all strata of the common support."""

    def contrasts(rows: Ints) -> Floats:
        return interaction_contrasts(levels[rows], strata[rows])

    return _test_by_support(groups, aggregate(groups, levels, strata).used, contrasts)


def _test_by_support(groups: GroupMeans, used: Bools, build: Callable[[Ints], Floats]) -> OmnibusTest:
    """Run one contrast test for each distinct set of used groups and put the concepts together."""
    n_concepts = used.shape[1]
    numbers = {name: np.full(n_concepts, np.nan) for name in ("statistic", "df1", "df2", "p")}
    status = np.full(n_concepts, "undefined")
    reason = np.full(n_concepts, "fewer_than_two_groups", dtype="<U24")
    few = np.zeros(n_concepts, dtype=bool)
    for columns, rows in missing_patterns(used):
        if not len(rows) or not len(contrasts := build(rows)):
            continue
        test = htz_contrasts(groups.take(rows, columns), contrasts)
        for name, values in numbers.items():
            values[columns] = getattr(test, name)
        status[columns], reason[columns], few[columns] = test.status, test.reason, test.few_identities
    return OmnibusTest(
        method="htz",
        **numbers,
        status=status,
        reason=reason,
        used=used,
        left_out=groups.defined & ~used,
        few_identities=few,
    )
