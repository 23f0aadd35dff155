"""What the filter does to a difference: really asked about, or not available with a reason."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.stats.selection import FilteredGroup, lee_bounds, lee_interval
from harness.table_command import Format
from tests.dataset_builder.test_detectors import drawn_candidates, recipe, verdicts_of
from tests.harness.test_reasons import check_reasons
from tests.support import Result, call, write_csv

MEAN = """
import numpy as np

class Mean:
    concepts = ("mean",)
    card = {{"name": "mean", "weights": {weights}}}

    def score(self, images):
        return np.array([[np.asarray(image).mean() / 255] for image in images])
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built dataset with 27 sources and 54 candidates, of which a third are rejected."""
    from typer.testing import CliRunner

    from harness.cli import app

    folder = tmp_path_factory.mktemp("filtered")
    path = recipe(folder / "recipe")
    path.write_text(path.read_text(encoding="utf-8") + '\n[filter]\nunknown = "accept"\n', encoding="utf-8")
    arguments = [
        "build",
        path,
        "--out",
        folder / "dataset",
        "--candidates",
        drawn_candidates(folder / "drawn"),
    ]
    assert CliRunner().invoke(app, [str(word) for word in arguments]).exit_code == 0
    return folder / "dataset"


def record_of(run: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((run / "record.json").read_text(encoding="utf-8"))
    return data


def exported(
    capsys: pytest.CaptureFixture[str], dataset: Path, folder: Path, *more: str
) -> list[dict[str, str]]:
    result = call(capsys, "capture", "export", dataset, "--out", folder, *more, "--no-progress")
    assert result.status == 0, result.err
    with (folder / "manifest.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def audited(
    capsys: pytest.CaptureFixture[str],
    dataset: Path,
    export: Path,
    answered: list[dict[str, str]],
    *more: str,
) -> tuple[Result, dict[str, Any]]:
    rng = np.random.default_rng(3)
    rows = [
        (row["file_name"], "face", value)
        for row, value in zip(answered, rng.random(len(answered)), strict=True)
    ]
    log = write_csv(export.parent / "log.csv", ("image", "concept", "score"), rows)
    run = export.parent / "run"
    result = call(
        capsys, "audit", dataset, "--target", f"captured:{log}", "--set",
        f"manifest={export / 'manifest.csv'}", "--out", run, *more,
    )  # fmt: skip
    assert result.status == 0, result.err
    check_reasons(run)
    return result, record_of(run)


def test_an_export_holds_the_rejected_candidates_and_names_them(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = exported(capsys, dataset, tmp_path / "all")
    verdicts = verdicts_of(dataset)
    rejected = {name for name, row in verdicts.items() if not row["kept"]}
    assert rejected
    named = {name for row in manifest for name in row["pair_ids"].split()}
    assert named == set(verdicts)
    only = [row for row in manifest if row["used_by"] == "rejected candidates only"]
    assert {name for row in only for name in row["pair_ids"].split()} >= rejected
    assert all((tmp_path / "all" / row["file_name"]).is_file() for row in manifest)
    few = exported(capsys, dataset, tmp_path / "few", "--no-candidates")
    assert {name for row in few for name in row["pair_ids"].split()} == set(verdicts) - rejected

    _, record = audited(capsys, dataset, tmp_path / "all", manifest)
    assert record["selection_state"] == {
        "status": "ok", "reason": "", "rejected": len(rejected), "unanswered": 0
    }  # fmt: skip
    for check in record["selection"]:
        for side in "ab":
            own = [
                row["kept"]
                for name, row in verdicts.items()
                if name.startswith(check[side]) and name.endswith(check["attribute"])
            ]
            assert check[f"keep_{side}"] == pytest.approx(np.mean(own))
        assert (
            check["lee_ci"]["low"] < check["lee_low"] <= check["lee_high"] + 1e-12 < check["lee_ci"]["high"]
        )


def test_candidates_without_an_answer_are_not_taken_for_kept(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = exported(capsys, dataset, tmp_path / "few", "--no-candidates")
    result, record = audited(capsys, dataset, tmp_path / "few", few)
    assert record["selection"] == []
    assert record["selection_state"]["status"] == "not_available"
    assert record["selection_state"]["unanswered"] == record["selection_state"]["rejected"] > 0
    assert "without an answer" in record["selection_state"]["reason"]
    assert "What the filter does to differences is not available" in result.out
    assert not any("depends_on_filter" in json.dumps(entry) for entry in record["disparities"])


def test_one_silent_candidate_makes_its_groups_differences_not_available(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = exported(capsys, dataset, tmp_path / "all")
    only = [row for row in manifest if row["used_by"] == "rejected candidates only"]
    silent = next(row for row in only if row["pair_ids"].startswith("BF") and "glasses" in row["pair_ids"])
    result, record = audited(
        capsys, dataset, tmp_path / "all", [row for row in manifest if row is not silent]
    )
    assert record["selection_state"]["status"] == "partial"
    assert record["selection_state"]["unanswered"] == 1
    for check in record["selection"]:
        touched = check["attribute"] == "glasses" and "BF" in (check["a"], check["b"])
        assert (check["status"] == "not_available") == touched
        if touched:
            empty = ("candidates", "keep_a", "keep_b", "lee_low", "lee_high", "lee_ci", "depends_on_filter")
            assert [check[name] for name in empty] == [None] * len(empty)
            assert check["kept"] is not None
            assert "1 of" in check["reason"]
    assert "some differences is not available" in result.out
    report = call(capsys, "report", tmp_path / "run")
    assert report.status == 0, report.err
    assert "some differences is not available" in (tmp_path / "run" / "report.html").read_text(
        encoding="utf-8"
    )


def test_what_was_not_asked_about_says_why(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "mean.py"
    target.write_text(MEAN.format(weights="{}"), encoding="utf-8")
    run = tmp_path / "run"
    words = ("audit", dataset, "--target", f"{target}:Mean", "--out", run, "--no-candidates")
    assert call(capsys, *words).status == 0
    state = record_of(run)["selection_state"]
    assert (state["status"], "--no-candidates" in state["reason"]) == ("not_available", True)
    with (run / "scores.csv").open("w", encoding="utf-8") as stream:
        stream.write(
            "pair_id,identity,variation,demographic,attribute,concept,source_score,transformed_score\n"
        )
        for n in range(8):
            stream.write(f"p{n},i{n},1,{'AB'[n % 2]},hat,face,0.{n + 1},0.{9 - n}\n")
    assert call(capsys, "audit", "--scores", run / "scores.csv", "--out", tmp_path / "s").status == 0
    state = record_of(tmp_path / "s")["selection_state"]
    assert (state["status"], "without the candidates" in state["reason"]) == ("not_available", True)


@pytest.fixture
def judged_by_itself(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The run of a target whose weights stand in the dataset as those of a detector."""
    target = tmp_path / "mean.py"
    target.write_text(MEAN.format(weights="{'net': 'ab'}"), encoding="utf-8")
    from targets.catalogue import load_target

    build = dataset / "build.json"
    before = build.read_text(encoding="utf-8")
    digest = load_target(f"{target}:Mean").card.weights_digest
    build.write_text(json.dumps({**json.loads(before), "detectors": {"age": digest}}), encoding="utf-8")
    try:
        result = call(
            capsys,
            "audit",
            dataset,
            "--target",
            f"{target}:Mean",
            "--out",
            tmp_path / "run",
            "--margin",
            "0.1",
        )
    finally:
        build.write_text(before, encoding="utf-8")
    assert result.status == 0, result.err
    assert "the same weights filtered the dataset (age detector)" in result.out
    assert "mnibus" not in result.out
    return tmp_path / "run"


