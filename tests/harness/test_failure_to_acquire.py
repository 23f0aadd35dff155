"""Failures to acquire, compared between groups and told first where they are large."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.support import Result, call, drawn_pairs, write_csv

GROUPS = ("WM", "BF", "AF")


def audited(
    folder: Path, capsys: pytest.CaptureFixture[str], failing: dict[str, int], people: int = 12
) -> tuple[Result, dict[str, Any]]:
    """A captured log without the transformed pictures of the first ``failing`` people of each group."""
    table = drawn_pairs(folder, groups=GROUPS, identities=people)
    rng = np.random.default_rng(1)
    with table.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    scored = [(row["source"], "face", rng.random()) for row in rows]
    scored += [
        (row["transformed"], "face", rng.random())
        for row in rows
        if int(row["identity"][2:]) >= failing.get(row["demographic"], 0)
    ]
    log = write_csv(folder / "log.csv", ("image", "concept", "score"), scored)
    result = call(
        capsys, "audit", table, "--target", f"captured:{log}", "--out", folder / "run", "--max-failures", "1"
    )
    assert result.status == 0, result.err
    return result, json.loads((folder / "run" / "record.json").read_text(encoding="utf-8"))


def identities(failing: int, people: int = 12) -> np.ndarray:
    """Shares of failures by identity, and the two identities more of a test (Agresti & Caffo 2000)."""
    return np.array([*np.repeat([1.0, 0.0], [failing, people - failing]), 0.0, 1.0])


def test_groups_that_lose_other_shares_are_found_and_told_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, record = audited(tmp_path, capsys, {"BF": 11})
    (entry,) = record["acquisition"]
    assert {own["group"]: own["share"] for own in entry["shares"]} == pytest.approx(
        {"WM": 0.0, "BF": 11 / 12, "AF": 0.0}
    )
    counts = {own["group"]: (own["failed"], own["n_pairs"]) for own in entry["shares"]}
    assert counts == {"WM": (0, 24), "BF": (22, 24), "AF": (0, 24)}
    assert {own["n_identities"] for own in entry["shares"]} == {12}
    # Both pairs of an identity fail or neither: a test on identities' means is the same.
    one, other = identities(11), identities(0)
    found = stats.ttest_ind(one, other, equal_var=False)
    expected = stats.studentized_range.sf(abs(found.statistic) * np.sqrt(2), 3, found.df)
    assert entry["disparity"]["omnibus"]["p"] == pytest.approx(expected, rel=1e-3)
    assert entry["disparity"]["omnibus"]["p_adjusted"] < 1e-3
    pair = next(p for p in entry["disparity"]["pairwise"] if {p["a"], p["b"]} == {"WM", "BF"})
    assert abs(pair["difference"]) == pytest.approx(11 / 12)
    assert pair["band"]["low"] * pair["band"]["high"] > 0
    ids = {family["id"]: family["m"] for family in record["families"]}
    assert ids[entry["disparity"]["omnibus"]["family"]] == 1

    first = (
        "Failure to acquire, glasses: the target had no answer for more than a fifth of the pairs in 1 of 3"
    )
    after_tables = result.out[result.out.rindex("╰" if "╰" in result.out else "└") :]
    assert after_tables.index(first) < after_tables.index("72 pairs")
    assert "shares that differ between groups" in after_tables
    assert call(capsys, "report", tmp_path / "run").status == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert page.index(first) < page.index("was asked about")
    card = call(capsys, "table", tmp_path / "run", "--format", "model-card").out
    assert card.index(first) < card.index("was asked about")
    for text in (page, card, call(capsys, "table", tmp_path / "run", "--acquisition").out):
        assert "share of pairs without an answer" in text
    tables = tmp_path / "run" / "tables"
    rows = list(csv.DictReader((tables / "acquisition.csv").read_text(encoding="utf-8").splitlines()))
    assert [float(row["share"]) for row in rows] == [own["share"] for own in entry["shares"]]
    text = (tables / "acquisition_differences.csv").read_text(encoding="utf-8")
    assert len(text.splitlines()) == 1 + 3


def test_a_large_loss_that_is_alike_is_told_without_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, record = audited(tmp_path, capsys, dict.fromkeys(GROUPS, 4))
    (entry,) = record["acquisition"]
    assert entry["disparity"]["omnibus"]["p"] == pytest.approx(1.0)
    assert "more than a fifth of the pairs in 3 of 3 groups (AF 33 %, BF 33 %, WM 33 %)" in result.out
    assert "shares that differ" not in result.out


def test_a_small_loss_is_tested_and_not_told_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, record = audited(tmp_path, capsys, {"WM": 1})
    assert [own["failed"] for own in record["acquisition"][0]["shares"]] == [0, 0, 2]
    assert "Failure to acquire, glasses" not in result.out


def test_where_all_have_an_answer_there_is_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, record = audited(tmp_path, capsys, {}, people=3)
    assert record["acquisition"] == []
    assert "Failure to acquire" not in result.out
    assert call(capsys, "table", tmp_path / "run", "--acquisition").status == 2
    assert not (tmp_path / "run" / "tables" / "acquisition.csv").exists()
