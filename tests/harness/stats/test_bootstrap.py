"""The cluster bootstrap: against R's ranges, scipy and exact enumeration."""

import numpy as np
import pytest
from scipy import stats

from harness.stats.bootstrap import (
    bca_interval,
    cluster_counts,
    exact_interval,
    normal_miss_rate,
    order_statistics,
    percentile_interval,
)
from harness.stats.cells import blocks, checked
from harness.stats.intervals import cell_estimates
from tests.harness.stats import oracle

SETTINGS = {"level": 0.999, "draws": 19_999, "seed": 20240717}


def inside(got, want):
    low, high = want["mc_min"], want["mc_max"]
    room = 3 * (high - low) + 1e-9
    assert low - room <= got <= high + room


def paired(pairs, by_identity):
    clusters = pairs.clusters if by_identity else np.arange(len(pairs.source))
    (block,) = blocks(*checked(pairs.source, pairs.transformed, clusters))
    return block.sums(), block.structure.sizes, block.mean


# Where the four R seeds gave one and the same endpoint the stated range has no width, and only a bootstrap
# with R's own random numbers can fall inside; the next order statistics are then compared instead.
def near(got, want, se):
    if want["mc_max"] - want["mc_min"] < 0.02 * se:
        assert got == pytest.approx(want["value"], abs=0.35 * se)
    else:
        inside(got, want)


@pytest.mark.parametrize("dataset", ["D04_cluster_icc50", "D05_cluster_icc90", "D14_reused_identity_labels"])
def test_percentile_of_pairs_is_inside_rs_range(dataset):
    for _, pairs, ref in oracle.cell_references(dataset):
        want = ref["bootstrap"]
        got = percentile_interval(*paired(pairs, by_identity=False), **SETTINGS)
        near(got.low[0], want["percentile"]["lo"], got.se[0])
        near(got.high[0], want["percentile"]["hi"], got.se[0])
        assert got.se[0] == pytest.approx(want["se"]["value"], rel=0.03)


@pytest.mark.parametrize("dataset", ["D04_cluster_icc50", "D05_cluster_icc90", "D14_reused_identity_labels"])
def test_percentile_of_identities_is_inside_rs_range(dataset):
    for _, pairs, ref in oracle.cell_references(dataset):
        want = ref["bootstrap"].get("cluster_bootstrap")
        if want is None:
            continue
        got = percentile_interval(*paired(pairs, by_identity=True), **SETTINGS)
        near(got.low[0], want["lo"], got.se[0])
        near(got.high[0], want["hi"], got.se[0])
        assert got.se[0] == pytest.approx(want["se"]["value"], rel=0.03)


@pytest.mark.parametrize("dataset", ["D04_cluster_icc50", "D05_cluster_icc90"])
def test_bca_of_pairs_is_inside_rs_range(dataset):
    for _, pairs, ref in oracle.cell_references(dataset):
        low, high = bca_interval(*paired(pairs, by_identity=False), **SETTINGS)
        se = ref["bootstrap"]["se"]["value"]
        near(low[0], ref["bootstrap"]["bca"]["lo"], se)
        near(high[0], ref["bootstrap"]["bca"]["hi"], se)


@pytest.mark.parametrize("dataset", oracle.CELL_DATASETS)
def test_exact_enumeration_matches_r(dataset):
    for _, pairs, ref in oracle.cell_references(dataset):
        want = ref.get("bootstrap", {}).get("exact_enumeration")
        if want is None:
            continue
        sd, low, high = exact_interval(pairs.delta, 0.999)
        oracle.assert_close(sd, want["sd"])
        oracle.assert_close(low, want["lo"])
        oracle.assert_close(high, want["hi"])


def test_bca_matches_scipy():
    deltas = np.random.default_rng(0).exponential(size=40)
    low, high = bca_interval(
        (deltas - deltas.mean())[:, None],
        np.ones(40, int),
        deltas.mean(keepdims=True),
        level=0.95,
        draws=40_000,
        seed=1,
    )
    want = stats.bootstrap(
        (deltas,), np.mean, n_resamples=40_000, rng=np.random.default_rng(2)
    ).confidence_interval
    assert low[0] == pytest.approx(want.low, abs=0.01)
    assert high[0] == pytest.approx(want.high, abs=0.01)


def test_counts_resample_all_identities():
    counts = cluster_counts(7, 500, seed=3)
    assert (counts.sum(axis=1) == 7).all()
    assert counts.mean() == 1.0
    np.testing.assert_array_equal(counts, cluster_counts(7, 500, seed=3))
    assert (counts != cluster_counts(7, 500, seed=4)).any()


