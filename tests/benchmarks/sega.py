"""Semantic guidance: diffusers' original pipeline and ours, in one run on one GPU.

    python -m tests.benchmarks.sega [--tiny]

Networks have Stable Diffusion 1.5's shapes and random weights: speed does not depend on the weights.
512 x 512 pixels, 50 steps (DDIM), one concept, warmup 10, half precision. Times run from prompts to 8-bit
pictures on the host. Ours includes the source pictures; 19 edits share one, as in the paper's build.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel

from dataset_builder.edit.denoise import Parts
from dataset_builder.edit.requests import SegaPlan, SegaRequest, SegaSettings, plan
from dataset_builder.edit.sega import SemanticGuidance
from dataset_builder.edit.trajectories import plan_evaluations
from dataset_builder.schema.taxonomy import SegaConcept
from tests.dataset_builder.tiny import tiny_parts, tiny_tokenizer

EDITS = 19
UNET_TFLOP = 0.803  # one evaluation, counted with torch.utils.flop_counter
GIB = 2**30


@dataclass(frozen=True)
class Line:
    """One measurement; memory in GiB."""

    what: str
    edits_per_s: float
    pictures: int
    seconds: float
    allocated: float
    reserved: float


def stable_diffusion(dtype: torch.dtype, device: str) -> Parts:
    torch.manual_seed(0)
    text = CLIPTextConfig(
        vocab_size=49408,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        projection_dim=768,
    )
    with torch.device(device):
        unet = UNet2DConditionModel(cross_attention_dim=768, sample_size=64).to(dtype)
        vae = AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            block_out_channels=(128, 256, 512, 512),
            layers_per_block=2,
            latent_channels=4,
            sample_size=512,
        ).to(dtype)
        text_encoder = CLIPTextModel(text).to(dtype)
    scheduler = DDIMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        clip_sample=False,
        set_alpha_to_one=False,
    )
    return Parts(unet.eval(), vae.eval(), text_encoder.eval(), tiny_tokenizer(), scheduler)


def original(parts: Parts, batch: int, settings: SegaSettings) -> Callable[[int], Any]:
    """diffusers' pipeline, called with a number of steps: ``batch`` edits of different sources."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from diffusers.pipelines.deprecated.semantic_stable_diffusion import (
            pipeline_semantic_stable_diffusion as semantic,
        )

        pipeline = semantic.SemanticStableDiffusionPipeline(
            vae=parts.vae,
            text_encoder=parts.text_encoder,
            tokenizer=parts.tokenizer,
            unet=parts.unet,
            scheduler=copy.deepcopy(parts.scheduler),
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )
    pipeline.set_progress_bar_config(disable=True)
    return lambda steps: pipeline(
        ["a photo of the face of bob"] * batch,
        height=settings.height,
        width=settings.width,
        num_inference_steps=steps,
        negative_prompt=["drawing"] * batch,
        generator=[torch.Generator().manual_seed(seed) for seed in range(batch)],
        output_type="np",
        editing_prompt=["smile"],
        edit_guidance_scale=9.0,
        edit_threshold=0.96,
        edit_warmup_steps=10,
        edit_mom_beta=0.6,
    )


def requests(sources: int) -> list[SegaRequest]:
    concepts = [
        SegaConcept(prompt=f"smile, {'a' * number}", guidance_scale=9.0, threshold=0.96)
        for number in range(1, EDITS + 1)
    ]
    faces = [SegaRequest("a photo of the face of bob", "drawing", seed) for seed in range(sources)]
    return [
        SegaRequest(face.prompt, face.negative_prompt, face.seed, edit)
        for face in faces
        for edit in [(), *((concept,) for concept in concepts)]
    ]


def measured(what: str, warm_up: Callable[[], Any], run: Callable[[], Any], edits: int, repeats: int) -> Line:
    """Median of ``repeats`` runs after a shorter one that meets the same shapes."""
    start = time.perf_counter()
    warm_up()
    synchronize()
    print(f"{what}: first run, with compilation, {time.perf_counter() - start:.0f} s", flush=True)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        synchronize()
        times.append(time.perf_counter() - start)
    seconds = sorted(times)[len(times) // 2]
    peak = (float("nan"), float("nan"))
    if torch.cuda.is_available():
        peak = (torch.cuda.max_memory_allocated() / GIB, torch.cuda.max_memory_reserved() / GIB)
    line = Line(what, edits / seconds, edits, seconds, *peak)
    print(json.dumps(vars(line) | {"times": times}), flush=True)
    return line


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def all_pictures(engine: SemanticGuidance, wanted: SegaPlan) -> None:
    reasons = [picture.reason for picture in engine.run(wanted) if picture.reason]
    assert not reasons, reasons


def markdown(lines: list[Line], evaluations: float) -> str:
    base = lines[0].edits_per_s
    head = [
        "| run | edits/s | of batch 1 | edits | seconds | peak GiB allocated | reserved |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    body = [
        f"| {line.what} | {line.edits_per_s:.2f} | {line.edits_per_s / base:.1f} | {line.pictures} "
        f"| {line.seconds:.1f} | {line.allocated:.1f} | {line.reserved:.1f} |"
        for line in lines
    ]
    rate = evaluations * UNET_TFLOP * lines[-1].edits_per_s
    foot = (
        f"Ours: {evaluations:.1f} UNet evaluations an edit, sources included; {rate:.0f} TFLOP/s in the UNet."
    )
    return "\n".join([*head, *body, "", foot])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="tiny networks on the CPU: does it run at all")
    parser.add_argument("--batch", type=int, default=80, help="UNet evaluations")
    parser.add_argument("--sources", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--skip-original", action="store_true")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--memory-gib", type=float, default=16.0, help="cap on ours, as on a smaller card")
    options = parser.parse_args()
    device = "cpu" if options.tiny else "cuda"
    settings = SegaSettings(
        batch_size=options.batch,
        wave_size=options.sources * (EDITS + 1),
        compiled=not (options.tiny or options.eager),
        **({"steps": 12, "height": 16, "width": 16, "precision": "float32"} if options.tiny else {}),
    )
    if not options.tiny:
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    parts = tiny_parts() if options.tiny else stable_diffusion(getattr(torch, settings.precision), device)
    lines = []
    for batch in () if options.skip_original else (1, 16):
        call = original(parts, batch, settings)
        name = f"original, batch {batch}"
        lines.append(
            measured(name, partial(call, 3), partial(call, settings.steps), batch, 3 if batch == 1 else 1)
        )
    if options.memory_gib and not options.tiny:
        total = torch.cuda.get_device_properties(0).total_memory / GIB
        torch.cuda.set_per_process_memory_fraction(options.memory_gib / total)
    wanted = plan(requests(options.sources), settings)
    engine = SemanticGuidance(parts, settings, device)
    short = replace(wanted, settings=replace(settings, steps=12))
    name = f"ours, batch {options.batch}" + ("" if settings.compiled else ", not compiled")
    edits = options.sources * EDITS
    lines.append(
        measured(
            name,
            partial(all_pictures, engine, short),
            partial(all_pictures, engine, wanted),
            edits,
            options.repeats,
        )
    )
    print(markdown(lines, plan_evaluations(wanted) / edits))


if __name__ == "__main__":
    main()
