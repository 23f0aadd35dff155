"""Commands about finished runs: the gate, the comparison of two runs, the report."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from harness.anchor import replace_baseline
from harness.compare import Comparison, compare_runs, comparison_csv, comparison_table, level_table
from harness.gate import gate
from harness.gate_output import append_step_summary, print_gate, write_gate_json, write_junit
from harness.report.page import write_report
from harness.streams import tell, write_out
from harness.tables import DisparityTable, to_markdown
from harness.terminal import console, print_table, say
from targets.base.errors import InputError


class CompareFormat(StrEnum):
    """How a comparison is written."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    CSV = "csv"


RunArgument = Annotated[Path, typer.Argument(help="A run's folder, or its record.json.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("gate")(gate_command)
    app.command("compare")(compare_command)
    app.command("report")(report_command)


def gate_command(
    new: RunArgument,
    baseline: Annotated[Path, typer.Option(help="The run to hold it against.")],
    policy: Annotated[Path, typer.Option(help="TOML file of rules with margins.")],
    junit: Annotated[Path | None, typer.Option(help="Write the checks as JUnit XML.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the checks as JSON.")] = None,
    step_summary: Annotated[Path | None, typer.Option(help="Append a Markdown summary to this file.")] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="If all passes, the new run becomes the baseline.")
    ] = False,
    new_anchor: Annotated[
        str | None,
        typer.Option(
            metavar="REASON",
            help="With --update-baseline: drift is measured from the new run from now on, and this is why.",
        ),
    ] = None,
) -> None:
    """Hold a new run against a baseline: 0 passed, 1 failed, 3 inconclusive or not comparable."""
    if new_anchor is not None and not (update_baseline and new_anchor.strip()):
        raise InputError("--new-anchor needs --update-baseline and a reason, as in --new-anchor 'retrained'")
    result = gate(new, baseline, policy, since_anchor=new_anchor is None)
    out = console()
    if junit:
        write_junit(junit, result)
    if json:
        write_gate_json(json, result)
    if step_summary:
        append_step_summary(step_summary, result)
    if update_baseline and result.passed:
        replace_baseline(result.baseline, result.new, new_anchor)
    print_gate(out, result)
    if update_baseline and result.passed:
        say(out, f"baseline replaced: {result.baseline}")
    elif update_baseline:
        say(out, "baseline kept: only a run that passes may replace it")
    if not result.passed:
        raise typer.Exit(result.exit_status)


def compare_command(
    base: RunArgument,
    new: RunArgument,
    common: Annotated[
        bool, typer.Option("--common", help="Leave out pairs that the runs don't share.")
    ] = False,
    concept: Annotated[list[str] | None, typer.Option("--concept", help="A concept to show.")] = None,
    style: Annotated[
        CompareFormat, typer.Option("--format", help="How to write it.")
    ] = CompareFormat.TERMINAL,
) -> None:
    """Say how the deltas of two runs differ, pair by pair, and what else differs between the runs."""
    found = compare_runs(base, new, common_only=common, concepts=concept or ())
    if style is CompareFormat.CSV:
        write_out(comparison_csv(found))
        return
    for table in (comparison_table(found), level_table(found), _differences_table(found)):
        if style is CompareFormat.MARKDOWN:
            write_out(to_markdown(table) + "\n")
        else:
            print_table(console(), table)


def report_command(
    run: RunArgument,
    pictures: Annotated[
        str | None, typer.Option(help="The audited pairs, for thumbnails; else where the record says.")
    ] = None,
) -> None:
    """Write RUN/report.html: one page that needs no network; of a recogniser also RUN/figures."""
    tell(f"written to {write_report(run, pictures)}")


def _differences_table(found: Comparison) -> DisparityTable:
    rows = tuple((name, "", (before, after)) for name, before, after in found.differences)
    notes = () if rows else ("data, settings and target are the same",)
    return DisparityTable("What else differs", ("baseline", "new run"), rows, notes, justify="left")
