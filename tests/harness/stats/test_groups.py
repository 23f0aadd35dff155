"""Contrasts, bands, omnibus tests and coarser groups: against R, statsmodels and brute force."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.oneway import anova_oneway

from harness.stats.aggregate import aggregate, interaction, level_omnibus
from harness.stats.cells import blocks, checked
from harness.stats.contrasts import pairwise, satterthwaite
from harness.stats.equivalence import tost
from harness.stats.families import adjust
from harness.stats.groups import GroupMeans
from harness.stats.intervals import cell_estimates
from harness.stats.omnibus import equal_means, htz, htz_contrasts, interaction_contrasts, welch_anova
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
    assert found.status[0, 0] == "ok"


def test_undefined_contrasts_have_reasons():
    one, still = (np.ones((3, 1)), np.zeros(3, dtype=int)), (np.ones((3, 1)), np.arange(3))
    two = (np.array([[0.1], [0.4]]), np.arange(2))
    found = pairwise(estimate([one, still, still, two]))
    assert found.reason[:, 0].tolist() == [
        "group_undefined",
        "group_undefined",
        "group_undefined",
        "both_zero_variance",
        "df_below_2",
        "df_below_2",
    ]
    assert found.status[-1, 0] == "ok"
    assert np.isnan(found.band_low[-1, 0])
    assert found.n_groups[0] == 3


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
    assert found.levels.tolist() == [0, 1]
    for row, level in enumerate(found.levels):
        fine = level == SEX
        variance = groups.se[fine] ** 2 / 9
        assert found.means.delta[row, 0] == pytest.approx(groups.delta[fine].mean(), rel=1e-12)
        assert found.means.se[row, 0] == pytest.approx(np.sqrt(variance.sum()), rel=1e-12)
        want = variance.sum() ** 2 / (variance**2 / groups.df[fine]).sum()
        assert found.means.df[row, 0] == pytest.approx(want, rel=1e-12)
    difference = pairwise(found.means)
    variance = groups.se**2 / 9
    want = variance.sum() ** 2 / (variance**2 / groups.df).sum()
    assert difference.df[0, 0] == pytest.approx(want, rel=1e-12)


def test_a_missing_group_takes_its_stratum_along():
    raw = six_groups()
    raw[3] = (np.full((1, 1), 0.5), np.zeros(1, dtype=int))
    groups = estimate(raw)
    found = aggregate(groups, SEX, ETHNICITY)
    assert found.used[:, 0].tolist() == [True, True, False, False, True, True]
    assert found.left_out[:, 0].tolist() == [False, False, True, False, False, False]
    whole = estimate([raw[i] for i in (0, 1, 4, 5)])
    kept = np.array([0, 1, 4, 5])
    same = aggregate(whole, SEX[kept], ETHNICITY[kept])
    np.testing.assert_array_equal(found.means.delta, same.means.delta)
    test, alone = (interaction(estimate(raw), SEX, ETHNICITY), interaction(whole, SEX[kept], ETHNICITY[kept]))
    assert test.statistic[0] == alone.statistic[0]
    assert test.df1[0] == 1


def test_a_missing_group_takes_its_level_along_where_that_keeps_more():
    raw = six_groups()
    raw[3] = (np.full((1, 1), 0.5), np.zeros(1, dtype=int))
    found = aggregate(estimate(raw), ETHNICITY, SEX)
    assert found.used[:, 0].tolist() == [True, True, False, False, True, True]
    assert np.isnan(found.means.delta[1, 0])
    assert np.isfinite(found.means.delta[[0, 2], 0]).all()
    only_men = [
        pairs if sex == 0 else (np.empty((0, 1)), np.empty(0, dtype=int))
        for pairs, sex in zip(raw, SEX, strict=True)
    ]
    found = aggregate(estimate(only_men), ETHNICITY, SEX)
    assert found.used[:, 0].tolist() == [True, False] * 3


def test_concepts_have_their_own_support():
    raw = [(np.repeat(deltas, 2, axis=1), clusters) for deltas, clusters in six_groups()]
    raw[3][0][:, 1] = np.nan
    found = aggregate(estimate(raw), SEX, ETHNICITY)
    assert found.used[:, 0].all()
    assert found.used[:, 1].tolist() == [True, True, False, False, True, True]


def test_a_level_that_is_absent_everywhere_does_not_empty_the_others():
    raw = [
        pairs if level == 0 else (np.empty((0, 1)), np.empty(0, dtype=int))
        for pairs, level in zip(six_groups(), SEX, strict=True)
    ]
    found = aggregate(estimate(raw), SEX, ETHNICITY)
    assert np.isfinite(found.means.se[0, 0])
    assert np.isnan(found.means.se[1, 0])
    assert interaction(estimate(raw), SEX, ETHNICITY).reason[0] == "fewer_than_two_groups"


def test_zero_variance_levels_stay_zero_variance():
    still = [(np.full((4, 1), 0.25 * i), np.arange(4)) for i in range(4)]
    found = aggregate(estimate(still), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]))
    assert found.means.se[:, 0].tolist() == [0.0, 0.0]
    assert pairwise(found.means).status[0, 0] == "zero_variance"


def test_level_tests_match_the_definition():
    raw = six_groups(seed=8)
    groups = estimate(raw)
    by_ethnicity = level_omnibus(groups, ETHNICITY, SEX)
    contrasts = np.array([[-0.5, -0.5, 0.5, 0.5, 0, 0], [-0.5, -0.5, 0, 0, 0.5, 0.5]])
    statistic, _, df2 = brute_force_htz(raw, contrasts)
    assert by_ethnicity.statistic[0] == pytest.approx(statistic, rel=1e-9)
    assert by_ethnicity.df2[0] == pytest.approx(df2, rel=1e-9)
    test = interaction(groups, SEX, ETHNICITY)
    statistic, q, df2 = brute_force_htz(raw, interaction_contrasts(SEX, ETHNICITY))
    assert (test.df1[0], q) == (2, 2)
    assert test.statistic[0] == pytest.approx(statistic, rel=1e-9)
    assert test.df2[0] == pytest.approx(df2, rel=1e-9)


def test_a_pooled_mix_is_not_a_sex_difference():
    # Women mostly from ethnicity 1, where everyone's delta is 1: equal weights see no sex difference.
    rng = np.random.default_rng(0)
    sizes, shift = [40, 10, 10, 40], [0.0, 0.0, 1.0, 1.0]
    raw = [(rng.normal(s, 0.01, size=(n, 1)), np.arange(n)) for n, s in zip(sizes, shift, strict=True)]
    found = aggregate(estimate(raw), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]))
    assert abs(found.means.delta[1, 0] - found.means.delta[0, 0]) < 0.02


def test_wrong_calls():
    groups = estimate(simulated(SIZES[2]))
    with pytest.raises(ValueError, match="at least 2 groups, got 1"):
        pairwise(groups.take(np.array([0]), np.array([0])))
    with pytest.raises(ValueError, match="level must lie strictly"):
        pairwise(groups, level=0.0)
    with pytest.raises(ValueError, match=r"contrasts must have shape \(q, 2\), got \(1, 3\)"):
        htz_contrasts(groups, np.ones((1, 3)))
    with pytest.raises(ValueError, match="every one of 2 x 2 combinations"):
        interaction_contrasts(np.array([0, 1, 1]), np.array([0, 0, 1]))
    with pytest.raises(ValueError, match=r"must have shape \(2,\)"):
        aggregate(groups, SEX, ETHNICITY)
    with pytest.raises(ValueError, match="one group in each stratum"):
        aggregate(groups, np.array([0, 0]), np.array([1, 1]))
    with pytest.raises(ValueError, match="at least one and share their concepts, got concept counts \\[\\]"):
        GroupMeans.stack([])
