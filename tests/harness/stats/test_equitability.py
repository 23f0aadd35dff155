"""Measures of inequity beside their null: permuted labels, the pooled rate kept."""

import numpy as np
import pytest

from harness.stats import equitability
from harness.stats.comparisons import comparisons

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
        found = {
            m.name: m for m in equitability.with_null(np.array(rates), np.array([0.1, 0.2]), (null, null))
        }
        measure = found["max_over_geomean_fmr"]
        assert measure.status == status
        assert np.isnan(measure.value) == (status != "ok")
        assert np.isnan(measure.p) == status.startswith("undefined")
        assert found["max_over_min_fnmr"].status == "ok"
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


def recogniser(seed, lifted=0.0):
    """Scores among and within people of four groups; people of one group look alike, one group more."""
    rng = np.random.default_rng(seed)
    one, two = np.triu_indices(len(LABELS), 1)
    alike = 0.8 * (LABELS[one] == LABELS[two]) + lifted * ((LABELS[one] == 0) & (LABELS[two] == 0))
    person = 0.3 * rng.normal(size=len(LABELS))
    scores = rng.normal(size=len(one)) + alike + person[one] + person[two]
    other = comparisons("among", scores, one, two, np.ones(len(LABELS)))
    people = np.repeat(np.arange(len(LABELS)), 3)
    hardness = rng.normal(size=len(LABELS))[people]
    own = comparisons(
        "within", 4 + rng.normal(size=len(people)) + hardness, people, people, np.full(len(LABELS), 3.0)
    )
    return own, other


def observed_and_null(seed, lifted=0.0, threshold=3.0):
    own, other = recogniser(seed, lifted)
    first = other.first[: other.matches(threshold)]
    same = LABELS[first] == LABELS[other.second[: other.matches(threshold)]]
    errors = np.bincount(LABELS[first[same]], minlength=GROUPS)
    each = EACH * (EACH - 1) / 2
    pooled = float(errors.sum() / (GROUPS * each))
    permuted = equitability.permuted_labels(LABELS, np.zeros(len(LABELS), int), 99, seed)
    null = (
        equitability.permuted_fmr([other], pooled, permuted, GROUPS),
        equitability.permuted_fnmr(own, threshold, permuted, GROUPS),
    )
    missed = own.left - np.bincount(own.first[: own.matches(threshold)], minlength=len(LABELS))
    fnmr = np.bincount(LABELS, weights=missed) / (3 * EACH)
    return errors / each, fnmr, null, pooled


def test_permutations_keep_the_pooled_rate():
    fmr, _, null, pooled = observed_and_null(0)
    assert fmr.mean() == pytest.approx(pooled)
    assert null[0].mean(axis=1) == pytest.approx(np.full(99, pooled), rel=0.02)
    assert null[0].std() > 0
    assert null[1].mean() == pytest.approx(observed_and_null(0)[1].mean(), rel=1e-9)


def test_a_group_that_differs_is_found_and_chance_is_not():
    names = ("max_over_geomean_fmr", "largest_difference_fmr", "max_over_min_fnmr")
    chance: dict[str, list[float]] = {name: [] for name in names}
    found = []
    for seed in range(60):
        fmr, fnmr, null, _ = observed_and_null(seed)
        for measure in equitability.with_null(fmr, fnmr, null):
            if measure.name in chance:
                chance[measure.name].append(measure.p)
        fmr, fnmr, null, _ = observed_and_null(seed, lifted=0.8)
        lifted = {m.name: m for m in equitability.with_null(fmr, fnmr, null)}
        found.append(lifted["max_over_geomean_fmr"].p)
    for name, values in chance.items():
        # 60 draws at .05 with four standard errors of .028.
        assert np.mean(np.array(values) <= 0.05) <= 0.05 + 4 * 0.028, name
    assert np.mean(np.array(found) <= 0.05) > 0.9


def test_a_null_of_shallow_scores_is_undefined_and_zero_stays_zero():
    _, other = recogniser(0)
    permuted = equitability.permuted_labels(LABELS, np.zeros(len(LABELS), int), 3, 0)
    few = comparisons("among", other.scores[:5], other.first[:5], other.second[:5], other.left)
    assert np.isnan(equitability.permuted_fmr([few], 0.2, permuted, GROUPS)).all()
    assert (equitability.permuted_fmr([few], 0.0, permuted, GROUPS) == 0).all()


def test_an_infinite_ratio_is_as_rare_as_the_permutations_that_reach_it():
    """By hand: of four permutations one is infinite and one undefined, which counts as uneven too."""
    null = np.array([[0.0, 0.2], [0.1, 0.1], [0.0, 0.0], [0.05, 0.15]])
    rates = np.array([0.0, 0.2])
    found = {item.name: item for item in equitability.with_null(rates, rates, (null, null))}
    for name in ("max_over_geomean_fmr", "max_over_min_fnmr", "inequity_rate"):
        assert found[name].status == "infinite_min_is_zero"
        assert found[name].p == pytest.approx(3 / 5)
    assert found["largest_difference_fmr"].p == pytest.approx(2 / 5)