def test_order_statistics_are_type_6():
    values = np.random.default_rng(0).normal(size=(3, 99))
    for p in (0.005, 0.1, 0.5, 0.9937, 0.9999):
        want = np.quantile(values, p, axis=1, method="weibull")
        np.testing.assert_allclose(order_statistics(values.copy(), (p,))[0], want, rtol=1e-12)


def test_unequal_clusters_are_a_ratio():
    # Two clusters: mean 1 of three pairs, mean 5 of one. Resamples have the means 1, 2 or 5.
    found = percentile_interval(
        np.array([[-3.0], [3.0]]), np.array([3, 1]), np.array([2.0]), level=0.9, draws=2_000, seed=0
    )
    assert (found.low[0], found.high[0]) == (pytest.approx(1.0), pytest.approx(5.0))


def test_cell_estimates_by_bootstrap_agree_with_the_sandwich():
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(80), rng.integers(1, 6, size=80))
    deltas = rng.normal(size=(len(clusters), 3)) + rng.normal(size=(80, 3))[clusters]
    plain = cell_estimates(np.zeros_like(deltas), deltas, clusters, level=0.95)
    cell = cell_estimates(np.zeros_like(deltas), deltas, clusters, method="bootstrap", level=0.95, seed=5)
    assert (cell.status == "ok").all()
    assert cell.seed == 5
    np.testing.assert_allclose(cell.se, plain.se, rtol=0.06)
    np.testing.assert_allclose(cell.low, plain.low, atol=0.1 * plain.se.max())
    np.testing.assert_allclose(cell.p, plain.p, atol=0.05)


def test_999_is_refused_with_few_identities_or_draws():
    deltas = np.random.default_rng(0).normal(size=80)
    few = cell_estimates(np.zeros(59), deltas[:59], np.arange(59), method="bootstrap")
    short = cell_estimates(np.zeros(80), deltas, np.arange(80), method="bootstrap", draws=19_999)
    enough = cell_estimates(np.zeros(60), deltas[:60], np.arange(60), method="bootstrap")
    assert (few.status[0], few.reason[0]) == ("undefined", "bootstrap_few_identities")
    assert (short.status[0], short.reason[0]) == ("undefined", "bootstrap_few_draws")
    assert enough.status[0] == "ok"


@pytest.mark.parametrize(
    ("level", "n_identities", "status", "flagged"),
    [
        (0.95, 9, "undefined", False),
        (0.95, 10, "ok", True),
        (0.95, 40, "ok", True),
        (0.95, 60, "ok", False),
        (0.99, 20, "undefined", False),
        (0.999, 60, "ok", True),
        (0.999, 300, "ok", False),
        (0.9999, 80, "undefined", False),
    ],
)
def test_where_the_bootstrap_misses_it_is_refused_or_flagged(level, n_identities, status, flagged):
    deltas = np.random.default_rng(1).normal(size=n_identities)
    cell = cell_estimates(
        np.zeros(n_identities),
        deltas,
        np.arange(n_identities),
        method="bootstrap",
        level=level,
        draws=max(2_000, round(20 / (1 - level))),
    )
    assert (cell.status[0], "bootstrap_misses" in cell.flags(0)) == (status, flagged)


def test_the_miss_rate_that_the_rule_takes_is_the_simulated_one():
    rng, draws, n = np.random.default_rng(2), 4_000, 10
    deltas = rng.normal(size=(n, draws))
    cell = cell_estimates(
        np.zeros_like(deltas), deltas, np.arange(n), method="bootstrap", level=0.95, draws=2_000
    )
    missed = float(((cell.low > 0) | (cell.high < 0)).mean())
    assert missed == pytest.approx(normal_miss_rate(n, 0.95), abs=4 * np.sqrt(0.1 * 0.9 / draws))


def test_p_and_bounds_decide_alike():
    rng = np.random.default_rng(0)
    deltas = rng.normal(size=(30, 20_000)) + rng.uniform(0, 0.6, size=20_000)
    cell = cell_estimates(
        np.zeros_like(deltas), deltas, np.arange(30), method="bootstrap", level=0.9, draws=1_000
    )
    excluded = (cell.low > 0) | (cell.high < 0)
    for rejected in (cell.p < 1 - cell.level, cell.p <= 1 - cell.level):
        np.testing.assert_array_equal(rejected, excluded)
    assert 0.1 < excluded.mean() < 0.9


def test_exact_enumeration_takes_few_deltas():
    with pytest.raises(ValueError, match="takes 1 to 6 deltas, got 7"):
        exact_interval(np.arange(7.0), 0.9)
