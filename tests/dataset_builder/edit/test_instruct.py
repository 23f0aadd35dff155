"""Editors that follow an instruction, on tiny random pipelines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dataset_builder.edit.instruct import (
    EDITORS,
    InstructedEdits,
    InstructEditor,
    find_editor,
    instructions_for,
)
from dataset_builder.generate.pictures import encode_png
from dataset_builder.schema.faces import EditRequest, Face
from dataset_builder.schema.taxonomy import load_taxonomy
from targets.base.errors import InputError
from targets.images import decode
from tests.dataset_builder.tiny import SIDE, tiny_flux_kontext, tiny_instruct_pix2pix

PIX2PIX = InstructEditor(
    "tiny", call={"num_inference_steps": 3, "guidance_scale": 7.5, "image_guidance_scale": 1.5}
)
KONTEXT = InstructEditor(
    "tiny",
    "FluxKontextPipeline",
    {
        "num_inference_steps": 2,
        "guidance_scale": 2.5,
        "height": SIDE,
        "width": SIDE,
        "max_area": SIDE**2,
        "max_sequence_length": 48,
        "_auto_resize": False,
    },
    batched=False,
)


def face(seed: int, side: int = SIDE) -> Face:
    pixels = np.random.default_rng(seed).integers(0, 255, (side, side, 3), dtype=np.uint8)
    return Face(f"p{seed}", 0, "WM", encode_png(pixels), {"smile": "no"}, 30.0, "no", {"photo": seed})


def quiet(pipeline: Any) -> Any:
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.mark.parametrize(
    ("editor", "make"),
    [(PIX2PIX, tiny_instruct_pix2pix), (KONTEXT, tiny_flux_kontext)],
    ids=["pix2pix", "kontext"],
)
def test_pictures_from_anywhere_are_edited(editor: InstructEditor, make: Any) -> None:
    pipeline = quiet(make())
    edits = InstructedEdits(
        editor, instructions_for(["smile", "scarf"]), lambda: (pipeline, {"checkpoint": "tiny"})
    )
    requests = [EditRequest(face(seed), name) for seed in (1, 2) for name in ("smile", "scarf")]
    first, second = edits.edit(requests), edits.edit(requests)
    assert [item.picture for item in first] == [item.picture for item in second]
    assert len({item.picture for item in first}) == 4
    for request, item in zip(requests, first, strict=True):
        assert decode(item.picture, "edited").image.size == (SIDE, SIDE)
        assert (item.identity, item.labels, item.age, item.fault) == (request.face.identity, {}, None, "")
        assert item.provenance["prompt"] == edits.instructions[request.attribute]
        assert item.provenance["source"] == request.face.provenance


def test_batch_mates_do_not_change_a_picture() -> None:
    pipeline = quiet(tiny_instruct_pix2pix())
    edits = InstructedEdits(PIX2PIX, instructions_for(["smile"]), lambda: (pipeline, {}))
    alone = edits.edit([EditRequest(face(1), "smile")])[0]
    together = edits.edit([EditRequest(face(seed), "smile") for seed in (2, 1, 3)])[1]
    difference = np.asarray(decode(alone.picture, "a").image, int) - np.asarray(
        decode(together.picture, "b").image
    )
    assert np.abs(difference).max() <= 1


def test_pictures_of_different_sizes_in_one_call() -> None:
    pipeline = quiet(tiny_instruct_pix2pix())
    edits = InstructedEdits(PIX2PIX, instructions_for(["smile"]), lambda: (pipeline, {}))
    edited = edits.edit([EditRequest(face(1), "smile"), EditRequest(face(2, side=24), "smile")])
    assert [decode(item.picture, "edited").image.size for item in edited] == [(16, 16), (24, 24)]


def test_a_batch_that_does_not_fit_is_halved_and_recorded() -> None:
    pipeline = quiet(tiny_instruct_pix2pix())

    def small(**arguments: Any) -> Any:
        if len(arguments["image"]) > 1:
            raise torch.OutOfMemoryError
        return pipeline(**arguments)

    edits = InstructedEdits(PIX2PIX, instructions_for(["smile"]), lambda: (small, {}))
    edited = edits.edit([EditRequest(face(seed), "smile") for seed in (1, 2)])
    assert edits.halvings == ["batch_size 2 -> 1"]
    assert all(item.picture for item in edited)


def test_a_picture_that_is_not_finite_is_a_fault() -> None:
    pipeline = quiet(tiny_instruct_pix2pix())
    torch.nn.init.constant_(pipeline.vae.decoder.conv_out.bias, float("nan"))
    edits = InstructedEdits(PIX2PIX, instructions_for(["smile"]), lambda: (pipeline, {}))
    (edited,) = edits.edit([EditRequest(face(1), "smile")])
    assert (edited.picture, edited.fault) == (b"", "not_finite")


def test_all_of_the_papers_attributes_have_an_instruction() -> None:
    assert set(instructions_for(list(load_taxonomy("paper").attributes))) == set(
        load_taxonomy("paper").attributes
    )
    assert instructions_for(["smile"], {"smile": "grin"}) == {"smile": "grin"}
    with pytest.raises(InputError, match="attribute 'hat' has no instruction"):
        instructions_for(["hat"])


def test_the_papers_guidance() -> None:
    for name in ("instruct-pix2pix", "magicbrush", "hq-edit"):
        call = find_editor(name).call
        assert (call["guidance_scale"], call["image_guidance_scale"]) == (7.5, 1.5)
    assert replace(EDITORS["magicbrush"], checkpoint="") == replace(EDITORS["hq-edit"], checkpoint="")
    with pytest.raises(InputError, match=r"unknown editor 'magicbrsh' \(did you mean 'magicbrush'\?\)"):
        find_editor("magicbrsh")
