"""Digests: of decoded pixels, of files, of settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def pixel_hash(pixels: bytes, width: int, height: int) -> str:
    """SHA-256 of an RGB picture's decoded pixels, independent of how the file was encoded.

    Args:
        pixels: ``height * width * 3`` bytes, rows from the top, RGB.
        width: columns.
        height: rows.

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.sha256(f"RGB {width}x{height} ".encode())
    digest.update(pixels)
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file, read in blocks; 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def canonical_json(value: Mapping[str, Any]) -> str:
    """JSON with sorted keys and no spaces, the same text for the same value; NaN is refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def settings_digest(value: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of ``value``; 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
