"""Comparisons of a whole run: R as the oracle for ``--ci t``, hand-worked cases, planted effects."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.record import read_record
from tests.harness.oracle import close
from tests.harness.test_audit_scores import audited, row, scores
from tests.support import call, shared, shipped


def run(folder: Path, capsys: pytest.CaptureFixture[str], rows: list[Any], *more: object) -> dict[str, Any]:
    return audited(capsys, scores(folder / "s.csv", rows), folder / "run", *more)


def simulated(
    effects: dict[str, float], identities: int = 24, seed: int = 0, spread: float = 0.02, **labels: object
) -> list[Any]:
    """Two pairs an identity, deltas = group effect + identity + noise."""
    rng = np.random.default_rng(seed)
    rows = []
    number = 0
    for group, effect in effects.items():
        for identity in range(identities):
            person = rng.normal(0, spread)
            for _ in range(2):
                number += 1
                source = rng.uniform(0.3, 0.5)
                delta = effect + person + rng.normal(0, spread)
                more = {"identity": f"{group}{identity}", "demographic": group, **labels}
                rows.append(row(number, source, source + delta, **more))
    return rows


@pytest.mark.parametrize(
    "name", ["D01_tiny_n", "D04_cluster_icc50", "D06_cluster_edge", "D11_eight_unbalanced"]
)
def test_pairwise_and_omnibus_equal_rs_welch(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = shipped("oracle") / "inputs" / f"{name}.csv"
    record = audited(capsys, table, tmp_path, "--ci", "t")
    reference = json.loads((shipped("oracle") / "reference" / f"{name}.json").read_text(encoding="utf-8"))
    theirs = reference.get("disparity", {}).get("sunglasses|sunglass")
    if theirs is None:
        assert record["disparities"] == [] or len(record["groups"]) < 2
        return
    (ours,) = record["disparities"]
    by_pair = {frozenset((pair["a"], pair["b"])): pair for pair in ours["pairwise"]}
    for welch in theirs["pairwise_welch"]:
        pair = by_pair[frozenset((welch["a"], welch["b"]))]
        sign = 1 if pair["b"] == welch["b"] else -1
        assert close(sign * pair["difference"], welch["diff_b_minus_a"])
        if welch["p"] is None:
            continue
        for key in ("se", "df", "p"):
            assert close(pair[key], welch[key])
        half = (pair["ci"]["high"] - pair["ci"]["low"]) / 2
        assert close(half, welch["half_width"])
        check_band(pair, welch["games_howell"])
    anova = theirs["welch_anova"]
    if isinstance(anova, dict) and anova.get("F") is not None and len(theirs["groups"]) > 2:
        assert close(ours["diagnostic"]["statistic"], anova["F"])
        assert close(ours["diagnostic"]["df2"], anova["df2"])
        assert close(ours["diagnostic"]["p"], anova["p"])
    assert not ours["omnibus"]["left_out"]
    howell = [welch["games_howell"]["p"] for welch in theirs["pairwise_welch"] if "games_howell" in welch]
    smallest = min((p for p in howell if p is not None), default=None)
    assert ours["omnibus"]["p"] == (None if smallest is None else pytest.approx(smallest, abs=1e-6))


def check_band(pair: dict[str, Any], howell: dict[str, Any]) -> None:
    """R's qtukey stops its search at steps of 1e-4 and loses digits at few df; scipy is the closer oracle."""
    if howell["lo"] is None:
        assert pair["band"] is None
        return
    half = (pair["band"]["high"] - pair["band"]["low"]) / 2
    groups = pair["band"]["groups"]
    critical = stats.studentized_range.ppf(0.999, groups, pair["df"]) / math.sqrt(2)
    assert half == pytest.approx(critical * pair["se"], rel=1e-9)
    assert half == pytest.approx((howell["hi"] - howell["lo"]) / 2, rel=1e-3)


