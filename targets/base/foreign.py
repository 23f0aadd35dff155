"""Code that is not ours, a target's above all: whatever it raises becomes one line that says where."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from targets.base.errors import InputError, TargetError
from targets.base.text import raised

_OURS = Path(__file__).resolve().parents[2]
_PACKAGES = tuple(str(_OURS / name) for name in ("targets", "dataset_builder", "harness"))
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})
_LIBRARY = (sysconfig.get_path("stdlib"), "<frozen")


@contextmanager
def foreign_code(what: str, advice: str = "") -> Iterator[None]:
    """Turn what other people's code raises into one line with its file and line.

    ``sys.exit`` and errors outside the tree of Exception are faults like any other: a target must not end the
    command with a status of its choice. Only Ctrl-C passes. What that code tells numpy to do about overflows
    and the like ends with it: our own arithmetic expects the default.

    Args:
        what: what was asked for, as the beginning of the message.
        advice: how to mend it, as the message's end.

    Raises:
        TargetError: the code raised anything but an InputError, which passes as it is.
    """
    try:
        with np.errstate():
            yield
    except (InputError, KeyboardInterrupt):
        raise
    except BaseException as error:
        end = f"; {advice}" if advice else ""
        raise TargetError(f"{what} {raised(error)} ({place_of(error)}){end}") from error


def place_of(error: BaseException) -> str:
    """``FILE, line N`` of the innermost frame in code that is neither ours nor a library's, if any is."""
    frames = traceback.extract_tb(error.__traceback__)
    for known in ((*_PACKAGES, *_INSTALLED, *_LIBRARY), (*_PACKAGES, *_LIBRARY), ()):
        for frame in reversed(frames):
            if not frame.filename.startswith(known):
                return f"{frame.filename}, line {frame.lineno}"
    return "no file known"
