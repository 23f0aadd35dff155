"""JSON whose objects hold each key once: of two values under a key, each reader takes another."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes, **options: Any) -> Any:
    """What ``json.loads`` gives with these options.

    Raises:
        ValueError: no JSON, a key that occurs twice in one object, or nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, **options)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key '{next(key for key in keys if keys.count(key) > 1)}' occurs twice")
    return found
