"""Trajectories: which pictures share their denoising so far, and what the UNet must be asked at a step.

An edit's trajectory is its source's until its first warmup ends. So a wave of requests starts as one row
per source; at an edit's fork step a row is added that copies the source's latents, the scheduler's memory
of it and its random generator; a source nobody waits for any more is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dataset_builder.edit.guidance import evaluated, fork_step
from dataset_builder.schema.taxonomy import SegaConcept


@dataclass(frozen=True)
class SegaRequest:
    """One picture: a source face, or an edit of it.

    Attributes:
        prompt: of the source and of all its edits.
        negative_prompt: likewise.
        seed: of the source's initial noise, drawn on the CPU so that no device changes it.
        concepts: what to steer by; empty for the source itself.
    """

    prompt: str
    negative_prompt: str
    seed: int
    concepts: tuple[SegaConcept, ...] = ()

    @property
    def source(self) -> SegaRequest:
        """The request for the picture that this one is an edit of."""
        return SegaRequest(self.prompt, self.negative_prompt, self.seed)


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


def select_rows(scheduler: Any, parents: Sequence[int], shape: torch.Size) -> None:
    """Reorder what a multistep scheduler remembers, so that a forked trajectory forks its history too.

    Args:
        scheduler: a diffusers scheduler between two steps; changed in place.
        parents: for each new row the old one.
        shape: of the latents so far. Whatever the scheduler holds in that shape is history by row.
    """
    for name, value in vars(scheduler).items():
        setattr(scheduler, name, _selected(value, parents, shape))


def _selected(value: Any, parents: Sequence[int], shape: torch.Size) -> Any:
    if isinstance(value, torch.Tensor) and value.shape == shape:
        return value[torch.as_tensor(parents, device=value.device)]
    if type(value) is list:
        return [_selected(item, parents, shape) for item in value]
    return value


def copied(generator: torch.Generator) -> torch.Generator:
    """A second CPU generator that goes on as the first would."""
    twin = torch.Generator()
    twin.set_state(generator.get_state())
    return twin
