"""The one decoder: every kind of picture comes out upright, RGB, sRGB, or is refused by name."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms, PngImagePlugin, features

from targets.drawn_pictures import drawn_faces
from targets.images import Picture, UnreadableError, decode, read_header
from tests.support import shipped

FACE = drawn_faces(1)[0]


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def difference(picture: Picture, other: Image.Image) -> float:
    return float(np.abs(np.asarray(picture.image, int) - np.asarray(other.convert("RGB"), int)).mean())


def corpus(name: str) -> bytes:
    return (shipped("corpus") / "images" / name).read_bytes()


def reference(name: str) -> Image.Image:
    return Image.open(shipped("corpus") / "images" / name).convert("RGB")


def test_the_hash_is_of_the_pixels_not_of_the_file() -> None:
    plain, packed = encoded(FACE, compress_level=0), encoded(FACE, compress_level=9)
    assert plain != packed
    assert decode(plain, "a").pixel_hash == decode(packed, "b").pixel_hash
    other = FACE.copy()
    other.putpixel((0, 0), (1, 2, 3))
    assert decode(encoded(other), "c").pixel_hash != decode(plain, "a").pixel_hash
    # Same bytes in another shape are another picture.
    turned = Image.frombytes("RGB", (80, 320), FACE.tobytes())
    assert decode(encoded(turned), "d").pixel_hash != decode(plain, "a").pixel_hash


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied(orientation: int) -> None:
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # Image.Transpose that a camera would have made
    stored = FACE if orientation == 1 else FACE.transpose(Image.Transpose(undo[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture = decode(encoded(stored, exif=exif), "camera.png")
    assert difference(picture, FACE) == 0
    assert ("orientation applied" in picture.notes) == (orientation != 1)


def test_an_invalid_orientation_counts_as_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 99
    picture = decode(encoded(FACE, exif=exif), "camera.png")
    assert difference(picture, FACE) == 0
    assert picture.notes == ("invalid orientation 99 taken as upright",)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_corpus_orientation(orientation: int) -> None:
    picture = decode(corpus(f"exif_orientation_{orientation}.jpg"), "x")
    assert difference(picture, reference("ref_transformed.png")) < 2


def test_sixteen_bit_grey_is_scaled_not_clipped() -> None:
    ramp = np.tile(np.arange(160, dtype=np.uint16) * 400, (160, 1))
    picture = decode(encoded(Image.fromarray(ramp)), "deep.png")
    assert np.asarray(picture.image)[0, :, 0].tolist() == np.round(ramp[0] / 257).astype(int).tolist()


@pytest.mark.parametrize(
    ("name", "reference_name"),
    [
        ("cmyk.jpg", "ref_transformed.png"),
        ("gray16.png", "gray8.png"),
        ("rgb16.png", "ref_transformed.png"),
        ("png_named.jpg", "ref_transformed.png"),
        ("UPPER.JPG", "ref_transformed.png"),
        ("noextension", "ref_transformed.png"),
        ("jpeg_named.png", "ref_transformed.png"),
        ("jpeg_trailing_garbage.jpg", "ref_transformed.png"),
        ("progressive.jpg", "ref_transformed.png"),
        ("lossy.webp", "ref_transformed.png"),
        ("icc_broken.jpg", "ref_transformed.png"),
    ],
)
def test_corpus_readable(name: str, reference_name: str) -> None:
    limit = {"lossy.webp": 8, "icc_broken.jpg": 6, "progressive.jpg": 6}.get(name, 3)
    assert difference(decode(corpus(name), name), reference(reference_name)) < limit


@pytest.mark.parametrize("name", ["gray8.png", "gray_alpha.png", "bilevel.png"])
def test_corpus_grey_becomes_rgb(name: str) -> None:
    picture = decode(corpus(name), name)
    assert picture.image.mode == "RGB"
    assert not picture.constant


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("truncated.jpg", "can't be decoded"),
        ("truncated_header.jpg", "its header is damaged"),
        ("zero_bytes.jpg", "empty"),
        ("html_error.jpg", "it looks like an HTML, XML or SVG page"),
        ("png_bad_crc.png", "can't be decoded"),
        ("huge_12000x9000.png", "50 megapixels"),
        ("bomb_20000x10000.png", "50 megapixels"),
        ("heic_real_named.jpg", "pip install 'facedelta[heif]'"),
        ("heic_stub_named.jpg", "HEIF"),
        ("float32.tif", "no defined range"),
        ("one_pixel.png", "at least 16 px"),
        ("extreme_aspect.png", "at least 16 px"),
    ],
)
def test_corpus_refused(name: str, words: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        decode(corpus(name), name)
    assert name in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["all_black.png", "all_white.png"])
def test_corpus_constant(name: str) -> None:
    assert decode(corpus(name), name).constant


def test_a_colour_profile_is_converted_to_srgb() -> None:
    picture = decode(corpus("icc_p3_red.png"), "icc")
    assert np.abs(np.asarray(picture.image, int)[32, 32] - (218, 67, 74)).max() <= 2
    assert "colour profile converted to sRGB" in picture.notes


def test_a_profile_of_srgb_itself_changes_nothing() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert difference(decode(encoded(FACE, icc_profile=profile), "x"), FACE) <= 1


def test_a_broken_profile_is_ignored_with_a_note() -> None:
    picture = decode(encoded(FACE, icc_profile=b"no profile"), "x")
    assert difference(picture, FACE) == 0
    assert any(note.startswith("broken colour profile ignored") for note in picture.notes)


def test_transparency_is_laid_over_white() -> None:
    clear = FACE.convert("RGBA")
    clear.putalpha(Image.new("L", FACE.size, 0))
    clear.putpixel((3, 3), (9, 8, 7, 255))
    pixels = np.asarray(decode(encoded(clear), "x").image)
    assert pixels[3, 3].tolist() == [9, 8, 7]
    assert pixels[50, 50].tolist() == [255, 255, 255]


def test_a_palette_with_transparency() -> None:
    image = FACE.quantize(16)
    data = encoded(image, transparency=0)
    picture = decode(data, "palette.png")
    index = np.asarray(image)
    assert (np.asarray(picture.image)[index == 0] == 255).all()


def test_the_first_of_several_frames() -> None:
    other = FACE.transpose(Image.Transpose.ROTATE_180)
    data = encoded(FACE, "TIFF", save_all=True, append_images=[other])
    picture = decode(data, "scan.tif")
    assert difference(picture, FACE) == 0
    assert picture.notes == ("first of 2 frames",)


def test_a_text_chunk_that_unpacks_to_far_too_much_is_refused() -> None:
    info = PngImagePlugin.PngInfo()
    data = encoded(FACE, pnginfo=info)
    packed = zlib.compress(b"a" * 70_000_000)
    body = b"zTXtcomment\x00\x00" + packed
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    with pytest.raises(UnreadableError, match=r"bomb\.png: can't be decoded"):
        decode(data[:33] + chunk + data[33:], "bomb.png")


def refusal(data: bytes) -> str:
    try:
        decode(data, "cut")
    except UnreadableError as error:
        return str(error)
    return "cut: decoded"


def test_damage_at_every_kind_of_place_never_raises_anything_else() -> None:
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP"):
        data = encoded(FACE, kind)
        for length in (0, 1, 8, 30, len(data) // 3, len(data) // 2, len(data) - 30):
            piece = bytearray(data[:length])
            assert refusal(bytes(piece)).startswith("cut: ")
            if length > 20:
                piece[length // 2] ^= 0xFF
                assert refusal(bytes(piece)).startswith("cut: ")


@pytest.mark.parametrize("kind", ["EPS", "PDF", "PPM", "TGA", "JPEG2000", "PCX", "SGI", "ICO", "DDS", "IM"])
def test_only_listed_formats_reach_pillow(kind: str) -> None:
    with pytest.raises(UnreadableError, match=r"not a picture of a known kind \(JPEG, PNG"):
        decode(encoded(FACE, kind), "face.png")


def test_a_format_behind_the_beginning_of_another_is_refused() -> None:
    """Pillow's other readers accept some files that begin like a picture of ours."""
    for start in (b"BM", b"GIF89a", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"):
        message = refusal(start + b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 99 99\n")
        assert message.startswith("cut: can't be decoded")


def test_no_message_shows_what_a_file_holds() -> None:
    secret, png = b"hunter2secret", b"\x89PNG\r\n\x1a\n"
    for start in (b"", png, png + b"\x00\x00\x00\x0d", b"GIF89a", b"BM", b"II*\x00", b"{"):
        assert "hunter" not in refusal(start + secret * 4)
        assert "0x" not in refusal(start + secret * 4)


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow reads no AVIF")
def test_damaged_avif_is_unreadable() -> None:
    data = encoded(FACE, "AVIF")
    assert difference(decode(data, "face.jpg"), FACE) < 8
    refused = set()
    for place in range(4, len(data), 7):
        piece = bytearray(data)
        piece[place] ^= 0xFF
        refused.add(refusal(bytes(piece)))
        refused.add(refusal(data[:place]))
    assert any("can't be decoded" in message for message in refused)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "AVIF"])
