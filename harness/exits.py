"""How a command ends: an exit status, and on a fault one line that says what to do.

0 done or passed, 1 the gate failed and nothing else, 2 bad input, 3 inconclusive or not comparable, 70 an
error that nobody foresaw, 130 Ctrl-C, 141 nobody reads the output any more. This module imports the standard
library and our floor only, so that even a broken installation can't end with 1.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from harness.streams import close_streams, prepare_streams, take_back
from targets.base.errors import FacedeltaError
from targets.base.private import redacted_text
from targets.base.text import excerpt, message_line, raised

UNFORESEEN = 70
"""EX_SOFTWARE of sysexits.h."""
INTERRUPTED = 128 + 2
STOPPED = "stopped by Ctrl-C"
_END = os._exit
CLOSED_PIPE = 128 + 13
"""What shells say of a program that a closed pipe has ended."""


def main() -> None:
    """Run the command line and end this process with its exit status."""
    status = ended(_command_line)
    # A target's thread may run for ever, and Python would wait for it; a native thread that still runs, as
    # one that has read a table, aborts a process that ends in the usual way.
    atexit._run_exitfuncs()
    _END(status)


def call() -> None:
    """Run the command line in a process that goes on: raises SystemExit with the exit status."""
    sys.exit(ended(_command_line))


def _command_line() -> object:
    with _nothing_to_undo():
        from harness.cli import app

    return app(standalone_mode=False)


@contextmanager
def _nothing_to_undo() -> Iterator[None]:
    """Ctrl-C ends this process at once: libraries that are being loaded swallow a KeyboardInterrupt."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: _stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _stop() -> None:
    _fault(STOPPED, INTERRUPTED)
    _END(INTERRUPTED)


@contextmanager
def _no_silent_end() -> Iterator[None]:
    """``os._exit`` in a target raises here: it would end the run with its own status, and no record."""
    process = os.getpid()

    def refused(status: int) -> NoReturn:
        if os.getpid() != process:
            _END(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = refused
    try:
        yield
    finally:
        os._exit = _END


def ended(run: Callable[[], object]) -> int:
    """Run a command and return its exit status; whatever it raises is told in one line on standard error.

    Args:
        run: returns None or an exit status, as a typer app without its standalone mode does.
    """
    prepare_streams()
    try:
        with _no_silent_end():
            return _ended(run)
    finally:
        close_streams()


def _ended(run: Callable[[], object]) -> int:
    try:
        status = run()
    except FacedeltaError as error:
        return _fault(str(error), error.exit_status)
    except BrokenPipeError:
        return CLOSED_PIPE
    except OSError as error:
        # A full disk, a folder that may not be written: nothing that a traceback would say better.
        return _fault(str(error), FacedeltaError.exit_status)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BaseException as error:  # noqa: BLE001  (Python would end with 1, which means a failed gate)
        return _other_end(error)
    if status == INTERRUPTED:
        return _fault(STOPPED, INTERRUPTED)
    return status if isinstance(status, int) else 0


def _other_end(error: BaseException) -> int:
    # By its name, because typer brings click along in some versions and takes the installed one in others.
    if any(kind.__name__ == "ClickException" for kind in type(error).__mro__):
        from typer.rich_utils import rich_format_error

        if isinstance(said := getattr(error, "message", None), str):
            error.message = message_line(said)  # type: ignore[attr-defined]
        rich_format_error(error)  # type: ignore[arg-type]
        return FacedeltaError.exit_status
    # typer exits by itself where a pipe is closed; any other exit was asked for by code that may not.
    if isinstance(error.__context__, BrokenPipeError):
        return CLOSED_PIPE
    cause = raised(error.__cause__ or error)
    return _fault(f"an error that facedelta did not foresee: {cause}; {_kept(error)}", UNFORESEEN)


def _kept(error: BaseException) -> str:
    """Where the traceback lies: in a file of its own that only its owner may read."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="facedelta-", suffix=".txt", encoding="utf-8", errors="backslashreplace", delete=False
        ) as stream:
            stream.write(redacted_text("".join(traceback.format_exception(error))))
    except OSError as fault:
        return f"its traceback could not be kept ({excerpt(fault)})"
    return f"please report it with the traceback in {stream.name}"


def _fault(text: str, status: int) -> int:
    take_back()
    sys.stderr.write(f"error: {message_line(redacted_text(text))}\n")
    return status
