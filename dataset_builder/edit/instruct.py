"""Editors that follow an instruction: any picture of a face and a sentence in, an edited picture out.

InstructPix2Pix (Brooks et al. 2023), MagicBrush (Zhang et al. 2023) and HQ-Edit (Hui et al. 2024) share one
pipeline of diffusers; the paper runs them with text guidance 7.5 and image guidance 1.5 (its appendix A).
FLUX.1 Kontext stands for the current ones. Another editor of diffusers is another entry in ``EDITORS``, or an
``InstructEditor`` of one's own. The sentences are ours: the paper prints none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from inspect import Parameter, isfunction, signature
from itertools import groupby
from typing import Any

from PIL import Image

from dataset_builder.generate.available import check_checkpoint
from dataset_builder.generate.checkpoint import load_pipeline, pipeline_class
from dataset_builder.generate.diffusion import picture_seed
from dataset_builder.generate.one_face import OneFace
from dataset_builder.generate.pictures import encode_png, to_pixels
from dataset_builder.schema.faces import EditRequest, Face
from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.text import nearest, shortlist
from targets.images import decode

INSTRUCTIONS = {
    "facemask": "make the person wear a plain facemask",
    "glasses": "make the person wear glasses",
    "head_band": "make the person wear a head band",
    "scarf": "make the person wear a scarf around the neck",
    "sunglasses": "make the person wear sunglasses",
    "old": "make the person old",
    "young": "make the person young",
    "heavy_makeup": "give the person heavy makeup",
    "red_lipstick": "give the person red lipstick",
    "smile": "make the person smile widely",
    "goatee": "give the person a goatee",
    "mustache": "give the person a mustache",
    "thick_beard": "give the person a thick beard",
    "blue_hair": "make the person's hair blue",
    "red_hair": "make the person's hair red",
    "buzz_cut": "give the person a buzz cut",
    "curly_hair": "give the person curly hair",
    "pigtails": "put the person's hair in pigtails",
    "shoulder_hair": "give the person shoulder length hair",
}


@dataclass(frozen=True)
class InstructEditor:
    """A checkpoint that edits by instruction, and how it is called.

    Attributes:
        checkpoint: hub id or directory.
        pipeline: its class in diffusers.
        call: arguments of the call beside picture, instruction and generator.
        revision: of a hub id.
        batched: whether one call takes several pictures.
        seconds_per_picture: estimated for one H100.
    """

    checkpoint: str
    pipeline: str = "StableDiffusionInstructPix2PixPipeline"
    call: Mapping[str, Any] = field(
        default_factory=lambda: {
            "num_inference_steps": 50,
            "guidance_scale": 7.5,
            "image_guidance_scale": 1.5,
        }
    )
    revision: str | None = None
    batched: bool = True
    seconds_per_picture: float = 0.35


EDITORS = {
    "instruct-pix2pix": InstructEditor("timbrooks/instruct-pix2pix"),
    "magicbrush": InstructEditor("vinesmsuic/magicbrush-jul7"),
    "hq-edit": InstructEditor("MudeHui/HQ-Edit"),
    "flux-kontext": InstructEditor(
        "black-forest-labs/FLUX.1-Kontext-dev",
        "FluxKontextPipeline",
        {"num_inference_steps": 28, "guidance_scale": 2.5},
        batched=False,
        seconds_per_picture=15.0,
    ),
}

# Arguments of a call that are ours: one picture comes back for each that went in, from a seed of its own.
FIXED = ("prompt", "image", "generator", "output_type", "num_images_per_prompt", "return_dict")
STEPS = "num_inference_steps"
Load = Callable[[], tuple[Any, Mapping[str, Any]]]


class InstructedEdits:
    """Applies attributes by instruction, to faces from any source.

    Attributes:
        seconds_per_picture: estimated for one H100.
        device: what that estimate is of.
        halvings: what ran out of memory, in words, once for each time a batch was halved.
    """

    device = "GPU"

    def __init__(
        self,
        editor: InstructEditor,
        instructions: Mapping[str, str],
        load: Load,
        *,
        seed: int = 0,
        batch_size: int = 8,
        one_face: OneFace | None = None,
    ) -> None:
        self.editor, self.instructions, self._load = editor, dict(instructions), load
        self.seed, self.batch_size = seed, batch_size if editor.batched else 1
        self.one_face = one_face
        self.seconds_per_picture = editor.seconds_per_picture
        self.halvings: list[str] = []

    def check(self) -> None:
        """Find out whether the checkpoint and the face finder are there; no weights are loaded.

        Raises:
            InputError: naming what is missing.
        """
        check_checkpoint(self.editor.checkpoint, self.editor.revision, self.editor.pipeline)
        if self.one_face is not None:
            self.one_face.settings()

    def settings(self) -> dict[str, Any]:
        """Everything besides the request that the bytes depend on; loads the checkpoint."""
        return {
            **asdict(self.editor),
            "instructions": self.instructions,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "model": dict(self._loaded[1]),
            "faces": self.one_face.settings() if self.one_face else None,
        }

    def attributes(self) -> tuple[str, ...]:
        """The attributes it applies."""
        return tuple(self.instructions)

    def edit(self, requests: Sequence[EditRequest]) -> list[Face]:
        """Apply attributes.

        Raises:
            InputError: a source picture can't be decoded.
        """
        images = [decode(request.face.picture, request.face.identity).image for request in requests]
        pairs = zip(requests, images, strict=True)
        faces: list[Face] = []
        # One call takes pictures of one size.
        for _, group in groupby(pairs, key=lambda pair: pair[1].size):
            members = list(group)
            for start in range(0, len(members), self.batch_size):
                faces += self._edited(members[start : start + self.batch_size])
        return faces

    def _edited(self, pairs: Sequence[tuple[EditRequest, Image.Image]]) -> list[Face]:
        torch = require("torch", "diffusion", "editing by instruction")
        try:
            answers = self._called(pairs)
        except torch.OutOfMemoryError:
            half = len(pairs) // 2
            if not half:
                raise
            self.halvings.append(f"batch_size {len(pairs)} -> {half}")
        else:
            return [self._face(request, answer) for (request, _), answer in zip(pairs, answers, strict=True)]
        torch.cuda.empty_cache()
        return self._edited(pairs[:half]) + self._edited(pairs[half:])

    def _called(self, pairs: Sequence[tuple[EditRequest, Image.Image]]) -> Any:
        torch = require("torch", "diffusion", "editing by instruction")
        prompts = [self.instructions[request.attribute] for request, _ in pairs]
        images = [image for _, image in pairs]
        seeds = [self._seed(request) for request, _ in pairs]
        return self._loaded[0](
            prompt=prompts if self.editor.batched else prompts[0],
            image=images if self.editor.batched else images[0],
            generator=[torch.Generator().manual_seed(seed) for seed in seeds],
            output_type="np",
            **self.editor.call,
        ).images

    def _seed(self, request: EditRequest) -> int:
        return picture_seed(self.seed, request.attribute, request.face.sha256, 0)

    @cached_property
    def _loaded(self) -> tuple[Any, Mapping[str, Any]]:
        return self._load()

    def _face(self, request: EditRequest, answer: Any) -> Face:
        pixels, reason = to_pixels(answer)
        if pixels is not None and self.one_face is not None:
            reason = self.one_face.fault(Image.fromarray(pixels), may_hide=True)
        provenance = {
            **self._loaded[1],
            "editor": "instruct",
            "pipeline": self.editor.pipeline,
            "attribute": request.attribute,
            "prompt": self.instructions[request.attribute],
            "seed": self._seed(request),
            "settings": dict(self.editor.call),
            "source": dict(request.face.provenance),
            "halved": list(self.halvings),
        }
        return replace(
            request.face,
            picture=b"" if pixels is None or reason else encode_png(pixels),
            labels={},
            age=None,
            distorted="unknown",
            provenance=provenance,
            fault=reason or "",
        )


def loader(editor: InstructEditor, precision: str = "float16") -> Load:
    """What loads an editor's checkpoint onto the GPU; without one onto the CPU, with a warning."""

    def load() -> tuple[Any, Mapping[str, Any]]:
        gpu = require("torch", "diffusion", "editing by instruction").cuda.is_available()
        if not gpu:
            warnings.warn(
                f"no GPU was found: a picture that takes {editor.seconds_per_picture:g} s on one takes "
                "minutes to hours on this CPU",
                stacklevel=2,
            )
        in_force = precision if gpu else "float32"
        pipeline, facts = load_pipeline(editor.checkpoint, editor.revision, in_force, editor.pipeline)
        device = "cuda" if gpu else "cpu"
        return pipeline.to(device), {**facts, "device": device, "precision": in_force}

    return load


