"""Bounds of skewed cells: against Hall's cubic worked by root finding, by simulation, and with their p."""

import numpy as np
import pytest
from scipy import optimize, stats

from harness.stats import hall
from harness.stats.intervals import cell_estimates


def by_root_finding(deltas: np.ndarray, level: float) -> tuple[float, float]:
    """Wider of Student's bounds and Hall's, from the formula in n and the skewness."""
    n, mean, gamma = len(deltas), deltas.mean(), stats.skew(deltas)
    se = deltas.std(ddof=1) / np.sqrt(n)
    quantile = stats.t.ppf(0.5 + level / 2, n - 1)

    def cubic(mu: float) -> float:
        t = (mean - mu) / se
        return t + gamma * t**2 / (3 * np.sqrt(n)) + gamma**2 * t**3 / (27 * n) + gamma / (6 * np.sqrt(n))

    reach = 1e4 * se
    low = optimize.brentq(lambda mu: cubic(mu) - quantile, mean - reach, mean + reach, xtol=1e-14)
    high = optimize.brentq(lambda mu: cubic(mu) + quantile, mean - reach, mean + reach, xtol=1e-14)
    return min(low, mean - quantile * se), max(high, mean + quantile * se)


def skewed_deltas(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).exponential(size=n) - 0.7


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.999])
@pytest.mark.parametrize("seed", range(4))
def test_a_skewed_cell_has_the_wider_of_both_bounds_on_each_side(sign, level, seed):
    deltas = sign * skewed_deltas(20, seed)
    cell = cell_estimates(np.zeros(20), deltas, np.arange(20), level=level)
    assert "skewed" in cell.flags(0)
    assert cell.interval_method(0) == "cluster, each bound the wider of t and Hall 1992"
    assert (cell.low[0], cell.high[0]) == pytest.approx(by_root_finding(deltas, level), rel=1e-8)
    assert cell.high[0] + cell.low[0] != pytest.approx(2 * cell.delta[0], rel=1e-3)


def test_three_sums_worked_by_hand():
    # Deltas -1, -1, 2: mean 0, squares 6, cubes 6, so k = 6 / 6^1.5 = .408 and se = 1 (variance 3 over 3).
    # At a quantile of 3: y = 3 - .068, c^3 = 1 + .408 y = 2.197, c = 1.3, T = 3 y / (c^2 + c + 1) = 2.205.
    skew = np.array([6 / 6**1.5])
    assert hall.untransformed(np.array([3.0]), skew)[0] == pytest.approx(2.2045, abs=1e-4)
    assert hall.transformed(np.array([2.2045]), skew)[0] == pytest.approx(3.0, abs=1e-3)


def test_p_and_bounds_decide_alike_at_every_level():
    rng = np.random.default_rng(3)
    deltas = rng.exponential(size=(12, 4_000)) - rng.uniform(0.2, 2.5, size=4_000)
    for level in (0.5, 0.9, 0.99, 0.999):
        cell = cell_estimates(np.zeros_like(deltas), deltas, np.arange(12), level=level)
        outside = (cell.low > 0) | (cell.high < 0)
        assert cell.skewed.any()
        assert not cell.skewed.all()
        np.testing.assert_array_equal(cell.p < 1 - level, outside)


def test_the_bounds_of_skewed_cells_miss_far_less():
    # Measured elsewhere at G = 20 and a nominal .1 %: exponential 1.2 % by t, .26 % by Hall.
    deltas = np.random.default_rng(4).exponential(size=(20, 60_000)) - 1.0
    cell = cell_estimates(np.zeros_like(deltas), deltas, np.arange(20))
    by_t = stats.t.ppf(0.9995, 19) * cell.se
    assert np.mean(np.abs(cell.delta) > by_t) > 0.01
    assert np.mean((cell.low > 0) | (cell.high < 0)) < 0.0042


def test_only_clustered_cells_are_transformed():
    deltas = skewed_deltas(20, 0)
    paper = cell_estimates(np.zeros(20), deltas, np.arange(20), method="t")
    half = stats.t.ppf(0.9995, 19) * deltas.std(ddof=1) / np.sqrt(20)
    assert (paper.low[0], paper.high[0]) == pytest.approx((deltas.mean() - half, deltas.mean() + half))
    assert paper.interval_method(0) == "t"
    assert paper.flags(0) == ["skewed"]


def test_extreme_statistics_stay_numbers():
    t = np.array([-1e200, -3.0, 0.0, 3.0, 1e200])
    for skew in (0.0, 0.3, -0.3):
        assert np.isfinite(hall.transformed(t, np.full(5, skew))).all()
        p = hall.p_two_sided(t, np.ones(5), np.full(5, 9.0), np.full(5, skew))
        assert ((p >= 0) & (p <= 1)).all()
