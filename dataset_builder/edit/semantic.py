"""The editor ``sega``: a taxonomy's semantic-guidance settings applied to faces of the same checkpoint.

An edit runs the source's own denoising anew, so it needs what made the source: its prompt and seed, read from
its provenance, and the same checkpoint and settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from PIL import Image

from dataset_builder.edit.requests import (
    LazyEngine,
    Picture,
    SegaRequest,
    SegaSettings,
    check_concepts,
    gpu_seconds,
    plan,
)
from dataset_builder.edit.trajectories import wave_evaluations
from dataset_builder.generate.one_face import OneFace
from dataset_builder.generate.pictures import encode_png
from dataset_builder.schema.faces import EditRequest, Face
from dataset_builder.schema.taxonomy import SegaConcept, Taxonomy
from targets.base.errors import InputError
from targets.base.text import nearest

# A picture of another model, size or number of steps has no trajectory here to fork.
_SHARED = ("steps", "guidance_scale", "height", "width")
MOST_THRESHOLD = 0.999
Concepts = tuple[SegaConcept, ...]


class SemanticEdits:
    """Applies attributes by semantic guidance.

    Attributes:
        seconds_per_picture: estimated for one H100, shared denoising of sources included.
        device: what that estimate is of.
    """

    device = "GPU"

    def __init__(
        self,
        taxonomy: Taxonomy,
        attributes: Sequence[str],
        settings: SegaSettings,
        engine: LazyEngine,
        *,
        pushed: float = 1.0,
        one_face: OneFace | None = None,
    ) -> None:
        self.taxonomy, self.names, self.engine = taxonomy, tuple(attributes), engine
        self.pushed, self.one_face = pushed, one_face
        self._given = replace(settings, momentum_beta=taxonomy.sega_momentum_beta)
        self.concepts = {
            (attribute, group): changed(concepts_for(taxonomy, attribute, group), scale=pushed)
            for attribute in attributes
            for group in taxonomy.groups
        }
        self.seconds_per_picture = self._evaluations() * gpu_seconds(self._given)

    def _evaluations(self) -> float:
        """UNet evaluations an edit, averaged over the groups."""
        waves = [
            [
                SegaRequest("prompt", "negative", 0, self.concepts[attribute, group])
                for attribute in self.names
            ]
            for group in self.taxonomy.groups
        ]
        return sum(wave_evaluations(wave, self._given.steps) for wave in waves) / sum(map(len, waves))

    @property
    def options(self) -> SegaSettings:
        """The settings in force; may load the checkpoint, to find what memory allows."""
        return replace(self.engine.settings, momentum_beta=self.taxonomy.sega_momentum_beta)

    def check(self) -> None:
        """Find out whether the checkpoint can be guided and the face finder is there.

        Raises:
            InputError: naming what is missing.
        """
        self.engine.check(guided=True)
        if self.one_face is not None:
            self.one_face.settings()

    def settings(self) -> dict[str, Any]:
        """Everything besides the request that the bytes depend on."""
        concepts = {
            f"{attribute}/{group}": [concept.model_dump(mode="json") for concept in concepts]
            for (attribute, group), concepts in self.concepts.items()
        }
        return {
            **asdict(self.options),
            "model": dict(self.engine.facts),
            "concepts": concepts,
            "pushed": self.pushed,
            "faces": self.one_face.settings() if self.one_face else None,
        }

    def attributes(self) -> tuple[str, ...]:
        """The attributes it applies."""
        return self.names

    def edit(self, requests: Sequence[EditRequest]) -> list[Face]:
        """Apply attributes; edits of one face that are asked for together share its denoising.

        Raises:
            InputError: a face that this checkpoint did not make.
        """
        wanted = [(one.face, self.concepts[one.attribute, one.face.demographic]) for one in requests]
        pictures = self.pictures(wanted)
        return [
            self._transformed(request, picture) for request, picture in zip(requests, pictures, strict=True)
        ]

    def pictures(self, wanted: Sequence[tuple[Face, Concepts]]) -> list[Picture]:
        """What each face looks like under its concepts, in order.

        Raises:
            InputError: a face that this checkpoint did not make.
        """
        asked = [self._request(face, concepts) for face, concepts in wanted]
        made = {picture.request: picture for picture in self.engine.run(plan(asked, self.options))}
        return [made[request] for request in asked]

    def _request(self, face: Face, concepts: Concepts) -> SegaRequest:
        made = face.provenance
        where = f"{face.demographic} '{face.identity}' variation {face.variation}"
        if not {"prompt", "negative_prompt", "seed", "settings"} <= set(made):
            raise InputError(
                f"{where}: semantic guidance edits only faces that a diffusion model made, with their prompt "
                "and seed in their provenance"
            )
        for name in _SHARED:
            if made["settings"].get(name) != getattr(self.options, name):
                raise InputError(
                    f"{where}: a source and its edits must share {name}, "
                    f"got {made['settings'].get(name)} and {getattr(self.options, name)}"
                )
        if any(made.get(name) != self.engine.facts.get(name) for name in ("weights", "files")):
            raise InputError(f"{where}: a source and its edits must come from the same checkpoint")
        return SegaRequest(made["prompt"], made["negative_prompt"], made["seed"], concepts)

    def _transformed(self, request: EditRequest, picture: Picture) -> Face:
        pixels, fault = picture.pixels, picture.reason or ""
        if pixels is not None and self.one_face is not None:
            fault = self.one_face.fault(Image.fromarray(pixels), may_hide=True)
        return replace(
            request.face,
            picture=b"" if pixels is None or fault else encode_png(pixels),
            labels={},
            age=None,
            distorted="unknown" if self.pushed == 1 or fault else "yes",
            provenance={**picture.provenance, "attribute": request.attribute, "pushed": self.pushed},
            fault=fault,
        )


def concepts_for(taxonomy: Taxonomy, attribute: str, group: str) -> Concepts:
    """The edit concepts of an attribute for a group.

    Raises:
        InputError: unknown attribute, or one without settings for that group's sex.
    """
    if attribute not in taxonomy.attributes:
        raise InputError(
            f"taxonomy '{taxonomy.name}' has no attribute '{attribute}'"
            f"{nearest(attribute, taxonomy.attributes)}"
        )
    sex = taxonomy.groups[group].sex
    concepts = taxonomy.attributes[attribute].sega_for(sex)
    if not concepts:
        raise InputError(
            f"taxonomy '{taxonomy.name}': attribute '{attribute}' has no settings for semantic guidance of "
            f"{sex} groups ({group}); add [[attributes.{attribute}.sega]] or leave it out"
        )
    check_concepts(concepts)
    return concepts


def changed(concepts: Concepts, *, scale: float = 1.0, threshold: float = 0.0, warmup: int = 0) -> Concepts:
    """The concepts with their guidance scales multiplied and thresholds and warmups added to."""
    return tuple(
        concept.model_copy(
            update={
                "guidance_scale": concept.guidance_scale * scale,
                "threshold": min(max(concept.threshold + threshold, 0.0), MOST_THRESHOLD),
                "warmup_steps": max(concept.warmup_steps + warmup, 0),
            }
        )
        for concept in concepts
    )
