"""Adjusted p values against R, statsmodels and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from harness.stats.families import adjust
from tests.harness.stats import oracle

STATSMODELS = {"holm": "holm", "bonferroni": "bonferroni", "bh": "fdr_bh", "by": "fdr_by"}


@pytest.mark.parametrize("method", sorted(STATSMODELS))
@settings(max_examples=40, deadline=None)
@given(p=st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=30))
def test_matches_statsmodels(method, p):
    want = multipletests(p, method=STATSMODELS[method])[1]
    np.testing.assert_allclose(adjust(p, method).p, want, rtol=1e-12)


@pytest.mark.parametrize("dataset", ["D02_zero_variance", "D06_cluster_edge", "D11_eight_unbalanced"])
def test_defined_only_matches_r(dataset):
    rows = oracle.reference(dataset)["disparity"]["sunglasses|sunglass"]["pairwise_welch"]
    raw = [np.nan if row["p"] is None else row["p"] for row in rows]
    for method in ("holm", "bh", "bonferroni"):
        family = adjust(raw, method, undefined="leave_out")
        for got, row in zip(family.p, rows, strict=True):
            want = row[f"p_{method}"]
            assert np.isnan(got) if want is None else got == pytest.approx(want, rel=1e-9)


def test_an_undefined_test_counts_as_one():
    family = adjust([0.01, np.nan, 0.03], "holm")
    assert family.m == 3
    assert family.n_undefined == 1
    np.testing.assert_allclose(family.p, [0.03, np.nan, 0.06])
    np.testing.assert_allclose(adjust([0.01, np.nan, 0.03], undefined="leave_out").p, [0.02, np.nan, 0.03])


@pytest.mark.parametrize("method", sorted(STATSMODELS))
def test_planned_tests_count_as_ones_at_the_end(method):
    want = multipletests([0.001, 0.02, 1.0, 1.0, 1.0], method=STATSMODELS[method])[1][:2]
    np.testing.assert_allclose(adjust([0.001, 0.02], method, planned=5).p, want, rtol=1e-12)


def test_shape_is_kept_and_an_empty_family_is_fine():
    assert adjust(np.full((2, 3), 0.5)).p.shape == (2, 3)
    assert adjust([]).m == 0


@pytest.mark.parametrize(
    ("p", "settings", "text"),
    [
        ([1.5], {}, r"must lie in \[0, 1\]"),
        ([0.5], {"adjustment": "sidak"}, "unknown adjustment 'sidak'"),
        ([0.5], {"undefined": "drop"}, "unknown adjustment 'holm' or treatment of undefined tests 'drop'"),
        ([0.5, 0.1], {"planned": 1}, "at least the 2 given tests"),
        ([0.5], {"planned": 3, "undefined": "leave_out"}, "all counted"),
    ],
)
def test_wrong_calls(p, settings, text):
    with pytest.raises(ValueError, match=text):
        adjust(p, **settings)
