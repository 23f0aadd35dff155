"""Pictures as the builder keeps them: encoded once, never again."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from dataset_builder.edit.requests import NOT_FINITE, SAFETY_CHECKER, Pixels


def encode_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Encode (height, width, 3) RGB pixels without loss; the same pixels give the same bytes."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="PNG", compress_level=4)
    return stream.getvalue()


def to_pixels(image: npt.NDArray[np.floating[Any]]) -> tuple[Pixels | None, str | None]:
    """Turn what a diffusers pipeline gives as "np" into pixels.

    Args:
        image: (height, width, 3) floats in [0, 1].

    Returns:
        (height, width, 3) RGB and None; or None and the reason: "not_finite", or "safety_checker" for a
        wholly black picture, which is how pipelines of diffusers withhold one.
    """
    if not np.isfinite(image).all():
        return None, NOT_FINITE
    pixels = (image * 255).round().astype(np.uint8)
    return (pixels, None) if pixels.any() else (None, SAFETY_CHECKER)