REASON = "the same weights filtered the dataset (age detector): no disparity may be claimed"


def test_a_model_that_filtered_the_pairs_claims_no_disparity_in_any_output(
    judged_by_itself: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = judged_by_itself
    record = record_of(run)
    assert record["filtered_by"] == ["age"]
    # The field decides, not the words of a warning.
    record["warnings"] = []
    (run / "record.json").write_text(json.dumps(record), encoding="utf-8")
    outputs = {
        (style, which): call(capsys, "table", run, "--format", style, *which).out
        for style in Format
        for which in ((), ("--differences",))
        if style not in (Format.MODEL_CARD, Format.EVERY_EVAL_EVER, Format.CSV)
    }
    outputs |= {
        (style, ()): call(
            capsys, "table", run, "--format", style,
            *(("--retrieved", "1") if style is Format.EVERY_EVAL_EVER else ()),
        ).out
        for style in (Format.MODEL_CARD, Format.EVERY_EVAL_EVER)
    }  # fmt: skip
    assert call(capsys, "report", run).status == 0
    outputs["report", ()] = (run / "report.html").read_text(encoding="utf-8")
    outputs["differences.csv", ()] = call(capsys, "table", run, "--differences", "--format", "csv").out
    other = run.parent / "other"
    other.mkdir()
    for name in ("record.json", "pairs.parquet"):
        (other / name).write_bytes((run / name).read_bytes())
    outputs["side by side", ()] = call(capsys, "table", run, other, "--format", "markdown").out
    for style in ("terminal", "markdown"):
        outputs["compare", (style,)] = call(capsys, "compare", run, other, "--format", style).out
    for name, text in outputs.items():
        plain = " ".join(text.replace("\\_", "_").split())
        assert REASON in plain, name
        for claim in ("mnibus test", "Games-Howell tests", "band that excludes", "band beyond 0"):
            assert claim not in plain, (name, claim)
    rows = list(csv.DictReader(outputs["differences.csv", ()].splitlines()))
    assert rows
    for row in rows:
        known = {"target", "by", "attribute", "concept", "a", "b", "no_claim"}
        assert {name for name, value in row.items() if value} == known


def test_a_model_without_a_digest_is_known_by_its_spec(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "mean.py"
    target.write_text(MEAN.format(weights="{}"), encoding="utf-8")
    copy = tmp_path / "dataset"
    shutil.copytree(dataset, copy)
    build = json.loads((copy / "build.json").read_text(encoding="utf-8"))
    build["detectors"] = {"attributes": f"{target}:Mean"}
    (copy / "build.json").write_text(json.dumps(build), encoding="utf-8")
    words = ("audit", copy, "--target", f"{target}:Mean", "--out", tmp_path / "run", "--no-candidates")
    assert call(capsys, *words).status == 0
    assert record_of(tmp_path / "run")["filtered_by"] == ["attributes"]


def test_the_gate_says_it_too(
    judged_by_itself: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[policy]\n[[rule]]\nmetric = "delta"\nattribute = "glasses"\nconcept = "mean"\ngroup = "*"\n'
        'harmful = "both"\nmargin = 0.5\nworst_change = 1\n',
        encoding="utf-8",
    )
    result = call(
        capsys, "gate", judged_by_itself, "--baseline", judged_by_itself, "--policy", policy,
        "--json", tmp_path / "gate.json",
    )  # fmt: skip
    assert REASON in " ".join(result.out.split())
    assert any(REASON in note for note in json.loads((tmp_path / "gate.json").read_text())["notes"])


# Lee's interval


def filtered(rng: np.random.Generator, people: int, shift: float, share: float) -> FilteredGroup:
    """Three pairs a person, half of the variance between people; kept by chance and by the delta."""
    who = np.repeat(np.arange(people), 3)
    deltas = np.sqrt(0.5) * (rng.normal(size=people)[who] + rng.normal(size=3 * people))
    kept = 0.7 * rng.random(3 * people) + 0.3 * (deltas > 0) * rng.random(3 * people) < share
    return FilteredGroup((deltas + shift)[kept], who[kept], who)


def test_lees_interval_holds_either_bound_as_often_as_it_says() -> None:
    """Where the truth is a bound, coverage is the level; 600 draws, so .95 has a standard error of .009."""
    rng = np.random.default_rng(8)
    a, b = (filtered(rng, 100_000, shift, share) for shift, share in ((0.0, 0.4), (0.5, 0.6)))
    truth = lee_bounds(a.deltas, len(a.candidate_people), b.deltas, len(b.candidate_people))
    hits = np.zeros(2)
    for _ in range(600):
        found = lee_interval(filtered(rng, 30, 0.0, 0.4), filtered(rng, 30, 0.5, 0.6), level=0.95)
        hits += [found.low <= end <= found.high for end in (truth.low, truth.high)]
    assert (hits / 600 > 0.92).all()
    assert (hits / 600 < 0.98).all()


def test_without_selection_lees_interval_is_that_of_a_difference() -> None:
    """All kept in both groups: no width, so c is the two-sided quantile (Imbens & Manski 2004, (7))."""
    rng = np.random.default_rng(5)
    sides = [filtered(rng, 400, shift, 2.0) for shift in (0.0, 1.0)]
    found = lee_interval(*sides, level=0.95)
    means = [np.array([side.deltas[side.people == who].mean() for who in range(400)]) for side in sides]
    half = 1.963 * np.sqrt(sum(mean.var(ddof=1) / 400 for mean in means))
    centre = means[1].mean() - means[0].mean()
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half), rel=2e-3)


def test_one_identity_has_no_interval() -> None:
    one = FilteredGroup(np.array([1.0, 2.0]), np.array([0, 0]), np.array([0, 0, 0]))
    assert lee_interval(one, filtered(np.random.default_rng(1), 9, 0.0, 0.5), level=0.9).status == "undefined"
