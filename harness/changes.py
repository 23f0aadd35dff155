"""What changed between two runs: estimates from their pairs, and where they lie to a margin.

The change of a delta is paired: for every pair scored in both runs, the new run's transformed minus source
less the baseline's, averaged, with CR2 errors by cluster. The change of a level is that of the score itself.

A pass and a fail rest on different bounds. For a pass, pairs that are scored in one run only count as changed
by the worst amount, and room is left for breaks that no identity of the sample showed. For a fail such pairs
count as unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.finished import ComparedRuns, FinishedRun, FloatArray, IntArray
from harness.stats.bounded import Bounded, bounded_margin_test, inside, student
from harness.stats.contrasts import satterthwaite
from harness.stats.equivalence import Harmful
from harness.stats.intervals import REASONS, CellEstimates, cell_estimates
from harness.stats.people import SharedPeople
from harness.stats.planning import Floor
from harness.stats.unseen import unseen_share, with_share

Pair = tuple[float, float]
Sides = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class Terms:
    """What a change is held against.

    Attributes:
        margin: positive.
        harmful: the direction that does harm.
        alpha: one-sided, in (0, 0.5].
        largest: change that one identity can suffer; None where nobody says.
        unknown: why ``largest`` is None, and what to add.
        unseen: whether a pass needs room for breaks that the sample could not show.
    """

    margin: float
    harmful: Harmful
    alpha: float
    largest: float | None = 1.0
    unknown: str = ""
    unseen: bool = True


@dataclass(frozen=True)
class Change:
    """A change from one run to another and what it is known from.

    Attributes:
        n_pairs, n_identities: behind it; of two groups, the smaller number (``identities`` is the sum).
        identities: that a multiple of would narrow the standard error.
        lost: pairs of the cell with an answer in one of the runs only.
        change, se, df: estimate, standard error (0 where all identities changed alike), degrees of freedom;
            NaN where undefined. A difference of two shares has no df.
        low, high: one-sided 1 - alpha bounds on what was seen, lost pairs taken as unchanged.
        worst_low, worst_high: one-sided 1 - alpha bounds with lost pairs changed by the worst amount and with
            the breaks that the sample could not show: a pass needs them inside the margin.
        p_beyond: smallest alpha at which ``low`` or ``high`` lies beyond the margin; where both directions do
            harm it adds the other tail. NaN where undefined.
        unseen: largest share of identities (FMR: of their pairs) that may have broken unseen; of two groups,
            the larger. 0 without such room.
        floor: of the plan for more identities.
        failing: the estimate behind ``low`` and ``high``.
        undefined: why there is no estimate, empty where there is one.
        missing: which run has no pair of the cell with an answer, empty where both have.
        most: the largest change of one identity, in the harmful direction; of a score only.
        cannot_pass: why no pass is possible, empty where one is.
        unchanged: why the model counts as unchanged here, empty where it does not.
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
    worst_low: float = math.nan
    worst_high: float = math.nan
    p_beyond: float = math.nan
    unseen: float = 0.0
    most: float = 0.0
    floor: Floor | None = None
    failing: Bounded | None = None
    undefined: str = ""
    missing: str = ""
    cannot_pass: str = ""
    unchanged: str = ""

    @property
    def lost_share(self) -> float:
        """Lost pairs among those with an answer in at least one run, in [0, 1]."""
        return self.lost / max(1, self.lost + self.n_pairs)


@dataclass(frozen=True)
class Score:
    """Which score of which pairs: attribute, concept, and the mean change ("delta") or the mean itself.

    Attributes:
        attribute, concept: as in the record.
        side: "change" for the delta; "before" or "after" for the level of one face.
    """

    attribute: str
    concept: str
    side: str

    def of(self, run: FinishedRun) -> Sides:
        """What is subtracted, and what it is subtracted from, shape (n,) each; NaN without an answer."""
        column = run.record.concepts.index(self.concept)
        source, transformed = run.source[:, column], run.transformed[:, column]
        if self.side == "change":
            known = np.isfinite(source) & np.isfinite(transformed)
            return np.where(known, source, np.nan), np.where(known, transformed, np.nan)
        values = source if self.side == "before" else transformed
        return np.where(np.isfinite(values), 0.0, np.nan), values


@dataclass(frozen=True)
class _Mean:
    """A group's mean change, second less first over n pairs."""

    first: FloatArray
    second: FloatArray
    people: IntArray
    cell: CellEstimates

    @classmethod
    def of(cls, first: FloatArray, second: FloatArray, people: IntArray) -> _Mean:
        return cls(first, second, people, cell_estimates(first[:, None], second[:, None], people))

    def most(self, harmful: Harmful) -> float:
        """The largest mean change of one identity in the harmful direction."""
        places = np.unique(self.people, return_inverse=True)[1]
        means = np.bincount(places, self.second - self.first) / np.bincount(places)
        return max(harm(float(mean), harmful) for mean in (means.min(), means.max()))


