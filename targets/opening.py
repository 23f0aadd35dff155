"""From references to decoded pictures, in order, decoded ahead on all cores: in threads or in processes.

What is decoded ahead is bounded in pixels: a picture may have 50 megapixels, and its file 30 kB.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, TypeVar

from PIL import Image

from targets.executors.local import ordered_map
from targets.executors.processes import Decoded, DecoderPool
from targets.frame import Frame
from targets.images import Header, Picture, UnreadableError, read_header

ResultT = TypeVar("ResultT")

MISSING = "missing"
UNREADABLE = "unreadable"
CHUNK = 8
AHEAD = 64
MOST_PIXELS = 100_000_000
"""Of the pictures in flight; a picture that takes more is alone."""
_BYTES_A_PIXEL = 3


@dataclass(frozen=True)
class PictureRef:
    """A picture that can be fetched.

    Attributes:
        name: what it is called in messages and in captured logs; equal names mean equal pictures.
        read: returns the encoded bytes; raises FileNotFoundError where there is none, another OSError or a
            ValueError where they can't be had.
    """

    name: str
    read: Callable[[], bytes]


Fault = tuple[str, str]
"""Why a picture can't be asked about: reason and detail."""


@dataclass(frozen=True)
class Facts:
    """What is kept of a picture once its pixels are let go.

    Attributes:
        pixel_hash, size, format, notes: of the decoded picture; None or empty where there is none.
        fault: reason and detail where the picture can't be asked about, else two empty texts.
    """

    pixel_hash: str | None = None
    size: tuple[int, int] | None = None
    format: str | None = None
    notes: tuple[str, ...] = ()
    fault: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Prepared:
    """What a target is given of a picture, or why it is not asked about it.

    Attributes:
        content: the picture, or what the target's ``prepare`` made of it.
        fault: reason and detail, as in ``Facts``.
    """

    content: Any
    fault: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Opened:
    """A picture ready for the target.

    Attributes:
        name: of its reference.
        facts: what is known about it.
        content: what the target is given; None where ``facts.fault`` says why.
        release: to be called once ``content`` is not needed any more.
    """

    name: str
    facts: Facts
    content: Any
    release: Callable[[], None]


def _nothing() -> None:
    """Pictures opened in threads hold nothing that must be given back."""


def fault_of(error: OSError | ValueError, name: str) -> tuple[str, str]:
    """Reason and detail of a picture whose bytes can't be had: no such file, or one that can't be read."""
    no_file = isinstance(error, FileNotFoundError | NotADirectoryError | ValueError)
    if no_file or (isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG):
        return MISSING, f"{name}: no such picture"
    return UNREADABLE, f"{name}: {getattr(error, 'strerror', None) or error}"


def read_or_fault(ref: PictureRef) -> tuple[bytes | None, tuple[str, str]]:
    """The encoded bytes of a picture, or None with reason and detail."""
    try:
        return ref.read(), ("", "")
    except (OSError, ValueError) as error:
        return None, fault_of(error, ref.name)


def _constant(name: str) -> tuple[str, str]:
    return (UNREADABLE, f"{name}: every pixel has the same colour")


def open_in_threads(
    pictures: Sequence[PictureRef], prepare: Callable[[Image.Image, str], Prepared]
) -> Iterator[Opened]:
    """Decode pictures and prepare them for the target; results in order.

    Args:
        pictures: what to open.
        prepare: gets a picture and its name, in several threads at once.
    """

    def open_one(name: str, picture: Picture | Fault) -> Opened:
        if not isinstance(picture, Picture):
            return Opened(name, Facts(fault=picture), None, _nothing)
        made = prepare(picture.image, name) if not picture.constant else Prepared(None, _constant(name))
        facts = Facts(picture.pixel_hash, picture.image.size, picture.format, picture.notes, made.fault)
        return Opened(name, facts, made.content, _nothing)

    return decode_ahead(open_one, pictures)


def decode_ahead(
    use: Callable[[str, Picture | Fault], ResultT], pictures: Iterable[PictureRef]
) -> Generator[ResultT, None, None]:
    """Decode pictures in threads; what ``use`` makes of each, in order.

    Args:
        use: gets a picture's name, and the picture or reason and detail; called in several threads at once.
        pictures: read lazily; those in flight have at most ``MOST_PIXELS``.
    """

    def use_one(read: tuple[str, Header | Fault]) -> ResultT:
        name, header = read
        try:
            return use(name, header.decode() if isinstance(header, Header) else header)
        except UnreadableError as error:
            return use(name, (UNREADABLE, str(error)))

    with closing(ordered_map(_read_header, pictures, ahead=2 * (os.cpu_count() or 1))) as headers:
        yield from ordered_map(use_one, headers, ahead=AHEAD, weigh=_weight, most=MOST_PIXELS)


def _read_header(ref: PictureRef) -> tuple[str, Header | Fault]:
    data, fault = read_or_fault(ref)
    if data is None:
        return ref.name, fault
    try:
        return ref.name, read_header(data, ref.name)
    except UnreadableError as error:
        return ref.name, (UNREADABLE, str(error))


def _weight(read: tuple[str, Header | Fault]) -> int:
    """Pixels that a picture takes, decoded and in its file."""
    header = read[1]
    return header.pixels + header.size // _BYTES_A_PIXEL if isinstance(header, Header) else 0


def open_in_processes(
    pictures: Sequence[PictureRef], held: int, frame: Frame | None = None
) -> Generator[Opened, None, None]:
    """Decode pictures in processes; ``content`` is an (h, w, 3) array in shared memory until released.

    Args:
        pictures: read in this process, so that any ``read`` will do.
        held: most pictures that the caller keeps before it releases one.
        frame: what pictures of more than a megapixel are resized to.
    """
    workers = os.cpu_count() or 1
    faults: dict[str, tuple[str, str]] = {}

    def read_chunk(chunk: Sequence[PictureRef]) -> list[tuple[str, bytes | None]]:
        answers = [(ref.name, *read_or_fault(ref)) for ref in chunk]
        faults.update({name: fault for name, _, fault in answers})
        return [(name, data) for name, data, _ in answers]

    chunks = (pictures[start : start + CHUNK] for start in range(0, len(pictures), CHUNK))
    with ExitStack() as stack:
        pool = stack.enter_context(closing(DecoderPool(workers, held, CHUNK, frame)))
        read = stack.enter_context(
            closing(ordered_map(read_chunk, chunks, workers=workers, ahead=2 * workers))
        )
        for decoded in pool.decode(read):
            for name, picture in decoded:
                yield _from_pool(pool, name, picture, faults.pop(name))


def _from_pool(pool: DecoderPool, name: str, decoded: Decoded | None, fault: tuple[str, str]) -> Opened:
    if decoded is None:
        return Opened(name, Facts(fault=fault), None, _nothing)
    answer = decoded.answer

    def release() -> None:
        pool.release(decoded.slot)

    if answer.fault:
        return Opened(name, Facts(fault=(UNREADABLE, answer.fault)), None, release)
    blank = _constant(name) if answer.constant else ("", "")
    facts = Facts(answer.pixel_hash, answer.size, answer.format, answer.notes, blank)
    return Opened(name, facts, None if answer.constant else decoded.pixels, release)
