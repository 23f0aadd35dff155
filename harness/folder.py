"""The folder of a run: which files a run may hold, and one writer at a time.

Only what is listed here is ever removed: a folder may hold other files of its user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from harness.record import RECORD_FILE, SCHEMA_VERSION
from targets.base.errors import InputError
from targets.base.files import CACHED, remove_leftovers
from targets.base.strict_json import parse_json

PAIRS_FILE, FAILURES_FILE, COMPARISONS_FILE = "pairs.parquet", "failures.parquet", "comparisons.parquet"
REPORT_FILE, TABLES, FIGURES = "report.html", "tables", "figures"
CACHE, LOCK_FILE = "cache", ".facedelta.lock"

_FILES: Mapping[str, tuple[str, ...]] = {
    "": (RECORD_FILE, PAIRS_FILE, FAILURES_FILE, COMPARISONS_FILE, REPORT_FILE),
    TABLES: (
        "cells.csv",
        "differences.csv",
        "interactions.csv",
        "deltas.md",
        "deltas.tex",
        "recognition.csv",
        "recognition.md",
        "det.csv",
        "score_histograms.csv",
    ),
    FIGURES: ("det.svg", "det.png", "score_histograms.svg", "score_histograms.png"),
}


def run_files(run: Path) -> list[Path]:
    """The files of a run that are there, without its cache.

    The record comes first. It goes first and is written last, so that a folder with one is complete.
    """
    files = [run / folder / name for folder, names in _FILES.items() for name in names]
    return [file for file in files if file.is_file()]


def remove_results(run: Path, *folders: str) -> None:
    """Remove a run's files, or those in some of its folders; a cache stays."""
    for file in run_files(run):
        if not folders or str(file.parent.relative_to(run)) in folders:
            file.unlink()
    for folder in (TABLES, FIGURES):
        with suppress(OSError):
            (run / folder).rmdir()


def refuse_foreign(run: Path) -> None:
    """Keep out of folders that hold something, but no run.

    Raises:
        InputError: a file, a link to nothing, or a folder of somebody else.
    """
    if run.is_symlink() and not run.exists():
        raise InputError(f"--out {run} must be a folder, and is a link to nothing")
    if run.exists() and not run.is_dir():
        raise InputError(f"--out {run} must be a folder, and is a file")
    if run.is_dir() and any(run.iterdir()) and not _is_ours(run):
        raise InputError(
            f"--out {run} must be a new or empty folder, or one that holds a run: it holds other files"
        )


def _is_ours(run: Path) -> bool:
    if (run / LOCK_FILE).exists() or any(_caches(run)):
        return True
    try:
        record = parse_json((run / RECORD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and str(record.get("schema", "")).startswith(SCHEMA_VERSION.split("/")[0])


def _caches(run: Path) -> Iterator[Path]:
    """Folders of cached scores."""
    return (key.parent for key in (run / CACHE).glob(f"{CACHED}/key.json"))


@contextmanager
def at_work(run: Path) -> Iterator[None]:
    """Be the only writer in a run's folder, without what killed writers have left there.

    A folder in which nothing was written is afterwards as it was.

    Raises:
        InputError: the folder is somebody else's, or another run is at work there.
    """
    refuse_foreign(run)
    is_new = not run.exists()
    run.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(run / LOCK_FILE).acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"another run is at work in {run}: wait until it has ended, or name another folder"
        ) from None
    try:
        with held:
            for folder, files in _FILES.items():
                remove_leftovers(run / folder, files)
            for cache in _caches(run):
                remove_leftovers(cache)
            yield
    finally:
        if run.is_dir() and {path.name for path in run.iterdir()} == {LOCK_FILE}:
            (run / LOCK_FILE).unlink()
            if is_new:
                run.rmdir()
