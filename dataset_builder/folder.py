"""What the folder of a dataset holds beside its configs, and whether its build has ended."""

from __future__ import annotations

from pathlib import Path

from targets.base.errors import InputError

BUILD_FILE, CARD_FILE = "build.json", "README.md"
WORK_FOLDER = ".build"


def refuse_unfinished(dataset: Path) -> None:
    """Keep from reading a folder whose configs may belong to two builds.

    Raises:
        InputError: a build has been at work there, and its card is missing.
    """
    ours = (dataset / BUILD_FILE).exists() or (dataset / WORK_FOLDER).exists()
    if ours and not (dataset / CARD_FILE).exists():
        raise InputError(
            f"{dataset} is not published: its build has not ended, or was stopped; run facedelta build again"
        )
