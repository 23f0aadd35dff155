"""Decoding in processes of their own, for targets on an accelerator that threads can't feed.

Parsing headers and packing pixels hold the interpreter lock, which caps threads near a thousand pictures
a second whatever the number of cores. Pixels come back through shared memory, so that nothing but the
encoded file is copied through a pipe.
"""

from __future__ import annotations

import json
import mmap
import os
import queue
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np
import numpy.typing as npt

from targets.base.errors import FacedeltaError
from targets.base.text import shortlist
from targets.executors.worker import Answer, Request

PixelArray = npt.NDArray[np.uint8]
SLOT_BYTES = 3 << 20
# Not multiprocessing's own start methods: those import the caller's main module again.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from targets.executors.worker import main; main(*map(int, sys.argv[2:]))"
)

# glibc gives blocks of this size back to the system at once, and every picture then faults its pages in
# anew, which took a third of a worker's time. Elsewhere the names mean nothing.
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}


def available() -> bool:
    """Whether this system has anonymous shared memory that a child process can inherit."""
    return hasattr(os, "memfd_create")


@dataclass(frozen=True)
class Decoded:
    """A decoded picture in shared memory.

    Attributes:
        answer: hash, size, format, notes, or the fault.
        pixels: (height, width, 3) RGB, valid until ``release``; None where there is a fault.
        slot: what to give back to ``DecoderPool.release``.
    """

    answer: Answer
    pixels: PixelArray | None
    slot: int


class _Worker:
    def __init__(self, memory_fd: int, slot_bytes: int) -> None:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        numbers = [str(number) for number in (theirs_in, theirs_out, memory_fd, slot_bytes)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(sys.path), *numbers],
            pass_fds=(theirs_in, theirs_out, memory_fd),
            stdin=subprocess.DEVNULL,
            env={**os.environ, **_KEEP_MEMORY},
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.requests = Connection(ours_out, readable=False)
        self.answers = Connection(ours_in, writable=False)

    def close(self) -> None:
        self.requests.close()
        self.answers.close()
        self.process.wait()


class DecoderPool:
    """Worker processes that share one arena of slots.

    ``decode`` is called from as many threads as there are workers; ``slots`` must be enough for all
    pictures that those threads and the caller hold at a time, else they wait for each other for ever.
    """

    def __init__(self, workers: int, slots: int, slot_bytes: int = SLOT_BYTES) -> None:
        self._slot_bytes = slot_bytes
        # Pages are taken when they are first written: pictures smaller than a slot cost their own size.
        self._memory_fd = os.memfd_create("facedelta")
        os.ftruncate(self._memory_fd, slots * slot_bytes)
        self._memory = mmap.mmap(self._memory_fd, 0)
        self._slots: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(slots):
            self._slots.put(slot)
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers = [_Worker(self._memory_fd, slot_bytes) for _ in range(workers)]
        for worker in self._workers:
            self._idle.put(worker)

    def decode(self, pictures: Sequence[tuple[str, bytes]]) -> list[Decoded]:
        """Decode a few pictures in one worker, in order.

        Args:
            pictures: name and encoded bytes of each.

        Raises:
            FacedeltaError: the worker process died.
        """
        requests = [Request(name, data, self._slots.get()) for name, data in pictures]
        worker = self._idle.get()
        try:
            worker.requests.send(requests)
            answers: list[Answer] = worker.answers.recv()
        except (EOFError, OSError):
            names = shortlist([name for name, _ in pictures], 8)
            raise FacedeltaError(
                f"a decoding process ended (out of memory?) while it read one of {names}"
            ) from None
        finally:
            self._idle.put(worker)
        return [
            Decoded(answer, self._pixels(answer, request.slot), request.slot)
            for answer, request in zip(answers, requests, strict=True)
        ]

    def _pixels(self, answer: Answer, slot: int) -> PixelArray | None:
        if answer.fault:
            return None
        width, height = answer.size
        buffer, start = (
            (self._memory, slot * self._slot_bytes) if answer.pixels is None else (answer.pixels, 0)
        )
        count = width * height * 3
        return np.frombuffer(buffer, np.uint8, count, start).reshape(height, width, 3)

    def release(self, slot: int) -> None:
        """Let the pixels of one picture be overwritten."""
        self._slots.put(slot)

    def close(self) -> None:
        """End the workers. The memory lives on while an array shows it."""
        for worker in self._workers:
            worker.close()
        os.close(self._memory_fd)
