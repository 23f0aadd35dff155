"""Who is in the picture: one person sampled from a group and a seed.

A group (AM AF IM IF WM WF BM BF: East Asian, Indian, White, Black; M or F) is a setting of this generator:
it chooses ranges for shape, skin, hair and brows. It is nominal. No rendered head belongs to anybody, and
nothing here measures how such people look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dataset_builder.heads.fields import stream
from dataset_builder.heads.shape import sample_shape

Colour = tuple[float, float, float]

GROUPS = ("AM", "AF", "IM", "IF", "WM", "WF", "BM", "BF")
YOUNGEST, OLDEST = 25.0, 75.0


def years(age: float) -> float:
    """Nominal age in years of an age mix: 0 is 25, 1 is 75."""
    return round(YOUNGEST + (OLDEST - YOUNGEST) * age, 1)


@dataclass(frozen=True)
class Skin:
    """Skin, colours in sRGB; ``stubble`` shades the beard area; the rest scale painted features."""

    tone: Colour
    redness: float
    shadows: float
    mottle: float
    freckles: float
    moles: int
    lips: float
    roughness: float
    specular: float
    stubble: float


@dataclass(frozen=True)
class Brows:
    """Brows in canonical coordinates: height above the eyes, half thickness, arch, tilt, inner, outer end."""

    height: float
    thickness: float
    arch: float
    tilt: float
    inner: float
    outer: float
    density: float
    colour: Colour


@dataclass(frozen=True)
class Hair:
    """Scalp hair: a style of ``hairstyles``, an sRGB colour, the parting's x, recession and wave (0 to 1)."""

    style: str
    colour: Colour
    part: float
    recession: float
    wave: float


@dataclass(frozen=True)
class Makeup:
    """Strengths from 0 to 1 and colours as sRGB."""

    liner: float = 0.0
    shadow: float = 0.0
    shadow_colour: Colour = (0.7, 0.6, 0.6)
    lips: float = 0.0
    lip_colour: Colour = (0.65, 0.27, 0.29)
    blush: float = 0.0


@dataclass(frozen=True)
class Person:
    """Everything about a person that no photograph changes."""

    group: str
    seed: int
    ancestry: Mapping[str, float]
    gender: float
    weight: float
    muscle: float
    age: float
    shape: Mapping[str, float]
    skin: Skin
    brows: Brows
    hair: Hair
    makeup: Makeup
    facial_hair: frozenset[str]
    iris: Colour
    iris_size: float
    shirt: Colour
    neckline: float

    @property
    def sex(self) -> str:
        """ "M" or "F", as the group says."""
        return self.group[1]

    def stream(self, component: str) -> np.random.Generator:
        """The random generator of one component of this person."""
        return stream(self.group, self.seed, component)

    def noise_key(self, layer: str) -> tuple[str, int, str]:
        """Key of one layer of this person's noise, for ``fields.noise``."""
        return (self.group, self.seed, layer)


