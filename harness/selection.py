"""What the filter does to a difference: kept pairs beside all candidates that could be scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from harness.disparities import Row
from harness.estimates import AttributeEstimates, IntArray, estimate_attributes
from harness.numbers import number
from harness.outcomes import FloatArray, Outcomes
from harness.record import SelectionCheck
from harness.stats.contrasts import PairwiseContrasts, pairwise
from harness.stats.selection import depends_on_filter, lee_bounds


def selection_checks(
    kept: Outcomes,
    estimates: Sequence[AttributeEstimates],
    candidates: Outcomes | None,
    rows: Sequence[Row],
    *,
    level: float,
) -> list[SelectionCheck]:
    """Compare every planned difference on kept pairs with the same on all candidates.

    Args:
        kept: outcomes of the kept pairs.
        estimates: of the kept pairs, one an attribute.
        candidates: outcomes of all candidates, kept ones included; None where there are none.
        rows: (attribute, concept) planned for comparison.
        level: of the intervals; a decision is p < 1 - level.
    """
    if candidates is None or len(estimates[0].groups) < 2:
        return []
    attributes = [item.attribute for item in estimates]
    groups = estimates[0].groups
    others = estimate_attributes(candidates, attributes, groups, method="cluster", level=level)
    checks: list[SelectionCheck] = []
    for item, other in zip(estimates, others, strict=True):
        ours, theirs = pairwise(item.means, level=level), pairwise(other.means, level=level)
        depends = depends_on_filter(ours, theirs, alpha=1 - level)
        for name, concept in rows:
            if name == item.attribute:
                index = kept.concepts.index(concept)
                pair = (kept, item.rows), (candidates, other.rows)
                found = _checks(ours, theirs, depends, pair, index, (item.attribute, concept), groups)
                checks += list(found)
    return checks


_Side = tuple[Outcomes, tuple[IntArray, ...]]


def _checks(
    ours: PairwiseContrasts,
    theirs: PairwiseContrasts,
    depends: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
    sides: tuple[_Side, _Side],
    index: int,
    row: Row,
    groups: Sequence[str],
) -> Iterator[SelectionCheck]:
    (kept, kept_rows), (candidates, candidate_rows) = sides
    for position, (a, b) in enumerate(zip(ours.a, ours.b, strict=True)):
        at = position, index
        bounds = lee_bounds(
            _deltas(kept, kept_rows[a], index),
            len(_deltas(candidates, candidate_rows[a], index)),
            _deltas(kept, kept_rows[b], index),
            len(_deltas(candidates, candidate_rows[b], index)),
        )
        yield SelectionCheck(
            attribute=row[0],
            concept=row[1],
            a=groups[a],
            b=groups[b],
            kept=number(ours.difference[at]),
            candidates=number(theirs.difference[at]),
            p_kept=number(ours.p[at]),
            p_candidates=number(theirs.p[at]),
            depends_on_filter=bool(depends[at]),
            keep_a=number(bounds.keep_a),
            keep_b=number(bounds.keep_b),
            lee_low=number(bounds.low),
            lee_high=number(bounds.high),
        )


def _deltas(outcomes: Outcomes, rows: IntArray, index: int) -> FloatArray:
    values: FloatArray = outcomes.transformed[rows, index] - outcomes.source[rows, index]
    return values[np.isfinite(values)]
