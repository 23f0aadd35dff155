"""A reduced coverage study at 95 %; the full one is `python -m tests.benchmarks.coverage`."""

import math

import pytest

from tests.benchmarks import coverage

DRAWS = 8_000


def near(row, low, high):
    """Say whether a rate lies in [low, high] up to four Monte-Carlo standard errors."""
    room = 4 * math.sqrt(high * (1 - high) / DRAWS)
    return low - room <= row["rate"] <= high + room


def test_the_default_interval_keeps_its_level():
    rows = coverage.interval_study(DRAWS, 0.95, counts=(10, 20, 40))
    for row in rows:
        if row["method"] == "cluster":
            assert near(row, 0.045, 0.052), row
    papers = [row["rate"] for row in rows if row["method"] == "t" and row["icc"] > 0]
    assert min(papers) > 0.1


def test_skewed_scores_miss_more_and_are_flagged():
    rows = {
        (row["skewness"], row["identities"]): row
        for row in coverage.skewed_study(4_000, 0.95, counts=(10, 100))
    }
    assert rows[2.0, 10]["rate"] > 0.08
    assert rows[2.0, 10]["flagged_share"] > 0.8
    assert rows[2.0, 100]["flagged_share"] > 0.9
    assert rows[0.5, 100]["flagged_share"] < 0.1


def test_omnibus_and_bands_keep_their_level():
    rows = coverage.group_study(DRAWS, designs=("20 identities each",))
    for row in rows:
        if row["nominal"] == 0.05:
            assert near(row, 0.04, 0.062), row


def test_nothing_planted_is_rarely_found_and_the_detectable_effect_mostly():
    for row in coverage.planted_study(DRAWS, levels=(0.95,), counts=(20, 40)):
        if row["planted"] == "nothing":
            assert near(row, 0.045, 0.05), row
        else:
            assert row["rate"] == pytest.approx(0.8, abs=0.06), row


def test_a_study_is_reproducible_and_chunks_are_independent():
    twice = [coverage.planted_study(50, levels=(0.5,), counts=(10,)) for _ in range(2)]
    assert twice[0] == twice[1]
    first, second = (rng.normal() for rng, _ in coverage.generators("x", 2 * coverage.CHUNK))
    assert first != second
    assert [n for _, n in coverage.generators("x", coverage.CHUNK + 1)] == [coverage.CHUNK, 1]


def test_the_report_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["coverage", "--draws", "40", "--out", str(tmp_path / "new")])
    monkeypatch.setattr(coverage, "GROUP_DESIGNS", {"10 identities each": ([10, 10], [1.0, 1.0])})
    monkeypatch.setattr(coverage.group_study, "__defaults__", (("10 identities each",), 0.5))
    coverage.main()
    page = (tmp_path / "new" / "README.md").read_text()
    assert "--draws 40" in page
    names = {path.stem for path in (tmp_path / "new").glob("*.csv")}
    assert names == {"intervals", "skewed", "groups", "planted"}
