"""What is installed, what is missing, and what would go wrong: one finding a line."""

from __future__ import annotations

import importlib
import importlib.util
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import Literal

from packaging.requirements import Requirement

from targets.base.errors import FacedeltaError
from targets.catalogue import available

PACKAGE = "facedelta"
OPENCV_WHEELS = tuple(
    f"opencv-{kind}python{suffix}" for kind in ("", "contrib-") for suffix in ("", "-headless")
)


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
        Finding("facedelta", "ok", version(PACKAGE)),
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
    for extra in metadata(PACKAGE).get_all("Provides-Extra") or []:
        needed = {item.name: item for item in _requirements(extra)}
        unfit = [text for text in map(_unfit, needed.values()) if text]
        if unfit:
            command = f"pip install '{PACKAGE}[{extra}]'"
            yield Finding(f"extra {extra}", "missing", f"{command}  ({', '.join(unfit)})")
        else:
            found = ", ".join(f"{name} {_installed(name)}" for name in needed)
            yield Finding(f"extra {extra}", "ok", found)


def _requirements(extra: str) -> Iterator[Requirement]:
    """What an extra asks for beyond the package's own needs; extras that it names are followed."""
    for text in requires(PACKAGE) or []:
        item = Requirement(text)
        if item.marker is None or not item.marker.evaluate({"extra": extra}):
            continue
        if item.name == PACKAGE:
            for other in sorted(item.extras):
                yield from _requirements(other)
        else:
            yield item


def _unfit(needed: Requirement) -> str:
    """What is wrong with an installed package; empty where it fits."""
    found = _installed(needed.name)
    if found is None:
        return needed.name
    fits = needed.specifier.contains(found, prereleases=True)
    return "" if fits else f"{needed.name} {found} is not {needed.specifier}"


def _opencv() -> Iterator[Finding]:
    """All wheels install the module cv2: the one installed last wins, and SFace fails under OpenCV 5."""
    found = {name: number for name in OPENCV_WHEELS if (number := _installed(name))}
    versions = set(found.values())
    if len(versions) > 1:
        several = ", ".join(f"{name} {number}" for name, number in found.items())
        mend = "pip install " + " ".join(f"'{name}>=4.14,<5'" for name in found)
        yield Finding("opencv", "fault", f"several versions share the module cv2 ({several}): {mend}")
    elif any(int(number.split(".")[0]) >= 5 for number in versions):
        yield Finding(
            "opencv", "fault", f"sface fails under OpenCV {versions.pop()}: pip install 'facedelta[face]'"
        )


def _torch() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        yield Finding("gpu", "missing", "torch is not installed; the extras above that list torch need it")
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
