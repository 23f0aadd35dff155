"""``vlm:MODEL``: yes/no questions to a vision-language model behind an OpenAI-compatible server.

Each concept is one question. By log-probabilities the score is P(yes) / (P(yes) + P(no)) among the
alternatives of the answer's first word, if both together have at least ``min_mass`` of the probability; an
answer without log-probabilities is no answer. By first words it is 1 for yes and 0 for no. A run scores all
answers one way: ``scores`` in the record's settings says which.

A picture that the server refuses or fails on has no answer, with the reason, and the run goes on. A fault
that every request would meet (key, model, quota, a parameter) ends it. The key is read from the environment
variable that ``api_key_env`` names, and kept out of every message.
"""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
from PIL import Image
from pydantic import Field, field_validator

from targets.base.config import Settings, validated
from targets.base.errors import InputError
from targets.card import TargetCard
from targets.openai_client import (
    Endpoint,
    Reply,
    Seed,
    Server,
    Temperature,
    TokensParameter,
    check_base_url,
)
from targets.prompts import ConceptSetting, phrases
from targets.protocol import NO_ANSWER, Scores
from targets.torch_tools import versions_of
from targets.yes_no import probability, said

PURPOSE = "the target 'vlm'"
QUESTION = "Does this picture show {}? Answer with one word, yes or no."
# What ``scores`` in the record may say.
BY_LOGPROBS, BY_WORDS = "log-probabilities", "first words"
NO_LOGPROBS, LITTLE_MASS, NEITHER = "no_logprobs", "little_mass", "neither_yes_nor_no"
WORDS = {
    "content_filter": "the server's filter refused it",
    "rejected": "the server refused it",
    "rate_limit": "the server's rate limit did not let it through",
    "server_error": "the server failed on it",
    "timeout": "the server took too long",
    "connection": "the connection broke",
    "refusal": "the model refused to answer",
    NO_LOGPROBS: "the answer has no log-probabilities",
    LITTLE_MASS: "yes and no together have too little of the probability",
    NEITHER: "the first word is neither yes nor no",
}


class VlmSettings(Settings):
    """Settings of the target.

    Attributes:
        concepts: names, or name -> phrase; the 19 face concepts where not given.
        question: a sentence with one ``{}`` for the phrase.
        base_url: of the server; OpenAI's where not given.
        api_key_env: name of the environment variable that holds the key.
        logprobs: score by log-probabilities (true) or by first words (false). "auto" asks for
            log-probabilities, and goes by first words if the first pictures' answers have none at all.
        min_mass: share of the probability that yes and no must have together, or there is no answer.
        top_logprobs: alternatives to ask for; some servers give fewer than 20.
        temperature, seed: of the sampling; "none" leaves one out of the request.
        max_tokens: of an answer; its first word counts.
        tokens_parameter: how the request names ``max_tokens``; newer models want "max_completion_tokens".
        extra_body: more parameters of the request, as the server documents them; they are recorded.
        parallel: questions asked at a time.
        timeout: seconds that one answer may take.
        retries: how often a request is sent again after a passing fault.
        backoff: seconds before the first of them, doubled each time, where the server names no delay.
    """

    concepts: ConceptSetting | None = None
    question: str = QUESTION
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    logprobs: bool | Literal["auto"] = "auto"
    min_mass: float = Field(default=0.5, ge=0, le=1)
    top_logprobs: int = Field(default=20, ge=1, le=100)
    temperature: Temperature = Field(default=0.0, ge=0, le=2)
    seed: Seed = 0
    max_tokens: int = Field(default=4, ge=1)
    tokens_parameter: TokensParameter = "max_tokens"
    extra_body: dict[str, Any] = Field(default_factory=dict)
    parallel: int = Field(default=8, ge=1, le=256)
    timeout: float = Field(default=60.0, gt=0)
    retries: int = Field(default=4, ge=0)
    backoff: float = Field(default=1.0, ge=0)

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        check_base_url(url)
        return url

    @field_validator("question")
    @classmethod
    def _has_a_place(cls, question: str) -> str:
        if question.count("{}") != 1:
            raise ValueError(f"question must hold exactly one {{}}, got '{question}'")
        return question

    def request(self, model: str) -> dict[str, Any]:
        """A request without its messages."""
        request: dict[str, Any] = {"model": model, self.tokens_parameter: self.max_tokens}
        if self.logprobs:
            request |= {"logprobs": True, "top_logprobs": self.top_logprobs}
        optional = {"temperature": self.temperature, "seed": self.seed, "extra_body": self.extra_body or None}
        return request | {name: value for name, value in optional.items() if value is not None}

    def endpoint(self, model: str) -> Endpoint:
        """The server, as the client is told of it."""
        other = "max_tokens" if self.tokens_parameter == "max_completion_tokens" else "max_completion_tokens"
        fewer = 5 if self.top_logprobs > 5 else 1
        remedies = {
            self.tokens_parameter: f"try --set tokens_parameter={other}",
            "temperature": "try --set temperature=none",
            "seed": "try --set seed=none",
            "top_logprobs": f"try --set top_logprobs={fewer}, or --set logprobs=false",
            "logprobs": "try --set logprobs=false",
        }
        return Endpoint(
            model, self.base_url, self.api_key_env, self.timeout, self.retries, self.backoff, remedies
        )


