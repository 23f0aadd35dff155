"""Reading a pair dataset: what lies on disk straight from its files, a hub id through the datasets library.

A directory is not given to ``datasets.load_dataset``: that keeps a copy in a cache of its own, and a
directory that was built anew under the same name has been seen to come back with its old rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builder.folder import refuse_unfinished
from targets.base.errors import InputError
from targets.base.files import read_named, read_parquet
from targets.base.strict_json import parse_json
from targets.base.tables import ObjectArray, Table
from targets.base.text import excerpt, shortlist
from targets.scoring import PictureRef

SPLIT, DEFAULT = "train", "default"
SPLITS = ("train", "test", "validation", "valid", "val", "dev", "eval")


@dataclass(frozen=True)
class Config:
    """One config of a dataset.

    Attributes:
        path: directory or hub id.
        name: of the config.
        columns: column name -> values; pictures are left out.
        pictures: picture column -> one reader of encoded bytes a row.
        split: that was read.
        files: that were read; empty where they are on the hub.
    """

    path: str
    name: str
    columns: dict[str, list[Any]]
    pictures: dict[str, list[Any]]
    split: str = ""
    files: tuple[Path, ...] = ()

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

    def text(self, name: str, *, stripped: bool = True) -> ObjectArray:
        """A column as strings, as of a table; an absent value is an empty string.

        Raises:
            InputError: a value that is no text.
        """
        values: ObjectArray = np.empty(len(self), dtype=object)
        values[:] = self.columns[name]
        return Table(Path(self.path), {name: values}, first_row=1).text(name, stripped=stripped)

    def refs(self, column: str, digest: str) -> tuple[PictureRef, ...]:
        """The pictures of a column, named by the digests in column ``digest`` where there is one.

        A column of texts holds paths from the dataset's folder.
        """
        if column not in self.pictures:
            place = Path(self.path).absolute()
            folder = place if place.is_dir() else place.parent
            paths = self.text(column, stripped=False)
            return tuple(PictureRef(path, partial(read_named, folder, path)) for path in paths)
        readers = self.pictures[column]
        names = self.columns.get(digest) or [f"{self.name}/{column}/{row}" for row in range(len(readers))]
        return tuple(PictureRef(str(name), reader) for name, reader in zip(names, readers, strict=True))


def read_config(path: str, name: str, split: str | None = None) -> Config | None:
    """Read one config of a dataset; None where the dataset has no such config.

    Args:
        path: a directory with parquet files, a folder that ``save_to_disk`` wrote, one parquet file with
            embedded pictures, or a hub id.
        name: of the config.
        split: of the config; None takes "train", or the only one.

    Raises:
        InputError: neither a directory nor a dataset on the hub, files that can't be read, a build that has
            not published them to the end, or no such split.
    """
    place = Path(path)
    if not place.exists():
        return _from_hub(path, name, split)
    splits = layout(place).get(name)
    if not splits:
        return None
    chosen = _choose(splits, split, path, name)
    return replace(_from_files(path, name, splits[chosen]), split=chosen)


def configs_of(path: str) -> list[str]:
    """The names of a dataset's configs.

    Raises:
        InputError: as for ``read_config``.
    """
    if Path(path).exists():
        return list(layout(Path(path)))
    from datasets import get_dataset_config_names

    with _hub_faults(path):
        return list(get_dataset_config_names(path))


def _choose(splits: Collection[str], wanted: str | None, path: str, name: str) -> str:
    if wanted is not None and wanted not in splits:
        raise InputError(f"{path}: config '{name}' has no split '{wanted}', only {shortlist(list(splits))}")
    if wanted is None and SPLIT not in splits and len(splits) > 1:
        raise InputError(f"{path}: choose one of the splits {shortlist(list(splits))} with --split")
    return wanted or (SPLIT if SPLIT in splits else next(iter(splits)))


def layout(place: Path) -> dict[str, dict[str, list[Path]]]:
    """Config -> split -> files of a dataset on disk.

    Raises:
        InputError: a build that has not published the directory to the end.
    """
    if place.is_file():
        return {DEFAULT: {SPLIT: [place]}}
    refuse_unfinished(place)
    saved = _saved(place)
    if saved:
        return {DEFAULT: saved}
    found: dict[str, dict[str, list[Path]]] = {}
    for name, listed in _listed(place).items():
        for split, patterns in _patterns(listed).items():
            files = sorted(file for pattern in patterns for file in place.glob(pattern))
            if files:
                found.setdefault(name, {})[split] = files
    for file in sorted([*place.glob("*.parquet"), *place.glob("*/*.parquet")]):
        folder = file.parent.name if file.parent != place else ""
        config = DEFAULT if folder in {"", "data", *SPLITS} else folder
        if config not in _listed(place):
            split = folder if folder in SPLITS else _split_of(file)
            found.setdefault(config, {}).setdefault(split, []).append(file)
    return found


def _saved(place: Path) -> dict[str, list[Path]]:
    """Split -> Arrow files of a folder that ``save_to_disk`` wrote; empty where it did not."""
    both = place / "dataset_dict.json"
    if both.is_file():
        splits = _json(both).get("splits", [])
        return {split: files for split in splits for files in _saved(place / split).values()}
    state = place / "state.json"
    if not state.is_file():
        return {}
    written = _json(state)
    files = [place / Path(item["filename"]).name for item in written.get("_data_files", [])]
    return {str(written.get("_split") or SPLIT): files} if files else {}


def _json(file: Path) -> dict[str, Any]:
    try:
        return dict(parse_json(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{file} can't be read as JSON: {error}") from None


def _split_of(file: Path) -> str:
    """What a shard's name says, as in ``test-00000-of-00001.parquet``."""
    word = re.split(r"[-_.]", file.name)[0]
    return word if word in SPLITS else SPLIT


