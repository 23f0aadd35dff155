"""The editor ``sega``: a taxonomy's semantic-guidance settings applied to faces of the same checkpoint.

An edit runs the source's own denoising anew, so it needs what made the source: its prompt and seed, read from
its provenance, and the same checkpoint and settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from dataset_builder.edit.requests import (
    Engine,
    Picture,
    SegaRequest,
    SegaSettings,
    check_concepts,
    gpu_seconds,
    plan,
)
from dataset_builder.edit.trajectories import wave_evaluations
from dataset_builder.generate.pictures import encode_png
from dataset_builder.schema.faces import EditRequest, Face
from dataset_builder.schema.taxonomy import SegaConcept, Taxonomy
from targets.base.errors import InputError
from targets.base.text import nearest

# A picture of another model, size or number of steps has no trajectory here to fork.
_SHARED = ("steps", "guidance_scale", "height", "width")


class SemanticEdits:
    """Applies attributes by semantic guidance.

    Attributes:
        seconds_per_picture: estimated for one H100, shared denoising of sources included.
        device: what that estimate is of.
    """

    device = "GPU"

    def __init__(
        self, taxonomy: Taxonomy, attributes: Sequence[str], settings: SegaSettings, engine: Engine
    ) -> None:
        self.taxonomy, self.names, self.engine = taxonomy, tuple(attributes), engine
        self.options = replace(settings, momentum_beta=taxonomy.sega_momentum_beta)
        self.concepts = {
            (attribute, group): concepts_for(taxonomy, attribute, group)
            for attribute in attributes
            for group in taxonomy.groups
        }
        self.seconds_per_picture = self._evaluations() * gpu_seconds(self.options)

    def _evaluations(self) -> float:
        """UNet evaluations an edit, averaged over the groups."""
        waves = [
            [
                SegaRequest("prompt", "negative", 0, self.concepts[attribute, group])
                for attribute in self.names
            ]
            for group in self.taxonomy.groups
        ]
        return sum(wave_evaluations(wave, self.options.steps) for wave in waves) / sum(map(len, waves))

    def settings(self) -> dict[str, Any]:
        """Everything besides the request that the bytes depend on."""
        concepts = {
            f"{attribute}/{group}": [concept.model_dump(mode="json") for concept in concepts]
            for (attribute, group), concepts in self.concepts.items()
        }
        return {**asdict(self.options), "model": dict(self.engine.facts), "concepts": concepts}

    def attributes(self) -> tuple[str, ...]:
        """The attributes it applies."""
        return self.names

    def edit(self, requests: Sequence[EditRequest]) -> list[Face]:
        """Apply attributes; edits of one face that are asked for together share its denoising.

        Raises:
            InputError: a face that this checkpoint did not make.
        """
        asked = [self._request(request) for request in requests]
        pictures = {picture.request: picture for picture in self.engine.run(plan(asked, self.options))}
        return [
            _transformed(request.face, request.attribute, pictures[sega])
            for request, sega in zip(requests, asked, strict=True)
        ]

    def _request(self, request: EditRequest) -> SegaRequest:
        face, made = request.face, request.face.provenance
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
        if made.get("weights") != self.engine.facts.get("weights"):
            raise InputError(f"{where}: a source and its edits must come from the same checkpoint")
        concepts = self.concepts[request.attribute, face.demographic]
        return SegaRequest(made["prompt"], made["negative_prompt"], made["seed"], concepts)


def concepts_for(taxonomy: Taxonomy, attribute: str, group: str) -> tuple[SegaConcept, ...]:
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


def _transformed(face: Face, attribute: str, picture: Picture) -> Face:
    provenance: Mapping[str, Any] = {**picture.provenance, "attribute": attribute}
    return replace(
        face,
        picture=b"" if picture.pixels is None else encode_png(picture.pixels),
        labels={},
        age=None,
        distorted="unknown",
        provenance=provenance,
        fault=picture.reason or "",
    )
