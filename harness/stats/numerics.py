"""Sums that neither cancel nor overflow, and the question whether a spread is rounding noise.

Scores come with offsets of 1e15 or magnitudes of 1e300 as easily as from [0, 1]; the rest of the package
does its arithmetic through this module so that a result depends on the data and not on the row order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_PLAIN_LOW, _PLAIN_HIGH = 1e-90, 1e90


def two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the rounded sum of two arrays and its exact rounding error (Knuth 1969, TwoSum)."""
    total = a + b
    virtual = total - a
    lost = total - virtual
    np.subtract(a, lost, out=lost)
    np.subtract(b, virtual, out=virtual)
    lost += virtual
    return total, lost


def accurate_sum(values: Floats) -> Floats:
    """Sum over the first axis as if carried out in twice the working precision.

    Neighbouring halves are folded with TwoSum and the rounding errors are added up beside them, so the
    error is of second order (Ogita, Rump & Oishi 2005) and the order of the rows does not matter.

    Args:
        values: finite array of shape (n, ...), any n.

    Returns:
        Array of the trailing shape; zeros for n = 0.
    """
    error = np.zeros(values.shape[1:])
    while len(values) > 1:
        half = len(values) // 2
        rest = values[2 * half :]
        total, lost = two_sum(values[:half], values[half : 2 * half])
        error = error + lost.sum(axis=0)
        values = np.concatenate([total, rest]) if len(rest) else total
    return values[0] + error if len(values) else error


def accurate_mean(values: Floats) -> Floats:
    """Mean over the first axis by `accurate_sum`; NaN for no rows."""
    if not len(values):
        return np.full(values.shape[1:], np.nan)
    return accurate_sum(values) / len(values)


def cluster_sums(values: Floats, codes: Ints, n_clusters: int) -> Floats:
    """Sum the rows of each cluster, compensated.

    Args:
        values: shape (n, c), finite.
        codes: shape (n,), cluster of each row in 0..n_clusters-1.
        n_clusters: the number of clusters.

    Returns:
        Shape (n_clusters, c).
    """
    if n_clusters == len(values):
        out = np.empty_like(values)
        out[codes] = values
        return out
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=n_clusters)
    starts = np.cumsum(sizes) - sizes
    total = np.zeros((n_clusters, values.shape[1]))
    error = np.zeros_like(total)
    for position in range(int(sizes.max(initial=0))):
        here = np.flatnonzero(sizes > position)
        total[here], lost = two_sum(total[here], values[order[starts[here] + position]])
        error[here] += lost
    return total + error


def power_of_two_scale(*arrays: Floats) -> Floats:
    """Return per column a power of two that brings extreme magnitudes near 1 (exactly undone later).

    Columns whose largest magnitude lies between 1e-90 and 1e90 keep the scale 1: their squares and sums
    are safe.

    Args:
        arrays: finite, shape (n, c) each.
    """
    scale = np.ones(arrays[0].shape[1])
    largest = np.max([np.abs(array).max(axis=0, initial=0.0) for array in arrays], axis=0)
    extreme = (largest > 0) & ((largest < _PLAIN_LOW) | (largest > _PLAIN_HIGH))
    _, exponent = np.frexp(largest[extreme])
    # 2 to a power beyond +-1000 is itself out of range, and a factor of 2^24 more or less is harmless.
    scale[extreme] = np.ldexp(1.0, np.clip(exponent, -1000, 1000))
    return scale


def is_rounding_noise(
    sums: Floats, source: Floats, transformed: Floats, codes: Ints, n_clusters: int
) -> Bools:
    """Say for each concept whether the cluster sums of the residuals are no more than rounding noise.

    A score is known to half a unit in its last place, and so is the subtraction. With b_i the sum of these
    three half units for pair i, the sums S_g are noise if (a) no |S_g| exceeds what the errors of its own
    pairs and of the mean can add up to, and (b) their root mean square is at most (1.5 + 3 / sqrt(G)) times
    the root mean square of independent uniform rounding errors. (b) keeps real but small spreads at large
    offsets apart from noise when there are many clusters.

    Args:
        sums: shape (G, c), sums over the clusters of delta minus mean delta.
        source: shape (n, c), the scores the deltas were made of.
        transformed: shape (n, c).
        codes: shape (n,), cluster of each row.
        n_clusters: G.

    Returns:
        Boolean array of shape (c,).
    """
    noise = np.zeros(sums.shape[1], dtype=bool)
    largest = np.maximum(np.abs(source).max(axis=0), np.abs(transformed).max(axis=0))
    room = 4.0 * np.finfo(float).eps * largest * len(source)
    near = np.flatnonzero(np.abs(sums).max(axis=0) <= room)
    if not len(near):
        return noise
    before, after = source[:, near], transformed[:, near]
    ulps = np.stack([np.spacing(np.abs(x)) for x in (before, after, after - before)])
    bound = ulps.sum(axis=0) / 2.0
    sizes = np.bincount(codes, minlength=n_clusters)[:, None]
    reach = cluster_sums(bound, codes, n_clusters) + sizes * bound.mean(axis=0)
    variance = cluster_sums((ulps**2).sum(axis=0) / 12.0, codes, n_clusters)
    factor = 1.5 + 3.0 / np.sqrt(n_clusters)
    small = (sums[:, near] ** 2).sum(axis=0) <= factor**2 * variance.sum(axis=0)
    noise[near] = small & (np.abs(sums[:, near]) <= reach).all(axis=0)
    return noise
