"""What a run shows on a terminal, or in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from harness.outcomes import Outcomes
from harness.recognition_tables import refusal
from harness.record import Record
from harness.report import words
from harness.streams import take_back
from harness.tables import DisparityTable
from targets.base.text import console_text, counted, shortlist

PIPE_WIDTH = 200
"""Columns where no terminal says how many there are; rich would take 80."""


def console() -> Console:
    """The console that commands print on."""
    take_back()
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, emoji=False)


# Borders and padding of a column, and the least that a label is folded to.
_FRAME, _LEAST_LABEL = 3, 12


def print_table(out: Console, table: DisparityTable) -> None:
    """Print one table with its notes."""
    rows = [
        ((attribute, concept), [text.replace("; ", "\n") for text in texts])
        for attribute, concept, texts in table.rows
    ]
    print_columns(out, table.title, ("attribute", "concept"), table.heads, rows, table.justify)
    for note in table.notes:
        say(out, f"  {note}")


def say(out: Console, text: str) -> None:
    """Print a line as it is: the terminal breaks it, a pipe gets it whole."""
    out.print(console_text(text), markup=False, soft_wrap=True)


def print_columns(
    out: Console,
    title: str,
    label_heads: Sequence[str],
    heads: Sequence[str],
    rows: Sequence[tuple[Sequence[str], Sequence[str]]],
    justify: Literal["left", "right"] = "left",
) -> None:
    """Print labels and columns; no text is cut, and labels can't switch colours on.

    Columns that don't fit beside each other come below each other, and long labels are folded.

    Args:
        out: where.
        title: of the table.
        label_heads: heads of the labels, which every block of columns repeats.
        heads: of the other columns.
        rows: labels and texts; a text may have several lines.
        justify: of the other columns.
    """
    title, *heads = (console_text(text) for text in (title, *heads))
    rows = [([*map(console_text, labels)], [*map(console_text, texts)]) for labels, texts in rows]
    label_widths = [
        max(map(cell_len, (head, *(labels[index] for labels, _ in rows))))
        for index, head in enumerate(label_heads)
    ]
    widths = [
        max(
            cell_len(line)
            for text in (head, *(texts[index] for _, texts in rows))
            for line in text.split("\n")
        )
        for index, head in enumerate(heads)
    ]
    left = min(out.width - max(widths, default=0) - _FRAME, out.width * 2 // 3)
    room = max(_LEAST_LABEL, left // len(label_widths) - _FRAME)
    label_widths = [min(width, room) for width in label_widths]
    taken = sum(label_widths) + _FRAME * len(label_widths)
    for number, columns in enumerate(_beside(widths, out.width - 1 - taken)):
        shown = Table(
            title=escape("continued" if number else title), title_justify="left", caption_justify="left"
        )
        for head, width in zip(label_heads, label_widths, strict=True):
            shown.add_column(head, min_width=width, max_width=width, overflow="fold")
        for column in columns:
            shown.add_column(escape(heads[column]), justify=justify, no_wrap=True, min_width=widths[column])
        for labels, texts in rows:
            shown.add_row(*map(escape, labels), *(escape(texts[column]) for column in columns))
        # A single column may still be wider than the terminal, which then breaks the lines itself.
        least = Measurement.get(out, out.options, shown).minimum
        out.print(shown, crop=False, width=max(out.width, least))


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
    for sentence in words.acquisition_sentences(record):
        say(out, sentence)
    reasons = ", ".join(f"{reason} {count}" for reason, count in outcomes.reason_counts().items())
    say(
        out,
        f"{counted(record.data.n_pairs, 'pair')}, {counted(len(record.groups), 'group')}, "
        f"{counted(len(record.attributes), 'attribute')}; left out: {reasons or 'none'}",
    )
    if outcomes.references is not None:
        say(out, f"match: reference of {counted(outcomes.references, 'other source picture')}")
    for item in record.recognition:
        if item.thresholds[0].status != "ok":
            say(out, f"error rates {refusal(item.thresholds[0])}; or give --match-threshold")
        else:
            say(out, "error rates: facedelta table RUN --recognition")
    checks = {check.check for check in record.picture_checks}
    if checks:
        say(out, f"picture checks to look at in record.json: {shortlist(sorted(checks), 8)}")
    if reason := words.filter_sentence(record):
        say(out, reason)
    for warning in record.warnings:
        say(out, f"warning: {warning}")
    say(out, f"written to {run}")
