"""Several processes that make pictures for one build, each its share of the batches."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from dataset_builder.generate.engine import take_gpu
from dataset_builder.making import Share, read_share
from dataset_builder.recipe import load_recipe
from targets.base.errors import FacedeltaError, InputError
from targets.executors.children import start

ERRORS = ".err"
PAUSE = 0.2  # seconds between two looks at the processes


def make_in_processes(
    recipe: Path, out: Path, limit: int | None, count: int, *, show_progress: bool = True
) -> None:
    """Make all pictures of a recipe in ``count`` processes; the first shows how far its share is.

    Raises:
        InputError: a process failed, with what it said last. The others are ended; finished batches stay.
    """
    with TemporaryDirectory() as folder:
        files = [Path(folder) / str(number) for number in range(1, count + 1)]
        workers = []
        try:
            for number, file in enumerate(files, start=1):
                shows = show_progress and number == 1
                workers.append(_started(recipe, out, limit, Share(number, count), file, shows=shows))
            statuses = _statuses(workers)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        for status, file in zip(statuses, files, strict=True):
            if status:
                raise InputError(f"a process that makes pictures failed: {_last_words(file, status)}")


def _statuses(workers: Sequence[subprocess.Popen[bytes]]) -> list[int | None]:
    """Wait until all are done, or one has failed; None for one that still runs."""
    while True:
        statuses = [worker.poll() for worker in workers]
        if any(statuses) or None not in statuses:
            return statuses
        time.sleep(PAUSE)


def _last_words(file: Path, status: int) -> str:
    """What a worker said of its fault, else what signal ended it, else its last line of standard error."""
    # Of one that was ended from outside, standard error shows only what it did until then.
    for path in (file,) if status < 0 else (file, file.with_suffix(ERRORS)):
        lines = path.read_text(encoding="utf-8").strip().splitlines() if path.exists() else []
        if lines:
            return lines[-1]
    return f"it ended with status {status}" if status >= 0 else f"{_signal(-status)} ended it"


def _signal(number: int) -> str:
    names = {one.value: one.name for one in signal.Signals}
    hint = ", as the system does where memory runs out," if number == signal.SIGKILL else ""
    return f"signal {number} ({names.get(number, 'real time')}){hint}"


def _started(
    recipe: Path, out: Path, limit: int | None, share: Share, file: Path, *, shows: bool
) -> subprocess.Popen[bytes]:
    """Start one; it writes its fault to ``file``, and shows how far it is or is silent."""
    arguments = [recipe, out, "" if limit is None else limit, f"{share.number}/{share.of}", file, shows]
    with file.with_suffix(ERRORS).open("wb") as errors:
        return start(
            "dataset_builder.workers",
            arguments,
            stdin=subprocess.DEVNULL,
            stderr=None if shows else errors,
        )


def main(arguments: list[str]) -> int:
    """Make one share; the exit status."""
    from dataset_builder.pipeline import Build

    recipe, out, limit, text, file, shows = arguments
    try:
        share = read_share(text)
        if load_recipe(Path(recipe))[0].edit.method != "render":
            take_gpu(share.number - 1)
        whole = Build(Path(recipe), Path(out), int(limit) if limit else None, show_progress=shows == "True")
        whole.make(share)
    except FacedeltaError as error:
        Path(file).write_text(str(error), encoding="utf-8")
        return error.exit_status
    return 0
