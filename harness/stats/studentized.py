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
from scipy import optimize, special

from harness.stats.numerics import Floats
from harness.stats.quadrature import chi_scales

MIN_DF = 2.0
"""Below two degrees of freedom no quantile is given, as in R."""

_Z = np.linspace(-9.0, 9.0, 181)
_LOG_CDF = special.log_ndtr(_Z)
_LOG_WEIGHT = -0.5 * _Z**2 - 0.5 * np.log(2.0 * np.pi) + np.log(_Z[1] - _Z[0])
_SCALE_POINTS = 160
_NODES = 36


def range_tail(w: Floats, k: int) -> Floats:
    """Return P(W > w) for the range of k standard normals, with small relative error in the tail."""
    log_ratio = special.log_ndtr(_Z - w[:, None]) - _LOG_CDF
    # log(1 - ratio); the ratio is 1 only at w = 0, where the tail is 1.
    with np.errstate(divide="ignore"):
        log_rest = np.log(-np.expm1(np.minimum(log_ratio, 0.0)))
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
