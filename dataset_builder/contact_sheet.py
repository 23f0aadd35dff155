"""A contact sheet: one row a group, its source face and what each attribute made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw

from dataset_builder.read import Config, read_config
from targets.base.errors import InputError
from targets.base.files import atomic
from targets.images import decode

LEFT, TOP = 48, 22


@dataclass(frozen=True)
class Tile:
    """One picture of a sheet: its encoded bytes, or a note in its place where it has none."""

    picture: bytes
    note: str = ""
    framed: bool = False


def write_contact_sheet(dataset: Path, out: Path, *, identity: int = 0, side: int = 128) -> None:
    """Draw the candidates of one identity a group; what the generator knows to be distorted has a red frame.

    Args:
        dataset: a built dataset.
        out: picture to write, .jpg or .png.
        identity: which identity of each group, counted from 0.
        side: of each face, in pixels.

    Raises:
        InputError: no built dataset, or fewer identities than asked for.
    """
    sources, candidates = (_need(dataset, name) for name in ("sources", "candidates"))
    attributes = list(dict.fromkeys(candidates.columns["attribute"]))
    people = _first_pictures(sources, identity, dataset)
    cells = {
        (digest, attribute): row
        for row, (digest, attribute) in enumerate(
            zip(candidates.columns["source_sha256"], candidates.columns["attribute"], strict=True)
        )
    }
    rows = {}
    for group, row in people.items():
        found = [cells.get((sources.columns["sha256"][row], attribute)) for attribute in attributes]
        rows[group] = [
            Tile(sources.pictures["image"][row]()),
            *(None if place is None else _candidate(candidates, place) for place in found),
        ]
    draw_sheet(out, ["source", *attributes], rows, side=side)


def draw_sheet(
    out: Path, columns: Sequence[str], rows: Mapping[str, Sequence[Tile | None]], *, side: int = 128
) -> None:
    """Draw pictures in rows and columns with their names.

    Args:
        out: picture to write, .jpg or .png.
        columns: names, a line break allowed.
        rows: name -> one tile a column; None leaves its place empty.
        side: of each tile, in pixels.
    """
    top = TOP * max(name.count("\n") + 1 for name in columns)
    sheet = Image.new("RGB", (LEFT + side * len(columns), top + side * len(rows)), "white")
    draw = ImageDraw.Draw(sheet)
    for column, name in enumerate(columns):
        draw.text((LEFT + column * side + 4, 6), name, fill="black")
    for line, (name, tiles) in enumerate(rows.items()):
        y = top + line * side
        draw.text((8, y + side // 2), name, fill="black")
        for column, tile in enumerate(tiles):
            x = LEFT + column * side
            if tile is None:
                continue
            if tile.picture:
                _paste(sheet, tile.picture, (x, y), side)
            else:
                draw.text((x + 4, y + side // 2), tile.note, fill="black")
            if tile.framed:
                draw.rectangle((x + 1, y + 1, x + side - 2, y + side - 2), outline="red", width=3)
    with atomic(out) as temporary:
        sheet.save(temporary, format="PNG" if out.suffix.lower() == ".png" else "JPEG", quality=88)


def _candidate(candidates: Config, row: int) -> Tile:
    distorted = candidates.columns["distorted"][row] == "yes"
    return Tile(bytes(candidates.pictures["image"][row]() or b""), framed=distorted)


def _need(dataset: Path, name: str) -> Config:
    config = read_config(str(dataset), name) if dataset.is_dir() else None
    if config is None:
        raise InputError(f"{dataset} is no built dataset with a config '{name}'")
    return config


def _first_pictures(sources: Config, identity: int, dataset: Path) -> dict[str, int]:
    """Group -> row of the chosen identity's first picture."""
    people: dict[str, dict[str, int]] = {}
    for row, (group, name) in enumerate(
        zip(sources.columns["demographic"], sources.columns["identity"], strict=True)
    ):
        people.setdefault(group, {}).setdefault(name, row)
    fewest = min(map(len, people.values()))
    if not 0 <= identity < fewest:
        raise InputError(f"{dataset}: identity must be between 0 and {fewest - 1}, got {identity}")
    return {group: list(rows.values())[identity] for group, rows in people.items()}


def _paste(sheet: Image.Image, data: bytes, at: tuple[int, int], side: int) -> None:
    picture = decode(bytes(data), "picture").image
    sheet.paste(picture.resize((side, side), Image.Resampling.LANCZOS), at)
