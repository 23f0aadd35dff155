"""One decoding process: encoded pictures come in through a pipe, pixels go out through shared memory.

It is started by ``targets.executors.processes`` and loads nothing but the decoder.
"""

from __future__ import annotations

import mmap
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from targets.images import UnreadableError, decode


@dataclass(frozen=True)
class Request:
    """A picture to decode.

    Attributes:
        name: what it is called in messages.
        data: the encoded bytes.
        slot: number of the slot of shared memory that its pixels may be written to.
    """

    name: str
    data: bytes
    slot: int


@dataclass(frozen=True)
class Answer:
    """What became of a request.

    Attributes:
        fault: why the picture can't be read, or an empty text.
        pixel_hash, format, constant, notes: as in ``targets.images.Picture``.
        size: width and height in pixels.
        pixels: the RGB bytes of a picture that is larger than a slot, else None.
    """

    fault: str = ""
    pixel_hash: str = ""
    format: str = ""
    constant: bool = False
    notes: tuple[str, ...] = ()
    size: tuple[int, int] = (0, 0)
    pixels: bytes | None = None


def main(requests_fd: int, answers_fd: int, memory_fd: int, slot_bytes: int) -> None:
    """Answer chunks of requests until the pipe is closed.

    Args:
        requests_fd: read end of the pipe that brings lists of ``Request``.
        answers_fd: write end of the pipe that takes lists of ``Answer``.
        memory_fd: the shared memory.
        slot_bytes: bytes of one slot.
    """
    # Ctrl-C reaches the whole process group; the parent ends its workers by closing their pipes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    memory = mmap.mmap(memory_fd, 0)
    requests = Connection(requests_fd, writable=False)
    answers = Connection(answers_fd, readable=False)
    while True:
        try:
            chunk: Sequence[Request] = requests.recv()
        except EOFError:
            return
        answers.send([_answer(request, memory, slot_bytes) for request in chunk])


def _answer(request: Request, memory: mmap.mmap, slot_bytes: int) -> Answer:
    try:
        picture = decode(request.data, request.name)
    except UnreadableError as error:
        return Answer(fault=str(error))
    fits = len(picture.pixels) <= slot_bytes
    if fits:
        start = request.slot * slot_bytes
        memory[start : start + len(picture.pixels)] = picture.pixels
    return Answer(
        pixel_hash=picture.pixel_hash,
        format=picture.format,
        constant=picture.constant,
        notes=picture.notes,
        size=picture.image.size,
        pixels=None if fits else picture.pixels,
    )
