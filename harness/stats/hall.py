"""Bounds and tests of a mean with skewed sums: each side the wider of t and Hall's transformation of it.

With T = (estimate - mean) / se and k the skewness of the estimate (third central moment over se^3; for G
identity sums of skewness g it is g / sqrt(G)), Hall (1992, "On the removal of skewness by transformation")
takes the monotone cubic

    h(T) = T + (k / 3) T^2 + (k^2 / 27) T^3 + k / 6

for t distributed, whose inverse is h^-1(x) = 3 y / (c^2 + c + 1) with y = x - k / 6 and c = (1 + k y)^(1/3).
A bound is the wider of that of T and that of h(T), so a test rejects where both do: its statistic is the one
nearer to 0. Every p below is that of the bounds, inverted. k = 0 gives the t interval and test.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from harness.stats.numerics import Bools, Floats

METHOD = ", each bound the wider of t and Hall 1992"
"""What the name of an interval's method ends with where its bounds are these."""
SKEWNESS_FACTOR = 100.0
_FAR = 1e60


def skewness(sums: Floats, noise: Bools) -> Floats:
    """Return the moment skewness of cluster sums that add up to zero, shape (c,); NaN where `noise`."""
    largest = np.abs(sums).max(axis=0)
    unit = sums / np.where(noise | (largest == 0.0), 1.0, largest)
    square = unit * unit
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = (square * unit).mean(axis=0) / square.mean(axis=0) ** 1.5
    return np.where(noise, np.nan, ratio)


def is_skewed(skewness: Floats, n_clusters: int) -> Bools:
    """Say where there are fewer clusters than 100 times the squared skewness of their sums."""
    return np.asarray(n_clusters < SKEWNESS_FACTOR * skewness**2)


def skew_of_mean(skewness: Floats, n_clusters: int) -> Floats:
    """Return the skewness of the mean of skewed sums; 0 for sums that are not skewed, which stay plain t."""
    return np.where(is_skewed(skewness, n_clusters), skewness / np.sqrt(n_clusters), 0.0)


def transformed(t: Floats, skew: Floats) -> Floats:
    """Return h(T)."""
    a = skew / 3.0
    # A cube beyond the largest number times a skewness of 0 would be undefined.
    t = np.clip(t, -_FAR, _FAR)
    return np.asarray(t + a * t * t + a * a * t**3 / 3.0 + a / 2.0)


def untransformed(x: Floats, skew: Floats) -> Floats:
    """Return T with h(T) = x."""
    y = x - skew / 6.0
    c = np.cbrt(1.0 + skew * y)
    return np.asarray(3.0 * y / (c * c + c + 1.0))


def bounds(
    estimate: ArrayLike, se: ArrayLike, df: ArrayLike, skew: ArrayLike, tail: float
) -> tuple[Floats, Floats]:
    """Return the lower and the upper bound, each one-sided at 1 - tail; together an interval at 1 - 2 tail.

    Args:
        estimate, se, df, skew: of one shape; NaN where se is.
        tail: probability beyond a bound, in (0, 0.5).
    """
    m, s, nu, k = _as_arrays(estimate, se, df, skew)
    # 1 - tail would lose the digits of a small tail.
    quantile = np.asarray(-special.stdtrit(nu, tail), dtype=np.float64)
    above = np.maximum(quantile, untransformed(quantile, k))
    below = np.minimum(-quantile, untransformed(-quantile, k))
    return np.asarray(m - above * s), np.asarray(m - below * s)


def p_above(estimate: ArrayLike, se: ArrayLike, df: ArrayLike, skew: ArrayLike, value: float = 0.0) -> Floats:
    """Return p against a mean of at most ``value``: below a tail where the lower bound at it lies above."""
    m, s, nu, k = _as_arrays(estimate, se, df, skew)
    t = np.asarray((m - value) / s)
    return np.asarray(special.stdtr(nu, -np.minimum(t, transformed(t, k))))


def p_below(estimate: ArrayLike, se: ArrayLike, df: ArrayLike, skew: ArrayLike, value: float = 0.0) -> Floats:
    """Return p against a mean of at least ``value``: below a tail where the upper bound at it lies below."""
    m, s, nu, k = _as_arrays(estimate, se, df, skew)
    return p_above(-m, s, nu, -k, -value)


def p_two_sided(estimate: ArrayLike, se: ArrayLike, df: ArrayLike, skew: ArrayLike) -> Floats:
    """Return p against a mean of 0: below 1 - level where the interval at that level excludes 0."""
    one, other = p_above(estimate, se, df, skew), p_below(estimate, se, df, skew)
    return np.asarray(np.minimum(1.0, 2.0 * np.minimum(one, other)))


def _as_arrays(*values: ArrayLike) -> tuple[Floats, ...]:
    return tuple(np.asarray(value, dtype=np.float64) for value in values)
