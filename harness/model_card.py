"""A run as a section of a model card: Markdown for people, a Hugging Face ``model-index`` for programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from harness.difference_tables import acquisition_table, all_difference_tables
from harness.plan_tables import plan_tables
from harness.record import Attrition, Cell, Record
from harness.report import words
from harness.tables import (
    count_table,
    discovery_table,
    disparity_table,
    escape_markdown,
    to_markdown,
    two_digits,
)
from targets.base.errors import InputError
from targets.base.text import counted

TASK = {"embedding": "image-feature-extraction", "concepts": "image-classification", "recorded": "other"}
LIMITS = """\
- The numbers are mean changes on the target's own score scale, over synthetic or rendered faces that were
  made as each group. They are not rates of a population, and no statement about a person.
- An interval belongs to the pairs that were kept: the editor and the filter shape them, and other pairs may
  give other changes.
- Nothing here says that a use of the model is acceptable: that takes the use's own data, errors and harms.
"""


def model_card(record: Record) -> str:
    """Header and section, which together are a valid model card.

    The header holds a metric for every cell of the planned rows that has a mean change, with all digits; the
    section lists the cells without one, and why.

    Raises:
        InputError: the run has planned no row.
    """
    if not record.rows:
        raise InputError("the run has planned no row (attribute, concept): audit it with --concept NAME")
    return "\n".join([_header(record), *_section(record)])


def shown_cells(record: Record) -> list[Cell]:
    """Cells by demographic group of the planned rows that have pairs, or have lost some."""
    rows = set(record.rows)
    return [
        cell
        for cell in record.cells
        if cell.by == "demographic"
        and (cell.attribute, cell.concept) in rows
        and (cell.n_pairs or cell.excluded)
    ]


def data_name(record: Record) -> str:
    """Last part of the data's path, which says nothing about the machine."""
    return PurePath(record.data.path).name or record.data.path


def without_value(cell: Cell) -> str:
    """Which cell has no mean change, and why."""
    reasons = ", ".join(
        f"{count} × {words.REASONS.get(reason, reason)}" for reason, count in cell.excluded.items()
    )
    return f"{cell.attribute} / {cell.concept}, {cell.group}: no pair with both scores ({reasons})"


def _header(record: Record) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    target = record.targets[0]
    results = [
        EvalResult(
            task_type=TASK[target.kind],
            task_name="Counterfactual face audit",
            dataset_type=data_name(record),
            dataset_name=data_name(record),
            dataset_revision=record.data.sha256,
            metric_type="mean_change",
            metric_name=f"{cell.attribute} / {cell.concept}, {cell.group}: mean change of score",
            metric_value=cell.delta,
            metric_args=_metric_args(cell),
        )
        for cell in shown_cells(record)
        if cell.delta is not None
    ]
    if not results:
        raise InputError("no cell of the planned rows has a mean change: a model card has nothing to hold")
    data = ModelCardData(model_name=target.name, eval_results=results, tags=["facedelta"])
    return f"---\n{data.to_yaml()}\n---\n"


def _metric_args(cell: Cell) -> dict[str, Any]:
    interval = cell.ci.model_dump() if cell.ci else None
    return {
        "attribute": cell.attribute,
        "concept": cell.concept,
        "group": cell.group,
        "n_pairs": cell.n_pairs,
        "n_identities": cell.n_identities,
        "status": cell.status,
        **({"interval": interval} if interval else {}),
        **({"flags": list(cell.flags)} if cell.flags else {}),
        **({"excluded": dict(cell.excluded)} if cell.excluded else {}),
    }


def _section(record: Record) -> Iterator[str]:
    target = record.targets[0]
    yield "## Counterfactual audit"
    yield ""
    for warning in record.warnings:
        yield f"> **Warning:** {escape_markdown(warning)}"
        yield ""
    for sentence in words.summary(record):
        yield escape_markdown(sentence)
        yield ""
    yield "### How to read it"
    yield ""
    yield from (f"- {escape_markdown(sentence)}" for sentence in words.READING)
    yield ""
    yield "### Changes"
    yield ""
    for by in record.settings.by:
        yield to_markdown(disparity_table(record, record.rows, by))
        yield to_markdown(count_table(record, record.rows, by))
    yield from map(to_markdown, plan_tables(record, record.rows))
    yield from (to_markdown(table) for _, _, table in all_difference_tables(record))
    if record.discovery:
        yield to_markdown(discovery_table(record.discovery))
    yield "### Pairs without an answer"
    yield ""
    if (lost := acquisition_table(record)) is not None:
        yield to_markdown(lost)
    yield from _failures(record)
    yield ""
    yield "### Limits"
    yield ""
    yield LIMITS
    yield "### What was run"
    yield ""
    weights = [f"{escape_markdown(name)} sha256 {digest}" for name, digest in target.weights.items()]
    data = record.data
    facts = {
        "target": f"{escape_markdown(target.name)}, {escape_markdown(target.spec)}",
        "weights": "; ".join(weights) or "not known",
        "face detection": escape_markdown(target.detection),
        "data": f"{escape_markdown(data_name(record))}, {counted(data.n_pairs, 'pair')}",
        "data's sha256": data.sha256,
        "intervals": f"{100 * record.settings.level:g} %, method {record.settings.method}",
        "facedelta": record.facedelta_version,
    }
    yield from (f"- {name}: {text}" for name, text in facts.items())


def _failures(record: Record) -> Iterator[str]:
    lost = [item for item in record.attrition if item.lost]
    empty = [cell for cell in shown_cells(record) if cell.delta is None]
    if not lost and not empty:
        yield "None: every pair has its scores."
    yield from (f"- {escape_markdown(_loss(item))}" for item in lost)
    yield from (f"- {escape_markdown(without_value(cell))}" for cell in empty)


def _loss(item: Attrition) -> str:
    share = f"{two_digits(item.share)} [{two_digits(item.low)}, {two_digits(item.high)}]"
    return (
        f"{item.attribute}, {item.group}: {item.lost} of {counted(item.n_pairs, 'pair')} "
        f"({words.REASONS.get(item.reason, item.reason)}), share {share} at {100 * item.level:g} %"
    )
