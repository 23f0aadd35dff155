"""What a run shows on a terminal, or in a pipe."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.outcomes import Outcomes
from harness.recognition_tables import refusal
from harness.record import Record
from harness.tables import DisparityTable
from targets.base.text import counted, shortlist


class _LastingConsole(Console):
    """A console whose command goes on, with its own exit status, when nobody reads any more.

    rich would exit 1 then, which reads as a failed gate.
    """

    def on_broken_pipe(self) -> None:
        self.quiet = True
        silence_stdout()


def silence_stdout() -> None:
    """Send what is still written to standard output nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def console() -> Console:
    """Tables keep their width in a pipe, where rich would fold them to 80 columns."""
    return _LastingConsole(width=None if sys.stdout.isatty() else 200, highlight=False)


def print_table(out: Console, table: DisparityTable) -> None:
    """Print one table with its notes; labels can't switch colours on."""
    shown = Table(title=escape(table.title), title_justify="left", caption_justify="left")
    shown.add_column("attribute", no_wrap=True)
    shown.add_column("concept", no_wrap=True)
    for head in table.heads:
        shown.add_column(escape(head), justify=table.justify)
    for attribute, concept, texts in table.rows:
        shown.add_row(
            escape(attribute), escape(concept), *(escape(text.replace("; ", "\n")) for text in texts)
        )
    out.print(shown)
    for note in table.notes:
        out.print(f"  {escape(note)}")


def print_summary(out: Console, record: Record, outcomes: Outcomes, run: Path) -> None:
    """Print what was left out and why, what to look at, and where the run lies."""
    reasons = ", ".join(f"{reason} {count}" for reason, count in outcomes.reason_counts().items())
    out.print(
        f"{counted(record.data.n_pairs, 'pair')}, {counted(len(record.groups), 'group')}, "
        f"{counted(len(record.attributes), 'attribute')}; left out: {reasons or 'none'}"
    )
    if outcomes.references is not None:
        out.print(f"match: reference of {counted(outcomes.references, 'other source picture')}")
    for item in record.recognition:
        if item.thresholds[0].status != "ok":
            out.print(f"error rates {refusal(item.thresholds[0])}; or give --match-threshold")
        else:
            out.print("error rates: facedelta table RUN --recognition")
    checks = {check.check for check in record.picture_checks}
    if checks:
        out.print(f"picture checks to look at in record.json: {shortlist(sorted(checks), 8)}")
    for warning in record.warnings:
        out.print(f"warning: {escape(warning)}")
    out.print(f"written to {escape(str(run))}")
