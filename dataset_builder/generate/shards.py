"""Faces as parquet: one file of source faces, one of transformed candidates.

Labels and provenance are canonical JSON strings, so a file's schema does not depend on the attributes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builder.schema.faces import Face

_FACE_FIELDS = [
    ("identity", pa.string()),
    ("variation", pa.int32()),
    ("demographic", pa.string()),
    ("picture", pa.binary()),
    ("labels", pa.string()),
    ("age", pa.float64()),
    ("distorted", pa.bool_()),
    ("provenance", pa.string()),
]
_CANDIDATE_FIELDS = [("attribute", pa.string()), ("source_sha256", pa.string())]


@dataclass(frozen=True)
class Candidate:
    """A transformed face, the attribute that was applied, and SHA-256 of its source's encoded bytes."""

    face: Face
    attribute: str
    source_sha256: str


def sha256(picture: bytes) -> str:
    """SHA-256 of encoded bytes, 64 hexadecimal digits."""
    return hashlib.sha256(picture).hexdigest()


def write_faces(path: Path, faces: Iterable[Face]) -> None:
    """One row a face, in the given order."""
    _write(path, [_row(face) for face in faces], _FACE_FIELDS)


def write_candidates(path: Path, candidates: Iterable[Candidate]) -> None:
    """One row a candidate, in the given order."""
    rows = [_row(c.face) | {"attribute": c.attribute, "source_sha256": c.source_sha256} for c in candidates]
    _write(path, rows, _FACE_FIELDS + _CANDIDATE_FIELDS)


def read_faces(path: Path) -> Iterator[Face]:
    """The faces of a file that ``write_faces`` wrote."""
    for row in pq.read_table(path).to_pylist():
        yield _face(row)


def read_candidates(path: Path) -> Iterator[Candidate]:
    """The candidates of a file that ``write_candidates`` wrote."""
    for row in pq.read_table(path).to_pylist():
        yield Candidate(_face(row), row["attribute"], row["source_sha256"])


def _row(face: Face) -> dict[str, object]:
    return {
        "identity": face.identity,
        "variation": face.variation,
        "demographic": face.demographic,
        "picture": face.picture,
        "labels": _canonical(face.labels),
        "age": face.age,
        "distorted": face.distorted,
        "provenance": _canonical(face.provenance),
    }


def _face(row: Mapping[str, object]) -> Face:
    named = {name: row[name] for name, _ in _FACE_FIELDS}
    texts = {name: json.loads(str(row[name])) for name in ("labels", "provenance")}
    return Face(**(named | texts))  # type: ignore[arg-type]


def _canonical(value: Mapping[str, object]) -> str:
    return json.dumps(dict(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _write(path: Path, rows: list[dict[str, object]], fields: list[tuple[str, pa.DataType]]) -> None:
    table = pa.Table.from_pylist(rows, schema=pa.schema(fields))
    # Pictures are compressed already; small row groups keep memory low when they are read in part.
    pq.write_table(table, path, compression="zstd", row_group_size=256)