def _listed(directory: Path) -> dict[str, Any]:
    """Config -> ``data_files`` as the card lists them."""
    card = directory / "README.md"
    if not card.is_file():
        return {}
    from huggingface_hub import DatasetCard

    configs = DatasetCard.load(card).data.get("configs") or []
    return {item["config_name"]: item.get("data_files") for item in configs if "config_name" in item}


def _patterns(listed: Any, split: str = SPLIT) -> dict[str, list[str]]:
    """Split -> globs, from a text, a list of texts, or a list of {split, path}."""
    if isinstance(listed, str):
        return {split: [listed]}
    found: dict[str, list[str]] = {}
    for item in listed or []:
        inner = (
            {split: [item]} if isinstance(item, str) else _patterns(item["path"], item.get("split", split))
        )
        for name, patterns in inner.items():
            found.setdefault(name, []).extend(patterns)
    return found


def has_pictures(file: Path) -> bool:
    """Whether a parquet file holds embedded pictures."""
    return bool(_picture_columns(file, _schema(file)))


def _schema(file: Path) -> pa.Schema:
    with _file_faults(file):
        if file.suffix == ".arrow":
            return pa.ipc.open_stream(pa.memory_map(str(file))).schema
        return pq.read_schema(file)


def _table(file: Path, columns: list[str]) -> pa.Table:
    with _file_faults(file):
        if file.suffix == ".arrow":
            table = pa.ipc.open_stream(pa.memory_map(str(file))).read_all().select(columns)
            table.validate(full=True)
            return table
        return read_parquet(file, columns)


