"""What a filter can do to a difference: kept against all candidates, trimming bounds, efficacy bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from harness.stats.contrasts import PairwiseContrasts
from harness.stats.numerics import Bools, Floats, Ints


def depends_on_filter(kept: PairwiseContrasts, candidates: PairwiseContrasts, *, alpha: float) -> Bools:
    """Say where a difference on kept pairs and on all scorable candidates disagree in sign or decision.

    Args:
        kept: contrasts on the kept pairs.
        candidates: the same contrasts on all candidates that have two scores.
        alpha: a decision is p < alpha. An undefined test decides nothing.

    Returns:
        Boolean array of the contrasts' shape; False where a difference is missing.

    Raises:
        ValueError: if the two do not list the same contrasts.
    """
    same = np.array_equal(kept.a, candidates.a) and np.array_equal(kept.b, candidates.b)
    if not same or kept.difference.shape != candidates.difference.shape:
        raise ValueError(
            "kept and candidates must list the same contrasts, got shapes "
            f"{kept.difference.shape} and {candidates.difference.shape}"
        )
    with np.errstate(invalid="ignore"):
        sign = np.sign(kept.difference) * np.sign(candidates.difference) < 0.0
        decision = (kept.p < alpha) != (candidates.p < alpha)
    both = np.isfinite(kept.difference) & np.isfinite(candidates.difference)
    return np.asarray(both & (sign | decision))


@dataclass(frozen=True)
class LeeBounds:
    """Bounds on a difference of means among pairs that either group's filter would keep.

    Attributes:
        low, high: bounds on mean b minus mean a; NaN when undefined.
        keep_a, keep_b: kept shares; NaN without candidates.
        trimmed: share of the kept pairs trimmed from the group with the higher kept share.
        status: `ok` or `undefined` (a group without candidates or without kept pairs).
    """

    low: float
    high: float
    keep_a: float
    keep_b: float
    trimmed: float
    status: str


def lee_bounds(deltas_a: ArrayLike, candidates_a: int, deltas_b: ArrayLike, candidates_b: int) -> LeeBounds:
    """Bound a group difference under selection that differs by group (Lee 2009).

    If the stricter filter keeps a subset of what the milder one would keep, the group with the higher kept
    share holds a surplus share (q_hi - q_lo) / q_hi of pairs the other filter would have rejected. Trimming
    that share off either end of its deltas bounds the difference for the common part. The pair at the cut
    is weighted by the part of it that remains.

    Args:
        deltas_a: kept deltas of group a, shape (n_a,); non-finite ones are dropped.
        candidates_a: scorable candidates of group a, at least n_a.
        deltas_b: kept deltas of group b.
        candidates_b: scorable candidates of group b.

    Raises:
        ValueError: if a group has more kept pairs than candidates.
    """
    kept = [np.asarray(d, dtype=np.float64) for d in (deltas_a, deltas_b)]
    kept = [np.sort(d[np.isfinite(d)]) for d in kept]
    candidates = (candidates_a, candidates_b)
    for deltas, n in zip(kept, candidates, strict=True):
        if len(deltas) > n:
            raise ValueError(f"kept pairs must be among the candidates, got {len(deltas)} of {n}")
    share = [len(d) / n if n else float("nan") for d, n in zip(kept, candidates, strict=True)]
    if not all(len(d) for d in kept):
        nan = float("nan")
        return LeeBounds(nan, nan, share[0], share[1], nan, "undefined")
    trimmed = abs(share[1] - share[0]) / max(share)
    ends = [(float(d.mean()), float(d.mean())) for d in kept]
    fuller = int(share[1] > share[0])
    ends[fuller] = _trimmed_means(kept[fuller], trimmed)
    (low_a, high_a), (low_b, high_b) = ends
    return LeeBounds(low_b - high_a, high_b - low_a, share[0], share[1], trimmed, "ok")


def _trimmed_means(ordered: Floats, trimmed: float) -> tuple[float, float]:
    """Return the mean without the share `trimmed` of the largest, and of the smallest, sorted values."""
    n = len(ordered)
    weights = np.clip(n * (1.0 - trimmed) - np.arange(n), 0.0, 1.0)
    return float(weights @ ordered / weights.sum()), float(weights @ ordered[::-1] / weights.sum())


@dataclass(frozen=True)
class FilteredGroup:
    """What a filter left of one group.

    Attributes:
        deltas: kept deltas, shape (n,), finite.
        people: code of the identity behind each, shape (n,).
        candidate_people: the same of every scorable candidate, kept ones included, shape (N,).
    """

    deltas: Floats
    people: Ints
    candidate_people: Ints


@dataclass(frozen=True)
class LeeInterval:
    """An interval that holds the difference of the common part with a given probability, or NaN."""

    low: float
    high: float
    status: str


def lee_interval(a: FilteredGroup, b: FilteredGroup, *, level: float) -> LeeInterval:
    """Widen Lee's bounds by their sampling error (Imbens & Manski 2004).

    Standard errors of the bounds are those of their influence functions (Lee 2009, proposition 3), summed
    by identity: of the trimmed mean, of the quantile at the cut, of both kept shares. The critical value c
    solves T(c + width / larger se) - T(-c) = level, with Student's T of Welch's degrees of freedom, since
    what is to be held is the difference itself and not both bounds.

    Args:
        a, b: the groups; identities of the two are apart.
        level: probability that the interval holds the difference, in (0, 1).
    """
    bounds = lee_bounds(a.deltas, len(a.candidate_people), b.deltas, len(b.candidate_people))
    nan = float("nan")
    if bounds.status != "ok" or min(len(np.unique(side.people)) for side in (a, b)) < 2:
        return LeeInterval(nan, nan, "undefined")
    fuller, other, sign = (b, a, 1.0) if bounds.keep_b > bounds.keep_a else (a, b, -1.0)
    trims = (True, False) if sign > 0 else (False, True)
    found = [_bound_error(fuller, other, from_above=above) for above in trims]
    se, df = max(error for error, _ in found), min(freedom for _, freedom in found)
    if se == 0.0:
        return LeeInterval(bounds.low, bounds.high, "ok")
    c = _imbens_manski((bounds.high - bounds.low) / se, df, level)
    return LeeInterval(bounds.low - c * found[0][0], bounds.high + c * found[1][0], "ok")


def _bound_error(fuller: FilteredGroup, other: FilteredGroup, *, from_above: bool) -> tuple[float, float]:
    """Standard error and degrees of freedom of a bound: the fuller group's trimmed mean minus the other's."""
    kept = [len(side.deltas) / len(side.candidate_people) for side in (fuller, other)]
    values = fuller.deltas if from_above else -fuller.deltas
    order = np.argsort(values, kind="stable")
    n = len(values)
    weights = np.empty(n)
    weights[order] = np.clip(n * kept[1] / kept[0] - np.arange(n), 0.0, 1.0)
    mean = float(weights @ values / weights.sum())
    cut = float(values[weights > 0.0].max())
    own = _sums(fuller, weights * (values - cut) / kept[1], cut - mean)
    # The other group's kept share decides how much is trimmed; its own mean has the opposite sign.
    away = other.deltas - other.deltas.mean()
    away = away if from_above else -away
    theirs = _sums(other, (cut - mean - away) / kept[1], mean - cut)
    parts = [len(sums) / (len(sums) - 1) * float(sums @ sums) for sums in (own, theirs)]
    variance = sum(parts)
    spread = sum(v**2 / (len(sums) - 1) for v, sums in zip(parts, (own, theirs), strict=True))
    return float(np.sqrt(variance)), variance**2 / spread if spread else 1.0


def _sums(side: FilteredGroup, of_kept: Floats, of_all: float) -> Floats:
    """Sums by identity of an influence function: a value a kept pair, and one that every candidate has."""
    people, codes = np.unique(side.candidate_people, return_inverse=True)
    sums = of_all * np.bincount(codes, minlength=len(people))
    np.add.at(sums, np.searchsorted(people, side.people), of_kept)
    return np.asarray(sums / len(codes))


def _imbens_manski(width: float, df: float, level: float) -> float:
    """The c with T(c + width) - T(-c) = level: between the one-sided quantile and the two-sided."""

    def excess(c: float) -> float:
        return float(special.stdtr(df, c + width) - special.stdtr(df, -c) - level)

    two_sided = float(special.stdtrit(df, 0.5 + level / 2.0))
    return float(optimize.brentq(excess, 0.0, 1.01 * two_sided))


@dataclass(frozen=True)
class EfficacyBounds:
    """Bounds on the mean delta of pairs whose edit worked; NaN when undefined.

    Attributes:
        low, high: the bounds, in units of the score.
        status: `ok`, or `undefined` when the efficacy may be zero (then anything is possible).
    """

    low: float
    high: float
    status: str


def efficacy_bounds(
    delta: tuple[float, float], efficacy: tuple[float, float], invalid: tuple[float, float]
) -> EfficacyBounds:
    """Bound delta_valid in delta_obs = e delta_valid + (1 - e) delta_invalid over three intervals.

    The solution (delta_obs - (1 - e) delta_invalid) / e is monotone in each argument when the others are
    fixed, so its extremes lie at the corners.

    Args:
        delta: interval (or twice the point estimate) of the observed mean delta.
        efficacy: interval of the share of pairs whose edit worked, inside [0, 1].
        invalid: range of mean deltas thought possible for pairs whose edit failed.

    Raises:
        ValueError: for an interval whose ends are swapped or not finite, or an efficacy outside [0, 1].
    """
    for name, (low, high) in (("delta", delta), ("efficacy", efficacy), ("invalid", invalid)):
        if not (np.isfinite(low) and np.isfinite(high) and low <= high):
            raise ValueError(f"{name} must be a finite interval (low, high), got ({low}, {high})")
    if not 0.0 <= efficacy[0] <= efficacy[1] <= 1.0:
        raise ValueError(f"efficacy must lie in [0, 1], got {efficacy}")
    if efficacy[0] == 0.0:
        return EfficacyBounds(float("nan"), float("nan"), "undefined")
    corners = [(d - (1.0 - e) * i) / e for d in delta for e in efficacy for i in invalid]
    return EfficacyBounds(min(corners), max(corners), "ok")


def difference_of_bounds(a: EfficacyBounds, b: EfficacyBounds) -> EfficacyBounds:
    """Return bounds on delta_valid of b minus that of a."""
    if "undefined" in (a.status, b.status):
        return EfficacyBounds(float("nan"), float("nan"), "undefined")
    return EfficacyBounds(b.low - a.high, b.high - a.low, "ok")
