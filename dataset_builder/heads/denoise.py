"""Open Image Denoise on the CPU, through the library that the package pyoidn carries.

pyoidn itself is never imported: its import loads torch wherever torch is installed.
"""

from __future__ import annotations

import ctypes
import importlib.util
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dataset_builder.heads.fields import Floats
from targets.base.errors import FacedeltaError, MissingExtraError

_CPU = 1
_FLOAT3 = 3


def library_path() -> Path:
    """Where the library of pyoidn lies; MissingExtraError where pyoidn is not installed."""
    spec = importlib.util.find_spec("pyoidn")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            "rendered heads need the package pyoidn, which is not installed: "
            "python -m pip install 'facedelta[render]'"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "oidn/lib/libOpenImageDenoise.so.2"


class _Denoiser:
    """One filter for one picture size, with buffers that the library keeps addresses of."""

    def __init__(self, height: int, width: int) -> None:
        self._lib = _load()
        self._device = self._lib.oidnNewDevice(_CPU)
        self._lib.oidnSetDeviceInt(self._device, b"numThreads", 1)
        self._lib.oidnSetDeviceBool(self._device, b"setAffinity", False)
        self._lib.oidnCommitDevice(self._device)
        self.input = np.zeros((height, width, 3), np.float32)
        self.output = np.zeros((height, width, 3), np.float32)
        self._filter = self._lib.oidnNewFilter(self._device, b"RT")
        for name, buffer in ((b"color", self.input), (b"output", self.output)):
            self._lib.oidnSetSharedFilterImage(
                self._filter, name, buffer.ctypes.data, _FLOAT3, width, height, 0, 0, 0
            )
        self._lib.oidnSetFilterBool(self._filter, b"hdr", True)
        self._lib.oidnCommitFilter(self._filter)

    def run(self, picture: Floats) -> NDArray[np.float32]:
        self.input[:] = picture
        self._lib.oidnExecuteFilter(self._filter)
        message = ctypes.c_char_p()
        if self._lib.oidnGetDeviceError(self._device, ctypes.byref(message)):
            raise FacedeltaError(f"the denoiser failed: {(message.value or b'').decode()}")
        return self.output.copy()


@lru_cache(maxsize=1)
def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(library_path()))
    pointer, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    signatures: dict[str, tuple[object, list[object]]] = {
        "oidnNewDevice": (pointer, [ctypes.c_int]),
        "oidnSetDeviceInt": (None, [pointer, text, ctypes.c_int]),
        "oidnSetDeviceBool": (None, [pointer, text, ctypes.c_bool]),
        "oidnCommitDevice": (None, [pointer]),
        "oidnGetDeviceError": (ctypes.c_int, [pointer, pointer]),
        "oidnNewFilter": (pointer, [pointer, text]),
        "oidnSetSharedFilterImage": (None, [pointer, text, pointer, ctypes.c_int, *[size] * 5]),
        "oidnSetFilterBool": (None, [pointer, text, ctypes.c_bool]),
        "oidnCommitFilter": (None, [pointer]),
        "oidnExecuteFilter": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


@lru_cache(maxsize=4)
def _denoiser(height: int, width: int) -> _Denoiser:
    return _Denoiser(height, width)


def denoise(picture: Floats) -> NDArray[np.float32]:
    """A linear picture (h, w, 3) with the sampling noise taken out."""
    height, width = picture.shape[:2]
    return _denoiser(height, width).run(picture)
