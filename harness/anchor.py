"""The baseline of a gate and its anchor: the first run that was accepted, from which drift is measured.

Many small steps, each inside the margin, add up. So a baseline that a new run replaces is kept beside it, in
``BASELINE/anchor``, until somebody sets a new anchor by hand and says why.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from harness.finished import FinishedRun, load_run
from harness.folder import (
    COMPARISONS_FILE,
    FAILURES_FILE,
    FIGURES,
    PAIRS_FILE,
    REPORT_FILE,
    at_work,
    remove_results,
    run_files,
)
from harness.record import RECORD_FILE
from targets.base.errors import InputError
from targets.base.files import atomic, write_json

ANCHOR = "anchor"
REASON_FILE = "reason.json"
STORED = (PAIRS_FILE, FAILURES_FILE, COMPARISONS_FILE, RECORD_FILE)
"""What a gate needs of a run; the record comes last, since a folder with one is complete."""


def load_anchor(baseline: Path) -> FinishedRun | None:
    """Read the anchor of a baseline's folder; None where the baseline is its own.

    Raises:
        InputError: damaged.
        NotComparableError: of another version of the schema.
    """
    folder = baseline / ANCHOR
    if not folder.is_dir() and (folder.exists() or folder.is_symlink()):
        raise InputError(f"{folder} must be the folder of the baseline's anchor, and is none: restore it")
    return load_run(folder) if folder.is_dir() else None


def replace_baseline(place: Path, by: Path, new_anchor: str | None = None) -> None:
    """Put a run's files, without its report, in the place of a baseline's and keep the anchor.

    Args:
        place: the baseline's folder.
        by: the new run's folder.
        new_anchor: why the new run becomes the anchor too; None to keep the anchor.

    Raises:
        InputError: both are one folder, or a run is at work there.
    """
    if place.resolve() == by.resolve():
        raise InputError("the new run must not be the baseline itself")
    with at_work(place):
        if new_anchor is None and not (place / ANCHOR).is_dir():
            _set_anchor(place, place, "the first baseline")
        remove_results(place)
        for file in reversed(run_files(by)):
            if file.name != REPORT_FILE and file.parent.name != FIGURES:
                with atomic(place / file.relative_to(by)) as temporary:
                    shutil.copyfile(file, temporary)
        if new_anchor is not None:
            _set_anchor(place, by, new_anchor)


def _set_anchor(place: Path, run: Path, reason: str) -> None:
    """Exchange the anchor, whose folder is complete before it gets its name."""
    fresh = Path(tempfile.mkdtemp(dir=place, prefix=f".{ANCHOR}."))
    for name in STORED:
        if (run / name).is_file():
            shutil.copyfile(run / name, fresh / name)
    write_json(fresh / REASON_FILE, {"reason": reason})
    fresh.chmod(0o755)
    if (place / ANCHOR).is_dir():
        old = Path(tempfile.mkdtemp(dir=place, prefix=f".{ANCHOR}."))
        (place / ANCHOR).rename(old / ANCHOR)
        fresh.rename(place / ANCHOR)
        shutil.rmtree(old)
    else:
        fresh.rename(place / ANCHOR)
