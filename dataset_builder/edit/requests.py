"""What semantic guidance is asked for and answers: requests, settings, plans, pictures. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from dataset_builder.schema.taxonomy import SegaConcept
from targets.base.errors import InputError

Pixels = npt.NDArray[np.uint8]
NOT_FINITE = "not_finite"
SAFETY_CHECKER = "safety_checker"
# One H100, networks of Stable Diffusion 1.5's shapes at 512 x 512 pixels, half precision, compiled.
EVALUATIONS_PER_SECOND = 450.0


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
class SegaSettings:
    """How a plan is run; all of it belongs to the pictures' provenance.

    Attributes:
        steps: denoising steps.
        guidance_scale: of the prompt over the negative prompt, above 1.
        momentum_beta: decay of the momentum, in [0, 1).
        height: of the pictures, pixels.
        width: likewise.
        batch_size: UNet evaluations a batch.
        decode_size: pictures a batch of the VAE.
        wave_size: requests that run together at most, unless one source alone has more.
        precision: of the networks.
        compiled: whether the networks are compiled, which pays from some thousand pictures on.
    """

    steps: int = 50
    guidance_scale: float = 7.5
    momentum_beta: float = 0.6
    height: int = 512
    width: int = 512
    batch_size: int = 80
    decode_size: int = 8
    wave_size: int = 80
    precision: Literal["float16", "bfloat16", "float32"] = "float16"
    compiled: bool = False

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            InputError: a setting is out of its range.
        """
        if self.guidance_scale <= 1:
            raise InputError(f"guidance_scale must be above 1, got {self.guidance_scale}")
        if not 0 <= self.momentum_beta < 1:
            raise InputError(f"momentum_beta must be in [0, 1), got {self.momentum_beta}")
        for name in ("steps", "batch_size", "decode_size", "wave_size", "height", "width"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class SegaPlan:
    """Which requests run together. The same plan on the same machine gives the same bytes.

    Attributes:
        waves: each runs on its own; a source and its edits are never split.
        settings: of the run.
    """

    waves: tuple[tuple[SegaRequest, ...], ...]
    settings: SegaSettings


@dataclass(frozen=True)
class Picture:
    """What became of a request.

    Attributes:
        request: as asked.
        pixels: (height, width, 3) RGB, or None where there is none.
        reason: why not: "not_finite" or "safety_checker"; else None.
        provenance: model facts, prompts, seed, settings, concepts; JSON values only.
    """

    request: SegaRequest
    pixels: Pixels | None
    reason: str | None
    provenance: Mapping[str, Any] = field(default_factory=dict)


def plan(requests: Iterable[SegaRequest], settings: SegaSettings) -> SegaPlan:
    """Group requests by source and fill waves in order of appearance.

    Raises:
        InputError: an edit's concepts differ in their momentum scale, which an edit has one of.
    """
    families: dict[SegaRequest, list[SegaRequest]] = {}
    for request in dict.fromkeys(requests):
        check_concepts(request.concepts)
        families.setdefault(request.source, []).append(request)
    waves: list[list[SegaRequest]] = []
    for family in families.values():
        if not waves or len(waves[-1]) + len(family) > settings.wave_size:
            waves.append([])
        waves[-1] += family
    return SegaPlan(tuple(tuple(wave) for wave in waves), settings)


def check_concepts(concepts: Sequence[SegaConcept]) -> None:
    """Refuse concepts that can't form one edit.

    Raises:
        InputError: their momentum scales differ.
    """
    scales = {concept.momentum_scale for concept in concepts}
    if len(scales) > 1:
        raise InputError(
            "the concepts of one edit must share their momentum_scale, got "
            + " and ".join(f"{scale}" for scale in sorted(scales))
            + f" for '{concepts[0].prompt}'"
        )


class Engine(Protocol):
    """What runs a plan: semantic guidance, or for sources alone any pipeline of diffusers."""

    @property
    def settings(self) -> SegaSettings:
        """How it runs plans, with the batch sizes that are in force."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Provenance of the model: checkpoint, revision, digests; JSON values only."""

    def run(self, plan: SegaPlan) -> Iterator[Picture]:
        """One picture per request, wave by wave."""


class LazyEngine(Engine, Protocol):
    """An engine that loads its model when it is first needed."""

    def check(self, *, guided: bool = False) -> None:
        """Find out whether its model is there, and can be ``guided``; raises InputError if not."""


def gpu_seconds(settings: SegaSettings) -> float:
    """Estimated seconds of one UNet evaluation on one H100."""
    return settings.height * settings.width / 512**2 / EVALUATIONS_PER_SECOND
