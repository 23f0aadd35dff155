"""Error rates of a recogniser: FMR, FNMR, EER, thresholds at a target FMR, DET data.

A comparison is a match if its score is at least the threshold. FMR is the share of impostor comparisons that
match, FNMR the share of genuine comparisons that do not (ISO/IEC 19795-1). The binomial intervals here take
comparisons as independent, which those of one person are not: `resampling` has the ones to report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from harness.stats.numerics import Floats, Ints
from harness.stats.proportions import clopper_pearson, wilson

RULE_OF = 30
"""Errors a rate must be expected to rest on (Doddington's rule of 30: within 30 % at 90 % confidence)."""

ThresholdRule = Literal["nearest", "at_most"]


@dataclass(frozen=True)
class BinomialRate:
    """A share of independent comparisons.

    Attributes:
        errors, n: counts; n is positive.
        rate: errors over n, in [0, 1].
        wilson, clopper_pearson: (low, high), in [0, 1].
    """

    errors: int
    n: int
    rate: float
    wilson: tuple[float, float]
    clopper_pearson: tuple[float, float]


def binomial_rate(errors: int, n: int, level: float = 0.95) -> BinomialRate:
    """Return a rate with the intervals of independent comparisons.

    Raises:
        ValueError: for no comparison, counts out of range, or a level outside (0, 1).
    """
    return BinomialRate(
        errors, n, errors / n if n else 0.0, wilson(errors, n, level), clopper_pearson(errors, n, level)
    )


def fmr(impostor: ArrayLike, threshold: float, level: float = 0.95) -> BinomialRate:
    """Return the false match rate: impostor scores of at least the threshold.

    Args:
        impostor: shape (n,), scores; -inf for a comparison that failed and counts as a non-match.
        threshold: a score of this size matches.
        level: two-sided confidence level in (0, 1).

    Raises:
        ValueError: for no score or a NaN.
    """
    scores = _scores(impostor, "impostor")
    return binomial_rate(int((scores >= threshold).sum()), len(scores), level)


def fnmr(genuine: ArrayLike, threshold: float, level: float = 0.95) -> BinomialRate:
    """Return the false non-match rate: genuine scores below the threshold; arguments as in `fmr`."""
    scores = _scores(genuine, "genuine")
    return binomial_rate(int((scores < threshold).sum()), len(scores), level)


def _scores(values: ArrayLike, name: str) -> Floats:
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or not len(scores) or np.isnan(scores).any():
        raise ValueError(f"{name} scores must be one row of numbers, at least one, got shape {scores.shape}")
    return scores


@dataclass(frozen=True)
class Curve:
    """Both error rates at every threshold where one of them changes.

    Attributes:
        threshold: shape (k,), ascending.
        fmr, fnmr: shape (k,), in [0, 1]; fmr falls, fnmr rises.
    """

    threshold: Floats
    fmr: Floats
    fnmr: Floats


def curve(genuine: ArrayLike, impostor: ArrayLike) -> Curve:
    """Return the error rates at every observed score.

    Raises:
        ValueError: for no genuine or no impostor score, or a NaN.
    """
    own, other = _scores(genuine, "genuine"), _scores(impostor, "impostor")
    values, place = np.unique(np.concatenate([own, other]), return_inverse=True)
    counts = [np.bincount(part, minlength=len(values)) for part in (place[: len(own)], place[len(own) :])]
    return curve_from_counts(values, counts[0], counts[1])


def curve_from_counts(values: Floats, genuine: Ints, impostor: Ints) -> Curve:
    """Return the error rates from histograms.

    Args:
        values: shape (k,), ascending: the scores, or the lower edges of the bins.
        genuine, impostor: shape (k,), how many comparisons have each score.

    Raises:
        ValueError: if one kind of comparison has none.
    """
    n_own, n_other = int(genuine.sum()), int(impostor.sum())
    if not (n_own and n_other):
        raise ValueError(f"both kinds need a comparison, got {n_own} genuine and {n_other} impostor")
    below_own, below_other = np.cumsum(genuine) - genuine, np.cumsum(impostor) - impostor
    return Curve(values, (n_other - below_other) / n_other, below_own / n_own)


@dataclass(frozen=True)
class EqualErrorRate:
    """The equal error rate, read off in both customary ways.

    Attributes:
        threshold: lowest threshold at which the two rates differ least.
        average: mean of the two rates there.
        interpolated: where straight lines between neighbouring thresholds cross.
    """

    threshold: float
    average: float
    interpolated: float


def equal_error_rate(rates: Curve) -> EqualErrorRate:
    """Return the equal error rate of a curve."""
    gap = rates.fmr - rates.fnmr
    nearest = int(np.argmin(np.abs(gap)))
    average = float(rates.fmr[nearest] + rates.fnmr[nearest]) / 2.0
    # Above the highest score nothing matches, so the last gap is -1 and there always is a crossing.
    far, near = np.append(rates.fmr, 0.0), np.append(rates.fnmr, 1.0)
    after = int(np.argmax(far - near <= 0.0))
    if after == 0:
        return EqualErrorRate(float(rates.threshold[nearest]), average, float(far[0]))
    before = after - 1
    above, below = float(far[before] - near[before]), float(far[after] - near[after])
    interpolated = float(near[before] + (near[after] - near[before]) * above / (above - below))
    return EqualErrorRate(float(rates.threshold[nearest]), average, interpolated)


def threshold_at_fmr(
    scores: Floats, n: int, target: float, rule: ThresholdRule = "nearest"
) -> tuple[float, float]:
    """Return the threshold whose FMR comes nearest to a target, and that FMR.

    Args:
        scores: shape (k,), the k highest of all impostor scores, descending; enough of them that a share of
            `target` lies above the last, or all n.
        n: number of impostor comparisons, at least k.
        target: wanted FMR, in (0, 1).
        rule: `nearest` (of two equally near, the lower FMR), or `at_most` for the highest FMR that does not
            exceed the target. The threshold is an impostor score, or the next number above the highest.

    Raises:
        ValueError: for a target outside (0, 1), no score, or too few scores.
    """
    if not 0.0 < target < 1.0:
        raise ValueError(f"a target FMR must lie in (0, 1), got {target}")
    # The small allowance keeps .29 * 100 = 28.999999999999996 from losing an error.
    allowed = int(np.floor(target * n * (1.0 + 1e-12)))
    if not 0 < len(scores) <= n or allowed >= n:
        raise ValueError(f"need 1 to {n} of the highest scores, got {len(scores)}")
    if allowed >= len(scores):
        raise ValueError(
            f"a target FMR of {target} needs the {allowed + 1} highest scores, got {len(scores)}"
        )
    pivot = scores[allowed]
    above, upto = (int(np.searchsorted(-scores, -pivot, side=side)) for side in ("left", "right"))
    # With an allowance again: halfway between the two, the lower FMR.
    if rule == "nearest" and upto + above < 2.0 * target * n * (1.0 - 1e-12):
        return float(pivot), upto / n
    return float(scores[above - 1] if above else np.nextafter(pivot, np.inf)), above / n


def identities_for_fmr(target: float) -> int:
    """Return the identities one group needs to show a target FMR by the rule of 30.

    G people make G (G - 1) / 2 pairs of people, of which a share of `target` must be at least 30 errors:
    246 identities for .001. More pictures of the same people do not help.

    Raises:
        ValueError: for a target outside (0, 1).
    """
    if not 0.0 < target < 1.0:
        raise ValueError(f"a target FMR must lie in (0, 1), got {target}")
    wanted = 2.0 * RULE_OF / target
    count = int(np.ceil((1.0 + np.sqrt(1.0 + 4.0 * wanted)) / 2.0))
    return count - 1 if (count - 1) * (count - 2) * (1.0 + 1e-12) >= wanted else count


def lowest_fmr(identities: int) -> float | None:
    """Return the lowest target FMR that so many identities a group can show, or None if there is none."""
    pairs = identities * (identities - 1) / 2.0
    return RULE_OF / pairs if pairs > RULE_OF else None


def det_points(rates: Curve, targets: Floats) -> Curve:
    """Read a curve off at wanted FMRs: the lowest threshold whose FMR is at most each of them.

    Args:
        rates: the curve.
        targets: shape (m,), FMRs in [0, 1].

    Returns:
        At most m points, ascending in threshold, without repeats; targets that no observed threshold
        reaches are left out.
    """
    places = np.searchsorted(-rates.fmr, -np.sort(targets)[::-1], side="left")
    places = np.unique(places[places < len(rates.fmr)])
    return Curve(rates.threshold[places], rates.fmr[places], rates.fnmr[places])
