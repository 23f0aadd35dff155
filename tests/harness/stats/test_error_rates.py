"""Error rates against R's reference numbers (R01), and their edges by hand."""

import numpy as np
import pytest

from harness.stats import equitability, error_rates
from harness.stats.comparisons import N_BINS, bin_edges
from tests.harness.stats.oracle import assert_close, read_rows, reference

NAME = "R01_recogniser_scores"


def scores(kind, groups=None):
    rows = read_rows(NAME)
    return np.array(
        [float(r["score"]) for r in rows if r["kind"] == kind and (groups is None or r["group"] in groups)]
    )


def check_rate(got, want):
    assert (got.errors, got.n) == (want["errors"], want["n"])
    assert_close(got.rate, want["rate"])
    for name in ("wilson", "clopper_pearson"):
        for end, expected in zip(getattr(got, name), want[name], strict=True):
            assert_close(end, expected)


@pytest.mark.parametrize("threshold", ["0.30", "0.40", "0.50"])
def test_rates_at_a_threshold_with_ties(threshold):
    ref = reference(NAME)
    want, t, level = ref["at_threshold"][threshold], float(threshold), ref["conf_level"]
    for group in want["FMR"]:
        check_rate(error_rates.fmr(scores("impostor", [group]), t, level), want["FMR"][group])
        check_rate(error_rates.fnmr(scores("genuine", [group]), t, level), want["FNMR"][group])
    check_rate(error_rates.fmr(scores("impostor"), t, level), want["pooled_FMR"])
    check_rate(error_rates.fnmr(scores("genuine"), t, level), want["pooled_FNMR"])
    ties = sum(int((scores(kind) == t).sum()) for kind in ("genuine", "impostor"))
    assert ties == want["ties_at_threshold"] > 0


def test_equal_error_rates_in_both_ways():
    ref = reference(NAME)
    cases = [([group], want) for group, want in ref["eer_by_group"].items()] + [(None, ref["eer_pooled"])]
    for groups, want in cases:
        rates = error_rates.curve(scores("genuine", groups), scores("impostor", groups))
        got = error_rates.equal_error_rate(rates)
        assert_close(got.threshold, want["nearest_threshold"])
        assert_close(got.average, want["nearest_average"])
        assert_close(got.interpolated, want["interpolated"])


def test_threshold_for_a_target_fmr():
    impostor = np.sort(scores("impostor"))[::-1]
    for target, want in reference(NAME)["threshold_for_target_FMR"].items():
        threshold, rate = error_rates.threshold_at_fmr(impostor, len(impostor), float(target), "at_most")
        assert_close(rate, want["FMR"])
        assert_close(error_rates.fmr(impostor, threshold).rate, want["FMR"])
        if want["can_be_resolved"]:
            assert_close(threshold, want["threshold"])
            assert_close(error_rates.fnmr(scores("genuine"), threshold).rate, want["FNMR"])
        else:
            # R takes the next score of any kind; ours is the next number above the highest impostor.
            assert impostor[0] < threshold <= want["threshold"]


def measures_at(threshold, groups):
    want = reference(NAME)["at_threshold"][threshold]
    rates = [np.array([want[m][g]["rate"] for g in groups], dtype=float) for m in ("FMR", "FNMR")]
    return {name: float(value) for name, value in equitability.measures(*rates).items()}


@pytest.mark.parametrize("threshold", ["0.30", "0.40", "0.50"])
@pytest.mark.parametrize("left_out", [(), ("WM",)])
def test_equitability(threshold, left_out):
    ref = reference(NAME)["at_threshold"][threshold]
    got = measures_at(threshold, [group for group in ref["FMR"] if group not in left_out])
    want = ref["excluding_WM"] if left_out else ref
    names = {
        "gini_FMR": "gini_fmr",
        "gini_FNMR": "gini_fnmr",
        "GARBE_alpha_0.5": "garbe",
        "FDR_alpha_0.5": "fdr",
        "inequity_rate_alpha_0.5": "inequity_rate",
        "max_over_geomean_FMR": "max_over_geomean_fmr",
        "max_min_ratio_FMR": "max_over_min_fmr",
    }
    for theirs, ours in names.items():
        expected = want[theirs]
        value = expected["value"] if isinstance(expected, dict) else expected
        if value is None:
            assert not np.isfinite(got[ours]), ours
        else:
            assert_close(got[ours], value)
    if not left_out:
        for metric in ("FMR", "FNMR"):
            rates = np.array([ref[metric][group]["rate"] for group in ref[metric]], dtype=float)
            other = np.full_like(rates, 0.5)
            pair = (rates, other) if metric == "FMR" else (other, rates)
            found = {m.name: m for m in equitability.with_null(*pair, np.full((3, 5), 0.5))}
            ratio = found[f"max_over_min_{metric.lower()}"]
            assert ratio.status == ref[f"max_min_ratio_{metric}"]["status"]
            assert np.isnan(ratio.value)
            assert_close(found[f"largest_difference_{metric.lower()}"].value, ref[f"differential_{metric}"])


