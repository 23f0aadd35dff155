"""Heads distorted on purpose, so that a distortion detector has something to find.

Shape targets are pushed far beyond the range that sampled people keep to, on one side of the face more than
on the other, as failed edits of generative models look.
"""

from __future__ import annotations

from dataclasses import replace

from dataset_builder.heads.fields import stream
from dataset_builder.heads.identity import Person
from dataset_builder.heads.shape import AXES

_ONE_SIDED = (
    "eyes/{}-eye-scale-incr",
    "eyes/{}-eye-trans-down",
    "eyes/{}-eye-trans-out",
    "cheek/{}-cheek-volume-incr",
)
_MIDDLE = (
    "mouth/mouth-trans-in",
    "mouth/mouth-trans-out",
    "nose/nose-trans-out",
    "nose/nose-scale-horiz-incr",
    "nose/nose-point-down",
    "mouth/mouth-scale-horiz-incr",
    "mouth/mouth-angles-down",
    "chin/chin-prognathism-incr",
)


def distorted(person: Person, *key: int | str) -> Person:
    """The person with the face pulled out of shape; ``key`` chooses how, the same key the same way."""
    rng = stream(person.group, person.seed, "distortion", *key)
    shape = dict(person.shape)
    side = str(rng.choice(["l", "r"]))
    for name in rng.choice(_ONE_SIDED, 3, replace=False):
        shape[str(name).format(side)] = rng.uniform(2.0, 3.0)
    for name in rng.choice(_MIDDLE, 3, replace=False):
        limit = AXES[str(name).rsplit("-", 1)[0]].limit
        shape[str(name)] = rng.uniform(2.8, 4.0) * max(limit, 0.5)
    for name in ("asym/asym-jaw-3-l", "asym/asym-mouth-2-r", "asym/asym-nose-3-l"):
        shape[name] = rng.uniform(1.2, 2.0)
    return replace(person, shape=shape)
