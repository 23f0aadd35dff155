"""Outcomes -> cells: one mean change for every attribute, concept and group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from harness.outcomes import OK, REASONS, Outcomes
from harness.record import Cell, Interval, Status
from harness.stats.intervals import CellEstimates, Method, cell_estimates
from targets.base.tables import ObjectArray


def order_of_appearance(values: ObjectArray, known: Iterable[str] | None = None) -> tuple[str, ...]:
    """The distinct values: those known beforehand in their order, then the others as they come."""
    return tuple(dict.fromkeys([*(known or ()), *values]))


def demographic_cells(
    outcomes: Outcomes,
    target: str,
    attributes: Sequence[str],
    groups: Sequence[str],
    *,
    method: Method,
    level: float,
) -> list[Cell]:
    """Estimate every cell; a combination without pairs is a cell with status "undefined".

    Args:
        outcomes: n pairs, c concepts.
        target: spec of the target.
        attributes: rows of the table, in order.
        groups: columns of the table, in order.
        method: "cluster", "t" or "bootstrap".
        level: of the intervals, in (0, 1).

    Returns:
        Cells ordered by attribute, concept, group.
    """
    clusters = outcomes.labels.clusters()
    lost_rows = _lost_rows(outcomes)
    cells: list[Cell] = []
    for attribute in attributes:
        structures: list[tuple[str, CellEstimates, list[dict[str, int]]]] = []
        for group in groups:
            rows = np.flatnonzero(
                (outcomes.labels.attribute == attribute) & (outcomes.labels.demographic == group)
            )
            estimates = cell_estimates(
                outcomes.source[rows],
                outcomes.transformed[rows],
                clusters[rows],
                method=method,
                level=level,
            )
            lost = lost_rows.get((attribute, group), Counter())
            structures.append(
                (group, estimates, [dict(lost + Counter(c)) for c in _excluded(outcomes, rows)])
            )
        for index, concept in enumerate(outcomes.concepts):
            for group, estimates, excluded in structures:
                labels = {"target": target, "attribute": attribute, "concept": concept, "group": group}
                cells.append(_cell(labels, estimates, index, excluded[index]))
    return cells


def _lost_rows(outcomes: Outcomes) -> dict[tuple[str, str], Counter[str]]:
    """Rows that never became a pair, counted in the cell they name."""
    lost: dict[tuple[str, str], Counter[str]] = {}
    for failure in outcomes.failures:
        if failure.what == "row":
            lost.setdefault((failure.attribute, failure.group), Counter())[failure.reason] += 1
    return lost


def _excluded(outcomes: Outcomes, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> list[dict[str, int]]:
    codes = outcomes.codes[rows]
    counts = [np.bincount(column, minlength=len(REASONS)) for column in codes.T]
    return [
        {reason: int(count[code]) for code, reason in enumerate(REASONS) if code != OK and count[code]}
        for count in counts
    ]


def _cell(labels: dict[str, str], estimates: CellEstimates, index: int, excluded: dict[str, int]) -> Cell:
    status: Status = str(estimates.status[index])  # type: ignore[assignment]
    ok = status == "ok"
    return Cell(
        **labels,
        by="demographic",
        n_pairs=int(estimates.n_pairs[index]),
        n_identities=int(estimates.n_identities[index]),
        mean_source=_number(estimates.mean_source[index]),
        mean_transformed=_number(estimates.mean_transformed[index]),
        delta=_number(estimates.delta[index]),
        se=_number(estimates.se[index]) if ok else None,
        df=_number(estimates.df[index]) if ok else None,
        ci=_interval(estimates, index) if ok else None,
        p=_number(estimates.p[index]) if ok else None,
        p_adjusted=None,
        family=None,
        status=status,
        flags=tuple(estimates.flags(index)),
        excluded=excluded,
    )


def _interval(estimates: CellEstimates, index: int) -> Interval:
    return Interval(
        low=float(estimates.low[index]),
        high=float(estimates.high[index]),
        level=estimates.level,
        method=estimates.method,
    )


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
