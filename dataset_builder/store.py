"""Faces on disk between the stages: one parquet file a planned batch, named by what went into it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builder.schema.faces import Face
from targets.base.errors import InputError
from targets.base.files import write_parquet
from targets.base.hashing import canonical_json, settings_digest
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

    def read(self) -> bytes:
        """The encoded bytes of the picture."""
        picture: bytes = _pictures(self.shard)[self.row].as_py()
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
            provenance=json.loads(self.provenance),
            fault=self.fault,
        )


@lru_cache(maxsize=8)
def _pictures(shard: Path) -> pa.ChunkedArray:
    """The picture column of one shard; stages walk through shards in order, so a few are enough."""
    return pq.read_table(shard, columns=["picture"]).column("picture")


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
            "provenance": canonical_json(face.provenance),
            "fault": face.fault,
        }
        for face, attribute, source in zip(faces, attributes, sources, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=FACE_SCHEMA)


def read_faces(shard: Path) -> list[StoredFace]:
    """The faces in one parquet file, without their bytes, in order.

    Raises:
        InputError: not a parquet file, or without these columns.
    """
    try:
        rows = pq.read_table(shard, columns=_FACTS).to_pylist()
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{shard} can't be read as faces ({error}); delete it to make it anew") from None
    return [
        StoredFace(shard=shard, row=index, **{**row, "labels": json.loads(row["labels"])})
        for index, row in enumerate(rows)
    ]
