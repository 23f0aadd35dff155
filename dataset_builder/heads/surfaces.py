"""Surfaces to be rendered, and the ways they are made: ribbons for hair, tubes, bent grids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dataset_builder.heads.fields import Floats, Ints, grid_triangles, unit, vertex_normals


@dataclass(frozen=True)
class Material:
    """How a surface reflects light, in the terms of a principled shader (0 to 1 each)."""

    roughness: float = 0.5
    specular: float = 0.3
    clearcoat: float = 0.0
    flatness: float = 0.0
    two_sided: bool = False


@dataclass(frozen=True)
class Surface:
    """A triangle mesh: vertices, unit normals and linear colours (n, 3), triangles (m, 3)."""

    name: str
    vertices: Floats
    triangles: Ints
    normals: Floats
    colours: Floats
    material: Material


def surface(
    name: str,
    vertices: Floats,
    triangles: Ints,
    colour: ArrayLike,
    material: Material,
    normals: Floats | None = None,
) -> Surface:
    """A surface; ``colour`` is one linear colour or one for each vertex, normals default to smooth ones."""
    colours = np.broadcast_to(np.clip(np.asarray(colour, dtype=np.float64), 0.002, 2.0), vertices.shape)
    if normals is None:
        normals = vertex_normals(vertices, triangles)
    return Surface(name, vertices, triangles, normals, colours, material)


@dataclass(frozen=True)
class Strands:
    """Hair strands: points (s, k, 3), widths (s, k), linear colours (s, k, 3), body normals (s, k, 3).

    Body normals are those of the mass of hair; they shade the strands as one soft volume.
    """

    points: Floats
    widths: Floats
    colours: Floats
    body: Floats


def ribbons(name: str, strands: Strands, camera: Floats, material: Material, softness: float) -> Surface:
    """Strands as flat ribbons turned to the camera; ``softness`` (0 to 1) is the share of body normals."""
    points, (count, length, _) = strands.points, strands.points.shape
    side = unit(np.cross(np.gradient(points, axis=1), camera - points))
    half = side * strands.widths[..., None] / 2
    facing = unit(np.cross(side, np.gradient(points, axis=1)))
    facing *= np.sign((facing * (camera - points)).sum(-1, keepdims=True))
    base = unit(softness * strands.body + (1 - softness) * facing)
    vertices = np.stack([points - half, points + half], 2).reshape(-1, 3)
    normals = np.stack([unit(base - side * 0.5), unit(base + side * 0.5)], 2).reshape(-1, 3)
    start = ((np.arange(count)[:, None] * length + np.arange(length - 1)) * 2).ravel()
    triangles = np.concatenate(
        [np.stack([start, start + 1, start + 2], 1), np.stack([start + 1, start + 3, start + 2], 1)]
    )
    colours = np.repeat(strands.colours.reshape(-1, 3), 2, axis=0)
    return surface(name, vertices, triangles, colours, material, normals)


def tube(
    name: str,
    path: Floats,
    radius: ArrayLike,
    colour: ArrayLike,
    material: Material,
    *,
    segments: int = 12,
    closed: bool = False,
) -> Surface:
    """A tube along a path (k, 3); ``radius`` is one number or (sideways, upright) for an oval one."""
    ahead = np.roll(path, -1, 0) - np.roll(path, 1, 0) if closed else np.gradient(path, axis=0)
    ahead = unit(ahead)
    reference = np.array([0.0, 0.0, 1.0]) if np.abs(ahead[:, 2]).mean() < 0.7 else np.array([0.0, 1.0, 0.0])
    across = unit(np.cross(ahead, reference))
    other = np.cross(ahead, across)
    angle = np.linspace(0, 2 * np.pi, segments + 1)
    r = np.broadcast_to(np.asarray(radius, dtype=np.float64), (2,))
    offset = (
        r[0] * np.cos(angle)[None, :, None] * across[:, None]
        + r[1] * np.sin(angle)[None, :, None] * other[:, None]
    )
    vertices = (path[:, None] + offset).reshape(-1, 3)
    triangles = grid_triangles(len(path), segments + 1, closed=closed)
    return surface(name, vertices, triangles, colour, material, unit(offset.reshape(-1, 3)))


def smooth_closed(path: Floats, rounds: int) -> Floats:
    """A closed path (k, 3) smoothed by neighbour averages."""
    for _ in range(rounds):
        path = 0.5 * path + 0.25 * (np.roll(path, 1, 0) + np.roll(path, -1, 0))
    return path
