"""Comparisons between embeddings, by blocks: nothing as large as the cross product is ever held.

People are integer codes; a person belongs to one group. Impostor comparisons of a set of pictures number
(sum m)^2 - sum m^2 over 2 with m the pictures of each person, so totals come from counts of pictures and only
the highest scores are kept one by one, as many as thresholds near the wanted ones can reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.stats.numerics import Bools, Floats, Ints
from harness.stats.vectors import unit_rows

Singles = NDArray[np.float32]
Design = Literal["within", "among", "between"]

N_BINS = 20_000
"""Of histograms of cosines over [-1, 1]: a bin is .0001 wide."""
DECIMALS = 6
"""Of kept scores: products in single precision differ in the seventh with the shape of a block."""
_BLOCK = 512


@dataclass(frozen=True)
class Comparisons:
    """Comparisons of one kind, with the people on both sides.

    Attributes:
        design: `within` (genuine: first and second are one person), `among` (one set of pictures, every pair
            of different people once) or `between` (probes against references, different people).
        scores: shape (k,), descending; all of them, or the highest only.
        first, second: shape (k,), code of the person on each side.
        left: shape (G,): `within`: comparisons of each person; else pictures of each person (probes).
        right: shape (G,): references of each person for `between`, else zeros.
    """

    design: Design
    scores: Floats
    first: Ints
    second: Ints
    left: Floats
    right: Floats

    def totals(self, weights: Floats) -> Floats:
        """Count all comparisons, each weighted by the product of its people's 0 or 1.

        Args:
            weights: shape (..., G), zeros and ones (one weight, not two, for a person's own comparisons).

        Returns:
            Shape (...).
        """
        if self.design == "within":
            return np.asarray(weights @ self.left)
        if self.design == "among":
            return np.asarray(((weights @ self.left) ** 2 - weights @ self.left**2) / 2.0)
        both = (weights @ self.left) * (weights @ self.right)
        return np.asarray(both - weights @ (self.left * self.right))

    @property
    def n(self) -> int:
        """Number of comparisons, kept or not."""
        return int(self.totals(np.ones(len(self.left))))

    @property
    def n_identities(self) -> int:
        """People compared; for `between` those on the side that has fewer."""
        sides = [self.left, self.right] if self.design == "between" else [self.left]
        return min(int((side > 0).sum()) for side in sides)

    @property
    def n_people_pairs(self) -> int:
        """Pairs of different people compared at least once; for `within` the people."""
        one, other = (self.left > 0).astype(float), (self.right > 0).astype(float)
        return replace(self, left=one, right=other).n - (
            int((one @ other) * ((one @ other) - 1.0) / 2.0) if self.design == "between" else 0
        )

    def among_people(self, kept: Bools) -> Comparisons:
        """Narrow to comparisons with a kept person on both sides; ``kept`` has shape (G,)."""
        here = kept[self.first] & kept[self.second]
        return replace(
            self,
            scores=self.scores[here],
            first=self.first[here],
            second=self.second[here],
            left=self.left * kept,
            right=self.right * kept,
        )

    def matches(self, threshold: float) -> int:
        """Count scores of at least the threshold."""
        return int(np.searchsorted(-self.scores, -threshold, side="right"))

    def errors(self, threshold: float) -> int:
        """Count false non-matches (`within`) or false matches."""
        matches = self.matches(threshold)
        return self.n - matches if self.design == "within" else matches


def comparisons(
    design: Design, scores: Floats, first: Ints, second: Ints, left: Floats, right: Floats | None = None
) -> Comparisons:
    """Sort and round scores; arguments as the attributes of `Comparisons`, in any order of rows."""
    rounded = np.asarray(np.round(scores, DECIMALS), dtype=np.float64)
    order = np.argsort(-rounded, kind="stable")
    other = np.zeros_like(left) if right is None else right
    return Comparisons(design, rounded[order], first[order], second[order], left, other)


def unit_vectors(vectors: Floats) -> Singles:
    """Scale rows to length 1 in single precision; a row of zeros or with a NaN becomes NaN.

    Args:
        vectors: shape (n, d).
    """
    return unit_rows(vectors).astype(np.float32)


@dataclass(frozen=True)
class Side:
    """Pictures on one side of comparisons, sorted by person.

    Attributes:
        vectors: shape (n, d), unit rows.
        people: shape (n,), ascending codes.
        group_of: shape (G,), group of every person as a code; ascending, so that a group's pictures are
            neighbours.
        table: shape (m, m), scores of numbered pictures; ``vectors`` are then their numbers, shape (n, 1).
    """

    vectors: Singles
    people: Ints
    group_of: Ints
    table: Singles | None = None

    def __post_init__(self) -> None:
        if (np.diff(self.people) < 0).any() or (np.diff(self.group_of) < 0).any():
            raise ValueError("people must be sorted and their codes ascend with the groups")

    @property
    def counts(self) -> Floats:
        """Pictures of each person, shape (G,)."""
        return np.bincount(self.people, minlength=len(self.group_of)).astype(np.float64)

    def against(self, rows: slice, other: Side, columns: slice) -> Singles:
        """Scores of some pictures with some of another side."""
        one, two = self.vectors[rows], other.vectors[columns]
        if self.table is None:
            return one @ two.T
        return self.table[np.ix_(one[:, 0].astype(np.int64), two[:, 0].astype(np.int64))]

    def blocks(self) -> Iterator[tuple[int, slice]]:
        """Yield the group and the rows of blocks that hold one group each."""
        groups = self.group_of[self.people]
        for group in np.unique(groups):
            start, stop = np.searchsorted(groups, [group, group + 1])
            for low in range(int(start), int(stop), _BLOCK):
                yield int(group), slice(low, min(low + _BLOCK, int(stop)))


def sorted_side(vectors: Floats, people: Ints, group_of: Ints, table: Floats | None = None) -> Side:
    """Make a side of pictures in any order; pictures without a vector are left out.

    Args:
        vectors: shape (n, d), any length; NaN rows where there is none.
        people: shape (n,), codes into `group_of`.
        group_of: shape (G,), ascending.
        table: scores of numbered pictures, where ``vectors`` are their numbers.
    """
    units = unit_vectors(vectors) if table is None else vectors.astype(np.float32)
    kept = np.flatnonzero(np.isfinite(units).all(axis=1))
    order = kept[np.argsort(people[kept], kind="stable")]
    scores = None if table is None else table.astype(np.float32)
    return Side(units[order], people[order], group_of, scores)


@dataclass(frozen=True)
class _Part:
    """Scores of one block with the groups of one kind: same group, or another."""

    group: int
    same: bool
    scores: Singles
    wanted: Bools | None
    rows: Ints
    columns: Ints

    def chosen(self, floor: float) -> tuple[Floats, Ints, Ints]:
        """Return scores that round to the floor or above, with the people on both sides."""
        near = self.scores >= np.float32(floor - 10.0**-DECIMALS)
        row, column = np.nonzero(near if self.wanted is None else near & self.wanted)
        scores = np.asarray(np.round(self.scores[row, column].astype(np.float64), DECIMALS), np.float64)
        high = scores >= floor
        return scores[high], self.rows[row[high]], self.columns[column[high]]

    def histogram(self) -> Ints:
        """Count scores by bin, shape (N_BINS,)."""
        place = ((self.scores + np.float32(1.0)) * np.float32(N_BINS / 2)).astype(np.int32)
        np.clip(place, 0, N_BINS - 1, out=place)
        flat = place.ravel() if self.wanted is None else place[self.wanted]
        return np.bincount(flat, minlength=N_BINS)


def _parts(probes: Side, references: Side | None) -> Iterator[_Part]:
    """Yield all impostor comparisons; without references those among the probes, each once."""
    other = probes if references is None else references
    groups = other.group_of[other.people]
    for group, rows in probes.blocks():
        start, stop = (int(place) for place in np.searchsorted(groups, [group, group + 1]))
        # Among one set a block meets only what comes after it: earlier blocks have met the rest.
        first = rows.start if references is None else start
        spans = [(first, stop, True), (stop, len(groups), False)]
        spans += [(0, start, False)] if references is not None else []
        people = probes.people[rows]
        for low, high, same in spans:
            if low == high:
                continue
            columns = other.people[low:high]
            scores = probes.against(rows, other, slice(low, high))
            wanted = None
            if same:
                later = columns[None, :] > people[:, None]
                wanted = later if references is None else columns[None, :] != people[:, None]
            yield _Part(group, same, scores, wanted, people, columns)


def impostor_histograms(probes: Side, references: Side | None = None) -> tuple[Ints, Ints]:
    """Count impostor comparisons by score.

    Args:
        probes: pictures of every group.
        references: what they are compared with; None for each other.

    Returns:
        Same-group counts by the group of the probe, shape (groups, N_BINS), and cross-group counts, shape
        (N_BINS,). Among one set a cross-group comparison is counted once.
    """
    same = np.zeros((int(probes.group_of[-1]) + 1, N_BINS), dtype=np.int64)
    cross = np.zeros(N_BINS, dtype=np.int64)
    for part in _parts(probes, references):
        counts = part.histogram()
        if part.same:
            same[part.group] += counts
        else:
            cross += counts
    return same, cross


def bin_edges() -> Floats:
    """Lower edges of the bins, shape (N_BINS,): scores in [-1, 1]."""
    return np.asarray(-1.0 + np.arange(N_BINS) * (2.0 / N_BINS), dtype=np.float64)


def floor_for(counts: Ints, share: float, at_least: int) -> float:
    """Return a score that at least a share and a number of the counted comparisons reach.

    Args:
        counts: shape (N_BINS,).
        share: of all comparisons, may exceed 1 for all of them.
        at_least: a number of comparisons.

    Returns:
        The lower edge of a bin, -inf where all are wanted.
    """
    above = np.cumsum(counts[::-1])
    wanted = max(share * above[-1], at_least)
    if wanted >= above[-1]:
        return -np.inf
    return float(bin_edges()[::-1][int(np.argmax(above >= wanted))]) - 1e-6


def impostors(
    probes: Side, references: Side | None, same_floor: Floats, cross_floor: float
) -> tuple[Comparisons, Comparisons]:
    """Collect the highest impostor comparisons.

    Args:
        probes, references: as in `impostor_histograms`.
        same_floor: shape (groups,), lowest score to keep of each group's comparisons with itself.
        cross_floor: lowest score to keep of comparisons across groups, inf for none.

    Returns:
        Same-group comparisons of all groups together, and cross-group ones. Their totals are those of
        comparisons regardless of group: narrow them with `of_group` before counting.
    """
    found: dict[bool, list[tuple[Floats, Ints, Ints]]] = {True: [], False: []}
    for part in _parts(probes, references):
        floor = float(same_floor[part.group]) if part.same else cross_floor
        if floor < np.inf:
            found[part.same].append(part.chosen(floor))
    right = None if references is None else references.counts
    design: Design = "among" if references is None else "between"
    joined = []
    for same in (True, False):
        nothing = (np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
        scores, first, second = (np.concatenate(each) for each in zip(nothing, *found[same], strict=True))
        joined.append(comparisons(design, scores, first, second, probes.counts, right))
    return joined[0], joined[1]


def of_group(some: Comparisons, group_of: Ints, group: int, *, same: bool) -> Comparisons:
    """Narrow impostor comparisons to a group against itself, or against all others.

    Args:
        some: `among` or `between`.
        group_of: shape (G,).
        group: whose probes; among one set, cross-group comparisons with the group on either side.
        same: against itself.

    Returns:
        Comparisons with the probe's person in `first`; across groups always `between`.
    """
    own = group_of == group
    if same:
        return some.among_people(own)
    mine, theirs = own[some.first], own[some.second]
    references = some.left if some.design == "among" else some.right
    here = mine & ~theirs if some.design == "between" else mine ^ theirs
    swap = theirs[here]
    first, second = some.first[here], some.second[here]
    probe, reference = np.where(swap, second, first), np.where(swap, first, second)
    return Comparisons("between", some.scores[here], probe, reference, some.left * own, references * ~own)
