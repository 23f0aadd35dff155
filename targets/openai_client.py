"""Asking an OpenAI-compatible server: which faults pass, which end the run, and no key in any message.

The target ``vlm`` and the builder's attribute detector share this client. A fault is one of three kinds: it
passes (the request is sent again), it belongs to one picture (the request has no answer and the run goes on),
or it belongs to every request (key, model, quota, a parameter that the server doesn't take: the run stops).
"""

from __future__ import annotations

import importlib
import json
import math
import os
import random
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator

from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.private import redacted_text, remember, without_url_secrets
from targets.base.strict_json import parse_json
from targets.base.text import excerpt

LONGEST_WAIT = 60.0
CHECK_TIMEOUT = 10.0
# More than any model reads or writes at once; a larger count is a fault of the server's.
MOST_TOKENS = 9_999_999
LONGEST_INTEGER = 100
# A server that lets so many requests in a row fail, each sent again as often as allowed, is not there.
STOP_AFTER = 20
ENDPOINT = "/v1/chat/completions"
LOCAL_KEY = "none"
LARGEST_ANSWER = 256 * 2**20
"""Bytes that one answer may have; a batch of many thousand questions has some tens of millions."""

Trouble = Literal[
    "content_filter", "rejected", "rate_limit", "server_error", "timeout", "connection", "no_result"
]
# Nothing was answered and nothing was bought.
UNANSWERED: frozenset[str] = frozenset(
    {"rejected", "rate_limit", "server_error", "timeout", "connection", "no_result"}
)
TokensParameter = Literal["max_tokens", "max_completion_tokens"]
# A command line has no null: the text "none" stands for it.
NoneWord = BeforeValidator(
    lambda value: None if isinstance(value, str) and value.lower() == "none" else value
)
Temperature = Annotated[float | None, NoneWord]
Seed = Annotated[int | None, NoneWord]

# Codes by which servers say that a picture or text ran into their filter.
_FILTER_CODES = frozenset(
    {
        "content_filter",
        "content_policy_violation",
        "data_inspection_failed",
        "datainspectionfailed",
        "moderation_blocked",
        "responsibleaipolicyviolation",
    }
)
_FILTER_WORDS = re.compile(
    r"content (management )?(filter|policy)|\bflagged\b|\bmoderation\b|safety system|usage polic",
    re.IGNORECASE,
)
_KEY_CODES = frozenset({"invalid_api_key", "invalid_authentication", "authentication_error"})
_KEY_WORDS = re.compile(r"\binvalid api[ _-]?key\b|\bapi[ _-]?key (is )?(not valid|invalid)\b", re.IGNORECASE)
_QUOTA_CODES = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "quota_exceeded"}
)
_MODEL_CODES = frozenset({"model_not_found", "invalid_model", "deploymentnotfound", "unknown_model"})
# Faults of one picture that name a parameter all the same: its tokens don't fit.
_TOO_LONG = re.compile(
    r"context[ _]length|context window|too many (input )?tokens|reduce the length", re.IGNORECASE
)
_PICTURE_WORDS = re.compile(r"image|picture|base64|pixel|context[ _]length|token", re.IGNORECASE)
_TEXT_PARTS = ("text", "output_text")
_ABOUT_THE_REQUEST = frozenset({400, 413, 415, 422})


@dataclass(frozen=True)
class Endpoint:
    """Where a server is and how patiently it is asked.

    Attributes:
        model: name the server knows it by.
        base_url: of the server; OpenAI's where None.
        key_env: environment variable that holds the key. A server of one's own needs none.
        timeout: seconds that one answer may take.
        retries: how often a request is sent again after a passing fault.
        backoff: seconds before the first of them, doubled each time, where the server names no delay.
        remedies: parameter of a request -> what to do where the server refuses it.
    """

    model: str
    base_url: str | None
    key_env: str
    timeout: float
    retries: int
    backoff: float
    remedies: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """One reply of a server, as far as the answer is concerned.

    Attributes:
        finish_reason: why it ended.
        content: its text, parts joined; None where there is none.
        refusal: what the model said in place of an answer, where the server tells it apart.
        logprobs: one entry a token of the content, as the server sent them; empty where it sent none.
    """

    finish_reason: str | None
    content: str | None
    refusal: str | None = None
    logprobs: tuple[Mapping[str, Any], ...] = ()


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
    reason: Trouble | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    resent: int = 0


