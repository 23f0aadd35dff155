"""Processes of our own: each ends with the one that started it, however that ended; Ctrl-C is not theirs."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

PAUSE = 1.0  # seconds between two looks at the parent
_SET_PDEATHSIG = 1
# The caller's path, and not its folder: that may hold packages of the same names as ours.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from targets.executors.children import end_with_parent; end_with_parent(int(sys.argv[2])); "
    "from importlib import import_module; sys.exit(import_module(sys.argv[3]).main(sys.argv[4:]))"
)


def start(module: str, arguments: Sequence[object], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that calls ``main`` of a module with the arguments as texts.

    Args:
        module: whose ``main`` returns the exit status.
        arguments: what it gets.
        options: of ``subprocess.Popen``.
    """
    words = [json.dumps(sys.path), os.getpid(), module, *arguments]
    with interrupts_held():
        return subprocess.Popen([sys.executable, "-c", _START, *map(str, words)], **options)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Start children inside: Ctrl-C reaches the whole group, and only the parent is to answer it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent(parent: int) -> None:
    """End this process when ``parent`` has ended: at once on Linux, within a second elsewhere."""
    if sys.platform == "linux":
        # Also where native code holds the interpreter lock for long.
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PAUSE)
    os._exit(1)
