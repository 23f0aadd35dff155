"""What a gate owes: no pass from what a sample could not show, from lost pairs, constants or drift."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.gate import Check, gate
from tests.harness.runs import spread, write_deltas
from tests.harness.test_gate import policy
from tests.support import call, write_csv

CELL = ("sunglasses", "WM")
SCORE_COLUMNS = (
    "pair_id", "identity", "variation", "demographic", "attribute", "concept", "source_score",
    "transformed_score",
)  # fmt: skip
RULE: dict[str, Any] = {"harmful": "lower", "worst_change": 1.0}


def one(new: Path, base: Path, folder: Path, limits: dict[str, float] | None = None, **rule: Any) -> Check:
    (check,) = gate(new, base, policy(folder, {**RULE, **rule}, **(limits or {}))).checks
    return check


def pair(folder: Path, before: np.ndarray, after: np.ndarray, **options: Any) -> tuple[Path, Path]:
    """A new run and its baseline."""
    base = write_deltas(folder / "base", {CELL: before}, **options)
    return write_deltas(folder / "new", {CELL: after}, **options), base


def unseen(identities: int, alpha: float = 0.025) -> float:
    return 1 - alpha ** (1 / identities)


@pytest.mark.parametrize(("identities", "outcome"), [(72, "pass"), (71, "inconclusive")])
def test_what_the_sample_could_not_show_must_fit_into_the_margin(
    identities: int, outcome: str, tmp_path: Path
) -> None:
    """All deltas rise alike, so only the floor decides: .975^(1/G) is what 5 % of people leave."""
    before = spread(identities, 0.3, 0.05)
    new, base = pair(tmp_path, before, before + 1e-9)
    check = one(new, base, tmp_path)
    assert check.outcome == outcome
    assert (unseen(identities) < 0.05) == (outcome == "pass")
    assert check.change.worst_low == pytest.approx(-unseen(identities), abs=1e-8)
    assert f"{check.change.worst_low:.3g}" in check.reason
    if outcome == "inconclusive":
        assert check.identities_needed == 72
    ignored = one(new, base, tmp_path, unseen_breaks="ignore")
    assert ignored.outcome == "pass"
    assert "ignored" in ignored.reason


@pytest.mark.parametrize("harmful", ["lower", "higher", "both"])
def test_the_bound_that_decides_a_pass(harmful: str, tmp_path: Path) -> None:
    before = spread(90, 0.3, 0.1)
    new, base = pair(tmp_path, before, before + spread(90, 0.004, 0.05, seed=3))
    check = one(new, base, tmp_path, harmful=harmful, margin=0.06)
    half, u = stats.t.ppf(0.975, 89) * 0.05 / np.sqrt(90), unseen(90)
    low, high = (1 - u) * (0.004 - half) - u, (1 - u) * (0.004 + half) + u
    assert (check.change.worst_low, check.change.worst_high) == pytest.approx((low, high))
    inside = {"lower": low > -0.06, "higher": high < 0.06, "both": low > -0.06 and high < 0.06}[harmful]
    assert (check.outcome == "pass") == inside
    assert check.decided.bound == pytest.approx(low if harmful == "lower" else high)


def test_without_a_range_nothing_passes_and_the_line_says_what_to_add(tmp_path: Path) -> None:
    before = spread(200, 0.3, 0.05)
    for score_range, words in ((None, "add worst_change to the rule"), ((0.0, 0.3), "mend the card")):
        new, base = pair(tmp_path / str(score_range), before, before + 1e-9, score_range=score_range)
        check = one(new, base, tmp_path, worst_change="")
        assert check.outcome == "inconclusive"
        assert words in check.reason
    new, base = pair(tmp_path / "known", before, before + 1e-9, score_range=(0.0, 1.0))
    assert one(new, base, tmp_path, worst_change="").outcome == "pass"
    far, base = pair(tmp_path / "far", before, before - 0.2)
    assert one(far, base, tmp_path, worst_change="").outcome == "fail", "a fail needs no range"


def test_each_group_of_a_difference_brings_its_own_share(tmp_path: Path) -> None:
    cells = {("sunglasses", g): spread(n, 0.3, 0.05) for g, n in (("WM", 100), ("BF", 60))}
    base = write_deltas(tmp_path / "a", cells)
    new = write_deltas(tmp_path / "b", {key: values + 1e-9 for key, values in cells.items()})
    rule = {"metric": "difference", "group": ["WM", "BF"], "margin": 0.2, "harmful": "both"}
    check = one(new, base, tmp_path, **rule)
    assert check.change.worst_low == pytest.approx(-unseen(100) - unseen(60), abs=1e-8)
    assert check.outcome == "pass"


def test_twenty_pairs_that_always_score_one_are_no_pass(tmp_path: Path) -> None:
    new, base = pair(tmp_path, np.zeros(20), np.zeros(20), source=1.0)
    check = one(new, base, tmp_path)
    assert check.outcome == "inconclusive"
    assert "'sunglass' is 1 for 100 % of all answers" in check.reason
    many, base = pair(tmp_path / "many", np.zeros(2000), np.zeros(2000), source=1.0)
    assert one(many, base, tmp_path).outcome == "inconclusive"


def test_a_score_that_became_constant_for_one_group_is_told_by_name(tmp_path: Path) -> None:
    cells = {("sunglasses", g): spread(200, 0.0, 0.01, seed=i) for i, g in enumerate(("WM", "BF"))}
    base = write_deltas(tmp_path / "a", cells)
    new = write_deltas(tmp_path / "b", {**cells, ("sunglasses", "BF"): np.zeros(200)})
    checks = {check.groups: check for check in gate(new, base, policy(tmp_path, RULE)).checks}
    assert checks["BF",].outcome == "inconclusive"
    assert "'sunglass' is 0.25 for 100 % of the answers about BF" in checks["BF",].reason


@pytest.mark.parametrize("jitter", [1e-12, 1e-9, 1e-6])
def test_a_score_that_is_nearly_one_value_shows_nothing(jitter: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    new, base = pair(tmp_path, rng.uniform(-0.1, 0.1, 200), jitter * rng.uniform(-1, 1, 200))
    check = one(new, base, tmp_path)
    assert check.outcome == "inconclusive"
    assert "a constant score shows nothing" in check.reason


def scores(folder: Path, capsys: pytest.CaptureFixture[str], change: Any) -> Path:
    """A run of 100 identities a group; ``change`` turns (group, source, transformed) into the two scores."""
    rng = np.random.default_rng(1)
    rows = []
    for group in ("WM", "BF"):
        for number in range(100):
            source = rng.uniform(0.45, 0.55)
            before, after = change(group, source, source - rng.uniform(0.0, 0.1))
            rows.append((f"{group}{number}", number, 1, group, "sunglasses", "sunglass", before, after))
    folder.mkdir(parents=True)
    table = write_csv(folder / "scores.csv", SCORE_COLUMNS, rows)
    assert call(capsys, "audit", "--scores", table, "--out", folder / "run").status == 0
    return folder / "run"


def test_scores_of_edited_faces_that_became_one_value_do_not_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = scores(tmp_path / "base", capsys, lambda _, s, t: (s, t))
    new = scores(tmp_path / "new", capsys, lambda g, s, t: (s, 0.45 if g == "BF" else t))
    fallen = scores(tmp_path / "fallen", capsys, lambda g, s, t: (s, 0.1 if g == "BF" else t))
    for metric in ("delta", "level"):
        rules = policy(tmp_path, {**RULE, "metric": metric, "group": "BF", "margin": 0.2})
        (check,) = gate(new, base, rules).checks
        assert check.outcome == "inconclusive"
        assert "'sunglass' is 0.45 for 100 % of the answers about BF after the edit" in check.reason
        assert gate(fallen, base, rules).outcome == "fail", "one value far below is a fall nevertheless"


def test_a_model_that_changed_for_another_group_is_not_unchanged(tmp_path: Path) -> None:
    """Ten people whose scores are bit-equal say nothing about a model that breaks for others."""
    cells = {("sunglasses", g): spread(10, 0.3, 0.05, seed=i) for i, g in enumerate(("WM", "BF"))}
    broken = cells["sunglasses", "WM"] - np.array([0.5, 0.5, *[0.0] * 8])
    for name, weights in (("unknown", None), ("known", "0" * 64)):
        base = write_deltas(tmp_path / name / "a", cells, weights=weights)
        new = write_deltas(tmp_path / name / "b", {**cells, ("sunglasses", "WM"): broken}, weights=weights)
        rules = policy(tmp_path, {**RULE, "group": "BF"}, min_pairs=10)
        (check,) = gate(new, base, rules).checks
        assert check.outcome == "inconclusive"
        assert check.change.worst_low == pytest.approx(-unseen(10))
        assert gate(base, base, rules).passed


def test_an_identity_that_changed_by_more_than_the_worst_is_noted(tmp_path: Path) -> None:
    before = spread(100, 0.3, 0.05)
    after = before + 1e-6 - 0.5 * (np.arange(100) == 7)
    new, base = pair(tmp_path, before, after)
    rule = {**RULE, "worst_change": 0.001}
    result = gate(new, base, policy(tmp_path, rule))
    assert result.passed
    assert any(
        "one identity changed by 0.5, more than the rule's worst_change 0.001" in n for n in result.notes
    )
    assert not any("worst_change" in n for n in gate(new, base, policy(tmp_path, RULE)).notes)


def test_lost_pairs_count_as_the_worst_for_a_pass_and_as_unchanged_for_a_fail(tmp_path: Path) -> None:
    before = spread(80, 0.3, 0.05)
    lost = before + 1e-9
    lost[:4] = np.nan
    new, base = pair(tmp_path, before, lost)
    check = one(new, base, tmp_path, unseen_breaks="ignore", margin=0.06)
    filled = np.r_[np.full(4, -1.0), np.full(76, 1e-9)]
    half = stats.t.ppf(0.975, 79) * filled.std(ddof=1) / np.sqrt(80)
    assert check.change.worst_low == pytest.approx(filled.mean() - half)
    assert (check.outcome, check.change.lost) == ("inconclusive", 4)
    assert "4 of 80 pairs have scores in one of the runs only" in check.reason
    moved = before - 0.1
    moved[:40] = np.nan
    new, base = pair(tmp_path / "half", before, moved)
    check = one(new, base, tmp_path)
    halved = np.r_[np.zeros(40), np.full(40, -0.1)]
    half = stats.t.ppf(0.975, 79) * halved.std(ddof=1) / np.sqrt(80)
    assert check.change.high == pytest.approx(halved.mean() + half)
    assert check.outcome == "inconclusive", "half of the pairs may not have changed at all"


def test_an_unchanged_model_passes_whatever_the_number_of_identities(tmp_path: Path) -> None:
    few = spread(6, 0.3, 0.05)
    new, base = pair(tmp_path, few, few)
    check = one(new, base, tmp_path)
    assert (check.outcome, "unchanged: every score is the same" in check.reason) == ("pass", True)
    steps = np.zeros(6)
    new, base = pair(tmp_path / "steps", steps, steps)
    assert one(new, base, tmp_path).outcome == "inconclusive", "few values, and nobody knows the weights"
    new, base = pair(tmp_path / "pinned", steps, steps, weights="0" * 64)
    assert "the weights are the same" in one(new, base, tmp_path).reason
    new, base = pair(tmp_path / "card", few, few + 1e-4, weights="0" * 64)
    assert one(new, base, tmp_path).outcome == "pass", "the last digits of another graphics card"
    new, base = pair(tmp_path / "moved", few, few - 0.04, weights="0" * 64)
    assert one(new, base, tmp_path).outcome == "inconclusive", (
        "the weights are the same, the preprocessing is not"
    )


def test_ten_small_steps_are_stopped_by_the_anchor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deltas = spread(400, 0.3, 0.05)
    base = write_deltas(tmp_path / "base", {CELL: deltas})
    rules = policy(tmp_path, {**RULE, "worst_change": 0.1})
    statuses = []
    for step in range(1, 11):
        new = write_deltas(tmp_path / f"step{step}", {CELL: deltas - 0.045 * step})
        arguments = ("gate", new, "--baseline", base, "--policy", rules, "--update-baseline")
        result = call(capsys, *arguments)
        statuses.append(result.status)
        if result.status:
            break
    assert statuses == [0, 0, 1]
    assert "since the anchor: fail: change -0.135" in " ".join(result.out.split())
    assert "baseline kept" in result.out
    told = call(capsys, *arguments, "--new-anchor", "retrained on purpose")
    assert (told.status, "since the anchor" in told.out) == (0, False)
    reason = json.loads((base / "anchor" / "reason.json").read_text(encoding="utf-8"))
    assert reason == {"reason": "retrained on purpose"}
    assert (base / "anchor" / "pairs.parquet").read_bytes() == (new / "pairs.parquet").read_bytes()
    alone = call(capsys, "gate", new, "--baseline", base, "--policy", rules, "--new-anchor", "why")
    assert (alone.status, "--new-anchor needs --update-baseline" in alone.err) == (2, True)


def test_a_group_that_the_anchor_lacks_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = {("sunglasses", group): spread(400, 0.3, 0.05, seed=i) for i, group in enumerate(("WM", "BF"))}
    base = write_deltas(tmp_path / "base", {CELL: cells[CELL]})
    rules = policy(tmp_path, {**RULE, "worst_change": 0.1})
    both = write_deltas(tmp_path / "both", cells)
    arguments = ("--baseline", base, "--policy", rules)
    assert call(capsys, "gate", both, *arguments, "--update-baseline").status == 0
    new = write_deltas(tmp_path / "new", {key: deltas - 0.001 for key, deltas in cells.items()})
    shown = " ".join(call(capsys, "gate", new, *arguments).out.split())
    assert "sunglasses: the anchor has no BF, so the drift of these is not tested" in shown
    assert shown.count("since the anchor") == 1


@pytest.mark.parametrize("link", [False, True])
def test_an_anchor_that_is_no_folder_is_an_error(
    link: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the anchor a drift would pass, so one that can't be read is not taken for none."""
    new, base = pair(tmp_path, spread(100, 0.3, 0.05), spread(100, 0.3, 0.05))
    if link:
        (base / "anchor").symlink_to(tmp_path / "gone")
    else:
        (base / "anchor").write_text("", encoding="utf-8")
    result = call(capsys, "gate", new, "--baseline", base, "--policy", policy(tmp_path, RULE))
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "must be the folder of the baseline's anchor" in result.err


