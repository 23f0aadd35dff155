"""``http:URL``: a model behind a server of its own, in any language.

The protocol is two requests with JSON bodies. ``GET URL`` answers what the model is::

    {"name": "SmileNet", "concepts": ["smile", "teeth"], "batch_size": 32,
     "weights": {"smilenet.bin": "<sha256>"}, "licence": "MIT"}

or, for an embedder, ``"embedding": true`` instead of ``concepts``. All but those two are optional; without
``weights`` scores are never reused in another run. ``POST URL`` with pictures as base64 PNG::

    {"images": ["iVBORw0...", "iVBORw0..."]}

answers one row a picture, null where there is no answer, and optionally why ("no_face", "no_answer"); else
the reason is the description's ``"nan_means"``, by default "no_answer"::

    {"scores": [[0.9, 0.1], null], "reasons": [null, "no_face"]}

A body may have 64 MB, a model 10,000 concepts or vector components, and the whole answer must be there within
``timeout`` seconds.

Any other status than 200 ends the run with the server's first line. A token, where the server wants one,
is read from the environment variable that ``token_env`` names and sent as ``Authorization: Bearer``.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import SplitResult, urlsplit

import numpy as np
from PIL import Image
from pydantic import Field

from targets.base.config import Settings, validated
from targets.base.errors import InputError, TargetError
from targets.base.private import redacted_text, remember, without_url_secrets
from targets.base.strict_json import parse_json
from targets.base.text import excerpt
from targets.card import ScoreRange, TargetCard
from targets.protocol import NO_ANSWER, NO_FACE, NoScores, Scores

REASONS = (NO_FACE, NO_ANSWER)
MOST_BYTES = 64 << 20
MOST_SAID = 2000
MOST_OUTPUTS, MOST_PICTURES = 10_000, 4096


class HttpSettings(Settings):
    """Settings of the target.

    Attributes:
        timeout: seconds that one whole answer may take.
        token_env: name of the environment variable that holds a bearer token.
    """

    timeout: float = Field(default=60.0, gt=0)
    token_env: str | None = None


class Description(Settings):
    """What the server answers to GET."""

    name: str
    concepts: tuple[str, ...] = Field(default=(), max_length=MOST_OUTPUTS)
    embedding: bool = False
    batch_size: int = Field(default=16, ge=1, le=MOST_PICTURES)
    weights: dict[str, str] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    licence: str = "unknown"
    score_range: ScoreRange | dict[str, ScoreRange] | None = None
    detection: str = "unknown: the whole picture is sent to the server"
    source: str = "unknown"
    nan_means: NoScores = NO_ANSWER


class _Server:
    """One kept connection; a request that finds it closed is sent once more."""

    def __init__(self, url: str, settings: HttpSettings) -> None:
        self.url, self._parts = without_url_secrets(url), _checked_url(url)
        self._timeout = settings.timeout
        self._headers = {"Content-Type": "application/json", **_authorization(settings.token_env)}
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, body: Any = None) -> Any:
        """Send one request and return the JSON of the answer.

        Raises:
            InputError: no server there, or no answer in time.
            TargetError: a status that is not 200, or a body that is no JSON.
        """
        data = None if body is None else json.dumps(body).encode()
        try:
            status, answer = self._sent(method, data)
        except (OSError, http.client.HTTPException) as error:
            kind = str(error) or type(error).__name__
            raise InputError(f"no answer from the target at {self.url} ({kind}); is it running?") from None
        if status != http.HTTPStatus.OK:
            line = answer[:MOST_SAID].decode("utf-8", "replace").strip().splitlines()[:1]
            said = excerpt(redacted_text("".join(line)))
            raise TargetError(f"the target at {self.url} must answer 200, got {status} {said}")
        try:
            return parse_json(answer)
        except ValueError as error:
            raise TargetError(f"the target at {self.url} must answer JSON: {excerpt(error)}") from None

    def _sent(self, method: str, data: bytes | None) -> tuple[int, bytes]:
        kept = self._connection is not None
        try:
            return self._sent_once(method, data)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self.close()
            if not kept:
                raise
            return self._sent_once(method, data)

    def _sent_once(self, method: str, data: bytes | None) -> tuple[int, bytes]:
        if self._connection is None:
            secure = self._parts.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            self._connection = kind(self._parts.netloc, timeout=self._timeout)
        path = self._parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        with _deadline(self._connection, self._timeout):
            self._connection.request(method, path, body=data, headers=self._headers)
            answer = self._connection.getresponse()
            body = answer.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            self.close()
            raise TargetError(f"the target at {self.url} must answer at most {MOST_BYTES >> 20} MB, got more")
        return answer.status, body

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def _deadline(connection: http.client.HTTPConnection, seconds: float) -> Iterator[None]:
    """End an exchange that takes longer altogether: a socket's own time-out starts anew with every byte.

    Raises:
        TimeoutError: it did.
    """
    passed = threading.Event()
    sockets: list[socket.socket] = []

    def end() -> None:
        passed.set()
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        if connection.sock is None:
            connection.connect()
        # A connection lets go of its socket where the body ends with it.
        sockets.append(connection.sock)
        yield
    except (OSError, http.client.HTTPException):
        if not passed.is_set():
            raise
    finally:
        timer.cancel()
        timer.join()
    if passed.is_set():
        connection.close()
        raise TimeoutError(f"the whole answer took more than timeout = {seconds:g} s")


class _Http:
    def __init__(self, server: _Server, about: Description, settings: HttpSettings) -> None:
        self._server = server
        self.batch_size = about.batch_size
        described = about.model_dump(exclude={"concepts", "embedding", "batch_size"})
        self.card = TargetCard(settings=settings.model_dump(exclude_none=True), **described)

    def _ask(self, images: Sequence[Image.Image], width: int | None) -> Scores:
        if not images:
            return Scores(np.zeros((0, width or 0)), ())
        answer = self._server.ask("POST", {"images": [_encoded(image) for image in images]})
        return _scores(answer, len(images), width, self._server.url, self.card.nan_means)

    def close(self) -> None:
        """Close the connection."""
        self._server.close()


class HttpConcepts(_Http):
    """Scores the concepts that the server names."""

    def __init__(self, server: _Server, about: Description, settings: HttpSettings) -> None:
        super().__init__(server, about, settings)
        self.concepts = about.concepts

    def score(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, c)."""
        return self._ask(images, len(self.concepts))


