"""Unit vectors and cosines of vectors of any finite length."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from harness.stats.numerics import Floats


def unit_rows(vectors: npt.NDArray[np.floating[Any]]) -> Floats:
    """Scale vectors to length 1; a vector of zeros, or with a component that is not finite, becomes NaN.

    The largest component is divided out first, because the square of 1e200 overflows and that of 1e-200
    is 0.

    Args:
        vectors: shape (..., d).
    """
    rows = np.asarray(vectors, dtype=np.float64)
    largest = np.abs(rows).max(axis=-1, keepdims=True, initial=0.0)
    usable = np.isfinite(largest) & (largest > 0.0)
    scaled = np.where(usable, rows, np.nan) / np.where(usable, largest, 1.0)
    return np.asarray(scaled / np.linalg.norm(scaled, axis=-1, keepdims=True))


def row_cosines(first: npt.NDArray[np.floating[Any]], second: npt.NDArray[np.floating[Any]]) -> Floats:
    """Cosine of each row with the row beside it, in [-1, 1]; NaN where either is no vector.

    Args:
        first, second: shape (n, d).
    """
    return np.asarray(np.clip(np.einsum("nd,nd->n", unit_rows(first), unit_rows(second)), -1.0, 1.0))
