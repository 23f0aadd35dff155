"""Decoded pictures on their way through a GPU: copied ahead, resized there, computed two batches deep."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from targets.base.extras import require
from targets.frame import Frame
from targets.protocol import PixelArray, Scores
from targets.resample import centre_crop, resize, tables
from targets.torch_tools import answers, sent


@dataclass(frozen=True)
class Staged:
    """A batch that is being copied.

    Attributes:
        count: pictures in it.
        groups: for each size of picture, (positions in the batch, (n, h, w, 3) uint8 tensor on the GPU).
        copied: the event after which the tensors hold the pictures.
    """

    count: int
    groups: tuple[tuple[list[int], Any], ...]
    copied: Any


class GpuBatches:
    """Preprocesses (resize, centre crop, normalise) and computes batches of one fixed size on a GPU.

    Every batch is filled up to ``batch_size``, so that a picture's answer doesn't depend on how many
    others come with it and a compiled model meets one shape only.

    Attributes:
        frame: what pictures are resized to; one that is so already passes through.
    """

    def __init__(
        self,
        compute: Callable[[Any], Any],
        preprocessing: Mapping[str, Any],
        device: str,
        dtype: Any,
        batch_size: int,
    ) -> None:
        torch = self._torch = require("torch", "clip", "a target on torch")
        self._compute = compute
        self._device, self._dtype = device, dtype
        self.frame = Frame(_side(preprocessing), preprocessing["resize_mode"] == "squash")
        self._mean, self._std = (
            torch.tensor(preprocessing[name], device=device).view(1, 3, 1, 1) for name in ("mean", "std")
        )
        self._batch_size = batch_size
        self._stream = torch.cuda.Stream(device) if device.startswith("cuda") else None
        self._hosts = _HostBuffers(torch, page_locked=self._stream is not None)
        self._resize: Callable[..., Any] = resize

    @staticmethod
    def fits(preprocessing: Mapping[str, Any]) -> bool:
        """Whether the preprocessing is one that is done here bit for bit."""
        return (
            preprocessing.get("interpolation") == "bicubic"
            and preprocessing.get("resize_mode") in ("shortest", "squash")
            and _side(preprocessing) > 0
        )

    def compile(self) -> None:
        """Fuse the resize into two kernels."""
        self._resize = self._torch.compile(resize)

    def stage(self, pixels: Sequence[PixelArray]) -> Staged:
        """Copy (h, w, 3) arrays to the GPU beside whatever it computes."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for position, array in enumerate(pixels):
            groups.setdefault(array.shape, []).append(position)
        # Pictures of one size, the usual case, are filled up here already: one shape for every kernel.
        filled = self._batch_size if len(groups) == 1 else 0
        with self._torch.cuda.stream(self._stream):
            parts = tuple(
                (rows, self._copied([pixels[row] for row in rows], max(filled, len(rows))))
                for rows in groups.values()
            )
            copied = self._mark(self._stream) if self._stream else None
        return Staged(len(pixels), parts, copied)

    def _copied(self, pixels: Sequence[PixelArray], count: int) -> Any:
        """(count, h, w, 3) on the device; what is beyond the pictures given is left as it was."""
        shape = (count, *pixels[0].shape)
        host = self._hosts.take(math.prod(shape))
        view = host.buffer[: math.prod(shape)].view(shape)
        for place, array in zip(view.numpy(), pixels, strict=False):
            place[...] = array
        if self._stream is None:
            return view.clone()
        there = view.to(self._device, non_blocking=True)
        host.copied = self._mark(self._stream)
        return there

    def _mark(self, stream: Any) -> Any:
        """An event whose waiting leaves the core to the decoders instead of spinning on it."""
        event = self._torch.cuda.Event(blocking=True)
        event.record(stream)
        return event

    def start(self, staged: Staged) -> Callable[[], Scores]:
        """Launch the computation of a staged batch; the result waits for it."""
        with self._torch.inference_mode():
            if staged.copied is not None:
                current = self._torch.cuda.current_stream(self._device)
                current.wait_event(staged.copied)
                for _, tensor in staged.groups:
                    tensor.record_stream(current)
            values = self._compute(self._normalised(self._resized(staged)))[: staged.count]
            # A copy to ordinary memory would wait here for the batch, and the next one start too late.
            there = self._torch.empty(values.shape, dtype=values.dtype, pin_memory=self._stream is not None)
            there.copy_(values, non_blocking=True)
            done = None if staged.copied is None else self._mark(self._torch.cuda.current_stream())

        def finish() -> Scores:
            if done is not None:
                done.synchronize()
            return answers(there)

        return finish

    def _resized(self, staged: Staged) -> Any:
        side = self.frame.side
        batch = self._torch.zeros(
            (self._batch_size, side, side, 3), dtype=self._torch.uint8, device=self._device
        )
        for rows, tensor in staged.groups:
            height, width = tensor.shape[1:3]
            wide, high = self.frame.size_of(width, height)
            across, down = tables(width, wide, self._device), tables(height, high, self._device)
            small = centre_crop(self._resize(tensor, across, down), side)[: len(rows)]
            if len(staged.groups) == 1:
                batch[: len(rows)] = small
            else:
                batch[sent(np.array(rows), self._device)] = small
        return batch

    def _normalised(self, batch: Any) -> Any:
        unit = batch.permute(0, 3, 1, 2).to(self._torch.float32).div(255)
        return ((unit - self._mean) / self._std).to(self._dtype)


@dataclass
class _Host:
    buffer: Any
    copied: Any = None


class _HostBuffers:
    """Two buffers in turn; one is written while the other is read by the GPU."""

    def __init__(self, torch: Any, *, page_locked: bool) -> None:
        self._torch, self._page_locked = torch, page_locked
        self._buffers: list[_Host | None] = [None, None]
        self._next = 0

    def take(self, size: int) -> _Host:
        host = self._buffers[self._next]
        if host is not None and host.copied is not None:
            host.copied.synchronize()
        if host is None or len(host.buffer) < size:
            buffer = self._torch.empty(size, dtype=self._torch.uint8, pin_memory=self._page_locked)
            host = self._buffers[self._next] = _Host(buffer)
        self._next = 1 - self._next
        return host


def _side(preprocessing: Mapping[str, Any]) -> int:
    """Pixels of a square input, or 0 where it isn't square."""
    size = preprocessing.get("size", 0)
    sides = (size, size) if isinstance(size, int) else tuple(size)
    return int(sides[0]) if len(sides) == 2 and sides[0] == sides[1] else 0
