"""The build from recipe to dataset, on tiny rendered heads: real stages, real files, real kills."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dataset_builder.store import StoredFace, read_faces
from targets.images import decode
from tests.support import FACEDELTA, ROOT, Result, call, command

pytest.importorskip("mitsuba", reason="the packages that render heads are not installed")

RECIPE = """
name = "tiny"
title = "Tiny heads"
licence = "cc0-1.0"
batch_size = {batch}

[source]
method = "render"
seeds = "seeds.toml"
variations = {variations}
size = 64
samples = 1

[edit]
method = "render"
attributes = ["glasses", "old"]
distorted = {distorted}
"""


def recipe(
    folder: Path, seeds: str = "AM = [1]", batch: int = 1, variations: int = 1, distorted: float = 0.0
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny.toml"
    text = RECIPE.format(batch=batch, variations=variations, distorted=distorted)
    path.write_text(text, encoding="utf-8")
    (folder / "seeds.toml").write_text(f"[seeds]\n{seeds}\n", encoding="utf-8")
    return path


def files_of(dataset: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(dataset)): path.read_bytes() for path in dataset.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    path = recipe(folder, seeds="AM = [1]\nBF = [2]", batch=3, distorted=0.5)
    result = command("build", path, "--out", folder / "dataset")
    assert result.status == 0, result.err
    return folder / "dataset"


@pytest.mark.slow
def test_every_config_loads_and_pictures_keep_their_bytes(built: Path) -> None:
    from datasets import Image, load_dataset

    data = {
        name: load_dataset(str(built), name, split="train")
        for name in ("pairs", "sources", "candidates", "verdicts")
    }
    assert (len(data["sources"]), len(data["candidates"]), len(data["verdicts"])) == (2, 4, 4)
    assert load_dataset(str(built), split="train").column_names == data["pairs"].column_names
    stored = {
        row["sha256"]: row["picture"]
        for shard in sorted((built / ".build").glob("*/*.parquet"))
        for row in pq.read_table(shard).to_pylist()
    }
    raw = data["candidates"].cast_column("image", Image(decode=False))
    assert all(row["image"]["bytes"] == stored[row["sha256"]] for row in raw)
    verdicts = {row["pair_id"]: row for row in data["verdicts"]}
    kept = {pair_id for pair_id, row in verdicts.items() if row["kept"]}
    assert {row["pair_id"] for row in data["pairs"]} == kept
    assert all(verdicts[name]["reason"] == "distorted" for name in verdicts.keys() - kept)
    for row in data["pairs"]:
        assert data["pairs"].features["demographic"].int2str(row["demographic"]) in row["identity"]
        provenance = json.loads(row["provenance"])
        assert provenance["generator"] == "rendered-heads/1"
        assert provenance["attribute"] == data["pairs"].features["attribute"].int2str(row["attribute"])
        attribute = provenance["attribute"]
        assert row["transformed_labels"][attribute] == "yes"
        assert row["source_labels"][attribute] == "no"


@pytest.mark.slow
def test_the_card_counts_what_the_verdicts_say(built: Path) -> None:
    card = (built / "README.md").read_text(encoding="utf-8")
    verdicts = pq.read_table(built / "verdicts").to_pylist()
    kept = sum(row["kept"] for row in verdicts)
    assert f"{kept} counterfactual pairs, filtered from 4 candidates over 2" in card
    assert "| the transformed face is distorted |" in card
    assert "license: cc0-1.0" in card


def test_an_audit_reads_the_dataset(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "flat.py"
    target.write_text(
        "import numpy as np\nclass Flat:\n    concepts = ('mean',)\n    def score(self, images):\n"
        "        return np.array([[np.asarray(image).mean()] for image in images])\n",
        encoding="utf-8",
    )
    result = call(capsys, "audit", built, "--target", f"{target}:Flat", "--out", tmp_path / "run")
    assert result.status == 0, result.err
    record = json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))
    kept = sum(row["kept"] for row in pq.read_table(built / "verdicts").to_pylist())
    assert sum(cell["n_pairs"] for cell in record["cells"]) == kept
    assert record["data"]["kind"] == "dataset"


@pytest.mark.slow
def test_killed_at_five_random_moments_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    path = recipe(tmp_path / "recipe")
    calm, disturbed = tmp_path / "calm", tmp_path / "disturbed"
    assert command("build", path, "--out", calm).status == 0
    moments = random.Random(5)
    killed = 0
    # Before anything is made, after the source face, after its edits, and twice at the start of what is left.
    for shards in (0, 1, 2, 2, 2):
        process = subprocess.Popen(
            [str(FACEDELTA), "build", str(path), "--out", str(disturbed)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and len(list(disturbed.glob(".build/*/*.parquet"))) < shards:
            time.sleep(0.01)
        time.sleep(moments.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed >= 4
    assert command("build", path, "--out", disturbed).status == 0
    assert files_of(disturbed) == files_of(calm)


def test_a_second_build_renders_nothing_and_a_changed_recipe_renders_anew(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "dataset"
    shutil.copytree(built, copy)
    shards = {path: path.stat().st_mtime_ns for path in (copy / ".build").rglob("*.parquet")}
    path = recipe(tmp_path / "recipe", seeds="AM = [1]\nBF = [2]", batch=3, distorted=0.5)
    assert call(capsys, "build", path, "--out", copy).status == 0
    assert {path: path.stat().st_mtime_ns for path in (copy / ".build").rglob("*.parquet")} == shards
    strict = path.read_text(encoding="utf-8") + '\n[filter]\nspecificity = "no_gain"\n'
    path.write_text(strict, encoding="utf-8")
    assert call(capsys, "build", path, "--out", copy).status == 0
    assert {path: path.stat().st_mtime_ns for path in (copy / ".build").rglob("*.parquet")} == shards


def test_a_dry_run_counts_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recipe(tmp_path, seeds="AM = [1, 2]\nBF = [3]", variations=2)
    result = call(capsys, "build", path, "--out", tmp_path / "out", "--dry-run")
    assert result.status == 0
    assert "source faces      6" in result.out
    assert "transformed faces 12" in result.out
    assert "CPU hours" in result.out
    limited = call(capsys, "build", path, "--out", tmp_path / "out", "--dry-run", "--limit", 2)
    assert "source faces      4" in limited.out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('method = "render"', 'method = "rendr"'), "source.method"),
        (("batch_size", "batchsize"), "unknown key 'batchsize' (did you mean 'batch_size'?)"),
        (('"old"', '"oldd"'), "did you mean 'old'?"),
        (('"old"', '"pigtails"'), "rendering can't apply 'pigtails'"),
        (("seeds.toml", "none.toml"), "no such file"),
        (('licence = "cc0-1.0"', 'licence = "cc0-1.0"\ntaxonomy = "papr"'), "did you mean 'paper'?"),
        (
            ("distorted = 0.0", 'distorted = 0.0\n[detect]\ndistortion = "none.json"'),
            "no such distortion model",
        ),
    ],
)
def test_a_bad_recipe_is_one_clear_line(
    tmp_path: Path, change: tuple[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recipe(tmp_path)
    text = path.read_text(encoding="utf-8").replace(*change)
    assert text != path.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    more = ("--dry-run",) if "detect" not in text else ("--candidates", tmp_path)
    for name in ("sources.parquet", "candidates.parquet"):
        (tmp_path / name).write_bytes(b"")
    result = call(capsys, "build", path, "--out", tmp_path / "out", *more)
    assert_one_line(result, words)


def assert_one_line(result: Result, words: str) -> None:
    assert result.status == 2
    assert result.err.count("\n") == 1, result.err
    assert words in result.err


def test_seeds_must_be_whole_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seeds, words in (("AM = [1.5]", "list of whole numbers"), ("", "must have a table [seeds]")):
        path = recipe(tmp_path, seeds=seeds)
        assert_one_line(call(capsys, "build", path, "--out", tmp_path / "out", "--dry-run"), words)


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ("AX = [1]", "seeds.toml: seeds names 'AX', but the taxonomy's groups are AM, AF, BM"),
        (
            "AM = [-1]",
            "seeds.toml: seeds.AM must be a list of whole numbers from 0 on, at least one, got [-1]",
        ),
        ("AM = [1]\nBF = []", "seeds.toml: seeds.BF must be a list of whole numbers from 0 on, at least one"),
        ("AM = [1, 2, 1]", "seeds.toml: seeds.AM may hold each seed once, 1 is there twice"),
    ],
)
@pytest.mark.parametrize(
    "more", [(), ("--dry-run",), ("--candidates", "demo")], ids=["build", "plan", "given"]
)
def test_seeds_that_give_no_dataset_are_refused_before_anything_is_made(
    tmp_path: Path, seeds: str, words: str, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = recipe(tmp_path, seeds=seeds), tmp_path / "out"
    options = [ROOT / "dataset_builder" / option if option == "demo" else option for option in more]
    assert_one_line(call(capsys, "build", path, "--out", out, *options), words)
    assert not out.exists()


@pytest.mark.parametrize("more", [(), ("--candidates", "demo")], ids=["build", "given"])
def test_a_group_that_the_taxonomy_drops_is_refused_before_anything_is_made(
    tmp_path: Path, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = recipe(tmp_path, seeds="AM = [1]\nBF = [2]"), tmp_path / "out"
    path.write_text('taxonomy = "less.toml"\n' + path.read_text(encoding="utf-8"), encoding="utf-8")
    less = 'name = "less"\nextends = "paper"\ndrop = ["BF"]\n'
    (tmp_path / "less.toml").write_text(less, encoding="utf-8")
    options = [ROOT / "dataset_builder" / option if option == "demo" else option for option in more]
    words = "seeds names 'BF', but the taxonomy's groups are AM, AF, BM, IM, IF, WM, WF;"
    assert_one_line(call(capsys, "build", path, "--out", out, *options), words)
    assert not out.exists()


def test_a_group_that_rendering_does_not_know_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recipe(tmp_path, seeds="XF = [1]")
    path.write_text('taxonomy = "more.toml"\n' + path.read_text(encoding="utf-8"), encoding="utf-8")
    more = 'name = "more"\nextends = "paper"\n[groups.XF]\ntitle = "X"\nethnicity = "X"\nsex = "female"\n'
    (tmp_path / "more.toml").write_text(more, encoding="utf-8")
    result = call(capsys, "build", path, "--out", tmp_path / "out")
    assert_one_line(result, "seeds must name groups of AM, AF, IM, IF, WM, WF, BM, BF to render, got 'XF'")


def test_unknown_recipe_and_missing_candidates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "build", "dmo", "--out", tmp_path / "out")
    assert_one_line(result, "unknown recipe 'dmo'")
    result = call(capsys, "build", recipe(tmp_path), "--out", tmp_path / "out", "--candidates", tmp_path)
    assert_one_line(result, "sources.parquet is missing")


@pytest.mark.slow
def test_the_demo_recipe_renders_what_ships(tmp_path: Path) -> None:
    """Two identities from seeds to dataset, and the pictures are those that ship with the package."""
    out = tmp_path / "out"
    result = command("build", "demo", "--out", out, "--limit", 2, "--no-progress")
    assert result.status == 0, result.err
    assert "32 candidates" in result.out
    made = [
        face for shard in sorted((out / ".build" / "edit").glob("*.parquet")) for face in read_faces(shard)
    ]
    shipped = {
        (face.identity, face.variation, face.attribute): face
        for face in read_faces(ROOT / "dataset_builder" / "demo" / "candidates.parquet")
    }
    assert len(made) == 32
    for face in made:
        twin = shipped[face.identity, face.variation, face.attribute]
        assert (face.labels, face.age, face.distorted) == (twin.labels, twin.age, twin.distorted)
        difference = np.abs(pixels(face) - pixels(twin)).mean()
        assert difference < 1.5, f"{face.identity} {face.attribute}: mean difference {difference:.2f} of 255"


def pixels(face: StoredFace) -> np.ndarray:
    return np.asarray(decode(face.read(), face.identity).image, dtype=float)