def test_clustered_differences_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One pair an identity: CR2 is the ordinary variance, so the difference is Welch's t test."""
    a, b = [0.1, 0.2, 0.4, 0.15, 0.3], [0.5, 0.45, 0.7, 0.6]
    rows = [row(i, 0.1, 0.1 + d, identity=f"a{i}") for i, d in enumerate(a)]
    rows += [row(20 + i, 0.1, 0.1 + d, identity=f"b{i}", demographic="BF") for i, d in enumerate(b)]
    (entry,) = run(tmp_path, capsys, rows)["disparities"]
    (pair,) = entry["pairwise"]
    welch = stats.ttest_ind(a, b, equal_var=False)
    assert (pair["a"], pair["b"]) == ("BF", "WM")
    assert pair["p"] == pytest.approx(welch.pvalue, rel=1e-9)
    assert pair["df"] == pytest.approx(welch.df, rel=1e-9)
    assert pair["difference"] == pytest.approx(np.mean(a) - np.mean(b))
    # Two groups have one p: the row's is that of the difference, and no second test stands beside it.
    assert entry["omnibus"]["p"] == pair["p"]
    assert entry["omnibus"]["statistic"] == pytest.approx(math.sqrt(2) * abs(welch.statistic), rel=1e-9)
    assert (entry["omnibus"]["df1"], entry["omnibus"]["df2"]) == (2, pair["df"])
    assert entry["diagnostic"] is None


def test_families_are_recorded_and_adjusted_by_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = simulated({"WM": 0.1, "BF": 0.3, "AM": 0.1}) + [
        ("q" + r[0], *r[1:4], "scarf", *r[5:]) for r in simulated({"WM": 0.1, "BF": 0.1, "AM": 0.1}, seed=1)
    ]
    record = run(tmp_path, capsys, rows)
    families = {family["id"]: family for family in record["families"]}
    target = record["targets"][0]["spec"]
    assert families[f"cells:{target}:demographic"]["m"] == 6
    assert families[f"omnibus:{target}:demographic"]["m"] == 2
    entries = {entry["attribute"]: entry for entry in record["disparities"]}
    raw = sorted((entry["omnibus"]["p"], name) for name, entry in entries.items())
    assert entries[raw[0][1]]["omnibus"]["p_adjusted"] == pytest.approx(min(1, 2 * raw[0][0]))
    assert entries[raw[1][1]]["omnibus"]["p_adjusted"] == pytest.approx(max(min(1, 2 * raw[0][0]), raw[1][0]))
    # Pairwise tests only inside the rejected row, by the studentized range of its three groups.
    smile, scarf = entries["smile"], entries["scarf"]
    assert smile["omnibus"]["p_adjusted"] < 0.001 < scarf["omnibus"]["p_adjusted"]
    assert {pair["p_adjusted"] for pair in scarf["pairwise"]} == {None}
    for pair in smile["pairwise"]:
        q = math.sqrt(2) * abs(pair["difference"] / pair["se"])
        expected = stats.studentized_range.sf(q, 3, pair["df"])
        assert pair["p_adjusted"] == pytest.approx(expected, rel=1e-6, abs=1e-12)
        assert (pair["p_adjusted"] <= 0.001) == (not pair["band"]["low"] <= 0 <= pair["band"]["high"])
    assert smile["omnibus"]["p"] == min(pair["p_adjusted"] for pair in smile["pairwise"])
    assert families[smile["pairwise"][0]["family"]] == {
        "id": smile["pairwise"][0]["family"],
        "m": 3,
        "method": "games-howell",
    }
    # HTZ stands beside the decision and takes no part in it.
    assert smile["diagnostic"]["method"] == "htz"
    assert smile["diagnostic"]["p_adjusted"] is None
    cells = [cell["p"] for cell in record["cells"]]
    holm = np.minimum(1, np.maximum.accumulate(np.sort(cells) * np.arange(6, 0, -1)))
    assert sorted(cell["p_adjusted"] for cell in record["cells"]) == pytest.approx(holm)


def test_the_difference_table_claims_only_what_the_tests_allow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, capsys, simulated({"WM": 0.1, "BF": 0.3, "AM": 0.1}))
    text = call(capsys, "table", tmp_path / "run", "--differences", "--format", "markdown").out
    assert "BF minus AM: 0.2" in text
    assert "WM minus BF: -0.2" in text
    assert "WM minus AM" not in text
    other = tmp_path / "other"
    other.mkdir()
    run(other, capsys, simulated({"WM": 0.1, "BF": 0.1}))
    text = call(capsys, "table", other / "run", "--differences", "--format", "markdown").out
    assert "no claim: the row's test is not rejected at 0.001" in text
    assert "do not say that there is no difference" in text
    lines = call(capsys, "table", other / "run", "--differences", "--format", "csv").out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("target,by,attribute,concept,a,b,difference,se,df")


