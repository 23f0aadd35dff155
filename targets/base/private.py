"""What must not be told: keys, tokens, passwords, and what URLs carry of them. One place redacts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
_SECRET = re.compile(
    r"token|secret|passw|passphrase|authori[sz]ation|credential|cookie|(?:api|access|private|auth)_?key"
    r"|(?<![a-z])key(?![a-z])|(?<![a-z])keys(?![a-z])|(?-i:(?<=[a-z])Key)",
    re.IGNORECASE,
)
# Numbers of words, vocabularies, and names of environment variables.
_OPEN = re.compile(
    r"_env$|tokeniz|tokens_|^(?:max|min|num|n|top|new|image|prompt|completion|input|output)[a-z_]*tokens?$",
    re.IGNORECASE,
)
_USER = re.compile(r"(?P<start>\b[a-z][a-z0-9+.-]*://)[^/?#\s'\"]*@", re.IGNORECASE)
_QUERY = re.compile(r"(?P<start>\b[a-z][a-z0-9+.-]*://[^\s'\"<>?#]*)\?[^\s'\"<>;,)]*", re.IGNORECASE)
_BEARER = re.compile(r"\b(?P<kind>bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE)
# "token=...", "X-Api-Key: ..." in running text.
_SAID = re.compile(r"(?P<name>[\w-]+)(?P<sign>['\"]?\s*[=:]\s*['\"]?)(?P<value>[^\s'\",;)}\]]+)")
# Shorter ones are words of their own.
_SHORTEST = 6
_known: set[str] = set()


def is_secret(name: str) -> bool:
    """Whether a setting's name says that its value must not be told."""
    return bool(_SECRET.search(name)) and not _OPEN.search(name)


def remember(secret: str) -> str:
    """Hide a value wherever it comes up in a message of this process; the value itself."""
    if len(secret) >= _SHORTEST:
        _known.add(secret)
    return secret


def without_url_secrets(text: str) -> str:
    """The text with the user names, passwords and query strings of its URLs hidden."""
    return _QUERY.sub(rf"\g<start>?{HIDDEN}", _USER.sub(rf"\g<start>{HIDDEN}@", text))


def redacted(value: Any, name: str = "") -> Any:
    """A setting as it may be told, hidden where its name or an inner name calls it secret.

    Args:
        value: anything that JSON can hold.
        name: of the setting.
    """
    if is_secret(name) and value is not None and not isinstance(value, bool):
        remember(str(value))
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: redacted(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(redacted(item, name) for item in value)
    return without_url_secrets(value) if isinstance(value, str) else value


def redacted_text(text: str) -> str:
    """A message as it may be told: no known secret, none that it names, nothing that URLs carry."""
    for secret in _known:
        text = text.replace(secret, HIDDEN)
    return _SAID.sub(_hidden, _BEARER.sub(rf"\g<kind> {HIDDEN}", without_url_secrets(text)))


def _hidden(found: re.Match[str]) -> str:
    name, sign = found["name"], found["sign"]
    # "key=value" stands in advice, and "unexpected token: }" in what parsers say.
    plain = name.lower() in ("key", "keys", "token", "tokens") and (
        "=" not in sign or found["value"] == "value"
    )
    if plain or not is_secret(name):
        return found.group()
    return f"{name}{sign}{HIDDEN}"