class HttpEmbedder(_Http):
    """Embeds pictures."""

    def embed(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, d)."""
        return self._ask(images, None)


def _encoded(image: Image.Image) -> str:
    stream = io.BytesIO()
    image.save(stream, format="PNG", compress_level=1)
    return base64.b64encode(stream.getvalue()).decode("ascii")


def _scores(answer: Any, count: int, width: int | None, url: str, nan_means: NoScores) -> Scores:
    """Check an answer row by row.

    Raises:
        TargetError: not one row a picture, or a row of another length, or anything but numbers.
    """
    rows = answer.get("scores") if isinstance(answer, Mapping) else None
    if not isinstance(rows, list) or len(rows) != count:
        came = f"{len(rows)}" if isinstance(rows, list) else "none"
        raise TargetError(f"the target at {url} must answer {count} rows of 'scores', got {came}")
    widths = {len(row) for row in rows if isinstance(row, list)}
    expected = width if width is not None else next(iter(widths), 0)
    if expected > MOST_OUTPUTS:
        raise TargetError(
            f"the target at {url} may answer {MOST_OUTPUTS:,} numbers a picture, got {expected:,}"
        )
    values = np.full((count, expected), np.nan)
    for index, row in enumerate(rows):
        if row is None:
            continue
        if not isinstance(row, list) or len(row) != expected or not all(map(_is_number, row)):
            came = f"{len(row)} values" if isinstance(row, list) else type(row).__name__
            raise TargetError(
                f"the target at {url} must answer {expected} numbers for each picture, or null, got {came} "
                f"for picture {index + 1} of {count}"
            )
        values[index] = [np.nan if value is None else value for value in row]
    return Scores(values, _reasons(answer.get("reasons"), rows, url, nan_means))


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _reasons(given: Any, rows: Sequence[Any], url: str, nan_means: NoScores) -> tuple[str | None, ...]:
    if given is None:
        return tuple(nan_means if row is None else None for row in rows)
    if not isinstance(given, list) or len(given) != len(rows):
        raise TargetError(f"the target at {url} must give {len(rows)} 'reasons', or none at all")
    unknown = [reason for reason in given if reason is not None and reason not in REASONS]
    if unknown:
        raise TargetError(f"a reason must be null, {' or '.join(REASONS)}, got {str(unknown[0])[:40]!r}")
    return tuple(
        (reason or nan_means) if row is None else reason for reason, row in zip(given, rows, strict=True)
    )


def _checked_url(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise InputError("a URL must not hold credentials; name an environment variable with token_env")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InputError(
            f"http needs a URL, as in http:http://127.0.0.1:8000/score, got '{without_url_secrets(url)}'"
        )
    return parts


def _authorization(token_env: str | None) -> dict[str, str]:
    if token_env is None:
        return {}
    token = os.environ.get(token_env)
    if not token:
        raise InputError(f"token_env names the environment variable {token_env}, which is not set")
    return {"Authorization": f"Bearer {remember(token)}"}


def load(argument: str | None, settings: Mapping[str, Any]) -> HttpConcepts | HttpEmbedder:
    """Load ``http:URL``; ``http://host/path`` alone will do as well.

    Raises:
        InputError: no URL, credentials in it, no server there, a description that doesn't fit.
    """
    if argument is None:
        raise InputError("name the server: http:URL, as in http:http://127.0.0.1:8000/score")
    chosen = validated(HttpSettings, settings, "target http")
    url = f"http:{argument}" if argument.startswith("//") else argument
    server = _Server(url, chosen)
    try:
        about = _described(server.ask("GET"), server.url)
        return (HttpEmbedder if about.embedding else HttpConcepts)(server, about, chosen)
    except InputError:
        server.close()
        raise


def _described(answer: Any, url: str) -> Description:
    if not isinstance(answer, Mapping):
        raise TargetError(f"the target at {url} must describe itself as a JSON object")
    about = validated(Description, answer, f"the description at {url}")
    if bool(about.concepts) == about.embedding:
        raise TargetError(f'the target at {url} must have either "concepts" or "embedding": true')
    return about
