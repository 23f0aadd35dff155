"""The paper's printed numbers, taken apart in R: what they imply, and how many pairs they would take."""

import numpy as np
import pytest

from harness.stats.contrasts import pairwise
from harness.stats.families import adjust
from harness.stats.groups import GroupMeans
from harness.stats.intervals import cell_estimates
from harness.stats.planning import identities_for_half_width
from tests.benchmarks import coverage
from tests.harness.stats import oracle

Z = 3.2905267314919255


def paper():
    return oracle.reference("P01_paper_table3")


def test_the_cell_of_88_is_two_pairs():
    ref = paper()["special"]["cell_88"]
    cell = cell_estimates(np.zeros(2), ref["deltas"], [0, 1], method="t")
    oracle.assert_close(cell.delta[0], 0.12)
    oracle.assert_close((cell.high[0] - cell.low[0]) / 2, 88.0)
    oracle.assert_close(np.ptp(ref["deltas"]), ref["abs_difference_of_the_two_deltas"])


@pytest.mark.parametrize("n", [2, 3, 5, 10, 50])
def test_implied_spreads_give_the_printed_half_widths_back(n):
    for ref in paper()["cells"].values():
        implied = ref["implied"].get(f"n{n}")
        if implied is None:
            continue
        # n deltas with exactly this mean and standard deviation
        shape = np.linspace(-1, 1, n)
        deltas = ref["mean"] + shape / shape.std(ddof=1) * implied["sd_implied_t"]
        cell = cell_estimates(np.zeros(n), deltas, np.arange(n), method="t")
        oracle.assert_close((cell.high[0] - cell.low[0]) / 2, ref["h"])


def test_numbers_needed_match_r():
    for ref in paper()["n_needed"]:
        for name, n in ref["n_needed"].items():
            assert identities_for_half_width(float(name.removeprefix("sd")), ref["h"]) == n


def test_differences_of_printed_cells_match_r():
    cells = paper()["cells"]
    for attribute, ref in paper()["disparities_from_printed"].items():
        printed = {
            c["demographic"]: c for c in cells.values() if c["attribute"] == attribute and c["h"] is not None
        }
        names = list(dict.fromkeys([*(p["a"] for p in ref["pairs"]), *(p["b"] for p in ref["pairs"])]))
        if not names or not all(name in printed for name in names):
            continue
        means = np.array([[printed[name]["mean"]] for name in names])
        errors = np.array([[printed[name]["h"] / Z] for name in names])
        counts = np.full(means.shape, 100)
        flags = np.zeros(means.shape, dtype=bool)
        found = pairwise(
            GroupMeans(means, errors, np.full(means.shape, 1e15), counts, counts, flags, flags, 0.0 * means)
        )
        assert len(found.p) == ref["n_pairs"]
        holm = adjust(found.p[:, 0]).p
        for row, want in enumerate(ref["pairs"]):
            assert (names[found.a[row]], names[found.b[row]]) == (want["a"], want["b"])
            oracle.assert_p(found.p[row, 0], want["p"])
            oracle.assert_p(holm[row], want["p_holm"])


def test_conflicting_duplicate_dropped_on_both_sides_matches_r():
    ref = oracle.reference("D12b_conflicting_duplicate")
    rows = [
        row
        for row in oracle.read_rows("D12b_conflicting_duplicate")
        if row["pair_id"] not in ref["conflicting_pair_ids"]
    ]
    pairs = oracle.as_pairs(rows)
    want = ref["dropped_both"]
    cell = cell_estimates(pairs.source, pairs.transformed, pairs.clusters)
    assert cell.n_pairs[0] == want["n_pairs"]
    oracle.assert_close(cell.delta[0], want["mean_delta"])
    oracle.assert_close(cell.se[0], want["cluster"]["CR2_satterthwaite"]["se"])
    oracle.assert_close(cell.df[0], want["cluster"]["CR2_satterthwaite"]["df"])


@pytest.mark.parametrize(("design", "identities"), [("all_600", 100), ("many_per_identity_60", 10)])
@pytest.mark.parametrize("icc", [0.0, 0.5, 0.9])
def test_coverage_agrees_with_rs_simulation(design, identities, icc):
    ref = oracle.reference("P02_coverage_simulation")[f"{design}_icc{icc:g}"]
    draws = 2_000
    ((rng, n),) = coverage.generators(("paper", design, icc), draws)
    deltas, clusters = coverage.normal_deltas(rng, np.full(identities, 6), icc, n)
    for method, name in (("t", "iid_t"), ("cluster", "CR2_satt")):
        got = coverage.misses(coverage.estimate(deltas, clusters, 0.95, method)) / draws
        want = ref["miss_rate_95"][name]
        room = 4 * np.sqrt(want * (1 - want) * (1 / draws + 1 / ref["nsim"]))
        assert got == pytest.approx(want, abs=room)
