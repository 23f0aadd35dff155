"""Searching all concepts for changes worth naming, and confirming them on other identities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.numbers import number
from harness.outcomes import Outcomes
from harness.record import Cell, Discovery, Finding
from harness.stats.discovery import (
    Confirmation,
    SearchTests,
    discover_and_confirm,
    distinct_concepts,
    split_identities,
)
from harness.stats.intervals import REASONS, CellEstimates, cell_estimates


def discover(
    outcomes: Outcomes,
    attributes: Sequence[str],
    groups: Sequence[str],
    cells: Sequence[Cell],
    *,
    margin: float,
    level: float,
    seed: int,
) -> Discovery:
    """Search every attribute, group and concept on half of the identities; confirm on the other half.

    Args:
        outcomes: n pairs, c concepts.
        attributes, groups: what to search.
        cells: of the whole run, whose flags the findings bear.
        level: 1 - level is the false discovery rate of the search and the error of the confirmation.
        margin: the null is |delta| <= margin, in units of the score.
        seed: of the split.
    """
    labels = outcomes.labels
    clusters = labels.clusters()
    group_codes = np.array([list(groups).index(group) for group in labels.demographic], dtype=np.int64)
    first = split_identities(group_codes, clusters, seed=seed)
    same_as = distinct_concepts(outcomes.source, outcomes.transformed)
    places = [(attribute, group) for attribute in attributes for group in groups]
    in_cell = [(labels.attribute == attribute) & (labels.demographic == group) for attribute, group in places]
    halves = [_estimates(outcomes, clusters, [rows & half for rows in in_cell]) for half in (first, ~first)]
    tests = [_tests(half, same_as) for half in halves]
    alpha = round(1 - level, 12)
    found = discover_and_confirm(tests[0], tests[1], margin=margin, alpha=alpha)
    width = len(outcomes.concepts)
    flags = {(cell.attribute, cell.concept, cell.group): cell.flags for cell in cells}
    findings = []
    for index in (int(index) for index in found.order if found.discovered[index]):
        place, concept = index // width, index % width
        attribute, group = places[place]
        name = outcomes.concepts[concept]
        original = int(tests[1].same_as[index])
        own = flags.get((attribute, name, group), ())
        findings.append(
            Finding(
                attribute=attribute,
                concept=name,
                group=group,
                same_as=outcomes.concepts[original % width] if original != index else None,
                **_numbers(found, halves[1][place], index, concept),
                reasons={"same_as": "no earlier concept has the same scores"} if original == index else {},
                flags=tuple(dict.fromkeys((*own, *halves[1][place].flags(concept)))),
            )
        )
    return Discovery(
        margin=margin,
        alpha=alpha,
        seed=seed,
        searched=int(tests[0].first.sum()),
        findings=tuple(findings),
    )


def _estimates(
    outcomes: Outcomes,
    clusters: np.ndarray[tuple[int], np.dtype[np.int64]],
    cells: Sequence[np.ndarray[tuple[int], np.dtype[np.bool_]]],
) -> list[CellEstimates]:
    return [
        cell_estimates(outcomes.source[rows], outcomes.transformed[rows], clusters[rows]) for rows in cells
    ]


def _tests(
    cells: Sequence[CellEstimates], same_as: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> SearchTests:
    """All concepts of all cells, one cell after the other."""
    return SearchTests(
        delta=np.concatenate([cell.delta for cell in cells]),
        se=np.concatenate([np.where(cell.se > 0, cell.se, np.nan) for cell in cells]),
        df=np.concatenate([cell.df for cell in cells]),
        skew=np.concatenate([cell.skew for cell in cells]),
        same_as=np.concatenate([same_as + len(same_as) * place for place in range(len(cells))]),
    )


def _numbers(found: Confirmation, cell: CellEstimates, index: int, concept: int) -> dict[str, Any]:
    """What the confirmation half says of one finding."""
    se = cell.se[concept]
    status = str(cell.status[concept])
    return {
        "delta": number(cell.delta[concept]),
        "se": number(se) if se > 0 else None,
        "df": number(cell.df[concept]),
        "p": number(found.p[index]),
        "p_adjusted": number(found.p_holm[index]),
        "smallest": number(found.smallest[index]),
        "confirmed": bool(found.confirmed[index]),
        "status": status,
        "reason": REASONS.get(str(cell.reason[concept]), ""),
    }
