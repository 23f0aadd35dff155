"""Proportions against R, statsmodels, scipy and by hand."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from harness.stats.proportions import clopper_pearson, clustered_proportion, examples_to_show, wilson
from tests.harness.stats import oracle


@pytest.mark.parametrize(("k", "n"), [(0, 5), (5, 5), (3, 7), (564, 751)])
@pytest.mark.parametrize("level", [0.9, 0.999])
def test_intervals_match_statsmodels(k, n, level):
    np.testing.assert_allclose(
        wilson(k, n, level), proportion_confint(k, n, 1 - level, "wilson"), rtol=1e-12, atol=1e-15
    )
    np.testing.assert_allclose(
        clopper_pearson(k, n, level), proportion_confint(k, n, 1 - level, "beta"), rtol=1e-9, atol=1e-15
    )


def test_the_papers_efficacy_matches_r():
    table = oracle.reference("P01_paper_table3")["table2_consistency"]
    for name in ("efficacy", "single_cell_5_of_5", "single_cell_0_of_5"):
        ref = table[name]
        assert ref["rate"] == pytest.approx(ref["k"] / ref["n"])
        got = clopper_pearson(ref["k"], ref["n"], 0.999)
        np.testing.assert_allclose(got, ref["ci999"], rtol=1e-9, atol=1e-15)


def test_ninety_nine_without_a_miss_show_97_percent():
    assert examples_to_show(0.97) == 99
    assert clopper_pearson(99, 99, 0.9)[0] >= 0.97 > clopper_pearson(98, 98, 0.9)[0]


def test_singletons_have_the_binomial_size():
    outcomes = np.array([1, 0, 1, 1, 0, 1, 1, 1])
    got = clustered_proportion(outcomes, np.arange(8))
    # p (1 - p) / (p (1 - p) / (n - 1)) = n - 1.
    assert got.n_effective == pytest.approx(7.0)
    assert (got.low, got.high) == pytest.approx(wilson(0.75 * 7, 7))


def test_repeats_of_one_face_are_one_item():
    outcomes = np.repeat([1, 0, 1, 1, 0, 1, 1, 1, 0, 1], 6)
    got = clustered_proportion(outcomes, np.repeat(np.arange(10), 6))
    ratio = (stats.t.ppf(0.975, 59) / stats.t.ppf(0.975, 9)) ** 2
    assert got.n_effective == pytest.approx(9 * ratio)
    assert (got.n, got.n_identities, got.successes) == (60, 10, 42)


def test_effective_size_never_exceeds_the_sample():
    outcomes = np.tile([1, 0], 10)
    got = clustered_proportion(outcomes, np.repeat(np.arange(10), 2))
    assert got.n_effective == 20


def test_without_variance_identities_are_the_size():
    got = clustered_proportion(np.ones(12), np.repeat(np.arange(4), 3))
    assert (got.status, got.n_effective) == ("identities_as_size", 4.0)
    assert (got.low, got.high) == wilson(4, 4)
    assert clustered_proportion([], []).status == "undefined"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: wilson(3, 2), "between 0 and a positive n, got 3 of 2"),
        (lambda: clopper_pearson(0, 0), "got 0 of 0"),
        (lambda: wilson(1, 2, 1.0), "level must lie strictly"),
        (lambda: examples_to_show(1.0), r"must lie in \(0, 1\), got 1.0"),
        (lambda: clustered_proportion([0.5], [1]), "outcomes must be 0 or 1"),
    ],
)
def test_wrong_calls(call, text):
    with pytest.raises(ValueError, match=text):
        call()
