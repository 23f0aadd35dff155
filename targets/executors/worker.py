"""One decoding process: encoded pictures come in, and pixels go out, through shared memory.

It is started by ``targets.executors.processes`` and loads nothing but the decoder.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from targets.frame import Frame, unless_small
from targets.images import UnreadableError, decode

NICENESS = 5


@dataclass(frozen=True)
class Request:
    """A picture to decode.

    Attributes:
        name: what it is called in messages.
        slot: number of the slot of shared memory that holds the encoded bytes and takes the pixels.
        size: how many encoded bytes there are.
        data: the encoded bytes of a picture whose file is larger than a slot, else None.
    """

    name: str
    slot: int
    size: int
    data: bytes | None = None


@dataclass(frozen=True)
class Answer:
    """What became of a request.

    Attributes:
        fault: why the picture can't be read, or an empty text.
        pixel_hash, format, constant, notes: as in ``targets.images.Picture``.
        size: width and height in pixels.
        shown: width and height of the pixels that are handed over.
        pixels: the RGB bytes of a picture that is larger than a slot, else None.
    """

    fault: str = ""
    pixel_hash: str = ""
    format: str = ""
    constant: bool = False
    notes: tuple[str, ...] = ()
    size: tuple[int, int] = (0, 0)
    shown: tuple[int, int] = (0, 0)
    pixels: bytes | None = None


def main(arguments: Sequence[str]) -> None:
    """Answer chunks of requests until the other end is closed.

    Args:
        arguments: as JSON the socket that brings lists of ``Request`` and takes lists of ``Answer``; the
            shared memory; bytes of one slot; fields of the ``Frame`` of large pictures, or null.
    """
    link_fd, memory_fd, slot_bytes, frame = map(json.loads, arguments)
    # On a full machine the thread that feeds the accelerator goes first.
    os.nice(NICENESS)
    memory = mmap.mmap(memory_fd, 0)
    resized_to = Frame(**frame) if frame else None
    with Connection(link_fd) as link:
        while True:
            try:
                chunk: Sequence[Request] = link.recv()
                link.send([_answer(request, memory, slot_bytes, resized_to) for request in chunk])
            except (EOFError, BrokenPipeError, ConnectionResetError):
                return


def _answer(request: Request, memory: mmap.mmap, slot_bytes: int, frame: Frame | None) -> Answer:
    start = request.slot * slot_bytes
    data = memory[start : start + request.size] if request.data is None else request.data
    try:
        picture = decode(data, request.name)
    except UnreadableError as error:
        return Answer(fault=str(error))
    shown = unless_small(picture.image, frame)
    pixels = picture.pixels if shown is picture.image else shown.tobytes()
    fits = len(pixels) <= slot_bytes
    if fits:
        memory[start : start + len(pixels)] = pixels
    return Answer(
        pixel_hash=picture.pixel_hash,
        format=picture.format,
        constant=picture.constant,
        notes=picture.notes,
        size=picture.image.size,
        shown=shown.size,
        pixels=None if fits else pixels,
    )
