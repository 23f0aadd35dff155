"""Scalp hair: the hairline, the styles, and the strands they come to."""

from __future__ import annotations

import numpy as np

from dataset_builder.heads.attributes import CURLY_STYLES, LONG_STYLES, Look
from dataset_builder.heads.fields import Floats, linear, noise, smoothstep, unit
from dataset_builder.heads.identity import Hair, Person
from dataset_builder.heads.mesh import HeadMesh
from dataset_builder.heads.pose import Collider, PosedHead
from dataset_builder.heads.strands import Comb, Roots, follow, grow_guides, scatter
from dataset_builder.heads.surfaces import Material, Strands, Surface, ribbons

_GUIDES = 500
_CHILDREN = 5500
_CROWN = np.array([0.0, 0.5, -1.25])
_BUN = np.array([0.0, 1.30, -2.35])

# Hairline height over azimuth (0 front, 180 back), in canonical coordinates.
_AZIMUTH = (0, 18, 36, 50, 64, 74, 84, 100, 112, 128, 145, 180)
_HAIRLINE = np.array([1.2, 1.2, 1.12, 0.8, 0.42, -0.12, 0.12, 0.3, 0.05, -0.55, -0.85, -1.0])
_RECESSION = np.array([0.25, 0.42, 0.55, 0.35, 0.05, 0, 0, 0, 0, 0, 0, 0])
_FEMALE = np.array([0.0, 0, 0.02, 0.1, 0.15, 0.25, 0.12, 0, 0, -0.1, -0.15, -0.2])

# Strand count, length, turns, curl radius and width of hair that stands off the head by itself.
_STANDING = {
    "afro": (9500, 0.72, 14.0, 0.07, 0.027),
    "coil": (8500, 0.22, 9.0, 0.035, 0.024),
    "crop_coil": (8500, 0.12, 7.0, 0.028, 0.023),
    "buzz": (10000, 0.065, 0.0, 0.0, 0.012),
}
_LENGTHS = {"long": 4.5, "middle": 4.8, "bob": 3.5, "fringe_bob": 3.3}
_SHORT = {
    "short": (0.55, 0.22),
    "part": (0.62, 0.24),
    "fringe": (0.62, 0.3),
    "crop": (0.3, 0.16),
    "quiff": (0.6, 0.18),
}
_COVER = {"buzz": 0.75}


def scalp_mask(mesh: HeadMesh, person: Person, hair: Hair) -> Floats:
    """1 where scalp hair grows, 0 elsewhere, with an irregular edge."""
    q = mesh.canonical
    azimuth = np.degrees(np.arctan2(np.abs(q[:, 0]), q[:, 2] + 1.25))
    line = _HAIRLINE + hair.recession * _RECESSION + (_FEMALE if person.sex == "F" else 0)
    edge = np.interp(azimuth, _AZIMUTH, line) + 0.06 * noise(q, 3.0, *person.noise_key("hairline"))
    edge += 0.035 * noise(q, 11.0, *person.noise_key("hairline detail"))
    return np.asarray(
        smoothstep(q[:, 1] - edge, -0.07, 0.12) * (1 - smoothstep(mesh.masks["ears"], 0.1, 0.4))
    )


def scalp_paint(mesh: HeadMesh, person: Person, hair: Hair) -> Floats:
    """How much of the scalp's skin is painted in the hair's colour."""
    return scalp_mask(mesh, person, hair) * _COVER.get(hair.style, 0.96)


def scalp_hair(
    head: PosedHead, person: Person, look: Look, collider: Collider, camera: Floats
) -> list[Surface]:
    """The hair of a look as ribbons."""
    density = scalp_mask(head.mesh, person, look.hair) ** 2
    if look.hair.style in _STANDING:
        return [_standing_hair(head, person, look.hair, density, camera)]
    combed = _combed_hair(head, person, look.hair, density, collider, camera)
    return [combed, _bun(person, look.hair, camera)] if look.hair.style == "updo" else [combed]


