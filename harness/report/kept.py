"""The funnel of the dataset behind a run, where the dataset is at hand."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builder.funnel import Decided, FunnelCell, funnel
from dataset_builder.read import class_labels


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
    names = class_labels(table.schema)
    attributes, groups = names["attribute"], names["demographic"]
    columns = (table.column(name).to_pylist() for name in ("attribute", "demographic", "identity", "reason"))
    decided = [
        Decided(attributes[attribute], groups[group], identity, reason or None)
        for attribute, group, identity, reason in zip(*columns, strict=True)
    ]
    return [cell for cell in funnel(decided, attributes, groups, level=level) if cell.candidates]
