"""What the folder of a dataset holds beside its configs, and whether its build has ended."""

from __future__ import annotations

from pathlib import Path

from targets.base.errors import InputError
from targets.base.strict_json import parse_json

BUILD_FILE, CARD_FILE = "build.json", "README.md"
WORK_FOLDER = ".build"


_IN_WORK_FOLDER = ("lock", "batch_size.json", "generate", "edit", "scores", "answers")


def is_build(folder: Path) -> bool:
    """Whether a build has been at work; other tools have a ``.build`` or a ``build.json`` too."""
    work = folder / WORK_FOLDER
    if work.is_dir() and (not any(work.iterdir()) or any((work / name).exists() for name in _IN_WORK_FOLDER)):
        return True
    try:
        made = parse_json((folder / BUILD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(made, dict) and {"recipe", "taxonomy", "detectors"} <= set(made)


def refuse_unfinished(dataset: Path) -> None:
    """Keep from reading a folder whose configs may belong to two builds.

    Raises:
        InputError: a build has been at work there, and its card is missing.
    """
    if is_build(dataset) and not (dataset / CARD_FILE).exists():
        raise InputError(
            f"{dataset} is not published: its build has not ended, or was stopped; run facedelta build again"
        )
