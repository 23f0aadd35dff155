"""The painted surface of a head: relief and colour of skin, lips, lids, brows, scalp and shirt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dataset_builder.heads.attributes import Look
from dataset_builder.heads.fields import Floats, linear, noise, smoothstep, stream
from dataset_builder.heads.identity import Brows, Person
from dataset_builder.heads.mesh import HeadMesh

_BLUSH_ON_DARK = {"B": 0.5, "I": 0.75}


class Paint:
    """sRGB colours (n, 3) of a surface that layers multiply or cover; weights (n,) run from 0 to 1."""

    def __init__(self, colours: Floats) -> None:
        self.colours = colours

    def multiply(self, weight: Floats, colour: ArrayLike) -> None:
        """Tint towards ``colour`` times what is there."""
        self.colours = self.colours * (1 + weight[:, None] * (np.asarray(colour) - 1))

    def cover(self, weight: Floats, colour: ArrayLike) -> None:
        """Blend towards ``colour``."""
        w = np.clip(weight, 0, 1)[:, None]
        self.colours = self.colours * (1 - w) + w * np.asarray(colour)


def _spot(mesh: HeadMesh, x: float, y: float, width: float, height: float) -> Floats:
    """A soft oval on both halves of the front of the face."""
    q = mesh.canonical
    oval = np.exp(-(((np.abs(q[:, 0]) - x) / width) ** 2) - ((q[:, 1] - y) / height) ** 2)
    return np.asarray(oval * smoothstep(q[:, 2], -1.1, -0.5))


def lip_mask(mesh: HeadMesh) -> Floats:
    """1 on the lips, 0 off them."""
    return smoothstep(mesh.masks["lips"], 0.25, 0.8)


def beard_mask(mesh: HeadMesh) -> Floats:
    """Where a full beard grows: jaw, chin, cheeks below the mouth's height, not the lips."""
    q, x = mesh.canonical, np.abs(mesh.canonical[:, 0])
    mask = smoothstep(-q[:, 1], 0.62, 0.87) * smoothstep(q[:, 1], -2.0, -1.72)
    mask *= smoothstep(q[:, 2], -1.55, -1.2) * (1 - smoothstep(mesh.masks["lips"], 0.05, 0.3))
    cheek_line = 0.93 - 0.35 * smoothstep(x, 0.75, 1.05)
    on_cheek = (q[:, 1] > -1.0) & (x > 0.36) & (q[:, 2] > -0.5)
    mask = np.where(on_cheek, mask * smoothstep(-q[:, 1] - cheek_line, -0.05, 0.15), mask)
    mask *= smoothstep(x * 1.2 - q[:, 1] * 0.55, 0.30, 0.40)
    return np.where((x < 0.34) & (q[:, 1] > -0.80), 0.0, mask)


def mustache_mask(mesh: HeadMesh) -> Floats:
    """Where a moustache grows: between nose and upper lip, down to the corners of the mouth."""
    q, x = mesh.canonical, np.abs(mesh.canonical[:, 0])
    line = -0.86 - 0.14 * np.clip(x - 0.1, 0, 1)
    mask = np.exp(-(((q[:, 1] - line) / 0.08) ** 2)) * smoothstep(-x, -0.52, -0.36)
    mask *= (0.55 + 0.45 * smoothstep(x, 0.0, 0.06)) * (1 - smoothstep(mesh.masks["lips"], 0.1, 0.4))
    return np.asarray(mask * (q[:, 1] < -0.74) * (q[:, 2] > -0.5))


def goatee_mask(mesh: HeadMesh) -> Floats:
    """Where a goatee grows: the chin, and a strip from it to the corners of the mouth."""
    q, x = mesh.canonical, np.abs(mesh.canonical[:, 0])
    chin = np.exp(-((x / 0.36) ** 4)) * smoothstep(-q[:, 1], 1.24, 1.36) * smoothstep(q[:, 1], -1.78, -1.66)
    sides = (
        np.exp(-(((x - 0.43) / 0.085) ** 4))
        * smoothstep(-q[:, 1], 0.86, 0.95)
        * smoothstep(q[:, 1], -1.7, -1.5)
    )
    front = smoothstep(q[:, 2], -0.4, -0.1) * (1 - smoothstep(mesh.masks["lips"], 0.05, 0.3))
    return np.asarray(np.clip(chin + sides, 0, 1) * front)