_TONES: Mapping[str, tuple[Colour, Colour]] = {
    "A": ((0.92, 0.77, 0.66), (0.80, 0.62, 0.49)),
    "I": ((0.76, 0.58, 0.46), (0.52, 0.37, 0.275)),
    "W": ((0.94, 0.79, 0.70), (0.85, 0.66, 0.55)),
    "B": ((0.56, 0.40, 0.31), (0.35, 0.24, 0.185)),
}
_DARK: Colour = (0.115, 0.088, 0.072)
_HAIR_COLOURS: Mapping[str, tuple[Colour, ...]] = {
    "A": (_DARK, (0.085, 0.075, 0.07), (0.17, 0.115, 0.085)),
    "I": (_DARK, (0.09, 0.075, 0.068), (0.16, 0.105, 0.075)),
    "W": (_DARK, (0.27, 0.17, 0.11), (0.37, 0.25, 0.15), (0.60, 0.46, 0.29), (0.70, 0.57, 0.38)),
    "B": ((0.085, 0.07, 0.062), (0.11, 0.082, 0.068), (0.15, 0.10, 0.075)),
}
_IRISES: Mapping[str, tuple[Colour, ...]] = {
    "dark": ((0.24, 0.14, 0.08), (0.19, 0.11, 0.07), (0.32, 0.20, 0.11)),
    "W": ((0.30, 0.19, 0.10), (0.34, 0.48, 0.62), (0.38, 0.45, 0.32), (0.42, 0.32, 0.19), (0.46, 0.52, 0.56)),
}
_STYLES: Mapping[str, tuple[str, ...]] = {
    "AM": ("short", "part", "fringe", "crop", "quiff"),
    "IM": ("short", "part", "crop", "quiff", "short"),
    "WM": ("short", "part", "fringe", "crop", "quiff"),
    "BM": ("coil", "crop_coil", "afro", "coil", "crop_coil"),
    "AF": ("long", "bob", "middle", "fringe_bob", "updo", "bob"),
    "IF": ("long", "middle", "bob", "middle", "updo", "bob"),
    "WF": ("long", "bob", "middle", "fringe_bob", "updo", "bob"),
    "BF": ("afro", "long", "bob", "afro", "updo", "coil"),
}
_SHIRTS: tuple[Colour, ...] = (
    (0.15, 0.17, 0.22),
    (0.55, 0.56, 0.58),
    (0.38, 0.13, 0.14),
    (0.13, 0.27, 0.42),
    (0.20, 0.31, 0.23),
    (0.76, 0.73, 0.67),
    (0.10, 0.10, 0.11),
    (0.45, 0.38, 0.50),
    (0.62, 0.46, 0.27),
)


def sample_person(group: str, seed: int) -> Person:
    """The person that a group code of ``GROUPS`` and a seed stand for; always the same one."""
    if group not in GROUPS:
        raise ValueError(f"group must be one of {', '.join(GROUPS)}, got {group!r}")
    build = stream(group, seed, "build")
    male = group[1] == "M"
    hair = _sample_hair(group, stream(group, seed, "hair parameters"))
    clothes = stream(group, seed, "clothes")
    eyes = stream(group, seed, "eyes")
    return Person(
        group=group,
        seed=seed,
        ancestry=_sample_ancestry(group[0], build),
        gender=build.uniform(1.0, 1.2) if male else build.uniform(-0.3, -0.05),
        weight=build.uniform(-0.75, 0.8),
        muscle=build.uniform(0.0, 0.5) if male else build.uniform(-0.4, 0.1),
        age=build.uniform(0.02, 0.6) ** 1.2,
        shape=_sample_face(group, stream(group, seed, "shape")),
        skin=_sample_skin(group, stream(group, seed, "skin")),
        brows=_sample_brows(group, hair.colour, stream(group, seed, "brows")),
        hair=hair,
        makeup=_sample_makeup(group, stream(group, seed, "makeup")),
        facial_hair=_sample_facial_hair(group, stream(group, seed, "facial hair")),
        iris=_pick(eyes, _IRISES["W" if group[0] == "W" else "dark"]),
        iris_size=eyes.uniform(0.95, 1.08),
        shirt=_scaled(_pick(clothes, _SHIRTS), clothes.uniform(0.85, 1.12)),
        neckline=clothes.uniform(-0.15, 0.15),
    )


