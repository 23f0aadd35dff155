"""What a recipe needs is checked before the first picture is made, for each stage; a dry run fails alike."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub
import pytest

from tests.dataset_builder.tiny import tiny_pipeline
from tests.openai_server import Running, running
from tests.support import call

pytest.importorskip("openai", reason="the extra 'vlm' is not installed")

RECIPE = """
name = "tiny"
title = "Tiny faces"
licence = "other"
taxonomy = "taxonomy.toml"

[source]
method = "diffusion"
checkpoint = "checkpoint"
names = "names.csv"
tries = 3
kept = 2
embedder = "models.py:Embedder"
one_face = false
steps = 12
height = 16
width = 16
batch_size = 8

[edit]
method = "sega"
attributes = ["glasses", "old"]
one_face = false

[detect]
distortion = "distortion.json"
age = { target = "models.py:Age", settings = { unit = "years" } }

[detect.attributes]
method = "vlm"
model = "test-vlm"
base_url = "URL"
retries = 0

[filter]
unknown = "accept"
"""
TAXONOMY = """
name = "two"
extends = "paper"
drop = ["AM", "AF", "BM", "BF", "IM", "IF"]
[attributes.hat]
title = "Hat"
category = "accessories"
transition = {}
"""
MODELS = """
import numpy as np

class Embedder:
    card = {"name": "colour", "weights": {"none": "00"}}

    def embed(self, images):
        return np.stack([np.asarray(image, float).mean(axis=(0, 1)) for image in images])

class Unpinned(Embedder):
    card = {"name": "colour"}

class Age:
    concepts = ("age",)

    def __init__(self, unit="months"):
        assert unit == "years"

    def score(self, images):
        return np.full((len(images), 1), 30.0)

class Smile:
    concepts = ("smile",)

    def __init__(self, unit=""):
        self.unit = unit

    def score(self, images):
        return np.ones((len(images), 1))