@dataclass(frozen=True)
class Fault:
    """What went wrong with a sending, and how long the server asks to wait in seconds (None: it doesn't)."""

    reason: Trouble
    wait: float | None


def _uncharged() -> Callable[[bool], None]:
    return lambda _: None


def bounds(seconds: float) -> dict[str, list[Callable[[Any], None]]]:
    """Hooks of an HTTP client that bound a whole answer: a time-out starts anew with every byte that comes.

    Args:
        seconds: from a question to the last byte of its answer. Of any answer more than ``LARGEST_ANSWER``
            bytes are a read error.
    """

    def begin(request: Any) -> None:
        # The file of a batch's answers may take as long as it comes.
        whole = seconds if str(request.url.path).endswith("/chat/completions") else math.inf
        request.extensions["deadline"] = time.monotonic() + whole

    def bound(response: Any) -> None:
        # Versions of openai bring different versions of their HTTP library along.
        library = importlib.import_module(type(response).__module__.partition(".")[0])
        stream, deadline = response.stream, response.request.extensions["deadline"]

        class Bounded(library.SyncByteStream):  # type: ignore[name-defined,misc]
            def __iter__(self) -> Iterator[bytes]:
                size = 0
                for part in stream:
                    size += len(part)
                    if size > LARGEST_ANSWER:
                        raise library.ReadError(f"an answer of more than {LARGEST_ANSWER} bytes")
                    if time.monotonic() > deadline:
                        raise library.ReadTimeout(f"no whole answer in {seconds:g} s")
                    yield part

            def close(self) -> None:
                stream.close()

        response.stream = Bounded()

    return {"request": [begin], "response": [bound]}


