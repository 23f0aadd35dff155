"""Effect sizes, signed ranks, equivalence and planning: against R, scipy and known numbers."""

import numpy as np
import pytest
from scipy import stats

from harness.stats.cells import blocks, checked
from harness.stats.effects import (
    effect_size,
    hedges_factor,
    noncentral_t_cdf,
    noncentrality_interval,
    signed_rank,
)
from harness.stats.equivalence import margin_test, one_sided_bounds, tost
from harness.stats.intervals import cell_estimates
from harness.stats.planning import (
    Floor,
    detectable_ratio,
    identities_for_half_width,
    identities_to_decide,
    minimum_detectable_effect,
)
from harness.stats.sandwich import variance_of_mean
from tests.harness.stats import oracle


@pytest.mark.parametrize("dataset", oracle.CELL_DATASETS)
def test_effect_size_matches_r(dataset):
    for _, pairs, ref in oracle.cell_references(dataset):
        want = ref.get("effect_size")
        got = effect_size(pairs.source, pairs.transformed)
        if want is None:
            assert got.status == "undefined"
        elif "status" in ref:
            assert got.status == "zero_variance"
        else:
            oracle.assert_close(got.dz, want["dz"], absolute=1e-15)
            for name, value in (("g", want["g_exact"]), *ends(want, "dz_ci"), *ends(want, "g_ci")):
                if value is not None:
                    rel = 1e-9 if name == "g" else 1e-6
                    oracle.assert_close(getattr(got, name), value, rel=rel, absolute=1e-15)


def ends(want, key):
    interval = want[key] or {"lo": None, "hi": None}
    name = key.removesuffix("_ci")
    return [(f"{name}_low", interval["lo"]), (f"{name}_high", interval["hi"])]


@pytest.mark.parametrize("dataset", oracle.CELL_DATASETS)
def test_signed_rank_matches_r(dataset):
    for _, pairs, ref in oracle.cell_references(dataset):
        want = ref.get("wilcoxon_normal_approx")
        if want is None or "V" not in want or "rounding" in ref.get("status", ""):
            continue
        got = signed_rank(pairs.delta)
        oracle.assert_close(got.statistic, want["V"])
        oracle.assert_p(got.p, want["p"])
        assert (got.n_zero, got.ties) == (want["n_zero_dropped"], want["ties"])


def test_signed_rank_matches_scipy():
    deltas = np.round(np.random.default_rng(2).normal(0.1, 1, size=60), 1)
    want = stats.wilcoxon(deltas, correction=True, method="asymptotic")
    assert signed_rank(np.append(deltas, np.nan)).p == pytest.approx(want.pvalue, rel=1e-12)
    assert signed_rank([0.0, 0.0]).status == "undefined"


@pytest.mark.parametrize("dataset", oracle.CELL_DATASETS)
def test_tost_matches_r(dataset):
    for _, pairs, ref in oracle.cell_references(dataset):
        if "tost_iid" not in ref or "status" in ref:
            continue
        cell = cell_estimates(pairs.source, pairs.transformed, pairs.clusters, method="t")
        check_tost(tost(cell.delta, cell.se, cell.df, 0.05), ref["tost_iid"])
        want = ref.get("tost_CR1")
        if want and want.get("p") is not None:
            (block,) = blocks(*checked(pairs.source, pairs.transformed, pairs.clusters))
            se = np.sqrt(variance_of_mean(block.sums(), block.structure, "CR1"))
            check_tost(tost(block.mean, se, block.structure.n_clusters - 1.0, 0.05), want)


def check_tost(got, want):
    for name in ("p_lower", "p_upper", "p"):
        oracle.assert_p(getattr(got, name)[0], want[name])


def test_tost_is_the_interval_inside_the_margins():
    for estimate in (-0.03, 0.0, 0.01, 0.04):
        low, high = one_sided_bounds(estimate, 0.01, 12.0, alpha=0.05)
        inside = bool(low > -0.05 and high < 0.05)
        assert inside == bool(tost(estimate, 0.01, 12.0, 0.05).p < 0.05)


@pytest.mark.parametrize("harmful", ["lower", "higher", "both"])
def test_margin_tests_are_the_one_sided_bounds(harmful):
    for estimate in np.linspace(-0.2, 0.2, 41):
        low, high = one_sided_bounds(estimate, 0.02, 9.0, alpha=0.025)
        inside, beyond = low > -0.1, high < -0.1
        if harmful == "higher":
            inside, beyond = high < 0.1, low > 0.1
        elif harmful == "both":
            inside, beyond = inside and high < 0.1, beyond or low > 0.1
        got = margin_test(estimate, 0.02, 9.0, 0.1, harmful)
        assert bool(got.p_inside < 0.025) == bool(inside)
        assert bool(got.p_beyond < 0.025) == bool(beyond)


def test_a_change_far_beyond_the_margin_has_a_small_p_not_zero():
    assert 0 < margin_test(-1.0, 0.01, 200.0, 0.1, "lower").p_beyond < 1e-20


def test_nothing_is_equivalent_without_a_standard_error():
    assert np.isnan(tost([0.0, 0.0], [0.0, np.nan], 5.0, 0.1).p).all()
    assert np.isnan(one_sided_bounds(0.0, 0.0, 5.0, 0.05)).all()


