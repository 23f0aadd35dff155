"""Tables: the disparity table in the layout of the paper's Table 3, and every cell in full.

Markdown and CSV are written here, the terminal's tables in ``terminal``, LaTeX and HTML in ``typeset``.
Labels are escaped in each. Rounding happens here and nowhere else.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.record import Cell, Detail, Discovery, Finding, Interval, Record
from harness.stats import hall
from targets.base.errors import InputError
from targets.base.tables import decimal_hint, parse_number, read_table
from targets.base.text import nearest, without_control_characters

FLAG_MARKS = {
    "few_identities": "†",
    "skewed": "‡",
    "bootstrap_misses": "×",
    "scale_dependent": "#",
    "depends_on_filter": "¶",
}
FLAG_NOTES = {
    "few_identities": "† fewer than 10 identities",
    "skewed": "‡ skewed scores: intervals of cells clustered by identity are widened (Hall 1992); still, any "
    "interval, band or test of them may err more often than its level says",
    "bootstrap_misses": "× so few identities that a bootstrap interval misses over 1.2 times as often as its "
    "level says, even for normal scores",
    "scale_dependent": "# sign or decision differ on another scale of the score (logit or rank)",
    "depends_on_filter": (
        "¶ on all candidates the difference has another sign or decision: it depends on the filter"
    ),
}
STATUS_MARKS = {"ok": "", "zero_variance": " ==", "undefined": " ?"}
STATUS_NOTES = {
    "zero_variance": "== every identity changed alike up to rounding: no interval, no test",
    "undefined": "? one identity, or too few for this method: no interval",
}
NOT_MEASURED = "—"
_DETAILS = (
    "icc",
    "dz",
    "g",
    "minimum_detectable_effect",
    "identities_for_half_width",
    "equivalence_p",
    "equivalence_p_adjusted",
)

Row = tuple[str, str]
"""An attribute and a concept."""


@dataclass(frozen=True)
class DisparityTable:
    """Rows of (attribute, concept), columns of groups.

    Attributes:
        title: what the numbers are.
        groups: column heads.
        rows: (attribute, concept, one text a group).
        notes: sentences under the table.
        justify: of the columns; numbers stand to the right.
        blocks: what each column belongs to, empty where columns form no blocks.
    """

    title: str
    groups: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[str, ...]], ...]
    notes: tuple[str, ...]
    justify: Literal["left", "right"] = "right"
    blocks: tuple[str, ...] = ()

    @property
    def heads(self) -> tuple[str, ...]:
        """Column heads with their block's name, for formats that have no blocks."""
        if not self.blocks:
            return self.groups
        both = zip(self.blocks, self.groups, strict=True)
        return tuple(f"{block}: {head}" if block else head for block, head in both)


def two_digits(value: float) -> str:
    """Round to two significant digits: 0.0718 -> "0.072", 88.2 -> "88"; rounding noise as 9.3e-18."""
    if value == 0:
        return "0"
    if abs(value) < 1e-6:
        return f"{value:.1e}"
    digits = 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    return f"{rounded:.{max(digits, 0)}f}".rstrip("0").rstrip(".") if digits > 0 else f"{rounded:.0f}"


def cell_text(cell: Cell) -> str:
    """One cell: mean change with half-width (or interval where it is not symmetric) and its marks."""
    if cell.delta is None:
        return NOT_MEASURED
    marks = flag_marks(cell.flags)
    if cell.ci is None:
        return f"{two_digits(cell.delta)}{STATUS_MARKS[cell.status]}{marks}"
    return f"{interval_text(cell.delta, cell.ci)}{marks}"


def flag_marks(flags: Iterable[str]) -> str:
    """The marks of some flags, one beside the other."""
    return "".join(FLAG_MARKS.get(flag, "") for flag in flags)


def legend(rows: Sequence[tuple[str, str, Sequence[str]]], flags: Iterable[str]) -> list[str]:
    """Explain the marks of some flags that the texts of a table bear."""
    texts = "".join(text for *_, cells in rows for text in cells)
    return [note for flag, note in FLAG_NOTES.items() if flag in set(flags) and FLAG_MARKS[flag] in texts]