def test_by_sex_weights_groups_equally_whatever_their_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pooled sex difference would be an ethnicity mix: WM has many pairs, AM few, and sex does nothing."""
    rows = simulated({"WM": 0.4}, identities=40, spread=0.01) + [
        ("b" + r[0], *r[1:]) for r in simulated({"WF": 0.4, "AF": 0.1}, identities=12, seed=2, spread=0.01)
    ]
    rows += [("c" + r[0], *r[1:]) for r in simulated({"AM": 0.1}, identities=12, seed=3, spread=0.01)]
    record = run(tmp_path, capsys, rows, "--by", "sex", "--by", "ethnicity")
    cells = {(cell["by"], cell["group"]): cell for cell in record["cells"]}
    mean = {group: cells["demographic", group]["delta"] for group in ("WM", "WF", "AM", "AF")}
    variance = {group: cells["demographic", group]["se"] ** 2 for group in mean}
    men = cells["sex", "male"]
    assert men["delta"] == pytest.approx((mean["WM"] + mean["AM"]) / 2)
    assert men["se"] == pytest.approx(math.sqrt(variance["WM"] + variance["AM"]) / 2)
    df = {group: cells["demographic", group]["df"] for group in mean}
    total = variance["WM"] + variance["AM"]
    parts = variance["WM"] ** 2 / df["WM"] + variance["AM"] ** 2 / df["AM"]
    assert men["df"] == pytest.approx(total**2 / parts)
    half = stats.t.ppf(0.9995, men["df"]) * men["se"]
    assert men["ci"]["high"] - men["delta"] == pytest.approx(half)
    assert (men["n_pairs"], men["n_identities"]) == (104, 52)
    entries = {entry["by"]: entry for entry in record["disparities"]}
    (sex,) = entries["sex"]["pairwise"]
    assert abs(sex["difference"]) < 0.02
    assert entries["ethnicity"]["omnibus"]["p"] < 1e-6
    assert entries["ethnicity"]["omnibus"]["p"] == entries["ethnicity"]["pairwise"][0]["p"]
    crossed = [entries[by]["interaction"]["test"]["p"] for by in ("sex", "ethnicity")]
    assert crossed[0] == pytest.approx(crossed[1], rel=1e-9)
    assert crossed[0] > 0.001
    text = call(capsys, "table", tmp_path / "run", "--by", "sex", "--format", "markdown").out
    assert "by sex with equal weights" in text
    assert "male" in text


def test_by_sex_needs_to_know_the_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = scores(tmp_path / "s.csv", simulated({"north": 0.1, "south": 0.2}, identities=3))
    result = call(capsys, "audit", "--scores", table, "--out", tmp_path / "run", "--by", "sex")
    assert result.status == 2
    assert "name it in a taxonomy and pass --taxonomy" in result.err
    assert not (tmp_path / "run").exists()


def test_a_group_without_variance_is_named_beside_the_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = simulated({"WM": 0.1, "BF": 0.3})
    rows += [row(900 + i, 0.5, 0.75, demographic="AM", identity=f"z{i}") for i in range(12)]
    (entry,) = run(tmp_path, capsys, rows)["disparities"]
    assert entry["omnibus"]["left_out"] == ["AM"]
    assert entry["omnibus"]["used"] == ["BF", "WM"]
    text = call(capsys, "table", tmp_path / "run", "--differences", "--format", "markdown").out
    assert "(without AM)" in text


def test_search_finds_planted_concepts_on_other_identities(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(4)
    rows = []
    for group in ("WM", "BF"):
        for identity in range(30):
            effects = {f"c{k}": 0.0 for k in range(40)} | {"moved": 0.2, "tiny": 0.004}
            labels = {"identity": f"{group}{identity}", "demographic": group}
            for concept, effect in effects.items():
                delta = effect + rng.normal(0, 0.01)
                rows.append(row(f"{group}{identity}", 0.5, 0.5 + delta, concept=concept, **labels))
            rows.append(row(f"{group}{identity}", *rows[-2][-2:], concept="moved_again", **labels))
    record = run(tmp_path, capsys, rows, "--discover", "--margin", "0.02", "--seed", 3)
    found = record["discovery"]
    assert (found["margin"], found["seed"], found["searched"]) == (0.02, 3, 2 * 42)
    confirmed = {(f["concept"], f["group"]): f for f in found["findings"] if f["confirmed"]}
    assert set(confirmed) == {(c, g) for c in ("moved", "moved_again") for g in ("WM", "BF")}
    assert confirmed["moved_again", "WM"]["same_as"] == "moved"
    assert confirmed["moved", "WM"]["delta"] == pytest.approx(0.2, abs=0.01)
    again = audited(capsys, tmp_path / "s.csv", tmp_path / "b", "--discover", "--margin", "0.02", "--seed", 3)
    assert again["discovery"] == found
    shown = call(
        capsys,
        "audit",
        "--scores",
        tmp_path / "s.csv",
        "--out",
        tmp_path / "c",
        "--discover",
        "--margin",
        "0.02",
    )
    assert "moved_again" in shown.out
    (line,) = [line for line in shown.out.splitlines() if "WM" in line and "moved_again" in line]
    assert line.count("moved") == 2
    assert "confirmed" in (tmp_path / "c" / "tables" / "deltas.md").read_text(encoding="utf-8")
    # 43 concepts, none named: nothing is compared, and the run says so.
    assert record["disparities"] == []
    assert any("no row for" in warning for warning in record["warnings"])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--discover",), "--discover needs --margin"),
        (("--margin", "-1"), "--margin must be a positive number"),
        (("--half-width", "0"), "--half-width must be a positive number"),
        (("--concept", "fase"), "did you mean 'face'?"),
    ],
)
def test_bad_settings_are_one_line(
    more: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = scores(tmp_path / "s.csv", simulated({"WM": 0.1}, identities=3))
    result = call(capsys, "audit", "--scores", table, "--out", tmp_path / "run", *more)
    assert result.status == 2
    assert words in result.err
    assert result.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_details_stand_beside_every_planned_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = simulated({"WM": 0.1}, identities=12)
    record = run(tmp_path, capsys, rows, "--margin", "0.2", "--half-width", "0.01")
    (detail,), (cell,) = record["details"], record["cells"]
    means: dict[str, list[float]] = {}
    for item in rows:
        means.setdefault(item[1], []).append(item[7] - item[6])
    by_identity = [float(np.mean(values)) for values in means.values()]
    assert detail["identity_mean"]["delta"] == pytest.approx(np.mean(by_identity))
    # Equal sizes: the mean of identity means is the pair mean, with the same standard error.
    half = stats.t.ppf(0.9995, 11) * stats.sem(by_identity)
    assert detail["identity_mean"]["high"] - detail["identity_mean"]["delta"] == pytest.approx(half)
    assert cell["se"] == pytest.approx(stats.sem(by_identity))
    t = (0.2 - cell["delta"]) / cell["se"]
    assert detail["equivalence_p"] == pytest.approx(stats.t.sf(t, cell["df"]), rel=1e-6)
    assert detail["minimum_detectable_effect"] / cell["se"] == pytest.approx(5.5, abs=0.4)
    needed = detail["identities_for_half_width"]
    spread = cell["se"] * math.sqrt(12)
    reach = [stats.t.ppf(0.9995, g - 1) * spread / math.sqrt(g) for g in (needed - 1, needed)]
    assert reach[1] <= 0.01 < reach[0]
    assert detail["scale"]["scale"] == "logit"


def test_a_change_that_another_scale_denies_is_flagged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scores near 1 fall a little on their own scale and far on the logit scale; others rise."""
    rows = []
    for i in range(20):
        rows.append(row(2 * i, 0.5, 0.52 + 0.0001 * i, identity=f"a{i}"))
        rows.append(row(2 * i + 1, 0.9999, 0.99 + 0.0001 * i, identity=f"b{i}"))
    record = run(tmp_path, capsys, rows)
    (cell,), (detail,) = record["cells"], record["details"]
    assert cell["delta"] > 0 > detail["scale"]["delta"]
    assert "scale_dependent" in cell["flags"]
    markdown = call(capsys, "table", tmp_path / "run", "--format", "markdown").out
    assert "sign or decision differ on another scale" in markdown


