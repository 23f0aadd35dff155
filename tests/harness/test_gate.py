"""The gate through its doors: four outcomes, and nothing that is absent, stale or odd ever passes."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from dataset_builder.schema.taxonomy import load_taxonomy
from harness.gate import cases, gate
from tests.harness.runs import spread, write_deltas
from tests.support import call, shipped, unread

NAN = float("nan")


def policy(folder: Path, *rules: dict[str, Any], name: str = "policy.toml", **limits: float) -> Path:
    lines = ["[policy]", *(f"{key} = {value}" for key, value in limits.items())]
    for rule in rules or ({},):
        merged = {
            "metric": "delta",
            "attribute": "sunglasses",
            "concept": "sunglass",
            "group": "*",
            "harmful": "both",
            "margin": 0.05,
            **rule,
        }
        if merged.get("of", merged["metric"]) in ("delta", "level", "difference"):
            merged.setdefault("worst_change", 0.05)
        lines += [
            "[[rule]]",
            *(f"{key} = {json.dumps(value)}" for key, value in merged.items() if value != ""),
        ]
    path = folder / name
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def from_corpus(folder: Path, name: str) -> Path:
    """Turn a case's table of cells into a run with pairs of that n, mean and half-width."""
    data = json.loads((shipped("corpus") / "tables" / f"{name}.json").read_text(encoding="utf-8"))
    cells = {}
    for cell in data["cells"]:
        mean, half, n = cell["mean_delta"], cell["half_width"], cell["n"]
        key = cell["attribute"], cell["demographic"]
        if not n:
            cells[key] = np.full(100, NAN)
            continue
        sd = half * np.sqrt(n) / stats.t.ppf(0.5 + data["conf_level"] / 2, n - 1)
        # The same cell gives the same pairs; another mean or n comes with other noise.
        cells[key] = spread(n, mean, sd, seed=int(1000 * abs(mean)) + n)
    return write_deltas(folder / name, cells, level=data["conf_level"])


CORPUS = [
    ("gate_same_other_order", "pass", ""),
    ("gate_new_cell", "pass", "no baseline for IM"),
    ("gate_other_conf_level", "inconclusive", "reported at different levels; the gate recomputes"),
    ("gate_real_regression", "fail", "change -0.19"),
    ("gate_cell_missing", "not comparable", "BF has no scored pair in the new run"),
    ("gate_null_cell", "not comparable", "WM has no scored pair in the new run"),
    ("gate_nan_literal", "not comparable", "WM has no scored pair in the new run"),
    ("gate_n_drop", "inconclusive", "95 of 100 pairs have scores in one of the runs only"),
    ("gate_sign_flip_inside_wide_ci", "inconclusive", "neither inside nor beyond"),
]


def test_every_case_of_the_corpus_has_its_outcome_here() -> None:
    files = {file.stem for file in (shipped("corpus") / "tables").glob("gate_*.json")}
    assert files == {"gate_baseline", *(case for case, _, _ in CORPUS)}


