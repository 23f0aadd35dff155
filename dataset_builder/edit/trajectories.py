"""Trajectories: which pictures share their denoising so far, and what the UNet must be asked at a step.

An edit's trajectory is its source's until its first warmup ends. So a wave of requests starts as one row
per source; at an edit's fork step a row is added that copies the source's latents, the scheduler's memory
of it and its random generator; a source nobody waits for any more is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataset_builder.edit.requests import SegaPlan, SegaRequest
from dataset_builder.schema.taxonomy import SegaConcept


@dataclass(frozen=True)
class Mixture:
    """How an edit's concepts combine at one step.

    Attributes:
        own: weight of each concept in the momentum, and in the guidance if ``whole``; 0 where it is over.
        partial: weight of each concept in the guidance while others still wait; else all 0.
        whole: every concept is past its warmup.
    """

    own: tuple[float, ...]
    partial: tuple[float, ...]
    whole: bool


def mixture(concepts: Sequence[SegaConcept], step: int) -> Mixture:
    """Weights of an edit's concepts at ``step`` (counted from 0)."""
    own = tuple(0.0 if _over(concept, step) else max(concept.weight, 0.0) for concept in concepts)
    warm = [step >= concept.warmup_steps for concept in concepts]
    weights = [weight if is_warm else 0.0 for weight, is_warm in zip(own, warm, strict=True)]
    total = sum(weights)
    if all(warm) or total == 0:
        return Mixture(own, (0.0,) * len(own), all(warm))
    return Mixture(own, tuple(weight / total for weight in weights), whole=False)


def fork_step(concepts: Sequence[SegaConcept]) -> int:
    """The first step at which an edit's noise differs from its source's."""
    return min(concept.warmup_steps for concept in concepts)


def evaluated(concepts: Sequence[SegaConcept], step: int, steps: int) -> tuple[bool, ...]:
    """Which concepts' noise the result depends on at ``step`` of ``steps``.

    None after its cooldown. During its warmup a concept counts only through the momentum, which is never
    applied if its scale is 0 or if some warmup outlasts the steps.
    """
    applied = all(concept.warmup_steps < steps for concept in concepts)
    momentum = applied and any(concept.momentum_scale != 0 for concept in concepts)
    return tuple(
        not _over(concept, step) and (momentum or concept.warmup_steps <= step < steps)
        for concept in concepts
    )


def _over(concept: SegaConcept, step: int) -> bool:
    return concept.cooldown_steps is not None and step >= concept.cooldown_steps


@dataclass(frozen=True)
class Question:
    """One evaluation of the UNet: a row's latents under a text."""

    row: int
    text: str


class Forks:
    """Where each request of a wave is, step by step. Pure bookkeeping: no tensors.

    Attributes:
        requests: the wave.
        rows: what each row of latents belongs to: a source, or an edit after its fork.
        row_of: request -> its row now.
    """

    def __init__(self, requests: Sequence[SegaRequest], steps: int) -> None:
        self.requests = tuple(requests)
        self.steps = steps
        self.edits = tuple(dict.fromkeys(request for request in requests if request.concepts))
        self.rows = tuple(dict.fromkeys(request.source for request in requests))
        self._place()

    def _place(self) -> None:
        row = {owner: index for index, owner in enumerate(self.rows)}
        self.row_of = {
            request: row[request] if request in row else row[request.source] for request in self.requests
        }

    def advance(self, step: int) -> list[int] | None:
        """Fork the edits that begin at ``step``.

        Returns:
            For each new row the old one it copies, or None if all stays as it is.
        """
        forking = [edit for edit in self.edits if fork_step(edit.concepts) == step]
        if not forking:
            return None
        waiting = {edit.source for edit in self.edits if fork_step(edit.concepts) > step}
        waiting.update(request for request in self.requests if not request.concepts)
        kept = [index for index, owner in enumerate(self.rows) if owner.concepts or owner in waiting]
        parents = [*kept, *(self.row_of[edit] for edit in forking)]
        self.rows = (*(self.rows[index] for index in kept), *forking)
        self._place()
        return parents

    def questions(self, step: int) -> tuple[Question, ...]:
        """Everything the UNet must be asked at ``step``, each thing once."""
        asked = [
            Question(row, text)
            for row, owner in enumerate(self.rows)
            for text in (owner.negative_prompt, owner.prompt)
        ]
        for edit in self.edits:
            asks = evaluated(edit.concepts, step, self.steps)
            asked += [
                Question(self.row_of[edit], concept.prompt)
                for concept, ask in zip(edit.concepts, asks, strict=True)
                if ask
            ]
        return tuple(sorted(dict.fromkeys(asked), key=lambda question: question.row))


def wave_evaluations(wave: Sequence[SegaRequest], steps: int) -> int:
    """UNet evaluations that a wave needs."""
    forks, total = Forks(wave, steps), 0
    for step in range(steps):
        forks.advance(step)
        total += len(forks.questions(step))
    return total


def plan_evaluations(plan: SegaPlan) -> int:
    """UNet evaluations of a whole plan, without padding: what a time estimate multiplies."""
    return sum(wave_evaluations(wave, plan.settings.steps) for wave in plan.waves)
