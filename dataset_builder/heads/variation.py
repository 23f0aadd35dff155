"""One photograph of a person: where the camera stands, how it is lit, what the face does.

All three are drawn from the person's seed and the variation's number. Variation 0 is the plainest portrait:
no marked expression, the head nearly straight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dataset_builder.heads.fields import stream
from dataset_builder.heads.identity import Person


@dataclass(frozen=True)
class Light:
    """Softboxes round the head: key side (-1 left, 1 right), angles in degrees, powers in scene units.

    ``warmth`` tints the key (positive: warmer) and the fill the other way.
    """

    side: int
    azimuth: float
    elevation: float
    key: float
    fill: float
    rim: float
    ambient: float
    warmth: float
    size: float


@dataclass(frozen=True)
class Variation:
    """Camera yaw and pitch in degrees and its distance, light, background number, weights of facial actions.

    A near camera (7 interocular distances, an arm's length) draws the nose large, as phone pictures do.
    """

    number: int
    yaw: float
    pitch: float
    distance: float
    light: Light
    background: int
    actions: Mapping[str, float]


# Small actions only: none of them may read as a smile, which is an attribute.
_EXPRESSIONS: tuple[Mapping[str, float], ...] = (
    {"mouthSmile": 0.12},
    {"mouthSmile": 0.22, "cheekSquint": 0.15},
    {"browInnerUp": 0.4, "mouthSmile": 0.08},
    {"browDown": 0.35, "mouthSmile": 0.05},
    {"browOuterUp": 0.45, "mouthSmile": 0.1},
    {"eyeWide": 0.3, "mouthSmile": 0.08},
)


def sample_variation(person: Person, number: int) -> Variation:
    """Variation ``number`` (0 or more) of a person; always the same one."""
    rng = stream(person.group, person.seed, "variation", number)
    plain = number == 0
    return Variation(
        number=number,
        yaw=rng.uniform(-12, 12) if plain else rng.uniform(-22, 22),
        pitch=rng.uniform(-4, 6) if plain else rng.uniform(-9, 10),
        distance=rng.uniform(9, 18) if plain else rng.uniform(7, 16),
        light=Light(
            side=int(rng.choice([-1, 1])),
            azimuth=rng.uniform(15, 60),
            elevation=rng.uniform(10, 48),
            key=rng.uniform(1.0, 1.2),
            fill=rng.uniform(0.16, 0.45),
            rim=rng.uniform(0.2, 1.2),
            ambient=rng.uniform(0.24, 0.42),
            warmth=rng.uniform(-0.12, 0.16),
            size=rng.uniform(1.8, 3.6),
        ),
        background=int(rng.integers(1 << 30)),
        actions=_EXPRESSIONS[0 if plain else int(rng.integers(len(_EXPRESSIONS)))],
    )
