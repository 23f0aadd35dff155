"""A run's folder: record.json, pairs.parquet, failures.parquet, comparisons.parquet, tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from harness.comparison_file import write_comparisons
from harness.difference_tables import (
    acquisition_csv,
    acquisition_differences_csv,
    acquisition_table,
    all_difference_tables,
    differences_to_csv,
    interactions_to_csv,
)
from harness.folder import COMPARISONS_FILE, FAILURES_FILE, PAIRS_FILE, TABLES, remove_results
from harness.outcomes import FAULTS, REASONS, Failure, FloatArray, Outcomes
from harness.plan_tables import plan_tables
from harness.reasons import explained
from harness.recognition_tables import det_csv, histogram_csv, recognition_csv, recognition_tables
from harness.record import RECORD_FILE, Record, write_record
from harness.strongest_table import strongest_tables
from harness.tables import (
    DisparityTable,
    count_table,
    discovery_table,
    disparity_table,
    to_csv,
    to_markdown,
)
from harness.terminal import print_summary, print_table, say
from harness.typeset import to_latex
from targets.base.errors import TooManyFailuresError
from targets.base.files import write_parquet, write_text
from targets.base.hashing import file_digest


def run_tables(record: Record) -> list[DisparityTable]:
    """The tables a run shows: changes on every axis, counts, differences; none without planned rows."""
    lost = acquisition_table(record)
    searched = [
        *([lost] if lost else []),
        *([discovery_table(record.discovery)] if record.discovery else []),
    ]
    if not record.rows:
        return [*strongest_tables(record), *searched]
    by_axis = [disparity_table(record, record.rows, by) for by in record.settings.by]
    counts = [count_table(record, record.rows, by) for by in record.settings.by]
    plans = plan_tables(record, record.rows)
    differences = [table for _, _, table in all_difference_tables(record)]
    return [*by_axis, *counts, *plans, *differences, *strongest_tables(record), *searched]


def write_run(run: Path, record: Record, outcomes: Outcomes) -> None:
    """Write a run's files; record.json comes last, so that a folder with one is complete.

    Args:
        run: the folder.
        record: what was found.
        outcomes: what it was found from.
    """
    remove_results(run)
    write_parquet(run / PAIRS_FILE, pairs_table(outcomes))
    write_parquet(run / FAILURES_FILE, failures_table(outcomes.failures))
    write_text(run / TABLES / "cells.csv", to_csv(record))
    write_text(run / TABLES / "differences.csv", differences_to_csv(record))
    if record.acquisition:
        write_text(run / "tables" / "acquisition.csv", acquisition_csv(record))
        write_text(run / "tables" / "acquisition_differences.csv", acquisition_differences_csv(record))
    if any(entry.interaction for entry in record.disparities):
        write_text(run / TABLES / "interactions.csv", interactions_to_csv(record))
    write_text(run / TABLES / "deltas.md", "\n".join(to_markdown(table) for table in run_tables(record)))
    typeset = [disparity_table(record, record.rows), *plan_tables(record, record.rows)]
    write_text(run / TABLES / "deltas.tex", to_latex(typeset))
    if record.recognition:
        write_text(run / TABLES / "recognition.csv", recognition_csv(record))
        write_text(run / TABLES / "det.csv", det_csv(record))
        write_text(run / TABLES / "score_histograms.csv", histogram_csv(record))
        shown = "\n".join(to_markdown(table) for table in recognition_tables(record))
        write_text(run / TABLES / "recognition.md", shown)
    if outcomes.compared is not None:
        write_comparisons(run, outcomes.compared)
        named = {"comparisons_sha256": file_digest(run / COMPARISONS_FILE)}
        (report,) = record.recognition
        record = record.model_copy(update={"recognition": (explained(report.model_copy(update=named)),)})
    write_record(record, run)


def show_run(out: Console, record: Record, outcomes: Outcomes, run: Path, said: Path | None = None) -> None:
    """Write a run's folder and print its tables and summary; ``said`` is how its user calls the folder."""
    replaced, said = (run / RECORD_FILE).exists(), said or run
    write_run(run, record, outcomes)
    if replaced:
        say(out, f"replaced the run in {said}")
    for table in run_tables(record):
        print_table(out, table)
    print_summary(out, record, outcomes, said)


def check_failures(record: Record, outcomes: Outcomes, run: Path) -> None:
    """Refuse a run in which too much failed.

    Raises:
        TooManyFailuresError: the share of faults passes what the settings allow; the run is kept.
    """
    share, allowed = record.data.fault_share, record.settings.max_failures
    if share > allowed:
        raise TooManyFailuresError(
            f"{share:.1%} of the pairs failed, more than --max-failures {allowed:g} allows; "
            f"{_first_fault(outcomes)}the run is kept in {run}, all reasons in failures.parquet"
        )


def _first_fault(outcomes: Outcomes) -> str:
    """The commonest fault with an example, for a message."""
    faults = [failure for failure in outcomes.failures if failure.reason in FAULTS]
    if not faults:
        return ""
    reason, count = Counter(failure.reason for failure in faults).most_common(1)[0]
    example = next(failure.detail for failure in faults if failure.reason == reason)
    return f"most often {reason} ({count}), as in: {example}; "


def pairs_table(outcomes: Outcomes) -> pa.Table:
    """One row a pair: labels, pictures, pixel hashes, status, reason, and two columns a concept."""
    labels = outcomes.labels
    codes = outcomes.pair_codes
    columns: dict[str, Any] = {
        "pair_id": pa.array(labels.pair_id, pa.string()),
        "identity": pa.array(labels.identity, pa.string()),
        **({} if labels.person is None else {"person": pa.array(labels.person, pa.string())}),
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
