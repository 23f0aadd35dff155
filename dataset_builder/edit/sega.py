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
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from dataset_builder.edit.denoise import Denoiser, Parts
from dataset_builder.edit.guidance import ConceptTable, concept_table, semantic_guidance
from dataset_builder.edit.requests import (
    NOT_FINITE,
    SAFETY_CHECKER,
    Picture,
    Pixels,
    SegaPlan,
    SegaRequest,
    SegaSettings,
)
from dataset_builder.edit.trajectories import Forks, Question, mixture


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

    @property
    def facts(self) -> Mapping[str, Any]:
        """Provenance of the checkpoint."""
        return self.parts.facts

    def seconds_per_evaluation(self) -> float:
        """Time of one UNet evaluation here, measured in a batch of one after a first that does not count."""
        side = self.denoiser.latent_shape(self.settings.height, self.settings.width)
        questions, place = [Question(0, "")], {"": 0}
        with torch.inference_mode():
            latents, texts = torch.zeros(1, *side, device=self.device), self.denoiser.encode([""])
            step = torch.tensor(1, device=self.device)
            start = 0.0
            for _ in range(2):
                start = time.perf_counter()
                self.denoiser.noise(latents, step, questions, texts, place).cpu()
        return time.perf_counter() - start

    def fitting_batch(self) -> int:
        """How many UNet evaluations memory holds at a time: the batch size, halved as needed."""
        side = self.denoiser.latent_shape(self.settings.height, self.settings.width)
        count = self.denoiser.batch_size
        questions, place = [Question(row, "") for row in range(count)], {"": 0}
        with torch.inference_mode():
            latents, texts = torch.zeros(count, *side, device=self.device), self.denoiser.encode([""])
            self.denoiser.noise(latents, torch.tensor(1, device=self.device), questions, texts, place)
        return self.denoiser.batch_size

    def run(self, plan: SegaPlan) -> Iterator[Picture]:
        """Make all pictures of a plan, wave by wave, with the plan's settings.

        Precision, compilation and batch sizes stay what the engine was made with.
        """
        own = ("precision", "compiled", "batch_size", "decode_size")
        settings = replace(plan.settings, **{name: getattr(self.settings, name) for name in own})
        for wave in plan.waves:
            yield from self.pictures(wave, settings)

    def pictures(
        self, wave: Sequence[SegaRequest], settings: SegaSettings | None = None
    ) -> tuple[Picture, ...]:
        """Run one wave; one answer per request, in their order. Without settings: the engine's."""
        settings = settings or self.settings
        with torch.inference_mode():
            decoded, finite = self.denoiser.decode(self.latents(wave, settings))
        pixels = decoded.numpy()
        reasons = [
            NOT_FINITE if not whole else SAFETY_CHECKER if bad else None
            for whole, bad in zip(finite.tolist(), self._unsafe(pixels), strict=True)
        ]
        return tuple(
            Picture(request, None if reason else picture, reason, self._provenance(request, settings))
            for request, picture, reason in zip(wave, pixels, reasons, strict=True)
        )

    def latents(self, wave: Sequence[SegaRequest], settings: SegaSettings | None = None) -> torch.Tensor:
        """Denoise one wave. Without settings: the engine's.

        Returns:
            (len(wave), channels, height, width) float32 on the device, one row per request.
        """
        with torch.inference_mode():
            run = _Run(self, wave, settings or self.settings)
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

    def _provenance(self, request: SegaRequest, settings: SegaSettings) -> dict[str, Any]:
        return {
            **self.parts.facts,
            "generator": "diffusion",
            "editor": "sega" if request.concepts else None,
            "scheduler": type(self.parts.scheduler).__name__,
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
            "seed": request.seed,
            "concepts": [concept.model_dump(mode="json", exclude={"sex"}) for concept in request.concepts],
            "settings": asdict(settings),
            "halved": list(self.denoiser.halvings),
        }


class _Run:
    """One wave on its way: latents by row, momentum by edit, the scheduler's memory."""

    def __init__(self, engine: SemanticGuidance, wave: Sequence[SegaRequest], settings: SegaSettings) -> None:
        self.settings, self.denoiser = settings, engine.denoiser
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
        shape = self.denoiser.latent_shape(self.settings.height, self.settings.width)
        noise = torch.stack([torch.randn(shape, generator=generator) for generator in self.generators])
        latents: torch.Tensor = noise.to(engine.device) * self.scheduler.init_noise_sigma
        return latents

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
            guidance = guidance + self._semantic(self.table, noise, negative, index, step)
        return negative + guidance

    def _semantic(
        self,
        table: ConceptTable,
        noise: torch.Tensor,
        negative: torch.Tensor,
        index: Mapping[Question, int],
        step: int,
    ) -> torch.Tensor:
        """What each row's guidance gains: zero for sources and for edits that still wait."""
        edits, row_of = self.forks.edits, self.forks.row_of
        width = table.scale.shape[1]
        asked = [
            # What was not asked has weight 0: the negative prompt's noise stands in for it.
            index.get(Question(row_of[edit], text), index[Question(row_of[edit], edit.negative_prompt)])
            for edit in edits
            for text in _padded_texts(edit, width)
        ]
        concepts = noise[asked].reshape(len(edits), width, *noise.shape[1:])
        own_rows = [row_of[edit] for edit in edits]
        mixtures = [mixture(edit.concepts, step) for edit in edits]
        gains, self.momentum = semantic_guidance(concepts, negative[own_rows], table, mixtures, self.momentum)
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
