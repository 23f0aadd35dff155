"""What an embedder says about a pair: the concepts ``match`` and ``identity``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.outcomes import FloatArray, Labels, cluster_codes
from harness.stats.vectors import row_cosines, unit_rows
from targets.protocol import PictureId

CONCEPTS = ("match", "identity")
MATCH, IDENTITY = range(2)
Compare = Callable[[Sequence[PictureId], Sequence[PictureId]], FloatArray]


@dataclass(frozen=True)
class Similarities:
    """Scores of the two concepts.

    Attributes:
        source: (n, 2); ``identity`` is 1 by definition, ``match`` the cosine of the source face with its
            reference.
        transformed: (n, 2); likewise for the transformed face, ``identity`` with its source face.
        references: how many other source pictures make a reference; 0 where no identity has one.
    """

    source: FloatArray
    transformed: FloatArray
    references: int


def similarities(
    labels: Labels,
    source: FloatArray,
    transformed: FloatArray,
    source_key: Sequence[str | None],
    references: int | None = None,
) -> Similarities:
    """Turn embeddings into cosines.

    ``match`` compares with the normalised mean of k other source pictures of the same (group, identity),
    in the order of their variation, the picture itself left out. k is the same for everyone: as many as
    the identity with the fewest has, of those that have any.

    Args:
        labels: n pairs.
        source: (n, d) embeddings of the source faces, NaN rows where there is none.
        transformed: (n, d), likewise.
        source_key: what tells source pictures apart, None where there is no picture.
        references: k, where it is to be another number.

    Returns:
        Cosines in [-1, 1], NaN where an embedding or a reference is missing.
    """
    before, after = unit_rows(source), unit_rows(transformed)
    others = _other_pictures(labels, before, source_key)
    k = _reference_count(others, references)
    reference = np.full_like(before, np.nan)
    for index, rows in enumerate(others):
        if k and len(rows) >= k:
            reference[index] = unit_rows(before[rows[:k]].mean(axis=0))
    identity = np.where(np.isnan(before).all(axis=1), np.nan, 1.0)
    return Similarities(
        source=np.column_stack([row_cosines(before, reference), identity]),
        transformed=np.column_stack([row_cosines(after, reference), row_cosines(before, after)]),
        references=k,
    )


def captured_similarities(
    labels: Labels,
    source: Sequence[PictureId],
    transformed: Sequence[PictureId],
    captured: FloatArray,
    compare: Compare,
    references: int | None = None,
) -> Similarities:
    """The two concepts from similarities that were captured, where there are no embeddings.

    ``match`` is the mean similarity with k other source pictures, chosen as by ``similarities``.

    Args:
        labels: n pairs.
        source, transformed: their pictures.
        captured: (n,) NaN where a source picture occurs in no comparison.
        compare: similarities of n twos of pictures, NaN where none was captured.
        references: k, where it is to be another number.

    Returns:
        Similarities up to 1, NaN where a comparison or a reference is missing.
    """
    keys = [item.pixel_hash or item.name for item in source]
    others = _other_pictures(labels, captured[:, None], keys)
    k = _reference_count(others, references)
    columns = []
    for side in (source, transformed):
        ranks = [
            compare(
                side, [source[rows[rank] if len(rows) > rank else index] for index, rows in enumerate(others)]
            )
            for rank in range(k)
        ]
        match = np.mean(ranks, axis=0) if ranks else np.full(len(labels), np.nan)
        columns.append(np.where([len(rows) >= k for rows in others], match, np.nan))
    identity = np.where(np.isnan(captured), np.nan, 1.0)
    return Similarities(
        source=np.column_stack([columns[0], identity]),
        transformed=np.column_stack([columns[1], compare(source, transformed)]),
        references=k,
    )


def _reference_count(others: Sequence[Sequence[int]], references: int | None) -> int:
    counts = [len(rows) for rows in others if rows]
    return references if references is not None else min(counts, default=0)


def _other_pictures(labels: Labels, vectors: FloatArray, source_key: Sequence[str | None]) -> list[list[int]]:
    """For each pair, rows that hold the other distinct source pictures of its identity."""
    shown: dict[int, dict[str, int]] = {}
    # A person's pictures as another group are no reference: they are made to look like somebody else.
    clusters = cluster_codes(labels.demographic, labels.identity)
    for row in sorted(
        range(len(labels)), key=lambda row: _natural(str(labels.variation[row]), source_key[row])
    ):
        key = source_key[row]
        if key is not None and not np.isnan(vectors[row, 0]):
            shown.setdefault(int(clusters[row]), {}).setdefault(key, row)
    return [
        [row for key, row in shown.get(int(cluster), {}).items() if key != own]
        for cluster, own in zip(clusters, source_key, strict=True)
    ]


def _natural(variation: str, key: str | None) -> tuple[int, int, str, str]:
    number = int(variation) if variation.isdecimal() else 0
    return (0 if variation.isdecimal() else 1, number, variation, key or "")
