"""Bytes to an RGB picture: the only decoder in the project.

Rules, the same for every picture, so that source and transformed face are read alike:

- the kind is told by content, never by the file's name;
- EXIF orientation is applied; an invalid value counts as upright, with a warning;
- an embedded colour profile is converted to sRGB; a broken one is ignored, with a warning;
- transparency is laid over white;
- 16-bit grey is scaled by 1/257 over its whole range, so a 12-bit picture in 16 bits comes out dark;
- floating point and 32-bit integer pictures are refused: they have no defined range;
- of several frames the first is taken, with a warning;
- sides of at least 16 px, at most 50 megapixels, at most 10:1.
"""

from __future__ import annotations

import io
import struct
import threading
import warnings
import zlib
from dataclasses import dataclass, field
from functools import cache

from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from targets.base.errors import InputError
from targets.base.extras import missing
from targets.base.hashing import pixel_hash

PREPROCESSING_VERSION = 1
MIN_SIDE = 16
MAX_PIXELS = 50_000_000
MAX_ASPECT = 10.0
_ORIENTATION_TAG = 0x0112
_HEIF_BRANDS = {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"}
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


def decode(data: bytes, name: str) -> Picture:
    """Decode one picture.

    Args:
        data: the file's bytes.
        name: how the picture is called in messages.

    Raises:
        UnreadableError: damaged, of an unknown kind, too large, too small, too long, or without a range.
    """
    if not data:
        raise UnreadableError(f"{name}: the file is empty")
    notes: list[str] = []
    try:
        opened = _open(data, name)
        kind = opened.format or "HEIF"
        _check_size(opened, name)
        if getattr(opened, "n_frames", 1) > 1:
            notes.append(f"first of {getattr(opened, 'n_frames', 1)} frames")
        opened.load()
        rgb = _to_rgb(_upright(opened, notes), name, notes)
    except UnreadableError:
        raise
    except _DECODER_FAULTS as error:
        raise UnreadableError(f"{name}: can't be decoded ({_reason(error)})") from None
    pixels = rgb.tobytes()
    return Picture(
        image=rgb,
        pixels=pixels,
        pixel_hash=pixel_hash(pixels, rgb.width, rgb.height),
        format=kind,
        # Nearly every picture is told by its first pixels.
        constant=pixels.startswith(pixels[:3] * 64) and pixels == pixels[:3] * (rgb.width * rgb.height),
        notes=tuple(notes),
    )


def _reason(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text.splitlines()[0][:120]


def _open(data: bytes, name: str) -> Image.Image:
    if data[4:8] == b"ftyp" and data[8:12] in _HEIF_BRANDS:
        return _open_heif(data, name)
    try:
        with _open_lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Image.open(io.BytesIO(data))
    except UnidentifiedImageError:
        start = data[:24].decode("ascii", "replace")
        raise UnreadableError(f"{name}: not a picture of a known kind, it starts with {start!r}") from None
    except Image.DecompressionBombError:
        raise UnreadableError(f"{name}: more than {MAX_PIXELS // 1_000_000} megapixels") from None


def _open_heif(data: bytes, name: str) -> Image.Image:
    try:
        import pillow_heif
    except ModuleNotFoundError:
        raise UnreadableError(f"{name}: {missing('pillow-heif', 'heif', 'a HEIF picture')}") from None
    return pillow_heif.open_heif(data).to_pillow()  # type: ignore[no-any-return]


def _check_size(image: Image.Image, name: str) -> None:
    width, height = image.size
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
