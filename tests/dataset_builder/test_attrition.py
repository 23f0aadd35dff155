"""The funnel as a table, and the tests of whether groups lose the same share."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from dataset_builder.attrition import attrition_tests, in_words
from dataset_builder.funnel import Decided
from harness.stats.proportions import clustered_proportion
from tests.coded import coded_face, labels, write_candidates, write_recipe
from tests.support import call

GROUPS = ("WM", "BF", "AM")


def decided(shares: dict[str, float], attribute: str = "glasses", identities: int = 30) -> list[Decided]:
    rng = np.random.default_rng(4)
    return [
        Decided(attribute, group, f"{group}-{identity}", "distorted" if rng.random() < share else None)
        for group, share in shares.items()
        for identity in range(identities)
        for _ in range(4)
    ]


def test_a_group_that_loses_more_is_found_and_equal_ones_are_not() -> None:
    items = [
        *decided({"WM": 0.1, "BF": 0.6, "AM": 0.1}),
        *decided({"WM": 0.3, "BF": 0.3, "AM": 0.3}, "smile"),
    ]
    unequal, equal, rule = attrition_tests(items, ["glasses", "smile", "scarf"], GROUPS)
    assert (unequal.attribute, equal.attribute, rule.rule) == ("glasses", "smile", "distorted")
    assert unequal.p is not None
    assert unequal.p_adjusted is not None
    assert unequal.p_adjusted < 1e-6
    assert unequal.p_adjusted == pytest.approx(2 * unequal.p)
    assert (unequal.family_size, rule.family_size) == (2, 1)
    assert equal.p_adjusted is not None
    assert equal.p_adjusted > 0.01
    assert list(unequal.shares) == list(GROUPS)
    assert "BF" in in_words(unequal, "glasses")


def test_a_group_that_loses_nothing_is_named_beside_the_test() -> None:
    (test, _) = attrition_tests(decided({"WM": 0.0, "BF": 0.5, "AM": 0.4}), ["glasses"], GROUPS)
    assert test.left_out == ("WM",)
    assert test.shares["WM"] == 0.0
    assert "all or nothing lost: WM" in in_words(test, "glasses")


def test_without_a_variance_there_is_no_test_and_no_p() -> None:
    (test,) = attrition_tests(decided({"WM": 0.0, "BF": 0.0}), ["glasses"], GROUPS)
    assert (test.p, test.p_adjusted, test.statistic) == (None, None, None)
    assert "no test" in in_words(test, "glasses")


@pytest.fixture
def dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    sources, edits = [], []
    for identity in range(12):
        group = ("WM", "BF")[identity % 2]
        sources.append(coded_face(100 + 2 * identity, group, f"{group}-{identity}", labels()))
        fails = group == "BF" and identity < 9
        face = coded_face(
            101 + 2 * identity,
            group,
            f"{group}-{identity}",
            labels(*(() if fails else ("glasses",))),
            distorted="yes" if identity == 11 else "no",
        )
        edits.append((identity, "glasses", face))
    write_candidates(tmp_path, sources, iter(edits))
    recipe = write_recipe(tmp_path, ["glasses"])
    out = tmp_path / "dataset"
    result = call(capsys, "build", recipe, "--out", out, "--candidates", tmp_path, "--no-progress")
    assert result.status == 0, result.err
    return out


def test_candidates_of_another_recipe_are_refused(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = write_recipe(tmp_path, ["smile"]), tmp_path / "other"
    result = call(capsys, "build", recipe, "--out", out, "--candidates", tmp_path, "--no-progress")
    assert result.status == 2
    assert "holds glasses, which edit.attributes doesn't name (smile)" in result.err
    assert not out.exists()


def test_the_funnel_in_three_styles(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "table", dataset, "--funnel", "--format", "csv")
    rows = {row["demographic"]: row for row in csv.DictReader(io.StringIO(result.out))}
    assert len(rows) == 8
    assert (rows["WM"]["candidates"], rows["WM"]["kept"], rows["WM"]["share"]) == ("6", "6", "1.0")
    assert (rows["BF"]["kept"], rows["BF"]["rejected_attribute_absent"]) == ("1", "4")
    assert rows["BF"]["rejected_distorted"] == "1"
    found = clustered_proportion([1, 0, 0, 0, 0, 0], range(6), level=0.999)
    assert (float(rows["BF"]["low"]), float(rows["BF"]["high"])) == (found.low, found.high)
    assert (rows["AF"]["candidates"], rows["AF"]["share"], rows["AF"]["low"]) == ("0", "", "")
    for style in ("terminal", "markdown"):
        text = call(capsys, "table", dataset, "--funnel", "--format", style).out
        assert f"1 of 6 {'[' if style == 'terminal' else chr(92) + '['}{found.low:.2f}" in text
        assert "Games-Howell" in text


def test_the_card_says_whom_the_filter_cost_more(dataset: Path) -> None:
    card = (dataset / "README.md").read_text(encoding="utf-8")
    assert "## Attrition" in card
    assert "- glasses: " in card
    assert "random sample of candidates" in card
    assert "| attribute_absent |" in card


def test_the_funnels_level_is_asked_for(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    widths = []
    for level in (0.9, 0.999):
        text = call(capsys, "table", dataset, "--funnel", "--format", "csv", "--level", level).out
        rows = [row for row in csv.DictReader(io.StringIO(text)) if row["low"]]
        assert {float(row["level"]) for row in rows} == {level}
        widths.append([float(row["high"]) - float(row["low"]) for row in rows])
    assert all(one < other for one, other in zip(*widths, strict=True))
    assert "90 % Wilson" in call(capsys, "table", dataset, "--funnel", "--level", 0.9).out


def test_a_funnel_of_something_else_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = call(capsys, "table", tmp_path, "--funnel")
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "is no built dataset: it has no config 'verdicts'" in result.err
