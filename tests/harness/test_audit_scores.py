"""``audit --scores``: the numbers of R, undefined cells as statuses, bad tables as one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.harness.oracle import close, reference
from tests.support import Result, call, shipped, write_csv

COLUMNS = (
    "pair_id",
    "identity",
    "variation",
    "demographic",
    "attribute",
    "concept",
    "source_score",
    "transformed_score",
)
NAMES = [
    "D01_tiny_n",
    "D02_zero_variance",
    "D04_cluster_icc50",
    "D05_cluster_icc90",
    "D06_cluster_edge",
    "D09_missing",
    "D11_eight_unbalanced",
    "D12a_exact_duplicates",
    "D14_reused_identity_labels",
]


def audited(capsys: pytest.CaptureFixture[str], table: Path, run: Path, *more: object) -> dict[str, Any]:
    result = call(capsys, "audit", "--scores", table, "--out", run, "--max-failures", 1, *more)
    assert result.status == 0, result.err
    record: dict[str, Any] = json.loads((run / "record.json").read_text(encoding="utf-8"))
    return record


@pytest.mark.parametrize("method", ["t", "cluster"])
@pytest.mark.parametrize("name", NAMES)
def test_cells_equal_r(name: str, method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = audited(capsys, shipped("oracle") / "inputs" / f"{name}.csv", tmp_path, "--ci", method)
    cells = {(cell["attribute"], cell["concept"], cell["group"]): cell for cell in record["cells"]}
    expected = reference(name)
    assert cells.keys() == expected.keys()
    for key, theirs in expected.items():
        compare(cells[key], theirs, method)


def compare(ours: dict[str, Any], theirs: dict[str, Any], method: str) -> None:
    assert ours["n_pairs"] == theirs["n_pairs"]
    assert ours["n_identities"] == theirs["n_identities"]
    assert sum(n for reason, n in ours["excluded"].items() if reason != "duplicate") == theirs["n_missing"]
    for name, other in (("delta", "mean_delta"), ("mean_source",) * 2, ("mean_transformed",) * 2):
        if theirs.get(other) is None:
            assert ours[name] is None
        else:
            assert close(ours[name], theirs[other])
    interval = theirs.get("t_interval")
    if method == "cluster":
        interval = theirs.get("cluster", {}).get("CR2_satterthwaite")
    if interval is None:
        assert ours["status"] == "undefined"
    elif interval["se"] < 1e-15:
        assert ours["status"] == "zero_variance"
    else:
        assert ours["status"] == "ok"
        assert close(ours["se"], interval["se"])
        assert close(ours["df"], interval["df"])
        if method == "cluster" and "skewed" in ours["flags"]:  # R has no Hall bounds: those are wider.
            assert ours["ci"]["method"] == "cluster, each bound the wider of t and Hall 1992"
            assert ours["ci"]["low"] < interval["lo"] or ours["ci"]["high"] > interval["hi"]
        else:
            assert close(ours["ci"]["low"], interval["lo"])
            assert close(ours["ci"]["high"], interval["hi"])
            assert ours["ci"]["method"] == method
        assert ours["ci"]["level"] == 0.999
        if method == "t":
            assert close(ours["p"], theirs["paired_t"]["p"])
        return
    assert [ours[name] for name in ("se", "df", "ci", "p")] == [None] * 4


def test_a_conflicting_pair_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = shipped("oracle") / "inputs" / "D12b_conflicting_duplicate.csv"
    result = call(capsys, "audit", "--scores", table, "--out", tmp_path / "run")
    assert_one_line(result, "WM-sunglasses-0011", "row 12: '0.388279'", "remove or rename one")
    assert not (tmp_path / "run").exists()


def assert_one_line(result: Result, *words: str) -> None:
    assert result.status == 2
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    for word in words:
        assert word in result.err


def scores(path: Path, rows: list[tuple[object, ...]]) -> Path:
    return write_csv(path, COLUMNS, rows)


def row(pair: object, source: object, transformed: object, **labels: object) -> tuple[object, ...]:
    values = {
        "pair_id": f"p{pair}",
        "identity": f"i{pair}",
        "variation": 1,
        "demographic": "WM",
        "attribute": "smile",
        "concept": "face",
        **labels,
    }
    return (*values.values(), source, transformed)


def test_exact_repeats_are_dropped_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(1, 0.1, 0.2), row(2, 0.1, 0.4), row(1, 0.1, 0.2)]
    record = audited(capsys, scores(tmp_path / "s.csv", rows), tmp_path / "run")
    (cell,) = record["cells"]
    assert (cell["n_pairs"], cell["excluded"]) == (2, {"duplicate": 1})
    failures = pq.read_table(tmp_path / "run" / "failures.parquet").to_pylist()
    assert [(item["where"], item["reason"]) for item in failures] == [("s.csv row 4", "duplicate")]


def test_rows_without_a_label_are_named_not_dropped_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = shipped("corpus") / "tables" / "empty_demographic.csv"
    record = audited(capsys, table, tmp_path)
    failures = pq.read_table(tmp_path / "failures.parquet").to_pylist()
    assert [item["reason"] for item in failures] == ["missing_label"] * 2
    assert all("'demographic' is empty" in item["detail"] for item in failures)
    assert sum(cell["n_pairs"] for cell in record["cells"]) == 10
    assert record["data"]["fault_share"] == pytest.approx(2 / 12)


def test_more_failures_than_allowed_ends_with_2_and_keeps_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row(1, 0.1, 0.2), row(2, 0.1, 0.4), row(3, 0.1, "")]
    table = scores(tmp_path / "s.csv", rows)
    result = call(capsys, "audit", "--scores", table, "--out", tmp_path / "run")
    assert_one_line(result, "33.3% of the pairs failed", "--max-failures")
    assert (tmp_path / "run" / "record.json").exists()
    assert (
        call(capsys, "audit", "--scores", table, "--out", tmp_path / "b", "--max-failures", 0.34).status == 0
    )


def test_a_group_whose_every_pair_failed_stays_in_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = audited(capsys, shipped("corpus") / "tables" / "whole_group_missing.csv", tmp_path)
    lost = next(cell for cell in record["cells"] if cell["group"] == "BF")
    assert (lost["n_pairs"], lost["status"], lost["delta"]) == (0, "undefined", None)
    markdown = (tmp_path / "tables" / "deltas.md").read_text(encoding="utf-8")
    assert "no pair, sunglass: sunglasses (BF)" in markdown.replace("\\", "")


def test_an_identity_label_in_two_groups_is_two_people_and_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = audited(capsys, shipped("corpus") / "tables" / "identity_in_two_groups.csv", tmp_path)
    assert [cell["n_identities"] for cell in record["cells"]] == [6, 6]
    assert len(record["warnings"]) == 1
    assert "a cluster is (group, identity)" in record["warnings"][0]


def test_one_identity_has_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = audited(capsys, shipped("corpus") / "tables" / "one_identity_each.csv", tmp_path)
    assert {(cell["status"], cell["ci"], cell["se"]) for cell in record["cells"]} == {
        ("undefined", None, None)
    }


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [row(1, 0.1, 0.2), row(1, 0.1, 0.2, concept="beard", identity="i9")],
            "pair_id p1 must have one 'identity'",
        ),
        ([row(1, 0.1, 0.2), row(1, 0.1, 0.3)], "has two that differ in 'transformed_score'"),
        ([row(1, 0.1, 0.2, identity="")], "no usable pair"),
        ([], "no usable pair"),
    ],
)
def test_bad_tables_are_one_clear_line(
    rows: list[tuple[object, ...]], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = call(capsys, "audit", "--scores", scores(tmp_path / "s.csv", rows), "--out", tmp_path / "run")
    assert_one_line(result, words)
    assert not (tmp_path / "run").exists()


def test_a_missing_column_names_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write_csv(
        tmp_path / "s.csv", [c.replace("demographic", "demografic") for c in COLUMNS], [row(1, 1, 2)]
    )
    result = call(capsys, "audit", "--scores", table, "--out", tmp_path / "run")
    assert_one_line(result, "needs a column 'demographic' (did you mean 'demografic'?)")


def test_scores_that_are_no_numbers_are_excluded_with_their_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        row(1, 0.1, 0.2),
        row(2, 0.2, 0.5),
        row(3, "high", 0.2),
        row(4, "inf", 0.2),
        row(5, "", ""),
        row(6, 1, "nan"),
    ]
    record = audited(capsys, scores(tmp_path / "s.csv", rows), tmp_path / "run")
    (cell,) = record["cells"]
    assert cell["excluded"] == {"missing_source": 1, "missing_transformed": 1, "non_finite": 2}
    pairs = pq.read_table(tmp_path / "run" / "pairs.parquet").to_pylist()
    assert [pair["reason"] for pair in pairs[2:]] == [
        "non_finite",
        "non_finite",
        "missing_source",
        "missing_transformed",
    ]
    assert pairs[0]["source:face"] == 0.1
    assert pairs[2]["source:face"] is None


def test_a_concept_without_a_row_is_a_counted_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(1, 0.1, 0.2), row(2, 0.2, 0.5), row(1, 0.3, 0.3, concept="beard")]
    record = audited(capsys, scores(tmp_path / "s.csv", rows), tmp_path / "run")
    cells = {cell["concept"]: cell for cell in record["cells"]}
    assert cells["face"]["n_pairs"] == 2
    assert (cells["beard"]["n_pairs"], cells["beard"]["excluded"]) == (1, {"no_answer": 1})


def test_a_taxonomy_lists_what_is_absent_and_refuses_what_it_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = scores(tmp_path / "s.csv", [row(1, 0.1, 0.2), row(2, 0.2, 0.5)])
    record = audited(capsys, table, tmp_path / "run", "--taxonomy", "paper")
    assert len(record["cells"]) == 8 * 19
    assert record["settings"]["taxonomy"] == "paper"
    strange = scores(tmp_path / "t.csv", [row(1, 0.1, 0.2, demographic="WMM")])
    result = call(capsys, "audit", "--scores", strange, "--out", tmp_path / "b", "--taxonomy", "paper")
    assert_one_line(result, "demographic 'WMM' is not in taxonomy 'paper' (did you mean 'WM'?)")
