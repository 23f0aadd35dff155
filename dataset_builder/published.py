"""A published dataset read back: rows of one config, class labels as names, without loading ``datasets``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dataset_builder.folder import BUILD_FILE, refuse_unfinished
from dataset_builder.funnel import Decided
from dataset_builder.read import class_labels, class_name
from dataset_builder.recipe import Recipe
from dataset_builder.schema.taxonomy import Taxonomy, load_taxonomy
from targets.base.config import validated
from targets.base.errors import InputError
from targets.base.files import read_parquet
from targets.base.strict_json import parse_json


def read_config(dataset: Path, config: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The rows of one config, in order.

    Args:
        dataset: folder that ``build`` wrote.
        config: "pairs", "sources", "candidates" or "verdicts".
        columns: which of them; None for all.

    Raises:
        InputError: no such config, not as ``build`` writes it, or not published to the end.
    """
    table = _table(dataset, config, columns)
    names = class_labels(table.schema)
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        for column, classes in names.items():
            if column in row:
                row[column] = class_name(row[column], classes)
    return rows


def _table(dataset: Path, config: str, columns: Sequence[str] | None) -> pa.Table:
    refuse_unfinished(dataset)
    shards = sorted((dataset / config).glob("*.parquet"))
    if not shards:
        raise InputError(f"{dataset} is no built dataset: it has no config '{config}'")
    tables = [read_parquet(shard, columns) for shard in shards]
    try:
        return pa.concat_tables(tables)
    except pa.ArrowInvalid as error:
        raise InputError(f"{dataset / config} can't be read: {error}") from None


def group_names(dataset: Path) -> list[str]:
    """All groups of the dataset's taxonomy, in its order."""
    schema = _table(dataset, "verdicts", ["demographic"]).schema
    names = class_labels(schema).get("demographic")
    if names is None:
        raise InputError(f"{dataset} is not as build writes it: 'demographic' in its verdicts has no classes")
    return names


def read_decided(dataset: Path) -> list[Decided]:
    """Every candidate with the first rule that it breaks."""
    rows = read_config(dataset, "verdicts", ["identity", "demographic", "attribute", "reason"])
    return [
        Decided(row["attribute"], row["demographic"], row["identity"], row["reason"] or None) for row in rows
    ]


def read_build(dataset: Path, taxonomy: str | None = None) -> tuple[Recipe, Taxonomy]:
    """The recipe a dataset was built from, and its taxonomy.

    Args:
        dataset: folder that ``build`` wrote.
        taxonomy: shipped name or file, where the recipe's own is not at hand.

    Raises:
        InputError: no such file, or another taxonomy than the one it was built with.
    """
    refuse_unfinished(dataset)
    path = dataset / BUILD_FILE
    try:
        data = parse_json(path.read_text(encoding="utf-8"))
        recipe = validated(Recipe, data["recipe"], str(path))
        digest = data["taxonomy"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{dataset} is no built dataset: {BUILD_FILE} can't be read ({error})") from None
    loaded = load_taxonomy(taxonomy or recipe.taxonomy)
    if loaded.digest != digest:
        raise InputError(
            f"{dataset} was built with another version of taxonomy '{recipe.taxonomy}': give it by --taxonomy"
        )
    return recipe, loaded