def test_the_size_is_known_before_a_picture_is_decoded(kind: str) -> None:
    if kind == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow reads no AVIF")
    data = encoded(FACE, kind)
    header = read_header(data, "face")
    assert (header.format, header.pixels, header.size) == (kind, FACE.width * FACE.height, len(data))
    # Cut after its header, it still says its size.
    if kind in ("PNG", "JPEG", "BMP"):
        assert read_header(data[: len(data) * 2 // 3], "face").pixels == header.pixels


def test_heif_says_its_size_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    heif = pytest.importorskip("pillow_heif")
    stream = io.BytesIO()
    heif.from_pillow(FACE).save(stream)
    # Its pixels can't be decoded any more.
    data = stream.getvalue()
    start = data.index(b"mdat") + 4
    damaged = data[:start] + bytes(len(data) - start)
    assert "can't be decoded" in refusal(damaged)
    monkeypatch.setattr("targets.images.MAX_PIXELS", 20_000)
    assert "160x160 is more than" in refusal(damaged)


def test_nothing_of_a_file_but_its_pixels_goes_on() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Author", "somebody")
    noted = {"PNG": {"pnginfo": notes}, "JPEG": {"comment": "somebody"}}
    for kind, options in noted.items():
        again = encoded(decode(encoded(FACE, kind, icc_profile=profile, **options), "x").image)
        assert [chunk for chunk in (b"iCCP", b"tEXt", b"eXIf") if chunk in again] == []
