"""A run's folder: record.json, pairs.parquet, failures.parquet, tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dataset_builder.schema.taxonomy import DEFAULT_TAXONOMY, Taxonomy, load_taxonomy
from harness.cells import demographic_cells, order_of_appearance
from harness.outcomes import REASONS, Failure, FloatArray, Labels, Outcomes
from harness.record import AuditSettings, Data, PictureCheck, Record, write_record
from harness.stats.intervals import Method
from harness.tables import Row, count_table, disparity_table, to_csv, to_latex, to_markdown
from targets.base.errors import InputError
from targets.base.files import write_parquet, write_text
from targets.base.text import nearest
from targets.card import TargetCard


@dataclass(frozen=True)
class Options:
    """What shapes an audit's numbers.

    Attributes:
        method: of the intervals.
        level: of the intervals, in (0, 1).
        max_failures: share of pairs that may fail by a fault, in [0, 1].
        taxonomy: whose groups and attributes are expected, in its order; None to take the table's.
    """

    method: Method = "cluster"
    level: float = 0.999
    max_failures: float = 0.05
    taxonomy: Taxonomy | None = None


def make_record(outcomes: Outcomes, card: TargetCard, origin: dict[str, Any], options: Options) -> Record:
    """Compute everything a record holds.

    Raises:
        InputError: a group or attribute that the given taxonomy does not have.
    """
    taxonomy = options.taxonomy
    labels = outcomes.labels
    if taxonomy is not None:
        _check_known(labels.demographic, taxonomy.groups, "demographic", taxonomy.name)
        _check_known(labels.attribute, taxonomy.attributes, "attribute", taxonomy.name)
    groups = order_of_appearance(labels.demographic, taxonomy.groups if taxonomy else _familiar(labels))
    attributes = order_of_appearance(labels.attribute, taxonomy.attributes if taxonomy else None)
    cells = demographic_cells(
        outcomes, card.spec, attributes, groups, method=options.method, level=options.level
    )
    return Record(
        facedelta_version=version("facedelta"),
        data=Data(
            **origin,
            n_pairs=len(labels),
            n_pictures=len({*labels.source_name, *labels.transformed_name} - {""}),
            fault_share=outcomes.fault_share(),
        ),
        settings=AuditSettings(
            method=options.method,
            level=options.level,
            by=("demographic",),
            references=outcomes.references,
            taxonomy=taxonomy.name if taxonomy else None,
            taxonomy_digest=taxonomy.digest if taxonomy else None,
            max_failures=options.max_failures,
        ),
        targets=(card,),
        groups=groups,
        attributes=attributes,
        concepts=outcomes.concepts,
        cells=tuple(cells),
        picture_checks=tuple(
            PictureCheck(check=check, group=group, n_pairs=count)
            for (check, group), count in sorted(outcomes.picture_checks.items())
        ),
        warnings=tuple(outcomes.warnings),
    )


def _familiar(labels: Labels) -> tuple[str, ...]:
    """Groups that all bear the paper's codes stand in the paper's order."""
    codes = load_taxonomy(DEFAULT_TAXONOMY).groups
    present = set(labels.demographic)
    return tuple(code for code in codes if code in present) if present <= set(codes) else ()


def _check_known(values: np.ndarray[Any, Any], known: dict[str, Any], column: str, taxonomy: str) -> None:
    for value in dict.fromkeys(values):
        if value not in known:
            raise InputError(
                f"{column} '{value}' is not in taxonomy '{taxonomy}'{nearest(value, known)}; extend the "
                "taxonomy or leave out --taxonomy to take the table's own"
            )


def write_run(run: Path, record: Record, outcomes: Outcomes, rows: Sequence[Row]) -> None:
    """Write a run's files; record.json comes last, so that a folder with one is complete.

    Args:
        run: the folder.
        record: what was found.
        outcomes: what it was found from.
        rows: (attribute, concept) lines of the Markdown and LaTeX tables.
    """
    write_parquet(run / "pairs.parquet", pairs_table(outcomes))
    write_parquet(run / "failures.parquet", failures_table(outcomes.failures))
    write_text(run / "tables" / "cells.csv", to_csv(record))
    shown = disparity_table(record, rows)
    write_text(
        run / "tables" / "deltas.md", to_markdown(shown) + "\n" + to_markdown(count_table(record, rows))
    )
    write_text(run / "tables" / "deltas.tex", to_latex(shown))
    write_record(record, run)


def pairs_table(outcomes: Outcomes) -> pa.Table:
    """One row a pair: labels, pictures, pixel hashes, status, reason, and two columns a concept."""
    labels = outcomes.labels
    codes = outcomes.pair_codes
    columns: dict[str, Any] = {
        "pair_id": pa.array(labels.pair_id, pa.string()),
        "identity": pa.array(labels.identity, pa.string()),
        "variation": pa.array(labels.variation, pa.string()),
        "demographic": pa.array(labels.demographic, pa.string()),
        "attribute": pa.array(labels.attribute, pa.string()),
        "source": pa.array(labels.source_name, pa.string()),
        "transformed": pa.array(labels.transformed_name, pa.string()),
        "source_hash": pa.array(outcomes.source_hash, pa.string()),
        "transformed_hash": pa.array(outcomes.transformed_hash, pa.string()),
        "status": pa.array(["excluded" if code else "ok" for code in codes], pa.string()),
        "reason": pa.array([REASONS[code] if code else None for code in codes], pa.string()),
    }
    for index, concept in enumerate(outcomes.concepts):
        columns[f"source:{concept}"] = _scores(outcomes.source[:, index])
        columns[f"transformed:{concept}"] = _scores(outcomes.transformed[:, index])
    return pa.table(columns)


def _scores(values: FloatArray) -> pa.Array:
    return pa.array(values, pa.float64(), mask=np.isnan(values))


def failures_table(failures: Sequence[Failure]) -> pa.Table:
    """One row a failure, all columns text."""
    names = [field.name for field in fields(Failure)]
    return pa.table(
        {name: pa.array([getattr(item, name) for item in failures], pa.string()) for name in names}
    )
