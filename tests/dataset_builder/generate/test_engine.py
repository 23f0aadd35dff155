"""Checkpoints on disk, and which engine runs them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch as safetensors

from dataset_builder.edit.requests import SegaRequest, SegaSettings, plan
from dataset_builder.edit.sega import SemanticGuidance
from dataset_builder.generate.checkpoint import load_pipeline
from dataset_builder.generate.engine import CheckpointEngine, PipelineEngine, engine_of, parts_of
from dataset_builder.generate.pictures import to_pixels
from dataset_builder.schema.taxonomy import SegaConcept
from targets.base.errors import InputError
from targets.base.hashing import file_digest
from tests.dataset_builder.tiny import SIDE, tiny_parts, tiny_pipeline

SETTINGS = SegaSettings(steps=3, height=SIDE, width=SIDE, batch_size=4)
FACE = SegaRequest("a photo of the face of bob", "drawing", 3)
SMILE = SegaConcept(prompt="smile", guidance_scale=5.0, threshold=0.9, warmup_steps=1)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    tiny_pipeline().save_pretrained(folder)
    return folder


def test_a_directory_gives_the_pictures_of_its_parts(checkpoint: Path) -> None:
    engine = CheckpointEngine(str(checkpoint), None, SETTINGS)
    edit = SegaRequest(FACE.prompt, FACE.negative_prompt, FACE.seed, (SMILE,))
    with pytest.warns(
        UserWarning, match=r"no GPU was found: 2 pictures need 13 evaluations .* hours on this CPU"
    ):
        got = list(engine.run(plan([FACE, edit], SETTINGS)))
    single = SegaSettings(steps=3, height=SIDE, width=SIDE, batch_size=4, precision="float32")
    expected = SemanticGuidance(tiny_parts(), single).pictures([FACE, edit])
    for one, other in zip(got, expected, strict=True):
        assert one.pixels is not None
        assert other.pixels is not None
        assert np.array_equal(one.pixels, other.pixels)
    facts = got[0].provenance
    assert facts["weights"]["unet/diffusion_pytorch_model.safetensors"] == file_digest(
        checkpoint / "unet" / "diffusion_pytorch_model.safetensors"
    )
    assert set(facts["weights"]) >= {
        "text_encoder/model.safetensors",
        "vae/diffusion_pytorch_model.safetensors",
    }
    assert facts["settings"]["precision"] == "float32"
    json.dumps(facts, allow_nan=False)


@pytest.mark.parametrize(
    "name",
    [
        "scheduler/scheduler_config.json",
        "unet/config.json",
        "tokenizer/tokenizer_config.json",
        "model_index.json",
    ],
)
def test_every_file_of_a_part_belongs_to_the_facts(checkpoint: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "other"
    shutil.copytree(checkpoint, folder)
    before = load_pipeline(str(folder), None, "float32")[1]
    (folder / ".cache").mkdir()
    (folder / ".cache" / "date").write_text("today")
    (folder / "pictures").mkdir()
    (folder / "pictures" / "first.png").write_bytes(b"made from here")
    assert load_pipeline(str(folder), None, "float32")[1] == before
    content = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**content, "_comment": "changed"}))
    after = load_pipeline(str(folder), None, "float32")[1]
    assert after["weights"] == before["weights"]
    assert after["files"] != before["files"]


def test_a_part_that_lacks_weights(checkpoint: Path, tmp_path: Path) -> None:
    for part, file, weight in (
        ("unet", "diffusion_pytorch_model.safetensors", "conv_out.bias"),
        ("text_encoder", "model.safetensors", "final_layer_norm.weight"),
    ):
        folder = tmp_path / part
        shutil.copytree(checkpoint, folder)
        state = safetensors.load_file(folder / part / file)
        lacking = next(name for name in state if name.endswith(weight))
        del state[lacking]
        safetensors.save_file(state, folder / part / file, metadata={"format": "pt"})
        with pytest.raises(InputError, match=rf"part {part}: the checkpoint lacks 1 weight .*random numbers"):
            load_pipeline(str(folder), None, "float32")


def test_no_such_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must hold a model_index.json, and there is none"):
        load_pipeline(str(tmp_path), None, "float32")


def test_a_checkpoint_without_a_part(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoint, tmp_path / "broken")
    shutil.rmtree(tmp_path / "broken" / "unet")
    with pytest.raises(InputError, match="can't be loaded"):
        load_pipeline(str(tmp_path / "broken"), None, "float32")


def test_a_pipeline_without_a_part() -> None:
    pipeline = tiny_pipeline()
    pipeline.vae = None
    with pytest.raises(InputError, match="for semantic guidance; StableDiffusionPipeline has no vae"):
        parts_of(pipeline, {"checkpoint": "tiny"})


class Elsewhere:
    """Another text-to-image pipeline, without a negative prompt."""

    def __call__(
        self, prompt: list[str], generator: list[Any], height: int, width: int, output_type: str
    ) -> Any:
        images = np.full((len(prompt), height, width, 3), 0.5)
        images[0] = 0.0
        return type("Output", (), {"images": images})

    def to(self, device: str) -> Elsewhere:
        return self


def test_other_pipelines_make_sources_and_no_edits() -> None:
    engine = engine_of(Elsewhere(), {"checkpoint": "other"}, SETTINGS, "cpu")
    assert isinstance(engine, PipelineEngine)
    black, grey = engine.run(plan([FACE, SegaRequest("b", "", 1)], SETTINGS))
    assert (black.pixels, black.reason) == (None, "safety_checker")
    assert grey.pixels is not None
    assert grey.pixels[0, 0].tolist() == [128, 128, 128]
    assert grey.provenance["checkpoint"] == "other"
    with pytest.raises(InputError, match="semantic guidance needs Stable Diffusion 1 or 2, got Elsewhere"):
        list(engine.run(plan([SegaRequest("b", "", 1, (SMILE,))], SETTINGS)))


def test_pixels_that_are_not_finite() -> None:
    image = np.full((2, 2, 3), 0.5)
    image[0, 0, 0] = np.nan
    assert to_pixels(image) == (None, "not_finite")
