"""Talking to an OpenAI-compatible server: which faults pass, which end the run, and no key in any message."""

from __future__ import annotations

import json
import os
import random
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from dataset_builder.detect.settings import Vlm
from dataset_builder.detect.vlm_answers import Reason, Reply
from targets.base.errors import InputError
from targets.base.extras import require

LONGEST_WAIT = 60.0
# More than any model reads or writes at once; a larger count is a fault of the server's.
MOST_TOKENS = 9_999_999
LONGEST_INTEGER = 100
ENDPOINT = "/v1/chat/completions"
# Codes by which servers say that a picture or text ran into their filter.
_FILTER_CODES = frozenset(
    {"content_filter", "content_policy_violation", "moderation_blocked", "ResponsibleAIPolicyViolation"}
)


@dataclass(frozen=True)
class Exchange:
    """What came of a request.

    Attributes:
        reply: the answer, None where there is none.
        reason: why there is no answer, None where there is one.
        tokens_in, tokens_out: as the server counts them; None where it doesn't say.
        resent: how often the request was sent again.
    """

    reply: Reply | None
    reason: Reason | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    resent: int = 0


@dataclass(frozen=True)
class Fault:
    """A passing fault: its name, and how long the server asks to wait in seconds (None: it doesn't)."""

    reason: Reason
    wait: float | None


class Server:
    """One client for all threads. The key lives in the client only."""

    def __init__(self, settings: Vlm) -> None:
        """Connect nothing yet.

        Raises:
            MissingExtraError: the package openai is not installed.
            InputError: no key, or one with characters no key has.
        """
        self._openai = require("openai", "vlm", "the vision-language detector")
        self._settings = settings
        self._key = _key(settings)
        self.client = self._openai.OpenAI(
            api_key=self._key, base_url=settings.base_url, timeout=settings.timeout, max_retries=0
        )
        # A socket that the garbage collector finds open is worth a warning.
        weakref.finalize(self, self.client.close)
        # Its address alone: a URL may hold credentials.
        self.host = urlsplit(str(self.client.base_url)).hostname or "the server"

    def complete(self, request: dict[str, Any], before: Callable[[], Callable[[bool], None]]) -> Exchange:
        """Send one request, again after passing faults, until there is an answer or patience ends.

        Args:
            request: model, messages and so on.
            before: called before each sending; what it returns is called after a fault, with whether the
                lost answer may have been billed.

        Raises:
            InputError: a fault that sending again can't mend: key, model, quota.
        """
        resent = 0
        while True:
            failed = before()
            try:
                raw = self.client.chat.completions.with_raw_response.create(**request)
                exchange = exchange_of(parsed(raw.text))
            except self._openai.BadRequestError as error:
                failed(False)
                return Exchange(None, self._bad_request(error), resent=resent)
            except self._openai.APIError as error:
                fault = self._fault(error)
                failed(fault.reason == "timeout")
            else:
                if exchange.reason is None:
                    return _again(exchange, resent)
                failed(False)
                fault = Fault(exchange.reason, None)
            if resent == self._settings.retries:
                return Exchange(None, fault.reason, resent=resent)
            time.sleep(self._delay(fault, resent))
            resent += 1

    def guarded(self, call: Callable[[], Any]) -> Any:
        """Call something of the files or batches endpoints; sent again after passing faults.

        Raises:
            InputError: patience ended, or a fault that sending again can't mend.
        """
        for resent in range(self._settings.retries + 1):
            try:
                return call()
            except self._openai.BadRequestError as error:
                raise InputError(f"{self.host} refuses the batch: {self.scrubbed(error)}") from None
            except self._openai.APIError as error:
                fault = self._fault(error)
            time.sleep(self._delay(fault, resent))
        raise InputError(f"{self.host} gives no answer about the batch ({fault.reason}); run again to go on")

    def _delay(self, fault: Fault, resent: int) -> float:
        wait = self._settings.backoff * 2**resent if fault.wait is None else fault.wait
        # Spread, so that requests which failed together don't come back together.
        return min(LONGEST_WAIT, wait * random.uniform(1.0, 1.25))  # noqa: S311

    def _fault(self, error: Any) -> Fault:
        """Name a passing fault; raise for one that stays."""
        kinds = self._openai
        if isinstance(error, kinds.APITimeoutError):
            return Fault("timeout", None)
        if isinstance(error, kinds.APIConnectionError):
            return Fault("connection", None)
        status = getattr(error, "status_code", None)
        if status == 429 and error.code == "insufficient_quota":
            raise InputError(f"{self.host} says the quota is used up; all answers are kept") from None
        if status == 429:
            return Fault("rate_limit", _asked_delay(error))
        if status in (408, 409) or (status is not None and status >= 500):
            return Fault("server_error", _asked_delay(error))
        if status in (401, 403):
            raise InputError(f"{self.host} refuses the key in {self._settings.key_env} ({status})") from None
        if status == 404:
            raise InputError(f"{self.host} knows no model '{self._settings.model}' at this address") from None
        raise InputError(f"{self.host} answers {status}: {self.scrubbed(error)}") from None

    def _bad_request(self, error: Any) -> Reason:
        return "content_filter" if is_filtered({"error": error.body}) else "rejected"

    def scrubbed(self, error: object) -> str:
        """An error's first line without the key, at most 200 characters; servers repeat keys."""
        text = (str(error).splitlines() or [""])[0].replace(self._key, "***")
        return text[:200]


def _again(exchange: Exchange, resent: int) -> Exchange:
    return Exchange(exchange.reply, None, exchange.tokens_in, exchange.tokens_out, resent)


def _key(settings: Vlm) -> str:
    key = os.environ.get(settings.key_env, "").strip()
    if not key and settings.base_url is None:
        raise InputError(f"the environment variable {settings.key_env} must hold the server's key")
    if not key.isascii() or not key.isprintable():
        raise InputError(f"the key in {settings.key_env} must be printable ASCII")
    return key or "none"


def _asked_delay(error: Any) -> float | None:
    headers = error.response.headers
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit)
        except (KeyError, ValueError):
            continue
    return None


def parsed(text: str) -> Any:
    """JSON of a response, or None where it is none (a proxy's HTML page, half a body)."""
    try:
        return json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError):
        return None


def _integer(digits: str) -> int | float:
    # Python reads no integer of more than 4300 digits, and one absurd count must not cost a whole answer.
    return int(digits) if len(digits) <= LONGEST_INTEGER else float(digits)


def exchange_of(body: Any) -> Exchange:
    """Read a chat completion; anything else is a fault of the server."""
    choices = body.get("choices") if isinstance(body, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return Exchange(None, "server_error")
    reply = Reply(
        finish_reason=choice.get("finish_reason"),
        content=_text(message.get("content")),
        refusal=_text(message.get("refusal")),
    )
    usage = body.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return Exchange(reply, None, _count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens")))


def is_filtered(body: Any) -> bool:
    """Whether an error's body says that a picture or text ran into the server's filter."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return False
    return any(isinstance(error.get(name), str) and error[name] in _FILTER_CODES for name in ("code", "type"))


def _text(value: Any) -> str | None:
    """Content as text; some servers send it in parts."""
    if isinstance(value, list):
        return "".join(str(part.get("text", "")) for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    """A number of tokens; None for anything that can't be one."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= MOST_TOKENS else None