def test_a_score_that_falls_for_every_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = {("sunglasses", g): spread(200, 0.2, 0.05, seed=i) for i, g in enumerate(("WF", "WM"))}
    base = write_deltas(tmp_path / "base", cells, source=0.5)
    fallen = write_deltas(tmp_path / "new", cells, source=0.2)
    found = gate(fallen, base, policy(tmp_path, RULE))
    assert found.passed
    assert any("WF: the change by the edit passes, but the mean score before" in note for note in found.notes)
    for side in ("before", "after"):
        result = gate(fallen, base, policy(tmp_path, {**RULE, "metric": "level", "side": side}))
        assert {check.outcome for check in result.checks} == {"fail"}
        assert result.checks[0].change.change == pytest.approx(-0.3)
        assert result.checks[0].name == f"level {side} sunglasses/sunglass WM"
    shown = call(capsys, "compare", base, fallen)
    assert "0.5 to 0.2: -0.3 ==" in " ".join(shown.out.split())
    refused = call(
        capsys,
        "gate",
        fallen,
        "--baseline",
        base,
        "--policy",
        policy(tmp_path, {"metric": "level", "side": "change"}),
    )
    assert (refused.status, "is metric 'delta'" in refused.err) == (2, True)


def test_an_undecided_row_never_asks_for_fewer_identities_than_it_has(tmp_path: Path) -> None:
    before = spread(60, 0.3, 0.1)
    for shift in (-0.045, -0.049, -0.051, -0.055):
        new, base = pair(tmp_path / str(shift), before, before + spread(60, shift, 0.03, seed=1))
        check = one(new, base, tmp_path, unseen_breaks="ignore")
        assert check.outcome == "inconclusive"
        room, z = abs(0.05 + shift), stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
        assert check.identities_needed == int(np.ceil((0.03 * z / room) ** 2)) > 60


