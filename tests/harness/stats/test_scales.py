"""Scale sensitivity."""

import numpy as np
import pytest
from scipy import special, stats

from harness.stats.scales import scale_sensitivity


def test_probabilities_go_to_the_logit_scale():
    rng = np.random.default_rng(0)
    source, transformed = rng.uniform(0.1, 0.9, size=(2, 40))
    found = scale_sensitivity(source, transformed, np.arange(40))
    assert found.scale[0] == "logit"
    assert (found.floor[0], found.ceiling[0]) == (0.0, 1.0)
    assert found.other.delta[0] == pytest.approx((special.logit(transformed) - special.logit(source)).mean())


def test_other_scores_go_to_ranks():
    source, transformed = np.array([[3.0, 7.0, np.nan, 7.0], [4.0, 9.0, 1.0, -2.0]])
    found = scale_sensitivity(source, transformed, np.arange(4))
    ranks = stats.rankdata([3, 7, 7, 4, 9, -2]) / 6
    assert found.scale[0] == "rank"
    assert found.other.delta[0] == pytest.approx((ranks[3:] - ranks[:3]).mean())
    assert (found.floor[0], found.ceiling[0]) == (-2.0, 9.0)


def test_shares_at_the_ends():
    source, transformed = np.array([0.0, 0.0, 0.5, 1.0]), np.array([0.0, 1.0, 1.0, 1.0])
    found = scale_sensitivity(source, transformed, np.arange(4))
    assert found.floor_share[0] == 3 / 8
    assert found.ceiling_share[0] == 4 / 8
    assert found.scale[0] == "rank"


def test_a_sign_that_depends_on_the_scale():
    # One big step down near the middle against many small steps up near the floor.
    source = np.concatenate([np.full(20, 0.001), np.full(4, 0.8)]) * np.linspace(1, 1.1, 24)
    transformed = np.concatenate([np.full(20, 0.01), np.full(4, 0.4)]) * np.linspace(1.1, 1, 24)
    # At this level neither scale decides anything, so only the sign speaks.
    found = scale_sensitivity(source, transformed, np.arange(24), level=1 - 1e-12)
    assert not (found.other.p < 1e-12).any()
    assert found.scale_dependent[0]
    assert found.other.delta[0] > 0 > (transformed - source).mean()


def test_a_decision_that_depends_on_the_scale():
    rng = np.random.default_rng(1)
    source = rng.uniform(0.4, 0.6, size=30)
    transformed = source + rng.normal(0.05, 0.02, size=30)
    same = scale_sensitivity(source, transformed, np.arange(30), level=0.95)
    assert not same.scale_dependent[0]
    source[0], transformed[0] = 1e-9, 0.2
    assert scale_sensitivity(source, transformed, np.arange(30), level=0.999).scale_dependent[0]


def test_no_pairs():
    found = scale_sensitivity(np.array([np.nan]), np.array([0.5]), np.arange(1))
    assert np.isnan(found.floor_share[0])
    assert found.other.status[0] == "undefined"
    assert not found.scale_dependent[0]
