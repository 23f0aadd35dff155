"""Two runs pair by pair: how the deltas changed, and what changed in data, target and settings."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.finished import CommonPairs, FinishedRun, common_pairs, load_run
from harness.numbers import number
from harness.record import Interval
from harness.stats.families import adjust
from harness.stats.intervals import CellEstimates, cell_estimates
from harness.tables import (
    FLAG_MARKS,
    FLAG_NOTES,
    NOT_MEASURED,
    STATUS_MARKS,
    STATUS_NOTES,
    DisparityTable,
    interval_text,
    no_claim_notes,
    spreadsheet_text,
    two_digits,
)
from targets.base.errors import InputError, NotComparableError
from targets.base.text import counted, nearest, shortlist

_SIDES = ("before", "after")


@dataclass(frozen=True)
class Level:
    """The mean score of one face of the pairs in two runs.

    Attributes:
        base, new: means on the pairs scored in both; NaN without any.
        change, low, high: new minus base with its interval; NaN where undefined.
        status: as in a record's cell; ``method``: of the interval, as there.
    """

    base: float
    new: float
    change: float
    low: float
    high: float
    status: str
    method: str


@dataclass(frozen=True)
class ComparedCell:
    """The change of one cell's mean delta between two runs, on the pairs scored in both.

    Attributes:
        attribute, concept, group: which cell.
        n_pairs, n_identities: pairs scored in both runs, and identities among them.
        lost, gained: pairs scored in the baseline only, and in the new run only.
        base, new: mean deltas on the pairs scored in both; NaN without any.
        change, se, df, low, high: new minus base with CR2 interval; NaN where undefined.
        p, p_adjusted: of no change; Holm over all cells shown.
        status, flags: as in a record's cell; ``method``: of the interval, as there.
        before, after: the mean scores of source and transformed faces themselves: a score that falls for both
            leaves the delta as it was.
    """

    attribute: str
    concept: str
    group: str
    n_pairs: int
    n_identities: int
    lost: int
    gained: int
    base: float
    new: float
    change: float
    se: float
    df: float
    low: float
    high: float
    p: float
    p_adjusted: float
    status: str
    flags: tuple[str, ...]
    method: str
    before: Level
    after: Level


@dataclass(frozen=True)
class Comparison:
    """What two runs say about the same pairs.

    Attributes:
        level: of the intervals.
        cells: one an attribute, concept and group.
        differences: (what, in the baseline, in the new run) for every setting that differs.
        notes: one sentence each.
    """

    level: float
    cells: tuple[ComparedCell, ...]
    differences: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]


def compare_runs(
    base: Path, new: Path, *, common_only: bool = False, concepts: Sequence[str] = ()
) -> Comparison:
    """Compare two runs.

    Args:
        base, new: folders of runs, or their record.json.
        common_only: compare the pairs that both runs share where the sets differ.
        concepts: which to show; none for the rows that both runs have planned.

    Raises:
        InputError: a file is damaged, or a concept that one of the runs does not have.
        NotComparableError: the runs are over different pairs or pictures and ``common_only`` is not set, or
            share no pair or no planned row.
    """
    runs = load_run(base), load_run(new)
    shared = common_pairs(*runs)
    kept, notes = _same_pairs(shared, common_only=common_only)
    rows = _rows(runs, concepts)
    level = runs[1].record.settings.level
    cells = list(_cells(kept, rows, level))
    adjusted = adjust([cell.p for cell in cells]).p
    cells = [replace(cell, p_adjusted=float(p)) for cell, p in zip(cells, adjusted, strict=True)]
    named = zip(("baseline", "new run"), runs, strict=True)
    notes += [note for name, run in named for note in no_claim_notes(run.record, name)]
    return Comparison(level, tuple(cells), tuple(what_changed(*runs)), tuple(notes))


def _same_pairs(shared: CommonPairs, *, common_only: bool) -> tuple[CommonPairs, list[str]]:
    """The pairs to compare; anything that differs between the sets must be asked for."""
    others, relabelled = shared.other_pictures(), shared.other_labels()
    faults = [
        (f"{counted(len(shared.only_base), 'pair')} only in the baseline", len(shared.only_base)),
        (f"{counted(len(shared.only_new), 'pair')} only in the new run", len(shared.only_new)),
        (f"{counted(int(others.sum()), 'pair')} with other pictures", int(others.sum())),
        (f"{counted(len(relabelled), 'pair')} with other labels", len(relabelled)),
    ]
    notes = [text for text, count in faults if count]
    if notes and not common_only:
        raise NotComparableError(
            f"the runs differ in their pairs ({'; '.join(notes)}): --common leaves them out"
        )
    kept = shared.keep(~others & ~np.isin(shared.base.texts["pair_id"].astype(str), relabelled))
    if not len(kept.base):
        raise NotComparableError("the runs have no pair in common")
    notes = [f"left out: {note}" for note in notes]
    if shared.pictures_unknown():
        notes.append("both runs are of finished scores: nobody has seen whether the pictures are the same")
    return kept, notes


def _rows(runs: tuple[FinishedRun, FinishedRun], wanted: Sequence[str]) -> list[tuple[str, str]]:
    base, new = (run.record for run in runs)
    for name in wanted:
        for record in (base, new):
            if name not in record.concepts:
                raise InputError(f"a run has no concept '{name}'{nearest(name, record.concepts)}")
    if wanted:
        return [(attribute, name) for attribute in base.attributes for name in wanted]
    rows = [row for row in base.rows if row in set(new.rows)]
    if not rows:
        raise NotComparableError(
            "the runs plan no row (attribute, concept) in common; name a --concept of both"
        )
    return rows


def _cells(common: CommonPairs, rows: Sequence[tuple[str, str]], level: float) -> Iterator[ComparedCell]:
    base, new = common.base, common.new
    # Concepts may stand in another order in the new run.
    order = [base.record.concepts.index(name) for _, name in rows]
    others = [new.record.concepts.index(name) for _, name in rows]
    aligned = replace(
        common,
        base=replace(base, source=base.source[:, order], transformed=base.transformed[:, order]),
        new=replace(new, source=new.source[:, others], transformed=new.transformed[:, others]),
    )
    before, after = (np.isfinite(run.transformed - run.source) for run in (aligned.base, aligned.new))
    for index, (attribute, concept) in enumerate(rows):
        for group in base.record.groups:
            here = base.rows_of(attribute, group)
            if not here.any():
                continue
            found = _estimates(aligned, index, here & before[:, index] & after[:, index], level)
            lost = int((here & before[:, index] & ~after[:, index]).sum())
            gained = int((here & ~before[:, index] & after[:, index]).sum())
            yield _cell((attribute, concept, group), found, (lost, gained))


def _estimates(common: CommonPairs, column: int, rows: npt.NDArray[np.bool_], level: float) -> CellEstimates:
    """Paired changes of delta, source score and transformed score, in this order."""
    base, new = (
        (run.source[rows, column], run.transformed[rows, column]) for run in (common.base, common.new)
    )
    # Sums of two scores instead of differences of deltas: what is rounding noise is told by their size.
    first = np.stack([new[0] + base[1], *base], axis=1)
    second = np.stack([new[1] + base[0], *new], axis=1)
    return cell_estimates(first, second, common.base.clusters()[rows], level=level)


def _cell(labels: tuple[str, str, str], found: CellEstimates, moved: tuple[int, int]) -> ComparedCell:
    attribute, concept, group = labels
    before, after = (_level(found, index) for index in (1, 2))
    return ComparedCell(
        attribute=attribute,
        concept=concept,
        group=group,
        n_pairs=int(found.n_pairs[0]),
        n_identities=int(found.n_identities[0]),
        lost=moved[0],
        gained=moved[1],
        base=after.base - before.base,
        new=after.new - before.new,
        change=float(found.delta[0]),
        se=float(found.se[0]),
        df=float(found.df[0]),
        low=float(found.low[0]),
        high=float(found.high[0]),
        p=float(found.p[0]),
        p_adjusted=np.nan,
        status=str(found.status[0]),
        flags=tuple(found.flags(0)),
        method=found.interval_method(0),
        before=before,
        after=after,
    )


def _level(found: CellEstimates, index: int) -> Level:
    return Level(
        base=float(found.mean_source[index]),
        new=float(found.mean_transformed[index]),
        change=float(found.delta[index]),
        low=float(found.low[index]),
        high=float(found.high[index]),
        status=str(found.status[index]),
        method=found.interval_method(index),
    )


def what_changed(base: FinishedRun, new: FinishedRun) -> Iterator[tuple[str, str, str]]:
    """Yield every value of data, settings, target and version that differs between two runs."""
    before, after = _facts(base), _facts(new)
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name, "(absent)"), after.get(name, "(absent)")
        if one != other:
            yield name, one, other


def _facts(run: FinishedRun) -> dict[str, str]:
    record = run.record
    parts: dict[str, Any] = {
        "facedelta": record.facedelta_version,
        "data": record.data.model_dump(mode="json"),
        "settings": record.settings.model_dump(mode="json", exclude={"reasons"}),
        "target": record.targets[0].model_dump(mode="json"),
        "groups": list(record.groups),
        "attributes": list(record.attributes),
    }
    return dict(_flat(parts, ""))


def _flat(value: object, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        yield name, shortlist(value, 8)
    else:
        yield name, "(none)" if value is None else str(value)


def comparison_table(found: Comparison) -> DisparityTable:
    """The changes in the layout of the disparity table: rows of attribute and concept, columns of groups."""
    groups = tuple(dict.fromkeys(cell.group for cell in found.cells))
    by_key = {(cell.attribute, cell.concept, cell.group): cell for cell in found.cells}
    rows = dict.fromkeys((cell.attribute, cell.concept) for cell in found.cells)
    lines = tuple(
        (*row, tuple(_text(by_key.get((*row, group)), found.level) for group in groups)) for row in rows
    )
    flags = {flag for cell in found.cells for flag in cell.flags}
    statuses = {cell.status for cell in found.cells if cell.n_pairs}
    notes = [
        *(note for flag, note in FLAG_NOTES.items() if flag in flags),
        *(note for status, note in STATUS_NOTES.items() if status in statuses),
        f"n: pairs and identities scored in both runs; * p adjusted over {len(found.cells)} cells (Holm)",
        "a cell without * does not show that nothing changed; that takes a margin (facedelta gate)",
        *found.notes,
    ]
    title = (
        f"Change of the mean delta, new run minus baseline, same pairs, {100 * found.level:g} % intervals, "
        "clustered by identity (CR2)"
    )
    return DisparityTable(title, groups, lines, tuple(notes))


def _text(cell: ComparedCell | None, level: float) -> str:
    if cell is None or not cell.n_pairs:
        return NOT_MEASURED
    marks = "".join(FLAG_MARKS.get(flag, "") for flag in cell.flags)
    marks += "*" if cell.p_adjusted < 1 - level else ""
    text = f"{two_digits(cell.change)}{STATUS_MARKS[cell.status]}"
    if cell.status == "ok":
        interval = Interval(low=cell.low, high=cell.high, level=level, method=cell.method)
        text = interval_text(cell.change, interval)
    moved = f", {cell.lost} lost" if cell.lost else ""
    moved += f", {cell.gained} gained" if cell.gained else ""
    return f"{text}{marks} (n {cell.n_pairs}/{cell.n_identities}{moved})"


def level_table(found: Comparison) -> DisparityTable:
    """How the mean scores themselves moved, before and after the edit, in the same layout."""
    groups = tuple(dict.fromkeys(cell.group for cell in found.cells))
    by_key = {(cell.attribute, cell.concept, cell.group): cell for cell in found.cells}
    lines = []
    for attribute, concept in dict.fromkeys((cell.attribute, cell.concept) for cell in found.cells):
        cells = [by_key.get((attribute, concept, group)) for group in groups]
        for side, levels in (
            ("before the edit", [cell.before if cell else None for cell in cells]),
            ("after the edit", [cell.after if cell else None for cell in cells]),
        ):
            lines.append((attribute, f"{concept} {side}", tuple(_level_text(x, found.level) for x in levels)))
    title = (
        f"Mean score in the baseline and in the new run, and its change, {100 * found.level:g} % intervals, "
        "clustered by identity (CR2)"
    )
    return DisparityTable(title, groups, tuple(lines), ())


def _level_text(level: Level | None, confidence: float) -> str:
    if level is None or np.isnan(level.base):
        return NOT_MEASURED
    ends = f"{two_digits(level.base)} to {two_digits(level.new)}"
    if level.status != "ok":
        return f"{ends}: {two_digits(level.change)}{STATUS_MARKS[level.status]}"
    interval = Interval(low=level.low, high=level.high, level=confidence, method=level.method)
    return f"{ends}: {interval_text(level.change, interval)}"


def comparison_csv(found: Comparison) -> str:
    """Every compared cell in full, one row each, numbers with all their digits."""
    stream = io.StringIO()
    names = [field.name for field in fields(ComparedCell) if field.name not in _SIDES]
    levels = [f"{side}_{field.name}" for side in _SIDES for field in fields(Level)]
    writer = csv.DictWriter(stream, [*names, *levels], lineterminator="\n")
    writer.writeheader()
    for cell in found.cells:
        row = {name: getattr(cell, name) for name in names}
        for side in _SIDES:
            row |= {f"{side}_{name}": value for name, value in asdict(getattr(cell, side)).items()}
        writer.writerow({name: _csv_value(value) for name, value in row.items()})
    return stream.getvalue()


def _csv_value(value: object) -> object:
    if isinstance(value, str):
        return spreadsheet_text(value)
    if isinstance(value, tuple):
        return " ".join(value)
    return number(value) if isinstance(value, float) else value
