"""Filters: agreement of kept and all, Lee's bounds, efficacy bounds."""

import dataclasses
import math

import numpy as np
import pytest

from harness.stats.contrasts import pairwise
from harness.stats.groups import GroupMeans
from harness.stats.intervals import cell_estimates
from harness.stats.selection import (
    EfficacyBounds,
    depends_on_filter,
    difference_of_bounds,
    efficacy_bounds,
    lee_bounds,
)


def contrast(shift, n=40, seed=0):
    rng = np.random.default_rng(seed)
    cells = [cell_estimates(np.zeros(n), rng.normal(loc, 1.0, size=n), np.arange(n)) for loc in (0.0, shift)]
    return pairwise(GroupMeans.stack(cells))


def test_agreement_does_not_depend_on_the_filter():
    assert not depends_on_filter(contrast(3.0), contrast(3.5, seed=1), alpha=0.001)[0, 0]


def test_sign_and_decision_depend_on_the_filter():
    assert depends_on_filter(contrast(2.0), contrast(-2.0), alpha=0.001)[0, 0]
    assert depends_on_filter(contrast(2.0), contrast(0.1), alpha=0.001)[0, 0]


def test_a_missing_difference_is_not_a_disagreement():
    empty = pairwise(GroupMeans.stack([cell_estimates([np.nan], [0.0], [1])] * 2))
    assert not depends_on_filter(contrast(3.0), empty, alpha=0.001)[0, 0]


def test_only_the_same_contrasts_can_be_compared():
    one = contrast(1.0)
    with pytest.raises(ValueError, match="must list the same contrasts"):
        depends_on_filter(one, dataclasses.replace(one, a=one.b), alpha=0.1)


def test_lee_trims_the_surplus_of_the_milder_filter():
    # b keeps 4 of 4, a 2 of 4: half of b may be surplus.
    got = lee_bounds([1.0, 3.0], 4, [0.0, 1.0, 2.0, 9.0], 4)
    assert got.trimmed == 0.5
    assert (got.low, got.high) == (0.5 - 2.0, 5.5 - 2.0)
    other = lee_bounds([0.0, 1.0, 2.0, 9.0], 4, [1.0, 3.0], 4)
    assert (other.low, other.high) == (2.0 - 5.5, 2.0 - 0.5)


def test_lee_weighs_the_pair_at_the_cut():
    # a keeps 3 of 4, b 4 of 4: a quarter of one group of four is exactly one pair; of 2 of 2 it is half one.
    got = lee_bounds([0.0, 0.0, 0.0], 4, [1.0, 2.0], 2)
    assert got.trimmed == 0.25
    assert got.low == pytest.approx((1.0 + 0.5 * 2.0) / 1.5)
    assert got.high == pytest.approx((2.0 + 0.5 * 1.0) / 1.5)


def test_lee_is_a_point_when_shares_are_equal():
    got = lee_bounds([1.0, 2.0, np.nan], 4, [4.0], 2)
    assert got.low == got.high == 2.5
    flipped = lee_bounds([4.0], 2, [1.0, 2.0], 4)
    assert flipped.low == -2.5


def test_lee_bounds_hold_the_truth_under_monotone_selection():
    rng = np.random.default_rng(0)
    hard = rng.uniform(size=200_000)
    a, b = hard + rng.normal(0, 0.1, size=hard.size), hard + 0.5 + rng.normal(0, 0.1, size=hard.size)
    got = lee_bounds(a[hard < 0.5], a.size, b[hard < 0.8], b.size)
    assert got.low < 0.5 < got.high
    # The surplus pairs are the hardest ones here, so the truth is the lower bound.
    assert got.low == pytest.approx(0.5, abs=0.06)


def test_lee_without_pairs():
    got = lee_bounds([], 0, [1.0], 2)
    assert got.status == "undefined"
    assert math.isnan(got.low)
    assert math.isnan(got.keep_a)
    with pytest.raises(ValueError, match="must be among the candidates, got 2 of 1"):
        lee_bounds([1.0, 2.0], 1, [1.0], 1)


def test_efficacy_bounds_by_hand():
    # .3 = e d + (1 - e) i: e = .6, i = 0 gives .5; e = 1 gives .3; i = .1 and e = .6 give (.3 - .04) / .6.
    got = efficacy_bounds((0.3, 0.3), (0.6, 1.0), (0.0, 0.1))
    assert got.low == pytest.approx(0.3)
    assert got.high == pytest.approx(0.5)


def test_efficacy_bounds_hold_every_inner_solution():
    rng = np.random.default_rng(1)
    for _ in range(200):
        delta, invalid = np.sort(rng.normal(size=(2, 2)), axis=1)
        e = np.sort(rng.uniform(0.05, 1, size=2))
        got = efficacy_bounds(tuple(delta), tuple(e), tuple(invalid))
        d, i, share = rng.uniform(*delta), rng.uniform(*invalid), rng.uniform(*e)
        assert got.low - 1e-12 <= (d - (1 - share) * i) / share <= got.high + 1e-12


def test_efficacy_that_may_be_zero_bounds_nothing():
    nothing = efficacy_bounds((0.1, 0.2), (0.0, 0.5), (0.0, 0.0))
    assert nothing.status == "undefined"
    assert difference_of_bounds(nothing, EfficacyBounds(0.0, 1.0, "ok")).status == "undefined"


def test_difference_of_bounds():
    got = difference_of_bounds(EfficacyBounds(0.1, 0.3, "ok"), EfficacyBounds(0.2, 0.5, "ok"))
    assert (got.low, got.high) == (pytest.approx(-0.1), pytest.approx(0.4))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (((0.2, 0.1), (0.5, 1.0), (0.0, 0.0)), "delta must be a finite interval"),
        (((0.1, 0.2), (0.5, 1.5), (0.0, 0.0)), r"efficacy must lie in \[0, 1\]"),
        (((0.1, 0.2), (0.5, 1.0), (0.0, math.inf)), "invalid must be a finite interval"),
    ],
)
def test_wrong_intervals(call, text):
    with pytest.raises(ValueError, match=text):
        efficacy_bounds(*call)
