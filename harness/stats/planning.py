"""Before the data: what effect a design can find, and how many identities an answer takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from harness.stats import studentized
from harness.stats.effects import noncentral_t_cdf
from harness.stats.numerics import Floats
from harness.stats.unseen import unseen_share, with_share

WIDEST = 1e7
"""A spread this many times the wanted half width takes over 10^14 identities: more than anybody has."""


@lru_cache(maxsize=4096)
def detectable_ratio(df: float, level: float = 0.999, power: float = 0.8, groups: int = 2) -> float:
    """Return the minimum detectable effect in standard errors.

    The smallest r with P(|T| > t_crit) = power for noncentral t with noncentrality r, the far tail dropped
    (it adds less than 1e-6 at any power of interest).

    Args:
        df: degrees of freedom of the standard error, positive.
        level: two-sided confidence level of the test, simultaneous over all pairs of groups.
        power: wanted probability of finding the effect, above (1 - level) / 2.
        groups: how many groups are compared with each other; 2 for a test of one mean or difference.

    Raises:
        ValueError: for an argument out of range.
    """
    if not df > 0 or not 0.0 < level < 1.0 or not (1.0 - level) / 2.0 < power < 1.0:
        raise ValueError(f"need df > 0, 0 < level < 1, power in (alpha/2, 1), got {df}, {level}, {power}")
    crit = float(_critical(df, level, groups))
    reach = 40.0 + 3.0 * crit * (1.0 + 1.0 / np.sqrt(df))
    return float(
        optimize.brentq(lambda r: 1.0 - noncentral_t_cdf(crit, df, r) - power, 0.0, reach, xtol=1e-10)
    )


def _critical(df: float, level: float, groups: int) -> float:
    """Return the half width of an interval, or of a band over all pairs of groups, in standard errors."""
    if groups == 2:
        return float(special.stdtrit(df, 0.5 + level / 2.0))
    return float(studentized.quantile(level, groups, np.array([df]))[0] / np.sqrt(2.0))


def minimum_detectable_effect(
    se: ArrayLike, df: ArrayLike, *, level: float = 0.999, power: float = 0.8, groups: int = 2
) -> Floats:
    """Return the smallest mean delta that would be found with the given power, NaN where undefined.

    Of a difference with `groups` compared groups: found by its band, which takes at least 2 df.

    Args:
        se: standard errors, in units of the score.
        df: their degrees of freedom, same shape.
        level: two-sided confidence level.
        power: probability of finding it.
        groups: as in `detectable_ratio`.
    """
    s, nu = np.broadcast_arrays(np.asarray(se, dtype=np.float64), np.asarray(df, dtype=np.float64))
    out = np.full(s.shape, np.nan)
    for value in np.unique(nu[np.isfinite(nu) & (s > 0.0)]):
        here = (nu == value) & (s > 0.0)
        if groups == 2 or value >= studentized.MIN_DF:
            out[here] = detectable_ratio(float(value), level, power, groups) * s[here]
    return out


def scale_for_half_width(se: float, df: float, half_width: float, *, level: float, groups: int) -> float:
    """Return by what factor all groups must grow for a difference's band of at most the wanted half width.

    The squared standard error falls with the factor, and the degrees of freedom rise with it. Infinite where
    the standard error is over `WIDEST` times the half width.

    Args:
        se, df: of the difference, positive.
        half_width: wanted, positive, in units of the score.
        level: simultaneous over all pairs of groups.
        groups: how many are compared with each other.
    """

    if se > WIDEST * half_width:
        return math.inf

    def excess(log_factor: float) -> float:
        factor = float(np.exp(log_factor))
        return float(np.log(_critical(df * factor, level, groups) * se / np.sqrt(factor) / half_width))

    low, high = np.log(2.0 / df), np.log(2.0 / df) + 1.0
    if excess(low) <= 0:
        return float(np.exp(low))
    while excess(high) > 0:
        high += 2.0
    return float(np.exp(optimize.brentq(excess, low, high, xtol=1e-9)))


def identities_for_half_width(sd: float, half_width: float, *, level: float = 0.999) -> int | None:
    """Return the smallest number of identities whose t interval has at most the wanted half width.

    None where ``sd`` is over `WIDEST` times the half width.

    Args:
        sd: sqrt(G) times the standard error seen with G identities, positive and finite.
        half_width: wanted half width, positive, in units of the score.
        level: two-sided confidence level.

    Raises:
        ValueError: if sd or half_width is not positive and finite.
    """
    if not (0 < sd < np.inf and 0 < half_width < np.inf):
        raise ValueError(f"sd and half_width must be positive and finite, got {sd} and {half_width}")
    if sd > WIDEST * half_width:
        return None

    def wide(n: int) -> bool:
        return bool(special.stdtrit(float(n - 1), 0.5 + level / 2.0) * sd / math.sqrt(n) > half_width)

    low, high = 1, 2
    while wide(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if wide(middle) else (low, middle)
    return high


@dataclass(frozen=True)
class Floor:
    """What a pass needs besides a narrow bound: room for breaks that no identity of the sample showed.

    Attributes:
        worst: W, the largest change that one unit can suffer.
        parts: share of the identities that each group has, summing to 1; one group is (1.0,).
        both_of_a_pair: as in `unseen.unseen_share`.
    """

    worst: float
    parts: tuple[float, ...]
    both_of_a_pair: bool

    def shares(self, alpha: float, identities: float) -> list[float]:
        """The share of each group that may break unseen, with this many identities in all."""
        return [
            unseen_share(alpha, part * identities, both_of_a_pair=self.both_of_a_pair) for part in self.parts
        ]


def identities_to_decide(
    se: float,
    n_identities: int,
    margin: float,
    *,
    floor: Floor | None = None,
    planned: float = 0.0,
    alpha: float = 0.025,
    power: float = 0.8,
    both: bool = False,
) -> int | None:
    """Return how many identities would let a change pass with the given power.

    The smallest G with (1 - u) (|d| + (z_(1-alpha) + z_power) sc / sqrt(G)) + u W < m, where u = 1 -
    alpha^(1/G) and sc^2 = G_now se^2. Without a floor that is sc^2 (z_(1-alpha) + z_power)^2 / (m - |d|)^2,
    without a spread log(alpha) / log(1 - (m - |d|) / (W - |d|)). With both it is more than the larger of the
    two, at which one would leave the other no room. Where both directions harm, both bounds have to lie
    inside: z_((1+power)/2) in place of z_power.

    Args:
        se: standard error of the change with `n_identities` identities, non-negative.
        n_identities: identities behind `se`, at least 1.
        margin: positive margin in units of the score.
        floor: what a pass needs besides; None for no more than a narrow bound.
        planned: d, the true change to plan for.
        alpha: one-sided level.
        power: wanted probability of a pass.
        both: both directions harm.

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
    if abs(planned) >= margin:
        return None
    z = float(special.ndtri(1.0 - alpha) + special.ndtri((1.0 + power) / 2.0 if both else power))
    spread = se * z * np.sqrt(n_identities)

    def enough(identities: float) -> bool:
        bound = abs(planned) + spread / np.sqrt(identities)
        if floor is not None:
            bound = with_share((-bound, bound), floor.shares(alpha, identities), floor.worst)[1]
        return bool(bound <= margin * (1.0 + 1e-12))

    high = 2.0
    while not enough(high):
        high *= 2.0
    low = high / 2.0
    if high == 2.0:
        return 2
    while high - low > 0.5:
        middle = (low + high) / 2.0
        low, high = (low, middle) if enough(middle) else (middle, high)
    return next(count for count in range(math.floor(low), math.ceil(high) + 1) if enough(count))
