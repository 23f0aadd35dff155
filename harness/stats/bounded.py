"""Estimates known by their one-sided bounds at every level, and where they lie to a margin.

For rates no t quantile times a standard error gives the bounds: they come from Wilson's interval, are added
up by square-and-add, and are widened by exact ones. So p values are found by search: the smallest alpha at
which the bound still clears the margin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from harness.stats.equivalence import Harmful, MarginTest
from harness.stats.numerics import Floats
from harness.stats.resampling import correlation, square_and_add

_SMALLEST = 1e-12
_STEPS = 60


@dataclass(frozen=True)
class Bounded:
    """An estimate and its bounds.

    Attributes:
        value: the estimate.
        bounds: alpha in (0, 0.5] -> lower and upper one-sided 1 - alpha bound, wider for a smaller alpha.
        draws: the estimate in every resample, shape (draws,), NaN where undefined; an empty array where there
            are none, and then it is taken as independent of others.
        se: standard error behind the bounds, 0 where nothing varied.
        df: its degrees of freedom, NaN for a difference, whose bounds are added up by squares.
    """

    value: float
    bounds: Callable[[float], tuple[float, float]]
    draws: Floats
    se: float
    df: float

    def minus(self, other: Bounded) -> Bounded:
        """The difference, by square-and-add with the correlation over the resamples."""
        paired = len(self.draws) == len(other.draws) > 0
        draws = self.draws - other.draws if paired else np.empty(0)
        r = correlation(other.draws, self.draws) if paired else 0.0

        def bounds(alpha: float) -> tuple[float, float]:
            one, two = other.bounds(alpha), self.bounds(alpha)
            return square_and_add((other.value, *one), (self.value, *two), r)

        variance = self.se**2 + other.se**2 - 2.0 * r * self.se * other.se
        return Bounded(self.value - other.value, bounds, draws, math.sqrt(max(variance, 0.0)), math.nan)

    def negative(self) -> Bounded:
        """The estimate with the other sign."""

        def bounds(alpha: float) -> tuple[float, float]:
            low, high = self.bounds(alpha)
            return -high, -low

        return Bounded(-self.value, bounds, -self.draws, self.se, self.df)


def bounded_margin_test(found: Bounded, margin: float, harmful: Harmful) -> MarginTest:
    """Test on which side of a margin an estimate lies; p values as in `equivalence.margin_test`.

    Where both directions do harm, `p_beyond` adds both tails. Above .5 a p value is given as 1, below 1e-12
    as 1e-12.

    Args:
        found: the estimate.
        margin: positive.
        harmful: the direction in which a change does harm.
    """
    above, below = _margin_p(found, margin), _margin_p(found.negative(), margin)
    inside, beyond = {
        "higher": (above.inside, above.beyond),
        "lower": (below.inside, below.beyond),
        "both": (
            max(above.inside, below.inside),
            min(1.0, above.beyond + above.far_beyond, below.beyond + below.far_beyond),
        ),
    }[harmful]
    return MarginTest(np.asarray(inside), np.asarray(beyond))


@dataclass(frozen=True)
class _MarginP:
    """P values for an estimate below a margin, above it, and above the margin on the far side of 0."""

    inside: float
    beyond: float
    far_beyond: float


def _margin_p(found: Bounded, margin: float) -> _MarginP:
    return _MarginP(
        _smallest(lambda alpha: found.bounds(alpha)[1] < margin),
        _smallest(lambda alpha: found.bounds(alpha)[0] > margin),
        _smallest(lambda alpha: found.bounds(alpha)[0] > -margin),
    )


def _smallest(clears: Callable[[float], bool]) -> float:
    """The smallest alpha at which a bound clears the margin, by bisection of its logarithm."""
    if not clears(0.5):
        return 1.0
    if clears(_SMALLEST):
        return _SMALLEST
    low, high = np.log(_SMALLEST), np.log(0.5)
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if clears(float(np.exp(middle))) else (middle, high)
    return float(np.exp(high))
