"""The cluster bootstrap: identities drawn with replacement, percentile and BCa intervals.

A draw is a count for every cluster, so all draws and concepts are one matrix product: the replicate of a
mean is sum_g w_g S_g / sum_g w_g n_g with w the counts (a ratio, because cluster sizes differ). One seed
gives one set of counts; other codes for the same clusters permute them, which changes results within
Monte-Carlo error.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import special

from harness.stats.numerics import Floats, Ints

MIN_IDENTITIES_999 = 60
_REFUSED, _FLAGGED = 2.0, 1.2
_DRAWS_BEYOND = 20.0
_CHUNK = 32
# OpenBLAS multiplies matrices of up to 2^18 products in one thread; more threads wait for each other as soon
# as the machine has other work, which costs more than they give.
_ONE_THREAD = 2**18
_MAX_EXACT = 6


@dataclass(frozen=True)
class BootstrapInterval:
    """Bootstrap results, arrays of shape (c,).

    Attributes:
        se: standard deviation of the replicates (n - 1).
        low, high: the interval.
        p: two-sided p value of mean = 0, at least 2 / (draws + 1).
    """

    se: Floats
    low: Floats
    high: Floats
    p: Floats


def normal_miss_rate(n_identities: int, level: float) -> float:
    """Return how often the percentile interval misses for normal scores, one pair an identity.

    Its half width is z sqrt((G - 1) / G) standard errors, so it misses with P(|T| > that) on G - 1 degrees of
    freedom: 9.6 % at 95 % and 10 identities, 1.2 % at 99.9 %. Skewed scores miss more, and have a flag.
    """
    reach = -special.ndtri((1.0 - level) / 2.0) * np.sqrt(1.0 - 1.0 / n_identities)
    return float(2.0 * special.stdtr(n_identities - 1.0, -reach))


def refusal(n_identities: int, draws: int, level: float) -> str:
    """Return why no percentile interval is given, a key of `intervals.REASONS`; empty where it is.

    It is refused where it would miss more than twice as often as its level says for normal scores, at 99.9 %
    and above also below 60 identities, and with fewer draws than 20 / (1 - level).
    """
    few = n_identities < MIN_IDENTITIES_999 and level >= 0.999
    if few or normal_miss_rate(n_identities, level) > _REFUSED * (1.0 - level):
        return "bootstrap_few_identities"
    return "bootstrap_few_draws" if draws < round(_DRAWS_BEYOND / (1.0 - level)) else ""


def misses_often(n_identities: int, level: float) -> bool:
    """Say whether the percentile interval misses more than 1.2 times as often as its level says."""
    return normal_miss_rate(n_identities, level) > _FLAGGED * (1.0 - level)


def cluster_counts(n_clusters: int, draws: int, seed: int) -> Floats:
    """Draw how often each cluster appears in each resample; shape (draws, n_clusters), rows sum to G."""
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    picks = rng.integers(0, n_clusters, size=(draws, n_clusters))
    picks += n_clusters * np.arange(draws)[:, None]
    counts = np.bincount(picks.ravel(), minlength=draws * n_clusters)
    return counts.reshape(draws, n_clusters).astype(np.float64)


def order_statistics(replicates: Floats, probabilities: tuple[float, ...]) -> list[Floats]:
    """Return quantiles of type 6 (position p (B + 1), linear between neighbours) of each row.

    Args:
        replicates: shape (c, B), B at least 2; reordered in place.
        probabilities: each strictly between 0 and 1; positions are clipped to the extreme draws.

    Returns:
        One array of shape (c,) per probability.
    """
    draws = replicates.shape[1]
    found = []
    for p in probabilities:
        spot = min(max(p * (draws + 1) - 1.0, 0.0), draws - 1.0)
        below = min(int(spot), draws - 2)
        # One position at a time: numpy's partition is vectorised for that, and not for several.
        replicates.partition(below, axis=1)
        value, following = replicates[:, below].copy(), replicates[:, below + 1 :].min(axis=1)
        found.append(value + (spot - below) * (following - value))
    return found


def percentile_interval(
    sums: Floats, sizes: Ints, mean: Floats, *, level: float, draws: int, seed: int
) -> BootstrapInterval:
    """Return the percentile interval of the pair mean, clusters resampled.

    Args:
        sums: cluster sums of the residuals, shape (G, c).
        sizes: pairs in each cluster, shape (G,).
        mean: mean delta, shape (c,).
        level: two-sided confidence level.
        draws: number of resamples, at least 2.
        seed: entropy of the generator; one seed gives the same resamples to every concept.
    """
    counts = cluster_counts(len(sizes), draws, seed)
    weights = np.ascontiguousarray((counts / (counts @ sizes)[:, None]).T)
    c = sums.shape[1]
    se, low, high, p = np.empty((4, c))
    buffer = np.empty((min(c, _CHUNK), draws))
    step = max(1, _ONE_THREAD // (len(sizes) * _CHUNK))
    for start in range(0, c, _CHUNK):
        here = slice(start, start + _CHUNK)
        replicates, part = buffer[: len(mean[here])], np.ascontiguousarray(sums[:, here].T)
        for first in range(0, draws, step):
            some = slice(first, first + step)
            np.matmul(part, weights[:, some], out=replicates[:, some])
        se[here], p[here] = _spread(replicates), _two_sided_p(replicates, mean[here])
        low[here], high[here] = order_statistics(replicates, (0.5 - level / 2.0, 0.5 + level / 2.0))
    low, high = mean + low, mean + high
    # Bounds lie between two draws, and p counts draws: a zero between the same two must not part them.
    alpha = 1.0 - level
    excluded = (low > 0.0) | (high < 0.0)
    p = np.where(excluded, np.minimum(p, np.nextafter(alpha, 0.0)), np.maximum(p, np.nextafter(alpha, 1.0)))
    return BootstrapInterval(se, low, high, p)


def _two_sided_p(replicates: Floats, mean: Floats) -> Floats:
    """Return twice the smaller share of resampled means on either side of zero, shape (c,)."""
    below = np.count_nonzero(replicates <= -mean[:, None], axis=1)
    above = np.count_nonzero(replicates >= -mean[:, None], axis=1)
    return np.asarray(np.minimum(1.0, 2.0 * (np.minimum(below, above) + 1.0) / (replicates.shape[1] + 1.0)))


def _spread(replicates: Floats) -> Floats:
    """Return the standard deviation of each row; the rows lie around zero, so squares may be summed first."""
    draws = replicates.shape[1]
    squares = np.einsum("cb,cb->c", replicates, replicates) - draws * replicates.mean(axis=1) ** 2
    return np.asarray(np.sqrt(np.maximum(squares, 0.0) / (draws - 1)))


def bca_interval(
    sums: Floats, sizes: Ints, mean: Floats, *, level: float, draws: int, seed: int
) -> tuple[Floats, Floats]:
    """Return the bias-corrected accelerated interval (Efron 1987), clusters resampled.

    The acceleration is the jackknife's. Arguments as in `percentile_interval`.

    Returns:
        low and high, each of shape (c,). NaN where no replicate differs from the mean.
    """
    counts = cluster_counts(len(sizes), draws, seed)
    counts /= (counts @ sizes)[:, None]
    replicates = sums.T @ counts.T
    below = (replicates < 0.0).sum(axis=1) + 0.5 * (replicates == 0.0).sum(axis=1)
    bias = special.ndtri(below / draws)
    left_out = -sums / (sizes.sum() - sizes)[:, None]
    away = left_out.mean(axis=0) - left_out
    with np.errstate(invalid="ignore", divide="ignore"):
        acceleration = (away**3).sum(axis=0) / (6.0 * ((away**2).sum(axis=0)) ** 1.5)
    ends = []
    for z in special.ndtri([0.5 - level / 2.0, 0.5 + level / 2.0]):
        shifted = special.ndtr(bias + (bias + z) / (1.0 - acceleration * (bias + z)))
        ends.append(_row_quantiles(replicates, shifted))
    return mean + ends[0], mean + ends[1]


def _row_quantiles(replicates: Floats, probabilities: Floats) -> Floats:
    """Return one type 6 quantile per row; NaN where the probability is."""
    out = np.full(len(replicates), np.nan)
    for row, p in enumerate(probabilities):
        if np.isfinite(p):
            out[row] = order_statistics(replicates[row : row + 1], (float(p),))[0][0]
    return out


def exact_interval(deltas: Floats, level: float) -> tuple[float, float, float]:
    """Enumerate all n^n resamples of n <= 6 deltas: (sd, low, high) by the inverse distribution function.

    Raises:
        ValueError: for no delta or more than 6.
    """
    n = len(deltas)
    if not 1 <= n <= _MAX_EXACT:
        raise ValueError(f"exact enumeration takes 1 to {_MAX_EXACT} deltas, got {n}")
    means = np.sort([np.mean(pick) for pick in product(deltas.tolist(), repeat=n)])
    # The tolerance keeps a probability such as .5 - .999 / 2 = .0005000000000000004 on its own step.
    spots = [int(np.ceil(p * len(means) - 1e-9)) - 1 for p in (0.5 - level / 2.0, 0.5 + level / 2.0)]
    low, high = (float(means[max(spot, 0)]) for spot in spots)
    return float(means.std()), low, high
