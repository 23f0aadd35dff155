"""What changed between two runs: estimates from the pairs that both have, and where they lie to a margin.

The change of a delta is paired: for every common pair, the new run's transformed minus source less the
baseline's, averaged, with CR2 errors by (group, identity).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

from harness.finished import CommonPairs, FinishedRun
from harness.stats.bounded import Bounded, bounded_margin_test
from harness.stats.contrasts import pairwise
from harness.stats.equivalence import Harmful, margin_test, one_sided_bounds
from harness.stats.groups import GroupMeans
from harness.stats.intervals import REASONS, CellEstimates, cell_estimates


@dataclass(frozen=True)
class Change:
    """A change from the baseline and what it is known from.

    Attributes:
        n_pairs, n_identities: behind it; of two groups, the smaller number (``identities`` is the sum).
        identities: that a multiple of would narrow the standard error.
        lost: pairs of the cell with an answer in one of the runs only.
        change, se, df: estimate, standard error (0 where all identities changed alike), degrees of freedom;
            NaN where undefined. A difference of two shares has no df.
        low, high: one-sided 1 - alpha bounds.
        p_inside, p_beyond: as in ``harness.stats.equivalence.MarginTest``, but where both directions do
            harm p_beyond adds the other tail: with a margin near 0 a change of 0 has two ways to look
            harmful, and both together may only happen with probability alpha. NaN where undefined.
        undefined: why there is no estimate, empty where there is one.
        missing: which run has no pair of the cell with an answer, empty where both have.
    """

    n_pairs: int = 0
    n_identities: int = 0
    identities: int = 0
    lost: int = 0
    change: float = math.nan
    se: float = math.nan
    df: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p_inside: float = math.nan
    p_beyond: float = math.nan
    undefined: str = ""
    missing: str = ""

    @property
    def lost_share(self) -> float:
        """Lost pairs among those with an answer in at least one run, in [0, 1]."""
        return self.lost / max(1, self.lost + self.n_pairs)


@dataclass(frozen=True)
class Margin:
    """Against what a change is held: margin > 0, harmful direction, one-sided alpha in (0, 0.5]."""

    margin: float
    harmful: Harmful
    alpha: float


def paired_change(
    common: CommonPairs, columns: Sequence[int], rows: npt.NDArray[np.bool_], level: float = 0.999
) -> CellEstimates:
    """Estimate the mean change of the deltas of some concepts.

    Args:
        common: n pairs of two runs.
        columns: which concepts.
        rows: which pairs, shape (n,).
        level: of the intervals, in (0, 1).
    """
    here = np.ix_(np.flatnonzero(rows), np.asarray(columns, dtype=np.intp))
    before, after = common.base, common.new
    # Sums of two scores instead of differences of deltas: what is rounding noise is told by their size.
    first = after.source[here] + before.transformed[here]
    second = after.transformed[here] + before.source[here]
    return cell_estimates(first, second, before.clusters()[rows], level=level)


def delta_change(
    runs: tuple[FinishedRun, FinishedRun],
    common: CommonPairs,
    cell: tuple[str, str, str],
    margin: Margin,
) -> Change:
    """Change of one cell's mean delta.

    Args:
        runs: baseline and new run.
        common: their common pairs.
        cell: attribute, concept, group.
        margin: what the change is held against.
    """
    counts, estimates = _scored(runs, common, cell)
    if counts.missing or estimates is None:
        return counts
    if estimates.status[0] == "undefined":
        return replace(counts, undefined=REASONS[str(estimates.reason[0])])
    return held(counts, float(estimates.delta[0]), float(estimates.se[0]), float(estimates.df[0]), margin)


def difference_change(
    runs: tuple[FinishedRun, FinishedRun],
    common: CommonPairs,
    cell: tuple[str, str, tuple[str, str]],
    margin: Margin,
) -> Change:
    """Change of the difference of two groups' mean deltas (the second's minus the first's), Satterthwaite df.

    Args:
        runs: baseline and new run.
        common: their common pairs.
        cell: attribute, concept, the two groups.
        margin: what the change is held against.
    """
    attribute, concept, groups = cell
    counts, estimates = [], []
    for group in groups:
        count, found = _scored(runs, common, (attribute, concept, group))
        if count.missing or found is None:
            return count
        counts.append(count)
        estimates.append(found)
    both = counted_together(counts)
    for found in estimates:
        if found.status[0] == "undefined":
            return replace(both, undefined=REASONS[str(found.reason[0])])
    contrast = pairwise(GroupMeans.stack(estimates))
    difference, se, df = (float(x[0, 0]) for x in (contrast.difference, contrast.se, contrast.df))
    return held(both, difference, se, df, margin)


def counted_together(groups: Sequence[Change]) -> Change:
    """What a difference of two groups is known from; the counts of one group are its own."""
    return Change(
        n_pairs=min(group.n_pairs for group in groups),
        n_identities=min(group.n_identities for group in groups),
        identities=sum(group.identities for group in groups),
        lost=max(group.lost for group in groups),
    )


def _scored(
    runs: tuple[FinishedRun, FinishedRun], common: CommonPairs, cell: tuple[str, str, str]
) -> tuple[Change, CellEstimates | None]:
    """Counts of a cell, and the paired change of its common pairs; None where a run has no score there."""
    attribute, concept, group = cell
    column = common.base.record.concepts.index(concept)
    for run, name in zip(runs, ("baseline", "new run"), strict=True):
        if not (run.rows_of(attribute, group) & _has_scores(run, column)).any():
            return Change(missing=f"{group} has no scored pair in the {name}"), None
    here = common.base.rows_of(attribute, group)
    before, after = _has_scores(common.base, column), _has_scores(common.new, column)
    rows = here & before & after
    if not rows.any():
        return Change(missing=f"{group} has no pair that is scored in both runs"), None
    scored = sum(int((run.rows_of(attribute, group) & _has_scores(run, column)).sum()) for run in runs)
    lost = scored - 2 * int(rows.sum())
    estimates = paired_change(common, [column], rows)
    n_identities = int(estimates.n_identities[0])
    return Change(int(rows.sum()), n_identities, n_identities, lost), estimates


def _has_scores(run: FinishedRun, column: int) -> npt.NDArray[np.bool_]:
    return np.isfinite(run.source[:, column]) & np.isfinite(run.transformed[:, column])


def held(counts: Change, change: float, se: float, df: float, margin: Margin) -> Change:
    """Hold an estimate against a margin; without variance the change is taken as it is."""
    if se == 0.0:
        worse = harm(change, margin.harmful)
        # A change of exactly the margin is neither inside nor beyond it, whatever its last digit says.
        met = math.isclose(worse, margin.margin, rel_tol=1e-9)
        return replace(
            counts,
            change=change,
            se=0.0,
            low=change,
            high=change,
            p_inside=float(met or worse > margin.margin),
            p_beyond=float(met or worse < margin.margin),
        )
    test = margin_test(change, se, df, margin.margin, margin.harmful)
    other_tail = special.stdtr(df, -(abs(change) + margin.margin) / se) if margin.harmful == "both" else 0.0
    low, high = one_sided_bounds(change, se, df, margin.alpha)
    return replace(
        counts,
        change=change,
        se=se,
        df=df,
        low=float(low),
        high=float(high),
        p_inside=float(test.p_inside),
        p_beyond=min(1.0, float(test.p_beyond + other_tail)),
    )


def held_bounded(counts: Change, found: Bounded, margin: Margin) -> Change:
    """Hold an estimate that is known by its bounds against a margin."""
    test = bounded_margin_test(found, margin.margin, margin.harmful)
    low, high = found.bounds(margin.alpha)
    return replace(
        counts,
        change=found.value,
        se=found.se,
        df=found.df,
        low=low,
        high=high,
        p_inside=float(test.p_inside),
        p_beyond=float(test.p_beyond),
    )


def further_from_a_decision(one: Change, other: Change) -> Change:
    """Of two ways to count, the wider bounds and the larger p values; estimate and counts of the first."""
    spread = other if other.se > one.se else one
    return replace(
        one,
        se=spread.se,
        df=spread.df,
        low=min(one.low, other.low),
        high=max(one.high, other.high),
        p_inside=max(one.p_inside, other.p_inside),
        p_beyond=max(one.p_beyond, other.p_beyond),
    )


def harm(change: float, harmful: Harmful) -> float:
    """How far a change goes in the harmful direction; negative for a gain."""
    return {"lower": -change, "higher": change, "both": abs(change)}[harmful]
