"""Bytes to an RGB picture: the only decoder in the project.

Rules, the same for every picture, so that source and transformed face are read alike:

- the kind is told by content, never by the file's name, and only the kinds in ``_KINDS`` are opened: other
  readers of Pillow run programs (PostScript) or take what a picture says for a path;
- width and height are read from the header and checked before any pixel is decoded;
- messages show nothing of the content, which may be any file that a table names;
- EXIF orientation is applied; an invalid value counts as upright, with a warning;
- an embedded colour profile is converted to sRGB; a broken one is ignored, with a warning;
- transparency is laid over white;
- 16-bit grey is scaled by 1/257 over its whole range, so a 12-bit picture in 16 bits comes out dark;
- floating point and 32-bit integer pictures are refused: they have no defined range;
- of several frames the first is taken, with a warning;
- sides of at least 16 px, at most 50 megapixels, at most 10:1;
- nothing but pixels goes on: no colour profile, text or other note of the file is written out again.
"""

from __future__ import annotations

import io
import re
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError, features

from targets.base.errors import InputError
from targets.base.extras import missing
from targets.base.hashing import pixel_hash

PREPROCESSING_VERSION = 1
MIN_SIDE = 16
MAX_PIXELS = 50_000_000
MAX_ASPECT = 10.0
_ORIENTATION_TAG = 0x0112
# Pillow's name of a kind -> how its files begin.
_KINDS: Mapping[str, re.Pattern[bytes]] = {
    "JPEG": re.compile(rb"\xff\xd8\xff"),
    "PNG": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "WEBP": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
    "GIF": re.compile(rb"GIF8[79]a"),
    "TIFF": re.compile(rb"II[*+]\x00|MM\x00[*+]"),
    "BMP": re.compile(rb"BM"),
}
_HEIF_BRANDS = {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"}
_AVIF_BRANDS = {b"avif", b"avis"}
# What is often found under a picture's name, so that a message can name it.
_OTHERS: Mapping[str, tuple[bytes, ...]] = {
    "PostScript": (b"%!PS", b"\xc5\xd0\xd3\xc6"),
    "a PDF": (b"%PDF",),
    "an HTML, XML or SVG page": (b"<", b"\xef\xbb\xbf<"),
    "JSON": (b"{", b"["),
    "a Git LFS pointer": (b"version https://git-lfs",),
}
_QUOTED_BYTES = re.compile(r"""\bb(?P<mark>['"]).*?(?P=mark)""")
# What Pillow's decoders are known to raise on damaged files, besides OSError.
_DECODER_FAULTS = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    struct.error,
    zlib.error,
    KeyError,
    IndexError,
    TypeError,
    OverflowError,
    MemoryError,
    AttributeError,
    RuntimeError,
    ArithmeticError,
    Image.DecompressionBombError,
)
# Pillow warns through the process-wide filter list, which only one thread may change at a time.
_open_lock = threading.Lock()


class UnreadableError(InputError):
    """A picture can't be decoded under the rules; the message names the picture and the rule."""


@dataclass(frozen=True)
class Picture:
    """A decoded picture.

    Attributes:
        image: mode RGB, upright, sRGB.
        pixels: its bytes, rows from the top, RGB.
        pixel_hash: SHA-256 of the decoded pixels, 64 hexadecimal digits.
        format: what the content is ("JPEG", "PNG", ...).
        constant: every pixel has the same colour, as when a safety checker blanks a picture.
        notes: what the decoder did or met besides plain decoding.
    """

    image: Image.Image
    pixels: bytes = field(repr=False)
    pixel_hash: str
    format: str
    constant: bool
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Header:
    """A picture whose header is read and whose pixels are not.

    Attributes:
        name: how it is called in messages.
        format: what the content is.
        pixels: how many it has.
        size: bytes of its file.
    """

    name: str
    format: str
    pixels: int
    size: int
    _opened: Any = field(repr=False)
    _frames: int = 1

    def decode(self) -> Picture:
        """Decode the picture, once.

        Raises:
            UnreadableError: damaged, or without a range.
        """
        notes = [f"first of {self._frames} frames"] if self._frames > 1 else []
        with _refusals(self.name):
            image = self._opened.to_pillow() if self.format == "HEIF" else self._opened
            image.load()
            _check_size(image.size, self.name)
            rgb = _to_rgb(_upright(image, notes), self.name, notes)
            rgb.info = {}
            pixels = rgb.tobytes()
        return Picture(
            image=rgb,
            pixels=pixels,
            pixel_hash=pixel_hash(pixels, rgb.width, rgb.height),
            format=self.format,
            # Nearly every picture is told by its first pixels.
            constant=pixels.startswith(pixels[:3] * 64) and pixels == pixels[:3] * (rgb.width * rgb.height),
            notes=tuple(notes),
        )


def decode(data: bytes, name: str) -> Picture:
    """Decode one picture.

    Args:
        data: the file's bytes.
        name: how the picture is called in messages.

    Raises:
        UnreadableError: damaged, of an unknown kind, too large, too small, too long, or without a range.
    """
    return read_header(data, name).decode()


