"""The faces behind an embedder's pairs: who is on them, which could be acquired, what is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.outcomes import CODES, OK, Embedded, Outcomes
from harness.stats.comparisons import Comparisons, Side, comparisons, sorted_side
from harness.stats.numerics import Bools, Floats, Ints
from harness.stats.vectors import row_cosines
from targets.base.tables import ObjectArray

FTA = tuple(CODES[name] for name in ("no_face", "no_answer"))
"""A face that the target could not turn into a vector: failure to acquire."""


@dataclass(frozen=True)
class Faces:
    """Pairs of n usable rows, and the m distinct source pictures as the gallery.

    Attributes:
        groups: names.
        persons: group and identity of each of G people; ``group_of``: (G,), ascending group codes.
        people, attribute, key: shape (n,): person, attribute and source picture of each pair.
        source, transformed: shape (n, d), NaN rows where the face was not acquired.
        gallery: shape (m, d); ``gallery_people``, ``gallery_key``: shape (m,).
        table: as in ``Embedded``: similarities of pictures whose numbers stand in place of vectors.
        twins: shape (G,): the first of ``persons`` who is the same human being, itself for nearly all.
    """

    groups: tuple[str, ...]
    persons: tuple[tuple[str, str], ...]
    group_of: Ints
    people: Ints
    attribute: ObjectArray
    key: ObjectArray
    source: Floats
    transformed: Floats
    gallery: Floats
    gallery_people: Ints
    gallery_key: ObjectArray
    table: Floats | None = None
    twins: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def shared(self) -> bool:
        """Whether some person is in several groups."""
        return len(np.unique(self.twins)) < len(self.twins)

    def side(self, vectors: Floats, people: Ints) -> Side:
        """Pictures of one side of comparisons."""
        return sorted_side(vectors, people, self.group_of, self.table)

    def scores(self, one: Floats, other: Floats) -> Floats:
        """Score of each row with the row beside it, -inf where a face was not acquired."""
        if self.table is None:
            return cosines(one, other)
        known = ~(np.isnan(one[:, 0]) | np.isnan(other[:, 0]))
        rows, columns = (np.where(known, side[:, 0], 0).astype(np.int64) for side in (one, other))
        return np.where(known, self.table[rows, columns], -np.inf)

    def compared(self, vectors: Floats) -> bool:
        """Whether all pictures of a set were compared with each other."""
        if self.table is None:
            return True
        numbers = np.unique(vectors[~np.isnan(vectors[:, 0]), 0]).astype(np.int64)
        return not np.isnan(self.table[np.ix_(numbers, numbers)]).any()

    def identities(self) -> Ints:
        """People with an acquired source picture in each group, shape (groups,)."""
        seen = np.unique(self.gallery_people[np.isfinite(self.gallery[:, 0])])
        return np.bincount(self.group_of[seen], minlength=len(self.groups))


def faces_of(outcomes: Outcomes, embedded: Embedded, groups: Sequence[str]) -> Faces:
    """Sort out people and pictures; pairs with faulty files, repeats and unchanged pictures are left out."""
    labels = outcomes.labels
    rows = np.flatnonzero(np.isin(embedded.reasons, (OK, *FTA)))
    rank = {name: place for place, name in enumerate(groups)}
    persons = sorted(
        {(rank[labels.demographic[row]], labels.identity[row]) for row in rows}, key=lambda item: item
    )
    code = {person: number for number, person in enumerate(persons)}
    people = np.array(
        [code[rank[labels.demographic[row]], labels.identity[row]] for row in rows], dtype=np.int64
    )
    key = embedded.source_key[rows]
    first: dict[tuple[int, str], int] = {}
    for place, person in enumerate(people):
        first.setdefault((int(person), key[place]), place)
    shown = np.array(list(first.values()), dtype=np.int64)
    source = embedded.source[rows]
    return Faces(
        groups=tuple(groups),
        persons=tuple((groups[group], identity) for group, identity in persons),
        group_of=np.array([group for group, _ in persons], dtype=np.int64),
        people=people,
        attribute=labels.attribute[rows],
        key=key,
        source=source,
        transformed=embedded.transformed[rows],
        gallery=source[shown],
        gallery_people=people[shown],
        gallery_key=key[shown],
        table=embedded.table,
        twins=_twins(labels.clusters()[rows], people),
    )


def _twins(clusters: Ints, people: Ints) -> Ints:
    """The first person code of each cluster, for every person code."""
    _, first = np.unique(people, return_index=True)
    own = clusters[first]
    _, home, which = np.unique(own, return_index=True, return_inverse=True)
    return home[which].astype(np.int64)


def cosines(one: Floats, other: Floats) -> Floats:
    """Cosine of each row with the row beside it, -inf where a face was not acquired."""
    return np.nan_to_num(row_cosines(one, other), nan=-np.inf)


def genuine(scores: Floats, people: Ints, size: int, kept: Bools) -> Comparisons:
    """Comparisons within people, of the kept rows."""
    own = people[kept]
    counts = np.bincount(own, minlength=size).astype(np.float64)
    return comparisons("within", scores[kept], own, own, counts)


def gallery_pairs(faces: Faces) -> tuple[Floats, Ints]:
    """Every pair of different source pictures of one person, once: scores and people."""
    one, two = _meetings(faces.gallery_people, faces.gallery_people)
    later = two > one
    one, two = one[later], two[later]
    return faces.scores(faces.gallery[one], faces.gallery[two]), faces.gallery_people[one]


def probe_pairs(faces: Faces, rows: Ints) -> tuple[Floats, Floats, Ints]:
    """Each pair's faces against the other source pictures of its person.

    Returns:
        Scores of the source face, scores of the transformed face, people; shape (k,) each.
    """
    one, two = _meetings(faces.people[rows], faces.gallery_people)
    other = faces.key[rows][one] != faces.gallery_key[two]
    probe, reference = rows[one[other]], faces.gallery[two[other]]
    before, after = (faces.scores(side[probe], reference) for side in (faces.source, faces.transformed))
    return before, after, faces.people[probe]


def _meetings(one: Ints, two: Ints) -> tuple[Ints, Ints]:
    """Indices of all combinations with the same person."""
    order = np.argsort(two, kind="stable")
    low, high = (np.searchsorted(two[order], one, side=side) for side in ("left", "right"))
    counts = high - low
    first = np.repeat(np.arange(len(one)), counts)
    step = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return first, order[np.repeat(low, counts) + step]
