"""Short texts for messages: the nearest known name, and lists cut to a readable length."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence

# Terminals obey them, and spreadsheets, TeX and browsers each read something else into them. Marks of
# direction (U+200E, U+202E and the like) make a line read otherwise than it is written.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# What the runners of GitHub Actions take for a command: "::" that begins a line, and "##[" anywhere.
_COMMAND = re.compile(r"^(?P<start>\s*:)(?=:)|##(?=\[)", re.MULTILINE)


def control_character(text: str) -> str:
    """The first control character other than a tab or line feed, as ``U+001B``; an empty string if none."""
    found = _CONTROL.search(text)
    return f"U+{ord(found.group()):04X}" if found else ""


def is_utf8(text: str) -> bool:
    """Whether the text can be written as UTF-8, which half of a surrogate pair can't."""
    return text.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in text)


def utf8(text: object) -> str:
    """The text of ``text`` as a file can hold it: what is not UTF-8 in it is written out.

    Names that a locale without UTF-8 has cut into bytes are put together again.
    """
    try:
        data = str(text).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        data = str(text).encode("utf-8", "backslashreplace")
    return data.decode("utf-8", "backslashreplace")


def without_control_characters(text: str) -> str:
    """The text with U+FFFD in place of each control character other than a tab or line feed."""
    return _CONTROL.sub("\ufffd", text)


def console_text(text: str) -> str:
    """Text for a terminal or a log: no control characters, no line that a CI runner takes for a command."""
    return _COMMAND.sub(r"\g<0> ", without_control_characters(utf8(text)))


LONGEST_VALUE = 200
_LONGEST_LINE = 2000
# A value in quotation marks (an apostrophe is none), or a word as long as no word is.
_LONG = re.compile(
    rf"""(?<!\w)(?P<start>'[^']{{{LONGEST_VALUE}}})[^']+(?P<end>')(?!\w)"""
    rf"""|(?<!\w)(?P<begin>"[^"]{{{LONGEST_VALUE}}})[^"]+(?P<close>")(?!\w)"""
    rf"""|(?P<word>\S{{{2 * LONGEST_VALUE}}})\S+"""
)


def excerpt(value: object, limit: int = LONGEST_VALUE) -> str:
    """What came, as one line for a message: at most ``limit`` characters, none that a terminal obeys."""
    text = without_control_characters(" ".join(str(value).split()))
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def raised(error: BaseException) -> str:
    """An error's kind and text in one line; its own ``__str__`` may fail too."""
    kind = type(error).__name__
    try:
        text = excerpt(error)
    except Exception as other:  # noqa: BLE001  (only the text is lost)
        text = f"its text can't be read ({type(other).__name__})"
    return f"{kind}: {text}" if text else kind


def message_line(text: str) -> str:
    """A message as one line: no control characters, every value that it quotes cut to a readable length."""
    line = console_text(re.sub(r"\s*[\n\r]\s*|\t", " ", text))
    line = _LONG.sub(_cut, line)
    # The beginning says what must hold, the end how to mend it.
    return line if len(line) <= _LONGEST_LINE else f"{line[:1500]} ... {line[-450:]}"


def _cut(found: re.Match[str]) -> str:
    parts = [part or "" for part in found.group("start", "begin", "word")]
    return f"{''.join(parts)}...{found['end'] or found['close'] or ''}"


def folded(label: str) -> str:
    """A label without what readers overlook: case, needless spaces, Unicode form, invisible signs."""
    text = unicodedata.normalize("NFKC", label).casefold()
    if not text.isascii():
        # Zero-width signs, soft hyphens, marks of direction and of byte order.
        text = "".join(sign for sign in text if unicodedata.category(sign) != "Cf")
    return unicodedata.normalize("NFKC", " ".join(text.split()))


def alike(labels: Iterable[str]) -> list[tuple[str, ...]]:
    """Sets of different labels that are equal when ``folded``, in order of appearance."""
    sets: dict[str, list[str]] = {}
    for label in dict.fromkeys(labels):
        sets.setdefault(folded(label), []).append(label)
    return [tuple(names) for names in sets.values() if len(names) > 1]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the closest of ``known``, or an empty string."""
    known = list(known)
    same = next((other for other in known if folded(other) == folded(name)), None)
    if same is not None:
        return f" (did you mean {same!a}? only case, spaces or Unicode form differ)"
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""


def shortlist(names: Sequence[object], limit: int = 5) -> str:
    """Join at most ``limit`` names with commas and say how many more there are."""
    shown = ", ".join(str(name) for name in names[:limit])
    more = len(names) - limit
    return f"{shown} and {more} more" if more > 0 else shown


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return ``"1 pair"`` or ``"2 pairs"``."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
