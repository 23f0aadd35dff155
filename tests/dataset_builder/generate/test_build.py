"""Whole builds with diffusion models: a tiny checkpoint with random weights, real stages, files and kills."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from diffusers import StableDiffusionInstructPix2PixPipeline
from PIL import Image

from dataset_builder.making import batched
from dataset_builder.store import read_faces
from targets.images import decode
from tests.dataset_builder.tiny import SIDE, tiny_instruct_pix2pix, tiny_pipeline
from tests.support import FACEDELTA, ROOT, Result, call, command

RECIPE = """
name = "tiny"
title = "Tiny faces"
licence = "other"
taxonomy = "taxonomy.toml"
batch_size = 4

[source]
method = "diffusion"
checkpoint = "checkpoint"
names = "names.csv"
negative_prompt = "drawing"
tries = 3
kept = 2
embedder = "EMBEDDER"
one_face = false
steps = 12
height = 16
width = 16
batch_size = 8

[edit]
method = "sega"
attributes = ["glasses", "smile"]
one_face = false

[filter]
unknown = "accept"
"""
TAXONOMY = """
name = "two"
extends = "paper"
drop = ["AM", "AF", "BM", "BF", "IM", "IF"]
"""
NAMES = "name,group\n" + "".join(f"{name},{group}\n" for group in ("WM", "WF") for name in ("ab", "cd", "ef"))
EMBEDDER = """
import numpy as np

class Colour:
    card = {"name": "colour", "weights": {"none": "00"}}

    def embed(self, images):
        return np.stack([np.asarray(image, float).mean(axis=(0, 1)) - 100 for image in images])
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "checkpoint"
    tiny_pipeline().save_pretrained(folder)
    return folder


@pytest.fixture
def recipe(tmp_path: Path, checkpoint: Path) -> Path:
    (tmp_path / "checkpoint").symlink_to(checkpoint)
    (tmp_path / "colour.py").write_text(EMBEDDER, encoding="utf-8")
    (tmp_path / "taxonomy.toml").write_text(TAXONOMY, encoding="utf-8")
    (tmp_path / "names.csv").write_text(NAMES, encoding="utf-8")
    text = RECIPE.replace("EMBEDDER", f"{tmp_path / 'colour.py'}:Colour")
    return changed(tmp_path / "tiny.toml", text)


def changed(path: Path, text: str = "", *changes: tuple[str, str]) -> Path:
    text = text or path.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return path


def files_of(dataset: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(dataset)): path.read_bytes() for path in dataset.rglob("*") if path.is_file()
    }


def rows(dataset: Path, config: str) -> list[dict[str, Any]]:
    return list(pq.read_table(dataset / config).to_pylist())


def assert_one_line(result: Result, words: str) -> None:
    assert result.status == 2, result.err
    errors = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, result.err
    assert words in errors[0]
    assert "Traceback" not in result.err


