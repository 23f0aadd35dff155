"""The statistics of one attribute: its groups' estimates side by side, all concepts at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.outcomes import Outcomes
from harness.stats.groups import GroupMeans
from harness.stats.intervals import CellEstimates, Method, cell_estimates
from harness.stats.people import SharedPeople

IntArray = npt.NDArray[np.intp]


@dataclass(frozen=True)
class AttributeEstimates:
    """One attribute.

    Attributes:
        attribute: its name.
        groups: k group names.
        rows: k arrays, the pairs of each group.
        cells: k estimates by the method asked for, each with all c concepts.
        means: (k, c) means and variances for comparing groups. The bootstrap has no degrees of freedom, so
            there they come from the method "cluster".
    """

    attribute: str
    groups: tuple[str, ...]
    rows: tuple[IntArray, ...]
    cells: tuple[CellEstimates, ...]
    means: GroupMeans


def estimate_attributes(
    outcomes: Outcomes,
    attributes: Sequence[str],
    groups: Sequence[str],
    *,
    method: Method,
    level: float,
    seed: int = 0,
) -> list[AttributeEstimates]:
    """Estimate every attribute; a group without pairs has undefined estimates.

    Args:
        outcomes: n pairs, c concepts.
        attributes, groups: in the order of the tables.
        method: "cluster", "t" or "bootstrap".
        level: of the intervals, in (0, 1).
        seed: of the bootstrap.
    """
    clusters = outcomes.labels.clusters()
    return [
        _estimate(outcomes, clusters, attribute, tuple(groups), method, level, seed)
        for attribute in attributes
    ]


def _estimate(
    outcomes: Outcomes,
    clusters: npt.NDArray[np.int64],
    attribute: str,
    groups: tuple[str, ...],
    method: Method,
    level: float,
    seed: int,
) -> AttributeEstimates:
    here = outcomes.labels.attribute == attribute
    rows = tuple(np.flatnonzero(here & (outcomes.labels.demographic == group)) for group in groups)

    def cells(how: Method) -> tuple[CellEstimates, ...]:
        return tuple(
            cell_estimates(
                outcomes.source[own],
                outcomes.transformed[own],
                clusters[own],
                method=how,
                level=level,
                seed=seed,
            )
            for own in rows
        )

    chosen = cells(method)
    comparable = cells("cluster") if method == "bootstrap" else chosen
    people = None if method == "t" else _shared_people(outcomes, clusters, rows)
    return AttributeEstimates(attribute, groups, rows, chosen, GroupMeans.stack(comparable, people))


def _shared_people(
    outcomes: Outcomes, clusters: npt.NDArray[np.int64], rows: tuple[IntArray, ...]
) -> SharedPeople | None:
    """The people behind the groups of an attribute, None where nobody is in two of them."""
    if sum(len(np.unique(clusters[own])) for own in rows) == len(np.unique(clusters[np.concatenate(rows)])):
        return None
    return SharedPeople.of(outcomes.source, outcomes.transformed, clusters, rows)
