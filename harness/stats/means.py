"""What the pair mean hides: the mean of identity means, the intraclass correlation, the mixed model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from harness.stats import hall
from harness.stats.cells import Block, blocks, checked
from harness.stats.numerics import Floats, Ints, accurate_mean, accurate_sum, cluster_sums
from harness.stats.sandwich import Structure


@dataclass(frozen=True)
class IdentityMeans:
    """The unweighted mean of identity means; arrays of shape (c,), NaN where undefined.

    Another estimand than the pair mean when the number of pairs goes with the delta (informative cluster
    size), which is why it stands beside it.

    Attributes:
        n_identities: identities with a kept pair.
        delta: mean over identities of their mean deltas.
        se, df: standard deviation of those means over sqrt(G), and G - 1.
        low, high: interval at the level asked for, where the means are skewed (G < 100 g^2) by
            `harness.stats.hall`; NaN unless the status is `ok`.
        status: `ok`, `zero_variance`, or `undefined` below two identities.
    """

    n_identities: Ints
    delta: Floats
    se: Floats
    df: Floats
    low: Floats
    high: Floats
    status: NDArray[np.str_]


def identity_means(
    source: ArrayLike, transformed: ArrayLike, clusters: ArrayLike, *, level: float = 0.999
) -> IdentityMeans:
    """Estimate the mean of identity means; arguments as in `intervals.cell_estimates`."""
    before, after, codes = checked(source, transformed, clusters)
    n = before.shape[1]
    counts = np.zeros(n, dtype=np.int64)
    delta, se, df = np.full((3, n), np.nan)
    skew = np.zeros(n)
    status = np.full(n, "undefined", dtype="<U13")
    for block in blocks(before, after, codes):
        counts[block.columns] = g = block.structure.n_clusters
        if g == 0:
            continue
        sizes = block.structure.sizes[:, None]
        away = block.sums() / sizes
        shift = accurate_mean(away)
        delta[block.columns] = (block.mean + shift) * block.scale
        if g < 2:
            continue
        away = away - shift
        noise = block.noise(away * sizes, block.structure)
        spread = np.where(noise, 0.0, accurate_sum(away**2) / (g - 1.0) / g)
        se[block.columns], df[block.columns] = np.sqrt(spread) * block.scale, g - 1.0
        skew[block.columns] = hall.skew_of_mean(hall.skewness(away, noise), g)
        status[block.columns] = np.where(noise, "zero_variance", "ok")
    low, high = hall.bounds(delta, np.where(status == "ok", se, np.nan), df, skew, (1.0 - level) / 2.0)
    return IdentityMeans(counts, delta, se, df, low, high, status)


def icc(source: ArrayLike, transformed: ArrayLike, clusters: ArrayLike) -> Floats:
    """Return the analysis-of-variance intraclass correlation of the deltas for each concept.

    (MSB - MSW) / (MSB + (n0 - 1) MSW) with n0 = (n - sum n_g^2 / n) / (G - 1) (Donner 1986). It can be
    negative. NaN with fewer than two identities, without an identity of two pairs, or without variance.

    Args:
        source, transformed, clusters: as in `intervals.cell_estimates`.

    Returns:
        Shape (c,).
    """
    before, after, codes = checked(source, transformed, clusters)
    out = np.full(before.shape[1], np.nan)
    for block in blocks(before, after, codes):
        n, g = len(block.rows), block.structure.n_clusters
        if 2 <= g < n:
            out[block.columns] = _anova_icc(block)
    return out


def _anova_icc(block: Block) -> Floats:
    n, g = len(block.rows), block.structure.n_clusters
    sizes = block.structure.sizes[:, None]
    own = block.sums() / sizes
    within = block.residuals - own[block.structure.codes]
    # A second pass: the rounding of the identity mean must not leave a spread where there is none.
    within = within - (cluster_sums(within, block.structure.codes, g) / sizes)[block.structure.codes]
    between_square = accurate_sum(sizes * own**2) / (g - 1.0)
    within_square = accurate_sum(within**2) / (n - g)
    n0 = (n - float((block.structure.sizes.astype(float) ** 2).sum()) / n) / (g - 1.0)
    noise = block.noise(block.residuals, _singletons(n))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = (between_square - within_square) / (between_square + (n0 - 1.0) * within_square)
    return np.where(noise, np.nan, ratio)


@dataclass(frozen=True)
class MixedModel:
    """REML fit of delta_ig = mean + person_g + error_ig for one concept; NaN unless the status is `ok`.

    Attributes:
        mean: the generalised least squares mean.
        se: its standard error, the variance components taken as known.
        icc: person variance over the sum of both, in [0, 1).
        status: `ok`, or `undefined` (fewer than two identities, no repeated identity, no variance, or no
            variance within identities).
    """

    mean: float
    se: float
    icc: float
    status: str


def mixed_model(source: ArrayLike, transformed: ArrayLike, clusters: ArrayLike) -> MixedModel:
    """Fit the random-intercept model to one concept, shape (n,) or (n, 1).

    With one random intercept the restricted likelihood has one free parameter, the intraclass correlation
    (Patterson & Thompson 1971), which is searched on [0, 1).

    Raises:
        ValueError: for more than one concept.
    """
    before, after, codes = checked(source, transformed, clusters)
    if before.shape[1] != 1:
        raise ValueError(f"the mixed model takes one concept, got {before.shape[1]}")
    (block,) = blocks(before, after, codes)
    n, g = len(block.rows), block.structure.n_clusters
    if not 2 <= g < n:
        return MixedModel(np.nan, np.nan, np.nan, "undefined")
    sizes = block.structure.sizes.astype(np.float64)
    own = block.sums()[:, 0] / sizes
    within = block.residuals - own[block.structure.codes, None]
    if block.noise(within, _singletons(n))[0]:
        return MixedModel(np.nan, np.nan, np.nan, "undefined")
    unit = float(np.abs(block.residuals).max())
    square = float(accurate_sum((within / unit) ** 2)[0])
    shift, se, share = _reml(own / unit, sizes, square)
    scale = float(block.scale[0])
    return MixedModel((float(block.mean[0]) + shift * unit) * scale, se * unit * scale, share, "ok")


def _singletons(n: int) -> Structure:
    return Structure.of(np.arange(n))


def _reml(own: Floats, sizes: Floats, within_square: float) -> tuple[float, float, float]:
    """Return (mean, se, icc) from identity means, sizes and the within-identity sum of squares."""
    n = sizes.sum()

    def fit(rho: float) -> tuple[float, float, float]:
        weights = sizes * (1.0 - rho) / (1.0 - rho + rho * sizes)
        mean = float(weights @ own / weights.sum())
        square = within_square + float(weights @ (own - mean) ** 2)
        deviance = (n - 1.0) * np.log(square) + np.log(sizes / weights).sum() + np.log(weights.sum())
        return float(deviance), mean, float(np.sqrt(square / (n - 1.0) / weights.sum()))

    grid = np.linspace(0.0, 1.0, 201)[:-1]
    best = int(np.argmin([fit(rho)[0] for rho in grid]))
    bounds = (grid[max(best - 1, 0)], grid[best + 1] if best + 1 < len(grid) else 1.0 - 1e-12)
    inside = optimize.minimize_scalar(
        lambda rho: fit(rho)[0], bounds=bounds, method="bounded", options={"xatol": 1e-11}
    )
    rho = float(inside.x) if inside.fun < fit(grid[best])[0] else float(grid[best])
    _, mean, se = fit(rho)
    return mean, se, rho
