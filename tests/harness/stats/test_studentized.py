"""The studentized range against scipy and R."""

import numpy as np
import pytest
from scipy import stats

from harness.stats import studentized
from tests.harness.stats import oracle

DATASETS = ["D02_zero_variance", "D04_cluster_icc50", "D06_cluster_edge", "D11_eight_unbalanced"]


def games_howell_rows(dataset):
    table = oracle.reference(dataset)["disparity"]["sunglasses|sunglass"]
    k = len(table["groups"])
    return [(k, row) for row in table["pairwise_welch"] if (row.get("games_howell") or {}).get("crit")]


@pytest.mark.parametrize("dataset", DATASETS)
def test_tail_matches_r(dataset):
    for k, row in games_howell_rows(dataset):
        q = abs(row["t"]) * np.sqrt(2)
        assert studentized.tail(q, k, row["df"]) == pytest.approx(row["games_howell"]["p"], abs=1e-6)


@pytest.mark.parametrize("dataset", DATASETS)
def test_quantile_matches_r_as_far_as_r_is_right(dataset):
    # R's qtukey stops its secant at steps below 1e-4 and its ptukey loses digits at few degrees of freedom:
    # at k = 8 and df = 5.31 it is off by 7.5e-5, where scipy and this module agree to 1e-9 (below).
    for k, row in games_howell_rows(dataset):
        got = float(studentized.quantile(0.999, k, row["df"])) / np.sqrt(2)
        oracle.assert_close(got, row["games_howell"]["crit"], rel=1e-7 if row["df"] > 8 else 1e-4)


def test_quantile_matches_scipy_where_r_is_off():
    for k, df in ((8, 5.311995811389328), (8, 7.9161061014622), (4, 7.0)):
        oracle.assert_close(
            float(studentized.quantile(0.999, k, df)), stats.studentized_range.ppf(0.999, k, df)
        )


@pytest.mark.parametrize("level", [0.9, 0.999])
@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("df", [2.0, 31.0])
def test_quantile_matches_scipy(level, k, df):
    want = stats.studentized_range.ppf(level, k, df)
    oracle.assert_close(float(studentized.quantile(level, k, df)), want)


@pytest.mark.parametrize("k", [3, 8, 20])
def test_quantile_solves_the_tail(k):
    for level in (0.5, 0.95, 0.999, 0.99999):
        for df in (2.0, 3.7, 12.0, 250.0, 1e5, np.inf):
            q = float(studentized.quantile(level, k, df))
            assert studentized.tail(q, k, df) == pytest.approx(1 - level, rel=1e-9)


def test_two_groups_are_a_t_test():
    assert studentized.tail(3.0 * np.sqrt(2), 2, 7.0) == pytest.approx(2 * stats.t.sf(3.0, 7), rel=1e-12)


def test_no_quantile_below_two_degrees_of_freedom():
    got = studentized.quantile(0.95, 4, [1.9, np.nan, 2.0])
    assert np.isnan(got[:2]).all()
    assert got[2] > 0


def test_range_tail_ends():
    np.testing.assert_allclose(studentized.range_tail(np.array([0.0, 60.0]), 5), [1.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("call", [(1, 5.0, 1.0), (3, 0.0, 1.0), (3, 5.0, -1.0)])
def test_wrong_arguments(call):
    k, df, q = call
    with pytest.raises(ValueError, match="needs k >= 2"):
        studentized.tail(q, k, df)
    with pytest.raises(ValueError, match="needs k >= 2 and a level"):
        studentized.quantile(1.0 if k > 1 else 0.9, k, df)


def test_p_values_match_scipy_and_keep_their_digits():
    rng = np.random.default_rng(2)
    for k in (2, 3, 8):
        q, df = rng.uniform(0.1, 8.0, 12), 10 ** rng.uniform(0.31, 3.0, 12)
        got = studentized.p_values(q, k, df)
        np.testing.assert_allclose(got, stats.studentized_range.sf(q, k, df), rtol=1e-6)
    # Far out scipy and R give 0: there the pairs of groups hardly ever exceed it together.
    q, df = np.array([40.0, 70.0]), np.array([60.0, 400.0])
    bound = 8 * 7 * stats.t.sf(q / np.sqrt(2), df)
    got = studentized.p_values(q, 8, df)
    assert (got <= bound).all()
    assert (got > 0.9 * bound).all()


def test_p_values_are_undefined_below_two_degrees_of_freedom():
    assert np.isnan(studentized.p_values([3.0, np.nan, 3.0], 4, [1.9, 8.0, np.nan])).all()
    with pytest.raises(ValueError, match="k >= 2"):
        studentized.p_values(1.0, 1, 5.0)
