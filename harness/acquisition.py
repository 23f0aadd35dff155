"""Change of the failure to acquire: the share of pairs in which the target finds no face."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy import special

from harness.changes import Change, Margin, held
from harness.finished import FinishedRun, FloatArray, IntArray
from harness.stats.equivalence import Harmful
from harness.stats.intervals import REASONS, cell_estimates
from harness.stats.proportions import clopper_pearson

NO_FACE = "no_face"
_FACE_WAS_FOUND = ("no_reference",)


def fta_change(runs: tuple[FinishedRun, FinishedRun], attribute: str, group: str, margin: Margin) -> Change:
    """Change of the share of pairs in which the target finds no face.

    Args:
        runs: baseline and new run.
        attribute, group: the cell.
        margin: what the change is held against, as a share.
    """
    for run, name in zip(runs, ("baseline", "new run"), strict=True):
        if not np.isfinite(no_face(run)[run.rows_of(attribute, group)]).any():
            return Change(missing=f"{group} has no pair in the {name} that says whether a face was found")
    before, after, clusters = _states(runs, attribute, group)
    return acquisition_change(before, after, clusters, margin)


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
    worst = _filled(counts, before, after, (0.0, 1.0), clusters, margin)
    best = _filled(counts, before, after, (1.0, 0.0), clusters, margin)
    if worst.undefined or best.undefined:
        return worst if worst.undefined else best
    return replace(
        worst,
        change=float((after - before)[known].mean()) if known.any() else math.nan,
        se=max(worst.se, best.se),
        low=min(worst.low, best.low),
        high=max(worst.high, best.high),
        p_inside=max(worst.p_inside, best.p_inside),
        p_beyond=max(worst.p_beyond, best.p_beyond),
    )


def no_face(run: FinishedRun) -> FloatArray:
    """1 where no face was found, 0 where one was, NaN where the pair doesn't tell; shape (n,)."""
    states = np.full(len(run), np.nan)
    for row, reason in enumerate(run.texts["reason"]):
        if reason == NO_FACE:
            states[row] = 1.0
        elif reason is None or reason in _FACE_WAS_FOUND:
            states[row] = 0.0
    return states


def _states(
    runs: tuple[FinishedRun, FinishedRun], attribute: str, group: str
) -> tuple[FloatArray, FloatArray, IntArray]:
    """States in both runs of the baseline's pairs of a cell that at least one run tells, and clusters."""
    base, new = runs
    later = dict(zip(new.texts["pair_id"], no_face(new), strict=True))
    rows = np.flatnonzero(base.rows_of(attribute, group))
    before = no_face(base)[rows]
    after = np.array([later.get(name, math.nan) for name in base.texts["pair_id"][rows]], dtype=np.float64)
    told = np.isfinite(before) | np.isfinite(after)
    return before[told], after[told], base.clusters()[rows][told]


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
