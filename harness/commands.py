"""Commands about finished runs: the gate."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from harness.finished import PAIRS_FILE
from harness.gate import gate
from harness.gate_output import append_step_summary, print_gate, write_gate_json, write_junit
from harness.record import RECORD_FILE
from harness.terminal import console
from targets.base.errors import InputError
from targets.base.files import atomic

_STORED = (PAIRS_FILE, "failures.parquet", RECORD_FILE)
RunArgument = Annotated[Path, typer.Argument(help="A run's folder, or its record.json.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("gate")(gate_command)


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
) -> None:
    """Hold a new run against a baseline: 0 passed, 1 failed, 3 inconclusive or not comparable."""
    result = gate(new, baseline, policy)
    out = console()
    print_gate(out, result)
    if junit:
        write_junit(junit, result)
    if json:
        write_gate_json(json, result)
    if step_summary:
        append_step_summary(step_summary, result)
    if update_baseline and result.passed:
        replace_run(result.baseline, result.new)
        out.print(f"baseline replaced: {result.baseline}", markup=False)
    elif update_baseline:
        out.print("baseline kept: only a run that passes may replace it")
    if not result.passed:
        raise typer.Exit(result.exit_status)


def replace_run(place: Path, by: Path) -> None:
    """Copy a run's record and pairs over another's; the record goes first and comes last.

    Raises:
        InputError: both are one folder.
    """
    if place.resolve() == by.resolve():
        raise InputError("the new run must not be the baseline itself")
    (place / RECORD_FILE).unlink(missing_ok=True)
    for name in _STORED:
        with atomic(place / name) as temporary:
            shutil.copyfile(by / name, temporary)
