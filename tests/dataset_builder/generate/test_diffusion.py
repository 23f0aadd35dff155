"""Source faces from a diffusion model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dataset_builder.edit.requests import Picture, SegaPlan, SegaSettings
from dataset_builder.edit.sega import SemanticGuidance
from dataset_builder.generate.diffusion import DiffusionFaces, DiffusionSettings, most_alike, picture_seed
from dataset_builder.generate.names import Name
from targets.base.errors import InputError
from targets.images import decode
from tests.dataset_builder.tiny import SIDE, tiny_parts

ENGINE = SegaSettings(steps=4, height=SIDE, width=SIDE, batch_size=8, precision="float32")
NAMES = [Name("bob", "WM"), Name("eve", "WF")]


class Brightness:
    """Embeds a picture by its mean colour, pointing the same way for similar ones."""

    def embed(self, images: Sequence[Image.Image]) -> np.ndarray[Any, Any]:
        return np.stack([np.asarray(image, float).mean(axis=(0, 1)) - 100 for image in images])


class Counting:
    """An engine that counts what it is asked for, and may fail some."""

    def __init__(self, failing: Sequence[int] = ()) -> None:
        self.facts = {"checkpoint": "tiny"}
        self.inner, self.failing, self.made = SemanticGuidance(tiny_parts(), ENGINE), failing, 0

    def run(self, plan: SegaPlan) -> Any:
        for picture in self.inner.run(plan):
            self.made += 1
            failed = self.made - 1 in self.failing
            yield Picture(picture.request, None, "not_finite", {}) if failed else picture


def settings(tries: int = 4, kept: int = 2) -> DiffusionSettings:
    return DiffusionSettings("tiny", negative_prompt="drawing", tries=tries, kept=kept, engine=ENGINE)


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


def test_a_name_cut_apart_by_batches_is_made_once() -> None:
    engine = Counting()
    generator = DiffusionFaces(NAMES, settings(tries=3, kept=3), engine)
    requests = generator.requests()
    apart = generator.make(requests[:2]) + generator.make(requests[2:4]) + generator.make(requests[4:])
    assert engine.made == 6
    whole = DiffusionFaces(NAMES, settings(tries=3, kept=3), Counting())
    assert [face.picture for face in apart] == [face.picture for face in whole.make(requests)]


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
        DiffusionFaces(NAMES, settings(), Counting())
    with pytest.raises(InputError, match=r"kept must be between 1 and tries = 4, got 5"):
        settings(kept=5)
    with pytest.raises(InputError, match=r"template must have a place for \{name\}, got 'a face'"):
        DiffusionSettings("tiny", template="a face")


def test_the_papers_size_is_counted_without_loading_anything() -> None:
    names = [Name(f"n{number}", "WM") for number in range(800)]
    generator = DiffusionFaces(names, DiffusionSettings("nowhere"), object(), Brightness())  # type: ignore[arg-type]
    assert len(generator.requests()) == 4800
    assert 0.6 < generator.seconds_per_picture < 0.9
