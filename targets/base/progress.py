"""Progress: a bar on a terminal, one line a minute in a log, nothing when asked."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from targets.base.text import console_text

LOG_INTERVAL_S = 60.0


class Advance(Protocol):
    """Called with the number of further items done."""

    def __call__(self, count: int = 1) -> None:
        """Count ``count`` more items."""


def _silent(count: int = 1) -> None:
    del count


@contextmanager
def progress(title: str, total: int, *, enabled: bool = True) -> Iterator[Advance]:
    """Show how far a loop over ``total`` items is, on standard error."""
    if not enabled:
        yield _silent
        return
    title, console = console_text(title), Console(stderr=True)
    if console.is_terminal:
        with _bar(title, total, console) as advance:
            yield advance
    else:
        yield _LogLines(title, total)


@contextmanager
def _bar(title: str, total: int, console: Console) -> Iterator[Advance]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(escape(title), total=total)
        yield lambda count=1: bar.advance(task, count)


class _LogLines:
    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.done = title, total, 0
        self.last = time.monotonic()

    def __call__(self, count: int = 1) -> None:
        self.done += count
        if time.monotonic() - self.last >= LOG_INTERVAL_S:
            self.last = time.monotonic()
            sys.stderr.write(f"{self.title}: {self.done:,} of {self.total:,}\n")
            sys.stderr.flush()
