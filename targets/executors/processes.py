"""Decoding in processes of their own, for targets on an accelerator that threads can't feed.

Parsing headers and packing pixels hold the interpreter lock, which caps threads near a thousand pictures
a second whatever the number of cores. Encoded files and pixels change hands in shared memory, and every
process has its next chunks before it has finished one, so that none waits for the thread that feeds them.
"""

from __future__ import annotations

import json
import mmap
import os
import pickle
import subprocess
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle
from multiprocessing import Pipe

import numpy as np
import numpy.typing as npt

from targets.base.errors import FacedeltaError
from targets.base.text import shortlist
from targets.executors.children import start
from targets.executors.worker import Answer, Request
from targets.frame import Frame

PixelArray = npt.NDArray[np.uint8]
SLOT_BYTES = 3 << 20
# Chunks that a process has been given and not answered; all its short messages fit into a socket's buffer.
DEPTH = 4
SHORT_MESSAGE = 8 << 10
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
        pixels: (height, width, 3) RGB, a large picture resized; valid until ``release``; None with a fault.
        slot: what to give back to ``DecoderPool.release``.
    """

    answer: Answer
    pixels: PixelArray | None
    slot: int


class _Worker:
    """A decoding process and the chunks it has been given."""

    def __init__(self, memory_fd: int, slot_bytes: int, frame: Frame | None) -> None:
        self._link, theirs = Pipe()
        given = (theirs.fileno(), memory_fd, slot_bytes, asdict(frame) if frame else None)
        # Not multiprocessing's own start methods: those import the caller's main module again.
        self.process = start(
            "targets.executors.worker",
            [json.dumps(value) for value in given],
            pass_fds=(theirs.fileno(), memory_fd),
            stdin=subprocess.DEVNULL,
            env={**os.environ, **_KEEP_MEMORY},
        )
        theirs.close()
        self._asked: deque[Sequence[Request]] = deque()
        self._answered: deque[list[Answer]] = deque()

    def ask(self, requests: Sequence[Request]) -> None:
        message = pickle.dumps(requests)
        if len(message) > SHORT_MESSAGE:
            # It could wait for a process that itself waits for a long answer to be taken.
            while self._asked:
                self._receive()
        self._asked.append(requests)
        with self._alive():
            self._link.send_bytes(message)

    def answer(self) -> list[Answer]:
        """What the oldest chunk came to."""
        if not self._answered:
            self._receive()
        return self._answered.popleft()

    def _receive(self) -> None:
        with self._alive():
            self._answered.append(self._link.recv())
        self._asked.popleft()

    @contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):
            names = shortlist([request.name for request in self._asked[0]], 8)
            raise FacedeltaError(
                f"a decoding process ended (out of memory?) while it read one of {names}"
            ) from None

    def close(self) -> None:
        self._link.close()
        self.process.wait()


class DecoderPool:
    """Worker processes that share one arena of slots.

    Args:
        workers: processes.
        held: most pictures that the caller holds before it releases one, beyond the chunk it was given last.
        chunk: most pictures of a chunk.
        frame: what pictures of more than a megapixel are resized to.
        slot_bytes: a picture that needs more comes through a socket.
    """

    def __init__(
        self, workers: int, held: int, chunk: int, frame: Frame | None = None, slot_bytes: int = SLOT_BYTES
    ) -> None:
        self._slot_bytes, self._ahead = slot_bytes, DEPTH * workers
        slots = held + (self._ahead + 1) * chunk
        # Pages are taken when they are first written: pictures smaller than a slot cost their own size.
        self._memory_fd = os.memfd_create("facedelta")
        os.ftruncate(self._memory_fd, slots * slot_bytes)
        self._memory = mmap.mmap(self._memory_fd, 0)
        # The slot that was given back last is the one whose pages are still at hand.
        self._slots = list(range(slots))
        self._workers = [_Worker(self._memory_fd, slot_bytes, frame) for _ in range(workers)]

    def decode(
        self, chunks: Iterable[Sequence[tuple[str, bytes | None]]]
    ) -> Generator[list[tuple[str, Decoded | None]], None, None]:
        """Decode chunk after chunk, in order.

        Args:
            chunks: name and encoded bytes of each picture; what has no bytes is handed through.

        Raises:
            FacedeltaError: a worker process died.
        """
        waiting: deque[tuple[_Worker, list[tuple[str, Request | None]]]] = deque()
        turn = cycle(self._workers)
        for chunk in chunks:
            while waiting and (len(waiting) >= self._ahead or len(self._slots) < len(chunk)):
                yield self._collect(*waiting.popleft())
            worker = next(turn)
            asked = [(name, None if data is None else self._request(name, data)) for name, data in chunk]
            worker.ask([request for _, request in asked if request is not None])
            waiting.append((worker, asked))
        while waiting:
            yield self._collect(*waiting.popleft())

    def _request(self, name: str, data: bytes) -> Request:
        slot = self._slots.pop()
        if len(data) > self._slot_bytes:
            return Request(name, slot, len(data), data)
        start = slot * self._slot_bytes
        self._memory[start : start + len(data)] = data
        return Request(name, slot, len(data))

    def _collect(
        self, worker: _Worker, asked: Sequence[tuple[str, Request | None]]
    ) -> list[tuple[str, Decoded | None]]:
        answers = iter(worker.answer())
        return [
            (name, None if request is None else self._decoded(next(answers), request.slot))
            for name, request in asked
        ]

    def _decoded(self, answer: Answer, slot: int) -> Decoded:
        return Decoded(answer, self._pixels(answer, slot), slot)

    def _pixels(self, answer: Answer, slot: int) -> PixelArray | None:
        if answer.fault:
            return None
        width, height = answer.shown
        buffer, start = (
            (self._memory, slot * self._slot_bytes) if answer.pixels is None else (answer.pixels, 0)
        )
        count = width * height * 3
        return np.frombuffer(buffer, np.uint8, count, start).reshape(height, width, 3)

    def release(self, slot: int) -> None:
        """Let the pixels of one picture be overwritten."""
        self._slots.append(slot)

    def close(self) -> None:
        """End the workers. The memory lives on while an array shows it."""
        for worker in self._workers:
            worker.close()
        os.close(self._memory_fd)
