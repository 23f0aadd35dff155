"""The part of a report about a recogniser: thresholds, rates before and after an edit, pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.recognition_record import ErrorRate, RateChange, Recognition, RecognitionCell
from harness.recognition_tables import COMPARISONS, rate_text, recognition_tables, signed
from harness.record import Record
from harness.report import recognition_charts
from harness.report.charts import svg
from harness.tables import NOT_MEASURED, DisparityTable

SOURCE_FACES = "source faces"
STATUSES = {
    "identities_as_size": "no error, or nothing but errors: the people are the sample",
    "too_few_identities": "too few people for an interval",
    "no_comparisons": "nothing to compare",
}


@dataclass(frozen=True)
class RateRow:
    """One rate of a group as texts.

    Attributes:
        group, name: whose, and which.
        before, after, change: with intervals.
        n, people: comparisons (faces for FTA) and people behind the side after the edit.
        remark: what to mind.
    """

    group: str
    name: str
    before: str
    after: str
    change: str
    n: str
    people: str
    remark: str


@dataclass(frozen=True)
class RecognitionView:
    """All a page shows of a recogniser.

    Attributes:
        level: of intervals, in per cent.
        tables: thresholds, rates, inequity.
        rows: attribute (or source faces) -> its rows, failures to acquire left out, then as non-matches.
        det: SVG, empty where there is no curve; ``without_curve``: groups that have none.
        histograms: group -> SVG.
        rules: name -> text.
    """

    level: str
    tables: tuple[DisparityTable, ...]
    rows: tuple[tuple[str, tuple[RateRow, ...]], ...]
    det: str
    without_curve: tuple[str, ...]
    histograms: tuple[tuple[str, str], ...]
    rules: dict[str, str]


def recognition_views(record: Record) -> list[RecognitionView]:
    """One view a recogniser, none where the target is none."""
    if not record.recognition:
        return []
    tables = recognition_tables(record)
    return [_view(item, tables) for item in record.recognition]


def _view(item: Recognition, tables: list[DisparityTable]) -> RecognitionView:
    det = recognition_charts.det_chart(item)
    without = tuple(entry.group for entry in item.distributions if not recognition_charts.curve(entry))
    histograms = []
    for entry in item.distributions:
        chart = recognition_charts.histogram_chart(item, entry)
        if chart is not None:
            histograms.append((entry.group, svg(chart, f"Genuine and impostor scores: {entry.group}")))
    attributes = list(dict.fromkeys(cell.attribute for cell in item.cells))
    return RecognitionView(
        level=f"{100 * item.level:g}",
        tables=tuple(tables),
        rows=tuple((name or SOURCE_FACES, tuple(_rows(item, name))) for name in attributes),
        det=svg(det, "DET curves of source faces by group") if det is not None else "",
        without_curve=without,
        histograms=tuple(histograms),
        rules=dict(item.rules),
    )


def _rows(item: Recognition, attribute: str | None) -> Iterator[RateRow]:
    for cell in item.cells:
        if cell.attribute == attribute:
            yield _row(cell, with_fta=False)
            if (cell.before, cell.after) != (cell.before_with_fta, cell.after_with_fta):
                yield _row(cell, with_fta=True)


def _row(cell: RecognitionCell, *, with_fta: bool) -> RateRow:
    sides = (cell.before_with_fta, cell.after_with_fta) if with_fta else (cell.before, cell.after)
    change = cell.change_with_fta if with_fta else cell.change
    shown = next(side for side in reversed(sides) if side is not None)
    name = COMPARISONS[cell.metric, cell.comparison]
    return RateRow(
        group=cell.group,
        name=f"{name}, FTA as non-match" if with_fta else name,
        before=_rate(sides[0]),
        after=_rate(sides[1]),
        change=_change(change),
        n=f"{shown.errors:,} of {shown.n:,}",
        people=f"{shown.n_identities:,}",
        remark=STATUSES.get(shown.status, ""),
    )


def _rate(rate: ErrorRate | None) -> str:
    return NOT_MEASURED if rate is None else rate_text(rate)


def _change(change: RateChange | None) -> str:
    if change is None or change.difference is None:
        return NOT_MEASURED
    if change.low is None or change.high is None:
        return f"{signed(change.difference)} ?"
    return f"{signed(change.difference)} [{signed(change.low)}, {signed(change.high)}]"