def test_bootstrap_is_refused_where_it_misses_and_runs_where_it_may(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = run(tmp_path, capsys, simulated({"WM": 0.1}, identities=12), "--ci", "bootstrap")
    assert (few["cells"][0]["status"], few["cells"][0]["ci"]) == ("undefined", None)
    other = tmp_path / "other"
    other.mkdir()
    many = run(
        other, capsys, simulated({"WM": 0.1, "BF": 0.2}, identities=60), "--ci", "bootstrap", "--seed", 5
    )
    cell = many["cells"][0]
    assert cell["ci"]["method"] == "bootstrap"
    assert cell["ci"]["low"] < cell["delta"] < cell["ci"]["high"]
    assert many["settings"]["seed"] == 5
    assert many["disparities"][0]["omnibus"]["status"] == "ok"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_tiny_and_odd_inputs_have_a_status(
    count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        row(f"{g}{i}", 0.5, 0.5 + 0.1 * i, demographic=g, identity=f"{g}{i}")
        for i in range(count)
        for g in ("WM", "BF")
    ]
    rows += [row("x", "inf", 0.2, demographic="AM"), row("y", 0.1, "nan", demographic="AM")]
    record = run(tmp_path, capsys, rows, "--by", "sex", "--margin", "0.1")
    lost = next(cell for cell in record["cells"] if cell["group"] == "AM")
    assert (lost["n_pairs"], lost["status"]) == (0, "undefined")
    assert sum(lost["excluded"].values()) == 2
    for cell in record["cells"]:
        assert (cell["ci"] is None) == (cell["status"] != "ok")
    text = (tmp_path / "run" / "record.json").read_text(encoding="utf-8")
    assert "NaN" not in text


def crossed_effects() -> list[Any]:
    """AF and WM rise by .3, AM and WF do not: equal sexes, equal ethnicities, and a strong interaction."""
    rng = np.random.default_rng(7)
    rows = []
    for group, effect in {"AF": 0.3, "WM": 0.3, "AM": 0.0, "WF": 0.0}.items():
        for identity in range(20):
            delta = effect + rng.normal(0, 0.03)
            labels = {"identity": f"{group}{identity}", "demographic": group}
            rows.append(row(f"{group}{identity}", 0.4, 0.4 + delta, **labels))
    return rows


def test_an_interaction_is_found_where_no_axis_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = crossed_effects()
    record = run(tmp_path, capsys, rows, "--by", "sex")
    entry = next(entry for entry in record["disparities"] if entry["by"] == "sex")
    (sex,) = entry["pairwise"]
    assert entry["omnibus"]["p"] == sex["p"] > 0.05
    deltas = {g: [r[7] - r[6] for r in rows if r[3] == g] for g in ("AF", "AM", "WF", "WM")}
    mean = {g: np.mean(values) for g, values in deltas.items()}
    variance = {g: np.var(values, ddof=1) / 20 for g, values in deltas.items()}
    estimate = abs((mean["AF"] - mean["AM"]) - (mean["WF"] - mean["WM"]))
    total = sum(variance.values())
    df = total**2 / sum(v**2 / 19 for v in variance.values())
    crossed = entry["interaction"]
    (between,) = crossed["between"]
    assert abs(between["difference"]) == pytest.approx(estimate, rel=1e-9)
    assert (between["se"], between["df"]) == (
        pytest.approx(math.sqrt(total), rel=1e-9),
        pytest.approx(df, rel=1e-9),
    )
    p = 2 * stats.t.sf(estimate / math.sqrt(total), df)
    assert crossed["test"]["p"] == pytest.approx(p, rel=1e-6)
    assert p < 1e-50
    inside = {one["where"]: abs(one["difference"]) for one in crossed["within"]}
    assert inside == {
        "East Asian": pytest.approx(abs(mean["AF"] - mean["AM"])),
        "White": pytest.approx(abs(mean["WF"] - mean["WM"])),
    }
    target = record["targets"][0]["spec"]
    assert {"id": f"interaction:{target}:sex", "m": 1, "method": "holm"} in record["families"]
    shown = f"{p:.1e}"
    for arguments in (("--differences", "--by", "sex"), ("--format", "model-card")):
        assert shown in call(capsys, "table", tmp_path / "run", *arguments).out
    assert call(capsys, "report", tmp_path / "run").status == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert shown in page
    assert "In 1 of 1 row the difference by sex is not the same in all strata" in page


def gappy() -> list[Any]:
    """Women of three ethnicities, men of two, one of them a single identity; AF loses a pair."""
    sizes = {"AF": 3, "BF": 12, "WF": 12, "AM": 1, "WM": 12}
    rows = [
        row(
            f"{g}{i}",
            0.4,
            0.4 + 0.01 * (i + len(g + str(i)) % 3) + 0.1 * k,
            identity=f"{g}{i}",
            demographic=g,
        )
        for k, (g, n) in enumerate(sizes.items())
        for i in range(n)
    ]
    return [*rows, row("lost", 0.4, "nan", identity="AF0", demographic="AF")]


def test_a_level_counts_all_its_pairs_and_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = run(tmp_path, capsys, gappy(), "--by", "sex")
    cells = {(cell["by"], cell["group"]): cell for cell in record["cells"]}
    mean = {g: cells["demographic", g]["delta"] for g in ("AF", "BF", "WF", "AM", "WM")}
    women, men = cells["sex", "female"], cells["sex", "male"]
    assert (women["n_pairs"], women["n_identities"], women["missing"]) == (27, 27, [])
    assert women["delta"] == pytest.approx(np.mean([mean["AF"], mean["BF"], mean["WF"]]))
    assert women["ci"] is not None
    assert women["excluded"] == {"missing_transformed": 1}
    # AM has one identity: it counts, and takes the interval away.
    assert (men["n_pairs"], men["status"], men["ci"]) == (13, "undefined", None)
    assert men["delta"] == pytest.approx((mean["AM"] + mean["WM"]) / 2)
    assert men["reason"].startswith("AM: ")
    assert (men["missing"], "BM" in record["groups"]) == ([], False)
    (sex,) = next(entry for entry in record["disparities"] if entry["by"] == "sex")["pairwise"]
    assert sorted(sex["strata"]) == ["East Asian", "White"]
    assert (sex["status"], sex["p"]) == ("undefined", None)
    wanted = (mean["AF"] + mean["WF"]) / 2 - (mean["AM"] + mean["WM"]) / 2
    assert abs(sex["difference"]) == pytest.approx(abs(wanted))
    counts = call(capsys, "table", tmp_path / "run", "--by", "sex", "--counts", "--format", "markdown").out
    assert "27 / 27 (1 out)" in counts
    assert "13 / 13" in counts


def test_sex_over_real_pairs_counts_all_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Few pairs with gaps between groups: a level has the pairs of all its groups."""
    with (shared("faces") / "pairs.csv").open(encoding="utf-8") as stream:
        listed = list(csv.DictReader(stream))
    rows = [
        row(r["pair_id"], 0.5, 0.5 + 0.01 * (i % 7), identity=r["identity"], demographic=r["demographic"],
            attribute=r["attribute"])
        for i, r in enumerate(listed)
    ]  # fmt: skip
    record = run(tmp_path, capsys, rows, "--by", "sex")
    for sex, letter in (("male", "M"), ("female", "F")):
        for cell in (c for c in record["cells"] if c["by"] == "sex" and c["group"] == sex):
            own = [r for r in listed if r["attribute"] == cell["attribute"] and r["demographic"][1] == letter]
            assert cell["n_pairs"] == len(own)
            assert (cell["delta"] is None) == (not own)
            there = {r["demographic"] for r in own}
            assert set(cell["missing"]) == {g for g in record["groups"] if g[1] == letter} - there


def test_a_row_with_skewed_cells_bears_the_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(3)
    rows = simulated({"WM": 0.1, "AM": 0.1})
    rows += [
        row(f"x{i}", 0.1, 0.1 + 0.05 * d**3, identity=f"x{i}", demographic="BF")
        for i, d in enumerate(rng.exponential(size=24))
    ]
    (entry,) = run(tmp_path, capsys, rows)["disparities"]
    assert entry["omnibus"]["flags"] == ["skewed"]
    text = call(capsys, "table", tmp_path / "run", "--differences", "--format", "markdown").out
    assert "‡ |" in text
    assert "‡ beside p" in text


def test_a_record_whose_interaction_is_a_bare_test_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, capsys, crossed_effects(), "--by", "sex")
    file = tmp_path / "run" / "record.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    for entry in record["disparities"]:
        entry["interaction"] = entry["interaction"] and entry["interaction"]["test"]
    file.write_text(json.dumps(record), encoding="utf-8")
    read = {entry.by: entry.interaction for entry in read_record(tmp_path / "run").disparities}
    assert read["demographic"] is None
    assert read["sex"] is not None
    assert read["sex"].between == ()
    assert call(capsys, "table", tmp_path / "run", "--by", "sex", "--differences").status == 0
