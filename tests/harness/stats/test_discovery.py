"""Searching many concepts."""

import numpy as np
import pytest
from scipy import stats

from harness.stats.discovery import (
    SearchTests,
    discover,
    discover_and_confirm,
    distinct_concepts,
    exceeds_margin,
    smallest_effect,
    split_identities,
)
from harness.stats.families import adjust
from harness.stats.intervals import cell_estimates


def search(delta, se=0.1, df=30.0, same_as=None):
    delta = np.asarray(delta, dtype=float)
    n = len(delta)
    same = np.arange(n) if same_as is None else np.asarray(same_as)
    return SearchTests(delta, np.broadcast_to(se, n).astype(float), np.full(n, df), np.zeros(n), same)


def test_a_zero_margin_is_the_two_sided_test():
    got = exceeds_margin(np.array([0.25, -0.25]), np.array([0.1, 0.1]), np.array([9.0, 9.0]), 0.0)
    np.testing.assert_allclose(got, 2 * stats.t.sf(2.5, 9), rtol=1e-12)


def test_the_margin_test_keeps_its_level_at_the_boundary():
    rng = np.random.default_rng(0)
    draws = rng.normal(0.3, 1.0, size=(40_000, 11))
    se = draws.std(axis=1, ddof=1) / np.sqrt(11)
    p = exceeds_margin(draws.mean(axis=1), se, np.full(len(se), 10.0), 0.3)
    assert (p < 0.05).mean() == pytest.approx(0.05, abs=0.005)
    assert np.isnan(exceeds_margin(np.array([1.0]), np.array([0.0]), np.array([5.0]), 0.1)).all()


def test_smallest_effect_is_the_near_end_of_the_interval():
    got = smallest_effect(np.array([0.5, -0.5, 0.01]), np.full(3, 0.1), np.full(3, 12.0), 0.95)
    near = 0.5 - stats.t.ppf(0.975, 12) * 0.1
    np.testing.assert_allclose(got, [near, near, 0.0])


def test_duplicates_are_found_with_their_missing_scores():
    rng = np.random.default_rng(0)
    source, transformed = rng.normal(size=(2, 6, 4))
    source[0, 1] = np.nan
    source[:, 3], transformed[:, 3] = source[:, 1], transformed[:, 1]
    source[1, 2], assigned = 0.0, distinct_concepts(source, transformed)
    assert assigned.tolist() == [0, 1, 2, 1]
    source[1, 1], source[1, 3] = 0.0, -0.0
    source[0, 3] = -np.nan
    assert distinct_concepts(source, transformed).tolist() == [0, 1, 2, 1]
    transformed[2, 3] += 1e-12
    assert distinct_concepts(source, transformed).tolist() == [0, 1, 2, 3]


def test_split_is_by_identity_and_stratified():
    groups = np.repeat([0, 1], [60, 33])
    clusters = np.concatenate([np.repeat(np.arange(20), 3), 100 + np.repeat(np.arange(11), 3)])
    half = split_identities(groups, clusters, seed=4)
    for cluster in np.unique(clusters):
        assert len(set(half[clusters == cluster])) == 1
    assert half[groups == 0].sum() == 30
    assert half[groups == 1].sum() in {15, 18}
    np.testing.assert_array_equal(half, split_identities(groups, clusters, seed=4))
    order = np.random.default_rng(0).permutation(93)
    np.testing.assert_array_equal(half[order], split_identities(groups[order], clusters[order], seed=4))
    assert (half != split_identities(groups, clusters, seed=5)).any()
    assert len(split_identities(np.empty(0, int), np.empty(0, int), seed=0)) == 0


def test_discovery_without_a_split():
    tests = search([0.9, 0.05, -0.8, np.nan, 0.0])
    got = discover(tests, margin=0.1, q=0.1)
    assert got.m == 5
    assert got.found.tolist() == [True, False, True, False, False]
    np.testing.assert_allclose(got.p_bh, adjust(got.p, "bh").p)
    np.testing.assert_allclose(got.p_by, adjust(got.p, "by").p)
    # Two found among five: intervals of level 1 - 2 q / 5.
    half = stats.t.ppf(1 - 0.04 / 2, 30) * 0.1
    np.testing.assert_allclose(got.high[[0, 2]], [0.9 + half, -0.8 + half])
    assert np.isnan(got.low[[1, 3, 4]]).all()
    assert got.order[:2].tolist() == [0, 2]
    assert got.order[-1] == 3


