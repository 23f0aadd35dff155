"""Source faces from a text-to-image diffusion model: a name is an identity, a seed a variation of it.

Of ``tries`` pictures of a name the ``kept`` are used whose embeddings agree most with the others' (paper,
section 4.1; the authors' code keeps 6 of 20). A picture that could not be made is never kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from dataset_builder.edit.requests import Engine, Picture, SegaRequest, SegaSettings, gpu_seconds, plan
from dataset_builder.generate.names import Name
from dataset_builder.generate.pictures import encode_png
from dataset_builder.schema.faces import Face, SourceRequest
from targets.base.errors import InputError
from targets.protocol import Embedder, Scores

TEMPLATE = "A photo of the face of {name}"
NEGATIVE_PROMPT = (
    "(deformed iris, deformed pupils, semi-realistic, cgi, 3d, render, sketch, cartoon, drawing, anime:1.4), "
    "text, close up, cropped, out of frame, worst quality"
)
FEW_FACES = "too_few_usable"


@dataclass(frozen=True)
class DiffusionSettings:
    """How source faces are made.

    Attributes:
        checkpoint: hub id or directory.
        revision: of a hub id.
        template: prompt with a place for ``{name}``; the same for a source and its edits.
        negative_prompt: likewise.
        seed: from which, with group, name and try, each picture's own seed follows.
        tries: pictures made of a name.
        kept: variations used of them; equal to ``tries`` to keep all without an embedder.
        engine: steps, guidance, size, precision, batches.
    """

    checkpoint: str
    revision: str | None = None
    template: str = TEMPLATE
    negative_prompt: str = NEGATIVE_PROMPT
    seed: int = 0
    tries: int = 20
    kept: int = 6
    engine: SegaSettings = field(default_factory=SegaSettings)

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            InputError: a setting is out of its range.
        """
        if "{name}" not in self.template:
            raise InputError(f"template must have a place for {{name}}, got '{self.template}'")
        if not 1 <= self.kept <= self.tries:
            raise InputError(f"kept must be between 1 and tries = {self.tries}, got {self.kept}")


class DiffusionFaces:
    """A source generator over a list of names.

    Attributes:
        seconds_per_picture: estimated for one H100, all tries included.
        device: what that estimate is of.
    """

    device = "GPU"

    def __init__(
        self,
        names: Sequence[Name],
        settings: DiffusionSettings,
        engine: Engine,
        embedder: Embedder | None = None,
    ) -> None:
        if not names:
            raise InputError("a name list must have at least one name of the groups that are built")
        if settings.kept < settings.tries and embedder is None:
            raise InputError(
                f"keeping {settings.kept} of {settings.tries} pictures of a name needs an embedder; "
                "name one, or set kept to the number of tries"
            )
        self.names, self.options, self.engine = tuple(names), settings, engine
        self.embedder = embedder
        evaluations = 2 * settings.engine.steps * settings.tries / settings.kept
        self.seconds_per_picture = evaluations * gpu_seconds(settings.engine)
        self._made: dict[tuple[str, str], list[Picture]] = {}

    def settings(self) -> dict[str, Any]:
        """Everything besides the request that the bytes depend on."""
        card = getattr(self.embedder, "card", None)
        return {
            **asdict(self.options),
            "model": dict(self.engine.facts),
            "embedder": None if card is None else card.model_dump(mode="json"),
        }

    def requests(self) -> list[SourceRequest]:
        """Every name's variations, in the order of the names."""
        return [
            SourceRequest(
                name.name,
                variation,
                name.group,
                self.options.seed,
                self.options.template.format(name=name.name),
            )
            for name in self.names
            for variation in range(self.options.kept)
        ]

    def make(self, requests: Sequence[SourceRequest]) -> list[Face]:
        """Make the faces; a name whose variations were cut apart by batches is made once."""
        wanted = {(request.demographic, request.identity): request for request in requests}
        missing = [request for key, request in wanted.items() if key not in self._made]
        kept = {key: pictures for key, pictures in self._made.items() if key in wanted}
        self._made = kept | (self._selected(missing) if missing else {})
        return [self._face(request) for request in requests]

    def _selected(self, names: Sequence[SourceRequest]) -> dict[tuple[str, str], list[Picture]]:
        tries = [self._try(request, number) for request in names for number in range(self.options.tries)]
        pictures = {picture.request: picture for picture in self.engine.run(plan(tries, self.options.engine))}
        made = [pictures[request] for request in tries]
        count = self.options.tries
        return {
            (request.demographic, request.identity): self._best(made[number * count : (number + 1) * count])
            for number, request in enumerate(names)
        }

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

    def _face(self, request: SourceRequest) -> Face:
        chosen = self._made[request.demographic, request.identity]
        if request.variation >= len(chosen):
            return _face(request, b"", {}, FEW_FACES)
        picture = chosen[request.variation]
        encoded = b"" if picture.pixels is None else encode_png(picture.pixels)
        return _face(request, encoded, picture.provenance, picture.reason or "")


def _face(request: SourceRequest, encoded: bytes, provenance: Mapping[str, Any], fault: str) -> Face:
    return Face(
        identity=request.identity,
        variation=request.variation,
        demographic=request.demographic,
        picture=encoded,
        labels={},
        age=None,
        distorted="unknown",
        provenance=provenance,
        fault=fault,
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
    rows = np.asarray(vectors, dtype=np.float64)[answered]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    cosines = unit @ unit.T
    agreement = cosines.sum(axis=1) - cosines.diagonal()
    return [answered[index] for index in np.argsort(-agreement, kind="stable")[:count]]