def read_header(data: bytes, name: str) -> Header:
    """Open a picture without decoding it, so that its size is known before it costs memory.

    Raises:
        UnreadableError: damaged, of an unknown kind, too large, too small or too long.
    """
    if not data:
        raise UnreadableError(f"{name}: the file is empty")
    kind = _kind(data)
    if kind is None:
        known = ", ".join([*_KINDS, "HEIF", "AVIF"])
        raise UnreadableError(f"{name}: not a picture of a known kind ({known}){_likeness(data)}")
    with _refusals(name):
        opened = _open_heif(data, name) if kind == "HEIF" else _open(data, name, kind)
        width, height = opened.size
        _check_size((width, height), name)
        frames = 1 if kind == "HEIF" else getattr(opened, "n_frames", 1)
    return Header(name, getattr(opened, "format", None) or kind, width * height, len(data), opened, frames)


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    """What a decoder raises becomes one line."""
    try:
        yield
    except UnreadableError:
        raise
    except UnidentifiedImageError:
        raise UnreadableError(f"{name}: can't be decoded (its header is damaged)") from None
    except Image.DecompressionBombError:
        raise UnreadableError(f"{name}: more than {MAX_PIXELS // 1_000_000} megapixels") from None
    except _DECODER_FAULTS as error:
        raise UnreadableError(f"{name}: can't be decoded ({_reason(error)})") from None


def _kind(data: bytes) -> str | None:
    """The kind of picture by its first bytes; None for anything else."""
    if data[4:8] == b"ftyp":
        end = min(int.from_bytes(data[:4], "big"), 256)
        brands = {data[8:12], *(data[start : start + 4] for start in range(16, end, 4))}
        if brands & _AVIF_BRANDS:
            return "AVIF"
        return "HEIF" if brands & _HEIF_BRANDS else None
    return next((kind for kind, start in _KINDS.items() if start.match(data)), None)


def _likeness(data: bytes) -> str:
    start = data[:64].lstrip()
    found = next((what for what, starts in _OTHERS.items() if start.startswith(starts)), None)
    return f"; it looks like {found}" if found else ""


def _reason(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return _QUOTED_BYTES.sub("...", text.splitlines()[0])[:120]


def _open(data: bytes, name: str, kind: str) -> Image.Image:
    if kind == "AVIF" and not features.check("avif"):
        raise UnreadableError(f"{name}: this Pillow reads no AVIF; save the picture as PNG or JPEG")
    with _open_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Image.open(io.BytesIO(data), formats=[kind])


def _open_heif(data: bytes, name: str) -> Any:
    """A file of pillow-heif, which has ``size`` and decodes when ``to_pillow`` is called."""
    try:
        import pillow_heif
    except ModuleNotFoundError:
        raise UnreadableError(f"{name}: {missing('pillow-heif', 'heif', 'a HEIF picture')}") from None
    return pillow_heif.open_heif(data)


def _check_size(size: tuple[int, int], name: str) -> None:
    width, height = size
    if width * height > MAX_PIXELS:
        raise UnreadableError(f"{name}: {width}x{height} is more than {MAX_PIXELS // 1_000_000} megapixels")
    if min(width, height) < MIN_SIDE:
        raise UnreadableError(f"{name}: sides must be at least {MIN_SIDE} px, got {width}x{height}")
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise UnreadableError(f"{name}: sides must be within {MAX_ASPECT:.0f}:1, got {width}x{height}")


def _upright(image: Image.Image, notes: list[str]) -> Image.Image:
    orientation = _orientation(image, notes)
    if orientation in (None, 1):
        return image
    if orientation not in range(2, 9):
        notes.append(f"invalid orientation {orientation} taken as upright")
        return image
    notes.append("orientation applied")
    return ImageOps.exif_transpose(image)


def _orientation(image: Image.Image, notes: list[str]) -> int | None:
    try:
        value = image.getexif().get(_ORIENTATION_TAG)
    except _DECODER_FAULTS as error:
        notes.append(f"unreadable EXIF ignored ({_reason(error)})")
        return None
    return value if isinstance(value, int) else None


def _to_rgb(image: Image.Image, name: str, notes: list[str]) -> Image.Image:
    if image.mode in {"F", "I"}:
        raise UnreadableError(f"{name}: mode {image.mode} has no defined range; save it with 8 or 16 bits")
    if image.mode.startswith("I;16"):
        notes.append("16-bit grey scaled by 1/257")
        image = image.convert("I").point(_eight_bits(), "L")
    profile = image.info.get("icc_profile")
    if image.mode in {"P", "PA", "1"} or "transparency" in image.info:
        image = image.convert("RGBA" if "transparency" in image.info or image.mode == "PA" else "RGB")
    alpha = image.getchannel("A") if image.mode in {"LA", "RGBA"} else None
    colour = image.convert(image.mode[:-1]) if alpha is not None else image
    rgb = _to_srgb(colour, profile, notes)
    if alpha is None:
        return rgb
    notes.append("transparency laid over white")
    white = Image.new("RGB", rgb.size, "white")
    white.paste(rgb, mask=alpha)
    return white


@cache
def _eight_bits() -> list[int]:
    """What each 16-bit value becomes."""
    return [round(value / 257) for value in range(1 << 16)]


def _to_srgb(image: Image.Image, profile: bytes | None, notes: list[str]) -> Image.Image:
    if not profile:
        # Converting a picture to the mode it has copies it.
        return image if image.mode == "RGB" else image.convert("RGB")
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        converted = ImageCms.profileToProfile(image, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (ImageCms.PyCMSError, *_DECODER_FAULTS) as error:
        notes.append(f"broken colour profile ignored ({_reason(error)})")
        return image.convert("RGB")
    if converted is None:
        return image.convert("RGB")
    notes.append("colour profile converted to sRGB")
    return converted
