"""Tables that a margin and a half-width ask for, and the mean over identities beside that over pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from harness.record import Cell, Detail, Difference, Record
from harness.tables import (
    FLAG_MARKS,
    NOT_MEASURED,
    STATUS_MARKS,
    DisparityTable,
    Row,
    legend,
    p_text,
    two_digits,
)

_NOT_SHOWN = '"not shown" does not say that a change is larger: the pairs leave both open'
_Key = tuple[str, str, str]


def plan_tables(record: Record, rows: Sequence[Row]) -> list[DisparityTable]:
    """What was asked for about the cells of some rows: means over identities, equivalence, half-widths.

    The means over identities are there where they differ from those over pairs.
    """
    own = [item for item in record.details if (item.attribute, item.concept) in set(rows)]
    settings = record.settings
    found = []
    if _means_differ(record, own):
        found.append(_identity_table(record, own, rows))
    if settings.margin is not None:
        found.append(_equivalence_table(record, own, rows, settings.margin))
    if settings.half_width is not None:
        found.append(_half_width_table(record, own, rows, settings.half_width))
    return found


def difference_plan_table(record: Record, by: str = "demographic") -> DisparityTable | None:
    """Every difference against the margin and half-width asked for; None where nobody asked."""
    settings = record.settings
    entries = [entry for entry in record.disparities if entry.by == by]
    if record.no_claim or not entries or (settings.margin is None and settings.half_width is None):
        return None
    heads = ["difference", "b minus a", f"smallest found by its {_level(record)} band"]
    heads += [] if settings.margin is None else [f"inside ± {two_digits(settings.margin)}?"]
    heads += [] if settings.half_width is None else [f"identities for ± {two_digits(settings.half_width)}"]
    rows = tuple(
        (entry.attribute, entry.concept, tuple(_difference_texts(pair, record)))
        for entry in entries
        for pair in entry.pairwise
    )
    title = f"Differences by {by}: what the pairs can find, and what they show to be small"
    notes = list(_notes(record, "differences", by))
    if settings.half_width is not None:
        notes.append("identities: of a and b, if both grow alike, for a band of this half-width")
    flags = {flag for entry in entries for pair in entry.pairwise for flag in pair.flags}
    notes += legend(rows, flags)
    return DisparityTable(title, tuple(heads), rows, tuple(notes), justify="left")


def _difference_texts(pair: Difference, record: Record) -> Iterator[str]:
    yield f"{pair.b} minus {pair.a}"
    marks = "".join(FLAG_MARKS.get(flag, "") for flag in pair.flags)
    yield NOT_MEASURED if pair.difference is None else f"{two_digits(pair.difference)}{marks}"
    yield _number_text(pair.minimum_detectable_effect)
    if record.settings.margin is not None:
        yield _inside_text(pair.equivalence_p_adjusted, record)
    if record.settings.half_width is not None:
        counts = pair.identities_for_half_width
        yield NOT_MEASURED if counts is None else f"{counts[0]:,} and {counts[1]:,}"


def _means_differ(record: Record, details: Sequence[Detail]) -> bool:
    cells = _cells(record)
    pairs = [
        (item.identity_mean.delta, cells[item.attribute, item.concept, item.group].delta) for item in details
    ]
    return any(
        one is not None and other is not None and abs(one - other) > 1e-9 * max(abs(one), abs(other))
        for one, other in pairs
    )


def _cells(record: Record) -> dict[_Key, Cell]:
    return {
        (cell.attribute, cell.concept, cell.group): cell for cell in record.cells if cell.by == "demographic"
    }


def _identity_table(record: Record, details: Sequence[Detail], rows: Sequence[Row]) -> DisparityTable:
    title = f"Mean change over identities, each counted once, {_level(record)} intervals"
    note = "where it is far from the mean over pairs, changes go with how many pairs an identity has"
    return _by_group(record, details, rows, title, _identity_text, (note,))


def _identity_text(item: Detail) -> str:
    mean = item.identity_mean
    if mean.delta is None:
        return NOT_MEASURED
    if mean.low is None or mean.high is None:
        return f"{two_digits(mean.delta)}{STATUS_MARKS[mean.status]}"
    return f"{two_digits(mean.delta)} [{two_digits(mean.low)}, {two_digits(mean.high)}]"


def _equivalence_table(
    record: Record, details: Sequence[Detail], rows: Sequence[Row], margin: float
) -> DisparityTable:
    title = f"Is the mean change inside ± {two_digits(margin)}? Two one-sided tests"
    notes = tuple(_notes(record, "cells"))
    return _by_group(
        record, details, rows, title, lambda item: _inside_text(item.equivalence_p_adjusted, record), notes
    )


def _half_width_table(
    record: Record, details: Sequence[Detail], rows: Sequence[Row], half_width: float
) -> DisparityTable:
    cells = _cells(record)

    def text(item: Detail) -> str:
        have = cells[item.attribute, item.concept, item.group].n_identities
        needed = item.identities_for_half_width
        return f"{NOT_MEASURED if needed is None else f'{needed:,}'} (has {have:,})"

    title = f"Identities for a {_level(record)} t interval of half-width {two_digits(half_width)}"
    note = "as spread out as here; intervals of skewed cells (‡) are wider than that"
    return _by_group(record, details, rows, title, text, (note,))


def _by_group(
    record: Record,
    details: Sequence[Detail],
    rows: Sequence[Row],
    title: str,
    text: Callable[[Detail], str],
    notes: tuple[str, ...],
) -> DisparityTable:
    by_key = {(item.attribute, item.concept, item.group): text(item) for item in details}
    lines = tuple(
        (*row, tuple(by_key.get((*row, group), NOT_MEASURED) for group in record.groups))
        for row in rows
        if any((*row, group) in by_key for group in record.groups)
    )
    return DisparityTable(title, record.groups, lines, notes)


def _inside_text(p: float | None, record: Record) -> str:
    if p is None:
        return NOT_MEASURED
    inside = p <= 1 - record.settings.level
    return f"{'inside' if inside else 'not shown'} (p {p_text(p)})"


def _notes(record: Record, what: str, by: str = "") -> Iterator[str]:
    if record.settings.margin is None:
        return
    prefix = f"equivalence:{what}:"
    sizes = [item.m for item in record.families if item.id.startswith(prefix) and item.id.endswith(by)]
    level = 1 - record.settings.level
    if sizes:
        yield f"inside: p, Holm over {sizes[0]} {what}, is at most {level:.2g}"
    yield _NOT_SHOWN


def _number_text(value: float | None) -> str:
    return NOT_MEASURED if value is None else two_digits(value)


def _level(record: Record) -> str:
    return f"{100 * record.settings.level:g} %"
