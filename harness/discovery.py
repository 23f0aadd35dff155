"""Searching all concepts for changes worth naming, and confirming them on other identities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.numbers import number
from harness.outcomes import FloatArray, Outcomes
from harness.record import Discovery, Finding
from harness.stats.discovery import (
    Confirmation,
    SearchTests,
    discover_and_confirm,
    distinct_concepts,
    split_identities,
)
from harness.stats.intervals import cell_estimates

ALPHA = 0.05


def discover(
    outcomes: Outcomes, attributes: Sequence[str], groups: Sequence[str], *, margin: float, seed: int
) -> Discovery:
    """Search every attribute, group and concept on half of the identities; confirm on the other half.

    Args:
        outcomes: n pairs, c concepts.
        attributes, groups: what to search.
        margin: the null is |delta| <= margin, in units of the score.
        seed: of the split.
    """
    labels = outcomes.labels
    clusters = labels.clusters()
    group_codes = np.array([list(groups).index(group) for group in labels.demographic], dtype=np.int64)
    first = split_identities(group_codes, clusters, seed=seed)
    same_as = distinct_concepts(outcomes.source, outcomes.transformed)
    cells = [(attribute, group) for attribute in attributes for group in groups]
    in_cell = [(labels.attribute == attribute) & (labels.demographic == group) for attribute, group in cells]
    halves = [
        _tests(outcomes, clusters, [rows & half for rows in in_cell], same_as) for half in (first, ~first)
    ]
    found = discover_and_confirm(halves[0], halves[1], margin=margin, alpha=ALPHA)
    return Discovery(
        margin=margin,
        alpha=ALPHA,
        seed=seed,
        searched=int(halves[0].first.sum()),
        findings=tuple(
            _finding(found, halves[1], int(index), cells, outcomes.concepts)
            for index in found.order
            if found.discovered[index]
        ),
    )


def _tests(
    outcomes: Outcomes,
    clusters: np.ndarray[tuple[int], np.dtype[np.int64]],
    cells: Sequence[np.ndarray[tuple[int], np.dtype[np.bool_]]],
    same_as: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> SearchTests:
    parts: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    for rows in cells:
        found = cell_estimates(outcomes.source[rows], outcomes.transformed[rows], clusters[rows])
        parts.append((found.delta, np.where(found.se > 0, found.se, np.nan), found.df))
    delta, se, df = (np.concatenate(column) for column in zip(*parts, strict=True))
    width = len(outcomes.concepts)
    repeated = np.concatenate([same_as + width * number_ for number_ in range(len(cells))])
    return SearchTests(delta, se, df, repeated)


def _finding(
    found: Confirmation,
    second: SearchTests,
    index: int,
    cells: Sequence[tuple[str, str]],
    concepts: Sequence[str],
) -> Finding:
    attribute, group = cells[index // len(concepts)]
    original = int(second.same_as[index])
    return Finding(
        attribute=attribute,
        concept=concepts[index % len(concepts)],
        group=group,
        same_as=concepts[original % len(concepts)] if original != index else None,
        delta=number(second.delta[index]),
        se=number(second.se[index]),
        df=number(second.df[index]),
        p=number(found.p[index]),
        p_adjusted=number(found.p_holm[index]),
        smallest=number(found.smallest[index]),
        confirmed=bool(found.confirmed[index]),
    )
