"""From two score matrices to complete blocks: pairwise deletion, deltas, means and residuals.

One structure is the pairs of one (attribute, group). Its concepts share the pairs and the clusters, so
everything is computed for all concepts at once; concepts that miss scores for different pairs fall into
blocks with one missing pattern each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from harness.stats.numerics import (
    Bools,
    Floats,
    Ints,
    accurate_mean,
    cluster_sums,
    is_rounding_noise,
    power_of_two_scale,
)
from harness.stats.sandwich import Structure


@dataclass(frozen=True)
class Block:
    """Complete pairs of some concepts of one structure.

    Scores are divided by `scale` (a power of two per concept, 1 unless magnitudes are extreme), so means
    and residuals have to be multiplied by it.

    Attributes:
        columns: shape (c,), which concepts.
        rows: shape (n,), which pairs.
        source, transformed: shape (n, c), finite, scaled.
        mean_source, mean_transformed, mean: shape (c,), means of the scores and of the deltas, scaled. NaN
            when n = 0.
        residuals: shape (n, c), delta minus mean delta, scaled.
        scale: shape (c,).
        structure: the clusters of the kept pairs.
    """

    columns: Ints
    rows: Ints
    source: Floats
    transformed: Floats
    mean_source: Floats
    mean_transformed: Floats
    mean: Floats
    residuals: Floats
    scale: Floats
    structure: Structure

    def sums(self) -> Floats:
        """Return the residuals summed over each cluster, shape (G, c), scaled."""
        return cluster_sums(self.residuals, self.structure.codes, self.structure.n_clusters)

    def noise(self, sums: Floats, structure: Structure) -> Bools:
        """Say for each concept whether `sums` (residuals summed over `structure`) are rounding noise."""
        return is_rounding_noise(sums, self.source, self.transformed, structure.codes, structure.n_clusters)


def as_matrix(values: ArrayLike, name: str) -> Floats:
    """Return scores as a float64 matrix of shape (n, c); a vector becomes one concept.

    Raises:
        ValueError: unless the array has one or two dimensions.
    """
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2:
        raise ValueError(f"{name} must have shape (pairs, concepts), got {matrix.shape}")
    return matrix


def checked(source: ArrayLike, transformed: ArrayLike, clusters: ArrayLike) -> tuple[Floats, Floats, Ints]:
    """Return the three arrays of a structure in their working types.

    Raises:
        ValueError: if shapes differ or the cluster codes are not integers.
    """
    before, after = as_matrix(source, "source"), as_matrix(transformed, "transformed")
    if before.shape != after.shape:
        raise ValueError(f"source and transformed must have one shape, got {before.shape} and {after.shape}")
    codes = np.asarray(clusters)
    if codes.shape != (len(before),):
        raise ValueError(f"clusters must have shape ({len(before)},), got {codes.shape}")
    if codes.size and not np.issubdtype(codes.dtype, np.integer):
        raise ValueError(f"clusters must be integer codes, got {codes.dtype}")
    return before, after, codes.astype(np.int64)


def missing_patterns(kept: Bools) -> Iterator[tuple[Ints, Ints]]:
    """Yield (columns, rows) for every distinct pattern of kept pairs, shape of `kept` (n, c)."""
    n_columns = kept.shape[1]
    if kept.all():
        if n_columns:
            yield np.arange(n_columns), np.arange(len(kept))
        return
    _, first, which = np.unique(np.packbits(kept, axis=0).T, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(which, kind="stable")
    bounds = np.searchsorted(which[order], np.arange(len(first) + 1))
    for pattern, example in enumerate(first):
        yield order[bounds[pattern] : bounds[pattern + 1]], np.flatnonzero(kept[:, example])


def blocks(source: Floats, transformed: Floats, clusters: Ints) -> Iterator[Block]:
    """Yield the complete blocks of a structure; a pair with a non-finite score is left out.

    Args:
        source: shape (n, c).
        transformed: shape (n, c).
        clusters: shape (n,), integer codes of (group, identity).
    """
    kept = np.isfinite(source) & np.isfinite(transformed)
    for columns, rows in missing_patterns(kept):
        before, after = source, transformed
        if kept.shape != (len(rows), len(columns)):
            before, after = source[np.ix_(rows, columns)], transformed[np.ix_(rows, columns)]
        scale = power_of_two_scale(before, after)
        if (scale != 1.0).any():
            before, after = before / scale, after / scale
        delta = after - before
        mean_source, mean_transformed, mean = np.split(accurate_mean(np.hstack([before, after, delta])), 3)
        yield Block(
            columns=columns,
            rows=rows,
            source=before,
            transformed=after,
            mean_source=mean_source,
            mean_transformed=mean_transformed,
            mean=mean,
            residuals=delta - mean,
            scale=scale,
            structure=Structure.of(clusters[rows]),
        )
