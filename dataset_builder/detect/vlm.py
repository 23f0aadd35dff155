"""Attribute labels from a vision-language model, with every answer bought once and kept.

Three forms (appendix C of the paper, and ours):

- ``paper``: one picture a pair, source left and transformed right, all attributes in one question;
- ``ours``: one face is asked about once, however many pairs it is in, several faces in a picture; a face that
  a common answer leaves open is asked about alone;
- ``single``: like ``ours``, one attribute a question.

Each may show examples first. An attribute nobody could tell is unknown, with a reason; never "no".
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dataset_builder.beside import path_beside
from dataset_builder.detect.labels import FaceLabels, FacePair, GoesOn, PairLabels
from dataset_builder.detect.settings import Vlm
from dataset_builder.detect.vlm_answers import WORTH_ASKING_AGAIN, FaceAnswer, Reason, unanswered
from dataset_builder.detect.vlm_batch import Batches, dollars_under_way
from dataset_builder.detect.vlm_budget import Budget
from dataset_builder.detect.vlm_examples import choose_examples, load_examples
from dataset_builder.detect.vlm_jobs import Channel, Job, Unit
from dataset_builder.detect.vlm_online import Online
from dataset_builder.detect.vlm_prompt import PROMPT_VERSION, Question
from dataset_builder.detect.vlm_store import AnswerStore, Known, Tally, tally_of_others
from targets.base.errors import InputError
from targets.base.hashing import settings_digest
from targets.base.text import counted
from targets.images import PREPROCESSING_VERSION
from targets.openai_client import Server
from targets.scoring import PictureRef

# What an answer depends on; all other settings say how it is fetched.
_ANSWER_SETTINGS = {
    "model",
    "base_url",
    "form",
    "faces_per_picture",
    "side",
    "temperature",
    "seed",
    "max_tokens",
    "strict_schema",
}
BATCHES_FOLDER = "batches"
_FILTERED: frozenset[Reason] = frozenset({"refusal", "content_filter"})

# (name of a store, key of a unit) -> why it has no answer
_Failed = dict[tuple[str, str], Reason]


class VlmDetector:
    """A vision-language model as an attribute detector."""

    def __init__(
        self,
        settings: Vlm,
        titles: Mapping[str, str],
        folder: Path,
        cache_root: Path,
        *,
        show_progress: bool = True,
    ) -> None:
        """Open the answers kept so far; the server is not asked yet.

        Args:
            settings: model, form, money.
            titles: attribute -> how the taxonomy writes it; these are asked about.
            folder: that relative paths in the settings start from.
            cache_root: folder of kept answers.
            show_progress: a bar on a terminal, a line a minute in a log.

        Raises:
            InputError: examples that don't fit, answers on disk that can't be read.
        """
        self._settings, self._root, self._show_progress = settings, cache_root, show_progress
        phrases = {name: settings.phrases.get(name, title.lower()) for name, title in titles.items()}
        self._attributes = tuple(phrases)
        self._asked = [
            (question, self._store(question)) for question in _questions(settings, phrases, folder)
        ]
        self._failed: _Failed = {}
        self._channel: Channel | None = None
        discount = settings.batch_discount if settings.mode == "batch" else 1.0
        self._budget = Budget(
            settings.budget, _times(settings.price_input, discount), _times(settings.price_output, discount)
        )
        self._budget.spent = self._dollars(self.tally())
        self._count_others()

    def labels_of(self, faces: Sequence[PictureRef]) -> dict[str, FaceLabels]:
        """Name of the picture -> its labels; what is kept is not asked again.

        Raises:
            InputError: a lasting fault of the server, or more faces without an answer than allowed.
            BudgetError: the next request could pass the budget.
        """
        digests = _digests(faces)
        units = {digest: Unit(digest, (face,)) for face, digest in digests}
        self._ask(list(units.values()))
        return {face.name: self._labels(digest, 0) for face, digest in digests}

    def label_pairs(self, pairs: Sequence[FacePair], goes_on: GoesOn) -> list[PairLabels]:
        """The paper's form: every pair in a picture of its own; ``goes_on`` can spare nothing.

        Raises:
            InputError, BudgetError: as ``labels_of``.
        """
        del goes_on
        digest = {
            face.name: text for face, text in _digests([f for p in pairs for f in (p.source, p.transformed)])
        }
        keys = [f"{digest[pair.source.name]}|{digest[pair.transformed.name]}" for pair in pairs]
        units = {
            key: Unit(key, (pair.source, pair.transformed)) for key, pair in zip(keys, pairs, strict=True)
        }
        self._ask(list(units.values()))
        return [PairLabels(self._labels(key, 0), self._labels(key, 1)) for key in keys]

    def used(self) -> dict[str, str]:
        """Role -> what was asked."""
        return {"attributes": f"vlm:{self._settings.model}"}

    def _store(self, question: Question) -> AnswerStore:
        how = {
            **self._settings.model_dump(mode="json", include=_ANSWER_SETTINGS),
            # Left out where it is empty: answers that were bought before it could be given stay.
            **({"extra_body": dict(self._settings.extra_body)} if self._settings.extra_body else {}),
            "prompt": PROMPT_VERSION,
            "preprocessing": PREPROCESSING_VERSION,
            **question.described(),
        }
        return AnswerStore(self._root / settings_digest(how)[:16], how)

    def _ask(self, units: Sequence[Unit]) -> None:
        """Ask until every unit has as good an answer as the settings allow to buy."""
        stores = [store for _, store in self._asked]
        while jobs := list(self._jobs(units)):
            if self._channel is None:
                self._channel = self._connect()
                self._channel.recover(stores)
                continue
            # Another detector of the same build may have bought since.
            self._count_others()
            self._failed |= self._channel.send(jobs)
        self._check_failures(units)

    def _count_others(self) -> None:
        """Hold against the budget what other questions took in this folder."""
        if self._budget.limit is not None:
            others = tally_of_others(self._root, [store for _, store in self._asked])
            self._budget.elsewhere = self._dollars(others) + dollars_under_way(self._root / BATCHES_FOLDER)

    def _dollars(self, tally: Tally) -> float:
        """What answers cost; those kept without dollars count at today's prices."""
        return tally.dollars + self._budget.cost(tally.unpriced_in, tally.unpriced_out)

    def _connect(self) -> Channel:
        server = Server(self._settings.endpoint(), "the vision-language detector")
        if self._settings.mode == "batch":
            folder = self._root / BATCHES_FOLDER
            return Batches(self._settings, server, self._budget, folder, show_progress=self._show_progress)
        return Online(self._settings, server, self._budget, show_progress=self._show_progress)

    def _jobs(self, units: Sequence[Unit]) -> Iterator[Job]:
        """The requests of the next round: new units side by side, open ones alone."""
        together = 1 if self._settings.form == "paper" else self._settings.faces_per_picture
        for question, store in self._asked:
            fresh: list[Unit] = []
            for unit in units:
                if (store.directory.name, unit.key) in self._failed:
                    continue
                known = store.known.get(unit.key)
                if known is None:
                    fresh.append(unit)
                elif self._is_open(known):
                    yield Job((unit,), question, store, known.attempts)
            for start in range(0, len(fresh), together):
                yield Job(tuple(fresh[start : start + together]), question, store, 0)

    def _is_open(self, known: Known) -> bool:
        """Whether asking about this unit alone could tell more."""
        reasons = {reason for answer in known.answers for reason in answer.reasons.values()}
        if known.together > 1:
            # Which of several faces was refused is only seen by asking about each.
            return bool(reasons & (WORTH_ASKING_AGAIN | _FILTERED))
        return bool(reasons & WORTH_ASKING_AGAIN) and known.attempts <= self._settings.answer_retries

    def _labels(self, key: str, face: int) -> FaceLabels:
        labels: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        for question, store in self._asked:
            answer = self._answer(question, store, key, face)
            labels |= answer.labels
            reasons |= answer.reasons
        return FaceLabels(labels, reasons)

    def _answer(self, question: Question, store: AnswerStore, key: str, face: int) -> FaceAnswer:
        known = store.known.get(key)
        if known is not None:
            return known.answers[face]
        return unanswered(list(question.phrases), self._failed[store.directory.name, key])

    def _check_failures(self, units: Sequence[Unit]) -> None:
        keys = {unit.key for unit in units}
        lost = Counter(
            self._failed[store.directory.name, key]
            for _, store in self._asked
            for key in keys
            if key not in store.known
        )
        asked = len(keys) * len(self._asked)
        if asked and sum(lost.values()) > self._settings.max_failures * asked:
            listed = ", ".join(f"{reason} {count}" for reason, count in lost.most_common())
            raise InputError(
                f"{sum(lost.values())} of {counted(asked, 'question')} got no answer ({listed}), more than "
                f"max_failures {self._settings.max_failures:g} allows; all answers are kept, and the same "
                "command goes on"
            )

    def tally(self) -> Tally:
        """What all kept answers to these questions took, earlier runs in the same folder included."""
        total = Tally()
        for _, store in self._asked:
            total.add(store.tally)
        return total

    def summary(self) -> list[str]:
        """Requests, tokens, money and what stayed unknown, a line each."""
        total = self.tally()
        requests = f"{counted(total.requests, 'request')} ({total.resent} sent again)"
        lines = [
            f"{self._settings.model}: {requests}, {counted(total.faces, 'face')} shown",
            f"{total.tokens_in:,} tokens in, {total.tokens_out:,} out{self._money()}",
        ]
        left = self._left_open()
        if left:
            listed = ", ".join(f"{reason} {count:,}" for reason, count in left.most_common())
            lines.append(f"faces with something unknown: {listed}")
        return lines

    def _left_open(self) -> Counter[str]:
        """Reason -> faces for which it is the last word on some attribute."""
        left: Counter[str] = Counter(self._failed.values())
        for _, store in self._asked:
            for known in store.known.values():
                for answer in known.answers:
                    left.update(set(answer.reasons.values()))
        return left

    def _money(self) -> str:
        if self._budget.price_input is None or self._budget.price_output is None:
            return ", no prices given"
        limit = "" if self._budget.limit is None else f" of a budget of ${self._budget.limit:g}"
        others = self._budget.elsewhere
        beside = f", beside ${others:.4f} for other questions in this folder" if others else ""
        return f", ${self._budget.spent:.4f}{limit}{beside}"


def _questions(settings: Vlm, phrases: Mapping[str, str], folder: Path) -> list[Question]:
    """One question for all attributes, or one each in the form "single", with examples where asked for."""
    parts = [{name: text} for name, text in phrases.items()] if settings.form == "single" else [dict(phrases)]
    if settings.examples is None:
        return [Question(part, settings.side) for part in parts]
    examples = load_examples(Path(path_beside(settings.examples, folder)))
    return [
        Question(part, settings.side, choose_examples(examples, list(part), settings.shots)) for part in parts
    ]


def _times(price: float | None, share: float) -> float | None:
    return None if price is None else price * share


def _digests(faces: Sequence[PictureRef]) -> list[tuple[PictureRef, str]]:
    """Distinct faces with the digest of their bytes, which is what an answer belongs to."""
    distinct = {face.name: face for face in faces}
    return [(face, hashlib.sha256(face.read()).hexdigest()) for face in distinct.values()]