def test_the_nearest_threshold_may_exceed_the_target():
    impostor = np.array([0.9, 0.8, 0.8, 0.8, *np.linspace(0.5, 0.1, 16)])
    assert error_rates.threshold_at_fmr(impostor, 20, 0.19) == (0.8, 0.2)
    assert error_rates.threshold_at_fmr(impostor, 20, 0.19, "at_most") == (0.9, 0.05)
    assert error_rates.threshold_at_fmr(impostor, 20, 0.1) == (0.9, 0.05)
    assert error_rates.threshold_at_fmr(impostor[:5], 20, 0.2) == (0.8, 0.2), "the highest scores suffice"
    whole = np.arange(15.0, 0.0, -1.0)
    for errors in range(14):
        target = (errors + 0.5) / 15
        assert error_rates.threshold_at_fmr(whole, 15, target)[1] == errors / 15, "halfway: the lower FMR"
    threshold, rate = error_rates.threshold_at_fmr(impostor, 20, 0.01)
    assert threshold > 0.9
    assert rate == 0


@pytest.mark.parametrize(
    ("kept", "n", "target", "words"),
    [
        (4, 20, 0.0, "must lie in"),
        (4, 20, 1.0, "must lie in"),
        (4, 20, 0.2, "needs the 5 highest scores, got 4"),
        (0, 20, 0.1, "got 0"),
        (4, 3, 0.1, "need 1 to 3"),
    ],
)
def test_thresholds_that_the_scores_cannot_give(kept, n, target, words):
    with pytest.raises(ValueError, match=words):
        error_rates.threshold_at_fmr(np.linspace(0.9, 0.5, kept), n, target)


def test_identities_that_a_target_needs():
    """30 expected errors among G (G - 1) / 2 pairs of people: about 250 for .001."""
    for target in (0.001, 0.01, 0.1, 0.5):
        people = error_rates.identities_for_fmr(target)
        assert people * (people - 1) / 2 * target >= 30 * (1 - 1e-12)
        assert (people - 1) * (people - 2) / 2 * target < 30
        assert error_rates.lowest_fmr(people) <= target * (1 + 1e-12)
    assert error_rates.identities_for_fmr(0.001) == 246
    assert error_rates.lowest_fmr(8) is None
    with pytest.raises(ValueError, match="in \\(0, 1\\)"):
        error_rates.identities_for_fmr(1.5)


def test_failed_comparisons_count_as_non_matches():
    genuine = np.array([0.9, 0.8, -np.inf, 0.1])
    assert error_rates.fnmr(genuine, 0.5).errors == 2
    assert error_rates.fmr(np.array([0.9, -np.inf]), 0.5).rate == 0.5
    with pytest.raises(ValueError, match="one row of numbers"):
        error_rates.fnmr(np.array([0.9, np.nan]), 0.5)
    with pytest.raises(ValueError, match="one row of numbers"):
        error_rates.fmr(np.array([]), 0.5)


def test_det_points_are_points_of_the_curve():
    rng = np.random.default_rng(0)
    genuine, impostor = rng.normal(0.6, 0.1, 500), rng.normal(0.2, 0.1, 4000)
    rates = error_rates.curve(genuine, impostor)
    points = error_rates.det_points(rates, np.array([0.1, 0.01, 0.001, 0.00001]))
    assert (np.diff(points.threshold) > 0).all()
    for threshold, far, near in zip(points.threshold, points.fmr, points.fnmr, strict=True):
        assert far == error_rates.fmr(impostor, threshold).rate
        assert near == error_rates.fnmr(genuine, threshold).rate
    assert points.fmr[0] <= 0.1 < points.fmr[0] + 2 / 4000


def test_histograms_give_the_same_equal_error_rate_to_a_bin():
    rng = np.random.default_rng(1)
    genuine, impostor = rng.normal(0.5, 0.1, 2000), rng.normal(0.2, 0.1, 9000)
    exact = error_rates.equal_error_rate(error_rates.curve(genuine, impostor))
    counts = [np.histogram(x, bins=np.append(bin_edges(), 1.0))[0] for x in (genuine, impostor)]
    binned = error_rates.equal_error_rate(error_rates.curve_from_counts(bin_edges(), *counts))
    assert binned.threshold == pytest.approx(exact.threshold, abs=2 / N_BINS)
    assert binned.interpolated == pytest.approx(exact.interpolated, abs=2e-3)
    with pytest.raises(ValueError, match="both kinds need a comparison"):
        error_rates.curve_from_counts(bin_edges(), counts[0], counts[1] * 0)
