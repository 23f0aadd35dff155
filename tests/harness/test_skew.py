"""A skewed cell is printed as [low, high] everywhere, and its decision is that of these bounds."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from harness.record import read_record
from tests.harness.runs import spread, write_deltas
from tests.support import call

METHOD = "cluster, each bound the wider of t and Hall 1992"
N = 20


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    skewed = np.random.default_rng(1).exponential(size=N) / 10
    return write_deltas(
        tmp_path_factory.mktemp("skew") / "run",
        {("sunglasses", "WM"): skewed, ("sunglasses", "WF"): spread(60, 0.2, 0.05, seed=4)},
    )


@pytest.mark.parametrize("style", ["terminal", "markdown", "latex", "html", "model-card"])
def test_every_table_prints_both_bounds(style: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = call(capsys, "table", run, "--format", style).out.replace("\\", "")
    cell = read_record(run).cells[0]
    assert cell.ci is not None
    assert cell.ci.method == METHOD
    text = f"[{cell.ci.low:.2g}, {cell.ci.high:.2g}]‡"
    assert text in shown
    assert "Hall 1992" in shown
    assert f"{cell.delta:.2g} ±" not in shown


def test_side_by_side_csv_and_export_say_how_the_bounds_were_made(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = read_record(run).cells[0]
    assert cell.ci is not None
    (row, _) = csv.DictReader(io.StringIO(call(capsys, "table", run, "--format", "csv").out))
    assert (row["ci_method"], float(row["ci_low"]), row["flags"]) == (METHOD, cell.ci.low, "skewed")
    out = call(capsys, "table", run, "--format", "every-eval-ever", "--retrieved", 0).out
    interval = json.loads(out)["evaluation_results"][0]["score_details"]["uncertainty"]["confidence_interval"]
    assert (interval["method"], interval["upper"]) == (METHOD, cell.ci.high)
    other = write_deltas(tmp_path / "other", {("sunglasses", "WM"): spread(N, 0.1, 0.1)})
    both = call(capsys, "table", run, other, "--format", "markdown").out.replace("\\", "")
    assert f"[{cell.ci.low:.2g}, {cell.ci.high:.2g}]‡" in both


@pytest.mark.parametrize(("reach", "by_student", "rejected"), [(0.9, 0, 0), (1.1, 1, 0), (6.0, 1, 1)])
def test_a_cell_whose_bounds_hold_0_is_no_rejection(
    reach: float, by_student: int, rejected: int, tmp_path: Path
) -> None:
    deltas = np.random.default_rng(1).exponential(size=N) / 10
    half = stats.t.ppf(0.975, N - 1) * deltas.std(ddof=1) / np.sqrt(N)
    deltas = deltas - deltas.mean() - reach * half
    run = write_deltas(tmp_path / "run", {("sunglasses", "WM"): deltas}, level=0.95)
    cell = read_record(run).cells[0]
    assert cell.ci is not None
    assert cell.p_adjusted is not None
    assert (stats.ttest_1samp(deltas, 0).pvalue < 0.05) == by_student
    assert (cell.ci.high < 0, cell.p_adjusted < 0.05) == (rejected, rejected)


def test_the_axis_of_equal_weights_has_such_bounds_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "scores.csv"
    rng = np.random.default_rng(3)
    rows = [
        (f"{group}{index}", group, delta)
        for group in ("WM", "BM", "WF", "BF")
        for index, delta in enumerate(rng.exponential(size=N) / 20)
    ]
    lines = [
        f"{identity}-1,{identity},{group},sunglasses,sunglass,0.5,{0.5 + delta}"
        for identity, group, delta in rows
    ]
    head = "pair_id,identity,demographic,attribute,concept,source_score,transformed_score"
    table.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    call(capsys, "audit", "--scores", table, "--out", tmp_path / "run", "--by", "sex")
    cells = [cell for cell in read_record(tmp_path / "run").cells if cell.by == "sex"]
    for cell in cells:
        own = {"male": ("WM", "BM"), "female": ("WF", "BF")}[cell.group]
        groups = [np.array([delta for _, group, delta in rows if group == name]) for name in own]
        # Third moments of independent means add: sum(m3 / n^2) against the summed variances.
        variance = sum(deltas.var(ddof=1) / N for deltas in groups)
        flagged = [deltas for deltas in groups if 100 * stats.skew(deltas) ** 2 > N]
        third = sum(
            stats.skew(deltas) / np.sqrt(N) * (deltas.std(ddof=1) / np.sqrt(N)) ** 3 for deltas in flagged
        )
        skew = third / variance**1.5
        assert cell.ci is not None
        assert cell.df is not None
        assert cell.ci.method == "equal weights, each bound the wider of t and Hall 1992"
        quantile = stats.t.ppf(0.9995, cell.df)
        mean = sum(deltas.mean() for deltas in groups) / 2
        half = np.sqrt(variance) / 2
        t = ((1 + skew * (-quantile - skew / 6)) ** (1 / 3) - 1) / (skew / 3)
        assert cell.ci.high == pytest.approx(mean - half * min(t, -quantile), rel=1e-9)
        assert cell.ci.low == pytest.approx(mean - half * quantile, rel=1e-9)


def test_a_comparison_prints_both_bounds_and_has_marks_of_its_own(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = {("sunglasses", "WM"): np.full(N, 0.5), ("sunglasses", "WF"): np.full(60, 0.1)}
    other = write_deltas(tmp_path / "other", groups)
    shown = call(capsys, "compare", other, run, "--format", "csv").out
    row = next(row for row in csv.DictReader(io.StringIO(shown)) if row["group"] == "WM")
    assert row["method"] == METHOD
    text = call(capsys, "compare", other, run).out
    assert f"[{float(row['low']):.2g}, {float(row['high']):.2g}]‡*" in text
    # A hash is another scale of the score, in every table.
    assert "* p adjusted over 2 cells (Holm)" in text
    assert "#" not in text