"""
ATTRIBUTES = '[detect.attributes]\nmethod = "vlm"\nmodel = "test-vlm"\nbase_url = "URL"\nretries = 0\n'
SEGA = '[edit]\nmethod = "sega"\nattributes = ["glasses", "old"]\n'
INSTRUCT = '[edit]\nmethod = "instruct"\nattributes = ["glasses", "old"]\n'
DIFFUSION = RECIPE[RECIPE.index("[source]") : RECIPE.index("[edit]")]
PHOTOS = '[source]\nmethod = "photos"\nfaces = "photos.csv"\none_face = false\n\n'
RENDER = '[source]\nmethod = "render"\nseeds = "seeds.toml"\n\n'
RENDERED = '[edit]\nmethod = "render"\nattributes = ["glasses", "old"]\n'
CHOICE = {
    "detectors": [{"method": "vlm", "model": "test-vlm"}],
    "chosen": {"glasses": {"WM": 0, "WF": 0}},
    "agreement": [],
    "pooled": [],
    "unlabelled": [],
    "min_labels": 10,
}
CLIP = """[detect.attributes]
method = "clip"
target = "{}"
concepts = {{ glasses = {{ positive = ["glasses"] }} }}
"""
CHOSEN = '[detect.attributes]\nmethod = "choice"\nfile = "{}.json"\n'


@dataclass(frozen=True)
class Lack:
    """One thing that a build lacks, and what it says of it.

    Attributes:
        words: in the one line of error.
        changes: in the recipe, old text -> new text.
        absent: a module that can't be imported.
        files: file -> new content; None takes it away.
        key: whether the environment holds a key.
    """

    words: str
    changes: tuple[tuple[str, str], ...] = ()
    absent: str = ""
    files: tuple[tuple[str, str | None], ...] = ()
    key: bool = True


def edit_of(source: str, edit: str) -> tuple[tuple[str, str], ...]:
    return ((DIFFUSION, source), (SEGA + "one_face = false\n", edit))


LACKS = {
    "taxonomy": Lack("no such file", files=(("taxonomy.toml", None),)),
    "diffusion: package": Lack("needs the package 'diffusers'", absent="diffusers"),
    "diffusion: checkpoint": Lack("no checkpoint 'nowhere'", (('"checkpoint"', '"nowhere"'),)),
    "diffusion: index": Lack("must hold a model_index.json", files=(("checkpoint/model_index.json", None),)),
    "diffusion: part": Lack("names vae, but has no such folder", files=(("checkpoint/vae", None),)),
    "diffusion: weights": Lack(
        "must hold weights as .safetensors in unet",
        files=(("checkpoint/unet/diffusion_pytorch_model.safetensors", None),),
    ),
    "diffusion: names": Lack("must have 1 names of group WF", files=(("names.csv", "name,group\nab,WM\n"),)),
    "diffusion: name list": Lack("names.csv", files=(("names.csv", None),)),
    "one_face": Lack(
        "needs the package 'cv2'", (("one_face = false\nsteps", "one_face = true\nsteps"),), "cv2"
    ),
    "embedder: file": Lack("no such file: mod.py", (('"models.py:Embedder"', '"mod.py:Embedder"'),)),
    "embedder: kind": Lack(
        "models.py:Smile' has concepts",
        (('"models.py:Embedder"', '"models.py:Smile"'),),
    ),
    "embedder: weights": Lack(
        "source.embedder must be pinned by its weights", (("py:Embedder", "py:Unpinned"),)
    ),
    "embedder: extra": Lack("needs the package 'cv2'", (('"models.py:Embedder"', '"sface"'),), "cv2"),
    "sega: settings": Lack(
        "'hat' has no settings for semantic guidance", (('["glasses", "old"]', '["glasses", "hat"]'),)
    ),
    "sega: pipeline": Lack(
        "needs Stable Diffusion 1 or 2, checkpoint",
        files=(("checkpoint/model_index.json", '{"_class_name": "StableDiffusionXLPipeline"}'),),
    ),
    "sega: one_face": Lack(
        "needs the package 'cv2'", (("one_face = false\n\n[detect]", "one_face = true\n\n[detect]"),), "cv2"
    ),
    "sega: other sources": Lack(
        "semantic guidance needs source.method = 'diffusion'", ((DIFFUSION, PHOTOS),)
    ),
    "instruct: package": Lack(
        "needs the package 'diffusers'", edit_of(PHOTOS, INSTRUCT + "one_face = false\n"), "diffusers"
    ),
    "instruct: checkpoint": Lack(
        "no checkpoint 'timbrooks/instruct-pix2pix'", edit_of(PHOTOS, INSTRUCT + "one_face = false\n")
    ),
    "instruct: sentence": Lack(
        "attribute 'hat' has no instruction", edit_of(PHOTOS, INSTRUCT.replace("old", "hat"))
    ),
    "instruct: editor": Lack("nobody", edit_of(PHOTOS, INSTRUCT + 'editor = "nobody"\n')),
    "instruct: one_face": Lack(
        "needs the package 'cv2'",
        edit_of(PHOTOS, INSTRUCT + 'editor = { checkpoint = "checkpoint" }\n'),
        "cv2",
    ),
    "photos: table": Lack("photos.csv", edit_of(PHOTOS, INSTRUCT), files=(("photos.csv", None),)),
    "photos: column": Lack(
        "needs a column 'identity'", edit_of(PHOTOS, INSTRUCT), files=(("photos.csv", "picture\na.png\n"),)
    ),
    "photos: one_face": Lack(
        "needs the package 'cv2'", edit_of(PHOTOS.replace("one_face = false\n", ""), INSTRUCT), "cv2"
    ),
    "render: package": Lack("need the package mitsuba", edit_of(RENDER, RENDERED), "mitsuba"),
    "render: denoiser": Lack("need the package pyoidn", edit_of(RENDER, RENDERED), "pyoidn"),
    "render: heads": Lack("need the package anny", edit_of(RENDER, RENDERED), "anny"),
    "render: seeds": Lack("no such file", edit_of(RENDER, RENDERED), files=(("seeds.toml", None),)),
    "render: other sources": Lack("needs source.method = 'render'", edit_of(PHOTOS, RENDERED)),
    "distortion: file": Lack("no such distortion model", files=(("distortion.json", None),)),
    "distortion: content": Lack("must be JSON", files=(("distortion.json", "{"),)),
    "distortion: weights": Lack(
        "the distortion model was trained on", (), "", (("models.py", MODELS.replace('"00"', '"01"')),)
    ),
    "distortion: target": Lack("has no 'Gone'", files=(("distortion.json", "TARGET models.py:Gone"),)),
    "age: concept": Lack("must have a concept 'age', it has smile", (("py:Age", "py:Smile"),)),
    "age: embedder": Lack(
        "it has none (embedding)", (("py:Age", "py:Embedder"), (', settings = { unit = "years" }', ""))
    ),
    "age: extra": Lack(
        "needs the package 'insightface.app'",
        (("models.py:Age", "insightface:pack"), ('unit = "years"', 'output = "attributes"')),
        "insightface",
    ),
    "age: setting": Lack("failed: ", (("unit =", "units ="),)),
    "vlm: package": Lack("needs the package 'openai'", absent="openai"),
    "vlm: no key": Lack("OPENAI_API_KEY, which is not set", (('base_url = "URL"\n', ""),), key=False),
    "vlm: refused key": Lack("refuses the key in OPENAI_API_KEY", (("URL", "REFUSING"),)),
    "vlm: nobody there": Lack("nobody answers at 127.0.0.1:9", (("URL", "http://127.0.0.1:9/v1"),)),
    "vlm: phrases": Lack("phrases names 'hut'", (("retries = 0", 'retries = 0\nphrases = { hut = "x" }'),)),
    "vlm: examples": Lack("labels.csv", (("retries = 0", 'retries = 0\nshots = 2\nexamples = "shown"'),)),
    "clip: concept": Lack("has no concept 'glasses'", ((ATTRIBUTES, CLIP.format("models.py:Smile")),)),
    "clip: package": Lack("needs the package", ((ATTRIBUTES, CLIP.format("open-clip:x/y")),), "open_clip"),
    "choice: file": Lack(
        "no such choice of detectors",
        ((ATTRIBUTES, CHOSEN.format("c")),),
    ),
    "choice: no key": Lack(
        "OPENAI_API_KEY, which is not set",
        ((ATTRIBUTES, CHOSEN.format("choice")),),
        key=False,
    ),
    "filter": Lack("'filter.unknown'", (('unknown = "accept"', 'unknown = "perhaps"'),)),
    "publish: folder": Lack("must be a new or empty folder", files=(("out/mine.txt", "mine"),)),
    "publish: file": Lack("must be a new or empty folder", files=(("out", "mine"),)),
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "checkpoint"
    tiny_pipeline().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Running, Running]]:
    with running() as server, running(status=401) as refusing:
        yield server, refusing


def distortion(target: str) -> str:
    from targets.base.hashing import settings_digest

    return json.dumps(
        {
            "target": target,
            "weights_digest": settings_digest({"none": "00"}),
            "coefficients": [1.0, 1.0, 1.0],
            "intercept": 0.0,
            "threshold": 1e9,
        }
    )


@pytest.fixture
def recipe(
    tmp_path: Path,
    checkpoint: Path,
    servers: tuple[Running, Running],
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A recipe that lacks nothing, in a folder that is not the current one."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    # There is no hub in tests; without this it is asked six times.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    shutil.copytree(checkpoint, tmp_path / "checkpoint")
    for name, text in {
        "taxonomy.toml": TAXONOMY,
        "models.py": MODELS,
        "names.csv": "name,group\nab,WM\nab,WF\n",
        "distortion.json": distortion("models.py:Embedder"),
        "choice.json": json.dumps(CHOICE),
        "photos.csv": "picture,identity,demographic\na.png,a,WM\n",
        "seeds.toml": "[seeds]\nWM = [1]\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE.replace("URL", servers[0].base_url), encoding="utf-8")
    return path


def test_a_recipe_that_lacks_nothing(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "build", recipe, "--out", recipe.parent / "out", "--dry-run")
    assert (result.status, result.err) == (0, "")
    assert "transformed faces 8" in result.out
    assert not (recipe.parent / "out").exists()


@pytest.mark.parametrize("lack", LACKS.values(), ids=LACKS)
def test_checked_before_the_first_picture(
    recipe: Path,
    lack: Lack,
    servers: tuple[Running, Running],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = RECIPE
    for old, new in lack.changes:
        assert old in text
        text = text.replace(old, new)
    text = text.replace("REFUSING", servers[1].base_url).replace("URL", servers[0].base_url)
    recipe.write_text(text, encoding="utf-8")
    for name, content in lack.files:
        changed(recipe.parent / name, content)
    if lack.absent:
        for name in [name for name in sys.modules if name.split(".")[0] == lack.absent]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, lack.absent, None)
    if not lack.key:
        monkeypatch.delenv("OPENAI_API_KEY")
    for more in ((), ("--dry-run",)):
        result = call(capsys, "build", recipe, "--out", recipe.parent / "out", *more)
        errors = [line for line in result.err.splitlines() if line.startswith("error: ")]
        assert (result.status, len(errors)) == (2, 1), result.err
        assert lack.words in errors[0]
        assert not list(recipe.parent.rglob("*.parquet"))


def changed(path: Path, content: str | None) -> None:
    if content is None:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        return
    path.parent.mkdir(exist_ok=True)
    text = distortion(content.removeprefix("TARGET ")) if content.startswith("TARGET ") else content
    path.write_text(text, encoding="utf-8")


def test_all_that_is_missing_is_listed(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (recipe.parent / "distortion.json").unlink()
    text = recipe.read_text(encoding="utf-8").replace("models.py:Age", "models.py:Smile")
    recipe.write_text(text.replace("py:Embedder", "py:Unpinned"), encoding="utf-8")
    result = call(capsys, "build", recipe, "--out", recipe.parent / "out", "--dry-run")
    assert "source.embedder must be pinned" in result.err
    listed = [line for line in result.out.splitlines() if line.startswith("also missing")]
    assert ["distortion model" in line for line in listed] == [True, False]
    assert "detect.age" in listed[1]