def instructions_for(attributes: Sequence[str], own: Mapping[str, str] | None = None) -> dict[str, str]:
    """The instruction of each attribute: one's own, else ours.

    Raises:
        InputError: an attribute has neither, or one's own names another attribute.
    """
    for name in own or {}:
        if name not in attributes:
            raise InputError(
                f"edit.instructions names '{name}', which edit.attributes doesn't"
                f"{nearest(name, attributes)}; name it there, or leave it out"
            )
    known = {**INSTRUCTIONS, **(own or {})}
    for attribute in attributes:
        if attribute not in known:
            raise InputError(
                f"attribute '{attribute}' has no instruction{nearest(attribute, known)}; give it one, "
                "or leave it out"
            )
    return {attribute: known[attribute] for attribute in attributes}


def check_call(pipeline: str, call: Mapping[str, Any]) -> None:
    """Check the arguments of an editor's call before a checkpoint is loaded.

    Raises:
        MissingExtraError: diffusers is not installed.
        InputError: no such pipeline or none that edits, an argument that is ours or that it doesn't take, or
            no steps.
    """
    found = pipeline_class(pipeline)
    for name in FIXED:
        if name in call:
            raise InputError(f"edit.editor.call must not set '{name}', which every edit sets; leave it out")
    steps = call.get(STEPS, 1)
    if type(steps) is not int or steps < 1:
        raise InputError(f"edit.editor.call.{STEPS} must be a whole number from 1 on, got {steps!r}")
    # DiffusionPipeline itself has no call: a checkpoint says of which class it is.
    if not isfunction(found.__call__):
        return
    # What a pipeline's own **kwargs swallow (diffusers reads deprecated names from them) would be ignored.
    _, *parameters = signature(found.__call__).parameters.values()
    taken = [one.name for one in parameters if one.kind is not Parameter.VAR_KEYWORD]
    for name in ("prompt", "image"):
        if name not in taken:
            raise InputError(f"edit.editor.pipeline must take '{name}' to edit, {pipeline} doesn't")
    for name in call:
        if name not in taken:
            raise InputError(
                f"edit.editor.call sets '{name}', which {pipeline} doesn't take{nearest(name, taken)}; "
                "set edit.editor.call to arguments that it takes"
            )


def find_editor(name: str) -> InstructEditor:
    """A known editor by its name.

    Raises:
        InputError: unknown name.
    """
    if name not in EDITORS:
        raise InputError(
            f"unknown editor '{name}'{nearest(name, EDITORS)}; known: {shortlist(list(EDITORS))}"
        )
    return EDITORS[name]