def interval_text(value: float, interval: Interval) -> str:
    """Write "value ± half-width", or "value [low, high]" for an interval that is not symmetric."""
    low, high = value - interval.low, interval.high - value
    widened = interval.method.endswith(hall.METHOD)
    if not widened and abs(low - high) <= 1e-9 * max(abs(low), abs(high)):
        return f"{two_digits(value)} ± {two_digits(high)}"
    return f"{two_digits(value)} [{two_digits(interval.low)}, {two_digits(interval.high)}]"


def count_text(cell: Cell) -> str:
    """Pairs, identities and exclusions of a cell: "62 / 31" or "62 / 31 (4 out)"."""
    excluded = sum(cell.excluded.values())
    out = f" ({excluded} out)" if excluded else ""
    return f"{cell.n_pairs} / {cell.n_identities}{out}"


def disparity_table(record: Record, rows: Sequence[Row], by: str = "demographic") -> DisparityTable:
    """The mean changes of a record on one axis, one line a row of (attribute, concept)."""
    level = f"{100 * record.settings.level:g} %"
    kind = {"t": "Student t over pairs", "cluster": "clustered by identity (CR2)"}
    method = kind.get(record.settings.method, record.settings.method)
    axis = "" if by == "demographic" else f", by {by} with equal weights"
    target = record.targets[0].name
    title = f"{target}: mean change of score, transformed minus source{axis}, {level} intervals, {method}"
    cells = [cell for cell in record.cells if cell.by == by]
    notes = [*no_claim_notes(record), *mark_notes(cells, rows), *support_notes(cells, rows)]
    return DisparityTable(title, _groups(cells), _lines(cells, rows, cell_text), tuple(notes))


def no_claim_notes(record: Record, name: str = "") -> list[str]:
    """What may not be claimed from a run's numbers, or from its differences between groups; often nothing."""
    notes = [*record.data.cautions, *([record.no_claim] if record.no_claim else [])]
    return [f"{name}: {note}" if name else note for note in notes]


def count_table(record: Record, rows: Sequence[Row], by: str = "demographic") -> DisparityTable:
    """Pairs, identities and exclusions behind the changes; concepts with equal counts share a line."""
    cells = [cell for cell in record.cells if cell.by == by]
    out = any(cell.excluded for cell in cells)
    notes = ("out: pairs excluded, by reason in cells.csv and failures.parquet",) if out else ()
    lines: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for attribute, concept, texts in _lines(cells, rows, count_text):
        lines.setdefault((attribute, texts), []).append(concept)
    merged = tuple((attribute, ", ".join(concepts), texts) for (attribute, texts), concepts in lines.items())
    title = "Pairs / identities" if by == "demographic" else f"Pairs / identities, by {by}"
    return DisparityTable(title, _groups(cells), merged, (*notes, *support_notes(cells, rows)))


def discovery_table(found: Discovery) -> DisparityTable:
    """What a search found on half of the identities, and whether the other half confirms it.

    A concept that repeats another's scores stands in that one's line.
    """
    repeats: dict[Row, list[str]] = {}
    for finding in found.findings:
        if finding.same_as:
            names = repeats.setdefault((finding.attribute, finding.same_as), [])
            names += [] if finding.concept in names else [finding.concept]
    rows = tuple(
        (
            finding.attribute,
            finding.concept,
            (*_finding_texts(finding), ", ".join(repeats.get((finding.attribute, finding.concept), ()))),
        )
        for finding in found.findings
        if not finding.same_as
    )
    title = (
        f"Search over {found.searched:,} changes for more than {two_digits(found.margin)}: found on half of "
        f"the identities, shown and tested on the other half (Holm, {two_digits(found.alpha)})"
    )
    heads = ("group", "mean change", "at least", "p adjusted", "other half", "same scores")
    flags = {flag for finding in found.findings for flag in finding.flags}
    level = f"{100 * (1 - found.alpha):g} %"
    notes = (
        '"at least" holds for all findings at once (Bonferroni, in the direction found first)',
        f'"confirmed" says more than {two_digits(found.margin)} (Holm), even where "at least" is less',
        f"{level}: the level of searches and error rates unless --level gives one for all",
        "attributes that share source faces share their error: these are no independent confirmations",
        *(note for flag, note in FLAG_NOTES.items() if flag in flags),
    )
    return DisparityTable(title, heads, rows, notes, justify="left")