@pytest.mark.parametrize(("case", "outcome", "words"), CORPUS)
def test_corpus_cases(
    case: str, outcome: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline, new = from_corpus(tmp_path, "gate_baseline"), from_corpus(tmp_path, case)
    rules = policy(tmp_path, min_pairs=2, min_identities=2)
    result = call(capsys, "gate", new, "--baseline", baseline, "--policy", rules)
    assert f"gate: {outcome}" in result.out
    assert words in " ".join(result.out.split())
    assert result.status == {"pass": 0, "fail": 1}.get(outcome, 3)


def test_the_level_of_a_report_does_not_matter(tmp_path: Path) -> None:
    base = from_corpus(tmp_path, "gate_baseline")
    new = from_corpus(tmp_path, "gate_other_conf_level")
    result = gate(new, base, policy(tmp_path, {"group": ["WM", "BF"]}))
    assert result.passed, result.summary


def test_raw_corpus_files_are_another_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline = from_corpus(tmp_path, "gate_baseline")
    for file in sorted((shipped("corpus") / "tables").glob("gate_*.json")):
        result = call(capsys, "gate", file, "--baseline", baseline, "--policy", policy(tmp_path))
        assert result.status == 2, file
        assert result.err.startswith("error: ")
        assert result.err.count("\n") == 1


def test_another_version_of_our_schema_is_not_comparable(tmp_path: Path) -> None:
    base = write_deltas(tmp_path / "base", {("sunglasses", "WM"): spread(40, 0.1, 0.1)})
    new = tmp_path / "new"
    shutil.copytree(base, new)
    text = (new / "record.json").read_text(encoding="utf-8")
    (new / "record.json").write_text(text.replace("audit/1", "audit/2"), encoding="utf-8")
    result = gate(new, base, policy(tmp_path))
    assert (result.outcome, result.exit_status) == ("not comparable", 3)
    assert "this version reads 'facedelta.audit/1'" in result.summary


def changed(folder: Path, shift: float, sd: float = 0.05, n: int = 60, **more: Any) -> tuple[Path, Path]:
    """A baseline, and a run whose deltas moved by ``shift`` on average."""
    before = spread(n, 0.3, 0.1)
    moved = before + spread(n, shift, sd, seed=1)
    base = write_deltas(folder / "base", {("sunglasses", "WM"): before}, **more)
    new = write_deltas(folder / "new", {("sunglasses", "WM"): moved}, **more)
    return new, base


@pytest.mark.parametrize(
    ("shift", "harmful", "outcome"),
    [
        (0.0, "both", "pass"),
        (-0.2, "lower", "fail"),
        (-0.2, "higher", "pass"),
        (0.2, "lower", "pass"),
        (0.2, "both", "fail"),
        (-0.049, "lower", "inconclusive"),
        (-0.049, "higher", "pass"),
    ],
)
def test_direction(shift: float, harmful: str, outcome: str, tmp_path: Path) -> None:
    new, base = changed(tmp_path, shift)
    (check,) = gate(new, base, policy(tmp_path, {"harmful": harmful})).checks
    assert check.outcome == outcome, check.summary
    se = 0.05 / np.sqrt(60)
    half = stats.t.ppf(0.975, 59) * se
    assert check.change.change == pytest.approx(shift, abs=1e-12)
    assert (check.change.low, check.change.high) == pytest.approx((shift - half, shift + half))


@pytest.mark.parametrize("harmful", ["lower", "higher", "both"])
@pytest.mark.parametrize("margin", [0.02, 0.05, 0.1, 0.3])
def test_a_change_of_exactly_the_margin_is_undecided(harmful: str, margin: float, tmp_path: Path) -> None:
    base = write_deltas(tmp_path / "a", {("sunglasses", "WM"): np.zeros(30)})
    moved = np.full(30, -margin if harmful == "lower" else margin)
    new = write_deltas(tmp_path / "b", {("sunglasses", "WM"): moved})
    (check,) = gate(new, base, policy(tmp_path, {"harmful": harmful, "margin": margin})).checks
    assert check.outcome == "inconclusive", check.summary


def test_pairs_of_the_new_run_alone_are_no_ground_for_a_pass(tmp_path: Path) -> None:
    some = spread(30, 0.0, 0.005)
    base = write_deltas(tmp_path / "a", {("sunglasses", "WM"): some})
    new = write_deltas(tmp_path / "b", {("sunglasses", "WM"): np.concatenate([some, np.full(30, -1.0)])})
    for one, other in ((new, base), (base, new)):
        (check,) = gate(one, other, policy(tmp_path, {"worst_change": 1.0})).checks
        assert (check.outcome, check.change.lost) == ("inconclusive", 30)
    failing = write_deltas(tmp_path / "c", {("sunglasses", "WM"): np.concatenate([some, np.full(30, NAN)])})
    rule = {"metric": "fta", "concept": "", "harmful": "higher", "margin": 0.2}
    (check,) = gate(failing, base, policy(tmp_path, rule)).checks
    assert (check.outcome, check.change.lost) == ("inconclusive", 30)
    assert check.change.worst_high > 0.5, "thirty of sixty may have failed anew"


def test_identities_repeat(tmp_path: Path) -> None:
    """Six pairs of one person are not six people: the bounds are those of ten identities."""
    base = write_deltas(tmp_path / "a", {("sunglasses", "WM"): np.full(60, 0.2)}, per_identity=6)
    person = spread(10, 0.0, 0.05)
    new = write_deltas(tmp_path / "b", {("sunglasses", "WM"): 0.2 + np.repeat(person, 6)}, per_identity=6)
    (check,) = gate(new, base, policy(tmp_path)).checks
    assert (check.change.n_pairs, check.change.n_identities) == (60, 10)
    assert check.change.high == pytest.approx(stats.t.ppf(0.975, 9) * 0.05 / np.sqrt(10))


def test_a_fail_is_adjusted_over_all_rules_and_a_pass_is_not(tmp_path: Path) -> None:
    se = 0.05 / np.sqrt(60)
    # One-sided p of .02 beyond the margin: alone a fail, among ten rules not.
    shift = 0.05 + stats.t.ppf(0.98, 59) * se
    new, base = changed(tmp_path, shift)
    (alone,) = gate(new, base, policy(tmp_path)).checks
    assert alone.outcome == "fail"
    assert alone.p_beyond_adjusted == pytest.approx(0.02)
    many = gate(new, base, policy(tmp_path, *[{"margin": 0.05}] * 10))
    assert {check.outcome for check in many.checks} == {"inconclusive"}
    assert many.checks[0].p_beyond_adjusted == pytest.approx(0.2)
    shift = 0.05 - stats.t.ppf(0.98, 59) * se
    (tmp_path / "p").mkdir()
    new, base = changed(tmp_path / "p", shift)
    assert gate(new, base, policy(tmp_path, *[{"margin": 0.05}] * 10)).passed


def test_below_the_minimum_is_inconclusive_whatever_the_change(tmp_path: Path) -> None:
    new, base = changed(tmp_path, -0.2)
    for limits, words in (({"min_pairs": 61}, "60 pairs"), ({"min_identities": 61}, "60 identities")):
        result = gate(new, base, policy(tmp_path, **limits))
        assert (result.outcome, result.exit_status) == ("inconclusive", 3)
        assert words in result.summary


def test_how_many_identities_would_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new, base = changed(tmp_path, -0.05, sd=0.2)
    for harmful, power in (("lower", 0.8), ("both", 0.9)):
        rule = {"harmful": harmful, "unseen_breaks": "ignore"}
        (check,) = gate(new, base, policy(tmp_path, rule)).checks
        z = stats.norm.ppf(0.975) + stats.norm.ppf(power)
        assert check.identities_needed == int(np.ceil(0.2**2 * z**2 / 0.05**2))
    (check,) = gate(new, base, policy(tmp_path, planned_change=0.05)).checks
    assert check.identities_needed is None
    (at_most, beyond) = (
        call(
            capsys, "gate", new, "--baseline", base, "--policy", policy(tmp_path, planned_change=planned)
        ).out
        for planned in (0.0, 0.05)
    )
    assert "none" in beyond
    assert "none" not in at_most
    assert any("fresh identities" in note for note in gate(new, base, policy(tmp_path)).notes)


def test_difference_of_two_groups(tmp_path: Path) -> None:
    before = {("facemask", g): spread(40, 0.3, 0.1, seed=i) for i, g in enumerate(("BF", "WM"))}
    after = {
        ("facemask", "BF"): before["facemask", "BF"] + spread(40, 0.0, 0.03, seed=5),
        ("facemask", "WM"): before["facemask", "WM"] + spread(40, 0.1, 0.06, seed=6),
    }
    base, new = write_deltas(tmp_path / "a", before), write_deltas(tmp_path / "b", after)
    rule = {"metric": "difference", "attribute": "facemask", "group": ["BF", "WM"], "margin": 0.03}
    (check,) = gate(new, base, policy(tmp_path, rule)).checks
    theirs = stats.ttest_ind(
        after["facemask", "WM"] - before["facemask", "WM"],
        after["facemask", "BF"] - before["facemask", "BF"],
        equal_var=False,
    )
    interval = theirs.confidence_interval(0.95)
    assert check.outcome == "fail"
    assert (check.change.low, check.change.high) == pytest.approx((interval.low, interval.high))
    every = gate(new, base, policy(tmp_path, {**rule, "group": "*"}))
    assert [check.groups for check in every.checks] == [("BF", "WM")]
    # Both groups move alike: their deltas fail, their difference passes.
    alike = {key: values + 0.1 for key, values in before.items()}
    moved = write_deltas(tmp_path / "c", alike)
    assert gate(moved, base, policy(tmp_path, rule)).passed
    assert gate(moved, base, policy(tmp_path, {"attribute": "facemask"})).outcome == "fail"


def with_failures(n: int, failing: int, mean: float = 0.3) -> np.ndarray:
    deltas = spread(n, mean, 0.1)
    deltas[:failing] = NAN
    return deltas


@pytest.mark.parametrize(
    ("before", "after", "n", "outcome"),
    [
        (0, 0, 200, "pass"),
        (0, 0, 50, "inconclusive"),
        (10, 10, 200, "pass"),
        (0, 60, 200, "fail"),
        (60, 0, 200, "pass"),
        (0, 5, 100, "inconclusive"),
    ],
)
def test_failure_to_acquire(before: int, after: int, n: int, outcome: str, tmp_path: Path) -> None:
    base = write_deltas(tmp_path / "a", {("sunglasses", "WM"): with_failures(n, before)})
    new = write_deltas(tmp_path / "b", {("sunglasses", "WM"): with_failures(n, after, mean=0.31)})
    rule = {"metric": "fta", "concept": "", "harmful": "higher", "margin": 0.05}
    (check,) = gate(new, base, policy(tmp_path, rule)).checks
    assert check.outcome == outcome, check.summary
    assert check.change.change == pytest.approx((after - before) / n)
    if before == after:
        # No identity changed: the exact one-sided bound of no event in n.
        assert check.change.high == pytest.approx(1 - 0.025 ** (1 / n))
    if outcome == "inconclusive" and not after:
        assert check.identities_needed == 72  # the smallest G with .95^G < .025
        assert 0.95**72 < 0.025 < 0.95**71


def test_pairs_that_tell_in_one_run_only_are_filled_in_the_worse_way(tmp_path: Path) -> None:
    rule = {"metric": "fta", "concept": "", "harmful": "higher", "margin": 0.05}
    base = write_deltas(tmp_path / "a", {("sunglasses", "WM"): with_failures(200, 0)})
    unreadable = write_deltas(
        tmp_path / "b", {("sunglasses", "WM"): with_failures(200, 40)}, reason="unreadable"
    )
    absent = write_deltas(tmp_path / "c", {("sunglasses", "WM"): with_failures(200, 0)[:160]})
    for new in (unreadable, absent):
        (check,) = gate(new, base, policy(tmp_path, rule)).checks
        assert check.outcome == "inconclusive"
        assert (check.change.change, check.change.lost) == (0.0, 40)
        assert check.change.worst_high > 0.2, "all forty may have failed"
        assert check.change.low == pytest.approx(0.025 ** (1 / 200) - 1), "for a fail nothing has changed"


FTA = {"metric": "fta", "concept": "", "harmful": "higher"}


def failing(folder: Path, count: int, n: int, **options: int) -> Path:
    return write_deltas(folder, {("sunglasses", "WM"): with_failures(n, count)}, **options)


def binomial(count: int, n: int) -> tuple[float, float]:
    """Clopper and Pearson's interval of two one-sided 2.5 % bounds."""
    found = stats.binomtest(count, n).proportion_ci(0.95)
    return found.low, found.high


def test_bounds_of_many_new_failures_are_where_the_verdict_is(tmp_path: Path) -> None:
    base, new = failing(tmp_path / "a", 0, 30), failing(tmp_path / "b", 24, 30)
    (check,) = gate(new, base, policy(tmp_path, {**FTA, "margin": 0.1})).checks
    low, _ = binomial(24, 30)
    _, regained = binomial(0, 30)
    expected = 0.8 - np.hypot(0.8 - low, regained)
    by_t = 0.8 - stats.t.ppf(0.975, 29) * np.sqrt(0.8 * 0.2 / 29)
    assert check.change.low == pytest.approx(min(expected, by_t))
    assert 0.1 < check.change.low < 0.8 < check.change.high <= 1.0
    for margin, outcome in ((0.99 * check.change.low, "fail"), (1.01 * check.change.low, "inconclusive")):
        assert gate(new, base, policy(tmp_path, {**FTA, "margin": margin})).outcome == outcome


@pytest.mark.parametrize(("failures", "margin"), [(20, 0.7), (19, 0.8)])
def test_a_large_margin_is_not_passed_by_few_identities(failures: int, margin: float, tmp_path: Path) -> None:
    """Ten of ten identities, where a true share of the margin shows as many with p > .025."""
    base, new = (failing(tmp_path / str(n), n, 20, per_identity=2) for n in (0, failures))
    (check,) = gate(new, base, policy(tmp_path, {**FTA, "margin": margin})).checks
    assert check.change.p_beyond >= margin**10 > 0.025
    assert check.outcome == "inconclusive"


def test_identities_are_those_that_both_runs_tell_of(tmp_path: Path) -> None:
    deltas = spread(24, 0.3, 0.1)
    base = write_deltas(tmp_path / "a", {("sunglasses", "WM"): deltas}, per_identity=2)
    untold = deltas.copy()
    untold[4:] = NAN
    new = write_deltas(tmp_path / "b", {("sunglasses", "WM"): untold}, per_identity=2, reason="unreadable")
    (check,) = gate(new, base, policy(tmp_path, {**FTA, "margin": 0.05}, min_pairs=2)).checks
    assert (check.change.n_pairs, check.change.n_identities, check.change.lost) == (4, 2, 20)
    assert "2 identities, the policy asks for" in check.reason
    untold[:] = NAN
    new = write_deltas(tmp_path / "c", {("sunglasses", "WM"): untold}, per_identity=2, reason="unreadable")
    (check,) = gate(new, base, policy(tmp_path, {**FTA, "margin": 0.05})).checks
    assert check.outcome == "not comparable"
    assert np.isnan(check.change.se)


def test_the_spread_given_is_the_one_of_the_wider_way_to_fill(tmp_path: Path) -> None:
    base = failing(tmp_path / "a", 0, 40)
    new = write_deltas(tmp_path / "b", {("sunglasses", "WM"): with_failures(40, 8)}, reason="unreadable")
    (check,) = gate(new, base, policy(tmp_path, {**FTA, "margin": 0.05}, min_pairs=2)).checks
    assert check.change.se == pytest.approx(np.sqrt(0.2 * 0.8 / 39))
    assert check.change.df == pytest.approx(39)


def test_lost_scores_do_not_pass_a_delta_rule(tmp_path: Path) -> None:
    base = write_deltas(tmp_path / "a", {("sunglasses", "WM"): with_failures(100, 0)})
    few = write_deltas(tmp_path / "b", {("sunglasses", "WM"): with_failures(100, 5)})
    many = write_deltas(tmp_path / "c", {("sunglasses", "WM"): with_failures(100, 6)})
    small, large = {"worst_change": 0.05}, {"worst_change": 1.0}
    assert gate(few, base, policy(tmp_path, small)).passed
    for new, other in ((few, base), (many, base), (base, many)):
        (check,) = gate(new, other, policy(tmp_path, large)).checks
        assert check.outcome == "inconclusive"
        assert "of 100 pairs have scores in one of the runs only" in check.reason
    assert gate(few, base, policy(tmp_path, small, max_lost=0.04)).outcome == "inconclusive"


def damage_pairs(run: Path, **columns: Any) -> None:
    table = pq.read_table(run / "pairs.parquet")
    for name, change in columns.items():
        name = name.replace("__", ":")
        values = change(table.column(name).to_pylist())
        index = table.column_names.index(name)
        table = table.set_column(index, name, pa.array(values, table.schema.field(name).type))
    pq.write_table(table, run / "pairs.parquet")


def first(value: object) -> Any:
    return lambda values: [value, *values[1:]]


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("source_hash", "other", "1 pair show other pictures: sunglasses-WM-0000"),
        ("transformed_hash", None, "1 pair show other pictures"),
        ("identity", "somebody", "1 pair bear other labels"),
        ("transformed__sunglass", NAN, "1 score that are no finite numbers"),
        ("source__sunglass", float("inf"), "no finite numbers"),
    ],
)
def test_other_pairs_are_not_comparable(column: str, value: object, words: str, tmp_path: Path) -> None:
    new, base = changed(tmp_path, 0.0)
    assert gate(new, base, policy(tmp_path)).passed
    damage_pairs(new, **{column: first(value)})
    result = gate(new, base, policy(tmp_path))
    assert (result.outcome, result.exit_status) == ("not comparable", 3)
    assert words.replace("1 pair show", "1 pair show") in result.summary


