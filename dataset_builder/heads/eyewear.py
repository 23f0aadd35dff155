"""Glasses and sunglasses, fitted to the face they sit on."""

from __future__ import annotations

import numpy as np

from dataset_builder.heads.fields import Floats, linear
from dataset_builder.heads.identity import Person
from dataset_builder.heads.pose import PosedHead
from dataset_builder.heads.surfaces import Material, Surface, surface, tube

_RIM_POINTS = 48
_CENTRE_X, _CENTRE_Y = 0.53, -0.05
_PLASTIC = Material(roughness=0.28, specular=0.45, two_sided=True)
# Tinted but matt: a mirror-like lens shows one softbox in one lens only, which looks like a fault.
_TINT = Material(roughness=0.35, specular=0.35, two_sided=True)
_FRAMES = (
    (0.05, 0.045, 0.05),
    (0.30, 0.16, 0.08),
    (0.12, 0.12, 0.15),
    (0.05, 0.045, 0.05),
    (0.28, 0.06, 0.07),
)


def eyewear(head: PosedHead, person: Person, *, tinted: bool) -> list[Surface]:
    """Rims, bridge and temples; with ``tinted`` also dark lenses (clear ones would not be seen)."""
    rng = person.stream("eyewear")
    width, height = (
        (0.425, 0.315) if tinted else (0.40 * rng.uniform(0.95, 1.06), 0.27 * rng.uniform(0.9, 1.25))
    )
    power = rng.uniform(0.62, 0.95)
    colour = linear((0.05, 0.045, 0.05) if tinted else _FRAMES[int(rng.integers(len(_FRAMES)))])
    angle = np.linspace(0, 2 * np.pi, _RIM_POINTS, endpoint=False)
    x = _CENTRE_X + np.sign(np.cos(angle)) * np.abs(np.cos(angle)) ** power * width
    y = np.sign(np.sin(angle)) * np.abs(np.sin(angle)) ** power * height * (1 - 0.12 * np.cos(angle))
    y = y + _CENTRE_Y
    plane = _rim_plane(head, x, y)
    thickness = 0.030 if tinted else 0.027
    result = []
    for side in (1, -1):
        rim = np.stack([side * x, y, plane - _bow(x)], 1)
        result.append(tube(f"rim{side}", rim, thickness, colour, _PLASTIC, closed=True))
        result.append(_temple(head, side, _CENTRE_X + width - 0.02, plane, colour))
        if tinted:
            result.append(_lens(side, rim, plane))
    across = np.linspace(-1, 1, 9) * (_CENTRE_X - width + 0.01)
    bridge = np.stack(
        [across, 0.04 + 0.05 * np.cos(1.5 * across / across.max()), plane - _bow(across) + 0.02], 1
    )
    return [*result, tube("bridge", bridge, thickness, colour, _PLASTIC)]


def _bow(x: Floats | float) -> Floats:
    """How far the front of a frame curves back towards the sides."""
    return np.asarray(0.16 * np.square(x))


def _face_depth(head: PosedHead, x: float, y: float, reach: float) -> float:
    """The foremost z of the face within ``reach`` of a point of the picture plane."""
    p = head.vertices
    near = (np.abs(p[:, 0] - x) < reach) & (np.abs(p[:, 1] - y) < reach) & (p[:, 2] > -1.2)
    return float(p[near, 2].max()) if near.any() else -1.2


def _rim_plane(head: PosedHead, x: Floats, y: Floats) -> float:
    """z of the frame's middle such that no rim point, no eyeball and no bridge touches the face."""
    depths = [
        _face_depth(head, s * a, b, 0.09) + float(_bow(a)) + 0.05
        for a, b in zip(x, y, strict=True)
        for s in (1, -1)
    ]
    depths += [_face_depth(head, a, 0.02, 0.05) + float(_bow(a)) + 0.03 for a in (-0.08, 0.0, 0.08)]
    eyes = float(head.eye_centres[:, 2].max()) + head.eye_radius + 0.10 + float(_bow(0.5))
    return max(*depths, eyes)


def _temple(head: PosedHead, side: int, hinge_x: float, plane: float, colour: Floats) -> Surface:
    hinge_z, ear_z = plane - float(_bow(hinge_x)), -1.15
    p = head.vertices
    level = (head.mesh.masks["ears"] < 0.2) & (np.abs(p[:, 1] - 0.08) < 0.12) & (p[:, 0] * side > 0)

    def head_width(z: float) -> float:
        near = level & (np.abs(p[:, 2] - z) < 0.15)
        return float(np.abs(p[near, 0]).max()) if near.any() else 1.2

    path = [(hinge_x, 0.06, hinge_z), (hinge_x + 0.08, 0.07, hinge_z - 0.04)]
    path += [
        (max(hinge_x + 0.05, head_width(z) + 0.035), 0.08, z) for z in np.linspace(hinge_z - 0.25, ear_z, 5)
    ]
    last = path[-1][0]
    path += [(last, 0.03, ear_z - 0.15), (last * 0.99, -0.1, ear_z - 0.3)]
    return tube(f"temple{side}", np.array(path) * (side, 1, 1), 0.026, colour, _PLASTIC)


def _lens(side: int, rim: Floats, plane: float) -> Surface:
    centre = np.array([[side * _CENTRE_X, _CENTRE_Y, plane - float(_bow(_CENTRE_X))]])
    index = np.arange(_RIM_POINTS)
    triangles = np.stack([index, (index + 1) % _RIM_POINTS, np.full(_RIM_POINTS, _RIM_POINTS)], 1)
    vertices = np.concatenate([rim, centre])
    normals = np.stack([0.25 * vertices[:, 0], 0.25 * (vertices[:, 1] + 0.3), np.ones(len(vertices))], 1)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return surface(f"lens{side}", vertices, triangles, linear((0.13, 0.115, 0.11)), _TINT, normals)
