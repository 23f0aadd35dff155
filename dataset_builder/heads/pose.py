"""A person's head in one state: fine vertices, normals, eyes, and the frame they are measured in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from dataset_builder.heads.attributes import Look
from dataset_builder.heads.fields import Floats, smoothstep, vertex_normals
from dataset_builder.heads.identity import Person
from dataset_builder.heads.mesh import HeadMesh
from dataset_builder.heads.shape import deform, macro_weights

_NOWHERE = (0.0, -9.0, -3.0)


@dataclass(frozen=True)
class Frame:
    """The unit of one person (the interocular distance, in decimetres) and what the camera sees.

    It comes from the unedited, expressionless head, so an edit never moves the camera or the background.
    ``middle`` and ``half`` (both in the unit) are what the camera looks at and half the picture's height.
    """

    unit: float
    middle: Floats
    half: float


@dataclass(frozen=True)
class PosedHead:
    """Fine vertices and normals (n, 3), coarse vertices (c, 3), eye centres (2, 3): left, right."""

    mesh: HeadMesh
    coarse: Floats
    vertices: Floats
    normals: Floats
    eye_centres: Floats
    eye_radius: float


def frame_of(mesh: HeadMesh, person: Person) -> Frame:
    """The frame of a person."""
    coarse, size = bare_coarse(mesh, person)
    fine = mesh.refine @ coarse / size
    fine[~mesh.used] = _NOWHERE
    q = mesh.canonical
    chin = (np.abs(q[:, 0]) < 0.2) & (q[:, 1] < -1.3) & (q[:, 1] > -1.75) & (q[:, 2] > 0.05)
    top, bottom = fine[:, 1].max(), fine[chin, 1].min()
    middle = np.array([0.0, (top + bottom) / 2 - 0.08, -0.7])
    return Frame(size, middle, float((top - bottom) / 2 * 1.47))


def bare_coarse(mesh: HeadMesh, person: Person) -> tuple[Floats, float]:
    """Coarse vertices (c, 3) in decimetres of the expressionless head about its eyes, and their distance."""
    coarse = deform(mesh, _weights(person, person.age))
    centres, _ = _eyes(mesh, coarse)
    return coarse - centres.mean(0), float(np.linalg.norm(centres[0] - centres[1]))


def pose(mesh: HeadMesh, person: Person, look: Look, frame: Frame) -> PosedHead:
    """The bare head of a person with a look's age and expression."""
    weights = _weights(person, look.age) | _ageing(look.age)
    for action, weight in look.actions.items():
        for name in (f"action/{action}", f"action/{action}Left", f"action/{action}Right"):
            if name in mesh.targets:
                weights[name] = weight
    coarse = deform(mesh, weights)
    centres, _ = _eyes(mesh, coarse)
    # Age moves the whole head; the eyes stay where they are in the picture.
    coarse = (coarse - centres.mean(0)) / frame.unit
    centres, radius = _eyes(mesh, coarse)
    fine = mesh.refine @ coarse
    fine[~mesh.used] = _NOWHERE
    return PosedHead(mesh, coarse, fine, vertex_normals(fine, mesh.triangles), centres, radius)


def displaced(head: PosedHead, heights: Floats) -> PosedHead:
    """The head with its surface raised along the normals by heights (n,)."""
    vertices = head.vertices + head.normals * heights[:, None]
    normals = vertex_normals(vertices, head.mesh.triangles)
    return PosedHead(head.mesh, head.coarse, vertices, normals, head.eye_centres, head.eye_radius)


def _weights(person: Person, age: float) -> dict[str, float]:
    macro = macro_weights(person.ancestry, person.gender, age, person.weight, person.muscle)
    return macro | dict(person.shape)


def _ageing(age: float) -> dict[str, float]:
    """What age does beyond anny's macro targets; nothing between the ages of sampled people."""
    old = float(smoothstep(age, 0.65, 1.0))
    young = float(smoothstep(-age, 0.0, 0.1))
    weights = {
        "head/head-age-incr": 0.65 * old,
        "head/head-age-decr": 0.5 * young,
        "neck/neck-double-incr": 0.2 * old,
        "mouth/mouth-laugh-lines-out": 0.5 * old,
    }
    for side in "lr":
        weights[f"eyes/{side}-eye-bag-incr"] = 0.5 * old
        weights[f"eyes/{side}-eye-eyefold-down"] = 0.3 * old
        weights[f"cheek/{side}-cheek-volume-decr"] = 0.25 * old
        weights[f"ears/{side}-ear-lobe-incr"] = 0.4 * old
    return {name: weight for name, weight in weights.items() if weight}


def _eyes(mesh: HeadMesh, coarse: Floats) -> tuple[Floats, float]:
    boxes = [coarse[mesh.part_vertices(f"helper-{side}-eye")] for side in "lr"]
    centres = np.array([(box.max(0) + box.min(0)) / 2 for box in boxes])
    return centres, float((boxes[0].max(0) - boxes[0].min(0))[1] / 2)


class Collider:
    """Keeps things out of the head: distances to a sample of its vertices along their normals."""

    def __init__(self, head: PosedHead) -> None:
        q = head.mesh.canonical
        keep = np.nonzero(head.mesh.used & (q[:, 1] > -3.4))[0][::2]
        self._points, self._normals = head.vertices[keep], head.normals[keep]
        self._tree = cKDTree(self._points, balanced_tree=False, compact_nodes=False)

    def push(
        self, points: Floats, clearance: Floats | float, attraction: float = 0.0
    ) -> tuple[Floats, Floats]:
        """Points (..., 3) moved to at least ``clearance`` above the skin, and the skin's normals there.

        ``attraction`` (0 to 1) also pulls points on the upper head down to their clearance.
        """
        shape = points.shape
        flat = points.reshape(-1, 3)
        distance, nearest = self._tree.query(flat, eps=0.3)
        normals = self._normals[nearest]
        height = ((flat - self._points[nearest]) * normals).sum(1)
        wanted = np.broadcast_to(clearance, shape[:-1]).ravel()
        near = distance < np.maximum(1.2 * wanted + 0.5, 0.6)
        move = np.where(near, np.maximum(wanted - height, 0.0), 0.0)
        if attraction:
            pull = (wanted - height) * attraction * smoothstep(flat[:, 1], -0.1, 0.6) * (distance < 1.5)
            move = np.where(height > wanted, pull, move)
        return (flat + normals * move[:, None]).reshape(shape), normals.reshape(shape)