def test_the_printed_bound_of_a_fail_is_holms(tmp_path: Path) -> None:
    before = spread(60, 0.3, 0.1)
    new, base = pair(tmp_path, before, before + spread(60, -0.08, 0.05, seed=1))
    rules = [{**RULE, "margin": 0.05}] * 4
    checks = gate(new, base, policy(tmp_path, *rules)).checks
    bounds = [-0.08 + stats.t.ppf(1 - 0.025 / m, 59) * 0.05 / np.sqrt(60) for m in (4, 3, 2, 1)]
    assert [check.decided.bound for check in checks] == pytest.approx(bounds)
    assert all(check.outcome == "fail" and check.decided.bound < -0.05 for check in checks)
    both = one(new, base, tmp_path, harmful="both", margin=0.05)
    assert both.decided.bound == pytest.approx(bounds[3], abs=1e-4)
    assert "at most -0.067" in both.reason


def test_a_row_that_is_beyond_the_margin_only_without_holm_says_so(tmp_path: Path) -> None:
    """Its bounds lie beyond the margin, so "neither inside nor beyond" would contradict what is printed."""
    before = spread(40, 0.3, 0.05)
    noise = spread(40, 0.0, 0.06, seed=3)
    p = 0.01
    change = -0.05 - stats.t.isf(p, 39) * 0.06 / np.sqrt(40)
    cells = {("sunglasses", group): before for group in ("WM", "WF", "BM", "BF")}
    base = write_deltas(tmp_path / "a", cells)
    new = write_deltas(tmp_path / "b", {**dict.fromkeys(cells, before + 1e-9), CELL: before + change + noise})
    check = {check.groups: check for check in gate(new, base, policy(tmp_path, RULE)).checks}["WM",]
    assert check.outcome == "inconclusive"
    assert check.change.p_beyond == pytest.approx(p)
    assert check.change.high < -0.05
    assert f"not after Holm's adjustment over all checks (p {4 * p:.2g})" in check.reason