class Server:
    """One client for all threads. The key lives in the client only."""

    def __init__(self, endpoint: Endpoint, purpose: str) -> None:
        """Connect nothing yet.

        Raises:
            MissingExtraError: the package openai is not installed.
            InputError: no key, or one with characters no key has.
        """
        self._openai = require("openai", "vlm", purpose)
        self._endpoint = endpoint
        self._key = key_of(endpoint)
        self.client = self._openai.OpenAI(
            api_key=self._key,
            base_url=endpoint.base_url,
            timeout=endpoint.timeout,
            max_retries=0,
            http_client=self._openai.DefaultHttpxClient(event_hooks=bounds(endpoint.timeout)),
        )
        # A socket that the garbage collector finds open is worth a warning.
        weakref.finalize(self, self.client.close)
        # Its address alone: a URL may hold credentials.
        self.host = urlsplit(str(self.client.base_url)).netloc.rpartition("@")[2] or "the server"
        self._lock = threading.Lock()
        self._in_a_row = 0

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def check(self) -> None:
        """Ask for the model's entry, which costs nothing.

        Only what is certain counts: many servers list no models.

        Raises:
            InputError: nobody at the address, a refused key, no quota, or no such model.
        """
        try:
            self.client.with_options(timeout=min(self._endpoint.timeout, CHECK_TIMEOUT)).models.retrieve(
                self._endpoint.model
            )
        except self._openai.APIConnectionError as error:
            if type(error.__cause__).__name__ == "ConnectError":
                raise InputError(f"nobody answers at {self.host}: start it, or mend base_url") from None
        except self._openai.APIStatusError as error:
            codes, text = _said(error)
            # A gateway may have no such page: a bare 404 says nothing about the model.
            if error.status_code != 404 or codes & _MODEL_CODES:
                self._check_lasting(error.status_code, codes, text)
        except self._openai.APIError:
            return

    def complete(
        self, request: Mapping[str, Any], before: Callable[[], Callable[[bool], None]] = _uncharged
    ) -> Exchange:
        """Send one request, again after passing faults, until there is an answer or patience ends.

        Args:
            request: model, messages and so on.
            before: called before each sending; what it returns is called after a fault, with whether the
                lost answer may have been billed.

        Raises:
            InputError: a fault that no request can escape: key, model, quota, a parameter the server doesn't
                take, or ``STOP_AFTER`` requests in a row without an answer.
        """
        exchange = self._completed(request, before)
        with self._lock:
            self._in_a_row = self._in_a_row + 1 if exchange.reason in UNANSWERED else 0
            if self._in_a_row >= STOP_AFTER:
                raise InputError(
                    f"{self.host} answers nothing: {self._in_a_row} requests in a row failed, the last with "
                    f"{exchange.reason}; all answers are kept, and the same command goes on"
                )
        return exchange

    def _completed(
        self, request: Mapping[str, Any], before: Callable[[], Callable[[bool], None]]
    ) -> Exchange:
        resent = 0
        while True:
            failed = before()
            try:
                raw = self.client.chat.completions.with_raw_response.create(**request)
                exchange = exchange_of(parsed(raw.text))
            except self._openai.APIError as error:
                fault = self._fault(error, request)
                failed(fault.reason == "timeout")
            else:
                if exchange.reason is None:
                    return replace(exchange, resent=resent)
                failed(False)
                fault = Fault(exchange.reason, None)
            if fault.reason in ("content_filter", "rejected"):
                return Exchange(None, fault.reason, resent=resent)
            if resent == self._endpoint.retries:
                return Exchange(None, fault.reason, resent=resent)
            time.sleep(self._delay(fault, resent))
            resent += 1

    def guarded(self, call: Callable[[], Any]) -> Any:
        """Call something of the files or batches endpoints; sent again after passing faults.

        Raises:
            InputError: patience ended, or a fault that sending again can't mend.
        """
        for resent in range(self._endpoint.retries + 1):
            try:
                return call()
            except self._openai.BadRequestError as error:
                raise InputError(f"{self.host} refuses the batch: {self.scrubbed(error)}") from None
            except self._openai.APIError as error:
                fault = self._fault(error, {})
            time.sleep(self._delay(fault, resent))
        raise InputError(f"{self.host} gives no answer about the batch ({fault.reason}); run again to go on")

    def _delay(self, fault: Fault, resent: int) -> float:
        wait = self._endpoint.backoff * 2**resent if fault.wait is None else fault.wait
        # Spread, so that requests which failed together don't come back together.
        return min(LONGEST_WAIT, wait * random.uniform(1.0, 1.25))  # noqa: S311

    def _fault(self, error: Any, request: Mapping[str, Any]) -> Fault:
        """Name a fault that passes or belongs to one picture; raise for one that every request would meet."""
        kinds = self._openai
        if isinstance(error, kinds.APITimeoutError):
            return Fault("timeout", None)
        if isinstance(error, kinds.APIConnectionError):
            return Fault("connection", None)
        status = getattr(error, "status_code", None)
        codes, text = _said(error)
        if status != 401 and is_filtered({"error": error.body}):
            return Fault("content_filter", None)
        self._check_lasting(status, codes, text)
        if status == 429:
            return Fault("rate_limit", _asked_delay(error))
        if status in (408, 409) or (status is not None and status >= 500):
            return Fault("server_error", _asked_delay(error))
        if status in _ABOUT_THE_REQUEST:
            refusal = self.refused_parameter(error.body, request)
            if refusal:
                raise InputError(refusal) from None
            if status != 422 or _PICTURE_WORDS.search(text):
                return Fault("rejected", None)
        raise InputError(f"{self.host} answers {status}: {self.scrubbed(error)}") from None

    def _check_lasting(self, status: int | None, codes: frozenset[str], text: str) -> None:
        """Raise for a fault of key, quota or model, whatever its status."""
        if codes & _MODEL_CODES or status == 404:
            raise InputError(
                f"{self.host} knows no model '{self._endpoint.model}' at this address (status {status})"
            ) from None
        if codes & _QUOTA_CODES or status == 402:
            raise InputError(f"{self.host} says the quota is used up; all answers are kept") from None
        if status in (401, 403) or codes & _KEY_CODES or (status == 400 and _KEY_WORDS.search(text)):
            raise InputError(
                f"{self.host} refuses the key in {self._endpoint.key_env} (status {status})"
            ) from None

    def refused_parameter(self, body: Any, request: Mapping[str, Any]) -> str:
        """What to do about the parameter that an error names, in one line; empty where it names none."""
        name = named_parameter(body, [*request, *(request.get("extra_body") or {})])
        if not name:
            return ""
        remedy = self._endpoint.remedies.get(name, f"leave '{name}' out of extra_body")
        return f"{self.host} refuses '{name}' for model '{self._endpoint.model}'; {remedy}"

    def scrubbed(self, error: object) -> str:
        """An error's first line without the key, cut to a readable length; servers repeat keys or parts."""
        text = (str(error).splitlines() or [""])[0].replace(self._key, "***")
        start = self._key[:8]
        if len(start) == 8:
            text = re.sub(re.escape(start) + r"\S*", "***", text)
        return excerpt(redacted_text(text))


