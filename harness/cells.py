"""Estimates -> cells: one mean change for every attribute, concept and group, adjusted in their family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from harness.axes import CoarseAxis
from harness.estimates import AttributeEstimates, IntArray
from harness.numbers import number
from harness.outcomes import OK, REASONS, Outcomes
from harness.record import Cell, Family, Interval, Status
from harness.stats import hall
from harness.stats.aggregate import aggregate
from harness.stats.families import adjust
from harness.stats.groups import GroupMeans
from harness.stats.intervals import REASONS as INTERVAL_REASONS
from harness.stats.intervals import CellEstimates
from targets.base.tables import ObjectArray


def order_of_appearance(values: ObjectArray, known: Iterable[str] | None = None) -> tuple[str, ...]:
    """The distinct values: those known beforehand in their order, then the others as they come."""
    return tuple(dict.fromkeys([*(known or ()), *values]))


def demographic_cells(outcomes: Outcomes, estimates: Sequence[AttributeEstimates], target: str) -> list[Cell]:
    """Every cell of the demographic groups; one without pairs has status "undefined".

    Args:
        outcomes: n pairs, c concepts.
        estimates: one an attribute.
        target: spec of the target.

    Returns:
        Cells ordered by attribute, concept, group.
    """
    lost_rows = _lost_rows(outcomes)
    cells: list[Cell] = []
    for item in estimates:
        excluded = [
            _excluded(outcomes, rows, lost_rows.get((item.attribute, group), Counter()))
            for group, rows in zip(item.groups, item.rows, strict=True)
        ]
        for index, concept in enumerate(outcomes.concepts):
            for group, found, counts in zip(item.groups, item.cells, excluded, strict=True):
                labels = {"target": target, "attribute": item.attribute, "concept": concept, "group": group}
                cells.append(_cell(labels, found, index, counts[index]))
    return cells


def _lost_rows(outcomes: Outcomes) -> dict[tuple[str, str], Counter[str]]:
    """Rows that never became a pair, counted in the cell they name."""
    lost: dict[tuple[str, str], Counter[str]] = {}
    for failure in outcomes.failures:
        if failure.what == "row":
            lost.setdefault((failure.attribute, failure.group), Counter())[failure.reason] += 1
    return lost


def _excluded(outcomes: Outcomes, rows: IntArray, lost: Counter[str]) -> list[dict[str, int]]:
    """For each concept, reason -> pairs and rows left out of the cell."""
    counts = [np.bincount(column, minlength=len(REASONS)) for column in outcomes.codes[rows].T]
    found = [
        Counter(
            {reason: int(count[code]) for code, reason in enumerate(REASONS) if code != OK and count[code]}
        )
        for count in counts
    ]
    return [dict(lost + count) for count in found]


def _cell(labels: dict[str, str], estimates: CellEstimates, index: int, excluded: dict[str, int]) -> Cell:
    status: Status = str(estimates.status[index])  # type: ignore[assignment]
    ok = status == "ok"
    return Cell(
        **labels,
        by="demographic",
        n_pairs=int(estimates.n_pairs[index]),
        n_identities=int(estimates.n_identities[index]),
        mean_source=number(estimates.mean_source[index]),
        mean_transformed=number(estimates.mean_transformed[index]),
        delta=number(estimates.delta[index]),
        se=number(estimates.se[index]) if ok else None,
        df=number(estimates.df[index]) if ok else None,
        ci=_interval(estimates, index) if ok else None,
        p=number(estimates.p[index]) if ok else None,
        p_adjusted=None,
        family=None,
        status=status,
        reason=INTERVAL_REASONS.get(str(estimates.reason[index]), ""),
        flags=tuple(estimates.flags(index)),
        excluded=excluded,
    )


def _interval(estimates: CellEstimates, index: int) -> Interval:
    return Interval(
        low=float(estimates.low[index]),
        high=float(estimates.high[index]),
        level=estimates.level,
        method=estimates.interval_method(index),
    )


def coarse_cells(
    estimates: Sequence[AttributeEstimates],
    axis: CoarseAxis,
    fine: Sequence[Cell],
    concepts: Sequence[str],
    *,
    level: float,
) -> list[Cell]:
    """Cells of a coarser axis: means with equal weights of the fine groups that have pairs.

    Args:
        estimates: one an attribute.
        axis: of L levels.
        fine: the cells of the demographic groups.
        concepts: c names.
        level: of the intervals, in (0, 1).
    """
    by_key = {(cell.attribute, cell.concept, cell.group): cell for cell in fine}
    cells = []
    for item in estimates:
        means = aggregate(item.means, axis.levels, axis.strata).means
        for index, concept in enumerate(concepts):
            parts = [by_key[item.attribute, concept, group] for group in axis.groups]
            for position, group in enumerate(axis.names):
                own = [cell for cell, code in zip(parts, axis.levels, strict=True) if code == position]
                cells.append(_coarse_cell((axis.axis, group), own, means, (position, index), level))
    return cells


def _coarse_cell(
    place: tuple[str, str], parts: Sequence[Cell], means: GroupMeans, at: tuple[int, int], level: float
) -> Cell:
    """The cell of an axis and level from the cells of its fine groups."""
    delta, se, df, skew = (float(values[at]) for values in (means.delta, means.se, means.df, means.skew))
    status: Status = "undefined"
    if np.isfinite(delta) and np.isfinite(se):
        status = "ok" if se > 0 else "zero_variance"
    ok = status == "ok"
    named = {"few_identities": means.few_identities[at], "skewed": means.skewed[at]}
    there = [cell for cell in parts if cell.delta is not None]
    return Cell(
        target=parts[0].target,
        by=place[0],
        attribute=parts[0].attribute,
        concept=parts[0].concept,
        group=place[1],
        n_pairs=int(means.n_pairs[at]),
        n_identities=int(means.n_identities[at]),
        mean_source=_mean([cell.mean_source for cell in there]),
        mean_transformed=_mean([cell.mean_transformed for cell in there]),
        delta=number(delta),
        se=se if ok else None,
        df=df if ok else None,
        ci=_coarse_interval(delta, se, df, skew, level) if ok else None,
        p=float(hall.p_two_sided(delta, se, df, skew)) if ok else None,
        p_adjusted=None,
        family=None,
        status=status,
        reason="" if ok else _coarse_reason(there, status),
        flags=tuple(name for name, is_set in named.items() if is_set),
        missing=tuple(cell.group for cell in parts if cell.delta is None),
        excluded=dict(sum((Counter(cell.excluded) for cell in parts), Counter())),
    )


def _coarse_interval(delta: float, se: float, df: float, skew: float, level: float) -> Interval:
    low, high = hall.bounds(delta, se, df, skew, (1 - level) / 2)
    method = "equal weights" + (hall.METHOD if skew else "")
    return Interval(low=float(low), high=float(high), level=level, method=method)


def _mean(values: Sequence[float | None]) -> float | None:
    """Mean with equal weights, None where there is nothing or a part is not known."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def _coarse_reason(parts: Sequence[Cell], status: Status) -> str:
    """Why a level has no interval: which of its fine groups have none."""
    if not parts:
        return INTERVAL_REASONS["no_pairs"]
    if status == "zero_variance":
        return INTERVAL_REASONS["rounding_noise"]
    without = [cell for cell in parts if cell.status == "undefined"]
    return "; ".join(f"{cell.group}: {cell.reason}" for cell in without)


def adjusted_cells(cells: Sequence[Cell], target: str) -> tuple[list[Cell], list[Family]]:
    """Adjust the cells' tests of delta = 0: one family a target and axis, Holm; undefined counts as 1."""
    done: list[Cell] = []
    families = []
    for by in dict.fromkeys(cell.by for cell in cells):
        own = [cell for cell in cells if cell.by == by]
        family = Family(id=f"cells:{target}:{by}", m=len(own), method="holm")
        families.append(family)
        adjusted = adjust([np.nan if cell.p is None else cell.p for cell in own]).p
        done += [
            cell.model_copy(update={"p_adjusted": number(p), "family": family.id})
            for cell, p in zip(own, adjusted, strict=True)
        ]
    return done, families
