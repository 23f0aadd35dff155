"""Equivalence and one-sided bounds: what "small enough" means, given a margin.

The change of deltas between two runs is a mean over the pairs common to both: `intervals.cell_estimates` with
the old run's deltas as source and the new run's as transformed gives its estimate, standard error and df.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from harness.stats import hall
from harness.stats.numerics import Floats


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided tests; arrays of the shape of the estimates, NaN where the estimate is undefined.

    Attributes:
        margin: half width of the region of equivalence, in units of the score.
        p_lower: p value against an effect at or below -margin.
        p_upper: p value against an effect at or above +margin.
        p: the larger of both; equivalence is shown at level alpha if p < alpha (which is the same as the
            1 - 2 alpha interval lying inside the margins).
    """

    margin: float
    p_lower: Floats
    p_upper: Floats
    p: Floats


def tost(
    estimate: ArrayLike, se: ArrayLike, df: ArrayLike, margin: float, skew: ArrayLike = 0.0
) -> Equivalence:
    """Test equivalence to zero within a margin (Schuirmann 1987), by the bounds of `harness.stats.hall`.

    Args:
        estimate: mean deltas or differences.
        se: standard errors; where one is not positive the result is NaN.
        df: degrees of freedom.
        margin: positive, in units of the score.
        skew: skewness of the estimates; 0 for Student's t.

    Raises:
        ValueError: if the margin is not positive.
    """
    if not margin > 0:
        raise ValueError(f"an equivalence margin must be positive, got {margin}")
    m, s, nu = _as_arrays(estimate, se, df)
    p_lower = hall.p_above(m, s, nu, skew, -margin)
    p_upper = hall.p_below(m, s, nu, skew, margin)
    return Equivalence(margin, p_lower, p_upper, np.maximum(p_lower, p_upper))


@dataclass(frozen=True)
class MarginTest:
    """Where a change lies relative to a margin; arrays of the shape of the estimates, NaN where undefined.

    Attributes:
        p_inside: p value for "the change is inside the margin" (below alpha: the one-sided 1 - alpha bound
            lies inside; with `both`, both bounds do, which is TOST).
        p_beyond: p value for "the change is beyond the margin" (below alpha: the one-sided 1 - alpha bound
            lies beyond it; with `both`, on one of the sides).
    """

    p_inside: Floats
    p_beyond: Floats


Harmful = Literal["lower", "higher", "both"]


def margin_test(
    estimate: ArrayLike, se: ArrayLike, df: ArrayLike, margin: float, harmful: Harmful
) -> MarginTest:
    """Test on which side of a margin a change lies, in the harmful direction.

    Neither test needs an adjustment to say "all inside" (Berger 1982); "one is beyond" is a claim about a
    family, whose `p_beyond` go through Holm.

    Args:
        estimate: changes, in units of the score.
        se, df: their standard errors and degrees of freedom; NaN where se is not positive.
        margin: positive.
        harmful: the direction in which a change does harm.

    Raises:
        ValueError: if the margin is not positive or the direction is unknown.
    """
    if harmful not in get_args(Harmful):
        raise ValueError(f"harmful must be one of {', '.join(get_args(Harmful))}, got {harmful!r}")
    both = tost(estimate, se, df, margin)
    m, s, nu = _as_arrays(estimate, se, df)
    # Not 1 - p: that would turn small p values into 0.
    too_low = np.asarray(special.stdtr(nu, (m + margin) / s))
    too_high = np.asarray(special.stdtr(nu, -(m - margin) / s))
    if harmful == "lower":
        return MarginTest(both.p_lower, too_low)
    if harmful == "higher":
        return MarginTest(both.p_upper, too_high)
    return MarginTest(both.p, np.minimum(too_low, too_high))


def one_sided_bounds(
    estimate: ArrayLike, se: ArrayLike, df: ArrayLike, alpha: float
) -> tuple[Floats, Floats]:
    """Return the lower and the upper one-sided 1 - alpha confidence bound; NaN where se is not positive.

    Raises:
        ValueError: for alpha outside (0, 0.5].
    """
    if not 0.0 < alpha <= 0.5:
        raise ValueError(f"alpha must lie in (0, 0.5], got {alpha}")
    m, s, nu = _as_arrays(estimate, se, df)
    half = special.stdtrit(nu, 1.0 - alpha) * s
    return np.asarray(m - half), np.asarray(m + half)


def _as_arrays(estimate: ArrayLike, se: ArrayLike, df: ArrayLike) -> tuple[Floats, Floats, Floats]:
    m, s, nu = (np.asarray(x, dtype=np.float64) for x in (estimate, se, df))
    return m, np.where(s > 0.0, s, np.nan), nu
