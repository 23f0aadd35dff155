"""Requests to make: units side by side, the question about them, and where the answer belongs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dataset_builder.detect.settings import Vlm
from dataset_builder.detect.vlm_answers import Reason, parse_reply, unanswered
from dataset_builder.detect.vlm_budget import Budget
from dataset_builder.detect.vlm_prompt import Question
from dataset_builder.detect.vlm_store import AnswerStore, Bought, request_name
from targets.base.hashing import settings_digest
from targets.openai_client import Exchange
from targets.scoring import PictureRef


@dataclass(frozen=True)
class Unit:
    """What can't be taken apart: one face, or the two faces of a pair in the paper's form."""

    key: str
    faces: tuple[PictureRef, ...]


@dataclass(frozen=True)
class Job:
    """One request to make; ``attempt`` is 0 for the first question about these units."""

    units: tuple[Unit, ...]
    question: Question
    store: AnswerStore
    attempt: int

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the units, from left to right."""
        return tuple(unit.key for unit in self.units)

    @property
    def faces(self) -> tuple[PictureRef, ...]:
        """All faces, from left to right."""
        return tuple(face for unit in self.units for face in unit.faces)

    @property
    def name(self) -> str:
        """Digest of what is asked and how."""
        asked = request_name(self.keys, self.attempt)
        return settings_digest({"how": self.store.directory.name, "what": asked})

    @property
    def estimate(self) -> int:
        """About how many tokens the request has, rather too many than too few."""
        return self.question.estimate(len(self.faces))

    def request(self, settings: Vlm) -> dict[str, Any]:
        """The request in the Chat Completions format.

        Raises:
            UnreadableError: a face that can't be decoded.
        """
        faces = self.faces
        request: dict[str, Any] = {
            "model": settings.model,
            "messages": self.question.messages(faces),
            settings.tokens_parameter: settings.max_tokens,
        }
        if settings.temperature is not None:
            request["temperature"] = settings.temperature
        if settings.strict_schema:
            request["response_format"] = self.question.schema(len(faces))
        if settings.seed is not None:
            request["seed"] = settings.seed
        if settings.extra_body:
            # The client puts them into the body; the lines of a batch are bodies.
            request |= (
                settings.extra_body if settings.mode == "batch" else {"extra_body": settings.extra_body}
            )
        return request

    def keep(self, exchange: Exchange, settings: Vlm, budget: Budget) -> Bought:
        """Put what was answered in its store with what it cost, on disk before this returns."""
        most = self.estimate, settings.max_tokens
        sizes = [len(unit.faces) for unit in self.units]
        bought = bought_of(
            self.keys, sizes, list(self.question.phrases), self.attempt, exchange, most, budget
        )
        self.store.add(bought)
        return bought


def bought_of(
    units: Sequence[str],
    sizes: Sequence[int],
    attributes: Sequence[str],
    attempt: int,
    exchange: Exchange,
    most: tuple[int, int],
    budget: Budget,
) -> Bought:
    """What an exchange says about units of the given numbers of faces.

    A request that was refused outright costs nothing. An answer without a count of tokens costs what its
    request was planned with, ``most``: the estimate of the question and the longest answer.
    """
    if exchange.reply is None:
        flat = [unanswered(attributes, exchange.reason or "no_result")] * sum(sizes)
    else:
        flat = parse_reply(exchange.reply, attributes, sum(sizes))
    parts = iter(flat)
    most_in, most_out = (0, 0) if exchange.reply is None else most
    tokens_in = most_in if exchange.tokens_in is None else exchange.tokens_in
    tokens_out = most_out if exchange.tokens_out is None else exchange.tokens_out
    return Bought(
        units=tuple(units),
        answers=tuple(tuple(next(parts) for _ in range(size)) for size in sizes),
        attempt=attempt,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        resent=exchange.resent,
        dollars=budget.price(tokens_in, tokens_out),
    )


# (name of the store, key of the unit) -> why there is no answer yet
Failures = Mapping[tuple[str, str], Reason]


class Channel(Protocol):
    """A way to the server."""

    def recover(self, stores: Sequence[AnswerStore]) -> None:
        """Fetch what an earlier run sent and did not live to see answered."""

    def send(self, jobs: Sequence[Job]) -> Failures:
        """Make the requests and keep the answers; name the units that got none."""


def failures_of(job: Job, reason: Reason) -> dict[tuple[str, str], Reason]:
    """Every unit of a job without an answer."""
    return {(job.store.directory.name, key): reason for key in job.keys}
