"""How unevenly error rates fall on groups: the measures in use, and what chance alone would make of them.

All measures of spread are positive by construction, so no interval of theirs can contain parity. Those of
FNMR come with a null instead: the same measure when the people's group labels are permuted. For FMR that null
is wrong, because people of one group look alike and relabelled groups do not (groups with centres of their
own in the embedding were called uneven in 33 to 35 % at a nominal 5 %). There the ratio of every two groups'
rates is tested on its logarithm with the person-level variances (`ratio_tests`), Holm; its size was measured,
separate centres included: `python -m tests.benchmarks.recognition`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from scipy import special

from harness.stats.comparisons import Comparisons
from harness.stats.contrasts import satterthwaite
from harness.stats.families import adjust
from harness.stats.numerics import Floats, Ints
from harness.stats.resampling import Estimate

ALPHA = 0.5
"""Weight of FMR against FNMR in FDR, the inequity rate and GARBE."""

OK = "ok"
INFINITE = "infinite_min_is_zero"
NO_ERRORS = "undefined_0_over_0"
NO_RATE = "undefined_group_without_rate"


def max_over_geomean(rates: Floats) -> Floats:
    """Highest rate over the geometric mean of all (NIST IR 8429), at least 1; groups on the last axis.

    Here and below: inf where a rate is 0 and another is not, NaN where all are 0 or one is NaN.
    """
    with np.errstate(divide="ignore"):
        centre = np.exp(np.log(rates).mean(axis=-1))
    return _ratio(rates.max(axis=-1), centre)


def max_over_min(rates: Floats) -> Floats:
    """Highest rate over the lowest, at least 1."""
    return _ratio(rates.max(axis=-1), rates.min(axis=-1))


def _ratio(top: Floats, bottom: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(top / bottom)


def gini(rates: Floats) -> Floats:
    """Gini coefficient with the correction n / (n - 1), in [0, 1] up to rounding (Howard et al. 2022)."""
    k = rates.shape[-1]
    spread = np.abs(rates[..., :, None] - rates[..., None, :]).sum(axis=(-1, -2))
    return _ratio(k * spread, (k - 1.0) * 2.0 * k**2 * rates.mean(axis=-1))


def largest_difference(rates: Floats) -> Floats:
    """Highest rate minus the lowest, in [0, 1]."""
    return np.asarray(rates.max(axis=-1) - rates.min(axis=-1))


def fdr(fmr: Floats, fnmr: Floats) -> Floats:
    """FDR (Pereira & Marcel 2021), 1 - a max|dFMR| - (1 - a) max|dFNMR|; parity is 1."""
    return 1.0 - (ALPHA * largest_difference(fmr) + (1.0 - ALPHA) * largest_difference(fnmr))


def inequity_rate(fmr: Floats, fnmr: Floats) -> Floats:
    """Inequity rate (Grother 2021), (max / min FMR)^a (max / min FNMR)^(1 - a); 1 is parity."""
    with np.errstate(invalid="ignore"):
        return np.asarray(max_over_min(fmr) ** ALPHA * max_over_min(fnmr) ** (1.0 - ALPHA))


def garbe(fmr: Floats, fnmr: Floats) -> Floats:
    """GARBE (Howard et al. 2022), a Gini(FMR) + (1 - a) Gini(FNMR); 0 is parity."""
    return np.asarray(ALPHA * gini(fmr) + (1.0 - ALPHA) * gini(fnmr))


OF_ONE = MappingProxyType(
    {
        "max_over_geomean": max_over_geomean,
        "max_over_min": max_over_min,
        "largest_difference": largest_difference,
        "gini": gini,
    }
)
"""Measures of one error rate."""
OF_BOTH: MappingProxyType[str, Callable[[Floats, Floats], Floats]] = MappingProxyType(
    {"fdr": fdr, "inequity_rate": inequity_rate, "garbe": garbe}
)
"""Measures of FMR and FNMR together."""


def measures(fmr: Floats, fnmr: Floats) -> dict[str, Floats]:
    """All measures of groups on the last axis, named like `max_over_geomean_fmr`.

    Args:
        fmr, fnmr: shape (..., k), rates in [0, 1], NaN for a group without one; k at least 2.

    Returns:
        Name -> shape (...); inf and NaN as `max_over_geomean` says.

    Raises:
        ValueError: for fewer than two groups.
    """
    if fmr.shape != fnmr.shape or fmr.shape[-1] < 2:
        raise ValueError(f"fmr and fnmr must agree and have two groups, got {fmr.shape} and {fnmr.shape}")
    found = {
        f"{name}_{metric}": measure(rates)
        for name, measure in OF_ONE.items()
        for metric, rates in (("fmr", fmr), ("fnmr", fnmr))
    }
    return found | {name: measure(fmr, fnmr) for name, measure in OF_BOTH.items()}


@dataclass(frozen=True)
class Measure:
    """A measure of inequity, and beside one of FNMR its null.

    Attributes:
        name: as in `measures`.
        value: NaN where undefined.
        status: `ok`, `infinite_min_is_zero`, `undefined_0_over_0` or `undefined_group_without_rate`.
        null_median, null_extreme: of the permutations: the median, and what a share of 1 - level exceeds; inf
            and NaN as in `measures`. NaN for a measure that FMR enters.
        p: share of permutations at least as uneven, the data counted among them; NaN where undefined, and for
            a measure that FMR enters.
    """

    name: str
    value: float
    status: str
    null_median: float
    null_extreme: float
    p: float

    @property
    def has_null(self) -> bool:
        """Whether permuted labels are a null of it."""
        return self.name.endswith("_fnmr")


def with_null(fmr: Floats, fnmr: Floats, null: Floats, level: float = 0.95) -> list[Measure]:
    """Return all measures, those of FNMR with what permuted labels make of them.

    A permutation in which a measure is undefined counts as at least as uneven as the data.

    Args:
        fmr, fnmr: shape (k,).
        null: FNMR under permuted labels, shape (draws, k).
        level: of the extreme.
    """
    rates_of = {"fmr": (fmr,), "fnmr": (fnmr,)}
    found = []
    for name, value in measures(fmr, fnmr).items():
        number = float(value)
        status = _status(number, rates_of.get(name.rsplit("_", 1)[-1], (fmr, fnmr)))
        measure = Measure(name, number if status == OK else np.nan, status, np.nan, np.nan, np.nan)
        if measure.has_null:
            draws = OF_ONE[name.removesuffix("_fnmr")](null)
            measure = _beside(measure, number, draws, level)
        found.append(measure)
    return found


def _beside(measure: Measure, value: float, draws: Floats, level: float) -> Measure:
    shares = np.sort(np.where(np.isnan(draws), np.inf, draws))
    median, extreme = (float(shares[_spot(q, len(shares))]) for q in (0.5, level))
    # A permutation that repeats the data may differ from it in the last digit; inf - inf is no number.
    slack = 1e-12 * max(1.0, abs(value)) if np.isfinite(value) else 0.0
    reached = float((shares >= value - slack).sum())
    p = (1.0 + reached) / (1.0 + len(shares)) if measure.status in (OK, INFINITE) else float("nan")
    return Measure(measure.name, measure.value, measure.status, median, extreme, p)


@dataclass(frozen=True)
class RatioTests:
    """Ratios of two groups' rates; arrays over the k (k - 1) / 2 pairs of groups.

    Attributes:
        a, b: the groups.
        ratio: rate of b over that of a; NaN where one is 0 or has no variance.
        low, high: its interval, single.
        p, p_adjusted: of a ratio of 1, and by Holm over all pairs, those without a p counted as 1.
    """

    a: Ints
    b: Ints
    ratio: Floats
    low: Floats
    high: Floats
    p: Floats
    p_adjusted: Floats


def ratio_tests(rates: Sequence[Estimate], level: float) -> RatioTests:
    """Compare the rates of groups that share nobody, pair by pair, on the logarithm.

    se^2 = V_a / r_a^2 + V_b / r_b^2 with the resampled variances, Student's t on Satterthwaite's degrees of
    freedom.

    Args:
        rates: of k groups at one threshold.
        level: of the intervals, in (0, 1).
    """
    a, b = (index.astype(np.int64) for index in np.triu_indices(len(rates), 1))
    usable = np.array([item.status == "ok" and item.rate > 0.0 and item.variance > 0.0 for item in rates])
    rate, variance, df = (
        np.where(usable, [getattr(item, name) for item in rates], np.nan)
        for name in ("rate", "variance", "df")
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.sqrt(variance) / rate
        distance = np.log(rate[b] / rate[a])
    se = np.hypot(error[a], error[b])
    nu = satterthwaite(np.stack([error[a], error[b]]), np.stack([df[a], df[b]]))
    half = special.stdtrit(nu, 0.5 + level / 2.0) * se
    p = 2.0 * special.stdtr(nu, -np.abs(distance / se))
    return RatioTests(
        a, b, np.exp(distance), np.exp(distance - half), np.exp(distance + half), p, adjust(p).p
    )


def _spot(share: float, draws: int) -> int:
    return min(draws - 1, int(np.ceil(share * draws)) - 1)


def _status(value: float, rates: tuple[Floats, ...]) -> str:
    if any(np.isnan(part).any() for part in rates):
        return NO_RATE
    # 0 / 0 in one rate goes before x / 0 in the other.
    if np.isnan(value):
        return NO_ERRORS
    return OK if np.isfinite(value) else INFINITE


def permuted_labels(labels: Ints, strata: Ints, draws: int, seed: int) -> Ints:
    """Permute group labels of people within strata.

    Args:
        labels: shape (G,).
        strata: shape (G,), codes; e.g. whether a person has probes at all, so that every group keeps its
            number of those.
        draws: number of permutations.
        seed: of the generator.

    Returns:
        Shape (draws, G).
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    found = np.tile(labels, (draws, 1))
    for stratum in np.unique(strata):
        here = np.flatnonzero(strata == stratum)
        found[:, here] = rng.permuted(found[:, here], axis=1)
    return found


def permuted_fnmr(genuine: Comparisons, threshold: float, permuted: Ints, groups: int) -> Floats:
    """FNMR of each group when people's labels are permuted, at one threshold; shape (draws, groups)."""
    size = len(genuine.left)
    matched = np.bincount(genuine.first[: genuine.matches(threshold)], minlength=size)
    errors, counts = genuine.left - matched, genuine.left
    rows = [
        [np.bincount(labels, weights=part, minlength=groups) for part in (errors, counts)]
        for labels in permuted
    ]
    found = np.array(rows)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(found[:, 0] / found[:, 1])
