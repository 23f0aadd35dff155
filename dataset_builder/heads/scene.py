"""A head in front of a camera: all surfaces of one picture, and how they are lit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataset_builder.heads.attributes import Look
from dataset_builder.heads.eyes import eyeballs, lashes, upper_teeth
from dataset_builder.heads.eyewear import eyewear
from dataset_builder.heads.facial_hair import eyebrows, facial_hair
from dataset_builder.heads.fields import Floats, linear, unit
from dataset_builder.heads.hair import headroom, scalp_hair, scalp_paint
from dataset_builder.heads.identity import Person
from dataset_builder.heads.mesh import head_mesh
from dataset_builder.heads.pose import Collider, Frame, PosedHead, displaced, frame_of, pose
from dataset_builder.heads.skin import lip_mask, paint_head, relief, shirt_mask
from dataset_builder.heads.surfaces import Material, Surface, smooth_closed, surface, tube
from dataset_builder.heads.variation import Variation
from dataset_builder.heads.wearables import facemask, head_band, mask_cover, scarf


@dataclass(frozen=True)
class Softbox:
    """A square area light: centre (3,), side, linear radiance (3,); it faces the head."""

    centre: Floats
    size: float
    radiance: Floats


@dataclass(frozen=True)
class Scene:
    """Everything a renderer needs; ``exposure`` multiplies the linear picture."""

    surfaces: list[Surface]
    camera: Floats
    middle: Floats
    half: float
    softboxes: dict[str, Softbox]
    ambient: Floats
    exposure: float
    background: int


def build_scene(person: Person, look: Look, variation: Variation, shown: Person | None = None) -> Scene:
    """The scene of one photograph of a person with a look.

    ``shown`` replaces the person's head (by a distorted one, say) in the unchanged frame and light.
    """
    mesh = head_mesh()
    frame = frame_of(mesh, person)
    yaw, pitch = np.radians(variation.yaw), np.radians(variation.pitch)
    ahead = np.array([np.sin(yaw) * np.cos(pitch), np.sin(pitch), np.cos(yaw) * np.cos(pitch)])
    camera = frame.middle + ahead * variation.distance
    bare = pose(mesh, shown or person, look, frame)
    head = displaced(bare, relief(mesh, person, look))
    return Scene(
        surfaces=_surfaces(head, person, look, variation, camera),
        camera=camera,
        middle=frame.middle,
        half=frame.half,
        softboxes=_softboxes(variation, frame, ahead),
        ambient=np.full(3, variation.light.ambient),
        exposure=_exposure(person),
        background=variation.background,
    )


def _surfaces(
    head: PosedHead, person: Person, look: Look, variation: Variation, camera: Floats
) -> list[Surface]:
    collider = Collider(head)
    result = [_body(head, person, look), _collar(head, person), eyebrows(head, person, look, camera)]
    if look.makeup.lips >= 0.7:
        result.append(_gloss(head, result[0]))
    result += eyeballs(head, person, variation) + lashes(head, person, look.makeup.liner, camera)
    if look.smiles:
        result.append(upper_teeth(head))
    result += scalp_hair(head, person, look, collider, camera)
    if "facemask" not in look.extras or "beard" in look.facial_hair:
        result += facial_hair(head, person, look, camera)
    if look.extras & {"glasses", "sunglasses"}:
        result += eyewear(head, person, tinted="sunglasses" in look.extras)
    if "facemask" in look.extras:
        result += facemask(head, person, collider)
        result[0] = _tucked(head, result[0])
    if "head_band" in look.extras:
        result.append(head_band(head, person, headroom(look.hair)))
    if "scarf" in look.extras:
        result += scarf(head, person)
    return result


def _body(head: PosedHead, person: Person, look: Look) -> Surface:
    gap = np.linalg.norm(head.vertices[:, None] - head.eye_centres[None], axis=2).min(1) / head.eye_radius
    colours = paint_head(head.mesh, person, look, gap, scalp_paint(head.mesh, person, look.hair))
    skin = Material(person.skin.roughness, person.skin.specular, flatness=0.5)
    return surface("body", head.vertices, head.mesh.triangles, colours, skin, head.normals)


def _gloss(head: PosedHead, body: Surface) -> Surface:
    """A shinier film over painted lips."""
    triangles = head.mesh.triangles
    lips = triangles[(lip_mask(head.mesh)[triangles] > 0.6).all(1)]
    film = Material(roughness=0.28, specular=0.5)
    return surface("gloss", head.vertices + head.normals * 0.004, lips, body.colours, film, head.normals)


def _tucked(head: PosedHead, body: Surface) -> Surface:
    """The body with the skin under a facemask drawn in, so that no nose can show through the cloth."""
    vertices = body.vertices - head.normals * 0.05 * mask_cover(head)[:, None]
    return Surface(body.name, vertices, body.triangles, body.normals, body.colours, body.material)


def _collar(head: PosedHead, person: Person) -> Surface:
    """A hem along the neckline of the shirt."""
    mesh = head.mesh
    depth = shirt_mask(mesh, person) - 0.02
    edges = np.concatenate([mesh.triangles[:, [0, 1]], mesh.triangles[:, [1, 2]]])
    edges = edges[
        ((depth[edges[:, 0]] > 0) != (depth[edges[:, 1]] > 0))
        & (np.abs(mesh.canonical[edges[:, 0], 0]) < 2.2)
    ]
    a, b = edges[:, 0], edges[:, 1]
    share = (depth[a] / (depth[a] - depth[b]))[:, None]
    crossing = head.vertices[a] * (1 - share) + head.vertices[b] * share
    turn = np.arctan2(crossing[:, 0], crossing[:, 2] - crossing[:, 2].mean())
    order = np.argsort(turn, kind="stable")
    even = np.linspace(-np.pi, np.pi, 60, endpoint=False)
    path = np.stack([np.interp(even, turn[order], crossing[order, k], period=2 * np.pi) for k in range(3)], 1)
    cloth = Material(roughness=0.9, specular=0.05, two_sided=True)
    return tube(
        "collar", smooth_closed(path, 4), (0.10, 0.075), linear(person.shirt) * 0.85, cloth, closed=True
    )


def _softboxes(variation: Variation, frame: Frame, ahead: Floats) -> dict[str, Softbox]:
    light = variation.light
    right = unit(np.cross(np.array([0.0, 1.0, 0.0]), ahead))
    up = np.array([0.0, 1.0, 0.0])

    def place(azimuth: float, elevation: float, distance: float) -> Floats:
        a, e = np.radians(azimuth) * light.side, np.radians(elevation)
        return np.asarray(
            frame.middle + distance * (np.cos(e) * (np.cos(a) * ahead + np.sin(a) * right) + np.sin(e) * up)
        )

    warm = np.array([1 + light.warmth, 1.0, 1 - light.warmth])
    cool = np.array([1 - light.warmth * 0.7, 1.0, 1 + light.warmth * 0.7])
    # Power is radiance times area: a larger softbox is softer, not brighter.
    key = light.key * 62.0 / light.size**2
    return {
        "rim": Softbox(place(-145, 32, 10.0), 2.2, light.rim * 10.0 * np.ones(3)),
        "fill": Softbox(place(-48, 8, 11.0), 4.0, light.fill * 62.0 / 16.0 * cool),
        "key": Softbox(place(light.azimuth, light.elevation, 11.0), light.size, key * warm),
    }


def _exposure(person: Person) -> float:
    """Brighter for darker skin, as a photographer would expose; the same for every look and variation."""
    luminance = float(linear(person.skin.tone) @ np.array([0.2126, 0.7152, 0.0722]))
    return float((0.40 / luminance) ** 0.30)
