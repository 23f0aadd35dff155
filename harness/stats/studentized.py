"""The studentized range: tail and quantile, accurate and fast enough for a table of bands.

With W the range of k standard normals and s^2 an independent chi-square over its df,

    P(Q > q) = E[ P(W > q s) ],   P(W > w) = k int phi(z) (Phi(z)^(k-1) - (Phi(z) - Phi(z-w))^(k-1)) dz

(Copenhaver & Holland 1988). Both integrands are analytic, so the trapezoidal rule converges geometrically.
The quantile at one level and k is a smooth function of 1/df: it is solved at Chebyshev nodes once and
interpolated afterwards.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike
from scipy import interpolate, optimize, special

from harness.stats.numerics import Floats
from harness.stats.quadrature import chi_scales

MIN_DF = 2.0
"""Below two degrees of freedom no quantile is given, as in R."""

# The largest of the normals; where a wide range matters, it lies around half of that range.
_Z = np.linspace(-9.0, 14.0, 231)
_LOG_CDF = special.log_ndtr(_Z)
_LOG_WEIGHT = -0.5 * _Z**2 - 0.5 * np.log(2.0 * np.pi) + np.log(_Z[1] - _Z[0])
_SCALE_POINTS = 160
_NODES = 36
_WIDEST = 18.0
_KNOTS = 3601
_CHUNK = 4096
_EDGE = 1e-17
_P_POINTS = 128


def range_tail(w: Floats, k: int) -> Floats:
    """Return P(W > w) for the range of k standard normals, with small relative error in the tail."""
    log_ratio = np.minimum(special.log_ndtr(_Z - w[:, None]) - _LOG_CDF, 0.0)
    # log(1 - ratio), with all digits at both ends; the ratio is 1 only at w = 0, where the tail is 1.
    with np.errstate(divide="ignore"):
        near_one, near_zero = np.log(-np.expm1(log_ratio)), np.log1p(-np.exp(log_ratio))
    log_rest = np.where(log_ratio > -np.log(2.0), near_one, near_zero)
    lost = -np.expm1((k - 1) * log_rest)
    weights: Floats = k * np.exp(_LOG_WEIGHT + (k - 1) * _LOG_CDF)
    return np.asarray(lost @ weights)


def tail(q: float, k: int, df: float) -> float:
    """Return P(Q > q) for k groups and df degrees of freedom (infinity allowed).

    Raises:
        ValueError: for k < 2, df <= 0 or q < 0.
    """
    if k < 2 or not df > 0 or not q >= 0:
        raise ValueError(f"the studentized range needs k >= 2, df > 0 and q >= 0, got {k}, {df}, {q}")
    if np.isinf(df):
        return float(range_tail(np.array([q]), k)[0])
    s, weights = chi_scales(df, _SCALE_POINTS)
    return float(weights @ range_tail(q * s, k))


def _solve(level: float, k: int, df: float) -> float:
    """Solve P(Q <= q) = level for one df."""
    # One comparison bounds the quantile from below, Bonferroni over all pairs from above.
    tails = (1.0 - level) / np.array([2.0, k * (k - 1.0)])
    bounds = -special.ndtri(tails) if np.isinf(df) else -special.stdtrit(df, tails)
    low, high = np.log(np.sqrt(2.0) * bounds)
    miss = np.log1p(-level)
    return float(
        np.exp(
            optimize.brentq(
                lambda x: np.log(tail(np.exp(x), k, df)) - miss, low - 1e-6, high + 1e-6, xtol=1e-13
            )
        )
    )


@lru_cache(maxsize=64)
def _interpolant(level: float, k: int) -> Floats:
    """Return Chebyshev coefficients of log quantile in 1/df over df from 2 to infinity."""
    nodes = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
    values = [np.log(_solve(level, k, 1.0 / x)) for x in (nodes + 1.0) * 0.25]
    return chebyshev.chebfit(nodes, np.array(values), _NODES - 1)


def quantile(level: float, k: int, df: ArrayLike) -> Floats:
    """Return the studentized range quantile for each df; NaN where df is below 2 or NaN.

    Args:
        level: probability below the quantile, in (0, 1).
        k: number of groups, at least 2.
        df: degrees of freedom, any shape.

    Raises:
        ValueError: for k < 2 or a level outside (0, 1).
    """
    if k < 2 or not 0.0 < level < 1.0:
        raise ValueError(f"the quantile needs k >= 2 and a level in (0, 1), got {k} and {level}")
    freedom = np.asarray(df, dtype=np.float64)
    out = np.full(freedom.shape, np.nan)
    known = freedom >= MIN_DF * (1.0 - 1e-12)
    if k == 2:
        out[known] = np.sqrt(2.0) * special.stdtrit(freedom[known], 0.5 + level / 2.0)
    elif known.any():
        x = 4.0 / freedom[known] - 1.0
        out[known] = np.exp(chebyshev.chebval(x, _interpolant(level, k)))
    return out


@lru_cache(maxsize=64)
def _log_tail(k: int) -> interpolate.CubicSpline:
    """Return log P(W > w) as a spline in w, which is off by less than 1e-9 up to the widest range."""
    w = np.linspace(0.0, _WIDEST, _KNOTS)
    return interpolate.CubicSpline(w, np.log(range_tail(w, k)))


def p_values(q: ArrayLike, k: int, df: ArrayLike) -> Floats:
    """Return P(Q > q) for many tests; NaN where q is NaN or df is below 2 or NaN.

    Args:
        q: studentised ranges, at least 0, any shape.
        k: number of groups, at least 2.
        df: degrees of freedom, shape of ``q``.

    Raises:
        ValueError: for k < 2.
    """
    if k < 2:
        raise ValueError(f"the studentized range needs k >= 2, got {k}")
    ranges, freedom = np.broadcast_arrays(np.asarray(q, dtype=np.float64), np.asarray(df, dtype=np.float64))
    out = np.full(ranges.shape, np.nan)
    known = (freedom >= MIN_DF * (1.0 - 1e-12)) & np.isfinite(ranges)
    if k == 2:
        out[known] = 2.0 * special.stdtr(freedom[known], -ranges[known] / np.sqrt(2.0))
        return out
    tails = [
        _many(ranges[known][start : start + _CHUNK], k, freedom[known][start : start + _CHUNK])
        for start in range(0, int(known.sum()), _CHUNK)
    ]
    out[known] = np.concatenate(tails) if tails else 0.0
    return out


def _many(q: Floats, k: int, df: Floats) -> Floats:
    """Return P(Q > q), all defined, shape (n,).

    The integrand is a density of log chi2 with its peak moved by the tail, which falls as exp(-q^2 s^2 / 4);
    the nodes move along, so that a small probability keeps its digits.
    """
    half = df[:, None] / 2.0
    edges = special.gammaincinv(half, _EDGE), special.gammainccinv(half, _EDGE)
    shift = np.log1p(q[:, None] ** 2 / (4.0 * half))
    low, high = (np.log(2.0 * edge) - shift for edge in edges)
    x = low + (high - low) * np.linspace(0.0, 1.0, _P_POINTS)
    log_density = half * (x - np.log(2.0)) - 0.5 * np.exp(x) - special.gammaln(half)
    w = q[:, None] * np.exp(0.5 * (x - np.log(2.0 * half)))
    # Beyond the widest range two groups alone decide: k (k - 1) / 2 pairs, each with two sides.
    beyond = np.log(k * (k - 1.0)) + special.log_ndtr(-w / np.sqrt(2.0))
    log_tail = np.where(w <= _WIDEST, _log_tail(k)(np.minimum(w, _WIDEST)), beyond)
    step = (high - low)[:, 0] / (_P_POINTS - 1)
    return np.asarray(np.minimum(1.0, np.exp(log_density + log_tail).sum(axis=1) * step))
