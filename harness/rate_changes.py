"""The change of one error rate between two runs, from comparisons of the same people.

The standard error is that of the resamples that the runs share, with Student's t on the degrees of freedom of
the people's parts. Beside it stand exact intervals of the shares of people, or pairs of people, that err more
and less often in the new run, added up by squares, and the wider bound counts: zero observed changes do not
prove a zero rate, and a change that few show is known from few.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from harness.stats.bounded import Bounded, student
from harness.stats.comparisons import Comparisons
from harness.stats.numerics import Floats, Ints
from harness.stats.proportions import clopper_pearson
from harness.stats.resampling import (
    Estimate,
    Selection,
    estimate,
    paired_plug_in,
    replicate_rates,
    square_and_add,
)


@dataclass(frozen=True)
class Rated:
    """A run's error rate: comparisons, the run's threshold, the estimate, and the rate in every resample."""

    some: Comparisons
    threshold: float
    estimate: Estimate
    draws: Floats


def rated(some: Comparisons, threshold: float, thresholds: Floats, selected: Selection) -> Rated:
    """Estimate an error rate; arguments as in `harness.stats.resampling`."""
    draws = replicate_rates(some, selected, thresholds)
    return Rated(some, threshold, estimate(some, threshold, draws), draws)


@dataclass(frozen=True)
class RateChange:
    """The change of a rate with bounds widened by exact ones, and with t bounds only."""

    exact: Bounded
    by_t: Bounded


def rate_change(base: Rated, new: Rated) -> RateChange:
    """The change of a rate from the baseline, for two rates of the same people that have an interval."""
    units, net = _net_errors(base, new)
    value, draws = new.estimate.rate - base.estimate.rate, new.draws - base.draws
    people = min(item.estimate.n_identities for item in (base, new))
    fixed = paired_plug_in((base.some, base.threshold), (new.some, new.threshold))
    se = math.sqrt(float(np.nanvar(draws)) * fixed.kept * people / (people - 1.0))

    def size(level: float) -> float:
        # With a size of their own, because pairs of people that share a person tell less than as many others.
        return min(float(units), *(_own_size(item, units, level) for item in (base, new)))

    return RateChange(
        bounded_change(value, Spread(se, fixed.df), Parts(net, units, size), draws),
        replace(student(value, se, fixed.df), draws=draws),
    )


@dataclass(frozen=True)
class Spread:
    """Standard error and its degrees of freedom."""

    se: float
    df: float


@dataclass(frozen=True)
class Parts:
    """What single units (people, or pairs of people) add to a change.

    Attributes:
        net: net errors more in the new run, as shares of a unit's average comparisons; units without may be
            left out.
        units: how many there are.
        size: two-sided level -> as how many independent units they count.
    """

    net: Floats
    units: int
    size: Callable[[float], float]


def bounded_change(value: float, spread: Spread, parts: Parts, draws: Floats) -> Bounded:
    """The change of a share, in [-1, 1], with the wider of its t bounds and the exact ones of its parts.

    Args:
        value: the change.
        spread: of the change.
        parts: that it is the sum of.
        draws: the change in every resample, or an empty array.
    """
    worse, better = (_sum_of(sign * parts.net[sign * parts.net > 0], parts.units) for sign in (1.0, -1.0))

    def bounds(alpha: float) -> tuple[float, float]:
        half = spread.se * float(special.stdtrit(spread.df, 1.0 - alpha)) if spread.se else 0.0
        level = _level(alpha)
        exact = [part.interval(parts.size(level), level) for part in (better, worse)]
        ends = square_and_add(exact[0], exact[1], 0.0)
        middle = exact[1][0] - exact[0][0]
        low, high = value - max(half, middle - ends[0]), value + max(half, ends[1] - middle)
        return max(low, -1.0), min(high, 1.0)

    return Bounded(value, bounds, draws, spread.se, spread.df)


@dataclass(frozen=True)
class _Sum:
    """A sum of unequal parts that few of many units have, taken as a count of equal ones.

    Attributes:
        count, part: sum^2 / sum of squares, and sum of squares / sum: as many parts of such a size have the
            same first two moments (the idea of Fay & Feuer 1997).
        units: how many could have a part.
    """

    count: float
    part: float
    units: int

    def interval(self, size: float, level: float) -> tuple[float, float, float]:
        """The mean over units with its exact bounds, for a number of independent units."""
        low, high = clopper_pearson(self.count * size / self.units, size, level)
        return self.part * self.count / self.units, self.part * low, self.part * high


def _sum_of(parts: Floats, units: int) -> _Sum:
    """Without any part nobody knows its size, which may then be 1."""
    if not len(parts):
        return _Sum(0.0, 1.0, units)
    squares = float((parts**2).sum())
    return _Sum(float(parts.sum()) ** 2 / squares, squares / float(parts.sum()), units)


def _level(alpha: float) -> float:
    """Two-sided level of one-sided bounds; at alpha .5 the bounds are the estimate."""
    return max(1.0 - 2.0 * alpha, 1e-9)


def _own_size(item: Rated, units: int, level: float) -> float:
    """Effective number of units: people for genuine comparisons, else what the rate's variance says."""
    if item.some.design == "within":
        return float(units)
    return item.estimate.size(level)


def _net_errors(base: Rated, new: Rated) -> tuple[int, Floats]:
    """People (genuine) or pairs of people compared, and the net errors that some of them add to the rate.

    Returns:
        Their number, and errors more in the new run as shares of a unit's average comparisons.
    """
    size, n = len(base.some.left), min(base.some.n, new.some.n)
    if base.some.design == "within":
        errors = [item.some.left - _matched(item, size) for item in (base, new)]
        units = int(((base.some.left > 0) | (new.some.left > 0)).sum())
        return units, (errors[1] - errors[0]) * (units / n)
    pairs = [_pairs(item, size) for item in (base, new)]
    known = np.unique(np.concatenate([pair for pair, _ in pairs]))
    change = np.zeros(len(known))
    for sign, (pair, count) in zip((-1.0, 1.0), pairs, strict=True):
        change[np.searchsorted(known, pair)] += sign * count
    units = max(item.some.n_people_pairs for item in (base, new))
    return units, change * (units / n)


def _matched(item: Rated, size: int) -> Floats:
    matches = item.some.matches(item.threshold)
    return np.bincount(item.some.first[:matches], minlength=size).astype(np.float64)


def _pairs(item: Rated, size: int) -> tuple[Ints, Ints]:
    """Pairs of people with a match, and the matches of each."""
    matches = item.some.matches(item.threshold)
    one, two = item.some.first[:matches], item.some.second[:matches]
    found = np.unique(np.minimum(one, two) * size + np.maximum(one, two), return_counts=True)
    return found[0], found[1]
