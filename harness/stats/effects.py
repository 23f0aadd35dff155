"""Standardised effect sizes with noncentral-t intervals, and the signed-rank test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special, stats

from harness.stats.cells import blocks, checked
from harness.stats.sandwich import Structure

_MAX_T = 1e4


@dataclass(frozen=True)
class EffectSize:
    """Standardised mean delta of one concept; NaN where undefined.

    Attributes:
        dz: mean delta over the standard deviation of the deltas.
        dz_low, dz_high: interval by inverting the noncentral t distribution, pairs taken as independent.
        g: dz times Hedges' exact small-sample factor; undefined for two pairs.
        g_low, g_high: the interval times the same factor.
        status: `ok`, `zero_variance`, or `undefined` below two pairs.
    """

    dz: float
    dz_low: float
    dz_high: float
    g: float
    g_low: float
    g_high: float
    status: str


def hedges_factor(df: float) -> float:
    """Return J = gamma(v/2) / (sqrt(v/2) gamma((v-1)/2)) for v = df > 1 (Hedges 1981), NaN otherwise."""
    if df <= 1:
        return float("nan")
    return float(np.exp(special.gammaln(df / 2) - special.gammaln((df - 1) / 2)) / np.sqrt(df / 2))


def noncentral_t_tail(t: float, df: float, ncp: float) -> float:
    """Return P(T <= t) for the noncentral t by integration over the scale.

    P(T <= t) = E[Phi(t s - ncp)] with s^2 = chi2_df / df. The integrand is analytic, so the trapezoidal
    rule in log s is exact to rounding, also in the far tails where series lose all digits.
    """
    edge = 1e-18
    low, high = np.log(
        2.0 * np.array([special.gammaincinv(df / 2, edge), special.gammainccinv(df / 2, edge)])
    )
    log_chi2 = np.linspace(low, high, 600)
    log_density = 0.5 * (df * log_chi2 - np.exp(log_chi2))
    weights = np.exp(log_density - log_density.max())
    scales = np.exp(0.5 * (log_chi2 - np.log(df)))
    return float(weights @ special.ndtr(t * scales - ncp) / weights.sum())


def noncentrality_interval(t: float, df: float, level: float) -> tuple[float, float]:
    """Return the noncentralities for which t is the upper and the lower (1 - level) / 2 quantile.

    NaN, NaN for |t| beyond 1e4, where effect sizes say nothing.
    """
    if not abs(t) <= _MAX_T:
        return float("nan"), float("nan")
    alpha = (1.0 - level) / 2.0
    reach = 10.0 + abs(t) + 10.0 * (1.0 + abs(t) / np.sqrt(df)) * max(1.0, -special.ndtri(alpha))

    def solve(target: float) -> float:
        return float(
            optimize.brentq(
                lambda ncp: noncentral_t_tail(t, df, ncp) - target, t - reach, t + reach, xtol=1e-12
            )
        )

    return solve(1.0 - alpha), solve(alpha)


def effect_size(source: ArrayLike, transformed: ArrayLike, *, level: float = 0.999) -> EffectSize:
    """Return dz and Hedges' g of one concept, shape (n,); pairs with a non-finite score are left out.

    Raises:
        ValueError: for shapes that differ or more than one concept.
    """
    before, after, _ = checked(source, transformed, np.zeros(len(np.asarray(source)), dtype=np.int64))
    if before.shape[1] != 1:
        raise ValueError(f"an effect size takes one concept, got {before.shape[1]}")
    (block,) = blocks(before, after, np.zeros(len(before), dtype=np.int64))
    n = len(block.rows)
    blank = (float("nan"),) * 6
    if n < 2:
        return EffectSize(*blank, status="undefined")
    if block.noise(block.residuals, Structure.of(np.arange(n)))[0]:
        return EffectSize(*blank, status="zero_variance")
    dz = float(block.mean[0] / block.residuals[:, 0].std() * np.sqrt((n - 1) / n))
    low, high = (ncp / np.sqrt(n) for ncp in noncentrality_interval(dz * np.sqrt(n), n - 1.0, level))
    j = hedges_factor(n - 1)
    return EffectSize(dz, low, high, j * dz, j * low, j * high, "ok")


@dataclass(frozen=True)
class SignedRank:
    """Wilcoxon's signed-rank test of one concept.

    Attributes:
        statistic: sum of the ranks of the positive deltas; NaN when undefined.
        p: two-sided, normal approximation with tie and continuity correction; NaN when undefined.
        n_zero: deltas of zero, which are dropped.
        ties: whether absolute deltas are tied.
        status: `ok`, or `undefined` when no delta differs from zero.
    """

    statistic: float
    p: float
    n_zero: int
    ties: bool
    status: str


def signed_rank(deltas: ArrayLike) -> SignedRank:
    """Test that deltas, shape (n,), are symmetric about zero (Wilcoxon 1945); non-finite ones are dropped."""
    values = np.asarray(deltas, dtype=np.float64)
    values = values[np.isfinite(values)]
    moved = values[values != 0.0]
    n = len(moved)
    if n == 0:
        return SignedRank(float("nan"), float("nan"), len(values), False, "undefined")
    ranks = stats.rankdata(np.abs(moved))
    statistic = float(ranks[moved > 0].sum())
    _, counts = np.unique(ranks, return_counts=True)
    variance = n * (n + 1) * (2 * n + 1) / 24 - float((counts.astype(float) ** 3 - counts).sum()) / 48
    away = statistic - n * (n + 1) / 4
    z = (away - 0.5 * np.sign(away)) / np.sqrt(variance)
    p = float(min(1.0, 2.0 * special.ndtr(-abs(z))))
    return SignedRank(statistic, p, len(values) - n, bool((counts > 1).any()), "ok")
