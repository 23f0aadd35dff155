"""Integration over the scale s = sqrt(chi2_df / df) that studentises a statistic."""

from __future__ import annotations

import numpy as np
from scipy import special

from harness.stats.numerics import Floats


def chi_scales(df: float, points: int) -> tuple[Floats, Floats]:
    """Return nodes s and weights (summing to 1) for an expectation over s, equally spaced in log s.

    The density is analytic and dies off at both ends, so this trapezoidal rule converges geometrically for
    functions of s that are smooth on the grid.

    Args:
        df: degrees of freedom, positive and finite.
        points: number of nodes.
    """
    edge = 1e-17
    low, high = special.gammaincinv(df / 2, edge), special.gammainccinv(df / 2, edge)
    log_chi2 = np.linspace(float(np.log(2.0 * low)), float(np.log(2.0 * high)), points)
    log_density = 0.5 * (df * log_chi2 - np.exp(log_chi2))
    weights = np.exp(log_density - log_density.max())
    return np.exp(0.5 * (log_chi2 - np.log(df))), weights / weights.sum()