def _pick(rng: np.random.Generator, choices: tuple[Any, ...]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _scaled(colour: Colour, factor: float) -> Colour:
    r, g, b = (min(channel * factor, 1.0) for channel in colour)
    return r, g, b


def _sample_ancestry(people: str, rng: np.random.Generator) -> dict[str, float]:
    ranges = {
        "A": ((0.0, 0.0), (1.0, 1.0), (0.0, 0.2)),
        "I": ((0.12, 0.3), (0.05, 0.25), (0.55, 0.8)),
        "W": ((0.0, 0.0), (0.0, 0.1), (1.0, 1.0)),
        "B": ((1.0, 1.0), (0.0, 0.0), (0.0, 0.2)),
    }[people]
    parts = [rng.uniform(low, high) for low, high in ranges]
    return {n: p / sum(parts) for n, p in zip(("african", "asian", "caucasian"), parts, strict=True)}


def _sample_face(group: str, rng: np.random.Generator) -> dict[str, float]:
    weights = sample_shape(rng, group[1])
    if group[0] == "A":
        for side in "lr":
            weights[f"eyes/{side}-eye-epicanthus-in"] = 0.05 + 0.25 * rng.random()
    return weights


def _sample_skin(group: str, rng: np.random.Generator) -> Skin:
    light, dark = (np.array(end) for end in _TONES[group[0]])
    mix = rng.random()
    tone = (light * (1 - mix) + dark * mix) * (1 + np.array([0.02, 0.0, -0.025]) * rng.standard_normal())
    r, g, b = np.clip(tone, 0.08, 0.95)
    stubble = rng.uniform(0.2, 1.0) * {"A": 0.5, "B": 0.8}.get(group[0], 1.0)
    return Skin(
        tone=(float(r), float(g), float(b)),
        redness=rng.uniform(0.4, 1.2),
        shadows=rng.uniform(0.2, 1.0),
        mottle=rng.uniform(0.5, 1.3),
        freckles=rng.uniform(0.3, 1.0) if group[0] == "W" and rng.random() < 0.3 else 0.0,
        moles=int(rng.integers(0, 4)),
        lips=rng.uniform(0.2, 0.8) if group[1] == "F" else rng.uniform(0.05, 0.4),
        roughness=rng.uniform(0.46, 0.58),
        specular=rng.uniform(0.25, 0.42),
        stubble=stubble if group[1] == "M" else 0.0,
    )


def _sample_brows(group: str, hair: Colour, rng: np.random.Generator) -> Brows:
    male = group[1] == "M"
    return Brows(
        height=rng.uniform(0.32, 0.46) if male else rng.uniform(0.34, 0.50),
        thickness=rng.uniform(0.024, 0.062) if male else rng.uniform(0.014, 0.048),
        arch=rng.uniform(-0.1, 0.6) if male else rng.uniform(0.1, 0.9),
        tilt=rng.uniform(-0.10, 0.05) if male else rng.uniform(-0.05, 0.09),
        inner=rng.uniform(0.14, 0.33),
        outer=rng.uniform(0.76, 1.02),
        density=rng.uniform(0.25, 1.0),
        colour=_scaled(hair, rng.uniform(0.75, 1.0) if max(hair) > 0.3 else rng.uniform(0.9, 1.2)),
    )


def _sample_hair(group: str, rng: np.random.Generator) -> Hair:
    male = group[1] == "M"
    return Hair(
        style=_pick(rng, _STYLES[group]),
        colour=_scaled(_pick(rng, _HAIR_COLOURS[group[0]]), rng.uniform(0.9, 1.1)),
        part=rng.uniform(0.15, 0.5) * rng.choice([-1.0, 1.0]),
        recession=rng.uniform(0.0, 0.5) if male else rng.uniform(0.0, 0.15),
        wave=rng.uniform(0.0, 0.6) * float(rng.random() < 0.5),
    )


def _sample_makeup(group: str, rng: np.random.Generator) -> Makeup:
    if group[1] == "M":
        return Makeup()
    return Makeup(
        liner=rng.uniform(0.2, 0.6),
        shadow=rng.uniform(0.0, 0.4),
        shadow_colour=_pick(rng, ((0.75, 0.62, 0.66), (0.70, 0.66, 0.60), (0.66, 0.66, 0.74))),
        lips=rng.uniform(0.1, 0.5),
        lip_colour=_pick(rng, ((0.70, 0.36, 0.36), (0.62, 0.34, 0.33), (0.74, 0.44, 0.42))),
        blush=rng.uniform(0.0, 0.6),
    )


def _sample_facial_hair(group: str, rng: np.random.Generator) -> frozenset[str]:
    if group[1] == "F":
        return frozenset()
    draw = rng.random()
    if draw < 0.10:
        return frozenset({"mustache"})
    return frozenset({"stubble"}) if draw < 0.35 else frozenset()
