"""Standardised effect sizes with noncentral-t intervals, and the signed-rank test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special, stats

from harness.stats.cells import blocks, checked
from harness.stats.quadrature import chi_scales
from harness.stats.sandwich import Structure

_MAX_T = 1e4
_Z_EDGE = 9.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


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


def noncentral_t_cdf(t: float, df: float, ncp: float) -> float:
    """Return P(T <= t) for the noncentral t, T = (Z + ncp) / s with s^2 = chi2_df / df, by quadrature.

    Series (scipy's nct among them) lose all digits or return NaN in the far tails. Here one of the two
    variables is integrated out in closed form and the other numerically: Z when t is large against the
    spread of s, s otherwise, so that the integrand is smooth on the grid.
    """
    if t < 0.0:
        return 1.0 - noncentral_t_cdf(-t, df, -ncp)
    if t > np.sqrt(2.0 * df):
        low, high = max(-ncp, -_Z_EDGE), _Z_EDGE
        if low >= high:
            return float(special.ndtr(-ncp))
        z = 0.5 * (high - low) * _NODES + 0.5 * (high + low)
        density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        inside = special.gammaincc(df / 2, 0.5 * df * ((z + ncp) / t) ** 2)
        return float(special.ndtr(-ncp) + 0.5 * (high - low) * (_WEIGHTS @ (density * inside)))
    scales, weights = chi_scales(df, 600)
    return float(weights @ special.ndtr(t * scales - ncp))


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
                lambda ncp: noncentral_t_cdf(t, df, ncp) - target, t - reach, t + reach, xtol=1e-12
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
    spread = block.residuals[:, 0].std()
    if spread == 0.0:
        return EffectSize(*blank, status="zero_variance")
    dz = float(block.mean[0] / spread * np.sqrt((n - 1) / n))
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
