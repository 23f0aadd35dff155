"""Max-t simultaneous inference with one common df: a cross-check, not the default.

This is what multcomp's glht does with Tukey contrasts. With few identities the common N - k degrees of
freedom are far too liberal; the bands of `contrasts.pairwise` are the ones to report.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

from harness.stats.numerics import Floats, Ints

_LOG2_POINTS = 17


@dataclass(frozen=True)
class MaxT:
    """All pairwise comparisons of k groups, arrays of shape (k (k - 1) / 2,).

    Attributes:
        a, b: group indices.
        t: (mean_b - mean_a) / sqrt(V_a + V_b).
        p: single-step adjusted p values.
        crit: simultaneous critical value of |t| at the level.
        seed: of the quasi-random directions.
    """

    a: Ints
    b: Ints
    t: Floats
    p: Floats
    crit: float
    seed: int


def max_t(means: Floats, variances: Floats, df: float, *, level: float = 0.999, seed: int = 0) -> MaxT:
    """Compare independent group means by the distribution of the largest |t|.

    A normal vector is a length times a direction, and length over s is an F variable, so only the
    direction is sampled (scrambled Sobol points, seeded): P(max |T| > c) = E[P(F > c^2 / (k h^2))] with h the
    largest standardised contrast of a unit direction.

    Args:
        means: shape (k,).
        variances: shape (k,), variances of the means, at most one of them zero.
        df: common degrees of freedom.
        level: simultaneous level of `crit`.
        seed: entropy of the scrambling.

    Raises:
        ValueError: for fewer than two groups or a difference without variance.
    """
    k = len(means)
    if k < 2 or not (variances >= 0).all() or (variances == 0).sum() > 1:
        raise ValueError(
            f"max-t needs at least 2 groups and variances above 0 for all but one, got {variances}"
        )
    a, b = np.triu_indices(k, 1)
    se = np.sqrt(variances[a] + variances[b])
    points = stats.qmc.Sobol(k, rng=np.random.default_rng(seed)).random_base2(_LOG2_POINTS)
    z = special.ndtri(np.clip(points, 1e-12, 1.0 - 1e-12))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    scaled = z * np.sqrt(variances)
    reach = np.max(np.abs(scaled[:, b] - scaled[:, a]) / se, axis=1)

    def tail(c: float) -> float:
        return float(special.fdtrc(k, df, (c / reach) ** 2 / k).mean())

    t = (means[b] - means[a]) / se
    p = np.array([tail(abs(value)) for value in t])
    upper = float(special.stdtrit(df, 1.0 - (1.0 - level) / (2.0 * len(t))))
    crit = float(optimize.brentq(lambda c: tail(c) - (1.0 - level), 0.1, upper + 1.0, xtol=1e-8))
    return MaxT(a.astype(np.int64), b.astype(np.int64), t, p, crit, seed)
