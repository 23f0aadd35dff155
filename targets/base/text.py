"""Short texts for messages: the nearest known name, and lists cut to a readable length."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the closest of ``known``, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""


def shortlist(names: Sequence[object], limit: int = 5) -> str:
    """Join at most ``limit`` names with commas and say how many more there are."""
    shown = ", ".join(str(name) for name in names[:limit])
    more = len(names) - limit
    return f"{shown} and {more} more" if more > 0 else shown


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return ``"1 pair"`` or ``"2 pairs"``."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
