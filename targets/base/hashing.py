"""Digests: of decoded pixels, of files, of settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from targets.base.errors import InputError


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
    """SHA-256 of a file, read in blocks; 64 hexadecimal digits. An unchanged file is read once a process."""
    facts = path.stat()
    return _digest(path, facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


@lru_cache(maxsize=4096)
def _digest(path: Path, *_facts: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def folder_digests(folder: Path, *patterns: str) -> dict[str, str]:
    """What a checkpoint's folder holds: relative name -> SHA-256, in the order of the names.

    Args:
        folder: of the checkpoint.
        patterns: which files, as for ``Path.glob``; none for all that lie directly in the folder. Hidden
            files are left out: no loader reads them, and hubs keep the date of a download in some.

    Raises:
        InputError: a file can't be read.
    """
    found = {
        path.relative_to(folder): path for pattern in patterns or ("*",) for path in folder.glob(pattern)
    }
    try:
        return {
            name.as_posix(): file_digest(path)
            for name, path in sorted(found.items())
            if path.is_file() and not any(part.startswith(".") for part in name.parts)
        }
    except OSError as error:
        raise InputError(f"checkpoint {folder}: a file can't be read ({error})") from None


def canonical_json(value: Mapping[str, Any]) -> str:
    """JSON with sorted keys and no spaces, the same text for the same value; NaN is refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def settings_digest(value: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of ``value``; 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