@contextmanager
def _file_faults(file: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        kind = "an Arrow" if file.suffix == ".arrow" else "a parquet"
        raise InputError(f"{file} is not {kind} file that can be read: {excerpt(error)}") from None


def _from_files(path: str, name: str, files: Sequence[Path]) -> Config:
    columns: dict[str, list[Any]] = {}
    pictures: dict[str, list[Any]] = {}
    for file in files:
        schema = _schema(file)
        images = _picture_columns(file, schema)
        table = _table(file, [name for name in schema.names if name not in images])
        rows = len(_table(file, images[:1])) if images else table.num_rows
        labels = class_labels(schema)
        for column in table.column_names:
            with _file_faults(file):
                values = table.column(column).to_pylist()
            names = labels.get(column)
            columns.setdefault(column, []).extend(
                values if names is None else [class_name(value, names) for value in values]
            )
        for column in images:
            # A file that is written anew must not be answered from what was read of the old one.
            stamp = file.stat().st_mtime_ns, file.stat().st_size
            readers = [partial(_picture, file.absolute(), column, stamp, row) for row in range(rows)]
            pictures.setdefault(column, []).extend(readers)
    if len({len(values) for values in (*columns.values(), *pictures.values())}) > 1:
        raise InputError(f"{path}: all files of config '{name}' must have the same columns")
    return Config(path, name, columns, pictures, files=tuple(files))


def class_name(value: int | None, names: Sequence[str]) -> str | None:
    """The name of a class; the datasets library writes -1 for a label that is not known.

    Raises:
        InputError: there is no such class.
    """
    if value is None or (isinstance(value, int) and value < 0):
        return None
    try:
        return names[value]
    except (IndexError, TypeError):
        raise InputError(f"a label must be a number of its {len(names)} classes, got {value!r}") from None


def _picture_columns(file: Path, schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if _is_picture(field.type) or _is_bare_picture(file, field)]


def _is_bare_picture(file: Path, field: pa.Field) -> bool:
    """Whether a column holds encoded pictures as plain bytes; a path or label in bytes has no NUL."""
    if not (pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)):
        return False
    values = _table(file, [field.name]).column(0).drop_null()
    return len(values) > 0 and b"\0" in values[0].as_py()


def _is_picture(kind: pa.DataType) -> bool:
    names = {field.name for field in kind} if pa.types.is_struct(kind) else set()
    return "bytes" in names and names <= {"bytes", "path"}


def class_labels(schema: pa.Schema) -> dict[str, list[str]]:
    """Columns whose numbers stand for names, from what the datasets library writes into the schema.

    Raises:
        InputError: that is no JSON, or holds a key twice.
    """
    metadata = (schema.metadata or {}).get(b"huggingface", b"{}")
    features: dict[str, Any] = {}
    try:
        with suppress(KeyError, TypeError):
            features = parse_json(metadata)["info"]["features"]
    except ValueError as error:
        raise InputError(f"metadata 'huggingface' of a parquet file must be JSON: {error}") from None
    return {
        column: feature["names"]
        for column, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
    }


def _picture(file: Path, column: str, stamp: tuple[int, int], row: int) -> bytes:
    value = _column(file, column, stamp)[row].as_py()
    if isinstance(value, bytes):
        return value
    if value is None or (value["bytes"] is None and value.get("path") is None):
        raise FileNotFoundError(f"{file.name} row {row + 1} has no {column} picture")
    return bytes(value["bytes"]) if value["bytes"] is not None else read_named(file.parent, value["path"])


@lru_cache(maxsize=8)
def _column(file: Path, column: str, stamp: tuple[int, int]) -> pa.ChunkedArray:
    """One picture column as it was at ``stamp``; readers walk through files in order, so a few are enough."""
    del stamp
    return _table(file, [column]).column(column)


@contextmanager
def _hub_faults(path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, ValueError, ConnectionError) as error:
        reason = excerpt(error)
        raise InputError(
            f"{path} is neither a table, a directory nor a dataset on the hub: {reason}"
        ) from None


def _from_hub(path: str, name: str, split: str | None) -> Config | None:
    from datasets import Image, get_dataset_config_names, get_dataset_split_names, load_dataset

    with _hub_faults(path):
        if name not in get_dataset_config_names(path):
            return None
        chosen = _choose(get_dataset_split_names(path, name), split, path, name)
        data = load_dataset(path, name, split=chosen)
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
    return Config(path, name, columns, readers, chosen)


def _hub_picture(data: Any, column: str, row: int) -> bytes:
    value = data[row][column]
    if value is None or value["bytes"] is None:
        raise FileNotFoundError(f"row {row + 1} has no {column} picture")
    return bytes(value["bytes"])
