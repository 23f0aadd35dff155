"""Standard output and error that can't fail: one step before any command starts.

A status of 1 means "the gate failed". So a character that the locale's encoding lacks, a closed pipe, a
closed descriptor and a full device must never end a command: what can't be written is dropped.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from contextlib import suppress
from typing import TextIO

from targets.base.errors import InputError
from targets.base.text import console_text, message_line


class _Lasting(io.FileIO):
    """A descriptor that takes everything; after its first error it drops what comes."""

    fault: OSError | None = None
    told = False

    def write(self, data, /) -> int:  # type: ignore[no-untyped-def]
        """Return the number of bytes taken."""
        if self.fault is None:
            try:
                return super().write(data)
            except OSError as error:
                self.fault = error
        return memoryview(data).nbytes


class _Open(io.TextIOWrapper):
    """Text that other people's code can't close: what we have to say may come after it."""

    def close(self) -> None:
        """Write what is left."""
        self.flush()


_ours: dict[str, TextIO] = {}


def prepare_streams() -> None:
    """Make standard output and error last; both are UTF-8 wherever they are no terminal."""
    _fill_closed_descriptors()
    # Streams that a test or a caller has put in their place are left alone.
    if sys.stdout is sys.__stdout__:
        sys.stdout = _lasting(sys.stdout, 1)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _lasting(sys.stderr, 2)
    warnings.formatwarning = _warning_line
    _ours.update(stdout=sys.stdout, stderr=sys.stderr)


def _warning_line(message: Warning | str, *_: object, **__: object) -> str:
    """A library's or our own warning as one line: Python's form shows it as it is, and a line of source."""
    return f"warning: {message_line(str(message))}\n"


def take_back() -> None:
    """Put a command's output and error in place again: a target's code may have put others there."""
    for name, stream in _ours.items():
        setattr(sys, name, stream)


def _fill_closed_descriptors() -> None:
    """Give standard descriptors that are closed to the null device, before a file gets their number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _lasting(stream: TextIO | None, descriptor: int) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - as long as the process
    stream.flush()
    terminal = stream.isatty()
    # A descriptor of our own: once a target has closed the first one, a file that we write gets its number.
    raw = io.BufferedWriter(_Lasting(os.dup(descriptor), "w"))
    encoding = stream.encoding if terminal else "utf-8"
    # Never "?": in a table that mark says something.
    return _Open(raw, encoding, "backslashreplace", newline="\n", line_buffering=terminal or descriptor == 2)


def write_out(text: str) -> None:
    """Write text that is the command's result to standard output.

    Raises:
        BrokenPipeError: nobody reads.
        InputError: the device is full or broken.
    """
    take_back()
    sys.stdout.write(console_text(text))
    output = _flushed()
    if output is None or output.fault is None:
        return
    output.told = True
    if output.fault.errno == errno.EPIPE:
        raise BrokenPipeError("nobody reads standard output")
    raise InputError(f"standard output can't be written: {output.fault.strerror}")


def tell(text: str, *, err: bool = False) -> None:
    """Write a line to standard output, or to standard error; nothing of it is obeyed."""
    take_back()
    stream = sys.stderr if err else sys.stdout
    stream.write(console_text(text) + "\n")
    stream.flush()


def close_streams() -> None:
    """Write what is left, and say on standard error if a device has not taken all."""
    take_back()
    _ours.clear()
    output = _flushed()
    if output and output.fault and output.fault.errno != errno.EPIPE and not output.told:
        sys.stderr.write(f"warning: standard output is not complete: {output.fault.strerror}\n")
    sys.stderr.flush()


def _flushed() -> _Lasting | None:
    """What stands behind standard output, after everything was tried to be written."""
    with suppress(OSError):
        sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Lasting) else None
