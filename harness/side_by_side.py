"""Several runs in one table: the same rows, a block of columns for each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.finished import read_whole
from harness.record import Cell, Record
from harness.tables import (
    NOT_MEASURED,
    DisparityTable,
    Row,
    cell_rows,
    cell_text,
    count_text,
    csv_text,
    mark_notes,
    no_claim_notes,
    spreadsheet_text,
    support_notes,
    table_rows,
)
from targets.base.errors import InputError, NotComparableError
from targets.base.text import counted, shortlist

NOT_ASKED = "not asked"
_NO_TEST = (
    "two columns side by side are no test of a difference between runs; facedelta compare pairs what both "
    "runs were asked about"
)


@dataclass(frozen=True)
class NamedRun:
    """A record and what its block of columns is called."""

    name: str
    record: Record


def named_runs(paths: Sequence[Path]) -> list[NamedRun]:
    """Read records and name each by its target; targets of one name get their folder's name beside it.

    Raises:
        InputError: a record can't be read, or one is given twice.
    """
    folders = [path if path.is_dir() else path.parent for path in paths]
    counts = Counter(folder.resolve() for folder in folders)
    if twice := [path for path, count in counts.items() if count > 1]:
        raise InputError(f"a run may stand in a table once, got twice: {shortlist(twice)}")
    records = [read_whole(path) for path in paths]
    names = [record.targets[0].name for record in records]
    if len(set(names)) < len(names):
        names = [f"{name} ({folder.name})" for name, folder in zip(names, folders, strict=True)]
    if len(set(names)) < len(names):
        names = [f"{record.targets[0].name} ({path})" for record, path in zip(records, paths, strict=True)]
    return [NamedRun(name, record) for name, record in zip(names, records, strict=True)]


def side_by_side_table(runs: Sequence[NamedRun], wanted: Sequence[str], by: str) -> DisparityTable:
    """Mean changes of several runs on one axis: a line an attribute, concept and group, two columns a run.

    Args:
        runs: at least two, with names of their own.
        wanted: concepts to show; none for the rows that every run has planned.
        by: axis of the groups.

    Raises:
        InputError: a run has no such concept or axis.
        NotComparableError: level, method, taxonomy or reference pictures differ, or no row is shared.
    """
    _refuse_unlike(runs)
    rows, notes = _shared_rows(runs, wanted)
    cells = [_cells(run, rows, by) for run in runs]
    lines = []
    for key in dict.fromkeys(key for own in cells for key in own):
        shown = [own.get(key) for own in cells]
        if any(cell and (cell.n_pairs or cell.excluded) for cell in shown):
            texts = [text for cell in shown for text in _texts(cell)]
            lines.append((key[0], key[1], (key[2], *texts)))
    lines.sort(key=lambda line: rows.index((line[0], line[1])))
    settings = runs[0].record.settings
    title = (
        f"{counted(len(runs), 'run')} side by side: mean change of score, transformed minus source, "
        f"{100 * settings.level:g} % intervals, method {settings.method}"
        + ("" if by == "demographic" else f", by {by} with equal weights")
    )
    marks = mark_notes([cell for own in cells for cell in own.values()], rows)
    unasked = any(NOT_ASKED in line[2] for line in lines)
    notes = [
        *(note for run in runs for note in no_claim_notes(run.record, run.name)),
        *_data_notes(runs),
        _NO_TEST,
        *notes,
        *marks,
        *(f"{run.name}: {note}" for run in runs for note in _gaps(run, rows, by)),
        "out: pairs excluded, by reason in each run's cells.csv and failures.parquet",
        *([f"{NOT_ASKED}: the run has no such attribute and group"] if unasked else []),
    ]
    blocks = ("", *(run.name for run in runs for _ in range(2)))
    heads = ("group", *(head for _ in runs for head in ("change", "pairs / identities")))
    return DisparityTable(title, heads, tuple(lines), tuple(notes), blocks=blocks)


def _gaps(run: NamedRun, rows: Sequence[Row], by: str) -> list[str]:
    """Which groups the levels of a coarser axis go without; groups themselves have lines that say so."""
    if by == "demographic":
        return []
    return support_notes([cell for cell in run.record.cells if cell.by == by], rows)


def side_by_side_csv(runs: Sequence[NamedRun]) -> str:
    """Every cell of every run in full, the run's name first.

    Raises:
        NotComparableError: level, method, taxonomy or reference pictures differ.
    """
    _refuse_unlike(runs)
    reasons = sorted({reason for run in runs for cell in run.record.cells for reason in cell.excluded})
    return csv_text(
        [
            {"run": spreadsheet_text(run.name), "data_sha256": run.record.data.sha256, **row}
            for run in runs
            for row in cell_rows(run.record, reasons)
        ]
    )


def _refuse_unlike(runs: Sequence[NamedRun]) -> None:
    for name, why in (
        ("level", "intervals of one table must have one level"),
        ("method", "intervals of one table must be made one way"),
        ("taxonomy_digest", "groups and attributes must mean the same"),
        ("identities", "people must be told apart in one way"),
        ("references", "'match' must rest on one number of reference pictures"),
    ):
        values = [getattr(run.record.settings, name) for run in runs]
        # A target without a 'match' has no number of references to differ in.
        if len({value for value in values if name != "references" or value is not None}) > 1:
            found = "; ".join(f"{run.name} has {value}" for run, value in zip(runs, values, strict=True))
            raise NotComparableError(
                f"runs can't stand side by side, {why}: {name} differs ({found}); audit one of them anew"
            )


def _shared_rows(runs: Sequence[NamedRun], wanted: Sequence[str]) -> tuple[list[Row], list[str]]:
    """Rows of every run in the first one's order, and a note on those that only some have."""
    own = [table_rows(run.record, wanted) for run in runs]
    shared = [row for row in own[0] if all(row in rows for rows in own[1:])]
    if not shared:
        raise NotComparableError("the runs share no row (attribute, concept); name a --concept that all have")
    others = list(dict.fromkeys(" / ".join(row) for rows in own for row in rows if row not in shared))
    return shared, [f"rows that only some runs have are left out: {shortlist(others)}"] if others else []


def _cells(run: NamedRun, rows: Sequence[Row], by: str) -> dict[tuple[str, str, str], Cell]:
    if by not in run.record.settings.by:
        raise InputError(f"{run.name} has no axis '{by}', only {shortlist(run.record.settings.by)}")
    return {
        (cell.attribute, cell.concept, cell.group): cell
        for cell in run.record.cells
        if cell.by == by and (cell.attribute, cell.concept) in set(rows)
    }


def _texts(cell: Cell | None) -> tuple[str, str]:
    return (cell_text(cell), count_text(cell)) if cell else (NOT_ASKED, NOT_MEASURED)


def _data_notes(runs: Sequence[NamedRun]) -> Iterator[str]:
    """Say whether all runs were asked about the same pairs."""
    data = [run.record.data for run in runs]
    if len({item.sha256 for item in data}) == 1:
        yield "every run is over the same data"
        return
    found = "; ".join(
        f"{run.name}: {item.path}, {counted(item.n_pairs, 'pair')}, sha256 {item.sha256[:12]}"
        for run, item in zip(runs, data, strict=True)
    )
    yield f"the runs are over different data, so columns also differ by what was asked about ({found})"
