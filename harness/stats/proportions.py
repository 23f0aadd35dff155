"""Intervals of proportions: Wilson, Clopper-Pearson, and Wilson on an effective sample size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from harness.stats.cells import blocks, checked
from harness.stats.sandwich import satterthwaite_df, variance_of_mean


def wilson(successes: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Return Wilson's score interval (1927).

    Args:
        successes: between 0 and n; need not be whole when n is an effective size.
        n: positive.
        level: two-sided confidence level in (0, 1).

    Raises:
        ValueError: for counts out of range or a level outside (0, 1).
    """
    _check(successes, n, level)
    z2 = float(special.ndtri(0.5 + level / 2.0)) ** 2
    p = successes / n
    centre = (p + z2 / (2.0 * n)) / (1.0 + z2 / n)
    half = np.sqrt(z2 * (p * (1.0 - p) / n + z2 / (4.0 * n * n))) / (1.0 + z2 / n)
    # The ends are exactly 0 and 1 in the extreme cases, up to a rounding that must not show.
    low = 0.0 if successes == 0 else max(0.0, float(centre - half))
    high = 1.0 if successes == n else min(1.0, float(centre + half))
    return low, high


def clopper_pearson(successes: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Return the exact binomial interval (Clopper & Pearson 1934); arguments as in `wilson`."""
    _check(successes, n, level)
    tail = 0.5 - level / 2.0
    low = 0.0 if successes == 0 else float(special.betaincinv(successes, n - successes + 1, tail))
    high = 1.0 if successes == n else float(special.betaincinv(successes + 1, n - successes, 1.0 - tail))
    return low, high


def _check(successes: float, n: float, level: float) -> None:
    if not (n > 0 and 0 <= successes <= n):
        raise ValueError(f"successes must lie between 0 and a positive n, got {successes} of {n}")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")


def examples_to_show(rate: float, level: float = 0.95) -> int:
    """Return how many successes without a miss put the one-sided exact lower bound at `rate` or above.

    Raises:
        ValueError: for a rate or a level outside (0, 1).
    """
    if not (0.0 < rate < 1.0 and 0.0 < level < 1.0):
        raise ValueError(f"rate and level must lie in (0, 1), got {rate} and {level}")
    return int(np.ceil(np.log1p(-level) / np.log(rate)))


@dataclass(frozen=True)
class ClusteredProportion:
    """A proportion among items that repeat identities; NaN where undefined.

    Attributes:
        successes, n, n_identities: plain counts.
        rate: successes over n.
        n_effective: size of a simple sample with the same information, at most n.
        low, high: Wilson's interval on the effective size.
        status: `ok`; `identities_as_size` when all items agree (no variance to estimate the effective size
            from, so it is the number of identities); `undefined` without items.
    """

    successes: int
    n: int
    n_identities: int
    rate: float
    n_effective: float
    low: float
    high: float
    status: str


def clustered_proportion(
    outcomes: ArrayLike, clusters: ArrayLike, *, level: float = 0.95
) -> ClusteredProportion:
    """Estimate a proportion with an interval that respects repeated identities (Korn & Graubard 1998).

    n_effective = p (1 - p) / V * (t_{n-1} / t_nu)^2 with the CR2 variance V by identity, its Satterthwaite
    df nu and t quantiles at the level, capped at n.

    Args:
        outcomes: shape (n,), 0 or 1 (or booleans).
        clusters: shape (n,), integer codes of (group, identity).
        level: two-sided confidence level.

    Raises:
        ValueError: for other outcomes, wrong shapes or a level outside (0, 1).
    """
    values = np.asarray(outcomes, dtype=np.float64)
    if not np.isin(values, (0.0, 1.0)).all():
        raise ValueError("outcomes must be 0 or 1")
    before, after, codes = checked(np.zeros_like(values), values, clusters)
    (block,) = blocks(before, after, codes)
    n, g, successes = len(values), block.structure.n_clusters, int(values.sum())
    if n == 0:
        nan = float("nan")
        return ClusteredProportion(0, 0, 0, nan, nan, nan, nan, "undefined")
    rate = successes / n
    if successes in (0, n) or g < 2:
        size, status = float(g), "identities_as_size"
    else:
        variance = float(variance_of_mean(block.sums(), block.structure)[0])
        spot = 0.5 + level / 2.0
        ratio = special.stdtrit(n - 1, spot) / special.stdtrit(satterthwaite_df(block.structure), spot)
        raw = rate * (1.0 - rate) / variance * ratio**2 if variance > 0 else np.inf
        size, status = float(min(n, raw)), "ok"
    low, high = wilson(rate * size, size, level)
    return ClusteredProportion(successes, n, g, rate, size, low, high, status)
