"""The command that writes tables of finished runs, and the other forms that a run's numbers can take."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from harness.difference_tables import (
    acquisition_csv,
    acquisition_table,
    difference_tables,
    differences_to_csv,
)
from harness.every_eval_ever import Provenance, every_eval_ever
from harness.finished import read_whole
from harness.funnel_table import funnel_csv, funnel_table
from harness.model_card import model_card
from harness.plan_tables import plan_tables
from harness.recognition_tables import recognition_csv, recognition_tables
from harness.record import Record
from harness.side_by_side import named_runs, side_by_side_csv, side_by_side_table
from harness.streams import write_out
from harness.strongest_table import strongest_tables
from harness.tables import (
    DisparityTable,
    count_table,
    discovery_table,
    disparity_table,
    printed_table,
    table_rows,
    to_csv,
    to_markdown,
)
from harness.terminal import console, print_table
from harness.typeset import to_html, to_latex
from targets.base.errors import InputError
from targets.base.text import shortlist


class Format(StrEnum):
    """How a table is written."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    CSV = "csv"
    LATEX = "latex"
    HTML = "html"
    MODEL_CARD = "model-card"
    EVERY_EVAL_EVER = "every-eval-ever"


_OF_RUNS = (Format.MODEL_CARD, Format.EVERY_EVAL_EVER)
_EEE = "Only with --format every-eval-ever"


def table(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE...",
            help="A run's folder, its record.json, or a printed table's CSV; several runs side by side.",
            show_default=False,
        ),
    ],
    style: Annotated[Format, typer.Option("--format", help="How to write it.")] = Format.TERMINAL,
    concept: Annotated[list[str] | None, typer.Option("--concept", help="A concept the tables show.")] = None,
    by: Annotated[str, typer.Option(help="Axis: demographic, ethnicity or sex.")] = "demographic",
    counts: Annotated[bool, typer.Option(help="Pairs and identities instead of changes.")] = False,
    differences: Annotated[bool, typer.Option(help="Differences between groups instead.")] = False,
    recognition: Annotated[bool, typer.Option(help="A recogniser's error rates instead.")] = False,
    acquisition: Annotated[bool, typer.Option(help="Pairs without an answer, by group, instead.")] = False,
    funnel: Annotated[bool, typer.Option(help="Of a built dataset: what the filter kept.")] = False,
    level: Annotated[
        float | None,
        typer.Option(min=0.5, max=0.9999999, help="Of --funnel: of its intervals; 0.999 if none is given."),
    ] = None,
    retrieved: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds since 1970: when this is written.", rich_help_panel=_EEE),
    ] = None,
    organization: Annotated[str, typer.Option(help="Who ran the audit.", rich_help_panel=_EEE)] = "unknown",
    model_id: Annotated[
        str | None,
        typer.Option(help="The model as DEVELOPER/MODEL; else the target's spec.", rich_help_panel=_EEE),
    ] = None,
) -> None:
    """Write the disparity table of a run, of several runs side by side, or of a dataset's funnel."""
    if level is not None and not funnel:
        raise InputError("--level is of --funnel; the level of a run was set when it was audited")
    other_table = counts or differences or recognition or acquisition or funnel
    if other_table and (len(sources) > 1 or style in _OF_RUNS):
        raise InputError(
            "--counts, --differences, --recognition, --acquisition and --funnel show one run as a table: "
            "give one run, and no --format model-card or every-eval-ever"
        )
    if len(sources) > 1:
        _side_by_side(sources, style, concept or [], by)
        return
    source = sources[0]
    if style in _OF_RUNS:
        record = read_whole(source)
        text = (
            model_card(record)
            if style is Format.MODEL_CARD
            else _exported(record, retrieved, organization, model_id)
        )
        write_out(text)
        return
    if funnel:
        if style is Format.CSV:
            write_out(funnel_csv(source, level or 0.999))
            return
        shown = [funnel_table(source, level or 0.999)]
    elif source.suffix == ".csv":
        if style is Format.CSV:
            raise InputError(f"{source} is a CSV already; choose terminal, markdown, latex or html")
        shown = [printed_table(source)]
    else:
        record = read_whole(source)
        if by not in record.settings.by:
            raise InputError(f"the run has no axis '{by}', only {shortlist(record.settings.by)}")
        if style is Format.CSV:
            forms = {
                acquisition: acquisition_csv,
                recognition: recognition_csv,
                differences: differences_to_csv,
            }
            write_out(forms.get(True, to_csv)(record))
            return
        if acquisition:
            shown = [_acquisition(record)]
        elif recognition:
            shown = recognition_tables(record)
        elif differences:
            shown = list(difference_tables(record, by).values())
        elif not (record.rows or concept or counts):
            shown = strongest_tables(record)
        else:
            rows = table_rows(record, concept or [])
            shown = [count_table(record, rows, by) if counts else disparity_table(record, rows, by)]
            if by == "demographic" and not counts:
                shown += plan_tables(record, rows)
                shown += [discovery_table(record.discovery)] if record.discovery else []
    _print(shown, style)


def _acquisition(record: Record) -> DisparityTable:
    found = acquisition_table(record)
    if found is None:
        cells = [cell for cell in record.cells if cell.by == "demographic"]
        out = sorted({reason for cell in cells for reason in cell.excluded})
        why = (
            f"; pairs left out for other reasons ({shortlist(out)}) don't say if the target has an answer"
            if out
            else ": every pair that was asked about has an answer"
        )
        raise InputError(f"the run has no failure to acquire{why}")
    return found


def _side_by_side(sources: Sequence[Path], style: Format, wanted: Sequence[str], by: str) -> None:
    if style in _OF_RUNS:
        raise InputError(f"--format {style.value} is of one run, got {len(sources)}")
    runs = named_runs(sources)
    if style is Format.CSV:
        write_out(side_by_side_csv(runs))
    else:
        _print([side_by_side_table(runs, wanted, by)], style)


def _exported(record: Record, retrieved: float | None, organization: str, model_id: str | None) -> str:
    if retrieved is None:
        raise InputError(
            'every-eval-ever wants the time of writing, which no record holds: --retrieved "$(date +%s)"'
        )
    return every_eval_ever(record, Provenance(retrieved, organization, model_id))


def _print(tables: Sequence[DisparityTable], style: Format) -> None:
    if style is Format.HTML:
        write_out(to_html(tables))
        return
    if style is Format.MARKDOWN:
        # A line that follows a list without a blank one would belong to its last item.
        write_out("\n".join(map(to_markdown, tables)))
        return
    if style is Format.LATEX:
        write_out(to_latex(tables))
        return
    for item in tables:
        print_table(console(), item)
