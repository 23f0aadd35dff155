"""Facemask, head band and scarf, draped over the head they are worn on."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from dataset_builder.heads.fields import Floats, grid_triangles, linear, smoothstep, unit, vertex_normals
from dataset_builder.heads.identity import Colour, Person
from dataset_builder.heads.pose import Collider, PosedHead
from dataset_builder.heads.surfaces import Material, Surface, surface, tube

_CLOTH = Material(roughness=0.85, specular=0.08, two_sided=True)
_MASK_COLOURS: tuple[Colour, ...] = (
    (0.62, 0.78, 0.88),
    (0.90, 0.92, 0.93),
    (0.55, 0.72, 0.70),
    (0.22, 0.23, 0.26),
)
_BAND_COLOURS: tuple[Colour, ...] = (
    (0.72, 0.12, 0.17),
    (0.12, 0.36, 0.62),
    (0.90, 0.70, 0.16),
    (0.10, 0.48, 0.40),
)
_SCARF_COLOURS: tuple[Colour, ...] = (
    (0.66, 0.14, 0.16),
    (0.14, 0.29, 0.50),
    (0.76, 0.60, 0.24),
    (0.26, 0.42, 0.31),
)
_MASK_COLUMNS, _MASK_ROWS = 61, 41


def _colour(person: Person, item: str, choices: tuple[Colour, ...]) -> Floats:
    return linear(choices[int(person.stream(item).integers(len(choices)))])


def _blend(tree: cKDTree, query: Floats, values: Floats, count: int, softness: float) -> Floats:
    """Values of the nearest points, weighted by inverse squared distance."""
    distance, near = tree.query(query, k=count)
    share = 1 / (np.asarray(distance) + softness) ** 2
    share /= share.sum(1, keepdims=True)
    return np.asarray((values[np.asarray(near) % len(values)] * share[..., None]).sum(1))


def mask_cover(head: PosedHead) -> Floats:
    """1 well inside the area that a facemask hides, 0 outside it."""
    q = head.mesh.canonical
    u = np.arctan2(q[:, 0], q[:, 2] + 1.2) / 1.22
    top, bottom = -0.34 - 0.16 * u**2, -1.60 + 0.42 * np.abs(u) ** 2.2
    return np.asarray(
        smoothstep(top - q[:, 1], 0.02, 0.1)
        * smoothstep(q[:, 1] - bottom, 0.02, 0.1)
        * smoothstep(-np.abs(u), -0.85, -0.7)
    )


def facemask(head: PosedHead, person: Person, collider: Collider) -> list[Surface]:
    """A pleated mask from nose bridge to chin, held by loops round the ears."""
    u, v = np.meshgrid(np.linspace(-1, 1, _MASK_COLUMNS), np.linspace(0, 1, _MASK_ROWS))
    sheet = _drape(head, u, v)
    triangles = grid_triangles(_MASK_ROWS, _MASK_COLUMNS)
    points = sheet.reshape(-1, 3)
    for _ in range(3):
        points, _ = collider.push(points, 0.07)
        points = _relax(points.reshape(sheet.shape), 1).reshape(-1, 3)
    points, _ = collider.push(points, 0.06)
    pleats = sum(np.exp(-(((v - place) / 0.028) ** 2)) for place in (0.3, 0.48, 0.66))
    pleats = np.asarray(pleats).ravel() * smoothstep(-np.abs(u).ravel(), -0.92, -0.77)
    points = points + vertex_normals(points, triangles) * 0.02 * pleats[:, None]
    hem = ((v < 0.05) | (v > 0.95)).ravel()
    colour = _colour(person, "facemask", _MASK_COLOURS)
    shade = 1 - 0.22 * pleats[:, None] - 0.10 * hem[:, None]
    cloth = surface("mask", points, triangles, colour * shade, _CLOTH)
    return [cloth, *_ear_loops(head, points.reshape(sheet.shape), collider, colour)]


def _drape(head: PosedHead, u: Floats, v: Floats) -> Floats:
    """A grid (rows, columns, 3) laid on the lower face and pulled taut, as cloth spans nose and chin."""
    q, masks = head.mesh.canonical, head.mesh.masks
    face = (q[:, 1] < -0.05) & (q[:, 1] > -2.0) & (q[:, 2] > -1.0)
    index = np.nonzero(face & (masks["ears"] < 0.05) & (masks["inside-mouth"] < 0.3))[0]
    place = np.c_[np.arctan2(q[index, 0], q[index, 2] + 1.2), q[index, 1]]
    top, bottom = -0.27 - 0.16 * u**2, -1.70 + 0.42 * np.abs(u) ** 2.2
    query = np.c_[(u * 1.22).ravel(), (top + (bottom - top) * v).ravel()]
    lowest = _blend(cKDTree(place), query, head.vertices[index], 6, 0.01).reshape(*u.shape, 3)
    sheet = lowest
    for _ in range(60):
        sheet = _relax(sheet, 1)
        sheet[..., 2] = np.maximum(sheet[..., 2], lowest[..., 2] + 0.02)
    return sheet


def _relax(sheet: Floats, rounds: int) -> Floats:
    """A grid (rows, columns, 3) smoothed by neighbour averages; its edges only along themselves, and less."""
    for _ in range(rounds):
        inner = sheet.copy()
        inner[1:-1] = 0.5 * (sheet[2:] + sheet[:-2])
        inner[:, 1:-1] = 0.5 * inner[:, 1:-1] + 0.25 * (sheet[:, 2:] + sheet[:, :-2])
        edge = 0.7 * sheet
        edge[:, 1:-1] += 0.15 * (sheet[:, 2:] + sheet[:, :-2])
        edge[:, [0, -1]] += 0.3 * sheet[:, [0, -1]]
        inner[[0, -1]] = edge[[0, -1]]
        sheet = inner
    return sheet


def _ear_loops(head: PosedHead, sheet: Floats, collider: Collider, colour: Floats) -> list[Surface]:
    result = []
    p, ears = head.vertices, head.mesh.masks["ears"] > 0.3
    for side in (1, -1):
        edge = sheet[:, -1 if side > 0 else 0]
        ear = p[ears & (p[:, 0] * side > 0)]
        for row, height in ((3, -0.05), (_MASK_ROWS - 4, -0.62)):
            end = ear[np.argmin(np.abs(ear[:, 1] - height) + 0.6 * np.abs(ear[:, 2] + 1.1))]
            end = end + np.array([side * 0.04, 0.0, 0.02])
            path = edge[row] + (end - edge[row]) * np.linspace(0, 1, 9)[:, None]
            path, _ = collider.push(path, 0.035)
            result.append(tube(f"loop{side}{row}", path, 0.018, colour, _CLOTH))
    return result


def head_band(head: PosedHead, person: Person, clearance: float) -> Surface:
    """A broad band round the upper head, ``clearance`` off the skin to go over the hair."""
    q, masks = head.mesh.canonical, head.mesh.masks
    scalp = (q[:, 1] > -1.2) & ((q[:, 2] < 0.0) | (q[:, 1] > 0.55))
    index = np.nonzero(scalp & (masks["ears"] < 0.05) & (masks["inside-mouth"] < 0.2))[0]
    azimuth = np.arctan2(q[index, 0], q[index, 2] + 1.25)
    height = q[index, 1] - (1.20 + 0.22 * q[index, 2])
    tree = cKDTree(np.concatenate([np.c_[azimuth + turn, height] for turn in (-2 * np.pi, 0.0, 2 * np.pi)]))
    across, around = np.meshgrid(np.linspace(-0.2, 0.2, 13), np.linspace(-np.pi, np.pi, 97), indexing="ij")
    query = np.c_[around.ravel(), across.ravel()]
    points = _blend(tree, query, head.vertices[index], 8, 0.02)
    outward = unit(_blend(tree, query, head.normals[index], 8, 0.02))
    front = smoothstep(np.cos(query[:, 0]), 0.35, 0.85)
    thickness = clearance * (1 - 0.3 * front) * (1 - 0.35 * (np.abs(query[:, 1]) / 0.2) ** 4)
    grid = (points + outward * thickness[:, None]).reshape(13, 97, 3)
    for _ in range(6):
        before = np.concatenate([grid[:, -2:-1], grid[:, :-1]], 1)
        after = np.concatenate([grid[:, 1:], grid[:, 1:2]], 1)
        grid = 0.5 * grid + 0.25 * (before + after)
    triangles, vertices = grid_triangles(13, 97), grid.reshape(-1, 3)
    normals = vertex_normals(vertices, triangles)
    normals *= np.sign((normals * (vertices - np.array([0, 0.6, -1.25]))).sum(1, keepdims=True))
    ribbing = 1 + 0.10 * np.cos(query[:, 1] * 75)[:, None]
    return surface(
        "head band",
        vertices,
        triangles,
        _colour(person, "head band", _BAND_COLOURS) * ribbing,
        _CLOTH,
        normals,
    )


def scarf(head: PosedHead, person: Person) -> list[Surface]:
    """Two folded turns round the neck, below the chin, and one hanging end."""
    rng = person.stream("scarf folds")
    colour = _colour(person, "scarf", _SCARF_COLOURS)
    neck = head.vertices[np.abs(head.mesh.canonical[:, 1] + 2.1) < 0.12]
    level, back, front = neck[:, 1].mean(), neck[:, 2].min(), neck[:, 2].max()
    rx, rz = np.abs(neck[:, 0]).max() + 0.24, (front - back) / 2 + 0.2
    result = [
        _turn_of_scarf(
            f"scarf{k}", level + lift, rx * grow, rz * grow, (front + back) / 2, thick, colour, rng
        )
        for k, (lift, grow, thick) in enumerate(((-0.40, 1.22, 0.36), (-0.04, 1.04, 0.27)))
    ]
    t = np.linspace(0, 1, 14)
    end_z = (front + back) / 2 + rz * 1.25 + 0.12 + 0.25 * t
    path = np.stack([0.35 + 0.1 * np.sin(t * 3), level - 0.5 - 1.6 * t, end_z], 1)
    return [*result, tube("scarf end", path, (0.34, 0.13), colour * 0.92, _CLOTH, segments=24)]


def _turn_of_scarf(
    name: str,
    y: float,
    rx: float,
    rz: float,
    z: float,
    thick: float,
    colour: Floats,
    rng: np.random.Generator,
) -> Surface:
    columns, phase = 28, rng.uniform(0, 2 * np.pi, 6)
    turn = np.linspace(0, 2 * np.pi, 72, endpoint=False)
    ripple = 0.04 * np.sin(3 * turn + phase[0]) + 0.025 * np.sin(7 * turn + phase[1])
    path = np.stack([rx * np.sin(turn), y - 0.10 * np.cos(turn) + ripple, z + rz * np.cos(turn)], 1)
    ahead = unit(np.roll(path, -1, 0) - np.roll(path, 1, 0))
    outward = unit(np.cross(ahead, np.array([0.0, 1.0, 0.0])))
    upward = np.cross(outward, ahead)
    angle = np.linspace(0, 2 * np.pi, columns + 1)
    u = turn[:, None]
    folds = 0.09 * np.sin(4 * angle + 2 * u + phase[2]) + 0.06 * np.sin(7 * angle - 3 * u + phase[3])
    radius = thick * (1 + folds)
    points = path[:, None] + (radius * np.cos(angle) * 0.75)[..., None] * outward[:, None]
    points = points + (radius * np.sin(angle))[..., None] * upward[:, None]
    triangles = grid_triangles(len(path), columns + 1, closed=True)
    return surface(name, points.reshape(-1, 3), triangles, colour * (1 + 1.5 * folds.reshape(-1, 1)), _CLOTH)
