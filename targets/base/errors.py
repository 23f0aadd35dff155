"""Every error the project raises on purpose, in one tree.

``FacedeltaError``
    ``InputError``            a file or command the user gave is wrong: exit status 2
        ``MissingExtraError``   an optional package is not installed; the message holds the install command
        ``TargetError``         a target broke its protocol (wrong shape, wrong type, two answers)
        ``TooManyFailuresError`` more pictures or rows failed than ``--max-failures`` allows
    ``NotComparableError``    two runs can't be set side by side: exit status 3

A message is one line: what must hold, what came instead, where, and how to mend it. The command line prints
it without control characters, and with values of a readable length (``message_line``).
"""

from __future__ import annotations

from typing import ClassVar


class FacedeltaError(Exception):
    """Base of all errors raised on purpose; ``exit_status`` is what the command line ends with."""

    exit_status: ClassVar[int] = 2


class InputError(FacedeltaError):
    """A file, a setting or a command is wrong."""


class MissingExtraError(InputError):
    """An optional package is needed and not installed."""


class TargetError(InputError):
    """A target did not keep to its protocol."""


class TooManyFailuresError(InputError):
    """More pictures or rows failed than the run allows; everything scored so far is kept."""


class NotComparableError(FacedeltaError):
    """Two runs differ in something that makes a comparison meaningless."""

    exit_status: ClassVar[int] = 3
