"""Faces on disk between the stages: one parquet file a planned batch, named by what went into it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builder.schema.faces import Face
from dataset_builder.schema.verdict import LABELS
from targets.base.errors import InputError
from targets.base.files import read_parquet, write_parquet
from targets.base.hashing import canonical_json, settings_digest
from targets.base.private import redacted
from targets.base.strict_json import parse_json
from targets.base.text import shortlist
from targets.scoring import PictureRef

FACE_SCHEMA = pa.schema(
    [
        ("identity", pa.string()),
        ("variation", pa.int32()),
        ("demographic", pa.string()),
        ("attribute", pa.string()),
        ("source_sha256", pa.string()),
        ("sha256", pa.string()),
        ("picture", pa.binary()),
        ("labels", pa.string()),
        ("age", pa.float64()),
        ("distorted", pa.string()),
        ("provenance", pa.string()),
        ("fault", pa.string()),
    ]
)
_FACTS = [name for name in FACE_SCHEMA.names if name != "picture"]


SourceKey = tuple[str, str, str, int]
"""Digest, group, identity and variation of a source face."""


@dataclass(frozen=True)
class StoredFace:
    """A face in a shard, without its bytes.

    Attributes:
        shard, row: where it lies.
        attribute: what was applied, empty for a source face.
        source_sha256: of the source picture it was made from, empty for a source face.
        sha256: of its own encoded bytes.
    """

    shard: Path
    row: int
    identity: str
    variation: int
    demographic: str
    attribute: str
    source_sha256: str
    sha256: str
    labels: dict[str, Any]
    age: float | None
    distorted: str
    provenance: str
    fault: str

    @property
    def key(self) -> SourceKey:
        """Which source face it is; two may have the same bytes."""
        return self.sha256, self.demographic, self.identity, self.variation

    @property
    def source_key(self) -> SourceKey:
        """Which source face it was made from."""
        return self.source_sha256, self.demographic, self.identity, self.variation

    def read(self) -> bytes:
        """The encoded bytes of the picture.

        Raises:
            InputError: they are not those of ``sha256``.
        """
        picture: bytes | None = _pictures(self.shard)[self.row].as_py()
        if picture is None or hashlib.sha256(picture).hexdigest() != self.sha256:
            raise InputError(
                f"{self.shard} is damaged: the picture in row {self.row + 1} is not the one of its sha256; "
                "delete the file to make it anew"
            )
        return picture

    def ref(self) -> PictureRef:
        """The picture for a target, named by its digest."""
        return PictureRef(self.sha256, self.read)

    def face(self) -> Face:
        """The face with its bytes."""
        return Face(
            identity=self.identity,
            variation=self.variation,
            demographic=self.demographic,
            picture=self.read(),
            labels=self.labels,
            age=self.age,
            distorted=self.distorted,  # type: ignore[arg-type]
            provenance=parse_json(self.provenance),
            fault=self.fault,
        )


@lru_cache(maxsize=8)
def _pictures(shard: Path) -> pa.ChunkedArray:
    """The picture column of one shard; stages walk through shards in order, so a few are enough."""
    return read_parquet(shard, ["picture"]).column("picture")


@dataclass(frozen=True)
class Store:
    """A folder of shards, one sub-folder a stage."""

    root: Path

    def shard(self, stage: str, inputs: Mapping[str, Any]) -> Path:
        """Where the batch made from ``inputs`` belongs."""
        return self.root / stage / f"{settings_digest(inputs)[:24]}.parquet"

    def write(
        self, shard: Path, faces: Sequence[Face], attributes: Sequence[str], sources: Sequence[str]
    ) -> None:
        """Write one batch, whole or not at all."""
        write_parquet(shard, faces_table(faces, attributes, sources))

    def read(self, shard: Path) -> list[StoredFace]:
        """The faces of one batch, in order."""
        return read_faces(shard)


def faces_table(faces: Sequence[Face], attributes: Sequence[str], sources: Sequence[str]) -> pa.Table:
    """Faces as a table; ``attributes`` and ``sources`` are empty strings for source faces."""
    rows = [
        {
            "identity": face.identity,
            "variation": face.variation,
            "demographic": face.demographic,
            "attribute": attribute,
            "source_sha256": source,
            "sha256": face.sha256,
            "picture": face.picture,
            "labels": canonical_json(face.labels),
            "age": face.age,
            "distorted": face.distorted,
            "provenance": canonical_json(redacted(face.provenance)),
            "fault": face.fault,
        }
        for face, attribute, source in zip(faces, attributes, sources, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=FACE_SCHEMA)


def read_faces(shard: Path) -> list[StoredFace]:
    """The faces in one parquet file, without their bytes, in order.

    Raises:
        InputError: not a parquet file, without these columns, or with a cell that no face has.
    """
    try:
        there = pq.read_schema(shard).names
        if missing := [name for name in FACE_SCHEMA.names if name not in there]:
            raise InputError(f"{shard} can't be read as faces: it has no column {shortlist(missing)}")
        table = read_parquet(shard, _FACTS, advice="; delete it to make it anew")
        rows = table.cast(pa.schema([FACE_SCHEMA.field(name) for name in _FACTS])).to_pylist()
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise InputError(f"{shard} can't be read as faces ({error}); delete it to make it anew") from None
    return [_stored(shard, index, row) for index, row in enumerate(rows)]


def _stored(shard: Path, index: int, row: dict[str, Any]) -> StoredFace:
    place = f"{shard}, row {index + 1}"
    for name in _FACTS:
        if row[name] is None and name != "age":
            raise InputError(f"{place}: a face must have {name}, but the cell is empty")
    if row["variation"] < 0:
        raise InputError(f"{place}: a variation must be at least 0, got {row['variation']}")
    labels = _json_object(row["labels"], f"{place}: labels")
    _json_object(row["provenance"], f"{place}: provenance")
    for name, label in {**labels, "distorted": row["distorted"]}.items():
        if label not in LABELS:
            raise InputError(f"{place}: '{name}' must be one of {shortlist(LABELS)}, got {label!r}")
    return StoredFace(shard=shard, row=index, **{**row, "labels": labels})


def _json_object(text: str, what: str) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except ValueError as error:
        raise InputError(f"{what} must be a JSON object ({error})") from None
    if not isinstance(value, dict):
        raise InputError(f"{what} must be a JSON object, got {text[:40]}")
    return value