def brow_mask(mesh: HeadMesh, brows: Brows) -> Floats:
    """1 in the brows, thinning towards the temples."""
    q, x = mesh.canonical, np.abs(mesh.canonical[:, 0])
    along = np.clip((x - brows.inner) / (brows.outer - brows.inner), 0, 1)
    height = brows.height + brows.tilt * (along - 0.5) + brows.arch * 0.12 * np.sin(np.pi * along**1.35)
    half = brows.thickness * (1.1 - 0.62 * along**1.6)
    ends = smoothstep(x, brows.inner - 0.07, brows.inner + 0.06) * smoothstep(
        -x, -brows.outer, -brows.outer + 0.14
    )
    return np.asarray(np.exp(-(((q[:, 1] - height) / half) ** 4)) * ends * (q[:, 2] > -0.6))


def shirt_mask(mesh: HeadMesh, person: Person) -> Floats:
    """How far below the neckline a vertex lies, in interocular distances; negative above."""
    q = mesh.canonical
    edge = -2.42 + person.neckline * 0.7 - 0.38 * (q[:, 2] + 1.6)
    return np.asarray(edge + 0.55 * smoothstep(np.abs(q[:, 0]), 0.7, 1.25) - q[:, 1])


def wrinkle_depth(mesh: HeadMesh, person: Person) -> Floats:
    """Lines of old age, 0 (none) to about 1: forehead, brow, crow's feet, eye bags, nose to mouth."""
    rng = person.stream("wrinkles")
    q, x, y = mesh.canonical, np.abs(mesh.canonical[:, 0]), mesh.canonical[:, 1]
    bent = y + 0.05 * np.cos(q[:, 0] * 2.2) + 0.02 * noise(q, 4.0, *person.noise_key("wrinkles"))
    depth = np.zeros(len(q))
    lowest = 0.60 + 0.1 * rng.random()
    for k in range(4):
        line = np.exp(-(((bent - lowest - 0.155 * k) / 0.028) ** 2)) * smoothstep(
            -x, -0.85 + 0.1 * k, -0.5 + 0.1 * k
        )
        depth += line * (0.6 + 0.3 * rng.random())
    for k in range(4):
        angle = np.radians(-35 + 25 * k)
        u = (x - 0.95) * np.cos(angle) + (y + 0.02) * np.sin(angle)
        v = (y + 0.02) * np.cos(angle) - (x - 0.95) * np.sin(angle)
        depth += 0.7 * np.exp(-((v / 0.024) ** 2)) * smoothstep(u, 0.02, 0.1) * smoothstep(-u, -0.4, -0.25)
    fold = 0.30 + 0.42 * np.clip((-0.55 - y) / 0.75, 0, 1) ** 1.2
    depth += (
        0.6 * np.exp(-(((x - fold) / 0.045) ** 2)) * smoothstep(-y, 0.5, 0.7) * smoothstep(y, -1.5, -1.25)
    )
    for k in range(2):
        bag = y + 0.30 + 0.09 * k + 0.32 * (x - 0.5) ** 2
        depth += 0.6 * np.exp(-((bag / 0.026) ** 2)) * smoothstep(-np.abs(x - 0.5), -0.42, -0.22)
    frown = np.exp(-(((x - 0.1) / 0.025) ** 2)) * smoothstep(y, 0.15, 0.25) * smoothstep(-y, -0.6, -0.45)
    return np.asarray(np.clip(depth + 0.8 * frown, 0, 1.2) * smoothstep(q[:, 2], -0.7, -0.1))


def _wrinkling(age: float) -> float:
    return float(0.18 * smoothstep(age, 0.25, 0.6) + 0.82 * smoothstep(age, 0.6, 1.0))


def relief(mesh: HeadMesh, person: Person, look: Look) -> Floats:
    """Heights (n,) to raise the bare surface by: pores, wrinkles, and the thickness of the shirt."""
    q = mesh.canonical
    fine = 0.0022 * noise(q, 9.0, *person.noise_key("pores")) + 0.0014 * noise(
        q, 22.0, *person.noise_key("grain")
    )
    fine -= 0.018 * _wrinkling(look.age) * wrinkle_depth(mesh, person)
    fine *= 1 - lip_mask(mesh)
    cloth = smoothstep(shirt_mask(mesh, person), 0.0, 0.07)
    return np.asarray(fine * (1 - cloth) + cloth * (0.09 + 0.02 * noise(q, 2.0, *person.noise_key("cloth"))))


