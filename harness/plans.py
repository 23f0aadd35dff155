"""What a margin and a half-width asked for say: equivalence tests, and identities that an answer takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.numbers import number
from harness.record import Cell, Detail, Difference, Disparity, Family
from harness.stats.equivalence import tost
from harness.stats.families import adjust
from harness.stats.planning import minimum_detectable_effect, scale_for_half_width

NO_MARGIN = "no margin was given (--margin)"
NO_HALF_WIDTH = "no half-width was given (--half-width)"
TOO_MANY = "more than 10^14 identities"
NO_BAND = "a simultaneous band, and with it a detectable difference, takes two degrees of freedom"
_Labels = tuple[str, str, str, str]


@dataclass(frozen=True)
class Wanted:
    """What was asked for: half of the region of equivalence, half-width, both in units of the score."""

    margin: float | None
    half_width: float | None
    level: float


def null_fields(reasons: Mapping[str, str], values: Mapping[str, object]) -> dict[str, str]:
    """The reasons of those values that are null."""
    return {name: text for name, text in reasons.items() if values[name] is None}


def adjusted_details(
    details: Sequence[Detail], target: str, planned: int
) -> tuple[list[Detail], list[Family]]:
    """Adjust the equivalence tests of the cells with Holm; those without a p count as 1.

    Args:
        details: of the planned cells.
        target: spec of the target.
        planned: planned cells, with and without pairs.
    """
    raw = [item.equivalence_p for item in details]
    if all(p is None for p in raw):
        return list(details), []
    family = Family(id=f"equivalence:cells:{target}", m=planned, method="holm")
    adjusted = adjust([np.nan if p is None else p for p in raw], planned=planned).p
    done = [
        item.model_copy(update={"equivalence_p_adjusted": number(p), "equivalence_family": family.id})
        if item.equivalence_p is not None
        else item
        for item, p in zip(details, adjusted, strict=True)
    ]
    return done, [family]


def planned_differences(
    entries: Sequence[Disparity], cells: Sequence[Cell], wanted: Wanted
) -> tuple[list[Disparity], list[Family]]:
    """Add to every difference what it takes to find one, to show that there is none, and a wanted width.

    Detectable is what the simultaneous band finds, and the wanted half-width is that of the band. Equivalence
    tests form one family an axis, Holm.
    """
    people = {(cell.by, cell.attribute, cell.concept, cell.group): cell.n_identities for cell in cells}
    done: list[Disparity] = []
    families: list[Family] = []
    for by in dict.fromkeys(entry.by for entry in entries):
        own = [entry for entry in entries if entry.by == by]
        pairs = [[_planned(pair, entry, people, wanted) for pair in entry.pairwise] for entry in own]
        every = [pair for row in pairs for pair in row]
        adjusted = adjust([np.nan if (p := pair.equivalence_p) is None else p for pair in every]).p
        if wanted.margin is not None and every:
            family = Family(id=f"equivalence:differences:{own[0].target}:{by}", m=len(every), method="holm")
            families.append(family)
            rest = iter(adjusted)
            pairs = [[_adjusted(pair, float(next(rest)), family.id) for pair in row] for row in pairs]
        done += [
            entry.model_copy(update={"pairwise": tuple(row)}) for entry, row in zip(own, pairs, strict=True)
        ]
    return done, families


def _adjusted(pair: Difference, p: float, family: str) -> Difference:
    if math.isnan(p):
        return pair
    return pair.model_copy(update={"equivalence_p_adjusted": p, "equivalence_family": family})


def _planned(pair: Difference, entry: Disparity, people: Mapping[_Labels, int], wanted: Wanted) -> Difference:
    """One difference with its detectable effect, equivalence test and identities."""
    found: dict[str, object] = dict.fromkeys(
        ("minimum_detectable_effect", "identities_for_half_width", "equivalence_p")
    )
    estimate, se, df = pair.difference, pair.se, pair.df
    if estimate is not None and se and df is not None:
        if pair.band is not None:
            groups = pair.band.groups
            least = minimum_detectable_effect([se], [df], level=wanted.level, groups=groups)
            found["minimum_detectable_effect"] = number(float(least[0]))
            counts = [people[entry.by, entry.attribute, entry.concept, group] for group in (pair.a, pair.b)]
            if wanted.half_width is not None:
                scale = scale_for_half_width(se, df, wanted.half_width, level=wanted.level, groups=groups)
                if math.isfinite(scale):
                    found["identities_for_half_width"] = tuple(max(2, math.ceil(n * scale)) for n in counts)
        if wanted.margin is not None:
            found["equivalence_p"] = float(tost(estimate, se, df, wanted.margin).p)
    why = _why_without(pair)
    margin = NO_MARGIN if wanted.margin is None else why
    reasons = {
        "minimum_detectable_effect": why or NO_BAND,
        "identities_for_half_width": NO_HALF_WIDTH
        if wanted.half_width is None
        else why or (TOO_MANY if pair.band else NO_BAND),
        "equivalence_p": margin,
    }
    left = null_fields(reasons, found)
    if "equivalence_p" in left:
        left |= dict.fromkeys(("equivalence_p_adjusted", "equivalence_family"), margin)
    return pair.model_copy(update={**found, "reasons": {**pair.reasons, **left}})


def _why_without(pair: Difference) -> str:
    """Why a difference has no standard error; empty where it has one."""
    return "" if pair.status == "ok" else getattr(pair, "reason", "")
