"""Reading a pair dataset: a directory straight from its parquet files, a hub id through the datasets library.

A directory is not given to ``datasets.load_dataset``: that keeps a copy in a cache of its own, and a
directory that was built anew under the same name has been seen to come back with its old rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builder.folder import refuse_unfinished
from targets.base.errors import InputError
from targets.base.files import read_regular
from targets.base.tables import ObjectArray
from targets.base.text import shortlist
from targets.scoring import PictureRef

SPLIT = "train"


@dataclass(frozen=True)
class Config:
    """One config of a dataset.

    Attributes:
        path: directory or hub id.
        name: of the config.
        columns: column name -> values; pictures are left out.
        pictures: picture column -> one reader of encoded bytes a row.
    """

    path: str
    name: str
    columns: dict[str, list[Any]]
    pictures: dict[str, list[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def require(self, names: Sequence[str]) -> None:
        """Check that columns exist.

        Raises:
            InputError: naming the first that doesn't, and what is there.
        """
        present = [*self.columns, *self.pictures]
        for name in names:
            if name not in present:
                found = shortlist(present, 12)
                raise InputError(f"{self.path}: config '{self.name}' needs a column '{name}'; found {found}")

    def text(self, name: str) -> ObjectArray:
        """A column as strings; an absent value is an empty string."""
        return np.array(["" if value is None else str(value) for value in self.columns[name]], dtype=object)

    def refs(self, column: str, digest: str) -> tuple[PictureRef, ...]:
        """The pictures of a column, named by the digests in column ``digest`` where there is one."""
        readers = self.pictures[column]
        names = self.columns.get(digest) or [f"{self.name}/{column}/{row}" for row in range(len(readers))]
        return tuple(PictureRef(str(name), reader) for name, reader in zip(names, readers, strict=True))


def read_config(path: str, name: str) -> Config | None:
    """Read one config of a dataset; None where the dataset has no such config.

    Args:
        path: a directory with parquet files, or a hub id.
        name: of the config.

    Raises:
        InputError: neither a directory nor a dataset on the hub, files that can't be read, or a build that
            has not published them to the end.
    """
    directory = Path(path)
    if not directory.is_dir():
        return _from_hub(path, name)
    refuse_unfinished(directory)
    files = _files(directory, name)
    return _from_files(path, name, files) if files else None


def _files(directory: Path, name: str) -> list[Path]:
    """The parquet files that the card lists for a config, else those in the folder of its name."""
    patterns = [f"{name}/*.parquet"]
    card = directory / "README.md"
    if card.is_file():
        from huggingface_hub import DatasetCard

        for config in DatasetCard.load(card).data.get("configs") or []:
            if config.get("config_name") == name:
                listed = config.get("data_files")
                patterns = _patterns(listed)
    return sorted(file for pattern in patterns for file in directory.glob(pattern))


def _patterns(listed: Any) -> list[str]:
    """Globs of the train split: a text, a list of texts, or a list of {split, path}."""
    if isinstance(listed, str):
        return [listed]
    patterns: list[str] = []
    for item in listed or []:
        if isinstance(item, str):
            patterns.append(item)
        elif item.get("split", SPLIT) == SPLIT:
            patterns += _patterns(item["path"])
    return patterns


def _from_files(path: str, name: str, files: Sequence[Path]) -> Config:
    columns: dict[str, list[Any]] = {}
    pictures: dict[str, list[Any]] = {}
    for file in files:
        try:
            schema = pq.read_schema(file)
            images = [field.name for field in schema if _is_picture(field.type)]
            table = pq.read_table(file, columns=[name for name in schema.names if name not in images])
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(f"{file} is not a readable parquet file: {error}") from None
        labels = _class_labels(schema)
        for column in table.column_names:
            values = table.column(column).to_pylist()
            names = labels.get(column)
            columns.setdefault(column, []).extend(
                values if names is None else [None if value is None else names[value] for value in values]
            )
        for column in images:
            # A file that is written anew must not be answered from what was read of the old one.
            stamp = file.stat().st_mtime_ns, file.stat().st_size
            readers = [partial(_picture, file, column, stamp, row) for row in range(table.num_rows)]
            pictures.setdefault(column, []).extend(readers)
    return Config(path, name, columns, pictures)


def _is_picture(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"}


def _class_labels(schema: pa.Schema) -> dict[str, list[str]]:
    """Columns whose numbers stand for names, from what the datasets library writes into the schema."""
    metadata = (schema.metadata or {}).get(b"huggingface", b"")
    features: dict[str, Any] = {}
    with suppress(ValueError, KeyError, TypeError):
        features = json.loads(metadata)["info"]["features"]
    return {
        column: feature["names"]
        for column, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
    }


def _picture(file: Path, column: str, stamp: tuple[int, int], row: int) -> bytes:
    value = _column(file, column, stamp)[row].as_py()
    if value is None or (value["bytes"] is None and value["path"] is None):
        raise FileNotFoundError(f"{file.name} row {row + 1} has no {column} picture")
    return bytes(value["bytes"]) if value["bytes"] is not None else read_regular(file.parent / value["path"])


@lru_cache(maxsize=8)
def _column(file: Path, column: str, stamp: tuple[int, int]) -> pa.ChunkedArray:
    """One picture column as it was at ``stamp``; readers walk through files in order, so a few are enough."""
    del stamp
    return pq.read_table(file, columns=[column]).column(column)


def _from_hub(path: str, name: str) -> Config | None:
    from datasets import Image, get_dataset_config_names, load_dataset

    try:
        if name not in get_dataset_config_names(path):
            return None
        data = load_dataset(path, name, split=SPLIT)
    except (FileNotFoundError, ValueError, ConnectionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{path} is neither a table, a directory nor a dataset on the hub: {reason}"
        ) from None
    images = [column for column, feature in data.features.items() if isinstance(feature, Image)]
    columns = {}
    for column in data.column_names:
        if column in images:
            data = data.cast_column(column, Image(decode=False))
            continue
        feature, values = data.features[column], list(data[column])
        columns[column] = [feature.int2str(v) for v in values] if hasattr(feature, "int2str") else values
    readers = {
        column: [partial(_hub_picture, data, column, row) for row in range(len(data))] for column in images
    }
    return Config(path, name, columns, readers)


def _hub_picture(data: Any, column: str, row: int) -> bytes:
    value = data[row][column]
    if value is None or value["bytes"] is None:
        raise FileNotFoundError(f"row {row + 1} has no {column} picture")
    return bytes(value["bytes"])
