"""One rendered head from start to end: from a request of a few words to encoded bytes and labels."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field

from dataset_builder.heads import attributes, renderer
from dataset_builder.heads.distortion import distorted
from dataset_builder.heads.identity import sample_person
from dataset_builder.heads.renderer import RenderSettings
from dataset_builder.heads.scene import build_scene
from dataset_builder.heads.variation import sample_variation
from dataset_builder.schema.verdict import Label
from targets.base.errors import FacedeltaError
from targets.executors.children import end_with_parent, interrupts_held


@dataclass(frozen=True)
class HeadRequest:
    """What to show: a person (group and seed), a variation, perhaps one attribute, perhaps out of shape."""

    group: str
    seed: int
    variation: int
    attribute: str | None = None
    distorted: bool = False
    settings: RenderSettings = field(default_factory=RenderSettings)


@dataclass(frozen=True)
class HeadPicture:
    """Encoded bytes, the labels that hold for them, and the age in years."""

    picture: bytes
    labels: dict[str, Label]
    age: float


def make(request: HeadRequest) -> HeadPicture:
    """The picture of a request; the same request gives the same bytes on one machine."""
    person = sample_person(request.group, request.seed)
    variation = sample_variation(person, request.variation)
    look = attributes.base_look(person, variation)
    if request.attribute is not None:
        look = attributes.edited(look, request.attribute)
    shown = distorted(person, request.variation, request.attribute or "") if request.distorted else person
    scene = build_scene(person, look, variation, shown=shown)
    pixels = renderer.render(scene, request.settings)
    encoded = renderer.encode(pixels, request.settings.quality)
    return HeadPicture(encoded, attributes.labels(look), look.years)


def make_all(requests: Iterable[HeadRequest], processes: int = 1) -> Iterator[HeadPicture]:
    """Pictures in the order of the requests; their bytes do not depend on ``processes``."""
    if processes <= 1:
        yield from map(make, requests)
        return
    # Fresh interpreters: threads of the renderer and the denoiser don't survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _begin, (os.getpid(),)) as pool:
        with interrupts_held():
            pictures = pool.map(make, requests)
        try:
            yield from pictures
        except BrokenProcessPool:
            raise FacedeltaError("a process that renders heads was ended (out of memory?)") from None


def _begin(parent: int) -> None:
    end_with_parent(parent)
    renderer.use_threads(1)
