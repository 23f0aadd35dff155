"""What a recipe's ``[source]`` and ``[edit]`` may say: the settings of each method."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from dataset_builder.edit.requests import SegaSettings
from targets.base.config import Settings

COMPOSED = "composed"
Precision = Literal["float16", "bfloat16", "float32"]


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise ValueError(f"each attribute may be named once, '{twice[0]}' is there twice")
    return names


Attributes = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_distinct)]


class RenderSource(Settings):
    """Source faces rendered from parametric heads.

    Attributes:
        seeds: TOML file beside the recipe, group code -> list of seeds.
        variations: pictures of each identity.
        size: side of the square picture in pixels.
        samples: light paths per pixel.
        quality: of the encoding, 1 to 100.
        processes: how many render at a time; the bytes don't depend on it.
    """

    method: Literal["render"]
    seeds: str
    variations: int = Field(default=2, ge=1)
    size: int = Field(default=288, ge=64, le=2048)
    samples: int = Field(default=14, ge=1)
    quality: int = Field(default=90, ge=1, le=100)
    processes: int = Field(default=1, ge=1)


class DiffusionSource(Settings):
    """Source faces from a text-to-image diffusion model (paper, section 4.1).

    Attributes:
        checkpoint: hub id, or directory beside the recipe.
        revision: commit, tag or branch of a hub id.
        names: "composed" for the names that ship, or a CSV file beside the recipe (columns ``name``,
            ``group``, and ``split`` where it holds both).
        split: which of the names: "candidates", or "train" for a distortion detector's faces.
        identities: most names a group; None for all.
        template: prompt with a place for ``{name}``, for sources and edits alike.
        negative_prompt: likewise.
        seed: from which every picture's own seed follows.
        tries: pictures made of a name.
        kept: variations used of them, those whose embeddings agree most; equal to ``tries`` to keep all.
        embedder: spec of the target that compares them; needed where ``kept`` is below ``tries``.
        embedder_settings: its settings.
        one_face: reject pictures that show no face or several (YuNet; extra "face").
        distorted: "no" to count every source as clean.
        clean: more pictures of every name, with seeds of their own: never edited and counted as clean, to
            train a distortion detector on (paper, appendix D: 25).
        steps, guidance_scale, height, width: of the pictures, edits included.
        precision: of the networks on a GPU; a CPU computes in float32.
        compiled: compile the networks, which pays from about a thousand pictures on.
        batch_size: UNet evaluations a batch, at most 1,024; "auto" finds once what the GPU holds, and keeps
            to that.
        decode_size: pictures a batch of the VAE.
        wave_size: pictures that are denoised together at most, unless one source has more edits.
    """

    method: Literal["diffusion"]
    checkpoint: str
    revision: str | None = None
    names: str = COMPOSED
    split: Literal["candidates", "train"] = "candidates"
    identities: int | None = Field(default=None, ge=1)
    template: str = "A photo of the face of {name}"
    negative_prompt: str = ""
    seed: int = Field(default=0, ge=0)
    tries: int = Field(default=20, ge=1)
    kept: int = Field(default=6, ge=1)
    embedder: str | None = None
    embedder_settings: dict[str, Any] = Field(default_factory=dict)
    one_face: bool = True
    distorted: Literal["no", "unknown"] = "unknown"
    clean: int = Field(default=0, ge=0)
    steps: int = Field(default=50, ge=1)
    guidance_scale: float = Field(default=7.5, gt=1)
    height: int = Field(default=512, ge=8)
    width: int = Field(default=512, ge=8)
    precision: Precision = "float16"
    compiled: bool = False
    batch_size: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = 80
    decode_size: int = Field(default=8, ge=1)
    wave_size: int = Field(default=80, ge=1)

    @model_validator(mode="after")
    def _fits_together(self) -> DiffusionSource:
        try:
            fits = "{name}" in self.template and bool(self.template.format(name="x"))
        except (KeyError, IndexError, ValueError):
            fits = False
        if not fits:
            raise ValueError(
                f"template must have a place for {{name}} and no other braces, got '{self.template}'"
            )
        if self.kept > self.tries:
            raise ValueError(f"kept must be at most tries = {self.tries}, got {self.kept}")
        if self.kept < self.tries and self.embedder is None:
            raise ValueError(
                f"keeping {self.kept} of {self.tries} pictures of a name needs an embedder; "
                "name one, or set kept to the number of tries"
            )
        return self

    def engine(self, batch_size: int) -> SegaSettings:
        """What the engine needs to know, with the batch size that is in force."""
        shared = set(SegaSettings.__dataclass_fields__) & set(type(self).model_fields)
        values = {name: getattr(self, name) for name in shared}
        return SegaSettings(**{**values, "batch_size": batch_size})


class PhotosSource(Settings):
    """Source faces that exist already.

    Attributes:
        faces: table beside the recipe (columns ``picture``, ``identity``, ``demographic``; ``variation``
            where an identity has several; picture paths from the table's folder), or a folder with a config
            ``sources`` as a build writes it.
        one_face: reject pictures that show no face or several (YuNet; extra "face").
    """

    method: Literal["photos"]
    faces: str
    one_face: bool = True


class RenderEdit(Settings):
    """Edits rendered anew with one attribute changed.

    Attributes:
        attributes: which to apply.
        distorted: share of transformed faces pulled out of shape on purpose, so that a filter has work.
        processes: how many render at a time.
    """

    method: Literal["render"]
    attributes: Attributes
    distorted: float = Field(default=0.0, ge=0, le=1)
    processes: int = Field(default=1, ge=1)


class Sweep(Settings):
    """What ``--tune`` tries, each of one with each of the others.

    Attributes:
        scale: factors on an attribute's guidance scales.
        threshold: what is added to its thresholds; the sum is kept within [0, 0.999].
        warmup: steps added to its warmups.
    """

    scale: tuple[float, ...] = Field(default=(0.7, 1.0, 1.4), min_length=1)
    threshold: tuple[float, ...] = Field(default=(-0.04, 0.0), min_length=1)
    warmup: tuple[int, ...] = Field(default=(0,), min_length=1)


class SegaEdit(Settings):
    """Semantic guidance with the taxonomy's settings, on sources of method "diffusion".

    Attributes:
        attributes: which to apply.
        pushed: factor on every guidance scale. Any but 1 pushes edits out of shape on purpose, as the paper
            does to train its detector (section 4.2), and counts them as distorted.
        one_face: reject transformed pictures that show several faces.
        sweep: what ``--tune`` tries.
    """

    method: Literal["sega"]
    attributes: Attributes
    pushed: float = Field(default=1.0, gt=0)
    one_face: bool = True
    sweep: Sweep = Sweep()


class OwnEditor(Settings):
    """An instruction editor of diffusers that isn't among the known ones.

    Attributes:
        checkpoint: hub id, or directory beside the recipe.
        revision: of a hub id.
        pipeline: its class in diffusers.
        call: arguments of the call beside picture, instruction and generator.
        batched: whether one call takes several pictures.
    """

    checkpoint: str
    revision: str | None = None
    pipeline: str = "StableDiffusionInstructPix2PixPipeline"
    call: dict[str, Any] | None = None
    batched: bool = True


class InstructEdit(Settings):
    """Editing by instruction, on sources of any method.

    Attributes:
        editor: "instruct-pix2pix", "magicbrush", "hq-edit", "flux-kontext", or a table of one's own.
        attributes: which to apply.
        instructions: attribute -> sentence, in place of ours.
        seed: from which every picture's own seed follows.
        batch_size: pictures a call.
        precision: of the networks on a GPU; a CPU computes in float32.
        one_face: reject transformed pictures that show several faces.
    """

    method: Literal["instruct"]
    editor: str | OwnEditor = "instruct-pix2pix"
    attributes: Attributes
    instructions: dict[str, str] = Field(default_factory=dict)
    seed: int = Field(default=0, ge=0)
    batch_size: int = Field(default=8, ge=1)
    precision: Precision = "float16"
    one_face: bool = True


Source = Annotated[RenderSource | DiffusionSource | PhotosSource, Field(discriminator="method")]
Edit = Annotated[RenderEdit | SegaEdit | InstructEdit, Field(discriminator="method")]
