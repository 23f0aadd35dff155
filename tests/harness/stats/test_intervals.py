"""The cells: against R, by hand, and on input that has no answer."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from harness.stats import hall
from harness.stats.cells import blocks, checked
from harness.stats.intervals import REASONS, CellEstimates, cell_estimates
from harness.stats.sandwich import Structure, satterthwaite_df, variance_of_mean
from tests.harness.stats import oracle


def one(source, transformed, clusters, **settings) -> CellEstimates:
    return cell_estimates(np.asarray(source), np.asarray(transformed), np.asarray(clusters), **settings)


def check_interval(cell: CellEstimates, ref: dict, df: float) -> None:
    oracle.assert_close(cell.se[0], ref["se"])
    oracle.assert_close(df, ref["df"])
    low, high = hall.bounds(cell.delta, cell.se, cell.df, np.zeros(1), (1 - cell.level) / 2)
    room = 1e-9 * ref["half_width"]
    oracle.assert_close((high[0] - low[0]) / 2, ref["half_width"])
    oracle.assert_close(low[0], ref["lo"], absolute=room)
    oracle.assert_close(high[0], ref["hi"], absolute=room)
    if cell.skew[0]:  # R has no Hall bounds: those may only be wider.
        assert cell.low[0] <= ref["lo"] + room
        assert cell.high[0] >= ref["hi"] - room
    else:
        assert (cell.low[0], cell.high[0]) == (low[0], high[0])


@pytest.mark.parametrize("dataset", oracle.CELL_DATASETS)
def test_counts_and_means_match_r(dataset):
    for _, pairs, ref in oracle.cell_references(dataset):
        cell = one(pairs.source, pairs.transformed, pairs.clusters)
        assert cell.n_pairs[0] == ref["n_pairs"]
        assert cell.n_excluded[0] == ref["n_missing"]
        assert cell.n_identities[0] == ref["n_identities"]
        for name in ("delta", "source", "transformed"):
            want = ref.get(f"mean_{name}")
            got = getattr(cell, name if name == "delta" else f"mean_{name}")[0]
            assert np.isnan(got) if want is None else got == pytest.approx(want, rel=1e-9, abs=1e-16)


@pytest.mark.parametrize("dataset", oracle.CELL_DATASETS)
def test_t_interval_matches_r(dataset):
    for _, pairs, ref in oracle.cell_references(dataset):
        cell = one(pairs.source, pairs.transformed, pairs.clusters, method="t")
        if ref.get("sd") is None:
            assert cell.status[0] == "undefined"
        elif "status" in ref:
            assert cell.status[0] == "zero_variance"
            assert np.isnan(cell.p[0])
        else:
            check_interval(cell, ref["t_interval"], cell.df[0])
            oracle.assert_p(cell.p[0], ref["paired_t"]["p"])


@pytest.mark.parametrize("dataset", oracle.CELL_DATASETS)
def test_cluster_interval_matches_r(dataset):
    for _, pairs, ref in oracle.cell_references(dataset):
        cell = one(pairs.source, pairs.transformed, pairs.clusters)
        if ref["n_identities"] < 2:
            assert cell.status[0] == "undefined"
        elif ref["cluster"]["CR2_satterthwaite"]["se"] < 1e-15:
            assert cell.status[0] == "zero_variance"
            assert cell.se[0] == 0.0
            oracle.assert_close(cell.df[0], ref["cluster"]["CR2_satterthwaite"]["df"])
        else:
            check_interval(cell, ref["cluster"]["CR2_satterthwaite"], cell.df[0])


@pytest.mark.parametrize("dataset", oracle.CELL_DATASETS)
@pytest.mark.parametrize("kind", ["CR0", "CR1", "CR2"])
def test_every_sandwich_matches_r(dataset, kind):
    for _, pairs, ref in oracle.cell_references(dataset):
        if ref["n_identities"] < 2 or ref["sd"] < 1e-15:
            continue
        (block,) = blocks(*checked(pairs.source, pairs.transformed, pairs.clusters))
        se = float(np.sqrt(variance_of_mean(block.sums(), block.structure, kind))[0])
        want = ref["cluster"]["CR2_tG1" if kind == "CR2" else kind]
        oracle.assert_close(se, want["se"], absolute=1e-17)
        oracle.assert_close(stats.t.ppf(0.9995, want["df"]) * se, want["half_width"], absolute=1e-15)


def test_pooled_clusters_are_group_and_identity():
    ref = oracle.reference("D14_reused_identity_labels")["pooled_over_demographics"][
        "correct_nested_identity"
    ]
    pairs = oracle.as_pairs(oracle.read_rows("D14_reused_identity_labels"))
    cell = one(pairs.source, pairs.transformed, pairs.clusters)
    assert cell.n_identities[0] == ref["G"]
    oracle.assert_close(cell.se[0], ref["cr2"])
    oracle.assert_close(cell.df[0], ref["df2"])


def test_exact_duplicates_removed_matches_r():
    ref = oracle.reference("D12a_exact_duplicates")["deduplicated"]
    rows = list({tuple(row.items()): row for row in oracle.read_rows("D12a_exact_duplicates")}.values())
    pairs = oracle.as_pairs(rows)
    cell = one(pairs.source, pairs.transformed, pairs.clusters)
    check_interval(cell, ref["cluster"]["CR2_satterthwaite"], cell.df[0])


def test_cr1_matches_statsmodels():
    rng = np.random.default_rng(2)
    clusters = np.repeat(np.arange(15), rng.integers(1, 7, size=15))
    delta = rng.normal(size=15)[clusters] + rng.normal(size=len(clusters))
    fit = sm.OLS(delta, np.ones_like(delta)).fit(cov_type="cluster", cov_kwds={"groups": clusters})
    (block,) = blocks(*checked(np.zeros_like(delta), delta, clusters))
    assert np.sqrt(variance_of_mean(block.sums(), block.structure, "CR1"))[0] == pytest.approx(
        fit.bse[0], rel=1e-12
    )


def test_the_papers_interval_is_scipys_one_sample_t():
    source, transformed = np.random.default_rng(3).normal(size=(2, 25))
    want = stats.ttest_rel(transformed, source)
    cell = one(source, transformed, np.arange(25), method="t", level=0.99)
    assert cell.p[0] == pytest.approx(want.pvalue, rel=1e-12)
    assert (cell.low[0], cell.high[0]) == pytest.approx(want.confidence_interval(0.99), rel=1e-12)


def test_two_identities_by_hand():
    # Deltas 1, 3 | 5: mean 3, residual sums -2 and 2, V = (4 / (1/3) + 4 / (2/3)) / 9 = 2.
    cell = one([0.0, 0, 0], [1.0, 3, 5], [7, 7, 9], level=0.95)
    assert cell.delta[0] == 3.0
    assert cell.se[0] == pytest.approx(np.sqrt(2.0), rel=1e-15)
    assert cell.df[0] == pytest.approx(1.0, rel=1e-12)
    # At one degree of freedom p = 1 - 2 atan(t) / pi.
    assert cell.p[0] == pytest.approx(1 - 2 * np.arctan(3 / np.sqrt(2)) / np.pi, rel=1e-12)


def test_satterthwaite_equals_the_matrix_formula():
    for sizes in ([1, 2], [5, 7], [1, 2, 3, 4, 5, 6], [300, 1, 2], [2, 2, 2]):
        n_g = np.array(sizes)
        n = n_g.sum()
        w = (1 - n_g / n) ** -0.5
        a = np.outer(w, w) * (np.diag(n_g) - np.outer(n_g, n_g) / n) / n**2
        got = satterthwaite_df(Structure.of(np.repeat(np.arange(len(n_g)), n_g)))
        assert got == pytest.approx(np.trace(a) ** 2 / np.trace(a @ a), rel=1e-9)


@pytest.mark.parametrize(
    ("transformed", "clusters", "reason"),
    [
        ([], [], "no_pairs"),
        ([np.nan, np.inf, -np.inf], [1, 2, 3], "no_pairs"),
        ([0.5], [1], "one_pair"),
        ([0.5, 0.7], [4, 4], "one_identity"),
    ],
)
def test_no_answer_is_a_status_with_a_reason(transformed, clusters, reason):
    cell = one(np.zeros(len(transformed)), transformed, np.array(clusters, dtype=int))
    assert (cell.status[0], cell.reason[0]) == ("undefined", reason)
    assert REASONS[reason]
    assert np.isnan([cell.se[0], cell.df[0], cell.low[0], cell.high[0], cell.p[0]]).all()


def test_the_papers_interval_takes_one_identity():
    cell = one([0.0, 0], [0.5, 0.7], [4, 4], method="t")
    assert cell.status[0] == "ok"
    assert cell.few_identities[0]


def test_infinite_and_missing_scores_leave_only_their_own_concept():
    rng = np.random.default_rng(1)
    source, transformed = rng.normal(size=(2, 30, 4))
    clusters = np.repeat(np.arange(10), 3)
    whole = cell_estimates(source, transformed, clusters)
    transformed[3, 1], source[4, 2], transformed[5, 2] = np.inf, np.nan, -np.inf
    cell = cell_estimates(source, transformed, clusters)
    assert cell.n_excluded.tolist() == [0, 1, 2, 0]
    assert cell.n_pairs.tolist() == [30, 29, 28, 30]
    np.testing.assert_array_equal(cell.se[[0, 3]], whole.se[[0, 3]])
    kept = np.setdiff1d(np.arange(30), [4, 5])
    alone = one(source[kept, 2], transformed[kept, 2], clusters[kept])
    assert (cell.se[2], cell.low[2], cell.p[2]) == (alone.se[0], alone.low[0], alone.p[0])


def test_constant_scores_have_zero_variance_and_no_p():
    cell = one(np.full(12, 0.3), np.full(12, 0.1 + 0.2), np.arange(12))
    assert (cell.status[0], cell.reason[0]) == ("zero_variance", "rounding_noise")
    assert cell.se[0] == 0.0
    assert np.isnan([cell.p[0], cell.low[0], cell.high[0]]).all()


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e3, 1e9, 1e15])
def test_rounding_of_an_offset_is_no_variance(offset):
    source = np.random.default_rng(0).uniform(size=40)
    cell = one(source + offset, source + 0.3 + offset, np.repeat(np.arange(20), 2))
    assert cell.status[0] == "zero_variance"


@pytest.mark.parametrize("offset", [1e9, 1e15])
def test_offsets_keep_what_is_representable(offset):
    rng = np.random.default_rng(3)
    source = rng.integers(0, 8, size=60) / 8
    transformed = source + rng.integers(-4, 5, size=60) / 8
    clusters = np.repeat(np.arange(20), 3)
    plain, moved = (one(source + c, transformed + c, clusters) for c in (0.0, offset))
    for name in ("delta", "se", "low", "high", "p"):
        oracle.assert_close(getattr(moved, name)[0], getattr(plain, name)[0], rel=1e-12)
    assert moved.mean_source[0] - offset == pytest.approx(plain.mean_source[0], abs=offset * 1e-16)


def test_sums_neither_overflow_nor_cancel():
    rng = np.random.default_rng(4)
    base = rng.normal(size=(2, 40))
    clusters = np.repeat(np.arange(10), 4)
    plain = one(*base, clusters)
    for factor in (2.0**1020, 2.0**-1000):
        big = one(*(base * factor), clusters)
        assert big.delta[0] / factor == pytest.approx(plain.delta[0], rel=1e-12)
        assert big.se[0] / factor == pytest.approx(plain.se[0], rel=1e-12)
        assert big.p[0] == pytest.approx(plain.p[0], rel=1e-12)
    cell = one(np.zeros(4), [1e16, 1.0, 1.0, -1e16], np.arange(4))
    assert cell.delta[0] == 0.5


def test_a_delta_beyond_the_largest_number_is_undefined():
    cell = one(np.full(3, -1.7e308), np.array([1.7e308, 1.6e308, 1.5e308]), np.arange(3))
    assert (cell.status[0], cell.reason[0]) == ("undefined", "overflow")


def test_an_interval_beyond_the_largest_number_is_undefined():
    cell = one(np.zeros(2), np.array([1e306, 3e306]), np.arange(2))
    assert (cell.status[0], cell.reason[0]) == ("undefined", "overflow")
    assert cell.delta[0] == 2e306
    assert np.isnan([cell.low[0], cell.high[0], cell.p[0]]).all()


def test_flags():
    rng = np.random.default_rng(5)
    normal = one(np.zeros(200), rng.normal(size=200), np.arange(200))
    heavy = one(np.zeros(200), rng.exponential(size=200) ** 2, np.arange(200))
    few = one(np.zeros(9), rng.normal(size=9), np.arange(9))
    assert normal.flags(0) == []
    assert heavy.flags(0) == ["skewed"]
    assert "few_identities" in few.flags(0)
    assert heavy.skewness[0] == pytest.approx(stats.skew(heavy_deltas()), rel=1e-12)


def heavy_deltas():
    rng = np.random.default_rng(5)
    rng.normal(size=200)
    return rng.exponential(size=200) ** 2


def test_many_concepts_and_none():
    rng = np.random.default_rng(6)
    clusters = np.repeat(np.arange(6), 2)
    many = cell_estimates(rng.normal(size=(12, 10_000)), rng.normal(size=(12, 10_000)), clusters)
    assert (many.status == "ok").all()
    assert cell_estimates(np.empty((12, 0)), np.empty((12, 0)), clusters).n_concepts == 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"level": 1.0}, "level must lie strictly between 0 and 1, got 1.0"),
        ({"method": "z"}, "method must be one of t, cluster, bootstrap, got 'z'"),
        ({"draws": 1}, "draws must be at least 2, got 1"),
        ({"clusters": [1, 2]}, r"clusters must have shape \(3,\), got \(2,\)"),
        ({"clusters": [0.5, 1, 2]}, "clusters must be integer codes, got float64"),
        ({"transformed": [1.0]}, "must have one shape"),
        ({"source": np.zeros((1, 1, 1))}, r"must have shape \(pairs, concepts\)"),
    ],
)
def test_wrong_calls_say_what_must_hold(change, text):
    call = {"source": [0.0, 1, 2], "transformed": [1.0, 2, 4], "clusters": [1, 2, 3], **change}
    with pytest.raises(ValueError, match=text):
        cell_estimates(**call)


def test_one_cluster_has_no_robust_variance():
    structure = Structure.of(np.zeros(5, dtype=np.int64))
    with pytest.raises(ValueError, match="at least 2 clusters, got 1"):
        variance_of_mean(np.zeros((1, 1)), structure, "CR0")
    with pytest.raises(ValueError, match="at least 2 clusters, got 1"):
        satterthwaite_df(structure)