def paint_head(mesh: HeadMesh, person: Person, look: Look, lid_gap: Floats, scalp: Floats) -> Floats:
    """Linear colours (n, 3) of the head.

    ``lid_gap`` (n,) is the distance to the nearer eyeball's surface over its radius, ``scalp`` (n,) how much
    of the skin hair covers.
    """
    paint = Paint(np.ones((len(mesh.canonical), 3)) * person.skin.tone)
    _paint_skin(paint, mesh, person)
    _paint_age(paint, mesh, person, look)
    _paint_facial_hair_shadow(paint, mesh, person, look)
    _paint_mouth_and_lids(paint, mesh, person, look, lid_gap)
    return _paint_hair_and_shirt(paint, mesh, person, look, scalp)


def _paint_skin(paint: Paint, mesh: HeadMesh, person: Person) -> None:
    skin, q = person.skin, mesh.canonical
    red = skin.redness * _BLUSH_ON_DARK.get(person.group[0], 1.0)
    paint.multiply(_spot(mesh, 0.68, -0.5, 0.34, 0.3) * red, (1.0, 0.91, 0.91))
    paint.multiply(_spot(mesh, 0, -0.55, 0.2, 0.2) * red, (0.99, 0.90, 0.89))
    paint.multiply(mesh.masks["ears"] * 0.8 * red, (1.0, 0.90, 0.88))
    paint.multiply(_spot(mesh, 0, -1.55, 0.3, 0.2) * red * 0.6, (1.0, 0.94, 0.93))
    paint.multiply(_spot(mesh, 0.5, -0.26, 0.28, 0.12) * skin.shadows, (0.91, 0.86, 0.87))
    paint.multiply(_spot(mesh, 0.5, 0.16, 0.34, 0.13) * skin.shadows * 0.7, (0.94, 0.89, 0.88))
    coarse = 0.03 * skin.mottle * noise(q, 2.2, *person.noise_key("blotches"))[:, None] * (0.5, 1, 1)
    middle = 0.02 * skin.mottle * noise(q, 7.0, *person.noise_key("mottle"))[:, None] * (0.6, 1, 1)
    paint.colours = paint.colours * (
        1 + coarse + middle + 0.014 * noise(q, 23.0, *person.noise_key("dots"))[:, None]
    )
    rng = person.stream("spots")
    face = (q[:, 2] > -0.7) & (q[:, 1] > -1.6) & (q[:, 1] < 1.1) & (mesh.masks["lips"] < 0.1)
    cheeks = face & (np.abs(q[:, 0]) < 1.0) & (q[:, 1] < 0.1) & (q[:, 1] > -0.85)
    _dot(paint, mesh, rng, cheeks, int(90 * skin.freckles), 0.022, (0.87, 0.78, 0.72))
    _dot(paint, mesh, rng, face & (np.abs(q[:, 0]) > 0.35), skin.moles, 0.018, (0.6, 0.5, 0.45))


def _dot(
    paint: Paint,
    mesh: HeadMesh,
    rng: np.random.Generator,
    where: np.ndarray,
    count: int,
    size: float,
    colour: Sequence[float],
) -> None:
    q, places = mesh.canonical, np.nonzero(where)[0]
    for centre in rng.choice(places, count):
        radius = size * rng.uniform(0.6, 1.3)
        near = places[np.abs(q[places] - q[centre]).max(1) < 2 * radius]
        weight = np.exp(-((((q[near] - q[centre]) ** 2).sum(1) / radius**2) ** 2))[:, None]
        paint.colours[near] *= 1 + weight * (np.asarray(colour) - 1)


def _paint_age(paint: Paint, mesh: HeadMesh, person: Person, look: Look) -> None:
    amount = _wrinkling(look.age)
    if amount <= 0:
        return
    paint.multiply(np.clip(wrinkle_depth(mesh, person), 0, 1) * amount, (0.86, 0.80, 0.78))
    q = mesh.canonical
    face = (q[:, 2] > -0.7) & (q[:, 1] > -1.4) & (q[:, 1] < 1.1) & (mesh.masks["lips"] < 0.1)
    _dot(paint, mesh, person.stream("age spots"), face, int(14 * amount), 0.045, (0.9, 0.83, 0.77))


