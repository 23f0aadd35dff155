"""Pillow's bicubic resize on any torch device, bit for bit.

Pillow resizes 8-bit pictures with whole numbers: coefficients of 22 bits, a horizontal pass rounded and
clipped to 8 bits, then a vertical one. Done the same way on an accelerator, the pixels equal those of the
reference preprocessing, so that only the model's arithmetic can differ.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from targets.torch_tools import sent

_PRECISION_BITS = 32 - 8 - 2
_SUPPORT = 2.0
_A = -0.5

IntArray = npt.NDArray[np.int32]


def _bicubic(x: float) -> float:
    x = abs(x)
    if x < 1.0:
        return ((_A + 2.0) * x - (_A + 3.0)) * x * x + 1
    if x < 2.0:
        return (((x - 5) * x + 8) * x - 4) * _A
    return 0.0


@lru_cache(maxsize=64)
def taps(size: int, target: int) -> tuple[IntArray, IntArray]:
    """Which input pixels make each output pixel, and by how much.

    Args:
        size: pixels of one side before.
        target: pixels after.

    Returns:
        (k, target) indices in [0, size) and (k, target) whole coefficients that sum to about 2**22;
        unused taps have coefficient 0.
    """
    scale = size / target
    filter_scale = max(scale, 1.0)
    support = _SUPPORT * filter_scale
    count = math.ceil(support) * 2 + 1
    indices = np.zeros((count, target), dtype=np.int32)
    weights = np.zeros((count, target), dtype=np.int32)
    for position in range(target):
        centre = (position + 0.5) * scale
        first = max(int(centre - support + 0.5), 0)
        last = min(int(centre + support + 0.5), size)
        raw = [_bicubic((x - centre + 0.5) * (1.0 / filter_scale)) for x in range(first, last)]
        total = sum(raw)
        for tap, value in enumerate(raw):
            share = value / total * (1 << _PRECISION_BITS)
            indices[tap, position] = first + tap
            weights[tap, position] = int(share - 0.5) if share < 0 else int(share + 0.5)
    used = int(np.flatnonzero(weights.any(axis=1))[-1]) + 1
    return indices[:used], weights[:used]


def tables(size: int, target: int, device: str) -> tuple[Any, Any] | None:
    """``taps`` as tensors on ``device``, or None where nothing changes."""
    if size == target:
        return None
    indices, weights = taps(size, target)
    return sent(indices, device), sent(weights, device)


def resize(pixels: Any, across: tuple[Any, Any] | None, down: tuple[Any, Any] | None) -> Any:
    """Resize pictures of one size.

    Args:
        pixels: (n, h, w, 3) uint8 tensor.
        across: ``tables(w, width, device)``.
        down: ``tables(h, height, device)``.

    Returns:
        (n, height, width, 3) uint8 tensor, equal to Pillow's ``resize((width, height), BICUBIC)``.
    """
    for axis, table in ((2, across), (1, down)):
        if table is not None:
            pixels = _pass(pixels, *table, axis)
    return pixels


def _pass(pixels: Any, indices: Any, weights: Any, axis: int) -> Any:
    shape = [1, 1, 1, 1]
    shape[axis] = indices.shape[1]
    total: Any = 1 << (_PRECISION_BITS - 1)
    for tap in range(indices.shape[0]):
        total = total + pixels.index_select(axis, indices[tap]).to(weights.dtype) * weights[tap].view(shape)
    return (total >> _PRECISION_BITS).clamp(0, 255).to(pixels.dtype)


def centre_crop(pixels: Any, size: int) -> Any:
    """The middle ``size`` x ``size`` of (n, h, w, 3) pictures, as torchvision's ``CenterCrop`` rounds it."""
    top = round((pixels.shape[1] - size) / 2.0)
    left = round((pixels.shape[2] - size) / 2.0)
    return pixels[:, top : top + size, left : left + size]
