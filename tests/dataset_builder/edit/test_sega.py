"""The engine against diffusers' own pipeline: tiny random networks, float32, on the CPU."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from dataset_builder.edit.requests import SegaRequest, SegaSettings, plan
from dataset_builder.edit.sega import SemanticGuidance
from dataset_builder.edit.trajectories import plan_evaluations, wave_evaluations
from dataset_builder.schema.taxonomy import SegaConcept, load_taxonomy
from targets.base.errors import InputError
from tests.dataset_builder.tiny import SIDE, tiny_parts

# diffusers' DPM solver hands a tensor to numpy in a way that numpy 2 will refuse one day.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

STEPS = 12
TOLERANCE = 1e-4
SETTINGS = SegaSettings(steps=STEPS, height=SIDE, width=SIDE, batch_size=8, precision="float32")
FACE = SegaRequest("a photo of the face of bob", "drawing", seed=7)


def concept(prompt: str = "smile", **settings: Any) -> SegaConcept:
    base = {"guidance_scale": 9.0, "threshold": 0.9, "warmup_steps": 4}
    return SegaConcept(prompt=prompt, **(base | settings))


def edit(*concepts: SegaConcept, source: SegaRequest = FACE) -> SegaRequest:
    return SegaRequest(source.prompt, source.negative_prompt, source.seed, concepts)


@cache
def original(request: SegaRequest, scheduler: str, settings: SegaSettings = SETTINGS) -> torch.Tensor:
    """Latents of diffusers' SemanticStableDiffusionPipeline for one request."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the pipeline is deprecated and says so
        from diffusers.pipelines.deprecated.semantic_stable_diffusion import (
            pipeline_semantic_stable_diffusion as semantic,
        )

        parts = tiny_parts(scheduler)
        pipeline = semantic.SemanticStableDiffusionPipeline(
            vae=parts.vae,
            text_encoder=parts.text_encoder,
            tokenizer=parts.tokenizer,
            unet=parts.unet,
            scheduler=parts.scheduler,
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )
    pipeline.set_progress_bar_config(disable=True)
    concepts = request.concepts
    edits: dict[str, Any] = {}
    if concepts:
        cooldown = [STEPS + 99 if c.cooldown_steps is None else c.cooldown_steps for c in concepts]
        edits = {
            "editing_prompt": [c.prompt for c in concepts],
            "reverse_editing_direction": [c.reversed for c in concepts],
            "edit_guidance_scale": [c.guidance_scale for c in concepts],
            "edit_warmup_steps": [c.warmup_steps for c in concepts],
            "edit_cooldown_steps": cooldown,
            "edit_threshold": [c.threshold for c in concepts],
            "edit_weights": [c.weight for c in concepts],
            "edit_momentum_scale": concepts[0].momentum_scale,
            "edit_mom_beta": settings.momentum_beta,
        }
    result: torch.Tensor = pipeline(
        [request.prompt],
        height=SIDE,
        width=SIDE,
        num_inference_steps=settings.steps,
        guidance_scale=settings.guidance_scale,
        negative_prompt=[request.negative_prompt],
        generator=torch.Generator().manual_seed(request.seed),
        output_type="latent",
        **edits,
    ).images
    return result[0]


def ours(*requests: SegaRequest, scheduler: str = "ddim", settings: SegaSettings = SETTINGS) -> torch.Tensor:
    return SemanticGuidance(tiny_parts(scheduler), settings).latents(requests)


def assert_same(requests: list[SegaRequest], scheduler: str = "ddim") -> None:
    got = ours(*requests, scheduler=scheduler)
    for index, request in enumerate(requests):
        expected = original(request, scheduler)
        assert torch.isfinite(expected).all()
        torch.testing.assert_close(got[index], expected, rtol=0, atol=TOLERANCE)