def _standing_hair(head: PosedHead, person: Person, hair: Hair, density: Floats, camera: Floats) -> Surface:
    count, reach, turns, curl, width = _STANDING[hair.style]
    rng = person.stream(f"hair {hair.style}")
    roots = scatter(head, density, count, rng)
    buzz = hair.style == "buzz"
    t = np.linspace(0, 1, 3 if buzz else 7)
    length = reach * rng.uniform(0.75, 1.05, count)
    if not buzz:
        length = length * (0.45 + 0.55 * smoothstep(roots.canonical[:, 1], -0.6, 1.0))
    lean = roots.normals + 0.3 * rng.standard_normal((count, 3))
    if buzz:
        lean = roots.normals * 0.6 + np.array([0.0, -0.3, 0.3])
    a = unit(np.cross(roots.normals, rng.standard_normal((count, 3))))
    b = np.cross(roots.normals, a)
    phase = rng.uniform(0, 2 * np.pi, (count, 1)) + t * turns
    radius = curl * np.minimum(t * 3, 1)
    points = (roots.points - 0.01 * roots.normals)[:, None] + unit(lean)[:, None] * (length[:, None] * t)[
        ..., None
    ]
    points = (
        points
        + a[:, None] * (np.cos(phase) * radius)[..., None]
        + b[:, None] * (np.sin(phase) * radius)[..., None]
    )
    shade = (
        1.0 + 0.2 * rng.standard_normal((count, 1, 1))
        if buzz
        else (0.4 + 0.75 * t)[None, :, None] * (1 + 0.22 * rng.standard_normal((count, 1, 1)))
    )
    colours = np.clip(linear(hair.colour) * shade * np.ones_like(points), 0.002, 1)
    body = np.broadcast_to(roots.normals[:, None], points.shape)
    strands = Strands(points, np.full(points.shape[:2], width), colours, body)
    return ribbons("hair", strands, camera, Material(0.6, 0.25, two_sided=True), 0.75)


def _combed_hair(
    head: PosedHead, person: Person, hair: Hair, density: Floats, collider: Collider, camera: Floats
) -> Surface:
    rng = person.stream(f"hair {hair.style}")
    roots = scatter(head, density, _GUIDES + _CHILDREN, rng)
    guide_roots, child_roots = roots.part(slice(_GUIDES)), roots.part(slice(_GUIDES, None))
    guide_comb, comb = (_comb(hair, part, rng) for part in (guide_roots, child_roots))
    guides = grow_guides(guide_roots, guide_comb, collider, rng)
    points, nearest = follow(child_roots, comb, guides, guide_comb, rng)
    if hair.style in _LENGTHS:
        clear = ~_crosses_face(points) | comb.fringe
        points, nearest, comb = points[clear], nearest[clear], comb.part(clear)
    t = np.linspace(0, 1, points.shape[1])
    if hair.wave and comb.lengths.max() > 1.5:
        points = points + _waves(hair.wave, nearest, t)
    attraction = 0.3 if comb.attraction > 0.5 else 0.0
    points, skin = collider.push(points, comb.lifts[:, None] * np.minimum(1, t * 3 + 0.15), attraction)
    body = unit(skin * 0.6 + unit(points - _CROWN) * 0.6)
    shade = (0.5 + 0.55 * np.minimum(1, t * 2.5))[None, :, None] * (
        1 + 0.2 * rng.standard_normal((len(points), 1, 1))
    )
    shade = shade * (1 + 0.16 * rng.standard_normal((_GUIDES, 1, 1)))[nearest]
    colours = np.clip(linear(hair.colour) * shade * (0.75 + comb.lifts[:, None, None]), 0.002, 1)
    widths = comb.width * (1 - 0.55 * t**3) * rng.uniform(0.7, 1.3, (len(points), 1))
    strands = Strands(points, widths, colours, body)
    return ribbons("hair", strands, camera, Material(0.42, 0.4, two_sided=True), 0.6)


