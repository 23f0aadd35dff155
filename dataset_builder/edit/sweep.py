"""``--tune``: semantic-guidance settings tried on one source a group, one contact sheet an attribute.

So a person can choose an attribute's settings by eye, as the paper's authors did (section 4.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from dataset_builder.contact_sheet import Tile, draw_sheet
from dataset_builder.edit.requests import Picture
from dataset_builder.edit.semantic import Concepts, SemanticEdits, changed, concepts_for
from dataset_builder.generate.pictures import encode_png
from dataset_builder.making import Making
from dataset_builder.methods import guided, semantic_edits, source_generator
from dataset_builder.pipeline import claim
from dataset_builder.recipe import load_recipe
from dataset_builder.schema.faces import Face, SourceRequest
from dataset_builder.schema.taxonomy import Taxonomy
from dataset_builder.stages import Sweep
from dataset_builder.store import Store, StoredFace
from targets.base.errors import InputError
from targets.base.files import write_json
from targets.base.progress import progress
from targets.base.text import shortlist

FOLDER, SETTINGS_FILE = "tune", "tried.json"
SIDE = 160


@dataclass(frozen=True)
class Change:
    """One try: a factor on the guidance scales, and what thresholds and warmups gain."""

    scale: float
    threshold: float
    warmup: int

    @property
    def label(self) -> str:
        """What the sheet calls it."""
        lines = [f"scale x {self.scale:g}", f"threshold {self.threshold:+g}", f"warmup {self.warmup:+d}"]
        return "\n".join(lines[: 3 if self.warmup else 2])

    def of(self, concepts: Concepts) -> Concepts:
        """The concepts, changed."""
        return changed(concepts, scale=self.scale, threshold=self.threshold, warmup=self.warmup)


def changes(sweep: Sweep) -> list[Change]:
    """Each of one with each of the others."""
    return [Change(*values) for values in product(sweep.scale, sweep.threshold, sweep.warmup)]


def tune(path: Path, out: Path, work: Path, *, show_progress: bool = True) -> list[Path]:
    """Try every change on the first identity of each group and draw one sheet an attribute.

    Args:
        path: recipe with sources of method "diffusion" and edits of method "sega".
        out: folder; sheets and the settings behind their columns go to its folder "tune".
        work: where pictures are kept, so that a killed run goes on.
        show_progress: a bar on a terminal, a line a minute in a log.

    Returns:
        The sheets, in the order of the attributes.

    Raises:
        InputError: another method, or a group without a usable source.
    """
    recipe, taxonomy = load_recipe(path)
    claim(out)
    edits = semantic_edits(recipe, taxonomy, path.parent, work)
    generator = source_generator(recipe, taxonomy, path.parent, work)
    making = Making(generator, edits, Store(work), recipe.batch_size, show_progress)
    faces = _one_a_group(making, generator.requests())
    tried = changes(guided(recipe)[1].sweep)
    sheets = []
    with progress("sheets", len(edits.names), enabled=show_progress) as advance:
        for attribute in edits.names:
            made = _tried(making.store, edits, attribute, faces, tried)
            rows = {
                face.demographic: [Tile(face.read()), *made[row * len(tried) : (row + 1) * len(tried)]]
                for row, face in enumerate(faces)
            }
            sheets.append(out / FOLDER / f"{attribute}.png")
            draw_sheet(sheets[-1], ["source", *(change.label for change in tried)], rows, side=SIDE)
            advance(1)
    write_json(out / FOLDER / SETTINGS_FILE, _behind(taxonomy, edits.names, tried))
    return sheets


def _one_a_group(making: Making, requests: Sequence[SourceRequest]) -> list[StoredFace]:
    """The first usable variation of each group's first identity."""
    first = {request.demographic: request.identity for request in reversed(requests)}
    made = making.sources([one for one in requests if first[one.demographic] == one.identity])
    usable = {face.demographic: face for face in reversed(made) if not face.fault}
    lacking = [group for group in first if group not in usable]
    if lacking:
        raise InputError(
            f"no usable picture of the first identity of {shortlist(lacking)}: change source.seed"
        )
    return [usable[group] for group in first]


def _tried(
    store: Store, edits: SemanticEdits, attribute: str, faces: Sequence[StoredFace], tried: Sequence[Change]
) -> list[Tile]:
    asked = [
        (face.face(), change.of(concepts_for(edits.taxonomy, attribute, face.demographic)))
        for face in faces
        for change in tried
    ]
    inputs = {
        "settings": edits.settings(),
        "jobs": [
            [face.sha256, *(concept.model_dump(mode="json") for concept in concepts)]
            for face, concepts in asked
        ],
    }
    shard = store.shard(FOLDER, inputs)
    if not shard.exists():
        pictures = edits.pictures(asked)
        results = [_result(face, picture) for (face, _), picture in zip(asked, pictures, strict=True)]
        store.write(shard, results, [attribute] * len(asked), [face.sha256 for face, _ in asked])
    return [Tile(b"" if face.fault else face.read(), face.fault) for face in store.read(shard)]


def _result(face: Face, picture: Picture) -> Face:
    encoded = b"" if picture.pixels is None else encode_png(picture.pixels)
    return replace(face, picture=encoded, provenance=picture.provenance, fault=picture.reason or "")


def _behind(taxonomy: Taxonomy, attributes: Sequence[str], tried: Sequence[Change]) -> dict[str, object]:
    """What each column of each sheet was made with: attribute -> group -> column -> concepts."""
    return {
        attribute: {
            group: {
                change.label.replace("\n", ", "): [
                    concept.model_dump(mode="json")
                    for concept in change.of(concepts_for(taxonomy, attribute, group))
                ]
                for change in tried
            }
            for group in taxonomy.groups
        }
        for attribute in attributes
    }
