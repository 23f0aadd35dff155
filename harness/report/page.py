"""RUN/report.html: everything a run found on one page that works without a script and without a network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from harness.difference_tables import acquisition_table, all_difference_tables
from harness.finished import FinishedRun, load_run
from harness.folder import FAILURES_FILE, REPORT_FILE
from harness.outcomes import Failure
from harness.plan_tables import plan_tables
from harness.record import Cell, Detail, Record
from harness.report import charts, words
from harness.report.examples import Example, Pictures, examples
from harness.report.figures import write_figures
from harness.report.kept import dataset_funnel
from harness.report.recognition import RecognitionView, recognition_views
from harness.strongest_table import strongest_tables
from harness.tables import (
    NOT_MEASURED,
    DisparityTable,
    count_table,
    discovery_table,
    disparity_table,
    p_text,
    two_digits,
)
from targets.base.extras import require
from targets.base.files import read_parquet, write_text
from targets.base.text import without_control_characters

MOST_FAILURES = 200
# A private-use character marks where a link goes in a finished table; labels lose it.
_MARK = "\ue000"
_Key = tuple[str, str, str]


@dataclass(frozen=True)
class Shown:
    """A cell with its own section.

    Attributes:
        anchor: id of the section.
        cell: from the record.
        facts: name -> text.
        pairs: examples.
    """

    anchor: str
    cell: Cell
    facts: dict[str, str]
    pairs: list[Example]


def write_report(run: Path, pictures: str | None = None) -> Path:
    """Write RUN/report.html, and RUN/figures for a recogniser.

    Args:
        run: folder of a finished run.
        pictures: table of pairs or dataset with the audited pictures; None to look where the record says.

    Returns:
        The page.

    Raises:
        InputError: the run or the table of pairs can't be read.
        MissingExtraError: the extra "report" is not installed.
    """
    finished = load_run(run)
    source = Pictures.load(pictures) if pictures else Pictures.at_hand(finished)
    path = finished.folder / REPORT_FILE
    known = finished.record.data.path if finished.record.data.kind == "dataset" else None
    place = pictures or known
    write_text(path, page(finished, source, Path(place) if place else None))
    write_figures(finished.record, finished.folder)
    return path


def page(run: FinishedRun, pictures: Pictures, dataset: Path | None = None) -> str:
    """The page as text; ``dataset`` is the folder of the audited dataset, where it is at hand."""
    record = run.record
    shown = list(_shown(run, pictures))
    jinja = require("jinja2", "report", "a report")
    markup = require("markupsafe", "report", "a report").Markup
    environment = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True)
    environment.filters |= {"digits": two_digits, "p": p_text}
    place = files("harness.report")
    template = environment.from_string((place / "report.html.j2").read_text(encoding="utf-8"))
    text = str(
        template.render(
            record=record,
            title=f"{record.targets[0].name}: audit report",
            style=markup((place / "report.css").read_text(encoding="utf-8")),
            summary=words.summary(record),
            reading=words.READING,
            warnings=record.warnings,
            heat_maps=[markup(svg) for svg in _heat_maps(shown)],
            forests=[(row, markup(svg)) for row, svg in _forests(shown)],
            tables=list(_tables(record, shown)),
            discovery=_view(discovery_table(record.discovery), "found", {}) if record.discovery else None,
            shown=shown,
            sentence=words.cell_sentence,
            reason=lambda name: words.REASONS.get(name, name),
            recognisers=list(_recognisers(record)),
            recognition_reading=words.RECOGNITION,
            funnel=dataset_funnel(dataset, record.settings.level) if dataset else [],
            filter_reason=words.filter_sentence(record),
            acquisition=_view(lost, "acquisition", {}) if (lost := acquisition_table(record)) else None,
            attrition=[item for item in record.attrition if item.lost],
            failures=_failures(run),
            failures_left=MOST_FAILURES,
            settings=_flat(record.settings.model_dump(mode="json", exclude={"reasons"})),
            data=_flat(record.data.model_dump(mode="json")),
            cards=[_flat(card.model_dump(mode="json")) for card in record.targets],
        )
    )
    return without_control_characters(text)


def _shown(run: FinishedRun, pictures: Pictures) -> Iterator[Shown]:
    record = run.record
    details = {(item.attribute, item.concept, item.group): item for item in record.details}
    rows = set(record.rows)
    number = 0
    for cell in record.cells:
        if cell.by != "demographic" or (cell.attribute, cell.concept) not in rows:
            continue
        if not cell.n_pairs and not cell.excluded:
            continue
        number += 1
        key = cell.attribute, cell.concept, cell.group
        yield Shown(f"cell-{number}", cell, _facts(cell, details.get(key)), examples(run, key, pictures))


def _facts(cell: Cell, detail: Detail | None) -> dict[str, str]:
    facts = {
        "pairs": f"{cell.n_pairs:,}",
        "identities": f"{cell.n_identities:,}",
        "status": words.STATUSES[cell.status],
        "cautions": "; ".join(words.FLAGS.get(flag, flag) for flag in cell.flags) or "none",
        "left out": _left_out(cell),
        "mean score, source face": _text(cell.mean_source),
        "mean score, transformed face": _text(cell.mean_transformed),
        "p, adjusted (Holm over all cells)": p_text(cell.p_adjusted),
    }
    if detail is not None:
        facts["mean of identities' means"] = _text(detail.identity_mean.delta)
        facts["smallest change found with power .8"] = _text(detail.minimum_detectable_effect)
        facts[f"mean change on the {detail.scale.scale} scale"] = _text(detail.scale.delta)
        if detail.equivalence_p is not None:
            facts["p of an equivalence test against the margin"] = p_text(detail.equivalence_p)
            facts["the same, adjusted (Holm over all cells)"] = p_text(detail.equivalence_p_adjusted)
        if detail.identities_for_half_width is not None:
            facts["identities for the half-width asked for"] = f"{detail.identities_for_half_width:,}"
    return facts


def _left_out(cell: Cell) -> str:
    parts = [f"{count} ({words.REASONS.get(reason, reason)})" for reason, count in cell.excluded.items()]
    return "; ".join(parts) or "none"


def _text(value: float | None) -> str:
    return NOT_MEASURED if value is None else two_digits(value)


def _heat_maps(shown: Sequence[Shown]) -> Iterator[str]:
    """One map a concept, since concepts have scales of their own; one in all where each has a single row."""
    drawn = [item for item in shown if item.cell.delta is not None]
    rows: dict[str, set[str]] = {}
    for item in drawn:
        rows.setdefault(item.cell.concept, set()).add(item.cell.attribute)
    single = len(rows) > 1 and all(len(attributes) == 1 for attributes in rows.values())
    for concept in ["every concept"] if single else list(rows):
        own = [item for item in drawn if single or item.cell.concept == concept]
        links = {index: f"#{item.anchor}" for index, item in enumerate(own)}
        yield charts.heat_map([item.cell for item in own], links, f"Mean changes of {concept} by group")


def _forests(shown: Sequence[Shown]) -> Iterator[tuple[str, str]]:
    rows: dict[tuple[str, str], list[Cell]] = {}
    for item in shown:
        if item.cell.delta is not None:
            rows.setdefault((item.cell.attribute, item.cell.concept), []).append(item.cell)
    for (attribute, concept), cells in rows.items():
        name = f"{attribute} / {concept}"
        yield name, charts.forest_plot(cells, f"Mean change and interval by group: {name}")


@dataclass(frozen=True)
class TableView:
    """A table with its title and notes, which stay in sight where a narrow page scrolls the table."""

    name: str
    title: str
    html: str
    notes: tuple[str, ...]


def _tables(record: Record, shown: Sequence[Shown]) -> Iterator[TableView]:
    if record.rows:
        yield from _planned_tables(record, shown)
    yield from (_view(table, "strongest", {}) for table in strongest_tables(record))


def _planned_tables(record: Record, shown: Sequence[Shown]) -> Iterator[TableView]:
    anchors = {(item.cell.attribute, item.cell.concept, item.cell.group): item.anchor for item in shown}
    for by in record.settings.by:
        end, links = ("", anchors) if by == "demographic" else (f"-{by}", {})
        yield _view(disparity_table(record, record.rows, by), f"changes{end}", links)
        yield _view(count_table(record, record.rows, by), f"counts{end}", {})
    for number, table in enumerate(plan_tables(record, record.rows), 1):
        yield _view(table, f"asked-{number}", {})
    for name, by, table in all_difference_tables(record):
        yield _view(table, f"{name}-{by}", {})


def _recognisers(record: Record) -> Iterator[tuple[RecognitionView, list[TableView]]]:
    for view in recognition_views(record):
        heads = ("groups / rule", *("attribute / measure",) * (len(view.tables) - 1))
        tables = enumerate(zip(view.tables, heads, strict=True), start=1)
        yield view, [_view(table, f"recognition-{n}", {}, head) for n, (table, head) in tables]


def _view(
    table: DisparityTable, name: str, anchors: Mapping[_Key, str], head: str = "attribute / concept"
) -> TableView:
    markup = require("markupsafe", "report", "a report")
    return TableView(name, table.title, markup.Markup(_html(table, name, anchors, head)), table.notes)


def _html(table: DisparityTable, name: str, anchors: Mapping[_Key, str], head: str) -> str:
    """A table by great-tables, which escapes labels; texts with an anchor become links."""
    great_tables = require("great_tables", "report", "a report's table")
    pandas = require("pandas", "report", "a report's table")
    heads = {f"column {index}": _plain(group) for index, group in enumerate(table.groups)}
    columns: dict[str, list[str]] = {
        "row": [_plain(f"{attribute} / {concept}") for attribute, concept, _ in table.rows]
    }
    for index, (key, group) in enumerate(zip(heads, table.groups, strict=True)):
        columns[key] = [
            _marked(_plain(texts[index]), anchors.get((attribute, concept, group)))
            for attribute, concept, texts in table.rows
        ]
    shown = great_tables.GT(pandas.DataFrame(columns), rowname_col="row", id=name)
    shown = shown.cols_label(heads).tab_stubhead(head)
    html = shown.cols_align(table.justify, list(heads)).as_raw_html()
    body = html[html.index("<table") : html.index("</table>") + len("</table>")]
    body = body.replace("<table ", f'<table aria-labelledby="{name}-title" id="{name}" ', 1)
    return re.sub(f"{_MARK}([a-z0-9-]+){_MARK}([^<]*)", r'<a href="#\1">\2</a>', body)


def _marked(text: str, anchor: str | None) -> str:
    return f"{_MARK}{anchor}{_MARK}{text}" if anchor else text


def _plain(text: str) -> str:
    return text.replace(_MARK, "")


def _failures(run: FinishedRun) -> list[dict[str, Any]]:
    file = run.folder / FAILURES_FILE
    if not file.is_file():
        return []
    return list(
        read_parquet(file, [field.name for field in fields(Failure)]).slice(0, MOST_FAILURES + 1).to_pylist()
    )


def _flat(value: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
        for name, item in value.items()
        if item not in (None, "", [], {})
    }
