"""Growing hair: where strands start, how guides bend through a comb field, how the rest follow them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import cKDTree

from dataset_builder.heads.fields import Floats, triangle_cross, unit
from dataset_builder.heads.pose import Collider, PosedHead

Field = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Roots:
    """Where strands start: points, skin normals and canonical coordinates (n, 3)."""

    points: Floats
    normals: Floats
    canonical: Floats

    def part(self, index: slice) -> Roots:
        """Some of the roots."""
        return Roots(self.points[index], self.normals[index], self.canonical[index])


def scatter(head: PosedHead, density: Floats, count: int, rng: np.random.Generator) -> Roots:
    """``count`` roots spread over the head by area times ``density`` (n,)."""
    triangles, canonical = head.mesh.triangles, head.mesh.canonical
    # Areas of the undeformed head, so that an expression or an age moves roots with the skin and no further.
    area = np.linalg.norm(triangle_cross(canonical, triangles), axis=1) * density[triangles].mean(1)
    chosen = triangles[rng.choice(len(triangles), count, p=area / area.sum())]
    share = rng.dirichlet((1.0, 1.0, 1.0), count)[..., None]
    points, normals, place = ((a[chosen] * share).sum(1) for a in (head.vertices, head.normals, canonical))
    return Roots(points, unit(normals), place)


@dataclass(frozen=True)
class Comb:
    """How roots (n,) are combed: length, lift off the skin, and a key (n, k) that says who follows whom.

    ``fringe`` (n,) marks what may hang over the face. ``field`` and ``gravity`` give direction (g, 3) and
    downward pull (g,) at the guides' tips.
    """

    lengths: Floats
    lifts: Floats
    key: Floats
    fringe: np.ndarray
    field: Field
    gravity: Field
    steps: int
    wobble: float
    attraction: float
    clump: float
    width: float

    def part(self, keep: np.ndarray) -> Comb:
        """The comb of some of the roots."""
        return replace(
            self,
            lengths=self.lengths[keep],
            lifts=self.lifts[keep],
            key=self.key[keep],
            fringe=self.fringe[keep],
        )


def grow_guides(roots: Roots, comb: Comb, collider: Collider, rng: np.random.Generator) -> Floats:
    """Guide strands (g, steps + 1, 3), bent step by step and kept out of the head."""
    point, direction = roots.points, roots.normals
    path = [point]
    lifts = comb.lifts * 0.6 + 0.03
    for step in range(comb.steps):
        pull = np.array([0.0, -1.0, 0.0]) * comb.gravity(point)[:, None]
        stray = comb.wobble * rng.standard_normal(point.shape)
        direction = unit(0.55 * direction + comb.field(point) + pull + stray)
        moved = point + direction * (comb.lengths / comb.steps)[:, None]
        moved, _ = collider.push(moved, lifts * min(1.0, (step + 1) / 2.5), comb.attraction)
        direction, point = unit(moved - point), moved
        path.append(point)
    return np.stack(path, axis=1)


def follow(
    roots: Roots, comb: Comb, guides: Floats, guide_comb: Comb, rng: np.random.Generator
) -> tuple[Floats, np.ndarray]:
    """Strands (n, k, 3) that follow their three nearest guides, and the nearest guide of each (n,)."""
    found, neighbours = cKDTree(guide_comb.key).query(comb.key, k=3)
    near = np.asarray(neighbours)
    share = 1 / (np.asarray(found) + 0.03) ** 2
    share /= share.sum(1, keepdims=True)
    bend = ((guides[near] - guides[near][:, :, :1]) * share[..., None, None]).sum(1)
    scale = comb.lengths / np.maximum((guide_comb.lengths[near] * share).sum(1), 1e-3)
    points = roots.points[:, None] + bend * np.clip(scale, 0.6, 1.5)[:, None, None]
    t = np.linspace(0, 1, guides.shape[1])
    gather = comb.clump * t * rng.uniform(0.3, 1.0, (len(points), 1))
    points = points + (guides[near[:, 0]] - points) * gather[..., None]
    stray = 0.03 * rng.standard_normal((len(points), 1, 3)) * (t**0.8)[None, :, None]
    return points + stray, near[:, 0]
