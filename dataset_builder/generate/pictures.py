"""Pictures as the builder keeps them: encoded once, never again."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from PIL import Image


def encode_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Encode (height, width, 3) RGB pixels without loss; the same pixels give the same bytes."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="PNG", compress_level=4)
    return stream.getvalue()
