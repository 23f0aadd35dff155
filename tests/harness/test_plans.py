"""What --margin and --half-width say of cells and of differences is right, and stands in every table."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from harness.record import Record, read_record
from tests.harness.runs import spread
from tests.support import call

MARGIN, HALF_WIDTH, LEVEL = 0.05, 0.02, 0.95
DELTAS = {
    "WM": spread(40, 0.01, 0.05, seed=4),
    "WF": spread(30, 0.03, 0.08, seed=10),
    "BM": spread(20, 0.2, 0.06, seed=11),
    "BF": np.full(5, 0.25),
    "AM": np.array([0.1]),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "scores.csv"
    lines = [
        f"{group}{index},{group}{index},{group},hat,hat,0.5,{0.5 + delta}"
        for group, deltas in DELTAS.items()
        for index, delta in enumerate(deltas)
    ]
    head = "pair_id,identity,demographic,attribute,concept,source_score,transformed_score"
    path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return path


def audit(table: Path, capsys: pytest.CaptureFixture[str], *more: object) -> tuple[Record, Path, str]:
    run = table.parent / "run"
    shown = call(capsys, "audit", "--scores", table, "--out", run, "--level", LEVEL, "--by", "sex", *more)
    assert shown.status == 0, shown.err
    return read_record(run), run, shown.out


def by_student(deltas: np.ndarray) -> float:
    above = stats.ttest_1samp(deltas, -MARGIN, alternative="greater").pvalue
    return float(max(above, stats.ttest_1samp(deltas, MARGIN, alternative="less").pvalue))


def test_cells_are_held_against_the_margin(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, _, _ = audit(table, capsys, "--margin", MARGIN, "--half-width", HALF_WIDTH)
    details = {item.group: item for item in record.details}
    raw = {group: by_student(DELTAS[group]) for group in ("WM", "WF", "BM")}
    for group, p in raw.items():
        assert details[group].equivalence_p == pytest.approx(p, rel=1e-9)
    # Holm over five cells: two have no p and count as 1.
    assert details["WM"].equivalence_p_adjusted == pytest.approx(5 * raw["WM"])
    assert details["WF"].equivalence_p_adjusted == pytest.approx(min(1, 4 * raw["WF"]))
    families = {family.id: family.m for family in record.families}
    assert families["equivalence:cells:scores:scores.csv"] == 5
    for group, sd in (("WM", 0.05), ("WF", 0.08)):
        n = details[group].identities_for_half_width
        assert n is not None
        assert stats.t.ppf(0.975, n - 1) * sd / np.sqrt(n) <= HALF_WIDTH
        assert stats.t.ppf(0.975, n - 2) * sd / np.sqrt(n - 1) > HALF_WIDTH


def test_differences_are_too(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, _, _ = audit(table, capsys, "--margin", MARGIN, "--half-width", HALF_WIDTH)
    (entry,) = [entry for entry in record.disparities if entry.by == "demographic"]
    pairs = {(pair.a, pair.b): pair for pair in entry.pairwise}
    pair = next(pair for names, pair in pairs.items() if set(names) == {"WM", "WF"})
    a, b = DELTAS[pair.a], DELTAS[pair.b]
    above = stats.ttest_ind(b + MARGIN, a, equal_var=False, alternative="greater").pvalue
    below = stats.ttest_ind(b - MARGIN, a, equal_var=False, alternative="less").pvalue
    assert pair.equivalence_p == pytest.approx(max(above, below), rel=1e-9)
    assert pair.se is not None
    assert pair.df is not None
    assert pair.band is not None
    # The band that decides: 4 groups have a variance estimate, one of them of zero.
    critical = stats.studentized_range.ppf(LEVEL, pair.band.groups, pair.df) / np.sqrt(2)
    least = pair.minimum_detectable_effect
    assert least is not None
    assert stats.nct.sf(critical, pair.df, least / pair.se) == pytest.approx(0.8, abs=1e-4)
    counts = pair.identities_for_half_width
    assert counts is not None

    def half(scale: float) -> float:
        quantile = stats.studentized_range.ppf(LEVEL, pair.band.groups, pair.df * scale)  # type: ignore[operator,union-attr]
        return float(quantile / np.sqrt(2 * scale) * pair.se)

    assert half(max(n / len(deltas) for n, deltas in zip(counts, (a, b), strict=True))) <= HALF_WIDTH
    assert half(min((n - 1) / len(deltas) for n, deltas in zip(counts, (a, b), strict=True))) > HALF_WIDTH


@pytest.mark.parametrize("style", ["terminal", "markdown", "latex", "html", "model-card"])
def test_they_stand_in_every_table(style: str, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, run, printed = audit(table, capsys, "--margin", MARGIN, "--half-width", HALF_WIDTH)
    shown = call(capsys, "table", run, "--format", style).out
    if style != "model-card":
        shown += call(capsys, "table", run, "--format", style, "--differences").out
    details = {item.group: item for item in record.details}
    (entry,) = [entry for entry in record.disparities if entry.by == "demographic"]
    pair = next(pair for pair in entry.pairwise if {pair.a, pair.b} == {"WM", "WF"})
    assert pair.identities_for_half_width is not None
    one, other = pair.identities_for_half_width
    for text in (printed, shown):
        assert "inside (p " in text
        assert "not shown (p " in text
        assert f"{details['WF'].identities_for_half_width} (has 30)" in text
        assert f"{one} and {other}" in text


def test_they_stand_in_both_csv_files(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, run, _ = audit(table, capsys, "--margin", MARGIN, "--half-width", HALF_WIDTH)
    detail = next(item for item in record.details if item.group == "WM")
    cells = list(csv.DictReader(io.StringIO(call(capsys, "table", run, "--format", "csv").out)))
    (row,) = [row for row in cells if row["group"] == "WM"]
    for name in ("equivalence_p", "equivalence_p_adjusted", "identities_for_half_width"):
        assert float(row[name]) == getattr(detail, name)
    assert float(row["identity_mean_delta"]) == pytest.approx(float(row["delta"]))
    out = call(capsys, "table", run, "--differences", "--format", "csv").out
    rows = list(csv.DictReader(io.StringIO(out)))
    pair = next(entry for entry in record.disparities if entry.by == "sex").pairwise[0]
    (row,) = [row for row in rows if row["by"] == "sex"]
    assert float(row["equivalence_p"]) == pair.equivalence_p
    assert pair.identities_for_half_width is not None
    assert int(row["identities_for_half_width_a"]) == pair.identities_for_half_width[0]
    assert float(row["minimum_detectable_effect"]) == pair.minimum_detectable_effect


def test_numbers_of_identities_beyond_all_reason_have_one(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, _, shown = audit(table, capsys, "--half-width", 1e-12)
    assert "— (has 40)" in shown
    details = {item.group: item for item in record.details}
    assert details["WM"].identities_for_half_width is None
    assert details["WM"].reasons["identities_for_half_width"] == "more than 10^14 identities"
    pairs = [pair for entry in record.disparities for pair in entry.pairwise if pair.band is not None]
    assert pairs
    for pair in pairs:
        assert pair.identities_for_half_width is None
        assert pair.reasons["identities_for_half_width"] == "more than 10^14 identities"
    below = call(capsys, "audit", "--scores", table, "--out", table.parent / "no", "--half-width", 1e-13)
    assert (below.status, below.err.count("\n")) == (2, 1)
    assert "--half-width must be a positive number from 1e-12" in below.err
