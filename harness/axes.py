"""Axes of groups: the demographic groups themselves, or their ethnicity or sex with equal weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from dataset_builder.schema.taxonomy import Group
from harness.stats.aggregate import Aggregate, aggregate, interaction, level_omnibus
from harness.stats.groups import GroupMeans
from harness.stats.numerics import Ints
from harness.stats.omnibus import OmnibusTest
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
        levels, strata: shape (k,), code of each fine group's level and of what is balanced over.
    """

    axis: Axis
    names: tuple[str, ...]
    levels: Ints
    strata: Ints

    def means(self, groups: GroupMeans) -> Aggregate:
        """Equally weighted means of the levels on their common support."""
        return aggregate(groups, self.levels, self.strata)

    def omnibus(self, groups: GroupMeans) -> OmnibusTest:
        """Test that the levels' means are equal."""
        return level_omnibus(groups, self.levels, self.strata)

    def interaction(self, groups: GroupMeans) -> OmnibusTest:
        """Test that the levels differ alike in all strata."""
        return interaction(groups, self.levels, self.strata)


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
    names = tuple(dict.fromkeys(own))
    strata = tuple(dict.fromkeys(other))
    return CoarseAxis(
        axis,
        names,
        np.array([names.index(name) for name in own], dtype=np.int64),
        np.array([strata.index(name) for name in other], dtype=np.int64),
    )
