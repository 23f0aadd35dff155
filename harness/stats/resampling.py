"""Intervals of error rates that respect that people and pictures repeat.

One comparison shares a person with many others, so errors come in stars around people. Two remedies of
Fogliato, Patil & Perona (2023, arXiv:2306.01198; their package is cimat): the plug-in variance that adds up
the covariances of comparisons that share a person, and the double-or-nothing bootstrap, which draws weights 0
or 2 for every person and gives a comparison the product of its people's weights. Rates are ratios, so weights
0 and 1 do as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from harness.stats.comparisons import Comparisons
from harness.stats.error_rates import threshold_at_fmr
from harness.stats.numerics import Floats
from harness.stats.proportions import wilson

Selection = NDArray[np.uint8]

MIN_DEFINED = 0.9
"""Share of resamples in which a rate must be defined: below it the people are too few."""
_CHUNK = 4096


def double_or_nothing(n_identities: int, draws: int, seed: int) -> Selection:
    """Draw for every person and resample whether it counts; shape (G, draws), zeros and ones."""
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    return rng.integers(0, 2, size=(n_identities, draws), dtype=np.uint8)


def replicate_totals(some: Comparisons, selected: Selection) -> Floats:
    """Number of comparisons in every resample, shape (draws,)."""
    people = np.flatnonzero((some.left > 0) | (some.right > 0))
    totals = np.zeros(selected.shape[1])
    if len(people):
        narrow = replace(some, left=some.left[people], right=some.right[people])
        totals = narrow.totals(selected[people].T.astype(np.float64))
    return totals


def replicate_matches(some: Comparisons, selected: Selection, thresholds: Floats) -> Floats:
    """Count the matches in every resample, at its own threshold.

    Args:
        some: comparisons whose kept scores reach down to the lowest threshold.
        selected: shape (G, draws).
        thresholds: shape (draws,).

    Returns:
        Shape (draws,).
    """
    reach = np.searchsorted(-some.scores, -thresholds, side="right")
    matches = np.zeros(selected.shape[1])
    for start in range(0, int(reach.max(initial=0)), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, int(reach.max())))
        counted = selected[some.first[rows]] & selected[some.second[rows]]
        matches += (counted & (rows[:, None] < reach)).sum(axis=0, dtype=np.int64)
    return matches


def replicate_rates(some: Comparisons, selected: Selection, thresholds: Floats) -> Floats:
    """Error rate in every resample, NaN where it has no comparison; arguments as in `replicate_matches`."""
    totals = replicate_totals(some, selected)
    matches = replicate_matches(some, selected, thresholds)
    errors = totals - matches if some.design == "within" else matches
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(totals > 0, errors / totals, np.nan)


def replicate_thresholds(
    some: Comparisons, totals: Floats, selected: Selection, target: float, lowest: float
) -> Floats:
    """Set the threshold anew in every resample.

    Args:
        some: the impostor comparisons that set it, the highest of them at least.
        totals: shape (draws,), how many comparisons each resample has.
        selected: shape (G, draws).
        target: wanted FMR.
        lowest: threshold where the kept scores do not reach deep enough or a resample is empty.

    Returns:
        Shape (draws,).
    """
    found = np.full(len(totals), lowest)
    for draw, total in enumerate(totals):
        own = np.ascontiguousarray(selected[:, draw]).astype(bool)
        scores = some.scores[own[some.first] & own[some.second]]
        if target * total * (1.0 + 1e-12) < len(scores):
            found[draw] = threshold_at_fmr(scores, int(total), target)[0]
    return found


@dataclass(frozen=True)
class PlugIn:
    """Variance of an error rate at a fixed threshold.

    Attributes:
        variance: the estimate.
        excess: what the double-or-nothing bootstrap adds to it: the product of two weights has variance 3, so
            the part of a pair's errors that neither person explains counts three times.
        df: degrees of freedom of the estimate, 2 V^2 / Var(V) with V the sum of the people's squared parts,
            between 1 and people - 1: errors that gather on few people are known from few.
    """

    variance: float
    excess: float
    df: float

    @property
    def kept(self) -> float:
        """Share of the bootstrap's variance that is left when half of its excess is taken out."""
        whole = self.variance + self.excess
        return 1.0 - self.excess / 2.0 / whole if whole > 0 else 1.0


def plug_in(some: Comparisons, threshold: float) -> PlugIn:
    """Estimate the variance of an error rate from comparisons that share a person.

    With r the errors of a pair of people less their expected number and R_i its sum over the pairs of person
    i: (sum r^2 + max(sum R_i^2 - 2 sum r^2, 0)) / n^2; within people sum R_i^2 / n^2.

    Raises:
        ValueError: without a comparison.
    """
    return _combined([(1.0, some, threshold)])


def paired_plug_in(before: tuple[Comparisons, float], after: tuple[Comparisons, float]) -> PlugIn:
    """Estimate the variance of the change of an error rate, of two sets of comparisons of the same people.

    As `plug_in`, with r and R_i the changes of each rate's own, both over its number of comparisons.

    Args:
        before, after: comparisons of one design and their threshold.

    Raises:
        ValueError: without a comparison.
    """
    return _combined([(-1.0, *before), (1.0, *after)])


