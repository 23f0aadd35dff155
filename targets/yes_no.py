"""Yes or no in a model's reply: from its words, or from the log-probabilities of its tokens.

A reply says yes or no with its first word ("Yes, the person ..."); "Not sure", "Nobody" and "Yes or no?" say
neither. Tokenizers write the start of a word in their own ways ("▁Yes", "ĠYes", " Yes"), and some models
begin with a line end or a mark of emphasis; neither is part of the word.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# How byte-level and SentencePiece tokenizers write a space, line end, tab and carriage return.
_MARKS = str.maketrans({"▁": " ", "Ġ": " ", "Ċ": "\n", "ĉ": "\t", "č": "\r", "\u00a0": " ", "\ufeff": " "})
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>|bytes:\\x([0-9A-Fa-f]{2})")
_SPECIAL = re.compile(r"<\|[^|>]*\|>|</?s>|<bos>|</w>", re.IGNORECASE)
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL | re.IGNORECASE)
# What may stand before a word without being part of it.
_DRESS = " \t\r\n.,;:!?*_\"'`´“”‘’«»()[]{}<>#>~-–—"
_FIRST_WORD = re.compile(r"(yes|no)(?!\w)(?!['’-]\w)", re.IGNORECASE)
# "No idea" is no no, and "yes or no" no answer.
_UNDECIDED = re.compile(
    r"\s*(?:/|\bor\b|\band\b)\s*(?:yes|no)\b|\s+(?:idea|clue|comment|answer|opinion|way (?:to|of))\b",
    re.IGNORECASE,
)


def said(text: str | None) -> bool | None:
    """Whether the first word of a reply is yes (True) or no (False); None for any other reply."""
    words = _THOUGHTS.sub("", text or "", count=1).translate(_MARKS).lstrip(_DRESS)
    found = _FIRST_WORD.match(words)
    if found is None or _UNDECIDED.match(words[found.end() :].lstrip("*_\"'”’")):
        return None
    return found.group(1).lower() == "yes"


def probability(tokens: Sequence[Mapping[str, Any]], text: str | None) -> tuple[float, float] | None:
    """Probability of yes and of no at the first word of a reply.

    Tokens before it that hold nothing of a word are skipped. Of its alternatives all spellings of yes are
    summed, and all of no; each token counts once.

    Args:
        tokens: one entry a token with ``token``, ``logprob`` and ``top_logprobs``, as a server sends them.
        text: the reply; None or empty where only its tokens are known.

    Returns:
        Both, in [0, 1]; the rest of the mass went to other words. (0, 0) if the first word begins like yes
        or no and is another one. None if there is no word, or no log-probability of it.
    """
    spellings = [_plain(token.get("token")) for token in tokens]
    place = next((index for index, word in enumerate(spellings) if word.strip(_DRESS)), None)
    if place is None:
        return None
    # "No" may be the beginning of "Nobody": the word as it was written decides what its token meant.
    if _is_answer(spellings[place]) and said(text or "".join(spellings[place:])) is None:
        return 0.0, 0.0
    chances: dict[str, float] = {}
    for candidate in (tokens[place], *_alternatives(tokens[place])):
        name, logprob = candidate.get("token"), candidate.get("logprob")
        if isinstance(name, str) and isinstance(logprob, int | float) and logprob <= 0:
            chances[name] = math.exp(logprob)
    if not chances:
        return None
    return _sum(chances, "yes"), _sum(chances, "no")


def _alternatives(token: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    listed = token.get("top_logprobs")
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def _sum(chances: Mapping[str, float], word: str) -> float:
    return min(1.0, sum(chance for name, chance in chances.items() if _folded(_plain(name)) == word))


def _is_answer(spelling: str) -> bool:
    return _folded(spelling) in ("yes", "no")


def _folded(spelling: str) -> str:
    return spelling.strip(_DRESS).lower()


def _plain(token: Any) -> str:
    """A token as text: without the tokenizer's marks, bytes as the characters they are."""
    text = token if isinstance(token, str) else ""
    text = _BYTE.sub(lambda found: chr(int(found.group(1) or found.group(2), 16)), text)
    return _SPECIAL.sub("", text).translate(_MARKS)