@dataclass(frozen=True)
class _Group:
    """One group's counts and its mean change, with lost pairs filled in by the worst amount or not at all."""

    counts: Change
    seen: _Mean
    lower: _Mean
    unchanged: _Mean
    higher: _Mean


def score_change(runs: ComparedRuns, score: Score, groups: Sequence[str], terms: Terms) -> Change:
    """Change of one group's mean, or of two groups' difference (the second's minus the first's).

    Args:
        runs: the two runs.
        score: of what.
        groups: one or two.
        terms: what the change is held against.
    """
    found = []
    for group in groups:
        part = _group(runs, score, group, terms.largest or 0.0)
        if isinstance(part, Change):
            return part
        found.append(part)
    return _held_groups(found, terms)


def paired_scores_change(before: Sides, after: Sides, clusters: IntArray, terms: Terms) -> Change:
    """Change of the mean over n pairs of one group.

    Args:
        before, after: of the baseline and of the new run, what is subtracted (zeros for a level) and what
            it is subtracted from, shape (n,) each, NaN where there is no answer; some pair has both.
        clusters: integer codes of the identities, shape (n,).
        terms: what the change is held against.
    """
    return _held_groups([_estimated(before, after, clusters, terms.largest or 0.0)], terms)


def _held_groups(found: Sequence[_Group], terms: Terms) -> Change:
    counts = counted_together([part.counts for part in found])
    for part in found:
        for way in (part.seen, part.lower, part.unchanged, part.higher):
            if way.cell.status[0] == "undefined":
                return replace(counts, undefined=REASONS[str(way.cell.reason[0])])
    failing = _combined([part.unchanged for part in found])
    low = _combined([found[0].lower] if len(found) == 1 else [found[0].higher, found[1].lower])
    high = _combined([found[0].higher] if len(found) == 1 else [found[0].lower, found[1].higher])
    seen = _combined([part.seen for part in found])
    people = [part.counts.n_identities for part in found]
    passing = replace(low, bounds=lambda alpha: (low.bounds(alpha)[0], high.bounds(alpha)[1]), by_t=False)
    direction = terms.harmful if len(found) == 1 else "both"
    most = max(part.seen.most(direction) for part in found)
    counts = replace(counts, change=seen.value, se=seen.se, df=seen.df, most=most)
    return held(counts, failing, passing, people, terms)


def _combined(means: Sequence[_Mean]) -> Bounded:
    """One mean change, or the second less the first, with Satterthwaite's degrees of freedom."""
    values = [float(mean.cell.delta[0]) for mean in means]
    errors = np.array([mean.cell.se[0] for mean in means])
    degrees = np.array([mean.cell.df[0] for mean in means])
    if len(means) == 1:
        return student(values[0], float(errors[0]), float(degrees[0]))
    difference = values[1] - values[0]
    if np.intersect1d(means[0].people, means[1].people).size:
        se, df = _joint(means, errors)
        return student(difference, se, df)
    varied = errors > 0.0
    df = float(satterthwaite(errors[varied], degrees[varied])) if varied.any() else math.nan
    return student(difference, float(np.hypot(*errors)), df)


def _joint(means: Sequence[_Mean], errors: FloatArray) -> tuple[float, float]:
    """Standard error and degrees of freedom of a difference between groups that share people."""
    first, second, people = (
        np.concatenate([getattr(mean, name) for mean in means]) for name in ("first", "second", "people")
    )
    start = len(means[0].people)
    rows = [np.arange(start), np.arange(start, len(people))]
    shared = SharedPeople.of(first[:, None], second[:, None], people, rows)
    se, df = shared.variance(errors[:, None], np.array([[[-1.0], [1.0]]]))
    return float(se[0, 0]), float(df[0, 0])


def counted_together(groups: Sequence[Change]) -> Change:
    """What a difference of two groups is known from; the counts of one group are its own."""
    return Change(
        n_pairs=min(group.n_pairs for group in groups),
        n_identities=min(group.n_identities for group in groups),
        identities=sum(group.identities for group in groups),
        lost=sum(group.lost for group in groups),
    )


