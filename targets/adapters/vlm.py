"""``vlm:MODEL``: yes/no questions to a vision-language model behind an OpenAI-compatible server.

Each concept is one question. Where the server gives log-probabilities, the score is the probability of yes
against no among the first token's alternatives; else it is 1 for yes and 0 for no. Any other answer is no
answer. The key is read from the environment variable that ``api_key_env`` names, and kept out of every
message: of a refused request only the kind of fault and the status are repeated.
"""

from __future__ import annotations

import base64
import io
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image
from pydantic import Field

from targets.base.config import Settings, validated
from targets.base.errors import InputError, TargetError
from targets.base.extras import require
from targets.card import TargetCard
from targets.prompts import ConceptSetting, phrases
from targets.protocol import NO_ANSWER, Scores
from targets.torch_tools import versions_of

PURPOSE = "the target 'vlm'"
QUESTION = "Does this picture show {}? Answer with one word, yes or no."
LOCAL_KEY = "none"


class VlmSettings(Settings):
    """Settings of the target.

    Attributes:
        concepts: names, or name -> phrase; the 19 face concepts where not given.
        question: a sentence with one ``{}`` for the phrase.
        base_url: of the server; OpenAI's where not given.
        api_key_env: name of the environment variable that holds the key.
        logprobs: ask for log-probabilities; some servers refuse to give them.
        temperature, seed: of the sampling.
        max_tokens: of an answer; the first word counts.
        parallel: questions asked at a time.
        timeout: seconds that one answer may take.
        retries: how often a request is sent again after a passing fault.
    """

    concepts: ConceptSetting | None = None
    question: str = QUESTION
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    logprobs: bool = True
    temperature: float = Field(default=0.0, ge=0, le=2)
    seed: int | None = 0
    max_tokens: int = Field(default=4, ge=1)
    parallel: int = Field(default=8, ge=1, le=256)
    timeout: float = Field(default=60.0, gt=0)
    retries: int = Field(default=4, ge=0)


class Vlm:
    """Scores the probability of yes for each concept, in [0, 1]."""

    batch_size = 8

    def __init__(self, model: str, settings: VlmSettings) -> None:
        self._openai = require("openai", "vlm", PURPOSE)
        self._model, self._settings = model, settings
        self._questions = {
            name: _question(settings, texts) for name, texts in phrases(settings.concepts).items()
        }
        self.concepts = tuple(self._questions)
        self._client = self._openai.OpenAI(
            api_key=_key(settings),
            base_url=settings.base_url,
            timeout=settings.timeout,
            max_retries=settings.retries,
        )
        self.card = TargetCard(
            name=f"vlm {model}",
            settings=settings.model_dump(mode="json", exclude_none=True),
            versions=versions_of("openai"),
            detection="none: the whole picture is sent to the server",
            source=_host(settings.base_url),
        )

    def score(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, c) probabilities; a row is NaN throughout where any question has no answer.

        Raises:
            InputError: no server, or a key that is refused.
            TargetError: the server refuses the request itself.
        """
        pictures = [_data_url(image) for image in images]
        asked = [(picture, question) for picture in pictures for question in self._questions.values()]
        with ThreadPoolExecutor(self._settings.parallel) as pool:
            answers = list(pool.map(self._ask, asked))
        values = np.array(answers, dtype=np.float64).reshape(len(images), len(self.concepts))
        whole = [not bool(np.isnan(row).any()) for row in values]
        values[np.logical_not(whole)] = np.nan
        return Scores(values, tuple(None if fine else NO_ANSWER for fine in whole))

    def _ask(self, asked: tuple[str, str]) -> float:
        """Probability of yes, or NaN."""
        picture, question = asked
        content = [
            {"type": "text", "text": question},
            {"type": "image_url", "image_url": {"url": picture}},
        ]
        given = self._settings
        options: dict[str, Any] = {"logprobs": True, "top_logprobs": 20} if given.logprobs else {}
        if given.seed is not None:
            options["seed"] = given.seed
        try:
            reply = self._client.chat.completions.create(
                model=self._model,
                messages=[{"role": "user", "content": content}],
                temperature=given.temperature,
                max_tokens=given.max_tokens,
                **options,
            )
        except self._openai.OpenAIError as error:
            # Servers repeat part of the key in their messages, so none is passed on or chained.
            raise self._fault(error) from None
        return probability(reply.choices[0]) if reply.choices else math.nan

    def _fault(self, error: Exception) -> InputError:
        where = _host(self._settings.base_url)
        status = getattr(error, "status_code", None)
        kind = type(error).__name__
        if status in (401, 403):
            return InputError(
                f"the server {where} refuses the key in {self._settings.api_key_env} (status {status})"
            )
        if status is None:
            return InputError(f"no answer from the server {where} ({kind}); is base_url right?")
        hint = "; try --set logprobs=false" if status == 400 and self._settings.logprobs else ""
        return TargetError(f"the server {where} answers {status} ({kind}) for model '{self._model}'{hint}")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def probability(choice: Any) -> float:
    """Probability of yes in a reply's first token, 1 or 0 from its text, or NaN for any other answer."""
    tokens = choice.logprobs.content if choice.logprobs is not None else None
    if tokens:
        weights = {"yes": 0.0, "no": 0.0}
        for candidate in tokens[0].top_logprobs or [tokens[0]]:
            word = _word(candidate.token)
            if word in weights:
                weights[word] += math.exp(candidate.logprob)
        total = sum(weights.values())
        if total > 0:
            return weights["yes"] / total
    answer = _word((choice.message.content or "").strip().split(" ")[0])
    return {"yes": 1.0, "no": 0.0}.get(answer, math.nan)


def _word(token: str) -> str:
    return token.strip(" \t\n.,!*\"'").lower()


def _question(settings: VlmSettings, texts: Sequence[str]) -> str:
    if settings.question.count("{}") != 1:
        raise InputError(f"question must hold exactly one {{}}, got '{settings.question}'")
    return settings.question.replace("{}", texts[0])


def _key(settings: VlmSettings) -> str:
    key = os.environ.get(settings.api_key_env)
    if not key and settings.base_url is None:
        raise InputError(
            f"vlm needs a key in the environment variable {settings.api_key_env}, which is not set"
        )
    # A server of one's own often wants none, but the client insists on one.
    return key or LOCAL_KEY


def _host(base_url: str | None) -> str:
    return urlsplit(base_url).netloc if base_url else "api.openai.com"


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
    chosen = validated(VlmSettings, settings, "target vlm")
    if chosen.base_url is not None:
        parts = urlsplit(chosen.base_url)
        if parts.username or parts.password:
            raise InputError("base_url must not hold credentials; put the key into the environment")
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InputError(f"base_url must be an http or https URL, got '{chosen.base_url}'")
    return Vlm(argument, chosen)
