"""How unevenly error rates fall on groups: the measures in use, and what chance alone would make of them.

All measures of spread are positive by construction, so no interval of theirs can contain parity. Each comes
with a null instead: the same measure when the people's group labels are permuted. For impostor comparisons
the threshold is set anew in every permutation so that the pooled FMR stays what it was; people of one group
look alike, and without this a permutation would see fewer false matches than the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from harness.stats.comparisons import Comparisons
from harness.stats.error_rates import threshold_at_fmr
from harness.stats.numerics import Floats, Ints

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
    """A measure of inequity beside its null.

    Attributes:
        name: as in `measures`.
        value: NaN where undefined.
        status: `ok`, `infinite_min_is_zero`, `undefined_0_over_0` or `undefined_group_without_rate`.
        null_median, null_extreme: of the permutations: the median, and what a share of 1 - level exceeds (for
            `fdr`, falls below); inf and NaN as in `measures`.
        p: share of permutations at least as uneven, the data counted among them; NaN where undefined.
    """

    name: str
    value: float
    status: str
    null_median: float
    null_extreme: float
    p: float


def with_null(fmr: Floats, fnmr: Floats, null: tuple[Floats, Floats], level: float = 0.95) -> list[Measure]:
    """Return all measures with what permuted labels make of them.

    A permutation in which a measure is undefined counts as at least as uneven as the data.

    Args:
        fmr, fnmr: shape (k,).
        null: FMR and FNMR under permuted labels, shape (draws, k) each.
        level: of the extreme.
    """
    observed, permuted = measures(fmr, fnmr), measures(*null)
    rates_of = {"fmr": (fmr,), "fnmr": (fnmr,)}
    found = []
    for name, value in observed.items():
        sign = -1.0 if name == "fdr" else 1.0
        draws, number = sign * permuted[name], float(value)
        status = _status(number, rates_of.get(name.rsplit("_", 1)[-1], (fmr, fnmr)))
        shares = np.sort(np.where(np.isnan(draws), np.inf, draws))
        median, extreme = (float(sign * shares[_spot(q, len(shares))]) for q in (0.5, level))
        # A permutation that repeats the data may differ from it in the last digit; inf - inf is no number.
        slack = 1e-12 * max(1.0, abs(number)) if np.isfinite(number) else 0.0
        reached = shares >= sign * number - slack
        p = (1.0 + float(reached.sum())) / (1.0 + len(shares)) if status in (OK, INFINITE) else float("nan")
        shown = number if status == OK else float("nan")
        found.append(Measure(name, shown, status, median, extreme, p))
    return found


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


def permuted_fmr(parts: Sequence[Comparisons], pooled: float, permuted: Ints, groups: int) -> Floats:
    """FMR of each group against itself when people's labels are permuted, the pooled FMR kept.

    Args:
        parts: impostor comparisons of all people, within and across groups, of one design and one set of
            pictures; the kept scores must reach somewhat deeper than a share of `pooled`.
        pooled: FMR of the same-group comparisons in the data; 0 gives zeros.
        permuted: shape (draws, G).
        groups: number of groups.

    Returns:
        Shape (draws, groups); NaN for a group without comparisons, or where the kept scores do not reach.
    """
    first, second = (np.concatenate([getattr(part, side) for part in parts]) for side in ("first", "second"))
    scores = np.concatenate([part.scores for part in parts])
    order = np.argsort(-scores, kind="stable")
    first, second, scores = first[order], second[order], scores[order]
    found = np.full((len(permuted), groups), np.nan)
    for draw, labels in enumerate(permuted):
        own = labels[None, :] == np.arange(groups)[:, None]
        totals = np.array(
            [replace(parts[0], left=parts[0].left * row, right=parts[0].right * row).n for row in own]
        )
        same = np.flatnonzero(labels[first] == labels[second])
        matched = _matches_at(scores[same], int(totals.sum()), pooled)
        if matched is not None:
            counts = np.bincount(labels[first[same[:matched]]], minlength=groups)
            found[draw] = np.where(totals > 0, counts / np.maximum(totals, 1), np.nan)
    return found


def _matches_at(scores: Floats, total: int, pooled: float) -> int | None:
    """Matches that make up the pooled FMR, or None where the kept scores do not reach that deep."""
    if pooled in (0.0, 1.0):
        return 0 if pooled == 0.0 else total if len(scores) == total else None
    if not pooled * total * (1.0 + 1e-12) < len(scores):
        return None
    threshold, _ = threshold_at_fmr(scores, total, pooled)
    return int(np.searchsorted(-scores, -threshold, side="right"))
