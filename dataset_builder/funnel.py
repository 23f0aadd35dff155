"""The funnel: how many candidates each cell had, what was rejected by which rule, and what share was kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dataset_builder.schema.verdict import REASONS, Reason
from harness.stats.proportions import clustered_proportion


@dataclass(frozen=True)
class Decided:
    """One candidate as the funnel needs it; ``reason`` is None for a kept pair."""

    attribute: str
    demographic: str
    identity: str
    reason: Reason | None


@dataclass(frozen=True)
class FunnelCell:
    """One attribute and group.

    Attributes:
        candidates, kept: counts.
        identities: among the candidates.
        rejected: reason -> count, the first rule that did not hold.
        share: kept of candidates, None without candidates.
        low, high: Wilson interval on the effective sample size by identity (Korn & Graubard 1998).
    """

    attribute: str
    demographic: str
    candidates: int
    kept: int
    identities: int
    rejected: dict[str, int]
    share: float | None
    low: float | None
    high: float | None


def funnel(
    decided: Iterable[Decided], attributes: Sequence[str], groups: Sequence[str], *, level: float = 0.999
) -> list[FunnelCell]:
    """Count every (attribute, group), those without candidates included.

    Args:
        decided: all candidates.
        attributes, groups: the cells, in order.
        level: of the intervals, in (0, 1).
    """
    by_cell: dict[tuple[str, str], list[Decided]] = {}
    for item in decided:
        by_cell.setdefault((item.attribute, item.demographic), []).append(item)
    return [
        _cell(attribute, group, by_cell.get((attribute, group), []), level)
        for attribute in attributes
        for group in groups
    ]


def _cell(attribute: str, group: str, items: Sequence[Decided], level: float) -> FunnelCell:
    counts = Counter(item.reason for item in items)
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(item.identity, len(numbers)) for item in items]
    kept = [item.reason is None for item in items]
    proportion = clustered_proportion(kept, codes, level=level) if items else None
    return FunnelCell(
        attribute=attribute,
        demographic=group,
        candidates=len(items),
        kept=sum(kept),
        identities=len(numbers),
        rejected={reason: counts[reason] for reason in REASONS if counts[reason]},
        share=proportion.rate if proportion else None,
        low=proportion.low if proportion else None,
        high=proportion.high if proportion else None,
    )