def key_of(endpoint: Endpoint) -> str:
    """The key in the environment; a stand-in for a server of one's own that wants none.

    Raises:
        InputError: no key for OpenAI's server, or one with characters no key has.
    """
    key = os.environ.get(endpoint.key_env, "").strip()
    if not key and endpoint.base_url is None:
        raise InputError(
            f"vlm needs a key in the environment variable {endpoint.key_env}, which is not set: it must hold "
            "the server's key"
        )
    if not key.isascii() or not key.isprintable():
        raise InputError(f"the key in {endpoint.key_env} must be printable ASCII")
    return remember(key) or LOCAL_KEY


def check_base_url(url: str | None) -> None:
    """Refuse an address that is none, or one that holds credentials: settings are published.

    Raises:
        ValueError: saying which.
    """
    if url is None:
        return
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("base_url must not hold credentials: put the key into the environment")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"base_url must be an http or https URL, got '{without_url_secrets(url)}'")


def _said(error: Any) -> tuple[frozenset[str], str]:
    """The codes in an error's body, in small letters, and all of its text."""
    body = error.body
    inner = body if isinstance(body, dict) else {}
    codes = (inner.get(name) for name in ("code", "type", "status"))
    return frozenset(code.lower() for code in codes if isinstance(code, str)), _dumped(body)


def _dumped(body: Any) -> str:
    return body if isinstance(body, str) else json.dumps(body, default=str)


def named_parameter(body: Any, sent: Iterable[str]) -> str:
    """The parameter, of those that were sent, that an error's body blames; empty where it blames none."""
    names = [name for name in sent if name not in ("model", "messages", "extra_body")]
    inner = body.get("error", body) if isinstance(body, dict) else body
    text = _dumped(inner)
    if _TOO_LONG.search(text):
        return ""
    blamed = str(inner.get("param") or "").split(".")[0] if isinstance(inner, dict) else ""
    if blamed in names:
        return blamed
    places = {
        name: found.start()
        for name in names
        if (found := re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text))
    }
    return min(places, key=lambda name: places[name], default="")


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
        return parse_json(text, parse_int=_integer)
    except ValueError:
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
        logprobs=_logprobs(choice.get("logprobs")),
    )
    usage = body.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return Exchange(reply, None, _count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens")))


def is_filtered(body: Any) -> bool:
    """Whether an error's body says that a picture or text ran into the server's filter."""
    error = body.get("error", body) if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return False
    inner = error.get("innererror")
    sources = [error, inner] if isinstance(inner, dict) else [error]
    codes = [source.get(name) for source in sources for name in ("code", "type")]
    if any(isinstance(code, str) and code.lower() in _FILTER_CODES for code in codes):
        return True
    message = error.get("message")
    return isinstance(message, str) and _FILTER_WORDS.search(message) is not None


def _text(value: Any) -> str | None:
    """Content as text; some servers send it in parts, and their thoughts in parts of another type."""
    if isinstance(value, list):
        parts = [part for part in value if isinstance(part, dict) and part.get("type", "text") in _TEXT_PARTS]
        return "".join(str(part.get("text", "")) for part in parts)
    return value if isinstance(value, str) else None


def _logprobs(value: Any) -> tuple[Mapping[str, Any], ...]:
    tokens = value.get("content") if isinstance(value, dict) else None
    return tuple(token for token in tokens if isinstance(token, dict)) if isinstance(tokens, list) else ()


def _count(value: Any) -> int | None:
    """A number of tokens; None for anything that can't be one."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= MOST_TOKENS else None
