"""Paths that a file of ours names: they start from that file's folder where something is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Settings of targets that hold a path.
_PATH_SETTINGS = ("card", "manifest", "weights_file")


def path_beside(text: str, folder: Path) -> str:
    """The path from ``folder`` if that exists, else as it is: a hub id, or a path from the current folder."""
    return str(folder / text) if text and (folder / text).exists() else text


def spec_beside(spec: str, folder: Path) -> str:
    """A target's spec whose path, if it has one, starts from ``folder``.

    Args:
        spec: ``FILE.toml``, ``FILE.py:CLASS``, ``NAME:PATH`` or ``NAME:local-dir:PATH``; any other stays.
        folder: of the file that names it.
    """
    file, _, class_name = spec.rpartition(":")
    if file.endswith(".py"):
        return f"{path_beside(file, folder)}:{class_name}"
    place = -1
    while (place := spec.find(":", place + 1)) >= 0:
        found = path_beside(spec[place + 1 :], folder)
        if found != spec[place + 1 :]:
            return spec[: place + 1] + found
    return path_beside(spec, folder) if spec.endswith(".toml") else spec


def settings_beside(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A target's settings whose paths start from ``folder``."""
    return {
        name: path_beside(value, folder) if name in _PATH_SETTINGS and isinstance(value, str) else value
        for name, value in settings.items()
    }
