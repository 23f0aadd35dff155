"""Cluster-robust variances of a mean: CR0, CR1, CR2 and the Satterthwaite degrees of freedom.

For a mean the sandwich has a closed form. With S_g the sum of the residuals of cluster g, n_g its size,
n the number of pairs and G the number of clusters (Bell & McCaffrey 2002; Pustejovsky & Tipton 2018):

    CR0  V = sum S_g^2 / n^2
    CR1  V = CR0 * G / (G - 1)
    CR2  V = sum S_g^2 / (1 - n_g / n) / n^2

CR2 is exactly unbiased for independent errors of equal variance, where its expectation is sigma^2 / n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.stats.numerics import Floats, Ints, accurate_sum

Kind = Literal["CR0", "CR1", "CR2"]


@dataclass(frozen=True)
class Structure:
    """Which pairs belong together: everything about a cell that all its concepts share.

    Attributes:
        codes: shape (n,), cluster of each pair as 0..G-1.
        sizes: shape (G,), pairs in each cluster.
    """

    codes: Ints
    sizes: Ints

    @classmethod
    def of(cls, labels: Ints) -> Structure:
        """Build the structure from integer labels of any values, shape (n,)."""
        _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        return cls(codes.astype(np.int64), sizes.astype(np.int64))

    @property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return len(self.codes)

    @property
    def n_clusters(self) -> int:
        """Number of clusters (identities)."""
        return len(self.sizes)


def variance_of_mean(sums: Floats, structure: Structure, kind: Kind = "CR2") -> Floats:
    """Return the cluster-robust variance of the mean for each concept.

    Args:
        sums: shape (G, c), cluster sums of the residuals (delta minus mean delta).
        structure: at least two clusters.
        kind: which estimator.

    Returns:
        Shape (c,), in squared units of the score.

    Raises:
        ValueError: with one cluster, where every one of them is undefined (CR0 would be a false 0).
    """
    n, n_clusters = structure.n_pairs, structure.n_clusters
    if n_clusters < 2:
        raise ValueError(f"a cluster-robust variance needs at least 2 clusters, got {n_clusters}")
    weights = np.ones(n_clusters)
    if kind == "CR1":
        weights[:] = n_clusters / (n_clusters - 1)
    elif kind == "CR2":
        weights = n / (n - structure.sizes)
    return accurate_sum(weights[:, None] * (sums / n) ** 2)


def satterthwaite_df(structure: Structure) -> float:
    """Return the degrees of freedom of the CR2 variance of a mean under independent equal errors.

    df = (tr A)^2 / tr(A A) with A_gh = w_g w_h (1[g=h] n_g - n_g n_h / n) / n^2 and
    w_g = (1 - n_g / n)^(-1/2). The traces reduce to sums over clusters, so this is linear in G: with
    a_g = n_g^2 / (1 - n_g / n), df = n^2 / (sum n_g^2 + 2 sum_{g<h} a_g a_h / n^2).

    Args:
        structure: at least two clusters.

    Returns:
        A number from 1 to G - 1 (G - 1 when all clusters have one size).

    Raises:
        ValueError: with one cluster.
    """
    if structure.n_clusters < 2:
        raise ValueError(f"degrees of freedom need at least 2 clusters, got {structure.n_clusters}")
    n = float(structure.n_pairs)
    share = np.sort(structure.sizes / n)
    a = share**2 * n / (n - share * n)
    before = np.concatenate([[0.0], np.cumsum(a)[:-1]])
    cross = 2.0 * float(np.sum(a * before))
    return 1.0 / (float(np.sum(share**2)) + cross)
