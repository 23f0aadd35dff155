"""Contrasts, bands, omnibus tests and coarser groups: against R, statsmodels and brute force."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.oneway import anova_oneway

from harness.stats.aggregate import aggregate, compare_levels, interaction_test, interactions, level_htz
from harness.stats.cells import blocks, checked
from harness.stats.contrasts import pairwise, satterthwaite
from harness.stats.equivalence import tost
from harness.stats.families import adjust
from harness.stats.groups import GroupMeans
from harness.stats.intervals import cell_estimates
from harness.stats.omnibus import equal_means, games_howell, htz, htz_contrasts, welch_anova
from harness.stats.sandwich import variance_of_mean
from tests.harness.stats import oracle

DATASETS = [
    "D02_zero_variance",
    "D04_cluster_icc50",
    "D05_cluster_icc90",
    "D06_cluster_edge",
    "D09_missing",
    "D11_eight_unbalanced",
    "D14_reused_identity_labels",
]


def groups_of(dataset, method):
    table = oracle.reference(dataset)["disparity"]["sunglasses|sunglass"]
    pairs = oracle.cells(dataset)
    cells = [
        cell_estimates(p.source, p.transformed, p.clusters, method=method)
        for p in (pairs[f"sunglasses|sunglass|{name}"] for name in table["groups"])
    ]
    return table, GroupMeans.stack(cells)


def simulated(sizes_by_group, seed=0, shift=0.0, concepts=1):
    """Return the raw structures: a list of (deltas, clusters) for groups with these cluster sizes."""
    rng = np.random.default_rng(seed)
    raw = []
    for index, sizes in enumerate(sizes_by_group):
        clusters = np.repeat(np.arange(len(sizes)), sizes)
        person = rng.normal(size=(len(sizes), concepts))[clusters]
        raw.append((person + rng.normal(size=(len(clusters), concepts)) + shift * index, clusters))
    return raw


def estimate(raw, **settings):
    return GroupMeans.stack([cell_estimates(np.zeros_like(d), d, c, **settings) for d, c in raw])


@pytest.mark.parametrize("dataset", DATASETS)
def test_welch_contrasts_match_r(dataset):
    table, groups = groups_of(dataset, "t")
    found = pairwise(groups)
    index = {name: i for i, name in enumerate(table["groups"])}
    rows = {(a, b): row for row, (a, b) in enumerate(zip(found.a, found.b, strict=True))}
    assert len(rows) == len(table["pairwise_welch"])
    for ref in table["pairwise_welch"]:
        row = rows[index[ref["a"]], index[ref["b"]]]
        if "t" not in ref:
            assert found.status[row, 0] in {"zero_variance", "undefined"}
            assert np.isnan(found.p[row, 0])
            continue
        scale = 1e-9 * ref["half_width"]
        assert found.difference[row, 0] == pytest.approx(ref["diff_b_minus_a"], rel=1e-9, abs=1e-16)
        oracle.assert_close(found.se[row, 0], ref["se"])
        oracle.assert_close(found.df[row, 0], ref["df"])
        oracle.assert_p(found.p[row, 0], ref["p"])
        oracle.assert_close(found.low[row, 0], ref["lo"], absolute=scale)
        oracle.assert_close(found.high[row, 0], ref["hi"], absolute=scale)


@pytest.mark.parametrize("dataset", DATASETS)
def test_games_howell_bands_match_r(dataset):
    table, groups = groups_of(dataset, "t")
    found = pairwise(groups)
    for row, ref in enumerate(table["pairwise_welch"]):
        band = ref.get("games_howell")
        if not band or band["crit"] is None:
            assert np.isnan(found.band_low[row, 0])
            continue
        if not groups.usable[[found.a[row], found.b[row]], 0].all():
            # R compares a group without variance; here it leaves the simultaneous comparison.
            assert found.reason[row, 0] == "one_zero_variance"
            continue
        assert found.p_simultaneous[row, 0] == pytest.approx(band["p"], abs=1e-6)
        # See test_studentized: R's quantile is off by up to 7.5e-5 at few degrees of freedom.
        rel = 1e-7 if ref["df"] > 8 else 1e-4
        half = band["hi"] - ref["diff_b_minus_a"]
        oracle.assert_close(found.band_low[row, 0], band["lo"], rel=0, absolute=rel * half)
        oracle.assert_close(found.band_high[row, 0], band["hi"], rel=0, absolute=rel * half)


@pytest.mark.parametrize("dataset", DATASETS)
def test_cr1_contrasts_match_r(dataset):
    table, _ = groups_of(dataset, "t")
    parts = []
    for name in table["groups"]:
        p = oracle.cells(dataset)[f"sunglasses|sunglass|{name}"]
        (block,) = blocks(*checked(p.source, p.transformed, p.clusters))
        g = block.structure.n_clusters
        v = variance_of_mean(block.sums(), block.structure, "CR1")[0] if g > 1 else np.nan
        v = 0.0 if v < 1e-30 else v
        parts.append((block.mean[0], np.sqrt(v), g - 1.0, len(block.rows), g))
    mean, se, df, n, g = (np.array(column)[:, None] for column in zip(*parts, strict=True))
    flags = np.zeros_like(n, dtype=bool)
    found = pairwise(GroupMeans(mean, se, np.where(df > 0, df, np.nan), n, g, flags, flags, 0.0 * mean))
    for row, ref in enumerate(table["pairwise_welch"]):
        want = ref.get("cluster_CR1")
        if not want or "se" not in want:
            continue
        oracle.assert_close(found.se[row, 0], want["se"])
        oracle.assert_close(found.df[row, 0], want["df_welch_on_G"])
        oracle.assert_p(found.p[row, 0], want["p"])
        oracle.assert_close((found.high - found.low)[row, 0] / 2, want["half_width"])
    holm, bh = (adjust(found.p[:, 0], how, undefined="leave_out").p for how in ("holm", "bh"))
    for row, ref in enumerate(table["pairwise_welch"]):
        want = ref.get("cluster_CR1") or {}
        if want.get("p_holm") is not None:
            oracle.assert_p(holm[row], want["p_holm"])
            oracle.assert_p(bh[row], want["p_bh"])


@pytest.mark.parametrize("dataset", DATASETS)
def test_equivalence_of_groups_matches_r(dataset):
    table, groups = groups_of(dataset, "t")
    found = pairwise(groups)
    got = tost(found.difference, found.se, found.df, 0.05)
    for row, ref in enumerate(table["pairwise_welch"]):
        want = ref.get("tost_welch")
        if want and want.get("p") is not None:
            oracle.assert_p(got.p[row, 0], want["p"])


@pytest.mark.parametrize("dataset", DATASETS)
def test_welch_anova_matches_r(dataset):
    table, groups = groups_of(dataset, "t")
    ref = table.get("welch_anova")
    test = welch_anova(groups)
    if not ref or "F" not in ref:
        assert test.status[0] == "undefined"
        return
    assert test.used.sum() == ref["groups_used"]
    oracle.assert_close(test.statistic[0], ref["F"])
    assert test.df1[0] == ref["df1"]
    oracle.assert_close(test.df2[0], ref["df2"])
    oracle.assert_p(test.p[0], ref["p"])


def test_welch_anova_matches_statsmodels():
    raw = simulated([[1] * 8, [1] * 15, [1] * 30], shift=0.4)
    want = anova_oneway([d[:, 0] for d, _ in raw], use_var="unequal")
    test = welch_anova(estimate(raw, method="t"))
    assert test.statistic[0] == pytest.approx(want.statistic, rel=1e-10)
    assert test.p[0] == pytest.approx(want.pvalue, rel=1e-9)


def brute_force_htz(raw, contrasts):
    """HTZ from the definition, with n x n matrices and no closed form (Pustejovsky & Tipton 2018).

    The total variance of the normalised covariance estimate is summed over its components, each of which
    is a quadratic form y'M_st y in independent standard normals: cov = 2 tr(M_st M_st) symmetrised.
    """
    sizes = [len(d) for d, _ in raw]
    n, k = sum(sizes), len(raw)
    y = np.concatenate([d[:, 0] for d, _ in raw])
    design = np.zeros((n, k))
    design[np.arange(n), np.repeat(np.arange(k), sizes)] = 1.0
    cluster = np.concatenate([c + 1000 * i for i, (_, c) in enumerate(raw)])
    bread = np.linalg.inv(design.T @ design)
    maker = np.eye(n) - design @ bread @ design.T
    q = len(contrasts)
    rows_by_cluster = []
    for g in np.unique(cluster):
        at = np.flatnonzero(cluster == g)
        values, vectors = np.linalg.eigh(maker[np.ix_(at, at)])
        root = vectors @ np.diag(1 / np.sqrt(values)) @ vectors.T
        rows_by_cluster.append(contrasts @ bread @ design[at].T @ root @ maker[at])
    covariance = sum(np.outer(r @ y, r @ y) for r in rows_by_cluster)
    omega = sum(r @ r.T for r in rows_by_cluster)
    values, vectors = np.linalg.eigh(omega)
    whiten = vectors @ np.diag(1 / np.sqrt(values)) @ vectors.T
    rows = [whiten @ r for r in rows_by_cluster]
    total = 0.0
    for s in range(q):
        for t in range(q):
            form = sum(np.outer(r[s], r[t]) for r in rows)
            form = (form + form.T) / 2
            total += 2 * np.trace(form @ form)
    eta = q * (q + 1) / total
    difference = contrasts @ bread @ design.T @ y
    wald = difference @ np.linalg.solve(covariance, difference)
    return (eta - q + 1) / (eta * q) * wald, q, eta - q + 1


SIZES = {
    2: [[1, 2, 3, 4, 5, 6] * 2, [3, 1, 4, 1, 5, 2, 2]],
    4: [[1, 2, 3] * 4, [2] * 9, [6, 1, 1, 1, 2, 3, 4, 4], [1] * 11],
}


@pytest.mark.parametrize("k", [2, 4])
def test_htz_matches_the_definition(k):
    raw = simulated(SIZES[k], seed=k)
    test = htz(estimate(raw))
    statistic, df1, df2 = brute_force_htz(raw, equal_means(k))
    assert test.statistic[0] == pytest.approx(statistic, rel=1e-9)
    assert (test.df1[0], test.df2[0]) == (df1, pytest.approx(df2, rel=1e-9))
    assert test.p[0] == pytest.approx(stats.f.sf(statistic, df1, df2), rel=1e-9)


def test_htz_of_any_contrasts_matches_the_definition():
    raw = simulated(SIZES[4], seed=9)
    contrasts = np.array([[1.0, -2.0, 1.0, 0.0], [0.5, 0.5, -0.5, -0.5]])
    test = htz_contrasts(estimate(raw), contrasts)
    statistic, _, df2 = brute_force_htz(raw, contrasts)
    assert test.statistic[0] == pytest.approx(statistic, rel=1e-9)
    assert test.df2[0] == pytest.approx(df2, rel=1e-9)


def test_htz_closed_form_is_the_contrast_form():
    groups = estimate(simulated(SIZES[4], seed=11, concepts=3))
    closed, general = htz(groups), htz_contrasts(groups, equal_means(4))
    np.testing.assert_allclose(closed.statistic, general.statistic, rtol=1e-10)
    np.testing.assert_allclose(closed.df2, general.df2, rtol=1e-10)


@pytest.mark.parametrize("dataset", ["D04_cluster_icc50", "D14_reused_identity_labels"])
def test_htz_of_two_groups_is_clubsandwichs_t_squared(dataset):
    terms = oracle.reference(dataset)["CR2_regression_delta_on_demographic"]
    _, groups = groups_of(dataset, "cluster")
    for row, term in enumerate(terms[1:], start=1):
        test = htz(groups.take(np.array([0, row]), np.array([0])))
        oracle.assert_close(test.statistic[0], (term["estimate"] / term["se"]) ** 2, rel=2e-9)
        oracle.assert_close(test.df2[0], term["df"])
        oracle.assert_p(test.p[0], term["p"])


def test_a_zero_variance_group_leaves_the_omnibus_and_is_named():
    raw = simulated(SIZES[2])
    still = (np.full((8, 1), 0.25), np.arange(8))
    test, alone = htz(estimate([*raw, still])), htz(estimate(raw))
    assert test.left_out[:, 0].tolist() == [False, False, True]
    assert test.statistic[0] == alone.statistic[0]
    assert test.few_identities[0]
    both, two = (estimate(groups) for groups in ([*raw, still], raw))
    decided, alone = (games_howell(groups, pairwise(groups)) for groups in (both, two))
    assert decided.left_out[:, 0].tolist() == [False, False, True]
    assert decided.p[0] == alone.p[0]


def test_games_howell_is_the_tail_of_the_studentized_range():
    raw = simulated(SIZES[4], shift=0.3, seed=5, concepts=2)
    groups = estimate(raw)
    found = pairwise(groups, level=0.95)
    t = np.abs(found.difference / found.se)
    want = stats.studentized_range.sf(np.sqrt(2) * t, 4, found.df)
    np.testing.assert_allclose(found.p_simultaneous, want, rtol=1e-6)
    test = games_howell(groups, found)
    np.testing.assert_allclose(test.p, want.min(axis=0), rtol=1e-6)
    outside = (found.band_low > 0) | (found.band_high < 0)
    np.testing.assert_array_equal(outside, found.p_simultaneous <= 0.05)


def test_omnibus_without_answer():
    one, still = (np.ones((3, 1)), np.zeros(3, dtype=int)), (np.ones((3, 1)), np.arange(3))
    test = htz(estimate([one, still]))
    assert (test.status[0], test.reason[0]) == ("undefined", "fewer_than_two_groups")
    tiny = [(np.random.default_rng(i).normal(size=(2, 1)), np.arange(2)) for i in range(8)]
    test = htz(estimate(tiny))
    assert (test.status[0], test.reason[0]) == ("undefined", "too_few_identities")
    assert np.isnan(test.p[0])
    test = htz_contrasts(estimate([still, *tiny]), equal_means(9))
    assert test.reason[0] == "group_without_variance"


def test_contrast_with_one_zero_variance_group_takes_the_others_df():
    still = (np.full((8, 1), 0.25), np.arange(8))
    moving = simulated([[1] * 8])[0]
    found = pairwise(estimate([still, moving]))
    assert found.df[0, 0] == pytest.approx(7.0)
    assert (found.status[0, 0], found.reason[0, 0]) == ("ok", "one_zero_variance")
    assert np.isnan(found.band_low[0, 0])


def test_undefined_contrasts_have_reasons():
    one, still = (np.ones((3, 1)), np.zeros(3, dtype=int)), (np.ones((3, 1)), np.arange(3))
    two = (np.array([[0.1], [0.4]]), np.arange(2))
    found = pairwise(estimate([one, still, still, two]))
    assert found.reason[:, 0].tolist() == [
        "group_undefined",
        "group_undefined",
        "group_undefined",
        "both_zero_variance",
        "one_zero_variance",
        "one_zero_variance",
    ]
    assert found.status[-1, 0] == "ok"
    assert np.isnan(found.band_low[-1, 0])
    assert found.n_groups[0] == 0
    # One person with nearly all pairs of the wider group: fewer than two degrees of freedom, so no band.
    lopsided = (np.arange(22.0)[:, None] % 3, np.array([0] * 20 + [1, 2]))
    narrow = (np.arange(9.0)[:, None] * 1e-3, np.arange(9))
    found = pairwise(estimate([lopsided, narrow]))
    assert (found.status[0, 0], found.reason[0, 0]) == ("ok", "df_below_2")
    assert np.isnan([found.band_low[0, 0], found.p_simultaneous[0, 0]]).all()


def test_satterthwaite_ignores_zero_parts():
    got = satterthwaite(np.array([[2.0], [0.0], [1.0]]), np.array([[5.0], [3.0], [9.0]]))
    assert got[0] == pytest.approx(25 / (16 / 5 + 1 / 9))


ETHNICITY = np.array([0, 0, 1, 1, 2, 2])
SEX = np.array([0, 1, 0, 1, 0, 1])


def six_groups(seed=3):
    return simulated([[1, 2, 3] * 4, [2] * 9, [1] * 12, [3, 4] * 5, [1, 1, 6] * 3, [2, 1] * 8], seed=seed)


def test_levels_are_equally_weighted_means():
    groups = estimate(six_groups())
    found = aggregate(groups, SEX, ETHNICITY)
    for row in range(2):
        fine = row == SEX
        variance = groups.se[fine] ** 2 / 9
        assert found.means.delta[row, 0] == pytest.approx(groups.delta[fine].mean(), rel=1e-12)
        assert found.means.se[row, 0] == pytest.approx(np.sqrt(variance.sum()), rel=1e-12)
        want = variance.sum() ** 2 / (variance**2 / groups.df[fine]).sum()
        assert found.means.df[row, 0] == pytest.approx(want, rel=1e-12)
    difference, strata = compare_levels(groups, SEX, ETHNICITY, level=0.999)
    assert strata.all()
    variance = groups.se**2 / 9
    want = variance.sum() ** 2 / (variance**2 / groups.df).sum()
    assert difference.df[0, 0] == pytest.approx(want, rel=1e-12)


NOBODY = (np.empty((0, 1)), np.empty(0, dtype=int))


def test_a_level_averages_the_groups_it_has_and_is_compared_where_both_are():
    raw = six_groups()
    raw[3] = NOBODY
    groups = estimate(raw)
    found = aggregate(groups, SEX, ETHNICITY)
    assert found.means.delta[0, 0] == pytest.approx(groups.delta[[0, 2, 4], 0].mean(), rel=1e-12)
    assert found.means.delta[1, 0] == pytest.approx(groups.delta[[1, 5], 0].mean(), rel=1e-12)
    assert found.means.n_pairs[:, 0].tolist() == [
        sum(len(raw[i][0]) for i in own) for own in ((0, 2, 4), (1, 5))
    ]
    difference, strata = compare_levels(groups, SEX, ETHNICITY, level=0.999)
    assert strata[0, :, 0].tolist() == [True, False, True]
    kept = np.array([0, 1, 4, 5])
    whole = estimate([raw[i] for i in kept])
    same, _ = compare_levels(whole, SEX[kept], np.array([0, 0, 1, 1]), level=0.999)
    for name in ("difference", "se", "df", "p_simultaneous"):
        assert getattr(difference, name)[0, 0] == getattr(same, name)[0, 0]
    # Three ethnicities of which one has women only: its differences rest on women alone, so that no
    # studentized range fits and the p values are Bonferroni's.
    difference, strata = compare_levels(groups, ETHNICITY, SEX, level=0.95)
    assert strata[:, :, 0].tolist() == [[True, False], [True, True], [True, False]]
    np.testing.assert_allclose(difference.p_simultaneous, np.minimum(1, 3 * difference.p), rtol=1e-12)
    assert difference.simultaneous[0] == "bonferroni"


def test_a_group_of_one_identity_counts_and_takes_the_interval_away():
    raw = six_groups()
    raw[3] = (np.full((2, 1), 0.5), np.zeros(2, dtype=int))
    groups = estimate(raw)
    means = aggregate(groups, SEX, ETHNICITY).means
    assert means.delta[1, 0] == pytest.approx(groups.delta[[1, 3, 5], 0].mean(), rel=1e-12)
    assert np.isnan(means.se[1, 0])
    assert np.isfinite(means.se[0, 0])
    difference, _ = compare_levels(groups, SEX, ETHNICITY, level=0.999)
    assert difference.difference[0, 0] == pytest.approx(means.delta[1, 0] - means.delta[0, 0], rel=1e-12)
    assert (difference.status[0, 0], difference.reason[0, 0]) == ("undefined", "group_undefined")


def test_concepts_have_their_own_support():
    raw = [(np.repeat(deltas, 2, axis=1), clusters) for deltas, clusters in six_groups()]
    raw[3][0][:, 1] = np.nan
    _, strata = compare_levels(estimate(raw), SEX, ETHNICITY, level=0.999)
    assert strata[0].T.tolist() == [[True, True, True], [True, False, True]]


def test_a_level_that_is_absent_everywhere_does_not_empty_the_others():
    raw = [pairs if level == 0 else NOBODY for pairs, level in zip(six_groups(), SEX, strict=True)]
    groups = estimate(raw)
    found = aggregate(groups, SEX, ETHNICITY)
    assert np.isfinite(found.means.se[0, 0])
    assert np.isnan(found.means.delta[1, 0])
    test = interaction_test(groups, interactions(groups, SEX, ETHNICITY, level=0.999))
    assert (test.reason[0], np.isnan(test.p[0])) == ("fewer_than_two_strata", True)


def test_zero_variance_levels_stay_zero_variance():
    still = [(np.full((4, 1), 0.25 * i), np.arange(4)) for i in range(4)]
    sex, ethnicity = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    found = aggregate(estimate(still), sex, ethnicity)
    assert found.means.se[:, 0].tolist() == [0.0, 0.0]
    difference, _ = compare_levels(estimate(still), sex, ethnicity, level=0.999)
    assert difference.status[0, 0] == "zero_variance"


def test_levels_have_htz_as_a_diagnostic():
    raw = six_groups(seed=8)
    by_ethnicity = level_htz(estimate(raw), ETHNICITY)
    contrasts = np.array([[-0.5, -0.5, 0.5, 0.5, 0, 0], [-0.5, -0.5, 0, 0, 0.5, 0.5]])
    statistic, _, df2 = brute_force_htz(raw, contrasts)
    assert by_ethnicity.statistic[0] == pytest.approx(statistic, rel=1e-9)
    assert by_ethnicity.df2[0] == pytest.approx(df2, rel=1e-9)


def test_an_interaction_compares_differences_between_strata():
    """Three strata: Games-Howell on three differences of two independent means each, by hand."""
    groups = estimate(six_groups(seed=8))
    found = interactions(groups, SEX, ETHNICITY, level=0.95)
    variance = groups.se[:, 0] ** 2
    d, v = groups.delta[1::2, 0] - groups.delta[::2, 0], variance[::2] + variance[1::2]
    parts = variance**2 / groups.df[:, 0]
    want = []
    for s, t in ((0, 1), (0, 2), (1, 2)):
        total = v[s] + v[t]
        df = total**2 / sum(parts[2 * i] + parts[2 * i + 1] for i in (s, t))
        want.append(stats.studentized_range.sf(np.sqrt(2) * abs(d[t] - d[s]) / np.sqrt(total), 3, df))
    np.testing.assert_allclose(found[0].between.p_simultaneous[:, 0], want, rtol=1e-6)
    np.testing.assert_allclose(found[0].within.difference[:, 0], d, rtol=1e-12)
    assert interaction_test(groups, found).p[0] == pytest.approx(min(want), rel=1e-6)
    # Turned round, three pairs of levels share the error of one test.
    turned = interactions(groups, ETHNICITY, SEX, level=0.95)
    assert len(turned) == 3
    single = [item.between.p[0, 0] for item in turned]
    assert interaction_test(groups, turned).p[0] == pytest.approx(min(1, 3 * min(single)), rel=1e-9)
    for item in turned:
        band = item.between.band_low[0, 0] > 0 or item.between.band_high[0, 0] < 0
        assert band == (item.between.p_simultaneous[0, 0] <= 0.05)


def test_a_pooled_mix_is_not_a_sex_difference():
    # Women mostly from ethnicity 1, where everyone's delta is 1: equal weights see no sex difference.
    rng = np.random.default_rng(0)
    sizes, shift = [40, 10, 10, 40], [0.0, 0.0, 1.0, 1.0]
    raw = [(rng.normal(s, 0.01, size=(n, 1)), np.arange(n)) for n, s in zip(sizes, shift, strict=True)]
    found, _ = compare_levels(estimate(raw), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]), level=0.999)
    assert abs(found.difference[0, 0]) < 0.02


def test_wrong_calls():
    groups = estimate(simulated(SIZES[2]))
    with pytest.raises(ValueError, match="at least 2 groups, got 1"):
        pairwise(groups.take(np.array([0]), np.array([0])))
    with pytest.raises(ValueError, match="level must lie strictly"):
        pairwise(groups, level=0.0)
    with pytest.raises(ValueError, match=r"contrasts must have shape \(q, 2\), got \(1, 3\)"):
        htz_contrasts(groups, np.ones((1, 3)))
    with pytest.raises(ValueError, match=r"must have shape \(2,\)"):
        aggregate(groups, SEX, ETHNICITY)
    with pytest.raises(ValueError, match="one group in each stratum"):
        aggregate(groups, np.array([0, 0]), np.array([1, 1]))
    with pytest.raises(ValueError, match="at least one and share their concepts, got concept counts \\[\\]"):
        GroupMeans.stack([])
