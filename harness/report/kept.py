"""The funnel of the dataset behind a run, where the dataset is at hand."""

from __future__ import annotations

from pathlib import Path

from dataset_builder.funnel import FunnelCell, funnel
from dataset_builder.published import read_decided
from dataset_builder.read import class_labels
from targets.base.files import read_parquet


def dataset_funnel(directory: Path, level: float) -> list[FunnelCell]:
    """Count what the filter kept and rejected in every cell with candidates.

    Args:
        directory: a built dataset; anything without verdicts gives an empty list.
        level: of the intervals, in (0, 1).
    """
    shards = sorted((directory / "verdicts").glob("*.parquet"))
    if not shards:
        return []
    table = read_parquet(shards[0], [])
    labels = class_labels(table.schema)
    attributes, groups = (labels.get(name, []) for name in ("attribute", "demographic"))
    decided = read_decided(directory)
    return [cell for cell in funnel(decided, attributes, groups, level=level) if cell.candidates]
