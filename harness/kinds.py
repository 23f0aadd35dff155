"""Kinds of comparisons behind error rates: what is compared with what, before and after an edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.recognition_record import Comparison, Metric
from harness.stats.comparisons import Comparisons, of_group
from harness.stats.numerics import Floats, Ints


@dataclass(frozen=True)
class Compared:
    """One kind of comparison before and after the edit; None where a side is not defined."""

    before: Comparisons | None
    after: Comparisons | None

    def of(self, comparison: Comparison, group_of: Ints, group: int) -> Compared:
        """Narrow both sides to a group.

        Args:
            comparison: the kind.
            group_of: shape (G,), group of every person.
            group: whose probes.
        """
        before, after = (
            None if side is None else narrowed(side, comparison, group_of, group)
            for side in (self.before, self.after)
        )
        return Compared(before, after)


@dataclass(frozen=True)
class Kind:
    """Comparisons of all groups together.

    Attributes:
        attribute: what was changed; None for source faces alone.
        metric, comparison: as in a record's `RecognitionCell`.
        apart: with failures to acquire left out.
        with_fta: with them as non-matches; the same object where nothing failed.
    """

    attribute: str | None
    metric: Metric
    comparison: Comparison
    apart: Compared
    with_fta: Compared

    def of(self, group_of: Ints, group: int) -> tuple[Compared, Compared]:
        """A group's comparisons, failures to acquire left out and as non-matches."""
        apart = self.apart.of(self.comparison, group_of, group)
        if self.with_fta is self.apart:
            return apart, apart
        return apart, self.with_fta.of(self.comparison, group_of, group)


def kind(
    attribute: str | None, metric: Metric, comparison: Comparison, apart: Compared, with_fta: Compared
) -> Kind:
    """Make a kind; where nothing failed to be acquired, both ways are one object."""
    sides = ((apart.before, with_fta.before), (apart.after, with_fta.after))
    return Kind(attribute, metric, comparison, apart, apart if all(_equal(*s) for s in sides) else with_fta)


def _equal(one: Comparisons | None, other: Comparisons | None) -> bool:
    if one is None or other is None:
        return one is other
    parts = ("left", "right", "scores")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in parts)


def narrowed(some: Comparisons, comparison: Comparison, group_of: Ints, group: int) -> Comparisons:
    """Narrow comparisons to a group's probes; arguments as in `Compared.of`."""
    if some.design == "within":
        return of_people(some, group_of, group)
    return of_group(some, group_of, group, same=comparison != "cross_group")


def of_people(some: Comparisons, group_of: Ints, group: int) -> Comparisons:
    """Narrow genuine comparisons to a group."""
    return some.among_people(group_of == group)


def among_all(some: Comparisons, left: Floats, right: Floats) -> Comparisons:
    """The same matches among all pictures, acquired or not."""
    return replace(some, left=left, right=right if some.design == "between" else some.right)


def down_to(some: Comparisons, lowest: float) -> Comparisons:
    """Forget impostor scores below the lowest threshold; they are counted, not looked at."""
    kept = some.matches(lowest)
    return replace(some, scores=some.scores[:kept], first=some.first[:kept], second=some.second[:kept])


@dataclass(frozen=True)
class Kept:
    """All comparisons that a recogniser's error rates rest on.

    Attributes:
        people: group and identity of each of G people, in the order of the groups.
        kinds: source faces first.
    """

    people: tuple[tuple[str, str], ...]
    kinds: Sequence[Kind]
