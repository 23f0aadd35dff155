"""Coarser groups (`--by sex`, `--by ethnicity`) as equally weighted means of the fine ones.

Pairs are never pooled: a pooled sex difference can be a difference of the ethnicity mix. The mean of a
level is the unweighted mean of its fine groups, V = sum w^2 V with Satterthwaite df, over the strata in
which every present level has a defined group (common support), so that levels are comparable. What
`contrasts.pairwise` makes of the result is the equally weighted difference with the right df.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
        means: the levels as groups, arrays of shape (L, c); undefined for a level without a common stratum.
        used: fine groups that entered, shape (k, c).
        left_out: defined fine groups that did not, because another level lacks their stratum, shape (k, c).
    """

    levels: Ints
    means: GroupMeans
    used: Bools
    left_out: Bools


def _common(defined: Bools, levels: Ints, strata: Ints) -> Bools:
    """Say which fine groups lie in a stratum where all present levels are defined, shape (k, c)."""
    present = np.stack([defined[levels == level].any(axis=0) for level in np.unique(levels)])
    used = np.zeros_like(defined)
    for stratum in np.unique(strata):
        rows = strata == stratum
        have = np.stack([defined[rows & (levels == level)].any(axis=0) for level in np.unique(levels)])
        used[rows] = defined[rows] & (have | ~present).all(axis=0)
    return used


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
    used = _common(defined, levels, strata)
    names = np.unique(levels)
    parts = [_mean_of(groups, used & (levels == level)[:, None]) for level in names]
    delta, se, df = (np.stack(column) for column in zip(*parts, strict=True))
    rows = [used & (levels == level)[:, None] for level in names]
    means = GroupMeans(
        delta=delta,
        se=se,
        df=df,
        n_pairs=np.stack([np.where(row, groups.n_pairs, 0).sum(axis=0) for row in rows]),
        n_identities=np.stack([np.where(row, groups.n_identities, 0).sum(axis=0) for row in rows]),
        few_identities=np.stack([(row & groups.few_identities).any(axis=0) for row in rows]),
        skewed=np.stack([(row & groups.skewed).any(axis=0) for row in rows]),
    )
    return Aggregate(levels=names, means=means, used=used, left_out=defined & ~used)


def _mean_of(groups: GroupMeans, rows: Bools) -> tuple[Floats, Floats, Floats]:
    """Return delta, se and df of the unweighted mean over the marked rows; NaN where there are none."""
    count = rows.sum(axis=0)
    errors = np.where(rows, groups.se, 0.0)
    largest = errors.max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        delta = np.where(rows, groups.delta / count, 0.0).sum(axis=0)
        se = largest * np.sqrt((np.where(rows, errors / largest, 0.0) ** 2).sum(axis=0)) / count
        df = satterthwaite(errors, np.where(rows, groups.df, 1.0))
    flat = (count > 0) & (largest == 0.0)
    se = np.where(flat, 0.0, se)
    df = np.where(flat, np.where(rows, groups.df, 0.0).sum(axis=0), df)
    missing = count == 0
    return np.where(missing, np.nan, delta), np.where(missing, np.nan, se), np.where(missing, np.nan, df)


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
