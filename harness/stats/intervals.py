"""Intervals of the mean delta for all concepts of one structure (the pairs of one attribute and group).

    cell_estimates(source, transformed, clusters, *, method="cluster", level=0.999,
                   draws=20_000, seed=0) -> CellEstimates

`source` and `transformed` are (n_pairs, n_concepts), `clusters` the integer codes of (group, identity) of
the pairs. A pair counts for a concept when both scores are finite. Arrays of the result have one entry per
concept; an undefined number is NaN inside and has a status and a reason beside it, so whoever prints turns
NaN into null and shows the status.

Methods (formulas: `harness.stats.sandwich`):
    cluster    CR2 standard error by cluster, Satterthwaite degrees of freedom, t quantile. The default. Each
               bound of a skewed cell is the wider of that and Hall's transformation (`harness.stats.hall`).
    t          the paper's: pairs taken as independent, n - 1 degrees of freedom.
    bootstrap  clusters resampled, percentile interval (`harness.stats.bootstrap`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.stats import hall
from harness.stats.bootstrap import misses_often, percentile_interval, refusal
from harness.stats.cells import Block, blocks, checked
from harness.stats.numerics import Bools, Floats, Ints
from harness.stats.sandwich import Structure, satterthwaite_df, variance_of_mean

Method = Literal["t", "cluster", "bootstrap"]

FEW_IDENTITIES = 10
_NUMBERS = (
    "mean_source",
    "mean_transformed",
    "delta",
    "se",
    "df",
    "low",
    "high",
    "p",
    "skewness",
)

REASONS = {
    "no_pairs": "no pair has two finite scores",
    "one_pair": "a single pair has no spread, so no interval can be given",
    "one_identity": "all pairs show one identity, so the spread between identities is unknown",
    "rounding_noise": "the deltas differ by no more than floating-point rounding",
    "bootstrap_few_identities": "too few identities: a bootstrap interval at this level would miss twice as "
    "often as it says even for normal scores (99.9 % needs 60); the method cluster has none of this",
    "bootstrap_few_draws": "a bootstrap interval needs 20 draws over 1 - level: 20,000 for 99.9 %",
    "overflow": "the mean delta or its interval exceeds the largest floating-point number",
}
"""What each reason code of a status other than `ok` means, as a sentence for a reader."""


@dataclass(frozen=True)
class CellEstimates:
    """Mean deltas of one structure with their intervals; every array has shape (n_concepts,).

    Attributes:
        method: which interval.
        level: confidence level in (0, 1).
        n_pairs: pairs with two finite scores.
        n_excluded: pairs left out because a score is missing or infinite.
        n_identities: clusters among the kept pairs.
        mean_source, mean_transformed, delta: means over the kept pairs; NaN when there are none.
        se: standard error; 0 for `zero_variance`, NaN when undefined.
        df: degrees of freedom of the standard error; NaN when undefined or for the bootstrap.
        low, high: the interval; NaN unless the status is `ok`.
        p: two-sided p value of delta = 0; NaN unless the status is `ok`.
        skewness: of the cluster sums (moment ratio m3 / m2^1.5); NaN when undefined.
        skew: skewness of the mean for `harness.stats.hall`, `skewness` over sqrt(G); 0 unless the cell is
            skewed and the method `cluster`.
        status: `ok`, `zero_variance` or `undefined`.
        reason: key of `REASONS`, empty for `ok`.
        few_identities: fewer than 10 identities.
        skewed: fewer identities than 100 times the squared skewness.
        bootstrap_misses: a bootstrap interval that misses more than 1.2 times as often as its level says.
        seed: the seed behind a bootstrap, None for the other methods.
    """

    method: Method
    level: float
    n_pairs: Ints
    n_excluded: Ints
    n_identities: Ints
    mean_source: Floats
    mean_transformed: Floats
    delta: Floats
    se: Floats
    df: Floats
    low: Floats
    high: Floats
    p: Floats
    skewness: Floats
    skew: Floats
    status: NDArray[np.str_]
    reason: NDArray[np.str_]
    few_identities: Bools
    skewed: Bools
    bootstrap_misses: Bools
    seed: int | None = None

    @property
    def n_concepts(self) -> int:
        """Number of concepts."""
        return len(self.delta)

    def flags(self, concept: int) -> list[str]:
        """Return the names of the flags that are set for one concept."""
        named = {
            "few_identities": self.few_identities,
            "skewed": self.skewed,
            "bootstrap_misses": self.bootstrap_misses,
        }
        return [name for name, values in named.items() if values[concept]]

    def interval_method(self, concept: int) -> str:
        """Return how the interval of one concept is made."""
        return self.method + (hall.METHOD if self.skew[concept] else "")


def cell_estimates(
    source: ArrayLike,
    transformed: ArrayLike,
    clusters: ArrayLike,
    *,
    method: Method = "cluster",
    level: float = 0.999,
    draws: int = 20_000,
    seed: int = 0,
) -> CellEstimates:
    """Estimate the mean delta and its interval for every concept of one structure.

    Args:
        source: scores of the source faces, shape (n, c) or (n,), on the target's own scale.
        transformed: scores of the transformed faces, same shape.
        clusters: integer code of (group, identity) for each pair, shape (n,).
        method: `cluster`, `t` or `bootstrap`.
        level: two-sided confidence level, strictly between 0 and 1.
        draws: bootstrap draws, at least 2.
        seed: entropy of the bootstrap's random generator.

    Raises:
        ValueError: for shapes that differ, codes that are not integers, or a setting out of range.
    """
    before, after, codes = checked(source, transformed, clusters)
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {', '.join(get_args(Method))}, got {method!r}")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")
    if draws < 2:
        raise ValueError(f"draws must be at least 2, got {draws}")
    out = _blank(method, level, before.shape[1], seed if method == "bootstrap" else None)
    for block in blocks(before, after, codes):
        _fill_counts(out, block, len(before))
        _fill_interval(out, block, draws, seed)
    return out


def _blank(method: Method, level: float, n: int, seed: int | None) -> CellEstimates:
    """Return the result of a structure without pairs, to be filled block by block."""
    return CellEstimates(
        method=method,
        level=level,
        n_pairs=np.zeros(n, dtype=np.int64),
        n_excluded=np.zeros(n, dtype=np.int64),
        n_identities=np.zeros(n, dtype=np.int64),
        **{name: np.full(n, np.nan) for name in _NUMBERS},
        skew=np.zeros(n),
        status=np.full(n, "undefined", dtype="<U13"),
        reason=np.full(n, "no_pairs", dtype="<U24"),
        few_identities=np.zeros(n, dtype=bool),
        skewed=np.zeros(n, dtype=bool),
        bootstrap_misses=np.zeros(n, dtype=bool),
        seed=seed,
    )


def _fill_counts(out: CellEstimates, block: Block, n_rows: int) -> None:
    """Write counts, means and the reasons that need no spread."""
    columns, n = block.columns, len(block.rows)
    n_identities = block.structure.n_clusters
    out.n_pairs[columns] = n
    out.n_excluded[columns] = n_rows - n
    out.n_identities[columns] = n_identities
    out.few_identities[columns] = n_identities < FEW_IDENTITIES
    out.reason[columns] = _why_undefined(n, n_identities, out.method)
    with np.errstate(over="ignore"):
        out.mean_source[columns] = block.mean_source * block.scale
        out.mean_transformed[columns] = block.mean_transformed * block.scale
        out.delta[columns] = block.mean * block.scale
    beyond = columns[np.isinf(out.delta[columns])]
    out.delta[beyond] = np.nan
    out.reason[beyond] = "overflow"


def _why_undefined(n: int, n_identities: int, method: Method) -> str:
    if n == 0:
        return "no_pairs"
    if n == 1:
        return "one_pair"
    if n_identities == 1 and method != "t":
        return "one_identity"
    return ""


def _fill_interval(out: CellEstimates, block: Block, draws: int, seed: int) -> None:
    """Write spread, interval, p value and status of the concepts of one block."""
    columns = block.columns
    by_pair = out.method == "t"
    structure = Structure.of(np.arange(len(block.rows))) if by_pair else block.structure
    defined = out.reason[columns] == ""
    if not defined.any():
        return
    sums = block.residuals if by_pair else block.sums()
    noise = block.noise(sums, structure)
    variance = variance_of_mean(sums, structure)
    variance[noise] = 0.0
    out.skewness[columns] = hall.skewness(sums, noise)
    out.skewed[columns] = hall.is_skewed(out.skewness[columns], structure.n_clusters)
    if out.method == "cluster":
        out.skew[columns] = hall.skew_of_mean(out.skewness[columns], structure.n_clusters)
    out.df[columns] = df = satterthwaite_df(structure)
    with np.errstate(over="ignore"):
        out.se[columns] = np.sqrt(variance) * block.scale
    out.reason[columns[defined & noise]] = "rounding_noise"
    out.status[columns[defined & noise]] = "zero_variance"
    usable = defined & ~noise
    if out.method == "bootstrap":
        _fill_bootstrap(out, block, usable, draws, seed)
    else:
        _fill_t(out, columns[usable], df)


def _fill_t(out: CellEstimates, columns: Ints, df: float) -> None:
    cell = out.delta[columns], out.se[columns], df, out.skew[columns]
    with np.errstate(over="ignore"):
        out.low[columns], out.high[columns] = hall.bounds(*cell, (1.0 - out.level) / 2.0)
    out.p[columns] = hall.p_two_sided(*cell)
    out.status[columns] = "ok"
    beyond = columns[np.isinf(out.low[columns]) | np.isinf(out.high[columns])]
    for values in (out.low, out.high, out.p):
        values[beyond] = np.nan
    out.status[beyond], out.reason[beyond] = "undefined", "overflow"


def _fill_bootstrap(out: CellEstimates, block: Block, usable: Bools, draws: int, seed: int) -> None:
    level, n_identities = out.level, block.structure.n_clusters
    columns = block.columns[usable]
    out.df[block.columns] = np.nan
    if why := refusal(n_identities, draws, level):
        out.se[columns] = np.nan
        out.reason[columns] = why
        return
    out.bootstrap_misses[columns] = misses_often(n_identities, level)
    result = percentile_interval(
        block.sums()[:, usable],
        block.structure.sizes,
        block.mean[usable],
        level=level,
        draws=draws,
        seed=seed,
    )
    scale = block.scale[usable]
    out.se[columns] = result.se * scale
    out.low[columns], out.high[columns] = result.low * scale, result.high * scale
    out.p[columns] = result.p
    out.status[columns] = "ok"