def _paint_facial_hair_shadow(paint: Paint, mesh: HeadMesh, person: Person, look: Look) -> None:
    """Stubble, and the dark ground under longer hair that keeps strands from showing skin between them."""
    q = mesh.canonical
    grain = 0.8 + 0.25 * noise(q, 20.0, *person.noise_key("stubble"))
    area = np.clip(beard_mask(mesh) + 0.8 * mustache_mask(mesh), 0, 1)
    dark = 1.0 if max(person.hair.colour) < 0.3 else 0.4
    paint.multiply(np.clip(area * person.skin.stubble * dark * grain, 0, 1), (0.83, 0.83, 0.86))
    if "stubble" in look.facial_hair:
        paint.multiply(np.clip(area * grain, 0, 1), (0.80, 0.79, 0.80))
    masks = {"mustache": mustache_mask, "goatee": goatee_mask, "beard": beard_mask}
    for kind, mask in masks.items():
        if kind in look.facial_hair:
            paint.cover(0.85 * smoothstep(mask(mesh), 0.15, 0.6), np.array(look.beard_colour) * 0.9)


def _paint_mouth_and_lids(paint: Paint, mesh: HeadMesh, person: Person, look: Look, lid_gap: Floats) -> None:
    makeup, skin, q = look.makeup, person.skin, mesh.canonical
    lips = lip_mask(mesh) * (1 - 0.3 * _wrinkling(look.age))
    paint.multiply(lips, 1 - (0.25 + 0.75 * skin.lips) * np.array([0.10, 0.36, 0.32]))
    paint.multiply(_spot(mesh, 0.5, 0.17, 0.30, 0.13) * makeup.shadow, makeup.shadow_colour)
    blush = makeup.blush * _BLUSH_ON_DARK.get(person.group[0], 1.0)
    paint.multiply(_spot(mesh, 0.72, -0.42, 0.25, 0.2) * blush, (1.0, 0.88, 0.89))
    darker = 0.75 if person.group[0] == "B" and makeup.lips < 0.9 else 1.0
    paint.cover(lips * makeup.lips * 0.95, np.array(makeup.lip_colour) * darker)
    inside = smoothstep(mesh.masks["inside-mouth"], 0.1, 0.6) * (1 - smoothstep(mesh.masks["lips"], 0.3, 0.8))
    paint.cover(inside, (0.28, 0.10, 0.10))
    upper = q[:, 1] > 0.02
    reach = 1.13 + 0.13 * makeup.liner * upper
    line = np.clip((reach - lid_gap) / 0.07, 0, 1) * (q[:, 2] > -0.45)
    strength = np.where(upper, 0.75 + 0.2 * makeup.liner, 0.35 + 0.45 * smoothstep(makeup.liner, 0.6, 1.0))
    paint.multiply(line * strength, (0.30, 0.22, 0.21))


def _paint_hair_and_shirt(paint: Paint, mesh: HeadMesh, person: Person, look: Look, scalp: Floats) -> Floats:
    q = mesh.canonical
    colours = linear(np.clip(paint.colours, 0.01, 0.97))
    brow = 0.6 * person.brows.density * brow_mask(mesh, person.brows)
    brow = np.clip(brow * (0.95 + 0.3 * noise(q, 16.0, *person.noise_key("brows"))), 0, 0.9)[:, None]
    colours = colours * (1 - brow) + linear(look.brow_colour) * brow
    scalp = np.clip(scalp * (1 + 0.12 * noise(q, 14.0, *person.noise_key("scalp"))), 0, 1)[:, None]
    ground = 0.8 if look.hair.style == "buzz" else 0.55
    colours = colours * (1 - scalp) + linear(look.hair.colour) * ground * scalp
    shirt = linear(person.shirt) * (
        1 + 0.02 * stream(*person.noise_key("weave")).standard_normal((len(q), 1))
    )
    return np.where((smoothstep(shirt_mask(mesh, person), 0, 0.07) > 0.35)[:, None], shirt, colours)
