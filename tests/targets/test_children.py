"""No process of ours outlives the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARENT = """
import subprocess, sys, time
from targets.executors.children import start
child = start("tests.targets.test_children", [], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(10_000)
"""


def main(_: list[str]) -> None:
    """Be in native code that holds the interpreter lock, as a renderer or a model can be."""
    print("ready", flush=True)
    ctypes.PyDLL(None).sleep(10_000)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread looks, which needs the interpreter")
@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_ends_with_its_parent(ended_by: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        child = int(parent.stdout.readline())
        # Ctrl-C in a terminal reaches both; the parent is the one to answer it.
        os.kill(child, signal.SIGINT)
        assert is_alive(child)
        parent.send_signal(ended_by)
    for _ in range(3000):
        if not is_alive(child):
            break
        time.sleep(0.02)
    assert not is_alive(child)