def test_noncentral_t_matches_scipy():
    rng = np.random.default_rng(0)
    for _ in range(300):
        df = float(rng.choice([1.0, 2.0, 3.3, 9.0, 40.0, 300.0]))
        t, ncp = rng.uniform(-8, 25), rng.uniform(-10, 30)
        want = stats.nct.cdf(t, df, ncp)
        if np.isfinite(want):
            assert noncentral_t_cdf(t, df, ncp) == pytest.approx(want, abs=1e-10)


@pytest.mark.parametrize(("t", "df"), [(0.0, 5.0), (3.0, 1.0), (-12.0, 20.0), (400.0, 3.0), (2.0, 1e6)])
def test_noncentrality_interval_solves_its_tails(t, df):
    low, high = noncentrality_interval(t, df, 0.99)
    assert noncentral_t_cdf(t, df, low) == pytest.approx(0.995, abs=1e-9)
    assert noncentral_t_cdf(t, df, high) == pytest.approx(0.005, abs=1e-9)


def test_no_interval_for_absurd_effects():
    assert np.isnan(noncentrality_interval(1e5, 7.0, 0.95)).all()
    assert np.isnan(hedges_factor(1))


def test_detectable_effect_has_the_known_size():
    assert detectable_ratio(9.0) == pytest.approx(5.90, abs=0.005)
    assert detectable_ratio(99.0) == pytest.approx(4.25, abs=0.005)


@pytest.mark.parametrize(("df", "level", "power"), [(9.0, 0.999, 0.8), (30.0, 0.95, 0.9), (200.0, 0.99, 0.5)])
def test_detectable_effect_matches_scipy(df, level, power):
    crit = stats.t.ppf(0.5 + level / 2, df)
    assert stats.nct.sf(crit, df, detectable_ratio(df, level, power)) == pytest.approx(power, abs=1e-8)


def test_detectable_effect_of_arrays():
    got = minimum_detectable_effect([0.1, 0.2, 0.0, np.nan], [9.0, 9.0, 9.0, np.nan])
    np.testing.assert_allclose(got[:2], [0.1 * detectable_ratio(9.0), 0.2 * detectable_ratio(9.0)])
    assert np.isnan(got[2:]).all()


def test_identities_for_a_half_width_is_the_smallest():
    for sd, half in ((1.0, 0.5), (0.1, 0.01), (2.0, 1.9)):
        n = identities_for_half_width(sd, half)
        assert stats.t.ppf(0.9995, n - 1) * sd / np.sqrt(n) <= half
        assert n == 2 or stats.t.ppf(0.9995, n - 2) * sd / np.sqrt(n - 1) > half


def test_a_half_width_just_missed_takes_one_more():
    ten = stats.t.ppf(0.9995, 9) / np.sqrt(10)
    assert identities_for_half_width(1.0, ten * 1.001) == 10
    assert identities_for_half_width(1.0, ten * 0.999) == 11


def test_identities_to_decide():
    # sc = .1, z = 1.959964 + .841621: G = .01 * 7.848880 / .0004 = 196.2.
    assert identities_to_decide(0.01, 100, 0.02) == 197
    assert identities_to_decide(0.01, 100, 0.02, planned=-0.02) is None
    assert identities_to_decide(0.0, 100, 0.02) == 2
    # Both directions: z = 1.959964 + 1.281552 in place of .841621.
    assert identities_to_decide(0.01, 100, 0.02, both=True) == 263


def test_identities_for_room_and_spread_together():
    """By trying every number: at the larger of the two single numbers neither would leave the other room."""
    for parts, pairs in (((1.0,), False), ((0.5, 0.5), False), ((1.0,), True)):
        floor = Floor(1.0, parts, both_of_a_pair=pairs)
        z = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)

        def worst(n, se, floor=floor, z=z):
            shares = [1 - 0.025 ** ((2 if floor.both_of_a_pair else 1) / (n * p)) for p in floor.parts]
            return (1 - min(shares)) * z * se * np.sqrt(100 / n) + sum(shares)

        for se in (0.0, 0.01):
            found = identities_to_decide(se, 100, 0.05, floor=floor)
            assert worst(found, se) <= 0.05 * (1 + 1e-9) < worst(found - 1, se)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: tost(0.0, 1.0, 5.0, 0.0), "margin must be positive, got 0.0"),
        (lambda: one_sided_bounds(0.0, 1.0, 5.0, 0.7), r"alpha must lie in \(0, 0.5\], got 0.7"),
        (
            lambda: margin_test(0.0, 1.0, 5.0, 0.1, "up"),
            "harmful must be one of lower, higher, both, got 'up'",
        ),
        (lambda: detectable_ratio(0.0), "need df > 0"),
        (lambda: identities_for_half_width(1.0, 0.0), "must be positive and finite, got 1.0 and 0.0"),
        (lambda: identities_to_decide(-1.0, 5, 0.1), "need se >= 0"),
        (lambda: effect_size(np.zeros((3, 2)), np.ones((3, 2))), "takes one concept, got 2"),
    ],
)
def test_wrong_calls(call, text):
    with pytest.raises(ValueError, match=text):
        call()
