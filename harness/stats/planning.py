"""Before the data: what effect a design can find, and how many identities an answer takes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from harness.stats.effects import noncentral_t_cdf
from harness.stats.numerics import Floats


@lru_cache(maxsize=4096)
def detectable_ratio(df: float, level: float = 0.999, power: float = 0.8) -> float:
    """Return the minimum detectable effect in standard errors.

    The smallest r with P(|T| > t_crit) = power for noncentral t with noncentrality r, the far tail dropped
    (it adds less than 1e-6 at any power of interest).

    Args:
        df: degrees of freedom of the standard error, positive.
        level: two-sided confidence level of the test.
        power: wanted probability of finding the effect, above (1 - level) / 2.

    Raises:
        ValueError: for an argument out of range.
    """
    if not df > 0 or not 0.0 < level < 1.0 or not (1.0 - level) / 2.0 < power < 1.0:
        raise ValueError(f"need df > 0, 0 < level < 1, power in (alpha/2, 1), got {df}, {level}, {power}")
    crit = float(special.stdtrit(df, 0.5 + level / 2.0))
    reach = 40.0 + 3.0 * crit * (1.0 + 1.0 / np.sqrt(df))
    return float(
        optimize.brentq(lambda r: 1.0 - noncentral_t_cdf(crit, df, r) - power, 0.0, reach, xtol=1e-10)
    )


def minimum_detectable_effect(
    se: ArrayLike, df: ArrayLike, *, level: float = 0.999, power: float = 0.8
) -> Floats:
    """Return the smallest mean delta that would be found with the given power, NaN where undefined.

    Args:
        se: standard errors, in units of the score.
        df: their degrees of freedom, same shape.
        level: two-sided confidence level.
        power: probability of finding it.
    """
    s, nu = np.broadcast_arrays(np.asarray(se, dtype=np.float64), np.asarray(df, dtype=np.float64))
    out = np.full(s.shape, np.nan)
    for value in np.unique(nu[np.isfinite(nu) & (s > 0.0)]):
        here = (nu == value) & (s > 0.0)
        out[here] = detectable_ratio(float(value), level, power) * s[here]
    return out


def identities_for_half_width(sd: float, half_width: float, *, level: float = 0.999) -> int:
    """Return the smallest number of identities whose t interval has at most the wanted half width.

    Args:
        sd: sqrt(G) times the standard error seen with G identities, positive and finite.
        half_width: wanted half width, positive, in units of the score.
        level: two-sided confidence level.

    Raises:
        ValueError: if sd or half_width is not positive and finite.
    """
    if not (0 < sd < np.inf and 0 < half_width < np.inf):
        raise ValueError(f"sd and half_width must be positive and finite, got {sd} and {half_width}")

    def wide(n: int) -> bool:
        return bool(special.stdtrit(n - 1, 0.5 + level / 2.0) * sd / np.sqrt(n) > half_width)

    low, high = 1, 2
    while wide(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if wide(middle) else (low, middle)
    return high


def identities_to_decide(
    se: float,
    n_identities: int,
    margin: float,
    *,
    planned: float = 0.0,
    alpha: float = 0.025,
    power: float = 0.8,
) -> int | None:
    """Return how many identities would let a one-sided bound clear the margin with the given power.

    G = sc^2 (z_(1-alpha) + z_power)^2 / (m - |d_plan|)^2 with sc^2 = G_now se^2.

    Args:
        se: standard error of the change with `n_identities` identities, non-negative.
        n_identities: identities behind `se`, at least 1.
        margin: positive margin in units of the score.
        planned: the true change to plan for.
        alpha: one-sided level.
        power: wanted probability of a decision.

    Returns:
        The number, at least 2; None if |planned| reaches the margin, where no number is enough.

    Raises:
        ValueError: for an argument out of range.
    """
    if not (0 <= se < np.inf and n_identities >= 1 and margin > 0 and 0 < alpha < 1 and 0 < power < 1):
        raise ValueError(
            "need se >= 0, n_identities >= 1, margin > 0, alpha and power in (0, 1), got "
            f"{se}, {n_identities}, {margin}, {alpha}, {power}"
        )
    room = margin - abs(planned)
    if room <= 0:
        return None
    z = float(special.ndtri(1.0 - alpha) + special.ndtri(power))
    return max(2, int(np.ceil(n_identities * (se * z / room) ** 2)))
