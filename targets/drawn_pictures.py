"""Pictures that a few strokes draw, to ask a target about where there are no others."""

from __future__ import annotations

from PIL import Image, ImageDraw


def drawn_faces(count: int = 5, size: int = 160) -> list[Image.Image]:
    """Drawn faces with a coloured mark in each corner; no two are alike."""
    return [_drawn_face(index, size) for index in range(count)]


def _drawn_face(index: int, size: int) -> Image.Image:
    image = Image.new("RGB", (size, size), (120 + 10 * index, 130, 140))
    draw = ImageDraw.Draw(image)
    skin = (225 - 30 * index, 180 - 25 * index, 150 - 22 * index)
    draw.ellipse((size * 0.22, size * 0.12, size * 0.78, size * 0.9), fill=skin)
    for x in (0.38, 0.62):
        draw.ellipse((size * (x - 0.06), size * 0.4, size * (x + 0.06), size * 0.47), fill="white")
        draw.ellipse((size * (x - 0.025), size * 0.41, size * (x + 0.025), size * 0.46), fill="black")
        draw.line(
            (size * (x - 0.08), size * 0.36, size * (x + 0.08), size * 0.35), fill=(60, 40, 30), width=3
        )
    draw.line((size * 0.5, size * 0.47, size * 0.47, size * 0.62), fill=(90, 60, 50), width=2)
    draw.arc(
        (size * 0.4, size * 0.6, size * 0.6, size * (0.72 + 0.01 * index)),
        20,
        160,
        fill=(150, 50, 50),
        width=3,
    )
    corners = ((220, 30, 30), (30, 180, 60), (40, 60, 220), (230, 210, 40))
    mark = size // 10
    for colour, (x, y) in zip(corners, ((0, 0), (1, 0), (0, 1), (1, 1)), strict=True):
        left, top = x * (size - mark), y * (size - mark)
        draw.rectangle((left, top, left + mark, top + mark), fill=colour)
    return image


def coloured_quarters(size: int = 256) -> Image.Image:
    """Four coloured quarters, so that a crop can't cut the marks away."""
    image = Image.new("RGB", (size, size), (230, 20, 20))
    draw = ImageDraw.Draw(image)
    half = size // 2
    draw.rectangle((half, 0, size, half), fill=(20, 230, 20))
    draw.rectangle((0, half, half, size), fill=(20, 20, 230))
    draw.rectangle((half, half, size, size), fill=(230, 230, 20))
    return image