def _combined(parts: Sequence[tuple[float, Comparisons, float]]) -> PlugIn:
    """The variance of a sum of error rates, each with its sign."""
    size = len(parts[0][1].left)
    people, compared = np.zeros(size), np.zeros(size, dtype=bool)
    codes, values = [np.empty(0, np.int64)], [np.empty(0)]
    expected_of: list[tuple[float, Comparisons]] = []
    for sign, some, threshold in parts:
        n = some.n
        if not n:
            raise ValueError("an error rate needs a comparison, got none")
        found = some.matches(threshold)
        first, second = some.first[:found], some.second[:found]
        if some.design == "within":
            errors = some.left - np.bincount(first, minlength=size)
            people += sign * (errors - errors.sum() / n * some.left) / n
            compared |= some.left > 0
            continue
        stars = np.bincount(first, minlength=size) + np.bincount(second, minlength=size)
        met = _met(some)
        people += sign * (stars - found / n * met) / n
        compared |= met > 0
        # A pair of people has this many matches, over n, for each of its comparisons, if all are alike.
        expected_of.append((sign * found / n**2, some))
        # A pair of people may meet in both roles: the code does not say which of the two was the probe.
        pair, count = np.unique(
            np.minimum(first, second) * size + np.maximum(first, second), return_counts=True
        )
        codes.append(pair)
        values.append(sign * count / n)
    squared = people**2
    if parts[0][1].design == "within":
        return PlugIn(float(squared.sum()), 0.0, _df(squared[compared]))
    pair, place = np.unique(np.concatenate(codes), return_inverse=True)
    matched = np.bincount(place, np.concatenate(values), len(pair))
    expected = sum(share * _comparisons_of(some, pair // size, pair % size) for share, some in expected_of)
    # Pairs of people without a match are nearly all: their squared expectation is summed up in closed form.
    squares = sum(
        one * other * _met_by_both(some, same) for one, some in expected_of for other, same in expected_of
    )
    own = float((matched**2 - 2.0 * matched * expected).sum() + squares)
    shared = float(squared.sum()) - 2.0 * own
    return PlugIn(own + max(shared, 0.0), 2.0 * own, _df(squared[compared]))


def _df(parts: Floats) -> float:
    most = max(len(parts) - 1.0, 1.0)
    spread = len(parts) * float(parts.var(ddof=1)) if len(parts) > 1 else 0.0
    return float(np.clip(2.0 * parts.sum() ** 2 / spread, 1.0, most)) if spread > 0 else most


def _comparisons_of(some: Comparisons, low: NDArray[np.int64], high: NDArray[np.int64]) -> Floats:
    if some.design == "among":
        return np.asarray(some.left[low] * some.left[high])
    return np.asarray(some.left[low] * some.right[high] + some.left[high] * some.right[low])


def _met(some: Comparisons) -> Floats:
    """Comparisons of each person with others."""
    left, right = some.left, some.right
    if some.design == "among":
        return np.asarray(left * (left.sum() - left))
    return np.asarray(left * (right.sum() - right) + right * (left.sum() - left))


def _met_by_both(one: Comparisons, other: Comparisons) -> float:
    """The product of two numbers of comparisons, summed over pairs of different people."""
    if one.design == "among":
        both = one.left * other.left
        return float((both.sum() ** 2 - (both**2).sum()) / 2.0)
    alike = one.left * other.left, one.right * other.right
    crossed = one.left * other.right, one.right * other.left
    return float(sum(a.sum() * b.sum() - (a * b).sum() for a, b in (alike, crossed)))


@dataclass(frozen=True)
class Rate:
    """An error rate with its interval; NaN where undefined.

    Attributes:
        errors, n, n_identities: counts.
        rate: errors over n.
        n_effective: size of a simple sample with the same information, at most n.
        low, high: Wilson's interval on the effective size, Student's t for the normal quantile.
        status: `ok`; `identities_as_size` (no error, or nothing but errors: there is no variance, and the
            effective size is the number of people); `too_few_identities`; `no_comparisons`.
    """

    errors: int
    n: int
    n_identities: int
    rate: float
    n_effective: float
    low: float
    high: float
    status: str


@dataclass(frozen=True)
class Estimate:
    """An error rate before a level is chosen.

    Attributes:
        errors, n, n_identities, rate, status: as in `Rate`.
        variance: of the rate, NaN where there is none to estimate.
        df: its degrees of freedom, NaN likewise.
        least: what the effective size can't fall below: a person's share of errors lies in [0, 1], so the
            variance is at most that of as many people as Kish's effective number, or for impostors, which
            are pairs, of half as many (Hoeffding 1948).
    """

    errors: int
    n: int
    n_identities: int
    rate: float
    variance: float
    df: float
    least: float
    status: str

    def size(self, level: float) -> float:
        """Effective size for a level: p (1 - p) / V (z / t_df)^2, `least` to n; NaN where undefined."""
        if self.status == "ok":
            return max(effective_size(self.rate, self.n, self.variance, self.df, level), self.least)
        return float(self.n_identities) if self.status == "identities_as_size" else float("nan")

    def interval(self, level: float) -> Rate:
        """Return the rate with its two-sided interval."""
        size = self.size(level)
        low, high = wilson(self.rate * size, size, level) if size > 0 else (float("nan"), float("nan"))
        return Rate(self.errors, self.n, self.n_identities, self.rate, size, low, high, self.status)


def estimate(some: Comparisons, threshold: float, replicates: Floats) -> Estimate:
    """Estimate an error rate and its variance from its resamples.

    Half of the bootstrap's known excess (`PlugIn`) is taken out. What is left counts the part of a pair's
    errors that neither person explains twice, as the jackknife does (Efron & Stein 1981): with few people
    the shared part is estimated too low, and without this reserve the intervals miss too often.

    Args:
        some: comparisons whose kept scores reach down to the threshold.
        threshold: a score of this size matches.
        replicates: shape (draws,), from `replicate_rates`; NaN where undefined.
    """
    n, people, nan = some.n, some.n_identities, float("nan")
    if not n:
        return Estimate(0, 0, people, nan, nan, nan, nan, "no_comparisons")
    errors = some.errors(threshold)
    rate = errors / n
    defined = replicates[np.isfinite(replicates)]
    if people < 2 or len(defined) < MIN_DEFINED * len(replicates):
        return Estimate(errors, n, people, rate, nan, nan, nan, "too_few_identities")
    if errors in (0, n):
        return Estimate(errors, n, people, rate, nan, nan, nan, "identities_as_size")
    fixed = plug_in(some, threshold)
    variance = float(defined.var()) * fixed.kept * people / (people - 1.0)
    return Estimate(errors, n, people, rate, variance, fixed.df, _least(some), "ok")


def _least(some: Comparisons) -> float:
    """See `Estimate.least`."""
    sides = [some.left, some.right] if some.design == "between" else [some.left]
    people = min(float(side.sum() ** 2 / (side**2).sum()) for side in sides)
    return people if some.design == "within" else people / 2.0


def rate_interval(some: Comparisons, threshold: float, replicates: Floats, level: float) -> Rate:
    """Return an error rate with its interval of a two-sided level; arguments as in `estimate`."""
    return estimate(some, threshold, replicates).interval(level)


def effective_size(rate: float, n: int, variance: float, df: float, level: float) -> float:
    """Return the size of a simple sample with a rate's variance, for a given level; see `Estimate.size`."""
    spot = 0.5 + level / 2.0
    ratio = float(special.ndtri(spot) / special.stdtrit(df, spot)) ** 2
    return min(float(n), rate * (1.0 - rate) / variance * ratio) if variance > 0 else float(n)


@dataclass(frozen=True)
class Change:
    """A paired difference of two rates, after minus before; NaN where undefined.

    Attributes:
        difference: in [-1, 1].
        low, high: its interval.
        correlation: of the two rates over the resamples; 0 where one of them does not vary.
        status: `ok` or `undefined`.
    """

    difference: float
    low: float
    high: float
    correlation: float
    status: str


def paired_change(before: Rate, after: Rate, replicates: tuple[Floats, Floats]) -> Change:
    """Combine two rates of the same people into the interval of their difference.

    The square-and-add interval with correlation (Newcombe 1998; Zou & Donner 2008, MOVER), which stays inside
    [-1, 1] and keeps a width where no error, or nothing but errors, was seen.

    Args:
        before, after: rates with intervals of one level.
        replicates: their resamples, shape (draws,) each.
    """
    nan = float("nan")
    if not (np.isfinite(before.low) and np.isfinite(after.low)):
        return Change(after.rate - before.rate, nan, nan, nan, "undefined")
    r = correlation(*replicates)
    difference = after.rate - before.rate
    low, high = square_and_add((before.rate, before.low, before.high), (after.rate, after.low, after.high), r)
    return Change(difference, max(-1.0, low), min(1.0, high), r, "ok")


def correlation(one: Floats, other: Floats) -> float:
    """Correlation over the resamples in which both are defined; 0 where one of them does not vary."""
    both = np.isfinite(one) & np.isfinite(other)
    x, y = one[both], other[both]
    varies = len(x) > 1 and x.std() > 0 and y.std() > 0
    return float(np.clip(np.corrcoef(x, y)[0, 1], -1.0, 1.0)) if varies else 0.0


Bounds = tuple[float, float, float]


def square_and_add(before: Bounds, after: Bounds, r: float) -> tuple[float, float]:
    """Return the interval of after minus before from two estimates, each with its low and high end.

    Args:
        before, after: estimate, low, high.
        r: correlation of the estimates.
    """
    down = (after[0] - after[1], before[2] - before[0])
    up = (after[2] - after[0], before[0] - before[1])
    ends = [float(np.sqrt(max(a * a + b * b - 2.0 * r * a * b, 0.0))) for a, b in (down, up)]
    difference = after[0] - before[0]
    return difference - ends[0], difference + ends[1]