@pytest.mark.filterwarnings("ignore:no GPU was found")
def test_killed_ten_times_it_ends_with_the_same_bytes(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calm, disturbed = tmp_path / "calm", tmp_path / "disturbed"
    assert call(capsys, "build", recipe, "--out", calm).status == 0
    assert len(rows(calm, "sources")) == 12
    assert len(rows(calm, "candidates")) == 24
    chance = random.Random(7)
    shards_before, kills = 0, 0
    for _ in range(10):
        process = subprocess.Popen(
            [str(FACEDELTA), "build", str(recipe), "--out", str(disturbed)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # Some die before they have made anything, some between two batches, some within one.
        wanted = shards_before + chance.choice([0, 1, 1, 1])
        pause = chance.uniform(0.0, 0.3)
        while process.poll() is None and len(list(disturbed.glob(".build/*/*.parquet"))) < wanted:
            time.sleep(0.01)
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        shards_before = len(list(disturbed.glob(".build/*/*.parquet")))
    assert kills == 10
    assert shards_before > 0
    assert command("build", recipe, "--out", disturbed).status == 0
    assert files_of(disturbed) == files_of(calm)


@pytest.mark.filterwarnings("ignore:no GPU was found")
def test_a_changed_scheduler_makes_the_faces_anew(
    recipe: Path, tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The weights are the same, byte for byte: the key must be all that the checkpoint holds."""
    (tmp_path / "checkpoint").unlink()
    shutil.copytree(checkpoint, tmp_path / "checkpoint")
    first, fresh = tmp_path / "first", tmp_path / "fresh"
    assert call(capsys, "build", recipe, "--out", first, "--limit", 1).status == 0
    before = {row["sha256"] for row in rows(first, "sources")}
    path = tmp_path / "checkpoint" / "scheduler" / "scheduler_config.json"
    changed(path, "", ('"prediction_type": "epsilon"', '"prediction_type": "v_prediction"'))
    assert call(capsys, "build", recipe, "--out", first, "--limit", 1).status == 0
    assert call(capsys, "build", recipe, "--out", fresh, "--limit", 1).status == 0
    after = {row["sha256"] for row in rows(first, "sources")}
    assert not before & after
    assert after == {row["sha256"] for row in rows(fresh, "sources")}
    made = [json.loads(row["provenance"]) for row in rows(first, "candidates")]
    assert {(one["device"], one["precision"]) for one in made} == {("cpu", "float32")}


@pytest.mark.filterwarnings("ignore:no GPU was found")
def test_shares_and_processes_make_the_same_dataset(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, shared, together = (tmp_path / name for name in ("whole", "shared", "together"))
    assert call(capsys, "build", recipe, "--out", whole).status == 0
    first = call(capsys, "build", recipe, "--out", shared, "--share", "2/2")
    assert "share 2/2: 4 source faces and 8 transformed faces" in first.out
    assert not (shared / "README.md").exists()
    assert call(capsys, "build", recipe, "--out", shared, "--share", "1/2").status == 0
    shards = {path: path.stat().st_mtime_ns for path in shared.glob(".build/*/*.parquet")}
    assert call(capsys, "build", recipe, "--out", shared).status == 0
    assert {path: path.stat().st_mtime_ns for path in shared.glob(".build/*/*.parquet")} == shards
    assert files_of(shared) == files_of(whole)
    assert command("build", recipe, "--out", together, "--processes", 2).status == 0
    assert files_of(together) == files_of(whole)


def test_a_process_that_fails_says_why_in_one_line(recipe: Path, tmp_path: Path) -> None:
    shutil.copytree(recipe.parent / "checkpoint", tmp_path / "broken")
    weights = tmp_path / "broken" / "vae" / "diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    changed(recipe, "", ('"checkpoint"', '"broken"'))
    result = command("build", recipe, "--out", tmp_path / "out", "--processes", 2)
    assert_one_line(result, "a process that makes pictures failed: checkpoint")


def test_a_process_that_is_killed_names_the_signal(recipe: Path, tmp_path: Path) -> None:
    killed = "import os\n        os.kill(os.getpid(), 9)\n        return np"
    changed(tmp_path / "colour.py", "", ("return np", killed))
    result = command("build", recipe, "--out", tmp_path / "out", "--processes", 2)
    assert_one_line(result, "a process that makes pictures failed: signal 9 (SIGKILL)")
    assert "yield from" not in result.err.splitlines()[-1]


def test_an_embedder_without_weights_may_not_choose_sources(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own code is known, but not the files that it reads: sources it chose would outlive a change."""
    changed(tmp_path / "colour.py", "", (', "weights": {"none": "00"}', ""))
    result = call(capsys, "build", recipe, "--out", tmp_path / "out")
    assert_one_line(result, "source.embedder must be pinned by its weights")
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_what_a_build_says_of_its_pictures(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(UserWarning, match="no GPU was found"):
        result = call(capsys, "build", recipe, "--out", tmp_path / "out")
    assert result.status == 0, result.err
    sources = {row["sha256"]: json.loads(row["provenance"]) for row in rows(tmp_path / "out", "sources")}
    assert {made["prompt"] for made in sources.values()} == {
        f"A photo of the face of {name}" for name in ("ab", "cd", "ef")
    }
    for row in rows(tmp_path / "out", "candidates"):
        made, source = json.loads(row["provenance"]), sources[row["source_sha256"]]
        assert {name: made[name] for name in ("prompt", "negative_prompt", "seed", "weights")} == {
            name: source[name] for name in ("prompt", "negative_prompt", "seed", "weights")
        }
        assert made["concepts"]
        assert decode(row["image"]["bytes"], "picture").image.size == (SIDE, SIDE)
    detectors = json.loads((tmp_path / "out" / "build.json").read_text(encoding="utf-8"))["detectors"]
    assert list(detectors) == ["variations"]


def test_pushed_edits_teach_a_distortion_detector(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(recipe, "", ("one_face = false\nsteps", 'distorted = "no"\none_face = false\nsteps'))
    changed(recipe, "", ('method = "sega"', 'method = "sega"\npushed = 40.0'))
    with pytest.warns(UserWarning, match="no GPU"):
        assert call(capsys, "build", recipe, "--out", tmp_path / "heads").status == 0
    assert {row["distorted"] for row in rows(tmp_path / "heads", "sources")} == {"no"}
    assert {row["distorted"] for row in rows(tmp_path / "heads", "candidates")} == {"yes"}
    target = f"{tmp_path / 'colour.py'}:Colour"
    out = tmp_path / "detector.json"
    trained = call(capsys, "detector", "train", tmp_path / "heads", "--target", target, "--out", out)
    assert trained.status == 0, trained.err
    counts = json.loads(out.read_text(encoding="utf-8"))["card"]["trained_on"]
    assert sum(part["clean"] for part in counts.values()) == 12
    assert sum(part["distorted"] for part in counts.values()) == 24


def test_tuning_draws_a_sheet_an_attribute(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(
        recipe,
        "",
        (
            'attributes = ["glasses", "smile"]',
            'attributes = ["glasses", "smile"]\nsweep = { scale = [1, 9] }',
        ),
    )
    out = tmp_path / "out"
    with pytest.warns(UserWarning, match="no GPU"):
        result = call(capsys, "build", recipe, "--out", out, "--tune")
    assert result.status == 0, result.err
    assert "2 contact sheets" in result.out
    with Image.open(out / "tune" / "glasses.png") as opened:
        glasses = opened.convert("RGB")
    # A source and 2 scales x 2 thresholds across, one row a group.
    assert glasses.size == (48 + 5 * 160, 44 + 2 * 160)
    assert (out / "tune" / "smile.png").exists()
    tried = json.loads((out / "tune" / "tried.json").read_text(encoding="utf-8"))
    assert list(tried) == ["glasses", "smile"]
    scales = [column[0]["guidance_scale"] for column in tried["glasses"]["WM"].values()]
    assert scales == [9.0, 9.0, 81.0, 81.0]
    pictures = np.asarray(glasses, dtype=int)
    columns = [pictures[44:, 48 + 160 * place : 208 + 160 * place] for place in range(5)]
    assert np.abs(columns[0] - columns[4]).mean() > np.abs(columns[0] - columns[2]).mean() > 0
    assert not (out / "README.md").exists()


def test_auto_keeps_the_batch_size_it_found(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(recipe, "", ("batch_size = 8", 'batch_size = "auto"'))
    out = tmp_path / "out"
    recorded = out / ".build" / "batch_size.json"
    with pytest.warns(UserWarning, match="no GPU"):
        assert call(capsys, "build", recipe, "--out", out, "--limit", 2).status == 0
    assert json.loads(recorded.read_text(encoding="utf-8")) == {"batch_size": 8}
    other = tmp_path / "other"
    (other / ".build").mkdir(parents=True)
    (other / ".build" / "batch_size.json").write_text('{"batch_size": 3}', encoding="utf-8")
    with pytest.warns(UserWarning, match="no GPU"):
        assert call(capsys, "build", recipe, "--out", other, "--limit", 2).status == 0
    made = [json.loads(row["provenance"])["settings"]["batch_size"] for row in rows(other, "candidates")]
    assert set(made) == {3}


INSTRUCTED = """
name = "photos"
title = "Photos"
licence = "other"
[source]
method = "photos"
faces = "photos.csv"
one_face = false
[edit]
method = "instruct"
attributes = ["glasses"]
one_face = false
editor = { checkpoint = "editor", call = { num_inference_steps = 2 } }
[filter]
unknown = "accept"
"""


def instructed(folder: Path) -> tuple[Path, list[str]]:
    """Write a recipe that edits three photos, and the lines of their table."""
    tiny_instruct_pix2pix().save_pretrained(folder / "editor")
    chance = np.random.default_rng(0)
    lines = ["picture,identity,demographic,variation"]
    for number in range(3):
        noise = chance.integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{number}.png")
        lines.append(f"{number}.png,someone,WF,{number}")
    lines += ["gone.png,another,WM,0", "photos.csv,third,WM,0"]
    (folder / "photos.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return changed(folder / "photos.toml", INSTRUCTED), lines


def test_photos_edited_by_instruction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, lines = instructed(tmp_path)
    with pytest.warns(UserWarning, match="no GPU"):
        result = call(capsys, "build", recipe, "--out", tmp_path / "out")
    assert result.status == 0, result.err
    sources = rows(tmp_path / "out", "sources")
    assert [row["fault"] for row in sources] == ["", "", "", "no_such_file", "unreadable"]
    assert sources[1]["image"]["bytes"] == (tmp_path / "1.png").read_bytes()
    candidates = rows(tmp_path / "out", "candidates")
    assert len(candidates) == 3
    assert json.loads(candidates[0]["provenance"])["prompt"] == "make the person wear glasses"

    # The same picture under another name is the same, and so is what is made of it.
    before = {config: rows(tmp_path / "out", config)[:3] for config in ("sources", "candidates", "pairs")}
    (tmp_path / "0.png").rename(tmp_path / "zero.png")
    (tmp_path / "photos.csv").write_text("\n".join(lines).replace("0.png", "zero.png"), encoding="utf-8")
    for folder in ("out", "fresh"):
        with pytest.warns(UserWarning, match="no GPU"):
            assert call(capsys, "build", recipe, "--out", tmp_path / folder).status == 0
        assert {config: rows(tmp_path / folder, config)[:3] for config in before} == before
    lines = [line.replace("0.png", "zero.png") for line in lines]

    # The sources of a built dataset are photos, too; what had a fault is left out.
    changed(recipe, "", ('"photos.csv"', '"out"'))
    with pytest.warns(UserWarning, match="no GPU"):
        assert call(capsys, "build", recipe, "--out", tmp_path / "again").status == 0
    assert [row["sha256"] for row in rows(tmp_path / "again", "sources")] == [
        row["sha256"] for row in sources[:3]
    ]
    changed(recipe, "", ('"out"', '"photos.csv"'))
    for line, words in (
        (lines[1], "row 7: variation 0 of 'someone' (WF) is there already"),
        ("2.png,someone,WF,9", "'2.png' and '2.png' hold the same picture"),
        ("2.png,someone,WF,99999999999", "row 7: variation must be a whole number from 0 to 2147483647"),
    ):
        (tmp_path / "photos.csv").write_text("\n".join([*lines, line]), encoding="utf-8")
        result = call(capsys, "build", recipe, "--out", tmp_path / "out", "--dry-run")
        assert_one_line(result, words)


def test_another_precision_edits_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU is feigned: the precision of a recipe is in force only on one."""
    recipe, _ = instructed(tmp_path)
    with pytest.warns(UserWarning, match="no GPU"):
        assert call(capsys, "build", recipe, "--out", tmp_path / "cpu").status == 0
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(StableDiffusionInstructPix2PixPipeline, "to", lambda pipeline, _: pipeline)
    assert call(capsys, "build", recipe, "--out", tmp_path / "cpu").status == 0
    changed(recipe, "", ("one_face = false\neditor", 'one_face = false\nprecision = "bfloat16"\neditor'))
    assert call(capsys, "build", recipe, "--out", tmp_path / "cpu").status == 0
    assert call(capsys, "build", recipe, "--out", tmp_path / "fresh").status == 0
    resumed, fresh = rows(tmp_path / "cpu", "candidates"), rows(tmp_path / "fresh", "candidates")
    assert {json.loads(row["provenance"])["precision"] for row in resumed} == {"bfloat16"}
    assert [row["sha256"] for row in resumed] == [row["sha256"] for row in fresh]
    assert len(list((tmp_path / "cpu" / ".build" / "edit").glob("*.parquet"))) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('"editor",', '"editor", pipeline = "NoSuchPipeline",'), "got 'NoSuchPipeline'"),
        (('"editor",', '"editor", pipeline = "AutoencoderKL",'), "must name a pipeline class of diffusers"),
        (('"editor",', '"editor", pipeline = "StableDiffusionPipeline",'), "must take 'image' to edit"),
        (("steps = 2", 'steps = 2, prompt = "x"'), "edit.editor.call must not set 'prompt'"),
        (("steps = 2", "steps = 2, num_images_per_prompt = 2"), "must not set 'num_images_per_prompt'"),
        (("steps = 2", "steps = 0"), "edit.editor.call.num_inference_steps must be a whole number from 1 on"),
        (("steps = 2", "steps = 2.5"), "num_inference_steps must be a whole number from 1 on, got 2.5"),
        (("steps = 2", "steps = 2, guidance_scal = 2"), "doesn't take (did you mean 'guidance_scale'?)"),
        (
            ("steps = 2", "steps = 2, guidance_scale = inf"),
            "'edit.editor.call': 'guidance_scale' must be a finite",
        ),
        (("steps = 2", "steps = 2, guidance_scale = nan"), "got nan"),
        (("steps = 2", "steps = 2, x = { y = [2020-01-01] }"), "'edit.editor.call': 'x.y' must be a finite"),
        (('"editor",', "3,"), "'edit.editor.checkpoint': Input should be a valid string, got 3"),
        (
            ("one_face = false\neditor", 'one_face = false\ninstructions = { glases = "x" }\neditor'),
            "edit.instructions names 'glases', which edit.attributes doesn't (did you mean 'glasses'?)",
        ),
    ],
)
def test_an_editor_that_can_not_be_called_is_refused_before_anything_is_made(
    tmp_path: Path, change: tuple[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, _ = instructed(tmp_path)
    changed(recipe, "", change)
    assert_one_line(call(capsys, "build", recipe, "--out", tmp_path / "out"), words)
    assert not list((tmp_path / "out").rglob("*.parquet"))


@pytest.mark.parametrize("more", [(), ("--candidates", "demo")], ids=["build", "given"])
def test_photos_of_a_group_that_the_taxonomy_drops_are_refused(
    tmp_path: Path, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, _ = instructed(tmp_path)
    changed(recipe, "", ('licence = "other"', 'licence = "other"\ntaxonomy = "taxonomy.toml"'))
    changed(tmp_path / "taxonomy.toml", TAXONOMY.replace('"IF"]', '"IF", "WF"]'))
    options = [ROOT / "dataset_builder" / option if option == "demo" else option for option in more]
    result = call(capsys, "build", recipe, "--out", tmp_path / "out", *options)
    assert_one_line(result, "photos.csv names group 'WF', but the taxonomy's groups are WM;")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_no_build_made_is_left_alone(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    (mine / "sources").mkdir(parents=True)
    (mine / "sources" / "photo.png").write_bytes(b"mine")
    for more in ((), ("--tune",), ("--share", "1/2"), ("--candidates", tmp_path)):
        result = call(capsys, "build", recipe, "--out", mine, *more)
        assert_one_line(result, "must be a new or empty folder, or one that a build made")
    assert files_of(mine) == {"sources/photo.png": b"mine"}


def test_a_damaged_batch_size_says_what_to_delete(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(recipe, "", ("batch_size = 8", 'batch_size = "auto"'))
    work = tmp_path / "out" / ".build"
    work.mkdir(parents=True)
    for text in ('{"batch', '{"batch_size": 0}', "[]"):
        (work / "batch_size.json").write_text(text, encoding="utf-8")
        result = call(capsys, "build", recipe, "--out", tmp_path / "out")
        assert_one_line(result, "batch_size.json must hold")


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("tiny.toml", ('"smile"]', '"smile", "glasses"]'), "'glasses' is there twice"),
        ("tiny.toml", ("tries = 3", 'tries = 3\ntemplate = "{name} {age}"'), "and no other braces"),
        ("tiny.toml", ("tries = 3", 'tries = 3\ntemplate = "{name} {"'), "and no other braces"),
        ("names.csv", ("cd,WM", " ab ,WM"), "'ab' is in group WM already"),
        ("tiny.toml", ("kept = 2", "kept = 4"), "kept must be at most tries = 3, got 4"),
        ("tiny.toml", ('embedder = "', 'embedder = ""\n#'), "unknown target ''"),
        ("tiny.toml", ('"smile"]', '"blond"]'), "names 'blond', not in taxonomy 'two'"),
        (
            "tiny.toml",
            ('"smile"]', '"smile"]\npushd = 2'),
            "unknown key 'edit.pushd' (did you mean 'pushed'?)",
        ),
        ("tiny.toml", ('"checkpoint"', '"nowhere"'), "no checkpoint 'nowhere'"),
        ("tiny.toml", ('method = "sega"', 'method = "render"'), "unknown key 'edit.one_face'"),
        ("names.csv", ("name,group", "name,grp"), "a name list needs a column 'group'"),
        ("names.csv", ("WF", "WX"), "the taxonomy has no group 'WX'"),
        ("names.csv", ("cd,WM\nef,WM\n", ""), ""),
        ("tiny.toml", ('"sega"', '"sega"\npushed = inf'), "'edit.pushed': Input should be a finite number"),
        (
            "tiny.toml",
            ("steps = 12", "steps = 12\nguidance_scale = inf"),
            "'source.guidance_scale': Input should",
        ),
        ("taxonomy.toml", ('"IF"]', ']\n[attributes.glasses]\ntitle = "G"\ncategory = "a"'), "transition"),
    ],
)
def test_bad_input(
    recipe: Path,
    file: str,
    change: tuple[str, str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    changed(tmp_path / file, "", change)
    result = call(capsys, "build", recipe, "--out", tmp_path / "out", *(() if words else ("--dry-run",)))
    if words:
        assert_one_line(result, words)
        assert not (tmp_path / "out" / "README.md").exists()
    else:
        assert "source faces      8" in result.out


def test_a_face_beside_another_is_rejected(tmp_path: Path) -> None:
    from dataset_builder.generate.one_face import OneFace

    head = read_faces(ROOT / "dataset_builder" / "demo" / "sources.parquet")[0].read()
    one = decode(head, "head").image
    two = Image.new("RGB", (2 * one.width, one.height))
    two.paste(one, (0, 0))
    two.paste(one, (one.width, 0))
    none = Image.fromarray(np.full((288, 288, 3), 120, dtype=np.uint8))
    check = OneFace()
    assert [check.fault(image) for image in (one, two, none)] == ["", "several_faces", "no_face"]
    assert [check.fault(image, may_hide=True) for image in (one, two, none)] == ["", "several_faces", ""]


def test_pictures_of_several_people_are_rejected_with_their_reason(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Noise shows no face: with the check on, every source is rejected, and nothing is edited."""
    changed(recipe, "", ("one_face = false\nsteps", "one_face = true\nsteps"))
    with pytest.warns(UserWarning, match="no GPU"):
        assert call(capsys, "build", recipe, "--out", tmp_path / "out", "--limit", 2).status == 0
    assert {row["fault"] for row in rows(tmp_path / "out", "sources")} == {"no_face"}
    assert rows(tmp_path / "out", "candidates") == []


def test_batches_cut_no_family_apart() -> None:
    assert list(batched("aabbbcdddde", 4, str)) == [["a", "a"], list("bbbc"), list("dddd"), ["e"]]
    assert list(batched("aaab", 2, str)) == [list("aaa"), ["b"]]
    assert list(batched("", 2, str)) == []
