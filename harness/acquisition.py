"""Change of the failure to acquire: the share of pairs in which the target finds no face."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness.changes import Change, Margin, counted_together, further_from_a_decision, held_bounded
from harness.finished import FinishedRun, FloatArray, IntArray
from harness.rate_changes import Parts, Spread, bounded_change
from harness.stats.bounded import Bounded
from harness.stats.intervals import REASONS, CellEstimates, cell_estimates

NO_FACE = "no_face"
_FACE_WAS_FOUND = ("no_reference",)
States = tuple[FloatArray, FloatArray, IntArray]
WORST, BEST = (0.0, 1.0), (1.0, 0.0)
"""What a state that is not told in the baseline, and in the new run, may have been."""


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
        own = _states(runs, attribute, group)
        if not (np.isfinite(own[0]) & np.isfinite(own[1])).any():
            return Change(missing=f"{group} has no pair that says in both runs whether a face was found")
        states.append(own)
    return acquisition_change(states, margin)


def acquisition_change(groups: Sequence[States], margin: Margin) -> Change:
    """Change of the share of failures of one group, or of two groups' difference.

    A pair about which only one run says whether a face was found (an unreadable picture, no answer, a pair
    that is not there) is filled in both ways, and the worse one counts for a pass as for a fail. Beside the
    bounds of the clustered mean (CR2) stand exact binomial ones (Clopper & Pearson 1934) on the identities
    that fail newly, and that are found newly, added up by squares, and the wider count: no failure seen is
    not a rate of zero, and a t bound of a rare event passes too often.

    Args:
        groups: of each, states before and after (1 for a failure, 0 for a face that was found, NaN for untold
            in that run) and identity, coded from 0, of n pairs, shape (n,); some pair is told in both runs.
            Of two groups the first's change is taken from the second's.
        margin: what the change is held against, as a share.
    """
    counts = counted_together([_counts(own) for own in groups])
    filled = [[_estimates(own, fill) for own in groups] for fill in (WORST, BEST)]
    for found in itertools.chain(*filled):
        if found.status[0] == "undefined":
            return replace(counts, undefined=REASONS[str(found.reason[0])])
    worst, best = (
        [_bounded(own, fill, found) for own, found in zip(groups, way, strict=True)]
        for fill, way in zip((WORST, BEST), filled, strict=True)
    )
    largest, smallest = (
        (worst[0], best[0]) if len(groups) == 1 else (worst[1].minus(best[0]), best[1].minus(worst[0]))
    )
    result = further_from_a_decision(*(held_bounded(counts, way, margin) for way in (largest, smallest)))
    changes = [float(np.nanmean(after - before)) for before, after, _ in groups]
    return replace(result, change=changes[-1] - (changes[0] if len(changes) > 1 else 0.0))


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


def _states(runs: tuple[FinishedRun, FinishedRun], attribute: str, group: str) -> States:
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


def _filled(states: States, fill: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
    before, after = (
        np.where(np.isnan(side), value, side) for side, value in zip(states[:2], fill, strict=True)
    )
    return before, after


def _estimates(states: States, fill: tuple[float, float]) -> CellEstimates:
    return cell_estimates(*_filled(states, fill), states[2])


def _bounded(states: States, fill: tuple[float, float], found: CellEstimates) -> Bounded:
    """The change of one group's share of failures, filled in."""
    before, after = _filled(states, fill)
    people = states[2]
    units = int(people.max()) + 1
    net = np.asarray(np.bincount(people, after - before) * (units / len(people)), dtype=np.float64)
    spread = Spread(float(found.se[0]), float(found.df[0]))
    return bounded_change(
        float(found.delta[0]), spread, Parts(net, units, lambda _: float(units)), np.empty(0)
    )
