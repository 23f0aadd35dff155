"""The funnel of the dataset behind a run, where the dataset is at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builder.funnel import Decided, FunnelCell, funnel


def dataset_funnel(directory: Path, level: float) -> list[FunnelCell]:
    """Count what the filter kept and rejected in every cell with candidates.

    Args:
        directory: a built dataset; anything without verdicts gives an empty list.
        level: of the intervals, in (0, 1).
    """
    shards = sorted((directory / "verdicts").glob("*.parquet"))
    if not shards:
        return []
    table = pa.concat_tables([pq.read_table(shard) for shard in shards])
    attributes, groups = (_names(table.schema, column) for column in ("attribute", "demographic"))
    columns = (table.column(name).to_pylist() for name in ("attribute", "demographic", "identity", "reason"))
    decided = [
        Decided(attributes[attribute], groups[group], identity, reason or None)
        for attribute, group, identity, reason in zip(*columns, strict=True)
    ]
    return [cell for cell in funnel(decided, attributes, groups, level=level) if cell.candidates]


def _names(schema: pa.Schema, column: str) -> list[str]:
    """Names behind a column of class labels, as the datasets library keeps them beside the schema."""
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    return [str(name) for name in features[column]["names"]]
