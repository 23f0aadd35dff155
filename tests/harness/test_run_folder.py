"""A run's folder: nothing of an earlier run stays, nothing of anybody else goes, one writer at a time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from harness.demo import SFACE_THRESHOLD
from tests.harness.runs import spread, write_deltas
from tests.support import Result, call, drawn_pairs, write_csv

COLUMNS = ("pair_id", "identity", "demographic", "attribute", "concept", "source_score", "transformed_score")
EMBEDDER = """
import numpy as np

class Embedder:
    def embed(self, images):
        return np.array([[image.getpixel((i, 80))[0] + 1.0 + i % 3 for i in range(40)] for image in images])
"""


def scores(path: Path) -> Path:
    return write_csv(path, COLUMNS, [(i, i, "WM", "glasses", "smile", 0.2, 0.3 + i / 100) for i in range(5)])


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def run(out: Path) -> Result:
        return call(capsys, "audit", "--scores", scores(tmp_path / "scores.csv"), "--out", out)

    return run


def recogniser(tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run with everything that a run may hold."""
    (tmp_path / "embedder.py").write_text(EMBEDDER, encoding="utf-8")
    target = f"{tmp_path / 'embedder.py'}:Embedder"
    pairs = drawn_pairs(tmp_path)
    threshold = ("--match-threshold", SFACE_THRESHOLD)
    assert call(capsys, "audit", pairs, "--target", target, "--out", out, *threshold).status == 0
    assert call(capsys, "report", out).status == 0


def test_nothing_of_an_earlier_run_stays_and_nothing_else_goes(
    tmp_path: Path, audit, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(tmp_path / "alone").status == 0
    out = tmp_path / "run"
    recogniser(tmp_path, out, capsys)
    held = names(out)
    assert {"report.html", "figures/det.png", "tables/recognition.csv", "comparisons.parquet"} <= held
    mine = {"notes.txt", "tables/mine.csv", "figures/det.jpg", "cache/mine/key.json", ".mine.0123abcd.tmp"}
    for name in mine:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("{}", encoding="utf-8")
    for name in (".pairs.parquet.0123abcd.tmp", "tables/.deltas.md.0123abcd.tmp"):
        (out / name).write_text("torn", encoding="utf-8")
    assert audit(out).status == 0
    assert names(out) == names(tmp_path / "alone") | mine


def test_a_new_baseline_holds_nothing_of_the_old_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = {("sunglasses", "WM"): spread(40, 0.3, 0.1)}
    base, new = (write_deltas(tmp_path / name, cells) for name in ("base", "new"))
    for name in (
        "report.html",
        "figures/det.svg",
        "tables/det.csv",
        "tables/deltas.md",
        "comparisons.parquet",
    ):
        (base / name).parent.mkdir(exist_ok=True)
        (base / name).write_text("old", encoding="utf-8")
    (base / "README.md").write_text("mine", encoding="utf-8")
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[[rule]]\nmetric = "delta"\nattribute = "sunglasses"\nconcept = "sunglass"\nharmful = "both"\n'
        "margin = 0.05\n",
        encoding="utf-8",
    )
    arguments = ("--policy", policy, "--update-baseline")
    assert call(capsys, "gate", new, "--baseline", base, *arguments).status == 0
    held = {name for name in names(base) if not name.startswith(("anchor/", ".facedelta"))}
    assert held == names(new) | {"README.md"}
    for name in names(new):
        assert (base / name).read_bytes() == (new / name).read_bytes()
    for same in (new, new / "record.json"):
        result = call(capsys, "gate", same, "--baseline", new, *arguments)
        assert result.status == 2
        assert "must not be the baseline itself" in result.err
    assert (new / "record.json").exists()


@pytest.mark.parametrize("place", ["project", "file", "link", "foreign record"])
def test_a_folder_without_a_run_is_refused_and_left_as_it_was(tmp_path: Path, audit, place: str) -> None:
    out = tmp_path / "out"
    if place == "file":
        out.write_text("mine", encoding="utf-8")
    elif place == "link":
        out.symlink_to(tmp_path / "nowhere")
    else:
        for name in ("cache/models.bin", ".notes.0123abcd.tmp", "report.html", "tables/cells.csv"):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text("mine", encoding="utf-8")
    if place == "foreign record":
        (out / "record.json").write_text('{"schema": "theirs"}', encoding="utf-8")
    before = names(tmp_path) | {"scores.csv"}
    result = audit(out)
    assert result.status == 2
    assert result.err.startswith("error: --out ")
    assert result.err.count("\n") == 1
    assert names(tmp_path) == before


def test_two_audits_are_not_at_work_in_one_folder(tmp_path: Path, audit) -> None:
    out = tmp_path / "run"
    assert audit(out).status == 0
    before = (out / "record.json").read_bytes()
    with FileLock(out / ".facedelta.lock"):
        result = audit(out)
    assert result.status == 2
    assert "another run is at work" in result.err
    assert (out / "record.json").read_bytes() == before
    assert audit(out).status == 0


def test_an_audit_that_can_not_start_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for out in (tmp_path / "new", tmp_path / "empty"):
        if out.name == "empty":
            out.mkdir()
        assert call(capsys, "audit", "--scores", tmp_path / "none.csv", "--out", out).status == 2
        assert (out.exists(), names(out)) == (out.name == "empty", set())


def test_a_build_takes_no_folder_of_another_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Swift keeps a ``.build``, and many tools a ``build.json``."""
    swift, other = tmp_path / "swift", tmp_path / "other"
    (swift / ".build" / "release").mkdir(parents=True)
    other.mkdir()
    (other / "build.json").write_text('{"target": "release"}', encoding="utf-8")
    for folder in (swift, other):
        (folder / "README.md").write_text("mine", encoding="utf-8")
        result = call(capsys, "build", "demo", "--out", folder, "--limit", 1)
        assert result.status == 2
        assert "must be a new or empty folder" in result.err
        assert (folder / "README.md").read_text(encoding="utf-8") == "mine"
    shutil.rmtree(swift)