def test_a_duplicate_changes_nothing():
    plain = discover(search([0.9, 0.05, 0.31]), margin=0.1)
    more = discover(search([0.9, 0.05, 0.31, 0.31], same_as=[0, 1, 2, 2]), margin=0.1)
    assert more.m == plain.m
    for name in ("p", "p_bh", "p_by", "found", "low", "high", "smallest"):
        got = getattr(more, name)
        np.testing.assert_array_equal(got[:3], getattr(plain, name))
        np.testing.assert_array_equal(got[3], got[2])


def test_false_coverage_rate_of_selected_intervals():
    rng = np.random.default_rng(0)
    missed = found = 0
    for _ in range(200):
        truth = np.where(rng.uniform(size=200) < 0.2, 0.4, 0.0)
        got = discover(search(truth + rng.normal(0, 0.1, size=200), df=1e6), margin=0.0, q=0.1)
        outside = (got.low > truth) | (got.high < truth)
        missed += (outside & got.found).sum()
        found += got.found.sum()
    assert missed / found < 0.1


def test_confirmation_uses_the_other_half_and_its_direction():
    first = search([0.9, 0.8, 0.0, -0.9])
    second = search([0.6, -0.6, 5.0, -0.7])
    got = discover_and_confirm(first, second, margin=0.1)
    assert got.discovered.tolist() == [True, True, False, True]
    # The second test changed its sign, the third was never discovered.
    assert got.confirmed.tolist() == [True, False, False, True]
    want = adjust([stats.t.sf(5, 30), stats.t.sf(-7, 30), stats.t.sf(6, 30)]).p
    np.testing.assert_allclose(got.p_holm[[0, 1, 3]], want, rtol=1e-12)
    assert np.isnan(got.p_holm[2])
    assert got.order[0] == 3


def test_confirmation_ignores_duplicates():
    got = discover_and_confirm(
        search([0.9, 0.9], same_as=[0, 0]), search([0.45, 0.45], same_as=[0, 0]), margin=0.1
    )
    assert got.p_holm[0] == got.p_holm[1] == got.p[0]


def test_the_split_keeps_the_family_error():
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(400):
        halves = [search(rng.normal(0.1, 0.1, size=50), df=1e6) for _ in range(2)]
        wrong += discover_and_confirm(*halves, margin=0.1, alpha=0.2).confirmed.any()
    assert wrong / 400 < 0.2


def test_all_bounds_hold_at_once():
    # 30 true effects among 200: with a bound of a single test each, most searches print one above the truth.
    rng = np.random.default_rng(1)
    truth = np.where(np.arange(200) < 30, 0.45, 0.0)
    above = single = 0
    for _ in range(400):
        first, second = (search(truth + rng.normal(0, 0.1, size=200), df=1e6) for _ in range(2))
        got = discover_and_confirm(first, second, margin=0.1, alpha=0.1)
        above += bool((got.smallest > truth).any())
        alone = smallest_effect(second.delta, second.se, second.df, 0.9)
        single += bool((alone > truth)[got.discovered].any())
    assert above / 400 < 0.1 + 2 * np.sqrt(0.1 * 0.9 / 400)
    assert single / 400 > 0.7


def test_the_bound_is_one_sided_in_the_direction_found():
    got = discover_and_confirm(search([0.9, 0.8, -0.9]), search([0.6, -0.6, -0.7]), margin=0.1, alpha=0.06)
    reach = stats.t.ppf(1 - 0.02, 30) * 0.1
    np.testing.assert_allclose(got.smallest, [0.6 - reach, 0.0, 0.7 - reach])


def test_skewed_tests_take_the_wider_bounds():
    deltas = np.random.default_rng(1).exponential(size=20) - 5.0
    cell = cell_estimates(np.zeros(20), deltas, np.arange(20), level=0.9)
    tests = SearchTests(cell.delta, cell.se, cell.df, cell.skew, np.zeros(1, dtype=np.int64))
    before = search([-9.0])
    got = discover_and_confirm(before, tests, margin=0.1, alpha=0.05)
    assert got.smallest[0] == pytest.approx(-cell.high[0])
    assert got.smallest[0] < smallest_effect(cell.delta, cell.se, cell.df, 0.9)[0]
    # At a margin equal to the bound, p is alpha.
    at = discover_and_confirm(before, tests, margin=float(-cell.high[0]), alpha=0.05)
    assert at.p[0] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: discover(search([1.0]), margin=0.1, q=1.0), "q must lie strictly between 0 and 1, got 1.0"),
        (lambda: discover(search([1.0]), margin=-0.1), "a margin must not be negative, got -0.1"),
        (
            lambda: discover_and_confirm(search([1.0, 1.0]), search([1.0, 1.0], same_as=[0, 0]), margin=0.1),
            "both halves must list the same tests",
        ),
    ],
)
def test_wrong_calls(call, text):
    with pytest.raises(ValueError, match=text):
        call()