def _finding_texts(finding: Finding) -> tuple[str, ...]:
    marks = flag_marks(finding.flags)
    if finding.delta is None:
        change = NOT_MEASURED
    else:
        change = f"{two_digits(finding.delta)}{STATUS_MARKS[finding.status]}{marks}"
    return (
        finding.group,
        change,
        two_digits(finding.smallest) if finding.smallest is not None else NOT_MEASURED,
        p_text(finding.p_adjusted),
        "confirmed" if finding.confirmed else f"not confirmed{finding.reason and f' ({finding.reason})'}",
    )


def p_text(p: float | None) -> str:
    """Two digits of a probability; below 0.0001 in powers of ten; a dash where there is none."""
    if p is None:
        return NOT_MEASURED
    return two_digits(p) if p >= 1e-4 or p == 0 else f"{p:.1e}"


def _groups(cells: Iterable[Cell]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cell.group for cell in cells))


def _lines(
    cells: Sequence[Cell], rows: Sequence[Row], text: Callable[[Cell], str]
) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    by_key = {(cell.attribute, cell.concept, cell.group): cell for cell in cells}
    lines = []
    for attribute, concept in rows:
        own = [by_key[attribute, concept, group] for group in _groups(cells)]
        if any(cell.n_pairs or cell.excluded for cell in own):
            lines.append((attribute, concept, tuple(text(cell) for cell in own)))
    return tuple(lines)


def mark_notes(cells: Iterable[Cell], rows: Sequence[Row]) -> list[str]:
    """Explain the marks that the cells of these rows bear."""
    shown = [cell for cell in cells if (cell.attribute, cell.concept) in set(rows) and cell.delta is not None]
    flags = {flag for cell in shown for flag in cell.flags}
    statuses = {cell.status for cell in shown}
    return [
        *(note for flag, note in FLAG_NOTES.items() if flag in flags),
        *(note for status, note in STATUS_NOTES.items() if status in statuses),
    ]


def support_notes(cells: Sequence[Cell], rows: Sequence[Row]) -> list[str]:
    """Which groups have no pair for a concept, so that means of levels and differences go without them."""
    own = {(cell.attribute, cell.concept, cell.group): cell for cell in cells}
    groups = _groups(cells)
    by_text: dict[str, list[str]] = {}
    for concept in dict.fromkeys(concept for _, concept in rows):
        parts = []
        for attribute in (attribute for attribute, other in rows if other == concept):
            here = [cell for group in groups if (cell := own.get((attribute, concept, group)))]
            if not any(cell.n_pairs for cell in here):
                continue
            missing = [
                f"{cell.group} without {', '.join(cell.missing)}" if cell.n_pairs else cell.group
                for cell in here
                if cell.missing or not cell.n_pairs
            ]
            if missing:
                parts.append(f"{attribute} ({', '.join(missing)})")
        if parts:
            by_text.setdefault("; ".join(parts), []).append(concept)
    return [f"no pair, {', '.join(concepts)}: {text}" for text, concepts in by_text.items()]


def table_rows(record: Record, wanted: Sequence[str]) -> list[Row]:
    """Which rows a table shows: the concepts asked for, else the rows the run has planned.

    Raises:
        InputError: a concept the run does not have, or too many to show without a choice.
    """
    for concept in wanted:
        if concept not in record.concepts:
            raise InputError(f"the run has no concept '{concept}'{nearest(concept, record.concepts)}")
    rows = [(attribute, concept) for attribute in record.attributes for concept in wanted]
    if not (rows or record.rows):
        raise InputError(f"the run has {len(record.concepts)} concepts: choose some with --concept NAME")
    return rows or list(record.rows)


