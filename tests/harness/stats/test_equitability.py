"""Measures of inequity: those of FNMR beside permuted labels, ratios of FMR with tests of their own."""

import numpy as np
import pytest
from scipy import stats

from harness.stats import equitability
from harness.stats.comparisons import comparisons
from harness.stats.resampling import Estimate

GROUPS, EACH = 4, 30
LABELS = np.repeat(np.arange(GROUPS), EACH)


def test_parity_is_where_the_docstrings_say():
    equal = np.full(5, 0.2)
    got = equitability.measures(equal, equal)
    ones = ("max_over_geomean_fmr", "max_over_min_fnmr", "fdr", "inequity_rate")
    zeros = ("gini_fmr", "largest_difference_fnmr", "garbe")
    assert [float(got[name]) for name in ones] == pytest.approx([1] * 4)
    assert [float(got[name]) for name in zeros] == pytest.approx([0] * 3)


def test_two_groups_are_needed():
    with pytest.raises(ValueError, match="two groups"):
        equitability.measures(np.array([0.1]), np.array([0.1]))


def test_undefined_cases_have_names():
    null = np.full((9, 2), 0.1)
    cases = {
        "ok": (0.1, 0.2),
        "infinite_min_is_zero": (0.0, 0.2),
        "undefined_0_over_0": (0.0, 0.0),
        "undefined_group_without_rate": (np.nan, 0.2),
    }
    for status, rates in cases.items():
        found = {m.name: m for m in equitability.with_null(np.array([0.1, 0.2]), np.array(rates), null)}
        measure = found["max_over_geomean_fnmr"]
        assert measure.status == status
        assert np.isnan(measure.value) == (status != "ok")
        assert np.isnan(measure.p) == status.startswith("undefined")
        assert found["max_over_min_fmr"].status == "ok"
        assert np.isnan([found[name].p for name in ("max_over_min_fmr", "fdr", "garbe")]).all()
        if status == "infinite_min_is_zero":
            assert measure.p == pytest.approx(0.1), "no permutation is as uneven"


def test_labels_are_permuted_within_strata():
    strata = np.arange(len(LABELS)) % 2
    permuted = equitability.permuted_labels(LABELS, strata, 50, 0)
    assert permuted.shape == (50, len(LABELS))
    for row in permuted:
        for stratum in (0, 1):
            assert sorted(row[strata == stratum]) == sorted(LABELS[strata == stratum])
    assert len({tuple(row) for row in permuted}) == 50


def genuine(seed, harder=0.0):
    """Genuine comparisons of four groups, one of them harder."""
    rng = np.random.default_rng(seed)
    people = np.repeat(np.arange(len(LABELS)), 3)
    hardness = rng.normal(size=len(LABELS))[people] - harder * (LABELS[people] == 0)
    scores = 4 + rng.normal(size=len(people)) + hardness
    return comparisons("within", scores, people, people, np.full(len(LABELS), 3.0))


def test_a_group_that_differs_is_found_and_chance_is_not():
    names = ("max_over_geomean_fnmr", "largest_difference_fnmr", "max_over_min_fnmr")
    p = {harder: {name: [] for name in names} for harder in (0.0, 1.5)}
    for seed in range(60):
        for harder, found in p.items():
            own = genuine(seed, harder)
            permuted = equitability.permuted_labels(LABELS, np.zeros(len(LABELS), int), 99, seed)
            null = equitability.permuted_fnmr(own, 3.0, permuted, GROUPS)
            missed = own.left - np.bincount(own.first[: own.matches(3.0)], minlength=len(LABELS))
            fnmr = np.bincount(LABELS, weights=missed) / (3 * EACH)
            for measure in equitability.with_null(fnmr, fnmr, null):
                if measure.name in found:
                    found[measure.name].append(measure.p)
    for name in names:
        # 60 draws at .05 with four standard errors of .028.
        assert np.mean(np.array(p[0.0][name]) <= 0.05) <= 0.05 + 4 * 0.028, name
        assert np.mean(np.array(p[1.5][name]) <= 0.05) > 0.9


def rate(errors, n, variance, df=20.0, status="ok"):
    return Estimate(errors, n, 30, errors / n, variance, df, 15.0, status)


def test_ratios_of_rates_by_hand():
    rates = [rate(10, 1000, 4e-6, 20.0), rate(30, 1000, 9e-6, 30.0), rate(0, 900, np.nan, np.nan, "none")]
    found = equitability.ratio_tests(rates, 0.95)
    parts = [(0.002 / 0.01) ** 2, (0.003 / 0.03) ** 2]
    se, df = np.sqrt(sum(parts)), sum(parts) ** 2 / (parts[0] ** 2 / 20 + parts[1] ** 2 / 30)
    p = 2 * stats.t.sf(np.log(3) / se, df)
    assert found.ratio[0] == pytest.approx(3)
    assert found.p[0] == pytest.approx(p)
    assert found.low[0] == pytest.approx(3 * np.exp(-stats.t.ppf(0.975, df) * se))
    # Two of the three pairs have no p, and still count in the family.
    assert found.p_adjusted[0] == pytest.approx(min(1, 3 * p))
    assert np.isnan(found.p[1:]).all()


def test_an_infinite_ratio_is_as_rare_as_the_permutations_that_reach_it():
    """By hand: of four permutations one is infinite and one undefined, which counts as uneven too."""
    null = np.array([[0.0, 0.2], [0.1, 0.1], [0.0, 0.0], [0.05, 0.15]])
    rates = np.array([0.0, 0.2])
    found = {item.name: item for item in equitability.with_null(rates, rates, null)}
    for name in ("max_over_geomean_fnmr", "max_over_min_fnmr"):
        assert found[name].status == "infinite_min_is_zero"
        assert found[name].p == pytest.approx(3 / 5)
    assert found["largest_difference_fnmr"].p == pytest.approx(2 / 5)
