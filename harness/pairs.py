"""Pairs from a table of picture paths, a dataset directory, a hub id, or a table of finished scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.outcomes import CODES, OK, Failure, Labels, Outcomes
from targets.base.errors import InputError
from targets.base.hashing import file_digest, settings_digest
from targets.base.tables import ObjectArray, Table, parse_numbers, read_table
from targets.base.text import counted, shortlist
from targets.scoring import PictureRef

LABEL_COLUMNS = ("pair_id", "identity", "variation", "demographic", "attribute")
_NEEDED = ("pair_id", "identity", "demographic", "attribute")


@dataclass(frozen=True)
class Pairs:
    """Labelled pairs with their pictures.

    Attributes:
        labels: n pairs, every one with a pair_id, an identity, a demographic and an attribute.
        source, transformed: n pictures each.
        origin: what a record says about where the pairs come from.
        failures: rows that are not among the pairs, and why.
        warnings: one sentence each.
    """

    labels: Labels
    source: tuple[PictureRef, ...]
    transformed: tuple[PictureRef, ...]
    origin: dict[str, Any]
    failures: list[Failure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def load_pairs(path: str, encoding: str = "utf-8") -> Pairs:
    """Load pairs with pictures.

    Args:
        path: a table ending in .csv, .tsv, .jsonl or .parquet with the columns pair_id, identity,
            variation, demographic, attribute, source, transformed (paths from the table's folder); or a
            dataset directory; or the hub id of a dataset.
        encoding: of a text table.

    Raises:
        InputError: the table can't be read, lacks a column, or holds one pair_id with two rows.
    """
    place = Path(path)
    if place.is_file():
        return _from_table(read_table(place, encoding))
    if place.suffix:
        raise InputError(f"no such file: {path}")
    return _from_dataset(path)


def _from_table(table: Table) -> Pairs:
    table.require((*_NEEDED, "source", "transformed"), "a table of pairs")
    columns = {name: table.text(name) for name in (*_NEEDED, "source", "transformed")}
    columns["variation"] = _optional(table, "variation")
    rows, failures = _usable_rows(columns, table, keys=("pair_id",), values=("source", "transformed"))
    labels = _labels(columns, rows)
    folder = table.path.parent
    origin = {
        "path": str(table.path),
        "kind": "table",
        "sha256": file_digest(table.path),
        "rows": len(table),
    }
    return Pairs(
        labels,
        tuple(_file_picture(folder, name) for name in labels.source_name),
        tuple(_file_picture(folder, name) for name in labels.transformed_name),
        origin,
        failures,
        _label_warnings(labels),
    )


def _file_picture(folder: Path, name: str) -> PictureRef:
    return PictureRef(name, (folder / name).read_bytes if name else _absent)


def _absent() -> bytes:
    raise FileNotFoundError("the table names no picture")


def _from_dataset(path: str) -> Pairs:
    from datasets import Image, load_dataset

    try:
        data = load_dataset(path, "pairs", split="train")
    except (FileNotFoundError, ValueError, ConnectionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{path} is neither a table of pairs nor a dataset with a config 'pairs': {reason}"
        ) from None
    for name in (*LABEL_COLUMNS, "source", "transformed"):
        if name not in data.column_names:
            raise InputError(
                f"dataset {path}: config 'pairs' needs a column '{name}'; found {data.column_names}"
            )
    raw = data.cast_column("source", Image(decode=False)).cast_column("transformed", Image(decode=False))
    columns = {name: _dataset_text(data, name) for name in LABEL_COLUMNS}
    digests = {side: _dataset_names(data, side) for side in ("source", "transformed")}
    columns |= digests
    table = Table(Path(path), columns, first_row=1)
    rows, failures = _usable_rows(columns, table, keys=("pair_id",), values=("source", "transformed"))
    labels = _labels(columns, rows)
    origin = {
        "path": path,
        "kind": "dataset",
        "sha256": settings_digest({name: list(map(str, values)) for name, values in columns.items()}),
        "rows": len(data),
    }
    return Pairs(
        labels,
        tuple(PictureRef(str(digests["source"][row]), _bytes_of(raw, row, "source")) for row in rows),
        tuple(
            PictureRef(str(digests["transformed"][row]), _bytes_of(raw, row, "transformed")) for row in rows
        ),
        origin,
        failures,
        _label_warnings(labels),
    )


def _dataset_text(data: Any, name: str) -> ObjectArray:
    values = data[name]
    feature = data.features[name]
    if hasattr(feature, "int2str"):
        values = ["" if value is None else feature.int2str(value) for value in values]
    return np.array(["" if value is None else str(value) for value in values], dtype=object)


def _dataset_names(data: Any, side: str) -> ObjectArray:
    """Pictures in a dataset are named by the digest of their bytes, so that equal ones are read once."""
    column = f"{side}_sha256"
    if column in data.column_names:
        return _dataset_text(data, column)
    return np.array([f"{side}-{index}" for index in range(len(data))], dtype=object)


def _bytes_of(data: Any, row: int, side: str) -> Callable[[], bytes]:
    def read() -> bytes:
        value = data[row][side]
        if value is None or (value["bytes"] is None and value["path"] is None):
            raise FileNotFoundError(f"row {row + 1} has no {side} picture")
        return bytes(value["bytes"]) if value["bytes"] is not None else Path(value["path"]).read_bytes()

    return read


def _optional(table: Table, name: str) -> ObjectArray:
    if name in table.columns:
        return table.text(name)
    return np.full(len(table), "", dtype=object)


def _labels(columns: dict[str, ObjectArray], rows: Sequence[int]) -> Labels:
    index = np.array(rows, dtype=np.intp)
    empty: ObjectArray = np.full(len(index), "", dtype=object)
    return Labels(
        pair_id=columns["pair_id"][index],
        identity=columns["identity"][index],
        variation=columns["variation"][index],
        demographic=columns["demographic"][index],
        attribute=columns["attribute"][index],
        source_name=columns["source"][index] if "source" in columns else empty,
        transformed_name=columns["transformed"][index] if "transformed" in columns else empty,
    )


def _usable_rows(
    columns: dict[str, ObjectArray], table: Table, keys: tuple[str, ...], values: tuple[str, ...]
) -> tuple[list[int], list[Failure]]:
    """Drop rows without a label and exact repeats; one key with two different rows is an error."""
    first: dict[tuple[str, ...], int] = {}
    kept: list[int] = []
    failures: list[Failure] = []
    names = (*LABEL_COLUMNS, *values)
    for row in range(len(table)):
        empty = [name for name in (*_NEEDED, *keys) if not str(columns[name][row]).strip()]
        if empty:
            failures.append(_lost_row(columns, table, row, "missing_label", f"'{empty[0]}' is empty"))
            continue
        key = tuple(columns[name][row] for name in keys)
        earlier = first.setdefault(key, row)
        if earlier == row:
            kept.append(row)
            continue
        differing = [name for name in names if columns[name][row] != columns[name][earlier]]
        if differing:
            raise InputError(
                f"{table.path}: {' and '.join(keys)} must name one row, but {', '.join(key)} has two that "
                f"differ in '{differing[0]}' ({table.row(earlier)}: {columns[differing[0]][earlier]!r}, "
                f"{table.row(row)}: {columns[differing[0]][row]!r}); remove or rename one"
            )
        failures.append(_lost_row(columns, table, row, "duplicate", f"repeats {table.row(earlier)}"))
    if not kept:
        raise InputError(f"{table.path} holds no usable pair")
    return kept, failures


def _lost_row(columns: dict[str, ObjectArray], table: Table, row: int, reason: str, detail: str) -> Failure:
    return Failure(
        what="row",
        where=table.row(row),
        reason=reason,
        group=str(columns["demographic"][row]),
        attribute=str(columns["attribute"][row]),
        detail=f"{table.row(row)}: {detail}",
    )


def _label_warnings(labels: Labels) -> list[str]:
    groups: dict[str, set[str]] = {}
    for identity, group in zip(labels.identity, labels.demographic, strict=True):
        groups.setdefault(identity, set()).add(group)
    shared = sorted(identity for identity, names in groups.items() if len(names) > 1)
    if not shared:
        return []
    count = counted(len(shared), "identity label", "identity labels")
    consequence = "taken as different people, since a cluster is (group, identity)"
    return [f"{count} in more than one group ({shortlist(shared)}): {consequence}"]


def load_scores(path: str, encoding: str = "utf-8") -> tuple[Outcomes, dict[str, Any]]:
    """Load a long table of finished scores.

    Args:
        path: a table with pair_id, identity, variation, demographic, attribute, concept, source_score and
            transformed_score.
        encoding: of a text table.

    Returns:
        The outcomes, and what a record says about where they come from.

    Raises:
        InputError: the table can't be read, lacks a column, or holds two rows for a pair and concept.
    """
    table = read_table(Path(path), encoding)
    sides = ("source_score", "transformed_score")
    table.require((*_NEEDED, "concept", *sides), "a table of scores")
    columns = {name: table.text(name) for name in (*_NEEDED, "concept", *sides)}
    columns["variation"] = _optional(table, "variation")
    rows, failures = _usable_rows(columns, table, keys=("pair_id", "concept"), values=sides)
    pair_rows = _rows_of_pairs(columns, rows, table)
    labels = _labels({name: columns[name] for name in LABEL_COLUMNS}, list(pair_rows.values()))
    outcomes = _blank_outcomes(labels, tuple(dict.fromkeys(columns["concept"][rows])))
    outcomes.failures.extend(failures)
    outcomes.warnings.extend(_label_warnings(labels))
    _fill_scores(outcomes, table, columns, rows)
    origin = {"path": path, "kind": "scores", "sha256": file_digest(table.path), "rows": len(table)}
    return outcomes, origin


def _rows_of_pairs(columns: dict[str, ObjectArray], rows: Sequence[int], table: Table) -> dict[str, int]:
    """First row of each pair; its labels must be the same for every concept."""
    first: dict[str, int] = {}
    for row in rows:
        earlier = first.setdefault(columns["pair_id"][row], row)
        for name in LABEL_COLUMNS:
            if columns[name][row] != columns[name][earlier]:
                raise InputError(
                    f"{table.path}: pair_id {columns['pair_id'][row]} must have one '{name}', got "
                    f"{columns[name][earlier]!r} in {table.row(earlier)} and {columns[name][row]!r} in "
                    f"{table.row(row)}"
                )
    return first


def _blank_outcomes(labels: Labels, concepts: tuple[str, ...]) -> Outcomes:
    shape = (len(labels), len(concepts))
    return Outcomes(
        labels=labels,
        concepts=concepts,
        source=np.full(shape, np.nan),
        transformed=np.full(shape, np.nan),
        codes=np.full(shape, CODES["no_answer"], dtype=np.int8),
        source_hash=np.full(len(labels), None, dtype=object),
        transformed_hash=np.full(len(labels), None, dtype=object),
    )


def _fill_scores(
    outcomes: Outcomes, table: Table, columns: dict[str, ObjectArray], rows: Sequence[int]
) -> None:
    is_text = table.path.suffix.lower() in {".csv", ".tsv"}
    source, source_faults = parse_numbers(table.columns["source_score"], text_is_number=is_text)
    transformed, transformed_faults = parse_numbers(
        table.columns["transformed_score"], text_is_number=is_text
    )
    pair_index = {name: index for index, name in enumerate(outcomes.labels.pair_id)}
    concept_index = {name: index for index, name in enumerate(outcomes.concepts)}
    for row in rows:
        cell = pair_index[columns["pair_id"][row]], concept_index[columns["concept"][row]]
        reason = _score_fault(source_faults.get(row), transformed_faults.get(row))
        outcomes.codes[cell] = CODES[reason] if reason else OK
        if not reason:
            outcomes.source[cell], outcomes.transformed[cell] = source[row], transformed[row]
            continue
        found = f"source {columns['source_score'][row]!r}, transformed {columns['transformed_score'][row]!r}"
        outcomes.failures.append(
            Failure(
                what="pair",
                where=str(columns["pair_id"][row]),
                reason=reason,
                group=str(columns["demographic"][row]),
                attribute=str(columns["attribute"][row]),
                detail=f"{table.row(row)}, concept '{columns['concept'][row]}': {found}",
            )
        )


def _score_fault(source: str | None, transformed: str | None) -> str | None:
    if source == "absent":
        return "missing_source"
    if transformed == "absent":
        return "missing_transformed"
    return "non_finite" if source or transformed else None