def printed_table(path: Path) -> DisparityTable:
    """A table published elsewhere, from a CSV of attribute, concept, group, delta and half_width.

    Raises:
        InputError: a column is missing or a number is none.
    """
    table = read_table(path)
    table.require(("attribute", "concept", "group", "delta", "half_width"), "a printed table")
    labels = {name: table.text(name) for name in ("attribute", "concept", "group")}
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in range(len(table)):
        delta, fault = parse_number(table.columns["delta"][row])
        half_width, other_fault = parse_number(table.columns["half_width"][row])
        if fault or other_fault:
            came = [table.columns[name][row] for name in ("delta", "half_width")]
            hint = next(filter(None, map(decimal_hint, came)), "")
            raise InputError(
                f"{table.row(row)} of {path}: delta and half_width must be numbers, got {came[0]!r} and "
                f"{came[1]!r}{hint}"
            )
        key = labels["attribute"][row], labels["concept"][row]
        text = f"{two_digits(delta)} ± {two_digits(half_width)}"
        if cells.setdefault(key, {}).setdefault(labels["group"][row], text) != text:
            raise InputError(f"{table.row(row)} of {path}: {' / '.join(key)} has two values for one group")
    groups = tuple(dict.fromkeys(labels["group"]))
    rows = tuple(
        (*key, tuple(texts.get(group, NOT_MEASURED) for group in groups)) for key, texts in cells.items()
    )
    return DisparityTable(f"As printed: {path.stem}", groups, rows, ())


def to_markdown(table: DisparityTable) -> str:
    """A pipe table; labels can't break out of their cell or become HTML."""
    head = ["attribute", "concept", *table.heads]
    lines = [
        f"**{escape_markdown(table.title)}**",
        "",
        _pipe(head),
        _pipe(["---", "---", *["---:"] * len(table.groups)]),
    ]
    lines += [_pipe([attribute, concept, *texts]) for attribute, concept, texts in table.rows]
    lines += ["", *(f"- {escape_markdown(note)}" for note in table.notes)] if table.notes else []
    return "\n".join(lines) + "\n"


def _pipe(cells: Sequence[str]) -> str:
    return (
        "| "
        + " | ".join(cell if re.fullmatch("-+:?", cell) else escape_markdown(cell) for cell in cells)
        + " |"
    )


def escape_markdown(text: str) -> str:
    """Text on one line that can't become HTML, a link, emphasis or another table cell."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = without_control_characters(" ".join(text.split()))
    return re.sub(r"([\\`*_{}\[\]#|!~])", r"\\\1", line)


def to_csv(record: Record) -> str:
    """Every cell in full, one row each, numbers with all their digits."""
    reasons = sorted({reason for cell in record.cells for reason in cell.excluded})
    return csv_text(cell_rows(record, reasons))


def cell_rows(record: Record, reasons: Sequence[str]) -> list[dict[str, object]]:
    """Every cell as a row of a CSV, with a column for each reason of an exclusion."""
    details = {(item.attribute, item.concept, item.group): item for item in record.details}
    return [
        _csv_row(cell, reasons)
        | _detail_columns(
            details.get((cell.attribute, cell.concept, cell.group)) if cell.by == "demographic" else None
        )
        for cell in record.cells
    ]


def _detail_columns(item: Detail | None) -> dict[str, object]:
    """What stands beside a cell of the planned rows, empty for another cell."""
    mean = dict.fromkeys(("delta", "low", "high")) if item is None else item.identity_mean.model_dump()
    row: dict[str, object] = {f"identity_mean_{name}": mean[name] for name in ("delta", "low", "high")}
    return row | {name: None if item is None else getattr(item, name) for name in _DETAILS}


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows of one shape as CSV with a header."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _csv_row(cell: Cell, reasons: Sequence[str]) -> dict[str, object]:
    row: dict[str, object] = cell.model_dump(
        exclude={"ci", "flags", "missing", "excluded", "status", "reason", "reasons"}
    )
    row = {name: spreadsheet_text(value) if isinstance(value, str) else value for name, value in row.items()}
    interval = cell.ci.model_dump() if cell.ci else dict.fromkeys(Interval.model_fields, "")
    row |= {f"ci_{name}": value for name, value in interval.items()}
    row |= {"status": cell.status, "reason": spreadsheet_text(cell.reason), "flags": " ".join(cell.flags)}
    row |= {"missing": spreadsheet_text("; ".join(cell.missing))}
    return row | {f"excluded_{reason}": cell.excluded.get(reason, 0) for reason in reasons}


def spreadsheet_text(text: str) -> str:
    """A label that a spreadsheet would take for a formula gets an apostrophe in front."""
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text
