"""Change of the failure to acquire: the share of pairs in which the target finds no face."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import special

from harness.changes import Change, Margin, further_from_a_decision, held, held_bounded
from harness.finished import FinishedRun, FloatArray, IntArray
from harness.rate_changes import rate_change, rated
from harness.recognition_rates import acquisition
from harness.stats.bounded import Bounded
from harness.stats.equivalence import Harmful
from harness.stats.intervals import REASONS, cell_estimates
from harness.stats.proportions import clopper_pearson
from harness.stats.resampling import double_or_nothing

NO_FACE = "no_face"
_FACE_WAS_FOUND = ("no_reference",)
_States = tuple[FloatArray, FloatArray, IntArray]
WORST, BEST = (0.0, 1.0), (1.0, 0.0)
"""What a state that is not told in the baseline, and in the new run, may have been."""
DRAWS = 1000


def fta_change(
    runs: tuple[FinishedRun, FinishedRun], attribute: str, groups: Sequence[str], margin: Margin
) -> Change:
    """Change of the share of pairs in which the target finds no face.

    Args:
        runs: baseline and new run.
        attribute: which pairs.
        groups: one, or two for the change of their difference (the second's minus the first's).
        margin: what the change is held against, as a share.
    """
    states = []
    for group in groups:
        for run, name in zip(runs, ("baseline", "new run"), strict=True):
            if not np.isfinite(no_face(run)[run.rows_of(attribute, group)]).any():
                return Change(missing=f"{group} has no pair in the {name} that says whether a face was found")
        states.append(_states(runs, attribute, group))
    changes = [acquisition_change(*own, margin) for own in states]
    if len(changes) == 1:
        return changes[0]
    for change in changes:
        if change.undefined:
            return change
    return _difference(changes, states, margin)


def _difference(changes: Sequence[Change], states: Sequence[_States], margin: Margin) -> Change:
    """Of two groups, which share nobody, with what is untold filled in both ways."""
    counts = Change(
        n_pairs=min(change.n_pairs for change in changes),
        n_identities=min(change.n_identities for change in changes),
        identities=sum(change.identities for change in changes),
        lost=max(change.lost for change in changes),
    )
    (a_best, b_best), (a_worst, b_worst) = ([_bounded(own, fill) for own in states] for fill in (BEST, WORST))
    smallest, largest = (
        held_bounded(counts, found, margin) for found in (b_best.minus(a_worst), b_worst.minus(a_best))
    )
    result = further_from_a_decision(largest, smallest)
    return replace(result, change=changes[1].change - changes[0].change)


def acquisition_change(before: FloatArray, after: FloatArray, clusters: IntArray, margin: Margin) -> Change:
    """Change of the share of failures.

    A pair about which only one run says whether a face was found (an unreadable picture, no answer, a pair
    that is not there) is filled in both ways, and the worse one counts for a pass as for a fail. Beside the
    bounds of the clustered mean stand exact binomial ones on identities (Clopper & Pearson 1934), and the
    wider count: no failure seen is not a rate of zero, and a t bound of a rare event passes too often.

    Args:
        before, after: 1 for a failure, 0 for a face that was found, NaN for untold in that run; shape (n,).
        clusters: identity of each pair, shape (n,).
        margin: what the change is held against, as a share.
    """
    known = np.isfinite(before) & np.isfinite(after)
    n_identities = len(np.unique(clusters))
    counts = Change(int(known.sum()), n_identities, n_identities, int((~known).sum()))
    worst = _filled(counts, before, after, WORST, clusters, margin)
    best = _filled(counts, before, after, BEST, clusters, margin)
    if worst.undefined or best.undefined:
        return worst if worst.undefined else best
    known_change = float((after - before)[known].mean()) if known.any() else math.nan
    return replace(further_from_a_decision(worst, best), change=known_change)


def no_face(run: FinishedRun) -> FloatArray:
    """1 where no face was found, 0 where one was, NaN where the pair doesn't tell; shape (n,)."""
    states = np.full(len(run), np.nan)
    for row, reason in enumerate(run.texts["reason"]):
        if reason == NO_FACE:
            states[row] = 1.0
        elif reason is None or reason in _FACE_WAS_FOUND:
            states[row] = 0.0
    return states


def _states(runs: tuple[FinishedRun, FinishedRun], attribute: str, group: str) -> _States:
    """States in both runs of the pairs of a cell that at least one run tells, and their identities' codes."""
    sides: list[dict[str, float]] = []
    identity: dict[str, str] = {}
    for run in runs:
        rows = run.rows_of(attribute, group)
        names = run.texts["pair_id"][rows]
        sides.append(dict(zip(names, no_face(run)[rows], strict=True)))
        identity |= dict(zip(names, run.texts["identity"][rows], strict=True))
    before, after = (
        np.array([side.get(name, math.nan) for name in identity], dtype=np.float64) for side in sides
    )
    told = np.isfinite(before) | np.isfinite(after)
    people = np.array(list(identity.values()), dtype=np.str_)[told]
    return before[told], after[told], np.unique(people, return_inverse=True)[1]


def _bounded(states: _States, fill: tuple[float, float]) -> Bounded:
    """The change of one group's share of failures, as of an error rate at any threshold."""
    clusters = states[2]
    size = int(clusters.max()) + 1
    selected = double_or_nothing(size, DRAWS, 0)
    sides = [
        acquisition(np.where(np.isnan(side), value, side), clusters, size)
        for side, value in zip(states, fill, strict=False)
    ]
    base, new = (rated(side, 0.0, np.zeros(DRAWS), selected) for side in sides)
    return replace(rate_change(base, new), draws=np.empty(0))


def _filled(
    counts: Change,
    before: FloatArray,
    after: FloatArray,
    fill: tuple[float, float],
    clusters: IntArray,
    margin: Margin,
) -> Change:
    """The change with the untold states of baseline and new run filled in."""
    first = np.where(np.isnan(before), fill[0], before)
    second = np.where(np.isnan(after), fill[1], after)
    found = cell_estimates(first, second, clusters)
    if found.status[0] == "undefined":
        return replace(counts, undefined=REASONS[str(found.reason[0])])
    result = held(counts, float(found.delta[0]), float(found.se[0]), float(found.df[0]), margin)
    worse = len(np.unique(clusters[second > first]))
    better = len(np.unique(clusters[second < first]))
    return _with_exact(result, worse, better, margin)


def _with_exact(result: Change, worse: int, better: int, margin: Margin) -> Change:
    """Widen the bounds by the number of identities with a pair that fails newly, or is found newly."""
    n = result.n_identities
    level = 1 - 2 * margin.alpha
    share = min(margin.margin, 1.0)
    inside: dict[Harmful, float] = {
        "higher": float(special.bdtr(worse, n, share)),
        "lower": float(special.bdtr(better, n, share)),
    }
    inside["both"] = max(inside.values())
    return replace(
        result,
        low=min(result.low, -clopper_pearson(better, n, level)[1]),
        high=max(result.high, clopper_pearson(worse, n, level)[1]),
        p_inside=max(result.p_inside, inside[margin.harmful]),
    )
