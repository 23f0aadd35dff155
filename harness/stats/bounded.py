"""Estimates known by their one-sided bounds at every level, and where they lie to a margin.

For a mean score the bounds are t quantiles. For rates they come from Wilson's interval, are added up by
square-and-add, and are widened by exact ones, so that their p values are found by search: the smallest alpha
at which the bound still clears the margin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from harness.stats.equivalence import Harmful, MarginTest, margin_test
from harness.stats.numerics import Floats
from harness.stats.resampling import correlation, square_and_add

_SMALLEST = 1e-12
_STEPS = 60
_SAME = 1e-9


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
        by_t: whether the bounds are the value plus and minus a t quantile times ``se``.
    """

    value: float
    bounds: Callable[[float], tuple[float, float]]
    draws: Floats
    se: float
    df: float
    by_t: bool = False

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

        return Bounded(-self.value, bounds, -self.draws, self.se, self.df, self.by_t)


def student(value: float, se: float, df: float) -> Bounded:
    """Return an estimate with t bounds; with a standard error of 0 they are the value itself.

    Args:
        value: the estimate.
        se: its standard error, at least 0.
        df: degrees of freedom; not used where se is 0.
    """

    def bounds(alpha: float) -> tuple[float, float]:
        half = se * float(special.stdtrit(df, 1.0 - alpha)) if se else 0.0
        return value - half, value + half

    return Bounded(value, bounds, np.empty(0), se, df, by_t=True)


def inside(bounds: tuple[float, float], margin: float, harmful: Harmful) -> bool:
    """Say whether bounds lie inside a margin on the harmful side; on the margin itself is not inside."""
    low, high = _less(-margin, bounds[0]), _less(bounds[1], margin)
    return {"lower": low, "higher": high, "both": low and high}[harmful]


def _less(one: float, other: float) -> bool:
    """Smaller by more than the last digits: a change of exactly the margin is neither inside nor beyond."""
    return one < other and not math.isclose(one, other, rel_tol=_SAME)


def beyond_bound(found: Bounded, alpha: float, harmful: Harmful) -> float:
    """Return the bound that a fail rests on: the change goes at least this far in the harmful direction.

    For one direction the one-sided 1 - alpha bound. For both, the largest size m of a change that `p_beyond`
    still rejects at alpha (its two tails added), with the sign of the estimate, or 0.
    """
    if harmful != "both":
        return found.bounds(alpha)[1 if harmful == "lower" else 0]
    sign, far = math.copysign(1.0, found.value), abs(found.value)
    if not far:
        return 0.0
    low, high = 0.0, far
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        rejected = middle > 0.0 and float(bounded_margin_test(found, middle, "both").p_beyond) < alpha
        low, high = (middle, high) if rejected else (low, middle)
    return sign * low


def bounded_margin_test(found: Bounded, margin: float, harmful: Harmful) -> MarginTest:
    """Test on which side of a margin an estimate lies; p values as in `equivalence.margin_test`.

    Where both directions do harm, `p_beyond` adds both tails. Above .5 a p value is given as 1, below 1e-12
    as 1e-12.

    Args:
        found: the estimate.
        margin: positive.
        harmful: the direction in which a change does harm.
    """
    if found.by_t and found.se:
        return _margin_test_by_t(found, margin, harmful)
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


def _margin_test_by_t(found: Bounded, margin: float, harmful: Harmful) -> MarginTest:
    test = margin_test(found.value, found.se, found.df, margin, harmful)
    far = -(abs(found.value) + margin) / found.se
    other_tail = special.stdtr(found.df, far) if harmful == "both" else 0.0
    return MarginTest(test.p_inside, np.minimum(1.0, test.p_beyond + other_tail))


@dataclass(frozen=True)
class _MarginP:
    """P values for an estimate below a margin, above it, and above the margin on the far side of 0."""

    inside: float
    beyond: float
    far_beyond: float


def _margin_p(found: Bounded, margin: float) -> _MarginP:
    return _MarginP(
        _smallest(lambda alpha: _less(found.bounds(alpha)[1], margin)),
        _smallest(lambda alpha: _less(margin, found.bounds(alpha)[0])),
        _smallest(lambda alpha: _less(-margin, found.bounds(alpha)[0])),
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