def _crosses_face(points: Floats) -> np.ndarray:
    """Strands (n,) of which some point hangs in front of the face."""
    x, y, z = np.abs(points[..., 0]), points[..., 1], points[..., 2]
    return np.asarray(((x < 0.85) & (y < 0.95) & (y > -1.7) & (z > -0.35)).any(axis=1))


def _waves(amount: float, nearest: np.ndarray, t: Floats) -> Floats:
    """Sideways displacement of long strands: loose waves, or ringlets as ``amount`` nears 1."""
    tight = float(smoothstep(amount, 0.6, 1.0))
    phase = (nearest * 0.7)[:, None] + t * (16 + 22 * tight)
    size = (0.05 + 0.05 * amount + 0.05 * tight) * smoothstep(t, 0.25 - 0.15 * tight, 0.7)
    return np.asarray(np.stack([np.sin(phase), 0 * phase, np.cos(phase)], 2) * size[None, :, None])


def _comb(hair: Hair, roots: Roots, rng: np.random.Generator) -> Comb:
    chance = rng.random(len(roots.points))
    part = hair.part * (0.1 if hair.style == "middle" else 1.0)
    side = np.sign(roots.points[:, 0] - part + 0.03 * rng.standard_normal(len(chance)))
    side[side == 0] = 1.0
    if hair.style == "updo":
        return _pulled_back(roots, chance)
    if hair.style in _LENGTHS:
        return _falling(hair, roots, side, chance, rng)
    return _short(hair, roots, side, chance, rng)


def _pulled_back(roots: Roots, chance: Floats) -> Comb:
    return Comb(
        lengths=np.linalg.norm(roots.points - _BUN, axis=1) * 1.1,
        lifts=0.05 + 0.13 * chance,
        key=roots.points,
        fringe=np.zeros(len(chance), dtype=bool),
        field=lambda p: unit(_BUN - p) * 0.9,
        gravity=lambda p: 0 * p[:, 0],
        steps=8,
        wobble=0.012,
        attraction=0.85,
        clump=0.5,
        width=0.028,
    )


def _falling(hair: Hair, roots: Roots, side: Floats, chance: Floats, rng: np.random.Generator) -> Comb:
    """Parted hair that lies on the skull, clears the face, and falls behind the cheeks."""
    points, q = roots.points, roots.canonical
    lengths = _LENGTHS[hair.style] * rng.uniform(0.92, 1.02, len(points))
    lengths = np.maximum(lengths - np.clip(1.9 - points[:, 1], 0, 3) * 0.95, 0.5)
    fringe = np.zeros(len(points), dtype=bool)
    if hair.style == "fringe_bob":
        fringe = (q[:, 2] > -0.75) & (np.abs(q[:, 0]) < 0.62) & (q[:, 1] > 0.8)
        short = 0.60 + 0.25 * (q[:, 1] - 1.1) + 0.05 * rng.standard_normal(len(points))
        lengths = np.maximum(np.where(fringe, short, lengths), 0.25)

    def field(p: Floats) -> Floats:
        x, up = np.abs(p[:, 0]), smoothstep(p[:, 1], 0.9, 1.65)
        back = -0.38 * smoothstep(p[:, 2], -1.3, 0.0) * smoothstep(p[:, 1], 0.1, 1.2) - 0.04
        flow = np.stack([side * (0.62 * up + 0.02), -0.05 - 0.2 * (1 - up), back], 1)
        face = (
            smoothstep(p[:, 2], -0.8, -0.3)
            * (1 - smoothstep(x, 0.85, 1.15))
            * (1 - smoothstep(p[:, 1], 0.5, 1.1))
        )
        inward = np.sign(p[:, 0]) * 0.5 * smoothstep(x, 1.25, 1.6)
        flow = flow + np.stack([side * face - inward, 0 * face, -face], 1)
        front = np.stack([0.15 * np.sign(p[:, 0]), -0.5 + 0 * x, 0.45 * smoothstep(p[:, 1], 0.9, 1.4)], 1)
        return np.where(fringe[:, None], front, flow)

    return Comb(
        lengths=lengths,
        lifts=0.05 + 0.25 * chance,
        key=np.c_[points, side * 1.5 * (points[:, 2] > -1.9), fringe * 3.0],
        fringe=fringe,
        field=field,
        gravity=lambda p: 0.18 + 0.5 * (1 - smoothstep(p[:, 1], 0.7, 1.6)),
        steps=20 if hair.wave > 0.6 else 11,
        wobble=0.025,
        attraction=0.85,
        clump=0.55,
        width=0.029,
    )


