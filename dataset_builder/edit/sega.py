"""Semantic guidance for many sources and many edits at once (method: Brack et al. 2023).

A wave of requests runs through all denoising steps together. At every step each distinct (latents, text)
pair is evaluated once, in batches of fixed size; ``guidance`` combines the answers per edit. What a wave
shares: the denoising of a source until an edit's first warmup ends, the source picture itself, and every
evaluation that two requests need alike.

A picture depends on its request and the settings. Other requests in the wave change which batch an
evaluation falls into and so its rounding: latents differ by less than 1e-4 in float32 on the CPU. In half
precision a rounding difference can carry an element over the threshold, so that single pictures differ
visibly; the same plan on the same machine gives the same pictures.

Differences from diffusers' ``SemanticStableDiffusionPipeline``, beside the one in ``guidance``: a prompt
that is too long keeps its end token; latents and guidance are float32 whatever the networks' precision.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from dataset_builder.edit.denoise import Denoiser, Parts
from dataset_builder.edit.guidance import concept_table, mixture, semantic_guidance
from dataset_builder.edit.trajectories import SegaRequest, Forks, Question, copied, select_rows
from dataset_builder.schema.taxonomy import SegaConcept
from targets.base.errors import InputError

Pixels = npt.NDArray[np.uint8]
NOT_FINITE = "not_finite"
SAFETY_CHECKER = "safety_checker"


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
    batch_size: int = 64
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

    @property
    def evaluations(self) -> int:
        """UNet evaluations in all, with no padding: what a time estimate multiplies."""
        return sum(wave_evaluations(wave, self.settings.steps) for wave in self.waves)


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


def wave_evaluations(wave: Sequence[SegaRequest], steps: int) -> int:
    """UNet evaluations that a wave needs."""
    forks, total = Forks(wave, steps), 0
    for step in range(steps):
        forks.advance(step)
        total += len(forks.questions(step))
    return total


class SemanticGuidance:
    """Runs waves of requests through one checkpoint on one device."""

    def __init__(self, parts: Parts, settings: SegaSettings, device: str | torch.device = "cpu") -> None:
        self.parts, self.settings, self.device = parts, settings, torch.device(device)
        self.denoiser = Denoiser(
            parts,
            device=self.device,
            dtype=getattr(torch, settings.precision),
            batch_size=settings.batch_size,
            decode_size=settings.decode_size,
            compiled=settings.compiled,
        )

    def run(self, plan: SegaPlan) -> Iterator[Picture]:
        """Make all pictures of a plan, wave by wave."""
        for wave in plan.waves:
            yield from self.pictures(wave)

    def pictures(self, wave: Sequence[SegaRequest]) -> tuple[Picture, ...]:
        """Run one wave; one answer per request, in their order."""
        with torch.inference_mode():
            decoded, finite = self.denoiser.decode(self.latents(wave))
        pixels = decoded.numpy()
        reasons = [
            NOT_FINITE if not whole else SAFETY_CHECKER if bad else None
            for whole, bad in zip(finite.tolist(), self._unsafe(pixels), strict=True)
        ]
        return tuple(
            Picture(request, None if reason else picture, reason, self._provenance(request))
            for request, picture, reason in zip(wave, pixels, reasons, strict=True)
        )

    def latents(self, wave: Sequence[SegaRequest]) -> torch.Tensor:
        """Denoise one wave.

        Returns:
            (len(wave), channels, height, width) float32 on the device, one row per request.
        """
        with torch.inference_mode():
            run = _Run(self, wave)
            for step in range(run.forks.steps):
                run.step(step)
            return run.latents[[run.forks.row_of[request] for request in wave]]

    def _unsafe(self, pixels: Pixels) -> list[bool]:
        checker, extractor = self.parts.safety_checker, self.parts.feature_extractor
        if checker is None or extractor is None:
            return [False] * len(pixels)
        inputs = extractor(list(pixels), return_tensors="pt").pixel_values
        with torch.inference_mode():
            _, unsafe = checker.to(self.device)(
                clip_input=inputs.to(self.device, checker.dtype), images=pixels.astype(np.float32) / 255
            )
        return [bool(bad) for bad in unsafe]

    def _provenance(self, request: SegaRequest) -> dict[str, Any]:
        return {
            **self.parts.facts,
            "method": "sega" if request.concepts else "diffusion",
            "scheduler": type(self.parts.scheduler).__name__,
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
            "seed": request.seed,
            "concepts": [concept.model_dump(mode="json", exclude={"sex"}) for concept in request.concepts],
            "settings": asdict(self.settings),
            "halved": list(self.denoiser.halvings),
        }


class _Run:
    """One wave on its way: latents by row, momentum by edit, the scheduler's memory."""

    def __init__(self, engine: SemanticGuidance, wave: Sequence[SegaRequest]) -> None:
        self.settings, self.denoiser = engine.settings, engine.denoiser
        self.scheduler = copy.deepcopy(engine.parts.scheduler)
        self.scheduler.set_timesteps(self.settings.steps, device=engine.device)
        self.forks = Forks(wave, len(self.scheduler.timesteps))
        texts = _texts(self.forks)
        self.embeddings = self.denoiser.encode(texts)
        self.place = {text: index for index, text in enumerate(texts)}
        self.generators = [torch.Generator().manual_seed(row.seed) for row in self.forks.rows]
        self.latents = self._initial(engine)
        edits = [edit.concepts for edit in self.forks.edits]
        self.table = concept_table(edits, self.settings.momentum_beta, engine.device) if edits else None
        self.momentum = self.latents.new_zeros((len(edits), *self.latents.shape[1:]))
        accepted = inspect.signature(self.scheduler.step).parameters
        self.takes_generator = "generator" in accepted

    def _initial(self, engine: SemanticGuidance) -> torch.Tensor:
        factor = 2 ** (len(self.denoiser.vae.config.block_out_channels) - 1)
        shape = (self.denoiser.unet.config.in_channels,) + tuple(
            side // factor for side in (self.settings.height, self.settings.width)
        )
        noise = torch.stack([torch.randn(shape, generator=generator) for generator in self.generators])
        return noise.to(engine.device) * self.scheduler.init_noise_sigma

    def step(self, step: int) -> None:
        """Denoise every row once."""
        self._fork(step)
        timestep = self.scheduler.timesteps[step]
        scaled = self.scheduler.scale_model_input(self.latents, timestep)
        questions = self.forks.questions(step)
        noise = self.denoiser.noise(scaled, timestep, questions, self.embeddings, self.place)
        guided = self._guided(noise, {question: index for index, question in enumerate(questions)}, step)
        more = {"generator": self.generators} if self.takes_generator else {}
        self.latents = self.scheduler.step(guided, timestep, self.latents, **more, return_dict=False)[0]

    def _fork(self, step: int) -> None:
        parents = self.forks.advance(step)
        if parents is None:
            return
        select_rows(self.scheduler, parents, self.latents.shape)
        self.latents = self.latents[parents]
        self.generators = [copied(self.generators[parent]) for parent in parents]

    def _guided(self, noise: torch.Tensor, index: Mapping[Question, int], step: int) -> torch.Tensor:
        rows = list(enumerate(self.forks.rows))
        negative = noise[[index[Question(row, owner.negative_prompt)] for row, owner in rows]]
        positive = noise[[index[Question(row, owner.prompt)] for row, owner in rows]]
        guidance = self.settings.guidance_scale * (positive - negative)
        if self.table is not None:
            guidance = guidance + self._semantic(noise, negative, index, step)
        return negative + guidance

    def _semantic(
        self, noise: torch.Tensor, negative: torch.Tensor, index: Mapping[Question, int], step: int
    ) -> torch.Tensor:
        """What each row's guidance gains: zero for sources and for edits that still wait."""
        assert self.table is not None
        edits, row_of = self.forks.edits, self.forks.row_of
        width = self.table.scale.shape[1]
        asked = [
            # What was not asked has weight 0: the negative prompt's noise stands in for it.
            index.get(Question(row_of[edit], text), index[Question(row_of[edit], edit.negative_prompt)])
            for edit in edits
            for text in _padded_texts(edit, width)
        ]
        concepts = noise[asked].unflatten(0, (len(edits), width))
        own_rows = [row_of[edit] for edit in edits]
        mixtures = [mixture(edit.concepts, step) for edit in edits]
        gains, self.momentum = semantic_guidance(
            concepts, negative[own_rows], self.table, mixtures, self.momentum
        )
        place = {edit: number for number, edit in enumerate(edits)}
        gain = torch.zeros_like(negative)
        owned = [(row, place[owner]) for row, owner in enumerate(self.forks.rows) if owner.concepts]
        if owned:
            gain[[row for row, _ in owned]] = gains[[number for _, number in owned]]
        return gain


def _texts(forks: Forks) -> list[str]:
    texts = [text for row in forks.rows for text in (row.negative_prompt, row.prompt)]
    texts += [concept.prompt for edit in forks.edits for concept in edit.concepts]
    return list(dict.fromkeys(texts))


def _padded_texts(edit: SegaRequest, width: int) -> list[str]:
    texts = [concept.prompt for concept in edit.concepts]
    return texts + [edit.negative_prompt] * (width - len(texts))
