"""What a run shows on a terminal, or in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from harness.outcomes import Outcomes
from harness.recognition_tables import refusal
from harness.record import Record
from harness.tables import DisparityTable
from targets.base.text import counted, shortlist, without_control_characters


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


# Borders and padding of a column, and the least that a label is folded to.
_FRAME, _LEAST_LABEL = 3, 12


def print_table(out: Console, table: DisparityTable) -> None:
    """Print one table with its notes; no number is cut, and labels can't switch colours on.

    Groups that don't fit beside each other come below each other.
    """
    heads = [without_control_characters(head) for head in table.heads]
    rows = [
        (
            without_control_characters(attribute),
            without_control_characters(concept),
            [without_control_characters(text.replace("; ", "\n")) for text in texts],
        )
        for attribute, concept, texts in table.rows
    ]
    labels = [max(map(cell_len, ("attribute", *(row[0] for row in rows))))]
    labels.append(max(map(cell_len, ("concept", *(row[1] for row in rows)))))
    numbers = [
        max(cell_len(line) for text in (head, *(row[2][index] for row in rows)) for line in text.split("\n"))
        for index, head in enumerate(heads)
    ]
    widest = max(numbers, default=0) + _FRAME
    room = max(_LEAST_LABEL, (out.width - widest) // 2 - _FRAME)
    labels = [min(width, room) for width in labels]
    for number, columns in enumerate(_beside(numbers, out.width - 1 - sum(labels) - 2 * _FRAME)):
        title = "continued" if number else without_control_characters(table.title)
        shown = Table(title=escape(title), title_justify="left", caption_justify="left")
        for head, width in zip(("attribute", "concept"), labels, strict=True):
            shown.add_column(head, min_width=width, max_width=width, overflow="fold")
        for column in columns:
            shown.add_column(
                escape(heads[column]), justify=table.justify, no_wrap=True, min_width=numbers[column]
            )
        for attribute, concept, texts in rows:
            shown.add_row(escape(attribute), escape(concept), *(escape(texts[column]) for column in columns))
        # A single column may still be wider than the terminal, which then breaks the lines itself.
        least = Measurement.get(out, out.options, shown).minimum
        out.print(shown, crop=False, width=max(out.width, least))
    for note in table.notes:
        out.print(f"  {escape(without_control_characters(note))}")


def _beside(widths: Sequence[int], room: int) -> list[list[int]]:
    """Columns in blocks that fit into ``room``; a block has at least one."""
    blocks: list[list[int]] = [[]]
    left = room
    for column, width in enumerate(widths):
        if blocks[-1] and width + _FRAME > left:
            blocks.append([])
            left = room
        blocks[-1].append(column)
        left -= width + _FRAME
    return blocks


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