def test_groups_that_show_the_same_people_are_compared_person_by_person(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one pair a person and group the difference is that of a paired t test over people."""
    rng = np.random.default_rng(3)
    person = rng.normal(0, 0.1, 40)
    changes = {group: person + rng.normal(0, 0.02, 40) for group in ("BF", "WM")}
    for name, factor in (("base", 0.0), ("new", 1.0)):
        rows = [
            (f"{group}{i}", f"p{i}", 1, group, "sunglasses", "face", 0.5, 0.6 + factor * changes[group][i])
            for group in changes
            for i in range(40)
        ]
        write_csv(tmp_path / f"{name}.csv", SCORE_COLUMNS, rows)
        arguments = ("--scores", tmp_path / f"{name}.csv", "--identities", "global", "--out", tmp_path / name)
        assert call(capsys, "audit", *arguments).status == 0
    rule = {"metric": "difference", "concept": "face", "group": ["BF", "WM"], "harmful": "both"}
    check = one(tmp_path / "new", tmp_path / "base", tmp_path, **rule)
    theirs = stats.ttest_rel(changes["WM"], changes["BF"])
    half = (theirs.confidence_interval(0.95).high - theirs.confidence_interval(0.95).low) / 2
    assert check.change.df == pytest.approx(39)
    assert check.change.high - check.change.change == pytest.approx(half)


def test_a_model_that_filtered_its_own_data_gets_no_difference_rule(tmp_path: Path) -> None:
    cells = {("sunglasses", g): spread(100, 0.3, 0.05, seed=i) for i, g in enumerate(("WM", "BF"))}
    base = write_deltas(tmp_path / "a", cells)
    new = write_deltas(tmp_path / "b", {key: values + 1e-9 for key, values in cells.items()})
    rule = {"metric": "difference", "group": ["WM", "BF"], "margin": 0.2, "harmful": "both"}
    assert one(new, base, tmp_path, **rule).outcome == "pass"
    file = new / "record.json"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"filtered_by": []', '"filtered_by": ["age"]'), encoding="utf-8")
    check = one(new, base, tmp_path, **rule)
    assert check.outcome == "inconclusive"
    assert "the same weights filtered the dataset (age detector)" in check.reason


def test_a_difference_asks_for_the_least_of_both_groups(tmp_path: Path) -> None:
    """Four identities in each group, ten asked for: twenty in both, with room for breaks or without."""
    cells = {("sunglasses", g): spread(4, 0.3, 0.001, seed=i) for i, g in enumerate(("WM", "BF"))}
    base = write_deltas(tmp_path / "a", cells)
    moved = {key: values + spread(4, 0.0, 0.001, seed=9 + i) for i, (key, values) in enumerate(cells.items())}
    new = write_deltas(tmp_path / "b", moved)
    rule = {"metric": "difference", "group": ["WM", "BF"], "margin": 0.9, "harmful": "both"}
    for more in ({}, {"unseen_breaks": "ignore"}):
        check = one(new, base, tmp_path, {"min_pairs": 2}, **rule, **more)
        assert (check.outcome, check.identities_needed) == ("inconclusive", 20)
