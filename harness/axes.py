"""Axes of groups: the demographic groups themselves, or their ethnicity or sex with equal weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from dataset_builder.schema.taxonomy import Group
from harness.stats.numerics import Ints
from targets.base.errors import InputError
from targets.base.text import nearest

Axis = Literal["demographic", "ethnicity", "sex"]
AXES: tuple[Axis, ...] = get_args(Axis)
_OTHER: dict[str, str] = {"sex": "ethnicity", "ethnicity": "sex"}


@dataclass(frozen=True)
class CoarseAxis:
    """Fine groups sorted into levels of one axis, balanced over the other.

    Attributes:
        axis: "sex" or "ethnicity".
        names: L level names, in order of appearance.
        stratum_names: S names of what is balanced over.
        groups: k fine groups.
        levels, strata: shape (k,), code of each fine group's level and stratum.
    """

    axis: Axis
    names: tuple[str, ...]
    stratum_names: tuple[str, ...]
    groups: tuple[str, ...]
    levels: Ints
    strata: Ints

    @property
    def crossed(self) -> CoarseAxis:
        """The axis whose levels an interaction subtracts: the one with fewer, so that both have one test."""
        if len(self.names) <= len(self.stratum_names):
            return self
        other: Axis = "sex" if self.axis == "ethnicity" else "ethnicity"
        return CoarseAxis(other, self.stratum_names, self.names, self.groups, self.strata, self.levels)


def coarse_axis(axis: Axis, groups: Sequence[str], known: dict[str, Group]) -> CoarseAxis:
    """Sort groups into the levels of an axis.

    Args:
        axis: "sex" or "ethnicity".
        groups: k fine groups.
        known: code -> group of the taxonomy.

    Raises:
        InputError: a group that the taxonomy does not know.
    """
    for group in groups:
        if group not in known:
            raise InputError(
                f"--by {axis} needs to know the {axis} of group '{group}'{nearest(group, known)}: "
                "name it in a taxonomy and pass --taxonomy"
            )
    own = [str(getattr(known[group], axis)) for group in groups]
    other = [str(getattr(known[group], _OTHER[axis])) for group in groups]
    taken: dict[tuple[str, str], str] = {}
    for group, *place in zip(groups, own, other, strict=True):
        if (earlier := taken.setdefault((place[0], place[1]), group)) != group:
            raise InputError(
                f"--by {axis} needs one group for each ethnicity and sex, but '{earlier}' and '{group}' are "
                "both "
                + " ".join(sorted(place))
                + ": give them an ethnicity or sex of their own in the taxonomy"
            )
    names = tuple(dict.fromkeys(own))
    strata = tuple(dict.fromkeys(other))
    return CoarseAxis(
        axis,
        names,
        strata,
        tuple(groups),
        np.array([names.index(name) for name in own], dtype=np.int64),
        np.array([strata.index(name) for name in other], dtype=np.int64),
    )
