"""Faces that carry their labels in their pixels, so that a server in a test can know the truth.

A face is 64 px wide: 8 x 8 blocks, the first ones white (yes), black (no) or grey (can't be seen), one an
attribute; the last two rows of blocks are the face's number in binary.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from dataset_builder.schema.faces import Face
from dataset_builder.schema.taxonomy import load_taxonomy
from dataset_builder.schema.verdict import Label
from dataset_builder.store import faces_table
from targets.base.files import write_parquet

SIDE, BLOCK = 64, 8
NUMBER_AT, NUMBER_BITS = 48, 16
PAPER = load_taxonomy("paper")
PRESENCE = [name for name, item in PAPER.attributes.items() if item.kind == "presence"]
_SHADES: Mapping[Label, int] = {"yes": 255, "no": 0, "unknown": 128}
_WORDS = {255: "Yes", 0: "No", 128: "Unknown"}


def drawn(number: int, labels: Mapping[str, Label]) -> bytes:
    """A PNG that carries a number and the labels of all presence attributes; "no" where not given."""
    blocks = np.full(64, 60, dtype=np.uint8)
    for place, name in enumerate(PRESENCE):
        blocks[place] = _SHADES[labels.get(name, "no")]
    for bit in range(NUMBER_BITS):
        blocks[NUMBER_AT + bit] = 255 if number >> bit & 1 else 0
    pixels = np.kron(blocks.reshape(8, 8), np.ones((BLOCK, BLOCK), dtype=np.uint8))
    buffer = io.BytesIO()
    Image.fromarray(pixels, "L").convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()


def read_strip(data: bytes) -> list[tuple[int, dict[str, str]]]:
    """Number and answers ("Yes", "No", "Unknown") of every face in a picture, from left to right."""
    return read_image(Image.open(io.BytesIO(data)))


def read_image(image: Image.Image) -> list[tuple[int, dict[str, str]]]:
    """``read_strip`` for a picture that is open already."""
    pixels = np.asarray(image.convert("L"))
    assert pixels.shape[0] == SIDE, pixels.shape
    found = []
    for left in range(0, pixels.shape[1], SIDE):
        blocks = pixels[BLOCK // 2 :: BLOCK, left + BLOCK // 2 : left + SIDE : BLOCK].ravel()
        number = sum(int(blocks[NUMBER_AT + bit] > 128) << bit for bit in range(NUMBER_BITS))
        found.append((number, {name: _WORDS[int(blocks[at])] for at, name in enumerate(PRESENCE)}))
    return found


def tile_digest(tile: Image.Image) -> str:
    """Digest of a face's pixels."""
    return hashlib.sha256(tile.convert("RGB").tobytes()).hexdigest()


def read_known(data: bytes, truth: Mapping[str, dict[str, str]]) -> list[tuple[int, dict[str, str]]]:
    """Like ``read_strip``, for square faces of one size whose answers are known by their pixels' digest."""
    strip = Image.open(io.BytesIO(data))
    side = strip.height
    tiles = [strip.crop((left, 0, left + side, side)) for left in range(0, strip.width, side)]
    return [(0, truth[tile_digest(tile)]) for tile in tiles]


def labels(*present: str) -> dict[str, Label]:
    """Labels of all attributes of the taxonomy: those named are present, the others are not."""
    return {name: "yes" if name in present else "no" for name in PAPER.attributes}


def coded_face(number: int, group: str, identity: str, truth: Mapping[str, Label], **more: object) -> Face:
    """A face of 30 years that is not distorted, unless ``more`` says otherwise."""
    fields = {"age": 30.0, "distorted": "no", "fault": "", "variation": 0, **more}
    return Face(
        identity=identity,
        demographic=group,
        picture=drawn(number, truth),
        labels=truth,
        provenance={"generator": "coded", "number": number},
        **fields,  # type: ignore[arg-type]
    )


def write_candidates(folder: Path, sources: Sequence[Face], edits: Iterator[tuple[int, str, Face]]) -> None:
    """Write sources.parquet and candidates.parquet; an edit names its source by position."""
    folder.mkdir(parents=True, exist_ok=True)
    empty = [""] * len(sources)
    write_parquet(folder / "sources.parquet", faces_table(sources, empty, empty))
    places, attributes, faces = zip(*edits, strict=True)
    digests = [sources[place].sha256 for place in places]
    write_parquet(folder / "candidates.parquet", faces_table(faces, attributes, digests))


RECIPE = """
name = "coded"
title = "Coded faces"
licence = "cc0-1.0"

[source]
method = "render"
seeds = "none.toml"
variations = 1

[edit]
method = "render"
attributes = {attributes}
"""


def write_recipe(folder: Path, attributes: Sequence[str], more: str = "") -> Path:
    """A recipe for candidates that were made earlier."""
    path = folder / "coded.toml"
    listed = "[" + ", ".join(f'"{name}"' for name in attributes) + "]"
    path.write_text(RECIPE.format(attributes=listed) + more, encoding="utf-8")
    return path
