"""Identity means, ICC and the mixed model: against R, statsmodels and by hand."""

import numpy as np
import pytest
from statsmodels.regression.mixed_linear_model import MixedLM

from harness.stats.means import icc, identity_means, mixed_model
from tests.harness.stats import oracle


@pytest.mark.parametrize("dataset", oracle.CELL_DATASETS)
def test_identity_means_match_r(dataset):
    for _, pairs, ref in oracle.cell_references(dataset):
        want = ref.get("identity_mean_estimator")
        got = identity_means(pairs.source, pairs.transformed, pairs.clusters)
        assert got.n_identities[0] == ref["n_identities"]
        if not want or want.get("se") is None:
            assert got.status[0] == "undefined"
        elif want["se"] < 1e-15:
            assert (got.status[0], got.se[0]) == ("zero_variance", 0.0)
            assert np.isnan(got.low[0])
        else:
            oracle.assert_close(got.delta[0], want["mean"])
            oracle.assert_close(got.se[0], want["se"])
            oracle.assert_close(got.df[0], want["df"])
            # R has no Hall bounds: those of skewed means may only be wider, on one side.
            room = 1e-9 * want["half_width"]
            assert got.low[0] <= want["lo"] + room
            assert got.high[0] >= want["hi"] - room
            assert got.low[0] >= want["lo"] - room or got.high[0] <= want["hi"] + room


@pytest.mark.parametrize("dataset", oracle.CELL_DATASETS)
def test_icc_matches_r(dataset):
    for _, pairs, ref in oracle.cell_references(dataset):
        want = ref.get("cluster", {}).get("icc_anova")
        got = icc(pairs.source, pairs.transformed, pairs.clusters)[0]
        if want is None:
            assert np.isnan(got)
        else:
            oracle.assert_close(got, want, absolute=1e-12)


@pytest.mark.parametrize("dataset", oracle.CELL_DATASETS)
def test_mixed_model_matches_lme4(dataset):
    for _, pairs, ref in oracle.cell_references(dataset):
        want = ref.get("mixed_model")
        if want is None or want.get("mean") is None:
            continue
        got = mixed_model(pairs.source, pairs.transformed, pairs.clusters)
        for name in ("mean", "se", "icc"):
            oracle.assert_close(getattr(got, name), want[name], rel=1e-4, absolute=1e-6)


def test_mixed_model_matches_statsmodels():
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(30), rng.integers(1, 7, size=30))
    delta = 0.3 + rng.normal(size=30)[clusters] + rng.normal(size=len(clusters))
    fit = MixedLM(delta, np.ones((len(delta), 1)), groups=clusters).fit(reml=True)
    got = mixed_model(np.zeros_like(delta), delta, clusters)
    assert got.mean == pytest.approx(fit.fe_params[0], rel=1e-5)
    assert got.icc == pytest.approx(fit.cov_re[0, 0] / (fit.cov_re[0, 0] + fit.scale), rel=1e-4)


def test_equal_sizes_make_the_estimands_agree():
    rng = np.random.default_rng(1)
    clusters = np.repeat(np.arange(12), 3)
    person = rng.normal(size=12)[clusters] * 3
    delta = person + rng.normal(size=36)
    means = identity_means(np.zeros(36), delta, clusters)
    fit = mixed_model(np.zeros(36), delta, clusters)
    assert means.delta[0] == pytest.approx(delta.mean(), rel=1e-12)
    assert fit.mean == pytest.approx(delta.mean(), rel=1e-9)
    # Balanced data: REML and the analysis of variance give one ICC.
    assert fit.icc == pytest.approx(icc(np.zeros(36), delta, clusters)[0], rel=1e-5)


def test_no_correlation_ends_at_the_boundary():
    clusters = np.repeat(np.arange(6), 2)
    delta = np.tile([1.0, -1.0], 6) + np.repeat(np.arange(6), 2) * 0.01
    fit = mixed_model(np.zeros(12), delta, clusters)
    assert fit.icc == 0.0
    assert icc(np.zeros(12), delta, clusters)[0] < 0


@pytest.mark.parametrize(
    ("delta", "clusters"),
    [([], []), ([1.0, 2.0], [0, 0]), ([1.0, 2.0], [0, 1]), ([1.0, 1.0, 2.0, 2.0], [0, 0, 1, 1])],
)
def test_mixed_model_without_answer(delta, clusters):
    fit = mixed_model(np.zeros(len(delta)), delta, np.array(clusters, dtype=int))
    assert fit.status == "undefined"
    assert np.isnan(fit.se)


def test_mixed_model_takes_one_concept():
    with pytest.raises(ValueError, match="takes one concept, got 2"):
        mixed_model(np.zeros((4, 2)), np.ones((4, 2)), np.arange(4))