def _group(runs: ComparedRuns, score: Score, group: str, worst: float) -> _Group | Change:
    """Counts of a cell and its paired change; where a run has no score there, a change that says so."""
    here = runs.union[0].rows_of(score.attribute, group)
    base, new = (run.take(here) for run in runs.union)
    before, after = score.of(base), score.of(new)
    for values, name in zip((before[1], after[1]), runs.names, strict=True):
        if not np.isfinite(values).any():
            return Change(missing=f"{group} has no scored pair in the {name}")
    if not np.isfinite(before[1] + after[1]).any():
        return Change(missing=f"{group} has no pair that is scored in both runs")
    return _estimated(before, after, runs.people[here], worst)


def _estimated(before: Sides, after: Sides, people: IntArray, worst: float) -> _Group:
    """The paired change of n pairs, NaN where a run has no answer, with lost ones filled in."""
    known = [np.isfinite(sides[1]) for sides in (before, after)]
    both, one = known[0] & known[1], known[0] ^ known[1]
    # Sums of two scores instead of differences of deltas: what is rounding noise is told by their size.
    first, second = after[0] + before[1], after[1] + before[0]
    seen = _Mean.of(first[both], second[both], people[both])
    n_people, lost = int(seen.cell.n_identities[0]), int(one.sum())

    def filled(change: float) -> _Mean:
        if not lost:
            return seen
        rows = both | one
        return _Mean.of(np.where(one, 0.0, first)[rows], np.where(one, change, second)[rows], people[rows])

    counts = Change(int(both.sum()), n_people, n_people, lost)
    return _Group(counts, seen, filled(-worst), filled(0.0), filled(worst))


def held(
    counts: Change,
    failing: Bounded,
    passing: Bounded,
    people: Sequence[int],
    terms: Terms,
    *,
    room: Bounded | None = None,
    pairs: bool = False,
) -> Change:
    """Hold an estimate against a margin.

    Args:
        counts: what it is known from; a ``change`` that stands there is kept.
        failing: the estimate with lost pairs unchanged.
        passing: the estimate with lost pairs changed for the worse.
        people: identities of each group.
        terms: what it is held against.
        room: what room for unseen breaks is added to, where ``passing`` has exact bounds that leave room for
            them already; the wider bounds count.
        pairs: comparisons are of two people each.
    """
    test = bounded_margin_test(failing, terms.margin, terms.harmful)
    low, high = failing.bounds(terms.alpha)
    spread = passing if passing.se > failing.se else failing
    fresh = math.isnan(counts.se)
    known = replace(
        counts,
        change=failing.value if math.isnan(counts.change) else counts.change,
        se=spread.se if fresh else counts.se,
        df=spread.df if fresh else counts.df,
        low=low,
        high=high,
        p_beyond=float(test.p_beyond),
        failing=failing,
    )
    if terms.largest is None and (terms.unseen or counts.lost):
        return replace(known, cannot_pass=terms.unknown)
    if terms.unseen:
        worst = terms.largest or 0.0
        parts = tuple(count / sum(people) for count in people)
        known = replace(
            known,
            unseen=unseen_share(terms.alpha, min(people), both_of_a_pair=pairs),
            floor=Floor(worst, parts, both_of_a_pair=pairs),
        )
        passing = wider(passing, with_unseen_breaks(room or passing, people, worst, pairs=pairs))
    low, high = passing.bounds(terms.alpha)
    return replace(known, worst_low=low, worst_high=high)


def with_unseen_breaks(found: Bounded, people: Sequence[int], worst: float, *, pairs: bool) -> Bounded:
    """An estimate with room for the share of each group's people who may break without being seen."""

    def bounds(alpha: float) -> Pair:
        shares = [unseen_share(alpha, count, both_of_a_pair=pairs) for count in people]
        return with_share(found.bounds(alpha), shares, worst)

    return replace(found, bounds=bounds, by_t=False)


def lies_inside(change: Change, terms: Terms) -> bool:
    """Whether the bounds that a pass needs lie inside the margin on the harmful side."""
    if change.cannot_pass or math.isnan(change.worst_low):
        return False
    return inside((change.worst_low, change.worst_high), terms.margin, terms.harmful)


def wider(one: Bounded, other: Bounded) -> Bounded:
    """The wider bounds of two ways to count, on each side; the estimate of the first, the larger spread."""

    def bounds(alpha: float) -> Pair:
        first, second = one.bounds(alpha), other.bounds(alpha)
        return min(first[0], second[0]), max(first[1], second[1])

    spread = other if other.se > one.se else one
    return replace(one, bounds=bounds, se=spread.se, df=spread.df, by_t=False)


def harm(change: float, harmful: Harmful) -> float:
    """How far a change goes in the harmful direction; negative for a gain."""
    return {"lower": -change, "higher": change, "both": abs(change)}[harmful]
