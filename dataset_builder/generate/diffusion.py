"""Source faces from a text-to-image diffusion model: a name is an identity, a seed a variation of it.

Of ``tries`` pictures of a name the ``kept`` are used whose embeddings agree most with the others' (paper,
section 4.1; the authors' code keeps 6 of 20). A picture that could not be made is never kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from dataset_builder.edit.requests import LazyEngine, Picture, SegaRequest, gpu_seconds, plan
from dataset_builder.generate.names import Name
from dataset_builder.generate.one_face import OneFace
from dataset_builder.generate.pictures import encode_png
from dataset_builder.schema.faces import Face, SourceRequest
from dataset_builder.stages import DiffusionSource
from harness.stats.vectors import unit_rows
from targets.base.errors import InputError
from targets.card import TargetCard
from targets.protocol import Embedder, Scores

FEW_FACES = "too_few_usable"


class SourceEmbedder(Embedder, Protocol):
    """An embedder that says what it is."""

    @property
    def card(self) -> TargetCard:
        """What is known about it."""


class DiffusionFaces:
    """A source generator over a list of names.

    Attributes:
        options: as in the recipe.
        seconds_per_picture: estimated for one H100, all tries included.
        device: what that estimate is of.
    """

    device = "GPU"

    def __init__(
        self,
        names: Sequence[Name],
        options: DiffusionSource,
        engine: LazyEngine,
        embedder: SourceEmbedder | None = None,
        one_face: OneFace | None = None,
    ) -> None:
        if not names:
            raise InputError("a name list must have at least one name of the groups that are built")
        self.names, self.options, self.engine = tuple(names), options, engine
        self.embedder, self.one_face = embedder, one_face
        made, used = options.tries + options.clean, options.kept + options.clean
        evaluations = 2 * options.steps * made / used
        self.seconds_per_picture = evaluations * gpu_seconds(options.engine(1))

    def check(self) -> None:
        """Find out whether checkpoint, embedder and face finder are there; loads the last two.

        Raises:
            InputError: naming what is missing.
        """
        self.engine.check()
        if self.embedder is not None:
            _ = self.embedder.card
        if self.one_face is not None:
            self.one_face.settings()

    def settings(self) -> dict[str, Any]:
        """Everything besides the request that the bytes depend on; loads the models."""
        card = self.embedder.card if self.embedder else None
        # A recipe without clean faces makes what it made before there were any.
        apart = {"names", "identities"} | (set() if self.options.clean else {"clean"})
        return {
            **self.options.model_dump(mode="json", exclude=apart),
            "engine": asdict(self.engine.settings),
            "model": dict(self.engine.facts),
            "embedder": None if card is None else card.model_dump(mode="json"),
            "faces": self.one_face.settings() if self.one_face else None,
        }

    def detectors(self) -> dict[str, str]:
        """What chooses among the pictures: role -> digest of its weights."""
        card = self.embedder.card if self.embedder else None
        return {} if card is None else {"variations": card.weights_digest or card.spec}

    def requests(self) -> list[SourceRequest]:
        """Every name's variations, in the order of the names."""
        return [
            SourceRequest(
                name.name,
                variation,
                name.group,
                self.options.seed,
                self.options.template.format(name=name.name),
                edited=variation < self.options.kept,
            )
            for name in self.names
            for variation in range(self.options.kept + self.options.clean)
        ]

    def make(self, requests: Sequence[SourceRequest]) -> list[Face]:
        """Make the faces; the variations of one name must be asked for together."""
        names = list({(one.demographic, one.identity): one for one in requests}.values())
        count = self.options.tries + self.options.clean
        tries = [self._try(request, number) for request in names for number in range(count)]
        pictures = {one.request: one for one in self.engine.run(plan(tries, self.engine.settings))}
        made = [self._looked_at(pictures[request]) for request in tries]
        chosen = {
            (request.demographic, request.identity): self._used(made[number * count : (number + 1) * count])
            for number, request in enumerate(names)
        }
        return [self._face(one, chosen[one.demographic, one.identity]) for one in requests]

    def _used(self, made: Sequence[Picture]) -> list[Picture | None]:
        """Of all pictures of a name the best tries, None for one that is lacking, and its clean faces."""
        best: list[Picture | None] = [*self._best(made[: self.options.tries])]
        return [*best, *[None] * (self.options.kept - len(best)), *made[self.options.tries :]]

    def _looked_at(self, picture: Picture) -> Picture:
        """The picture, without its pixels where they show no face or several."""
        if picture.pixels is None or self.one_face is None:
            return picture
        fault = self.one_face.fault(Image.fromarray(picture.pixels))
        return replace(picture, pixels=None, reason=fault) if fault else picture

    def _try(self, request: SourceRequest, number: int) -> SegaRequest:
        seed = picture_seed(request.seed, request.demographic, request.identity, number)
        return SegaRequest(request.prompt, self.options.negative_prompt, seed)

    def _best(self, tries: Sequence[Picture]) -> list[Picture]:
        if self.options.kept == self.options.tries or self.embedder is None:
            return list(tries)
        usable = [picture for picture in tries if picture.pixels is not None]
        if not usable:
            return list(tries)[: self.options.kept]
        images = [Image.fromarray(picture.pixels) for picture in usable if picture.pixels is not None]
        answer = self.embedder.embed(images)
        vectors = answer.values if isinstance(answer, Scores) else answer
        return [usable[index] for index in most_alike(vectors, self.options.kept)]

    def _face(self, request: SourceRequest, chosen: Sequence[Picture | None]) -> Face:
        picture = chosen[request.variation]
        pixels = picture.pixels if picture else None
        return Face(
            identity=request.identity,
            variation=request.variation,
            demographic=request.demographic,
            picture=b"" if pixels is None else encode_png(pixels),
            labels={},
            age=None,
            distorted="unknown" if pixels is None else self.options.distorted if request.edited else "no",
            provenance=picture.provenance if picture else {},
            fault=(picture.reason or "") if picture else FEW_FACES,
        )


def picture_seed(base: int, group: str, name: str, number: int) -> int:
    """The seed of one try: the same for the same names in any order; in [0, 2**63)."""
    digest = hashlib.sha256(f"{base}\n{group}\n{name}\n{number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def most_alike(vectors: npt.NDArray[np.floating[Any]], count: int) -> list[int]:
    """Which pictures agree most with the others.

    Args:
        vectors: (n, d) embeddings; a NaN row stands for a picture without an answer and is never chosen.
        count: how many to choose.

    Returns:
        At most ``count`` row indices, by falling mean cosine to the other rows; ties by order. A vector of
        length 0 agrees with none.
    """
    answered = [index for index, row in enumerate(vectors) if np.isfinite(row).all()]
    unit = np.nan_to_num(unit_rows(vectors[answered]))
    cosines = unit @ unit.T
    agreement = cosines.sum(axis=1) - cosines.diagonal()
    return [answered[index] for index in np.argsort(-agreement, kind="stable")[:count]]