class Vlm:
    """Scores yes for each concept, in [0, 1]."""

    batch_size = 8

    def __init__(self, model: str, settings: VlmSettings) -> None:
        self._settings, self._request = settings, settings.request(model)
        self._questions = [
            settings.question.replace("{}", texts[0]) for texts in phrases(settings.concepts).values()
        ]
        self.concepts = tuple(phrases(settings.concepts))
        self._server = Server(settings.endpoint(model), PURPOSE)
        self._reached = False
        # What is found out while asking; kept beside the scores, so that a resumed run scores the same way.
        self.in_force: dict[str, Any] = {}
        if settings.logprobs != "auto":
            self.in_force["scores"] = BY_LOGPROBS if settings.logprobs else BY_WORDS
        self.card = TargetCard(
            name=f"vlm {model}",
            settings=settings.model_dump(mode="json"),
            versions=versions_of("openai"),
            score_range=(0.0, 1.0),
            detection="none: the whole picture is sent to the server",
            source=self._server.host,
        )

    def score(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, c) scores; NaN where a question has no answer.

        A picture that the server refuses or fails on is not asked about further, and NaN throughout.

        Raises:
            InputError: a fault that every request would meet.
        """
        replies, lost = self._asked([_data_url(image) for image in images])
        self._settle(replies.values(), set(lost.values()))
        values = np.full((len(images), len(self.concepts)), np.nan)
        reasons: list[Counter[str]] = [Counter() for _ in images]
        for (row, column), reply in replies.items():
            score = self._read(reply)
            if isinstance(score, str):
                reasons[row][score] += 1
            elif row not in lost:
                values[row, column] = score
        silent = [bool(np.isnan(row).all()) for row in values]
        why = [lost.get(row) or _most(found) for row, found in enumerate(reasons)]
        details = [WORDS.get(reason, "") if none else "" for none, reason in zip(silent, why, strict=True)]
        return Scores(values, tuple(NO_ANSWER if none else None for none in silent), tuple(details))

    def _asked(self, pictures: Sequence[str]) -> tuple[dict[tuple[int, int], Reply], dict[int, str]]:
        """(picture, question) -> reply, and picture -> why the server has no answer about it."""
        replies: dict[tuple[int, int], Reply] = {}
        lost: dict[int, str] = {}

        def ask(row: int, column: int) -> None:
            if row in lost:
                return
            message = _message(self._questions[column], pictures[row])
            exchange = self._server.complete({**self._request, "messages": [message]})
            if exchange.reply is None:
                lost[row] = exchange.reason or "no_result"
            else:
                replies[row, column] = exchange.reply

        pool = ThreadPoolExecutor(self._settings.parallel)
        try:
            # Question by question, so that a picture that is refused is refused once.
            futures = [
                pool.submit(ask, r, c) for c in range(len(self.concepts)) for r in range(len(pictures))
            ]
            for future in futures:
                future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        return replies, lost

    def _settle(self, replies: Collection[Reply], lost: set[str]) -> None:
        """Find out how answers are scored, once; end a run in which nothing could be scored."""
        self._reached = self._reached or bool(replies)
        if not self._reached and "connection" in lost:
            host = self._server.host
            raise InputError(f"no answer from the server {host} (APIConnectionError); is base_url right?")
        answers = [reply for reply in replies if _withheld(reply) is None]
        if not answers:
            return
        given = any(reply.logprobs for reply in answers)
        if "scores" not in self.in_force:
            self.in_force["scores"] = BY_LOGPROBS if given else BY_WORDS

    def _read(self, reply: Reply) -> float | str:
        """A score in [0, 1], or why there is none."""
        withheld = _withheld(reply)
        if withheld:
            return withheld
        if self.in_force["scores"] == BY_WORDS:
            word = said(reply.content)
            return NEITHER if word is None else float(word)
        chances = probability(reply.logprobs, reply.content)
        if chances is None:
            return NEITHER if reply.logprobs else NO_LOGPROBS
        mass = sum(chances)
        return LITTLE_MASS if mass <= 0 or mass < self._settings.min_mass else chances[0] / mass

    def close(self) -> None:
        """Close the connections."""
        self._server.close()


def _withheld(reply: Reply) -> str | None:
    """Why a reply is no answer, where the model or the server says so."""
    if reply.refusal:
        return "refusal"
    return "content_filter" if reply.finish_reason == "content_filter" else None


def _most(reasons: Counter[str]) -> str:
    """The reason that most questions share; empty where there is none."""
    return max(reasons, key=lambda name: reasons[name], default="")


def _message(question: str, picture: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": question}, {"type": "image_url", "image_url": {"url": picture}}]
    return {"role": "user", "content": parts}


def _data_url(image: Image.Image) -> str:
    stream = io.BytesIO()
    image.save(stream, format="PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"


def load(argument: str | None, settings: Mapping[str, Any]) -> Vlm:
    """Load ``vlm:MODEL``.

    Raises:
        MissingExtraError: openai is not installed.
        InputError: no model named, no key, credentials in base_url, bad concepts or settings.
    """
    if argument is None:
        raise InputError("name the model: vlm:MODEL, as in vlm:gpt-4o-mini")
    return Vlm(argument, validated(VlmSettings, settings, "target vlm"))