SINGLE = {
    "plain": [concept()],
    "warmup 0": [concept(warmup_steps=0)],
    "warmup past the last step": [concept(warmup_steps=STEPS + 5)],
    "cooldown": [concept(cooldown_steps=8)],
    "cooldown before warmup": [concept(warmup_steps=6, cooldown_steps=3, momentum_scale=0.5)],
    "no momentum": [concept(momentum_scale=0.0)],
    "much momentum": [concept(momentum_scale=0.8)],
    "no threshold": [concept(threshold=0.0)],
    "reversed": [concept(reversed=True)],
    "weight": [concept(weight=0.5)],
    "negative weight": [concept(weight=-1.0)],
    "two, one reversed": [concept(), concept("long hair", reversed=True, guidance_scale=6.0)],
    "two warmups": [concept(), concept("hat", warmup_steps=8, weight=0.4, threshold=0.8)],
    "two warmups, no momentum": [
        concept(momentum_scale=0.0),
        concept("hat", warmup_steps=8, momentum_scale=0.0),
    ],
    "one never warm": [concept(), concept("hat", warmup_steps=STEPS)],
    "two cooldowns": [concept(cooldown_steps=6), concept("hat", cooldown_steps=9, momentum_scale=0.1)],
    "three, one negative": [
        concept(weight=0.7),
        concept("hat", weight=-0.3, warmup_steps=6),
        concept("long hair", weight=1.3, warmup_steps=2, reversed=True),
    ],
}


@pytest.mark.parametrize("concepts", SINGLE.values(), ids=SINGLE.keys())
def test_one_edit_matches_the_original(concepts: list[SegaConcept]) -> None:
    assert_same([edit(*concepts)])


@pytest.mark.parametrize("scheduler", ["dpm", "unipc", "pndm", "ancestral"])
def test_other_schedulers_match_the_original(scheduler: str) -> None:
    """Multistep ones remember earlier steps by row; the ancestral one draws noise by row.

    At step 7 the second edit's row moves up and the first's comes last: history must move along.
    """
    other = SegaRequest("a photo of the face of eve", "", seed=8)
    assert_same([edit(concept(warmup_steps=7)), edit(concept("hat"), source=other)], scheduler)


@pytest.mark.parametrize("scheduler", ["ddim", "dpm"])
def test_mixed_sources_and_attributes_in_one_wave_match_the_original(scheduler: str) -> None:
    other = SegaRequest("a photo of the face of eve", "", seed=8)
    requests = [FACE, *(edit(*concepts) for concepts in SINGLE.values())]
    requests += [edit(concept("hat"), source=other), other, edit(concept(warmup_steps=2), source=other)]
    assert_same(requests, scheduler)


def test_edits_change_something() -> None:
    """Else the comparisons above would compare sources."""
    got = ours(FACE, *(edit(*concepts) for concepts in SINGLE.values()))
    unchanged = {"warmup past the last step", "negative weight"}
    for row, name in enumerate(SINGLE, start=1):
        assert (torch.allclose(got[row], got[0], atol=1e-3)) == (name in unchanged), name


def test_nothing_is_added_where_the_original_divides_by_zero() -> None:
    request = edit(concept(cooldown_steps=5, warmup_steps=3), concept("hat", warmup_steps=8))
    assert torch.isnan(original(request, "ddim")).any()
    assert torch.isfinite(ours(request)).all()


def test_a_request_asked_twice_is_answered_twice() -> None:
    got = ours(edit(concept()), edit(concept()))
    assert torch.equal(got[0], got[1])


def test_batch_mates_change_a_face_only_by_rounding() -> None:
    alone = ours(edit(concept()))[0]
    mates = [edit(concept("hat", warmup_steps=warmup)) for warmup in range(9)]
    together = ours(*mates, edit(concept()))[-1]
    torch.testing.assert_close(alone, together, rtol=0, atol=TOLERANCE)


def test_the_same_plan_gives_the_same_bytes() -> None:
    requests = [FACE, edit(concept()), edit(concept("hat"), concept("beard", reversed=True))]
    runs = [list(SemanticGuidance(tiny_parts(), SETTINGS).run(plan(requests, SETTINGS))) for _ in range(2)]
    for first, second in zip(*runs, strict=True):
        assert first.pixels is not None
        assert second.pixels is not None
        assert np.array_equal(first.pixels, second.pixels)
        assert first.provenance == second.provenance


def test_the_scheduler_of_the_checkpoint_is_left_alone() -> None:
    parts = tiny_parts("dpm")
    engine = SemanticGuidance(parts, SETTINGS)
    first, second = engine.latents([edit(concept())]), engine.latents([edit(concept())])
    assert parts.scheduler.num_inference_steps is None
    assert torch.equal(first, second)


