"""What runs a plan of pictures: the engine that suits a checkpoint, loaded when first needed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, cached_property
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataset_builder.edit.requests import Engine, Picture, SegaPlan, SegaRequest, SegaSettings
from dataset_builder.edit.trajectories import plan_evaluations
from dataset_builder.generate.available import check_checkpoint
from dataset_builder.generate.checkpoint import NEEDED, PURPOSE, check_parts, load_pipeline
from dataset_builder.generate.pictures import to_pixels
from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.files import write_first
from targets.base.strict_json import parse_json

if TYPE_CHECKING:
    from dataset_builder.edit.denoise import Parts
    from dataset_builder.edit.sega import SemanticGuidance


# Where "auto" begins; more brings no speed on any card we know.
MOST, ON_CPU = 160, 8


def shared_engine(
    checkpoint: str, revision: str | None, settings: SegaSettings, batch_file: Path | None = None
) -> CheckpointEngine:
    """One engine for all who ask alike in this process, so that a checkpoint is loaded once.

    A folder that has changed since is another checkpoint.
    """
    files = [(path, path.stat()) for path in sorted(Path(checkpoint).rglob("*")) if path.is_file()]
    state = tuple((path, facts.st_size, facts.st_mtime_ns) for path, facts in files)
    return _shared_engine(checkpoint, revision, settings, batch_file, state)


@cache
def _shared_engine(
    checkpoint: str,
    revision: str | None,
    settings: SegaSettings,
    batch_file: Path | None,
    state: tuple[tuple[Path, int, int], ...],  # noqa: ARG001 (what the cache tells folders apart by)
) -> CheckpointEngine:
    return CheckpointEngine(checkpoint, revision, settings, batch_file)


def take_gpu(number: int) -> None:
    """Let this process use the GPU of that number, counted round where there are fewer."""
    cuda = require("torch", "diffusion", PURPOSE).cuda
    if cuda.is_available():
        cuda.set_device(number % cuda.device_count())


class CheckpointEngine:
    """Runs plans through a checkpoint that is loaded when first needed.

    Stable Diffusion 1 and 2 go through semantic guidance; any other text-to-image pipeline of diffusers makes
    sources through its own call, and no edits.
    """

    def __init__(
        self, checkpoint: str, revision: str | None, settings: SegaSettings, batch_file: Path | None = None
    ) -> None:
        self.checkpoint, self.revision, self.batch_file = checkpoint, revision, batch_file
        self._given = settings

    @cached_property
    def settings(self) -> SegaSettings:
        """As given; with a ``batch_file`` in place of the batch size the one it holds.

        Where there is no such file, what memory allows is tried once and written there, so that a build that
        goes on later plans the same batches.
        """
        if self.batch_file is None:
            return self._given
        if not self.batch_file.exists():
            write_first(self.batch_file, json.dumps({"batch_size": self._fitting()}))
        try:
            size = parse_json(self.batch_file.read_text(encoding="utf-8"))["batch_size"]
            return replace(self._given, batch_size=size)
        except (ValueError, TypeError, KeyError, InputError):
            raise InputError(
                f'{self.batch_file} must hold {{"batch_size": N}}; delete it, and the size is found anew'
            ) from None

    def _fitting(self) -> int:
        if self._device() == "cpu":
            return ON_CPU
        engine = self._loaded(replace(self._given, batch_size=MOST))
        return engine.fitting_batch() if hasattr(engine, "fitting_batch") else self._given.batch_size

    @property
    def facts(self) -> Mapping[str, Any]:
        """Provenance of the model; loads it."""
        return self._engine.facts

    def check(self, *, guided: bool = False) -> None:
        """Find out whether the checkpoint is there; its weights are not loaded.

        Raises:
            InputError: it isn't, or it can't be ``guided``.
        """
        check_checkpoint(self.checkpoint, self.revision, guided=guided)

    def run(self, plan: SegaPlan) -> Iterator[Picture]:
        """Make all pictures of a plan. Without a GPU a warning says first how long that takes.

        Raises:
            InputError: the checkpoint can't be loaded, or a plan has edits that it can't make.
        """
        yield from self._engine.run(plan)

    @cached_property
    def _engine(self) -> Engine:
        return self._loaded(self.settings)

    def _loaded(self, settings: SegaSettings) -> Engine:
        device, precision = self._device(), self._precision()
        pipeline, facts = load_pipeline(self.checkpoint, self.revision, precision)
        return engine_of(pipeline, {**facts, "device": device, "precision": precision}, settings, device)

    def _device(self) -> str:
        torch = require("torch", "diffusion", PURPOSE)
        return "cuda" if torch.cuda.is_available() else "cpu"

    def _precision(self) -> str:
        # Half precision on a CPU is slower than single, where it works at all.
        return self._given.precision if self._device() == "cuda" else "float32"


def engine_of(pipeline: Any, facts: dict[str, Any], settings: SegaSettings, device: str) -> Engine:
    """The engine that suits a pipeline; on a CPU it runs in float32 and says how long it will take.

    Raises:
        InputError: a Stable Diffusion pipeline lacks a part.
    """
    from dataset_builder.edit.sega import SemanticGuidance

    if device == "cpu":
        settings = replace(settings, precision="float32", compiled=False)
    if not type(pipeline).__name__.startswith("StableDiffusionPipeline"):
        return PipelineEngine(pipeline.to(device), facts, settings)
    engine = SemanticGuidance(parts_of(pipeline, facts), settings, device)
    return engine if device != "cpu" else _Announced(engine)


def parts_of(pipeline: Any, facts: dict[str, Any]) -> Parts:
    """What semantic guidance uses of a Stable Diffusion pipeline.

    Raises:
        InputError: a part is missing.
    """
    from dataset_builder.edit.denoise import Parts

    check_parts(pipeline, str(facts["checkpoint"]))
    optional = ("safety_checker", "feature_extractor")
    parts = {name: getattr(pipeline, name) for name in NEEDED}
    return Parts(**parts, **{name: getattr(pipeline, name, None) for name in optional}, facts=facts)


class _Announced:
    """Says before each plan how long it will take."""

    def __init__(self, engine: SemanticGuidance) -> None:
        self.engine = engine

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.engine.facts

    @property
    def settings(self) -> SegaSettings:
        return self.engine.settings

    def run(self, plan: SegaPlan) -> Iterator[Picture]:
        pictures, evaluations = sum(map(len, plan.waves)), plan_evaluations(plan)
        hours = self.engine.seconds_per_evaluation() * evaluations / 3600
        warnings.warn(
            f"no GPU was found: {pictures:,} pictures need {evaluations:,} "
            f"evaluations of the network, about {hours:,.2f} hours on this CPU",
            stacklevel=2,
        )
        yield from self.engine.run(plan)


class PipelineEngine:
    """Source pictures through the call of any text-to-image pipeline of diffusers."""

    def __init__(self, pipeline: Any, facts: dict[str, Any], settings: SegaSettings) -> None:
        self.pipeline, self.facts, self.settings = pipeline, facts, settings

    def run(self, plan: SegaPlan) -> Iterator[Picture]:
        """Make all pictures of a plan.

        Raises:
            InputError: the plan has edits.
        """
        size = self.settings.decode_size
        for wave in plan.waves:
            if any(request.concepts for request in wave):
                raise InputError(
                    f"semantic guidance needs Stable Diffusion 1 or 2, got {type(self.pipeline).__name__}"
                )
            for start in range(0, len(wave), size):
                yield from self._pictures(wave[start : start + size])

    def _pictures(self, requests: Sequence[SegaRequest]) -> Iterator[Picture]:
        torch = require("torch", "diffusion", PURPOSE)
        arguments = {
            "prompt": [request.prompt for request in requests],
            "negative_prompt": [request.negative_prompt for request in requests],
            "num_inference_steps": self.settings.steps,
            "guidance_scale": self.settings.guidance_scale,
            "height": self.settings.height,
            "width": self.settings.width,
            "generator": [torch.Generator().manual_seed(request.seed) for request in requests],
            "output_type": "np",
        }
        accepted = signature(self.pipeline.__call__).parameters
        images = self.pipeline(
            **{name: value for name, value in arguments.items() if name in accepted}
        ).images
        for request, image in zip(requests, images, strict=True):
            pixels, reason = to_pixels(image)
            yield Picture(request, pixels, reason, self._provenance(request))

    def _provenance(self, request: SegaRequest) -> dict[str, Any]:
        return {
            **self.facts,
            "generator": "diffusion",
            "pipeline": type(self.pipeline).__name__,
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
            "seed": request.seed,
            "settings": asdict(self.settings),
        }
