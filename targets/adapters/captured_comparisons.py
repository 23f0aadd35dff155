"""``captured-comparisons:FILE``: similarities of two pictures that a face-comparison service gave.

For recognisers that sell comparisons and no vectors (AWS Rekognition's CompareFaces, Face++'s Compare).
FILE is a table (.csv, .tsv, .jsonl, .parquet) with one row a comparison::

    first,second,similarity
    BM04-1-source.png,BM04-1-glasses.png,99.2
    BM04-1-source.png,BM04-2-source.png,97.5
    BM04-1-glasses.png,BM04-2-source.png,

An empty similarity is no answer, as where the service found no face. The order of the two names doesn't
matter. A pair gets the concept ``identity`` from its source compared with its transformed face, and
``match`` from the mean similarity of each of the two with other source pictures of the same identity.
Where every source picture was compared with every other source picture and with every transformed one,
there are error rates, too.
``scale`` is what the service gives for one and the same face: 100 for the two named, 1 for a cosine.
Pictures are matched as by ``captured``: with the manifest of an export, else by path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from targets.adapters.captured import manifest_facts, matched, names_by_hash
from targets.base.config import Settings, validated
from targets.base.errors import InputError
from targets.base.hashing import file_digest
from targets.base.tables import Table, decimal_hint, parse_number, read_table
from targets.base.text import utf8
from targets.card import TargetCard
from targets.protocol import NO_ANSWER, FloatArray, PictureId, Scores

ROUNDING = 1e-6
"""Share by which float32 may lift the similarity of one and the same face above the scale."""


class ComparisonSettings(Settings):
    """Settings of the target.

    Attributes:
        scale: similarity of one and the same face; scores are divided by it.
        manifest: the manifest.csv of ``facedelta capture export``, where the capture used its pictures.
        encoding: of a text file.
    """

    scale: float = Field(gt=0)
    manifest: Path | None = None
    encoding: str = "utf-8"


class CapturedComparisons:
    """Recorded similarities; ``lookup`` says which pictures occur, ``compare`` how alike two are."""

    concepts = ("match", "identity")

    def __init__(self, path: Path, settings: ComparisonSettings) -> None:
        self._similarity = _read(read_table(path, settings.encoding), settings.scale)
        self._names = list(dict.fromkeys(name for both in self._similarity for name in sorted(both)))
        self.needs_pixels = settings.manifest is not None
        self._path = path
        self._by_hash = None
        if settings.manifest is not None:
            found = names_by_hash(settings.manifest, self._names, path)
            self._by_hash = {pixel_hash: names[0] for pixel_hash, names in found.items()}
        self.card = TargetCard(
            name=f"captured comparisons {utf8(path.name)}",
            settings={
                **settings.model_dump(mode="json", exclude_none=True),
                **manifest_facts(settings.manifest),
            },
            code=file_digest(path),
            detection="as in the capture",
            source=utf8(path.name),
        )

    def lookup(self, ids: Sequence[PictureId]) -> Scores:
        """Zeros, standing for no score, where a picture occurs in a comparison; else a reason."""
        found = matched(ids, self._names, self._by_hash, self._path)
        values = np.array([[0.0 if name is not None else np.nan] * 2 for name in found]).reshape(-1, 2)
        return Scores(values, tuple(NO_ANSWER if name is None else None for name in found))

    def compare(self, first: Sequence[PictureId], second: Sequence[PictureId]) -> FloatArray:
        """Similarities of n twos of pictures, 1 for the same face, NaN where none was captured."""
        names = matched([*first, *second], self._names, self._by_hash, self._path)
        one, other = names[: len(first)], names[len(first) :]
        return np.array([self._of(a, b) for a, b in zip(one, other, strict=True)], dtype=np.float64)

    def __len__(self) -> int:
        """How many comparisons there are."""
        return len(self._similarity)

    def table(self, ids: Sequence[PictureId]) -> FloatArray:
        """Similarities of n pictures with each other, shape (n, n).

        1 for a picture with itself, -1 where the service gave none, NaN where two were not compared.
        """
        names = matched(ids, self._names, self._by_hash, self._path)
        place = {name: row for row, name in enumerate(names) if name is not None}
        table = np.full((len(ids), len(ids)), np.nan)
        np.fill_diagonal(table, 1.0)
        for both, similarity in self._similarity.items():
            rows = [place[name] for name in both if name in place]
            if len(rows) == 2:
                value = -1.0 if np.isnan(similarity) else similarity
                table[rows[0], rows[1]] = table[rows[1], rows[0]] = value
        return table

    def _of(self, first: str | None, second: str | None) -> float:
        if first is None or second is None:
            return float("nan")
        return self._similarity.get(frozenset((first, second)), float("nan"))


def _read(table: Table, scale: float) -> dict[frozenset[str], float]:
    table.require(("first", "second", "similarity"), "a table of comparisons")
    found: dict[frozenset[str], float] = {}
    for index, (first, second) in enumerate(zip(table.text("first"), table.text("second"), strict=True)):
        value, fault = parse_number(table.columns["similarity"][index])
        if fault and fault != "absent":
            came = table.columns["similarity"][index]
            hint = decimal_hint(came)
            raise InputError(
                f"{table.row(index)}: a similarity must be a number or empty, got {came!r}{hint}"
            )
        if abs(value) > scale * (1 + ROUNDING):
            end = "at most" if value > 0 else "at least minus"
            raise InputError(
                f"{table.row(index)}: a similarity must be {end} scale={scale:.12g}, got {value:.12g}"
            )
        both, similarity = frozenset((first, second)), float(np.clip(value / scale, -1.0, 1.0))
        if both in found and not np.array_equal(found[both], similarity, equal_nan=True):
            raise InputError(f"{table.row(index)}: '{first}' and '{second}' were compared twice; keep one")
        found[both] = similarity
    return found


def load(argument: str | None, settings: Mapping[str, Any]) -> CapturedComparisons:
    """Load ``captured-comparisons:FILE``.

    Raises:
        InputError: no file, no ``scale``, a similarity beyond it, one comparison with two results.
    """
    if argument is None:
        raise InputError("name the table of comparisons: captured-comparisons:FILE")
    chosen = validated(ComparisonSettings, settings, "target captured-comparisons (scale: 100 or 1)")
    return CapturedComparisons(Path(argument), chosen)
