"""The editor ``sega``: from faces and attributes to transformed faces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dataset_builder.edit.sega import SemanticGuidance
from dataset_builder.edit.semantic import SemanticEdits
from dataset_builder.generate.diffusion import DiffusionFaces
from dataset_builder.generate.names import Name
from dataset_builder.schema.faces import EditRequest, Face
from dataset_builder.schema.taxonomy import load_taxonomy
from dataset_builder.stages import DiffusionSource
from targets.base.errors import InputError
from tests.dataset_builder.tiny import SIDE, tiny_parts

SOURCE = DiffusionSource(
    method="diffusion",
    checkpoint="tiny",
    negative_prompt="drawing",
    tries=1,
    kept=1,
    steps=12,
    height=SIDE,
    width=SIDE,
    precision="float32",
)
SETTINGS = SOURCE.engine(8)
TAXONOMY = load_taxonomy("paper")


@pytest.fixture(scope="module")
def engine() -> SemanticGuidance:
    return SemanticGuidance(tiny_parts(), SETTINGS)


@pytest.fixture(scope="module")
def faces(engine: SemanticGuidance) -> list[Face]:
    names = [Name("bob", "WM"), Name("eve", "WF")]
    generator = DiffusionFaces(names, SOURCE, engine)
    return generator.make(generator.requests())


def test_each_attribute_changes_the_picture_and_says_how(engine: SemanticGuidance, faces: list[Face]) -> None:
    editor = SemanticEdits(TAXONOMY, ["smile", "buzz_cut"], SETTINGS, engine)
    requests = [EditRequest(face, name) for face in faces for name in editor.attributes()]
    edited = editor.edit(requests)
    assert len({face.picture for face in [*edited, *faces]}) == 6
    for request, face in zip(requests, edited, strict=True):
        assert (face.identity, face.demographic) == (request.face.identity, request.face.demographic)
        assert face.provenance["prompt"] == request.face.provenance["prompt"]
        assert face.provenance["seed"] == request.face.provenance["seed"]
        assert (face.labels, face.age, face.distorted, face.fault) == ({}, None, "unknown", "")
    scales = [concept["guidance_scale"] for concept in edited[3].provenance["concepts"]]
    assert scales == [10.0, 9.0]
    assert edited[3].provenance["concepts"][1]["reversed"] is True
    assert edited[3].provenance["settings"]["momentum_beta"] == TAXONOMY.sega_momentum_beta


def test_the_taxonomys_momentum_is_used(engine: SemanticGuidance, faces: list[Face]) -> None:
    request = EditRequest(faces[0], "mustache")
    pictures = {
        beta: SemanticEdits(
            TAXONOMY.model_copy(update={"sega_momentum_beta": beta}), ["mustache"], SETTINGS, engine
        )
        .edit([request])[0]
        .picture
        for beta in (0.0, 0.95)
    }
    assert pictures[0.0] != pictures[0.95]


def test_the_estimate_counts_shared_work() -> None:
    whole = DiffusionSource(method="diffusion", checkpoint="sd", tries=6).engine(80)
    editor = SemanticEdits(
        TAXONOMY, list(TAXONOMY.attributes), whole, SemanticGuidance(tiny_parts(), SETTINGS)
    )
    # A concept's 50 evaluations, two prompts after the fork, a share of the source; two attributes have more.
    assert 125 < editor.seconds_per_picture * 450 < 145


def test_an_attribute_without_settings_is_an_error(engine: SemanticGuidance) -> None:
    bare = TAXONOMY.attributes["smile"].model_copy(update={"sega": ()})
    taxonomy = TAXONOMY.model_copy(update={"attributes": {"smile": bare}})
    with pytest.raises(
        InputError, match=r"attribute 'smile' has no settings for semantic guidance of male groups"
    ):
        SemanticEdits(taxonomy, ["smile"], SETTINGS, engine)


def test_an_unknown_attribute_is_an_error(engine: SemanticGuidance) -> None:
    with pytest.raises(InputError, match=r"no attribute 'smlie' \(did you mean 'smile'\?\)"):
        SemanticEdits(TAXONOMY, ["smlie"], SETTINGS, engine)


def test_faces_from_elsewhere_are_refused(engine: SemanticGuidance, faces: list[Face]) -> None:
    editor = SemanticEdits(TAXONOMY, ["smile"], SETTINGS, engine)
    with pytest.raises(
        InputError, match="WM 'bob' variation 0: semantic guidance edits only faces that a diffusion"
    ):
        editor.edit([EditRequest(replace(faces[0], provenance={}), "smile")])
    changed = {**faces[0].provenance, "settings": {**faces[0].provenance["settings"], "steps": 50}}
    with pytest.raises(InputError, match="must share steps, got 50 and 12"):
        editor.edit([EditRequest(replace(faces[0], provenance=changed), "smile")])
    other = {**faces[0].provenance, "weights": {"unet": "0"}}
    with pytest.raises(InputError, match="must come from the same checkpoint"):
        editor.edit([EditRequest(replace(faces[0], provenance=other), "smile")])