def _short(hair: Hair, roots: Roots, side: Floats, chance: Floats, rng: np.random.Generator) -> Comb:
    """Short back and sides; the top goes the style's way."""
    q = roots.canonical
    top = smoothstep(q[:, 1] - 0.25 * (q[:, 2] + 1.2), 0.7, 1.3)
    on_top, on_sides = _SHORT[hair.style]
    lengths = (on_sides + (on_top - on_sides) * top) * rng.uniform(0.85, 1.15, len(top))
    height = {"crop": 0.4, "quiff": 1.2}.get(hair.style, 1.0)
    whorl = np.array([0.15 * np.sign(hair.part), 1.75, -1.9])
    turn = np.sign(hair.part)

    def field(p: Floats) -> Floats:
        zero = 0 * p[:, 0]
        ahead = unit(p - whorl)
        way = {
            "part": np.stack([side * 0.8, zero + 0.1, zero + 0.15], 1),
            "fringe": ahead * 0.8 + np.array([-0.25 * turn, -0.1, 0.35]),
            "quiff": np.stack([zero - 0.3 * turn, zero + 0.45, zero - 0.35], 1),
            "crop": ahead * 0.7,
            "short": np.stack([zero - 0.55 * turn, zero + 0.1, zero + 0.35], 1),
        }[hair.style]
        up = smoothstep(p[:, 1], 0.8, 1.4)[:, None]
        return np.asarray(way * up * 0.8 + np.array([0.0, -0.6, -0.15]) * (1 - up))

    return Comb(
        lengths=lengths,
        lifts=0.02 + (0.03 + 0.17 * top * height) * chance,
        key=np.c_[roots.points, side * 1.5] if hair.style == "part" else roots.points,
        fringe=np.zeros(len(chance), dtype=bool),
        field=field,
        gravity=lambda p: 0.12 + 0.5 * smoothstep(np.abs(p[:, 0]), 0.65, 1.05),
        steps=7,
        wobble=0.05,
        attraction=0.35,
        clump=0.45,
        width=0.027,
    )


def _bun(person: Person, hair: Hair, camera: Floats) -> Surface:
    """A coil of hair where pulled-back strands meet."""
    count, rng = 2400, person.stream("bun")
    out = unit(rng.standard_normal((count, 3)))
    along = unit(np.cross(out, rng.standard_normal((count, 3)) * 0.25 + np.array([0.15, 0.3, 1.0])))
    turn = np.linspace(-0.7, 0.7, 8)[None, :, None]
    radius = 0.46 * rng.uniform(0.6, 1.0, (count, 1, 1)) ** 0.3
    points = (
        _BUN
        + unit(_BUN - _CROWN) * 0.12
        + radius * (out[:, None] * np.cos(turn) + along[:, None] * np.sin(turn))
    )
    shade = 0.8 + 0.22 * rng.standard_normal((count, 1, 1))
    colours = np.clip(linear(hair.colour) * shade * np.ones_like(points), 0.002, 1)
    strands = Strands(points, np.full(points.shape[:2], 0.024), colours, unit(points - _BUN))
    return ribbons("bun", strands, camera, Material(0.42, 0.4, two_sided=True), 0.6)


def headroom(hair: Hair) -> float:
    """How far the hair on top stands off the skull, in interocular distances: what a head band must clear."""
    if hair.style in CURLY_STYLES | {"buzz"}:
        return {"afro": 0.34, "coil": 0.2, "crop_coil": 0.13, "buzz": 0.08}[hair.style]
    return 0.33 if hair.style in LONG_STYLES | {"bob", "fringe_bob"} else 0.22
