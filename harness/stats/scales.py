"""Does the finding depend on the scale of the scores? The same cell on the logit or the rank scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from harness.stats.cells import checked
from harness.stats.intervals import CellEstimates, cell_estimates
from harness.stats.numerics import Bools, Floats

_AT = 1e-6


@dataclass(frozen=True)
class ScaleSensitivity:
    """Scale checks of one structure; arrays of shape (c,).

    Attributes:
        floor, ceiling: ends of the scale: 0 and 1 if all scores lie in [0, 1], else the extreme scores seen.
        floor_share, ceiling_share: share of the kept pairs' scores (source and transformed) within a
            millionth of the range of that end; NaN without pairs.
        scale: `logit` if all scores lie strictly between 0 and 1, else `rank`.
        other: the estimates on that scale (ranks are average ranks among all scores of the cell, over
            their number).
        scale_dependent: the mean delta has another sign there, or the test of delta = 0 decides otherwise.
    """

    floor: Floats
    ceiling: Floats
    floor_share: Floats
    ceiling_share: Floats
    scale: NDArray[np.str_]
    other: CellEstimates
    scale_dependent: Bools


def scale_sensitivity(
    source: ArrayLike, transformed: ArrayLike, clusters: ArrayLike, *, level: float = 0.999
) -> ScaleSensitivity:
    """Compare the cells of a structure with the same cells on another scale.

    Args:
        source, transformed, clusters: as in `intervals.cell_estimates`.
        level: decisions are p < 1 - level, with cluster-robust intervals on both scales.
    """
    before, after, codes = checked(source, transformed, clusters)
    kept = np.isfinite(before) & np.isfinite(after)
    scores = np.concatenate([np.where(kept, before, np.nan), np.where(kept, after, np.nan)])
    lowest, highest = _ends(scores)
    unit = (lowest >= 0.0) & (highest <= 1.0)
    floor, ceiling = np.where(unit, 0.0, lowest), np.where(unit, 1.0, highest)
    near = _AT * ceiling - _AT * floor
    count = np.maximum(2 * kept.sum(axis=0), 1)
    empty = ~kept.any(axis=0)
    inside = (lowest > 0.0) & (highest < 1.0)
    moved = _rescaled(scores, inside)
    here = cell_estimates(before, after, codes, level=level)
    other = cell_estimates(moved[: len(before)], moved[len(before) :], codes, level=level)
    return ScaleSensitivity(
        floor=floor,
        ceiling=ceiling,
        floor_share=np.where(empty, np.nan, (scores <= floor + near).sum(axis=0) / count),
        ceiling_share=np.where(empty, np.nan, (scores >= ceiling - near).sum(axis=0) / count),
        scale=np.where(inside, "logit", "rank"),
        other=other,
        scale_dependent=_differs(here, other),
    )


def _ends(scores: Floats) -> tuple[Floats, Floats]:
    """Return the smallest and largest score of each concept, NaN without scores."""
    blank = np.isnan(scores)
    low = np.where(blank, np.inf, scores).min(axis=0, initial=np.inf)
    high = np.where(blank, -np.inf, scores).max(axis=0, initial=-np.inf)
    empty = blank.all(axis=0)
    return np.where(empty, np.nan, low), np.where(empty, np.nan, high)


def _rescaled(scores: Floats, logit: Bools) -> Floats:
    out = np.full_like(scores, np.nan)
    out[:, logit] = special.logit(scores[:, logit])
    whole = ~logit & ~np.isnan(scores).any(axis=0)
    out[:, whole] = stats.rankdata(scores[:, whole], axis=0) / max(len(scores), 1)
    for column in np.flatnonzero(~logit & ~whole):
        known = ~np.isnan(scores[:, column])
        out[known, column] = stats.rankdata(scores[known, column]) / max(int(known.sum()), 1)
    return out


def _differs(here: CellEstimates, other: CellEstimates) -> Bools:
    with np.errstate(invalid="ignore"):
        sign = np.sign(here.delta) * np.sign(other.delta) < 0.0
    both = (here.status == "ok") & (other.status == "ok")
    alpha = 1.0 - here.level
    return np.asarray(sign | (both & ((here.p < alpha) != (other.p < alpha))))
