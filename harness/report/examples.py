"""The pairs behind a cell: those with the largest, the median and the smallest change."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from harness.finished import FinishedRun
from harness.pairs import load_pairs
from targets.base.errors import InputError
from targets.images import decode
from targets.scoring import PictureRef

THUMBNAIL_PX = 112


@dataclass(frozen=True)
class Example:
    """One pair of a cell.

    Attributes:
        which: "largest", "median" or "smallest" change.
        pair_id, identity: of the pair.
        source, transformed, delta: scores and their difference.
        pictures: two data URIs, or empty texts where the pictures are not at hand.
    """

    which: str
    pair_id: str
    identity: str
    source: float
    transformed: float
    delta: float
    pictures: tuple[str, str]


def examples(run: FinishedRun, cell: tuple[str, str, str], pictures: Pictures) -> list[Example]:
    """Pick up to three pairs of a cell; ties go to the pair that comes first.

    Args:
        run: a finished run.
        cell: attribute, concept, group.
        pictures: where thumbnails come from.
    """
    attribute, concept, group = cell
    column = run.record.concepts.index(concept)
    delta = run.transformed[:, column] - run.source[:, column]
    rows = np.flatnonzero(run.rows_of(attribute, group) & np.isfinite(delta))
    if not len(rows):
        return []
    order = rows[np.argsort(-delta[rows], kind="stable")]
    chosen = {"largest": order[0], "median": order[(len(order) - 1) // 2], "smallest": order[-1]}
    picked = list(chosen.items())[: len(order)] if len(order) < 3 else list(chosen.items())
    return [
        Example(
            which=which,
            pair_id=str(run.texts["pair_id"][row]),
            identity=str(run.texts["identity"][row]),
            source=float(run.source[row, column]),
            transformed=float(run.transformed[row, column]),
            delta=float(delta[row]),
            pictures=pictures.of(run, int(row)),
        )
        for which, row in picked
    ]


class Pictures:
    """Thumbnails of audited pictures: decoded, shrunk, written anew, so that no metadata is left."""

    def __init__(self, refs: Mapping[str, tuple[PictureRef, PictureRef]] | None = None) -> None:
        self._refs = refs or {}
        self._made: dict[tuple[str, str], str] = {}

    @classmethod
    def load(cls, pairs: str, config: str | None = None, split: str | None = None) -> Pictures:
        """Find the pictures of a table of pairs or a dataset."""
        loaded = load_pairs(pairs, config=config, split=split)
        both = zip(loaded.source, loaded.transformed, strict=True)
        return cls(dict(zip(map(str, loaded.labels.pair_id), both, strict=True)))

    @classmethod
    def at_hand(cls, run: FinishedRun) -> Pictures:
        """The pictures where the record says they were, if they are still there."""
        data = run.record.data
        if data.kind == "scores" or not Path(data.path).exists():
            return cls()
        return cls.load(data.path, data.config or None, data.split or None)

    def of(self, run: FinishedRun, row: int) -> tuple[str, str]:
        """Both thumbnails of a pair as data URIs; empty texts where a picture is not the audited one."""
        refs = self._refs.get(str(run.texts["pair_id"][row]))
        if refs is None:
            return "", ""
        hashes = run.texts["source_hash"][row], run.texts["transformed_hash"][row]
        made = [self._thumbnail(ref, digest) for ref, digest in zip(refs, hashes, strict=True)]
        return (made[0], made[1]) if all(made) else ("", "")

    def _thumbnail(self, ref: PictureRef, digest: str | None) -> str:
        key = ref.name, digest or ""
        if key not in self._made:
            self._made[key] = _data_uri(ref, digest)
        return self._made[key]


def _data_uri(ref: PictureRef, digest: str | None) -> str:
    try:
        picture = decode(ref.read(), ref.name)
    except (OSError, InputError):
        return ""
    if picture.pixel_hash != digest:
        return ""
    small = picture.image.copy()
    small.thumbnail((THUMBNAIL_PX, THUMBNAIL_PX), Image.Resampling.LANCZOS)
    # A new picture from the pixels alone carries no metadata of the file.
    clean = Image.frombytes("RGB", small.size, small.tobytes())
    stream = io.BytesIO()
    clean.save(stream, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"
