"""Small numeric helpers shared by all parts of a head: ramps, colour, noise, normals, random streams."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import map_coordinates

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NOISE_CELLS = 24


def stream(*key: int | str) -> np.random.Generator:
    """A random generator of its own for one component of one head.

    Components never share a generator, so changing one (another hair style, say) can't move another.
    """
    words = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in key]
    return np.random.default_rng(words)


def smoothstep(x: ArrayLike, low: float, high: float) -> Floats:
    """0 below ``low``, 1 above ``high``, a smooth cubic between; ``low > high`` falls instead of rising."""
    t = np.clip((np.asarray(x, dtype=np.float64) - low) / (high - low), 0.0, 1.0)
    return np.asarray(t * t * (3.0 - 2.0 * t))


def linear(srgb: ArrayLike) -> Floats:
    """sRGB values in 0 to 1 as linear light."""
    c = np.asarray(srgb, dtype=np.float64)
    return np.where(c <= 0.04045, c / 12.92, ((np.maximum(c, 0.0) + 0.055) / 1.055) ** 2.4)


def unit(vectors: Floats) -> Floats:
    """Vectors (..., 3) scaled to length 1; zero vectors stay zero."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, 1e-9))


def noise(points: Floats, frequency: float, *key: int | str) -> Floats:
    """Smooth value noise, about normal with mean 0 and deviation 0.5, at points (n, 3)."""
    lattice = stream("noise", *key).standard_normal((_NOISE_CELLS,) * 3)
    cells = (points * frequency).T % _NOISE_CELLS
    return np.asarray(map_coordinates(lattice, cells, order=1, mode="grid-wrap"))


def triangle_cross(vertices: Floats, triangles: Ints) -> Floats:
    """Cross product of two edges of each triangle (m, 3): its normal, as long as twice its area."""
    a, b, c = (vertices[triangles[:, k]] for k in range(3))
    return np.asarray(np.cross(b - a, c - a))


def vertex_normals(vertices: Floats, triangles: Ints) -> Floats:
    """Area-weighted unit normals (n, 3)."""
    faces = triangle_cross(vertices, triangles)
    total = np.zeros_like(vertices)
    for axis in range(3):
        for corner in range(3):
            total[:, axis] += np.bincount(triangles[:, corner], faces[:, axis], len(vertices))
    return unit(total)


def grid_triangles(rows: int, columns: int, *, closed: bool = False) -> Ints:
    """Triangles of a (rows, columns) vertex grid in row-major order; ``closed`` joins last to first row."""
    last = rows if closed else rows - 1
    i, j = (index.ravel() for index in np.meshgrid(np.arange(last), np.arange(columns - 1), indexing="ij"))
    a, b = i * columns + j, ((i + 1) % rows) * columns + j
    return np.concatenate([np.stack([a, b, b + 1], 1), np.stack([a, b + 1, a + 1], 1)]).astype(np.int64)
