"""Brows, moustache, goatee, beard and stubble as short strands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dataset_builder.heads.attributes import Look
from dataset_builder.heads.fields import Floats, linear, smoothstep, unit
from dataset_builder.heads.identity import Person
from dataset_builder.heads.mesh import HeadMesh
from dataset_builder.heads.pose import PosedHead
from dataset_builder.heads.skin import beard_mask, brow_mask, goatee_mask, mustache_mask
from dataset_builder.heads.strands import scatter
from dataset_builder.heads.surfaces import Material, Strands, Surface, ribbons

_MATERIAL = Material(0.5, 0.3, two_sided=True)


@dataclass(frozen=True)
class _Growth:
    """Short hair of one kind; lengths and widths in interocular distances, directions by canonical place."""

    area: Callable[[HeadMesh], Floats]
    count: int
    length: Callable[[Floats], Floats]
    direction: Callable[[Floats], Floats]
    droop: float
    width: float
    lift: float


def _sideways(q: Floats) -> Floats:
    return np.stack([np.sign(q[:, 0]) * 0.75, -0.65 + 0 * q[:, 0], 0.1 + 0 * q[:, 0]], 1)


def _down(q: Floats) -> Floats:
    return np.stack([0.15 * q[:, 0], -1 + 0 * q[:, 0], 0.12 + 0 * q[:, 0]], 1)


def _constant(length: float) -> Callable[[Floats], Floats]:
    return lambda q: np.full(len(q), length)


_GROWTHS = {
    "mustache": _Growth(mustache_mask, 1900, _constant(0.18), _sideways, 0.12, 0.015, 0.4),
    "goatee": _Growth(goatee_mask, 2800, _constant(0.2), _down, 0.12, 0.016, 0.4),
    "beard": _Growth(
        beard_mask, 9500, lambda q: 0.18 + 0.26 * smoothstep(-q[:, 1], 1.0, 1.6), _down, 0.2, 0.018, 0.5
    ),
    "stubble": _Growth(
        lambda mesh: np.clip(beard_mask(mesh) + 0.8 * mustache_mask(mesh), 0, 1),
        3500,
        _constant(0.03),
        _down,
        0.0,
        0.008,
        0.6,
    ),
}


def facial_hair(head: PosedHead, person: Person, look: Look, camera: Floats) -> list[Surface]:
    """The facial hair of a look, one surface a kind."""
    colour = linear(look.beard_colour) * 0.9
    return [
        _grow(kind, _GROWTHS[kind], head, colour, camera, person.stream(kind))
        for kind in sorted(look.facial_hair)
    ]


def eyebrows(head: PosedHead, person: Person, look: Look, camera: Floats) -> Surface:
    """Brow strands: upright near the nose, lying outwards towards the temples."""
    brows = person.brows

    def direction(q: Floats) -> Floats:
        along = np.clip((np.abs(q[:, 0]) - brows.inner) / (brows.outer - brows.inner), 0, 1)
        outward = np.sign(q[:, 0]) * (0.35 + 0.8 * along)
        return np.stack([outward, 0.75 * (1 - along) ** 1.3 - 0.25 * along, 0 * along], 1)

    growth = _Growth(
        area=lambda mesh: brow_mask(mesh, brows),
        count=int(1500 * brows.density * (0.5 + 8 * brows.thickness)),
        length=_constant(0.075 + 0.35 * brows.thickness),
        direction=direction,
        droop=0.0,
        width=0.011,
        lift=0.2,
    )
    return _grow("brows", growth, head, linear(look.brow_colour), camera, person.stream("brow strands"))


def _grow(
    name: str, growth: _Growth, head: PosedHead, colour: Floats, camera: Floats, rng: np.random.Generator
) -> Surface:
    roots = scatter(head, growth.area(head.mesh), growth.count, rng)
    count, normals = growth.count, roots.normals
    along = growth.direction(roots.canonical)
    along = unit(along - normals * (normals * along).sum(1, keepdims=True)) + 0.2 * rng.standard_normal(
        (count, 3)
    )
    t = np.linspace(0, 1, 5)
    length = (growth.length(roots.canonical) * rng.uniform(0.7, 1.2, count))[:, None]
    points = (roots.points - 0.005 * normals)[:, None] + unit(along + normals * growth.lift)[:, None] * (
        length * t
    )[..., None]
    points = points + np.array([0.0, -growth.droop, 0.0]) * (length * t**2)[..., None]
    shade = 1 + 0.22 * rng.standard_normal((count, 1, 1))
    colours = np.clip(colour * shade * np.ones_like(points), 0.002, 1)
    widths = growth.width * (1 - 0.7 * t**2) * np.ones((count, 1))
    strands = Strands(points, widths, colours, np.broadcast_to(normals[:, None], points.shape))
    return ribbons(name, strands, camera, _MATERIAL, 0.8)
