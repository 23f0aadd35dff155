"""What part of a picture a model looks at, and how many pixels of it."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

# Beyond it a batch of pictures would fill the memory, and decoding takes far longer than the resize.
LARGE_PIXELS = 1 << 20


@dataclass(frozen=True)
class Frame:
    """The square input of a model whose preprocessing resizes with Pillow's bicubic filter.

    Attributes:
        side: pixels of a side.
        squash: both sides become ``side``; else the shorter one does, and the middle is cut out later.
    """

    side: int
    squash: bool

    def size_of(self, width: int, height: int) -> tuple[int, int]:
        """Width and height after the resize, as torchvision's ``Resize`` rounds them."""
        if self.squash:
            return self.side, self.side
        scaled = int(self.side * max(width, height) / min(width, height))
        return (self.side, scaled) if width <= height else (scaled, self.side)

    def resized(self, image: Image.Image) -> Image.Image:
        """The picture at its size in the frame."""
        return image.resize(self.size_of(*image.size), Image.Resampling.BICUBIC)


def unless_small(image: Image.Image, frame: Frame | None) -> Image.Image:
    """A picture of more than a megapixel in its frame, where there is one; any other as it is."""
    large = image.width * image.height > LARGE_PIXELS
    return frame.resized(image) if frame is not None and large else image
