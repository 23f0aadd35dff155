"""Change of the failure to acquire: the share of pairs in which the target finds no face."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from harness.changes import Change, Terms, counted_together, held, wider
from harness.finished import ComparedRuns, FinishedRun, FloatArray, IntArray
from harness.rate_changes import Parts, Spread, bounded_change
from harness.stats.bounded import Bounded, student
from harness.stats.intervals import REASONS, CellEstimates, cell_estimates

NO_FACE = "no_face"
_FACE_WAS_FOUND = ("no_reference",)
States = tuple[FloatArray, FloatArray, IntArray]
Fill = tuple[float, float] | None
WORST, BEST, SAME = (0.0, 1.0), (1.0, 0.0), None
"""States in both runs of a pair that only one tells about: failed anew, found anew, or alike."""


def fta_change(runs: ComparedRuns, attribute: str, groups: Sequence[str], terms: Terms) -> Change:
    """Change of the share of pairs in which the target finds no face.

    Args:
        runs: the two runs.
        attribute: which pairs.
        groups: one, or two for the change of their difference (the second's minus the first's).
        terms: what the change is held against, as a share.
    """
    states = []
    for group in groups:
        for run, name in zip((runs.base, runs.new), runs.names, strict=True):
            if not np.isfinite(no_face(run)[run.rows_of(attribute, group)]).any():
                return Change(missing=f"{group} has no pair in the {name} that says whether a face was found")
        own = states_of(runs, attribute, group)
        if not (np.isfinite(own[0]) & np.isfinite(own[1])).any():
            return Change(missing=f"{group} has no pair that says in both runs whether a face was found")
        states.append(own)
    return acquisition_change(states, terms)


def acquisition_change(groups: Sequence[States], terms: Terms) -> Change:
    """Change of the share of failures of one group, or of two groups' difference.

    A pair about which only one run says whether a face was found (an unreadable picture, no answer, a pair
    that is not there) is lost: for a pass it failed anew, or was found anew, whichever is worse; for a fail
    nothing changed. Beside the bounds of the clustered mean (CR2) stand exact binomial ones (Clopper &
    Pearson 1934) on the identities that fail newly, and that are found newly, added up by squares, and the
    wider count: zero observed failures do not prove a zero rate, and a t bound of a rare event passes too
    often.

    Args:
        groups: of each, states before and after (1 for a failure, 0 for a face that was found, NaN for untold
            in that run) and identity, coded from 0, of n pairs, shape (n,); some pair is told in both runs.
            Of two groups the first's change is taken from the second's.
        terms: what the change is held against, as a share.
    """
    counts = counted_together([_counts(own) for own in groups])
    fills = {fill: [_filled(own, fill) for own in groups] for fill in (WORST, BEST, SAME)}
    found = {fill: [cell_estimates(*own) for own in filled] for fill, filled in fills.items()}
    for item in itertools.chain(*found.values()):
        if item.status[0] == "undefined":
            return replace(counts, undefined=REASONS[str(item.reason[0])])
    ways: dict[Fill, list[Bounded]] = {
        fill: [_bounded(own, item) for own, item in zip(filled, found[fill], strict=True)]
        for fill, filled in fills.items()
    }
    by_t: dict[Fill, list[Bounded]] = {
        fill: [student(float(x.delta[0]), float(x.se[0]), float(x.df[0])) for x in items]
        for fill, items in found.items()
    }
    changes = [float(np.nanmean(after - before)) for before, after, _ in groups]
    counts = replace(counts, change=changes[-1] - (changes[0] if len(changes) > 1 else 0.0))
    people = [len(np.unique(own[2])) for own in groups]
    return held(counts, _difference(ways[SAME]), _worst(ways), people, terms, room=_worst(by_t))


def _difference(groups: Sequence[Bounded]) -> Bounded:
    return groups[0] if len(groups) == 1 else groups[1].minus(groups[0])


def _worst(ways: Mapping[Fill, Sequence[Bounded]]) -> Bounded:
    """The bounds of both ways in which lost pairs can have changed for the worse."""
    best, worst = ways[BEST], ways[WORST]
    if len(best) == 1:
        return wider(worst[0], best[0])
    return wider(worst[1].minus(best[0]), best[1].minus(worst[0]))


def _counts(states: States) -> Change:
    known = np.isfinite(states[0]) & np.isfinite(states[1])
    people = len(np.unique(states[2][known]))
    return Change(int(known.sum()), people, people, int((~known).sum()))


def no_face(run: FinishedRun) -> FloatArray:
    """1 where no face was found, 0 where one was, NaN where the pair doesn't tell; shape (n,)."""
    states = np.full(len(run), np.nan)
    for row, reason in enumerate(run.texts["reason"]):
        if reason == NO_FACE:
            states[row] = 1.0
        elif reason is None or reason in _FACE_WAS_FOUND:
            states[row] = 0.0
    return states


def states_of(runs: ComparedRuns, attribute: str, group: str) -> States:
    """States in both runs of the pairs of a cell that at least one run tells, and their identities' codes."""
    sides: list[dict[str, float]] = []
    for run in (runs.base, runs.new):
        rows = run.rows_of(attribute, group)
        sides.append(dict(zip(run.texts["pair_id"][rows], no_face(run)[rows], strict=True)))
    here = runs.union[0].rows_of(attribute, group)
    names = runs.union[0].texts["pair_id"][here]
    before, after = (
        np.array([side.get(name, math.nan) for name in names], dtype=np.float64) for side in sides
    )
    told = np.isfinite(before) | np.isfinite(after)
    people = runs.people[here][told]
    return before[told], after[told], np.unique(people, return_inverse=True)[1]


def _filled(states: States, fill: Fill) -> States:
    before, after, people = states
    if fill is SAME:
        return np.where(np.isnan(before), after, before), np.where(np.isnan(after), before, after), people
    return np.where(np.isnan(before), fill[0], before), np.where(np.isnan(after), fill[1], after), people


def _bounded(states: States, found: CellEstimates) -> Bounded:
    """The change of one group's share of failures, with exact bounds on its people."""
    before, after, people = states
    units = int(people.max()) + 1
    net = np.asarray(np.bincount(people, after - before) * (units / len(people)), dtype=np.float64)
    spread = Spread(float(found.se[0]), float(found.df[0]))
    return bounded_change(
        float(found.delta[0]), spread, Parts(net, units, lambda _: float(units)), np.empty(0)
    )