def test_sources_and_warmups_are_evaluated_once() -> None:
    """12 steps of 2 for the source; concepts in every step; 8 steps of 2 for each edit after its fork."""
    edits = [edit(concept(prompt)) for prompt in ("hat", "smile", "beard")]
    assert wave_evaluations([FACE, *edits], STEPS) == 12 * 2 + 3 * (12 + 8 * 2)
    assert wave_evaluations(edits, STEPS) == 4 * 2 + 3 * (12 + 8 * 2)
    alike = [edit(concept()), edit(concept(guidance_scale=5.0))]
    assert wave_evaluations(alike, STEPS) == 4 * 3 + 8 * 6
    assert wave_evaluations([edit(concept(cooldown_steps=6))], STEPS) == 12 * 2 + 6
    assert wave_evaluations([edit(concept(momentum_scale=0.0))], STEPS) == 12 * 2 + 8
    assert wave_evaluations([edit(concept(warmup_steps=STEPS))], STEPS) == 12 * 2


def test_a_plan_keeps_sources_and_edits_together() -> None:
    faces = [SegaRequest("a face", "", seed) for seed in range(3)]
    requests = faces + [edit(concept(), source=face) for face in faces]
    waves = plan(requests, SegaSettings(wave_size=4)).waves
    assert [len(wave) for wave in waves] == [4, 2]
    assert {request.seed for request in waves[0]} == {0, 1}


def test_the_papers_attributes_can_be_planned() -> None:
    taxonomy = load_taxonomy("paper")
    requests = [
        edit(*attribute.sega_for(sex))
        for attribute in taxonomy.attributes.values()
        for sex in ("male", "female")
    ]
    assert plan_evaluations(plan(requests, SegaSettings())) > 0


def test_concepts_of_one_edit_share_a_momentum_scale() -> None:
    with pytest.raises(InputError, match=r"must share their momentum_scale, got 0.1 and 0.3 for 'smile'"):
        plan([edit(concept(), concept("hat", momentum_scale=0.3))], SETTINGS)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"guidance_scale": 1.0}, "guidance_scale must be above 1, got 1.0"),
        ({"momentum_beta": 1.0}, r"momentum_beta must be in \[0, 1\), got 1.0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ],
)
def test_settings_out_of_range(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SegaSettings(**wrong)


def test_a_size_that_the_vae_can_not_make() -> None:
    with pytest.raises(InputError, match="height and width must be multiples of 2, got 16 and 15"):
        ours(FACE, settings=replace(SETTINGS, width=15))


def test_a_prompt_that_is_too_long_is_cut_with_a_warning() -> None:
    long = SegaRequest("a" * 74 + " bye", "", 0)
    with pytest.warns(UserWarning, match="may have 77 tokens, got 79: 'y ?e' is cut"):
        ours(long)


def test_latents_that_are_not_finite_are_a_reason() -> None:
    engine = SemanticGuidance(tiny_parts(), SETTINGS)
    torch.nn.init.constant_(engine.denoiser.vae.decoder.conv_out.bias, float("nan"))
    (picture,) = engine.pictures([FACE])
    assert (picture.pixels, picture.reason) == (None, "not_finite")


def test_the_safety_checker_is_a_reason() -> None:
    class Extracted:
        pixel_values = torch.zeros(2, 3, 4, 4)

    class Checker:
        dtype = torch.float32

        def to(self, device: torch.device) -> Checker:
            return self

        def __call__(self, clip_input: torch.Tensor, images: Any) -> tuple[Any, list[bool]]:
            return images, [False, True]

    parts = tiny_parts()
    parts = type(parts)(
        **{**vars(parts), "safety_checker": Checker(), "feature_extractor": lambda *_, **__: Extracted()}
    )
    kept, rejected = SemanticGuidance(parts, SETTINGS).pictures([FACE, edit(concept())])
    assert kept.pixels is not None
    assert (rejected.pixels, rejected.reason) == (None, "safety_checker")


def test_a_batch_that_does_not_fit_is_halved_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [edit(concept(prompt)) for prompt in ("hat", "smile", "beard")]
    engine = SemanticGuidance(tiny_parts(), SETTINGS)
    whole = engine.latents(requests)
    body = engine.denoiser._body

    def small(hidden: Any, *args: Any) -> Any:
        if len(hidden[0]) > 2:
            raise torch.OutOfMemoryError
        return body(hidden, *args)

    monkeypatch.setattr(engine.denoiser, "_body", small)
    torch.testing.assert_close(engine.latents(requests), whole, rtol=0, atol=TOLERANCE)
    assert engine.denoiser.halvings == ["batch_size 8 -> 4", "batch_size 4 -> 2"]


def test_a_batch_of_one_that_does_not_fit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SemanticGuidance(tiny_parts(), SETTINGS)

    def full(*args: Any, **kwargs: Any) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(engine.denoiser, "_head", full)
    with pytest.raises(torch.OutOfMemoryError):
        engine.latents([FACE])
