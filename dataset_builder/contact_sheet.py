"""A contact sheet: one row a group, its source face and what each attribute made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from dataset_builder.read import Config, read_config
from targets.base.errors import InputError
from targets.base.files import atomic
from targets.images import decode

LEFT, TOP = 48, 22


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
    rows = _first_pictures(sources, identity, dataset)
    sheet = Image.new("RGB", (LEFT + side * (1 + len(attributes)), TOP + side * len(rows)), "white")
    draw = ImageDraw.Draw(sheet)
    for column, name in enumerate(["source", *attributes]):
        draw.text((LEFT + column * side + 4, 6), name, fill="black")
    cells = {
        (digest, attribute): row
        for row, (digest, attribute) in enumerate(
            zip(candidates.columns["source_sha256"], candidates.columns["attribute"], strict=True)
        )
    }
    for line, (group, row) in enumerate(rows.items()):
        top = TOP + line * side
        draw.text((8, top + side // 2), group, fill="black")
        _paste(sheet, sources.pictures["image"][row](), (LEFT, top), side)
        digest = sources.columns["sha256"][row]
        for column, attribute in enumerate(attributes, start=1):
            found = cells.get((digest, attribute))
            if found is None:
                continue
            left = LEFT + column * side
            _paste(sheet, candidates.pictures["image"][found](), (left, top), side)
            if candidates.columns["distorted"][found] == "yes":
                draw.rectangle((left + 1, top + 1, left + side - 2, top + side - 2), outline="red", width=3)
    with atomic(out) as temporary:
        sheet.save(temporary, format="PNG" if out.suffix.lower() == ".png" else "JPEG", quality=88)


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


def _paste(sheet: Image.Image, data: Any, at: tuple[int, int], side: int) -> None:
    picture = decode(bytes(data), "picture").image
    sheet.paste(picture.resize((side, side), Image.Resampling.LANCZOS), at)