def test_other_taxonomy_concepts_or_references_are_not_comparable(tmp_path: Path) -> None:
    new, base = changed(tmp_path, 0.0)
    cells = {("sunglasses", "WM"): spread(60, 0.3, 0.1)}
    other = write_deltas(tmp_path / "t", cells, taxonomy=load_taxonomy("paper"))
    assert "different taxonomies" in gate(other, base, policy(tmp_path)).summary
    other = write_deltas(tmp_path / "c", cells, concept="shades")
    result = gate(other, base, policy(tmp_path))
    assert result.exit_status == 3
    assert "concept lists differ: shades, sunglass" in result.summary
    text = (new / "record.json").read_text(encoding="utf-8")
    (new / "record.json").write_text(text.replace('"references": null', '"references": 2'), encoding="utf-8")
    assert "number of reference pictures" in gate(new, base, policy(tmp_path)).summary


def test_runs_without_a_common_pair(tmp_path: Path) -> None:
    base = write_deltas(tmp_path / "a", {("sunglasses", "WM"): spread(40, 0.1, 0.1)})
    new = write_deltas(tmp_path / "b", {("sunglasses", "BF"): spread(40, 0.1, 0.1)})
    assert "no pair in common" in gate(new, base, policy(tmp_path)).summary


def test_finished_scores_are_compared_with_a_note(tmp_path: Path) -> None:
    new, base = changed(tmp_path, 0.0, pictures=None)
    result = gate(new, base, policy(tmp_path))
    assert result.passed
    assert any("whether the pictures are the same" in note for note in result.notes)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"attribute": "sunglases"}, "no run has attribute 'sunglases' (did you mean 'sunglasses'?)"),
        ({"concept": "sunglas"}, "no run has concept 'sunglas' (did you mean 'sunglass'?)"),
        ({"group": "WMM"}, "group 'WMM' has no pair for 'sunglasses' (did you mean 'WM'?)"),
        ({"metric": "difference"}, "a policy rule matches nothing: only WM"),
        ({"margin": 0}, "'rule.0.margin'"),
        ({"margin": -0.1}, "'rule.0.margin'"),
        ({"margin": 1e-320}, "'rule.0.margin'"),
        ({"margin": True}, "'rule.0.margin'"),
        ({"margin": "0.05"}, "'rule.0.margin'"),
        ({"group": ["*", "WM"]}, 'must be "*" or name groups'),
        ({"harmful": "worse"}, "'rule.0.harmful'"),
        ({"metric": "bias"}, "'rule.0.metric'"),
        ({"marign": 1}, "unknown key 'rule.0.marign' (did you mean 'margin'?)"),
        ({"concept": ""}, "needs a 'concept'"),
        ({"metric": "fta"}, "has no 'concept'"),
        ({"metric": "difference", "group": ["WM"]}, "two groups"),
        ({"metric": "difference", "harmful": "lower"}, 'harmful = "both"'),
        (
            {"metric": "fmr", "concept": ""},
            "matches nothing: 'fmr' needs a recogniser, and neither run is of one",
        ),
        (
            {"metric": "fnmr", "concept": "", "comparison": "same_group"},
            "must be one of other_source, own_source",
        ),
        ({"metric": "fta", "concept": "", "comparison": "same_group"}, "must be left out"),
        ({"metric": "fta", "concept": "", "side": "before"}, "'side' belongs to levels and error rates"),
        ({"metric": "tmr", "concept": "", "comparison": "own_source", "side": "change"}, "must be 'after'"),
        ({"metric": "fmr", "concept": "", "margin": 1}, "a margin of shares must be below 1"),
        ({"of": "fmr"}, "'of' belongs to metric 'difference'"),
        ({"group": []}, "at least one group"),
        ({"group": ["WM", "WM"]}, "each once"),
    ],
)
def test_a_faulty_policy_is_one_line_and_2(
    rule: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, base = changed(tmp_path, 0.0)
    result = call(capsys, "gate", new, "--baseline", base, "--policy", policy(tmp_path, rule))
    assert result.status == 2
    assert words in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "key 'rule' is missing"),
        ("rule = []", "'rule'"),
        ("[policy]\nalpa = 0.1\n[[rule]]", "unknown key 'policy.alpa' (did you mean 'alpha'?)"),
        ("[policy]\nalpha = 0.5\n", "'policy.alpha'"),
        ("[policy]\nalpha = 1e-300\n", "'policy.alpha'"),
        ("[policy]\nplanned_change = nan\n", "'policy.planned_change'"),
        ("[policy]\nplanned_change = -inf\n", "'policy.planned_change'"),
        ("[policy", "must be TOML"),
    ],
)
def test_a_policy_that_is_none(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.toml"
    path.write_text(text, encoding="utf-8")
    result = call(capsys, "gate", tmp_path, "--baseline", tmp_path, "--policy", path)
    assert result.status == 2
    assert words in result.err


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda run: (run / "pairs.parquet").unlink(), "no such file"),
        (lambda run: (run / "pairs.parquet").write_bytes(b"PAR1"), "not a readable parquet file"),
        (lambda run: damage_pairs(run, pair_id=lambda v: [v[1], *v[1:]]), "a pair_id must occur once"),
        (lambda run: damage_pairs(run, demographic=first(None)), "every row needs a text in 'demographic'"),
        (
            lambda run: pq.write_table(pq.read_table(run / "pairs.parquet")[:5], run / "pairs.parquet"),
            "pairs.parquet must belong to record.json",
        ),
        (
            lambda run: pq.write_table(
                pq.read_table(run / "pairs.parquet").drop_columns("source:sunglass"), run / "pairs.parquet"
            ),
            "needs the columns source:sunglass",
        ),
        (lambda run: (run / "record.json").write_text("{", encoding="utf-8"), "truncated"),
        (shutil.rmtree, "no such record"),
    ],
)
def test_a_damaged_run_is_one_line_and_2(
    damage: Any, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, base = changed(tmp_path, 0.0)
    damage(new)
    result = call(capsys, "gate", new, "--baseline", base, "--policy", policy(tmp_path))
    assert result.status == 2
    assert words in result.err
    assert result.err.count("\n") == 1


def test_what_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    label = 'a|<img src=x onerror=alert(1)>&"\x01'
    cells = {("sunglasses", label): spread(40, 0.3, 0.1), ("sunglasses", "WM"): spread(40, 0.2, 0.1)}
    base = write_deltas(tmp_path / "base", cells)
    new = write_deltas(
        tmp_path / "new",
        {**cells, ("sunglasses", label): spread(40, 0.3, 0.1) - 0.2, ("sunglasses", "IM"): spread(40, 0, 1)},
    )
    summary = tmp_path / "summary.md"
    summary.write_text("from an earlier step\n", encoding="utf-8")
    rules = policy(tmp_path, {}, {"group": "WM", "margin": 0.2}, {"group": "IM"})
    files = ("--junit", tmp_path / "j.xml", "--json", tmp_path / "g.json", "--step-summary", summary)
    result = call(capsys, "gate", new, "--baseline", base, "--policy", rules, *files)
    assert result.status == 1
    suites = ElementTree.parse(tmp_path / "j.xml").getroot()  # noqa: S314 - just written
    (suite,) = suites
    assert (suites.tag, suite.tag) == ("testsuites", "testsuite")
    kinds = [[child.tag for child in case] for case in suite]
    assert kinds == [["failure"], ["system-out"], ["system-out"], ["error"]]
    for item in (suites, suite):
        counts = {name: item.get(name) for name in ("tests", "failures", "errors")}
        assert counts == {"tests": "4", "failures": "1", "errors": "1"}
    assert all(float(item.get("time", "nan")) >= 0 for item in (suites, suite, *suite))
    for case, word in ((suite[0], "margin: 0.05"), (suite[3], "not comparable")):
        text = case[0].text or ""
        assert word in text
        assert f"check: {case.get('name')}\n" in text
        assert str(case[0].get("message")) in text
    first = (tmp_path / "j.xml").read_bytes()
    call(capsys, "gate", new, "--baseline", base, "--policy", rules, "--junit", tmp_path / "j.xml")
    assert (tmp_path / "j.xml").read_bytes() == first
    data = json.loads((tmp_path / "g.json").read_text(encoding="utf-8"))
    assert (data["schema"], data["outcome"], data["exit_status"]) == ("facedelta.gate/1", "fail", 1)
    assert [check["outcome"] for check in data["checks"]] == ["fail", "pass", "pass", "not comparable"]
    assert data["checks"][0]["change"] == pytest.approx(-0.2)
    assert data["checks"][3]["change"] is None
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("from an earlier step\n## Regression gate: fail\n")
    assert "<img" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {9}


def test_the_baseline_is_replaced_only_by_a_run_that_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, base = changed(tmp_path, -0.2)
    before = {name: (base / name).read_bytes() for name in ("record.json", "pairs.parquet")}
    arguments = ("gate", new, "--baseline", base, "--update-baseline", "--policy")
    result = call(capsys, *arguments, policy(tmp_path))
    assert result.status == 1
    assert "baseline kept" in result.out
    assert {name: (base / name).read_bytes() for name in before} == before
    assert call(capsys, *arguments, policy(tmp_path, {"margin": 0.3})).status == 0
    for name in before:
        assert (base / name).read_bytes() == (new / name).read_bytes()
    same = call(capsys, "gate", new, "--baseline", new, "--update-baseline", "--policy", policy(tmp_path))
    assert (same.status, "must not be the baseline itself" in same.err) == (2, True)
    assert (new / "record.json").exists()


def test_inside_pytest_every_check_is_a_test(tmp_path: Path) -> None:
    new, base = changed(tmp_path, -0.2)
    checks = cases(new, base, policy(tmp_path, {}, {"margin": 0.3}))
    assert [str(check) for check in checks] == ["delta sunglasses/sunglass WM"] * 2
    assert [check.passed for check in checks] == [False, True]
    assert "fail: change -0.2" in checks[0].summary


@pytest.mark.slow
def test_a_closed_pipe_does_not_change_the_verdict(tmp_path: Path) -> None:
    new, base = changed(tmp_path, -0.2)
    arguments = ("--baseline", base, "--policy", policy(tmp_path, *[{}] * 40), "--junit", tmp_path / "j.xml")
    for run, status in ((new, 1), (base, 0)):
        assert unread("gate", run, *arguments) == (status, "")
        assert ElementTree.parse(tmp_path / "j.xml").getroot().get("tests") == "40"  # noqa: S314 - just written
        (tmp_path / "j.xml").unlink()
    few = policy(tmp_path, name="few.toml", min_pairs=100)
    assert unread("gate", new, "--baseline", base, "--policy", few) == (3, "")


@pytest.mark.slow
def test_other_commands_never_end_as_a_failed_gate_does(tmp_path: Path) -> None:
    run, _ = changed(tmp_path, 0.0)
    assert unread("table", run) == (0, "")
    assert unread("table", run, "--format", "csv") == (141, "")
    assert unread("targets", "list") == (141, "")
