"""``facedelta table DATASET --funnel``: what the filter kept in every cell, and whom it cost more."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from dataset_builder.attrition import attrition_tests, in_words
from dataset_builder.funnel import Decided, FunnelCell, funnel
from dataset_builder.published import group_names, read_decided
from dataset_builder.schema.verdict import REASONS
from harness.tables import NOT_MEASURED, DisparityTable


def funnel_table(dataset: Path, level: float = 0.999) -> DisparityTable:
    """The funnel of a built dataset, kept of candidates in every cell, with intervals at the level.

    Raises:
        InputError: no built dataset.
    """
    decided, attributes, groups = _read(dataset)
    cells = {
        (cell.attribute, cell.demographic): cell for cell in funnel(decided, attributes, groups, level=level)
    }
    rows = [
        (attribute, "kept", tuple(_text(cells[attribute, group]) for group in groups))
        for attribute in attributes
    ]
    rows += _rejections(decided, groups)
    title = f"Kept of candidates, {level * 100:g} % Wilson intervals on the effective size by identity"
    return DisparityTable(title, tuple(groups), tuple(rows), tuple(_notes(decided, attributes, groups)))


def _read(dataset: Path) -> tuple[list[Decided], list[str], list[str]]:
    decided = read_decided(dataset)
    return decided, list(dict.fromkeys(item.attribute for item in decided)), group_names(dataset)


def _text(cell: FunnelCell) -> str:
    if cell.low is None or cell.high is None:
        return NOT_MEASURED
    return f"{cell.kept} of {cell.candidates} [{cell.low:.2f}, {cell.high:.2f}]"


def _rejections(decided: Sequence[Decided], groups: Sequence[str]) -> list[tuple[str, str, tuple[str, ...]]]:
    counts = Counter((item.reason, item.demographic) for item in decided)
    return [
        ("rejected", reason, tuple(str(counts[reason, group]) for group in groups))
        for reason in REASONS
        if any(counts[reason, group] for group in groups)
    ]


def _notes(decided: Sequence[Decided], attributes: Sequence[str], groups: Sequence[str]) -> list[str]:
    tests = attrition_tests(decided, attributes, groups)
    return [
        "rejected: by the first rule that did not hold; the counts of a rule depend on the rules before it",
        "where all or none are kept, the number of identities stands in for the effective size",
        "do groups lose the same share? Games-Howell tests by identity, Holm over attributes, then rules:",
        *(in_words(test, test.attribute or f"to rule {test.rule}") for test in tests),
    ]


def funnel_csv(dataset: Path, level: float = 0.999) -> str:
    """One row a cell, numbers with all their digits, then a column a rule.

    Raises:
        InputError: no built dataset.
    """
    decided, attributes, groups = _read(dataset)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    heads = ["attribute", "demographic", "candidates", "kept", "identities", "share", "low", "high", "level"]
    writer.writerow([*heads, *(f"rejected_{reason}" for reason in REASONS)])
    for cell in funnel(decided, attributes, groups, level=level):
        counts = [cell.candidates, cell.kept, cell.identities]
        shares = ["" if value is None else value for value in (cell.share, cell.low, cell.high)]
        rejected = [cell.rejected.get(reason, 0) for reason in REASONS]
        writer.writerow(
            [_label(cell.attribute), _label(cell.demographic), *counts, *shares, level, *rejected]
        )
    return stream.getvalue()


def _label(text: str) -> str:
    """A label that a spreadsheet would take for a formula gets an apostrophe in front."""
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text
