"""Answers on disk: one small file a reply, written whole the moment it comes, so that none is bought twice.

A file is named by what was asked, in a folder named by how it was asked (model, question, settings).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from dataset_builder.detect.vlm_answers import FaceAnswer, Reason
from dataset_builder.schema.verdict import Label
from targets.base.config import ModelT, Settings, validated
from targets.base.errors import InputError
from targets.base.files import write_json
from targets.base.strict_json import parse_json
from targets.base.text import shortlist
from targets.openai_client import MOST_TOKENS

_MEND = "delete that file, and what it answers is asked again"


@dataclass(frozen=True)
class Bought:
    """One reply.

    Attributes:
        units: keys of what was asked together.
        answers: one tuple a unit, one answer a face.
        attempt: 0 for the first question about these units.
        tokens_in, tokens_out: as the server counts them; what was planned with where it doesn't.
        resent: how often the request was sent again before it was answered.
        dollars: at the prices of the run that bought it; None where those are unknown.
    """

    units: tuple[str, ...]
    answers: tuple[tuple[FaceAnswer, ...], ...]
    attempt: int
    tokens_in: int
    tokens_out: int
    resent: int
    dollars: float | None

    @property
    def name(self) -> str:
        """Digest of what was asked, 64 hexadecimal digits."""
        return request_name(self.units, self.attempt)


def request_name(units: Sequence[str], attempt: int) -> str:
    """Digest of units asked together for the given time, 64 hexadecimal digits."""
    return hashlib.sha256("\n".join([str(attempt), *units]).encode()).hexdigest()


@dataclass(frozen=True)
class Known:
    """What all replies say about one unit: answers, how often it was asked, with how many units last."""

    answers: tuple[FaceAnswer, ...]
    attempts: int
    together: int


@dataclass
class Tally:
    """What the answers took.

    Attributes:
        dollars: of the answers that were bought at known prices.
        unpriced_in, unpriced_out: tokens of all others.
    """

    requests: int = 0
    resent: int = 0
    units: int = 0
    faces: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    dollars: float = 0.0
    unpriced_in: int = 0
    unpriced_out: int = 0

    def count(self, bought: Bought) -> None:
        """Count one reply."""
        self.requests += 1
        self.resent += bought.resent
        self.units += len(bought.units)
        self.tokens_in += bought.tokens_in
        self.tokens_out += bought.tokens_out
        self.faces += sum(map(len, bought.answers))
        if bought.dollars is None:
            self.unpriced_in += bought.tokens_in
            self.unpriced_out += bought.tokens_out
        else:
            self.dollars += bought.dollars

    def add(self, other: Tally) -> None:
        """Add another tally."""
        self.requests += other.requests
        self.resent += other.resent
        self.units += other.units
        self.faces += other.faces
        self.tokens_in += other.tokens_in
        self.tokens_out += other.tokens_out
        self.dollars += other.dollars
        self.unpriced_in += other.unpriced_in
        self.unpriced_out += other.unpriced_out


class AnswerStore:
    """Answers of one question, in memory and on disk; shared by threads."""

    def __init__(self, directory: Path, question: dict[str, Any]) -> None:
        """Open the folder; ``question`` is written there with the first answer, for people.

        Raises:
            InputError: a kept answer that can't be read.
        """
        self.directory, self._question = directory, question
        self.known: dict[str, Known] = {}
        self.tally = Tally()
        self._attributes = tuple(question["phrases"])
        self._lock = threading.Lock()
        for bought in self._read():
            self._take(bought)

    def _read(self) -> Iterable[Bought]:
        found = [_bought(path, self._attributes) for path in sorted(self.directory.glob("*/*.json"))]
        return sorted(found, key=lambda bought: bought.attempt)

    def add(self, bought: Bought) -> None:
        """Keep one reply; on disk before this returns."""
        if not (self.directory / "question.json").exists():
            write_json(self.directory / "question.json", self._question)
        write_json(self.directory / bought.name[:2] / f"{bought.name}.json", _as_json(bought))
        with self._lock:
            self._take(bought)

    def _take(self, bought: Bought) -> None:
        self.tally.count(bought)
        for unit, answers in zip(bought.units, bought.answers, strict=True):
            before = self.known.get(unit)
            merged = answers
            if before is not None:
                merged = tuple(
                    old.filled(new) if _usable(old) else new
                    for old, new in zip(before.answers, answers, strict=True)
                )
            attempts = bought.attempt + 1 if before is None else max(before.attempts, bought.attempt + 1)
            self.known[unit] = Known(merged, attempts, len(bought.units))


def tally_of_others(root: Path, own: Iterable[AnswerStore]) -> Tally:
    """What all other stores under ``root`` took.

    Raises:
        InputError: a kept answer that can't be read.
    """
    known = {store.directory for store in own}
    total = Tally()
    for path in root.glob("*/*/*.json"):
        if path.parent.parent not in known:
            total.count(_bought(path))
    return total


def _usable(answer: FaceAnswer) -> bool:
    return any(label != "unknown" for label in answer.labels.values())


def _as_json(bought: Bought) -> dict[str, Any]:
    return {
        "units": list(bought.units),
        "attempt": bought.attempt,
        "tokens_in": bought.tokens_in,
        "tokens_out": bought.tokens_out,
        "resent": bought.resent,
        "dollars": bought.dollars,
        "answers": [
            [{"labels": dict(face.labels), "reasons": dict(face.reasons)} for face in unit]
            for unit in bought.answers
        ],
    }


class _KeptFace(Settings):
    """A ``FaceAnswer`` on disk."""

    labels: dict[str, Label]
    reasons: dict[str, Reason]

    @model_validator(mode="after")
    def _reasons_fit(self) -> _KeptFace:
        if set(self.reasons) != {name for name, label in self.labels.items() if label == "unknown"}:
            raise ValueError("must have a reason for each unknown label and for no other")
        return self


class _Kept(Settings):
    """A ``Bought`` on disk."""

    units: tuple[str, ...] = Field(min_length=1)
    answers: tuple[tuple[_KeptFace, ...], ...]
    attempt: int = Field(ge=0, strict=True)
    tokens_in: int = Field(ge=0, le=MOST_TOKENS, strict=True)
    tokens_out: int = Field(ge=0, le=MOST_TOKENS, strict=True)
    resent: int = Field(ge=0, strict=True)
    # Not in answers that were kept before prices were.
    dollars: float | None = Field(default=None, ge=0, strict=True)

    @field_validator("answers")
    @classmethod
    def _one_a_face(
        cls, answers: tuple[tuple[_KeptFace, ...], ...], info: ValidationInfo
    ) -> tuple[tuple[_KeptFace, ...], ...]:
        # A pair's key is that of its two faces, with a bar between.
        wanted = [unit.count("|") + 1 for unit in info.data.get("units", ())]
        if wanted and [len(unit) for unit in answers] != wanted:
            raise ValueError("must hold one list a unit with one answer a face")
        return answers


def read_kept(model: type[ModelT], path: Path) -> ModelT:
    """Read one JSON file of ours.

    Raises:
        InputError: it can't be read or holds something else; says what to do.
    """
    try:
        data = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} must be JSON: {error}; {_MEND}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path} must be one JSON object, got {type(data).__name__}; {_MEND}")
    try:
        return validated(model, data, str(path))
    except InputError as error:
        raise InputError(f"{error}; {_MEND}") from None


def _bought(path: Path, attributes: Collection[str] | None = None) -> Bought:
    """Read one reply; with ``attributes`` given, it must be about these.

    Raises:
        InputError: the file can't be read or holds something else.
    """
    kept = read_kept(_Kept, path)
    asked = [set(face.labels) for unit in kept.answers for face in unit]
    if attributes is not None and any(names != set(attributes) for names in asked):
        raise InputError(f"{path}: 'answers' must label {shortlist(sorted(attributes))}, no more; {_MEND}")
    return Bought(
        units=kept.units,
        answers=tuple(tuple(FaceAnswer(face.labels, face.reasons) for face in unit) for unit in kept.answers),
        attempt=kept.attempt,
        tokens_in=kept.tokens_in,
        tokens_out=kept.tokens_out,
        resent=kept.resent,
        dollars=kept.dollars,
    )
