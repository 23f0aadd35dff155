"""What the filter does to a difference: kept pairs beside all candidates that could be scored.

A rejected candidate without an answer makes the differences of its group not available: left out, it would
read as if the filter had kept everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.disparities import Row
from harness.estimates import AttributeEstimates, IntArray, estimate_attributes
from harness.numbers import number
from harness.outcomes import CODES, FloatArray, Outcomes
from harness.record import Interval, SelectionCheck, SelectionState
from harness.stats.contrasts import PairwiseContrasts, pairwise
from harness.stats.selection import FilteredGroup, depends_on_filter, lee_bounds, lee_interval
from targets.base.text import counted, shortlist

NO_CANDIDATES = "the pairs come without the candidates that they were filtered from"
NOT_ASKED = "the rejected candidates were not asked about (--no-candidates)"
# A face that is not found, or a picture that nobody can read, is known about a candidate; these are not.
UNANSWERED = tuple(
    CODES[name] for name in ("no_answer", "non_finite", "missing_source", "missing_transformed")
)
METHOD = "imbens_manski"


@dataclass(frozen=True)
class Candidates:
    """Outcomes of all candidates, kept ones included.

    Attributes:
        outcomes: what was answered; None where nobody was asked, for which ``reason`` says why.
        reason: in words.
    """

    outcomes: Outcomes | None = None
    reason: str = NO_CANDIDATES


def selection_checks(
    kept: Outcomes,
    estimates: Sequence[AttributeEstimates],
    candidates: Candidates,
    rows: Sequence[Row],
    *,
    level: float,
) -> tuple[list[SelectionCheck], SelectionState]:
    """Compare every planned difference on kept pairs with the same on all candidates.

    Args:
        kept: outcomes of the kept pairs.
        estimates: of the kept pairs, one an attribute.
        candidates: outcomes of all candidates, or why there are none.
        rows: (attribute, concept) planned for comparison.
        level: of the intervals; a decision is p < 1 - level.

    Returns:
        The checks, none where no difference can be checked, and whether they are available.
    """
    everyone = candidates.outcomes
    if everyone is None:
        return [], SelectionState(status="not_available", reason=candidates.reason)
    lost = set(kept.labels.pair_id) - set(everyone.labels.pair_id)
    if lost:
        count = counted(len(lost), "kept pair")
        reason = f"{count} of the dataset can't be found among its candidates ({shortlist(sorted(lost), 3)})"
        return [], SelectionState(status="not_available", reason=reason)
    rejected = ~np.isin(everyone.labels.pair_id.astype(str), kept.labels.pair_id.astype(str))
    unanswered = rejected & np.isin(everyone.codes, UNANSWERED).all(axis=1)
    checks = list(_all_checks(kept, estimates, everyone, rows, rejected, level))
    available = sum(check.status == "ok" for check in checks)
    silent = counted(int(unanswered.sum()), "rejected candidate")
    told = f"{silent} of {int(rejected.sum()):,} without an answer: ask about them too, or take it as open"
    status = "ok" if available == len(checks) else "partial" if available else "not_available"
    state = SelectionState(
        status=status,
        reason=told if unanswered.any() else next((c.reason for c in checks if c.reason), ""),
        rejected=int(rejected.sum()),
        unanswered=int(unanswered.sum()),
    )
    return (checks if available else []), state


def _all_checks(
    kept: Outcomes,
    estimates: Sequence[AttributeEstimates],
    everyone: Outcomes,
    rows: Sequence[Row],
    rejected: np.ndarray[tuple[int], np.dtype[np.bool_]],
    level: float,
) -> Iterator[SelectionCheck]:
    if len(estimates[0].groups) < 2:
        return
    attributes = [item.attribute for item in estimates]
    groups = estimates[0].groups
    others = estimate_attributes(everyone, attributes, groups, method="cluster", level=level)
    for item, other in zip(estimates, others, strict=True):
        ours, theirs = pairwise(item.means, level=level), pairwise(other.means, level=level)
        depends = depends_on_filter(ours, theirs, alpha=1 - level)
        for name, concept in rows:
            if name == item.attribute:
                index = kept.concepts.index(concept)
                gaps = [_gap(everyone, own[rejected[own]], index) for own in other.rows]
                sides = [
                    _filtered(kept, own, everyone, all_rows, index)
                    for own, all_rows in zip(item.rows, other.rows, strict=True)
                ]
                found = _checks(ours, theirs, depends, sides, gaps, index, level)
                for a, b, values in found:
                    yield SelectionCheck(attribute=name, concept=concept, a=groups[a], b=groups[b], **values)


def _gap(everyone: Outcomes, rejected: IntArray, index: int) -> str:
    """How many of a group's rejected candidates have no answer, in words; empty where all have one."""
    silent = int(np.isin(everyone.codes[rejected, index], UNANSWERED).sum())
    return f"{silent} of {counted(len(rejected), 'rejected candidate')} without an answer" if silent else ""


def _filtered(
    kept: Outcomes, rows: IntArray, everyone: Outcomes, all_rows: IntArray, index: int
) -> FilteredGroup:
    scored = rows[np.isfinite(_deltas(kept, rows, index))]
    scorable = all_rows[np.isfinite(_deltas(everyone, all_rows, index))]
    names = [
        name
        for labels, own in ((kept.labels, scored), (everyone.labels, scorable))
        for name in (labels.identity if labels.person is None else labels.person)[own]
    ]
    people = np.unique(np.array(names, dtype=np.str_), return_inverse=True)[1]
    return FilteredGroup(
        _deltas(kept, scored, index),
        people[: len(scored)].astype(np.int64),
        people[len(scored) :].astype(np.int64),
    )


def _checks(
    ours: PairwiseContrasts,
    theirs: PairwiseContrasts,
    depends: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
    sides: Sequence[FilteredGroup],
    gaps: Sequence[str],
    index: int,
    level: float,
) -> Iterator[tuple[int, int, dict[str, object]]]:
    for position, (a, b) in enumerate(zip(ours.a, ours.b, strict=True)):
        at = position, index
        values: dict[str, object] = {"kept": number(ours.difference[at]), "p_kept": number(ours.p[at])}
        one, two = sides[a], sides[b]
        reason = "; ".join(dict.fromkeys(gap for gap in (gaps[a], gaps[b]) if gap))
        if not reason and any(len(side.deltas) > len(side.candidate_people) for side in (one, two)):
            reason = "fewer candidates than kept pairs have scores"
        if reason:
            unknown = dict.fromkeys(
                ("candidates", "p_candidates", "depends_on_filter", "keep_a", "keep_b", "lee_low", "lee_high")
            )
            yield a, b, {**values, **unknown, "status": "not_available", "reason": reason}
            continue
        bounds = lee_bounds(one.deltas, len(one.candidate_people), two.deltas, len(two.candidate_people))
        wide = lee_interval(one, two, level=level)
        yield (
            a,
            b,
            {
                **values,
                "candidates": number(theirs.difference[at]),
                "p_candidates": number(theirs.p[at]),
                "depends_on_filter": bool(depends[at]),
                "keep_a": number(bounds.keep_a),
                "keep_b": number(bounds.keep_b),
                "lee_low": number(bounds.low),
                "lee_high": number(bounds.high),
                "lee_ci": Interval(low=wide.low, high=wide.high, level=level, method=METHOD)
                if wide.status == "ok"
                else None,
            },
        )


def _deltas(outcomes: Outcomes, rows: IntArray, index: int) -> FloatArray:
    values: FloatArray = outcomes.transformed[rows, index] - outcomes.source[rows, index]
    return values
