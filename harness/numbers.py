"""Numbers on their way into a file."""

from __future__ import annotations

import math


def number(value: float) -> float | None:
    """A JSON number, or None for NaN and infinities."""
    return float(value) if math.isfinite(value) else None
