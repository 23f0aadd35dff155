"""Source faces from a diffusion model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dataset_builder.edit.requests import Picture, SegaPlan
from dataset_builder.edit.sega import SemanticGuidance
from dataset_builder.generate.diffusion import DiffusionFaces, most_alike, picture_seed
from dataset_builder.generate.names import Name
from dataset_builder.stages import DiffusionSource
from targets.base.config import validated
from targets.base.errors import InputError
from targets.card import TargetCard
from targets.images import decode
from tests.dataset_builder.tiny import SIDE, tiny_parts

NAMES = [Name("bob", "WM"), Name("eve", "WF")]


class Brightness:
    """Embeds a picture by its mean colour, pointing the same way for similar ones."""

    card = TargetCard(name="brightness", kind="embedding")

    def embed(self, images: Sequence[Image.Image]) -> np.ndarray[Any, Any]:
        return np.stack([np.asarray(image, float).mean(axis=(0, 1)) - 100 for image in images])


class Counting:
    """An engine that counts what it is asked for, and may fail some."""

    def __init__(self, failing: Sequence[int] = ()) -> None:
        self.facts = {"checkpoint": "tiny"}
        self.settings = settings().engine(8)
        self.inner, self.failing, self.made = SemanticGuidance(tiny_parts(), self.settings), failing, 0

    def run(self, plan: SegaPlan) -> Any:
        for picture in self.inner.run(plan):
            self.made += 1
            failed = self.made - 1 in self.failing
            yield Picture(picture.request, None, "not_finite", {}) if failed else picture


def settings(**changes: Any) -> DiffusionSource:
    given = {
        "method": "diffusion",
        "checkpoint": "tiny",
        "negative_prompt": "drawing",
        "embedder": "brightness",
    }
    size = {"steps": 4, "height": SIDE, "width": SIDE, "batch_size": 8, "precision": "float32"}
    return validated(DiffusionSource, {**given, **size, "tries": 4, "kept": 2, **changes}, "source")


def test_the_variations_that_agree_most_are_kept() -> None:
    generator = DiffusionFaces(NAMES, settings(), Counting(), Brightness())
    faces = generator.make(generator.requests())
    assert [(face.identity, face.variation, face.demographic) for face in faces] == [
        ("bob", 0, "WM"),
        ("bob", 1, "WM"),
        ("eve", 0, "WF"),
        ("eve", 1, "WF"),
    ]
    everything = DiffusionFaces(NAMES[:1], settings(tries=4, kept=4), Counting())
    tries = everything.make(everything.requests())
    vectors = Brightness().embed([decode(face.picture, "").image for face in tries])
    assert [face.picture for face in faces[:2]] == [tries[index].picture for index in most_alike(vectors, 2)]
    assert faces[0].provenance["prompt"] == "A photo of the face of bob"
    assert faces[0].provenance["seed"] in {picture_seed(0, "WM", "bob", number) for number in range(4)}
    assert (faces[0].labels, faces[0].age, faces[0].distorted) == ({}, None, "unknown")


def test_pictures_that_failed_are_not_kept_where_others_are() -> None:
    generator = DiffusionFaces(NAMES[:1], settings(), Counting(failing=[0]), Brightness())
    assert [face.fault for face in generator.make(generator.requests())] == ["", ""]
    generator = DiffusionFaces(NAMES[:1], settings(), Counting(failing=[0, 1, 2]), Brightness())
    faces = generator.make(generator.requests())
    assert [(face.fault, bool(face.picture)) for face in faces] == [("", True), ("too_few_usable", False)]
    generator = DiffusionFaces(NAMES[:1], settings(), Counting(failing=[0, 1, 2, 3]), Brightness())
    assert [face.fault for face in generator.make(generator.requests())] == ["not_finite"] * 2


def test_agreement() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [np.nan, 0.0], [1.0, 0.2], [0.0, 0.0]])
    assert most_alike(vectors, 3) == [4, 2, 0]
    assert most_alike(vectors, 9) == [4, 2, 0, 1, 5]
    assert most_alike(np.full((2, 2), np.nan), 1) == []


def test_seeds_differ_by_everything_that_names_a_picture() -> None:
    assert picture_seed(0, "WM", "bob", 0) == 4213782916575639506
    seeds = {
        picture_seed(base, group, name, 1) for base in (0, 1) for group in ("WM", "WF") for name in ("a", "b")
    }
    assert len(seeds) == 8
    assert max(seeds) < 2**63


def test_what_must_hold() -> None:
    with pytest.raises(InputError, match="at least one name"):
        DiffusionFaces([], settings(), Counting())
    with pytest.raises(InputError, match="keeping 2 of 4 pictures of a name needs an embedder"):
        settings(embedder=None)
    with pytest.raises(InputError, match=r"kept must be at most tries = 4, got 5"):
        settings(kept=5)
    with pytest.raises(
        InputError, match=r"template must have a place for \{name\} and no other braces, got 'a face'"
    ):
        settings(template="a face")
