"""Two runs pair by pair: scipy's numbers, and nothing compared that is not the same pair."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from harness.compare import compare_runs
from tests.harness.runs import spread, write_deltas
from tests.support import call

BEFORE = {("sunglasses", "WM"): spread(30, 0.3, 0.1), ("sunglasses", "BF"): spread(30, 0.2, 0.1, seed=2)}
AFTER = {
    ("sunglasses", "WM"): BEFORE["sunglasses", "WM"] + spread(30, -0.1, 0.05, seed=4),
    ("sunglasses", "BF"): BEFORE["sunglasses", "BF"],
}


def test_changes_are_paired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = write_deltas(tmp_path / "a", BEFORE), write_deltas(tmp_path / "b", AFTER)
    cells = {cell.group: cell for cell in compare_runs(base, new).cells}
    theirs = stats.ttest_rel(AFTER["sunglasses", "WM"], BEFORE["sunglasses", "WM"])
    interval = theirs.confidence_interval(0.999)
    moved, same = cells["WM"], cells["BF"]
    assert (moved.change, moved.p) == pytest.approx((-0.1, theirs.pvalue))
    assert (moved.low, moved.high) == pytest.approx((interval.low, interval.high))
    assert (moved.base, moved.new) == pytest.approx((0.3, 0.2))
    assert moved.p_adjusted == pytest.approx(2 * theirs.pvalue)
    assert (same.status, same.change) == ("zero_variance", 0.0)
    shown = call(capsys, "compare", base, new)
    assert shown.status == 0
    assert "0 ==" in shown.out
    assert "What else differs" in shown.out
    rows = list(csv.DictReader(io.StringIO(call(capsys, "compare", base, new, "--format", "csv").out)))
    assert float(next(row for row in rows if row["group"] == "WM")["low"]) == moved.low
    assert next(row for row in rows if row["group"] == "BF")["p"] == ""


def test_identities_repeat(tmp_path: Path) -> None:
    person = np.repeat(spread(10, 0.1, 0.05), 3)
    base = write_deltas(tmp_path / "a", {("sunglasses", "WM"): np.zeros(30)}, per_identity=3)
    new = write_deltas(tmp_path / "b", {("sunglasses", "WM"): person}, per_identity=3)
    (cell,) = compare_runs(base, new).cells
    assert cell.df == pytest.approx(9)
    assert cell.se == pytest.approx(0.05 / np.sqrt(10))


@pytest.mark.parametrize("fault", ["fewer", "more", "pictures"])
def test_other_pairs_only_when_asked(fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = {key: values[:20] for key, values in AFTER.items()}
    first, second = (short, BEFORE) if fault == "more" else (BEFORE, short if fault == "fewer" else AFTER)
    base = write_deltas(tmp_path / "a", first)
    new = write_deltas(tmp_path / "b", second, pictures="others" if fault == "pictures" else "pixels")
    refused = call(capsys, "compare", base, new)
    assert refused.status == 3
    assert "--common" in refused.err
    asked = call(capsys, "compare", base, new, "--common")
    if fault == "pictures":
        assert (asked.status, "no pair in common" in asked.err) == (3, True)
    else:
        assert asked.status == 0
        assert "n 20/20" in asked.out
        assert "left out: 20 pairs only in the" in asked.out


def test_lost_pairs_are_counted_and_left_out(tmp_path: Path) -> None:
    gone = {("sunglasses", "WM"): BEFORE["sunglasses", "WM"].copy()}
    gone["sunglasses", "WM"][:4] = np.nan
    base = write_deltas(tmp_path / "a", {("sunglasses", "WM"): BEFORE["sunglasses", "WM"]})
    new = write_deltas(tmp_path / "b", gone)
    (cell,) = compare_runs(base, new).cells
    assert (cell.n_pairs, cell.lost, cell.gained) == (26, 4, 0)
    (cell,) = compare_runs(new, base).cells
    assert (cell.lost, cell.gained) == (0, 4)


def test_what_else_differs_and_wrong_concepts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = write_deltas(tmp_path / "a", BEFORE)
    new = write_deltas(tmp_path / "b", AFTER, level=0.95)
    assert ("settings.level", "0.999", "0.95") in compare_runs(base, new).differences
    assert "level" in call(capsys, "compare", base, new, "--format", "markdown").out
    wrong = call(capsys, "compare", base, new, "--concept", "sunglas")
    assert (wrong.status, "did you mean 'sunglass'?" in wrong.err) == (2, True)
    other = write_deltas(tmp_path / "c", AFTER, concept="shades")
    assert call(capsys, "compare", base, other).status == 3


def test_runs_over_other_pairs_are_not_comparable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = write_deltas(tmp_path / "a", {("sunglasses", "WM"): spread(5, 0.3, 0.1)})
    new = write_deltas(tmp_path / "b", {("facemask", "WM"): spread(5, 0.3, 0.1)})
    for more in ((), ("--common",)):
        result = call(capsys, "compare", base, new, *more)
        assert result.status == 3
        assert result.err.count("\n") == 1
    assert "no pair in common" in result.err
