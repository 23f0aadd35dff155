"""Families of tests: Holm, Bonferroni, Benjamini-Hochberg and Benjamini-Yekutieli with a planned size.

A test that was planned and came out undefined still belongs to its family. By default it counts as p = 1
with m as planned, so a family does not get easier because groups are empty; its own adjusted p stays NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from harness.stats.numerics import Floats

Adjustment = Literal["holm", "bonferroni", "bh", "by"]
Undefined = Literal["count_as_one", "leave_out"]


@dataclass(frozen=True)
class Family:
    """An adjusted family.

    Attributes:
        p: adjusted p values in the order given, shape of the input; NaN where the raw p is NaN.
        m: number of tests adjusted for.
        n_undefined: tests without a p.
        adjustment: the method.
        undefined: whether undefined tests count in m (`count_as_one`) or not (`leave_out`).
    """

    p: Floats
    m: int
    n_undefined: int
    adjustment: Adjustment
    undefined: Undefined


def adjust(
    p: ArrayLike,
    adjustment: Adjustment = "holm",
    *,
    undefined: Undefined = "count_as_one",
    planned: int | None = None,
) -> Family:
    """Adjust the p values of one family.

    Args:
        p: raw p values in [0, 1], any shape; NaN for an undefined test.
        adjustment: `holm` (Holm 1979), `bonferroni`, `bh` (Benjamini & Hochberg 1995) or `by` (Benjamini &
            Yekutieli 2001).
        undefined: `count_as_one`, or `leave_out` to adjust over the defined tests only.
        planned: size of the family when tests are missing from `p` altogether; at least the size of `p`.

    Raises:
        ValueError: for a p outside [0, 1], an unknown method, or a planned size below the given tests.
    """
    raw = np.asarray(p, dtype=np.float64)
    flat = raw.ravel()
    known = ~np.isnan(flat)
    values = flat[known]
    if ((values < 0.0) | (values > 1.0)).any():
        raise ValueError(f"p values must lie in [0, 1], got {values.min()} to {values.max()}")
    if adjustment not in get_args(Adjustment) or undefined not in get_args(Undefined):
        raise ValueError(f"unknown adjustment {adjustment!r} or treatment of undefined tests {undefined!r}")
    if planned is not None and (planned < flat.size or undefined == "leave_out"):
        raise ValueError(f"planned must be at least the {flat.size} given tests, all counted, got {planned}")
    m = int(known.sum()) if undefined == "leave_out" else (planned or flat.size)
    out = np.full(flat.shape, np.nan)
    out[known] = _adjusted(values, m, adjustment)
    return Family(out.reshape(raw.shape), m, int((~known).sum()), adjustment, undefined)


def _adjusted(p: Floats, m: int, adjustment: Adjustment) -> Floats:
    """Adjust defined p values as the smallest of m, the rest being 1."""
    if adjustment == "bonferroni":
        return np.asarray(np.minimum(1.0, m * p))
    order = np.argsort(p, kind="stable")
    rank = np.arange(1, len(p) + 1)
    if adjustment == "holm":
        stepped = np.maximum.accumulate((m - rank + 1) * p[order])
    else:
        penalty = float(np.sum(1.0 / np.arange(1, m + 1))) if adjustment == "by" else 1.0
        # The tests counted as p = 1 come last in the order and bound nothing below 1.
        stepped = np.minimum.accumulate((penalty * m / rank * p[order])[::-1])[::-1]
    out = np.empty_like(p)
    out[order] = np.minimum(1.0, stepped)
    return out
