"""Intervals that respect repeated people, against package cimat and by hand.

`data/cimat.json` is made by `cimat_reference.py`, whose docstring has the commands (cimat needs numpy 1).
"""

import json
from pathlib import Path

import numpy as np
import pytest

from harness.stats import resampling
from harness.stats.comparisons import comparisons
from harness.stats.proportions import wilson
from tests.harness.stats.cimat_reference import DRAWS, LEVEL, PEOPLE, TARGETS, THRESHOLDS, embeddings

CIMAT = json.loads((Path(__file__).parent / "data" / "cimat.json").read_text())


def generated():
    """All genuine and impostor comparisons of the generated set."""
    vectors, people = embeddings()
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    one, two = np.triu_indices(len(people), 1)
    scores, same = (units @ units.T)[one, two], people[one] == people[two]
    sizes = np.bincount(people).astype(float)
    own = (scores[same], people[one][same], people[two][same])
    other = (scores[~same], people[one][~same], people[two][~same])
    return {
        "fnmr": comparisons("within", *own, sizes * (sizes - 1) / 2),
        "fmr": comparisons("among", *other, sizes),
    }


@pytest.mark.parametrize("metric", ["fnmr", "fmr"])
@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_variance_and_interval_are_cimats(metric, threshold):
    some, want = generated()[metric], CIMAT["fixed_threshold"][str(threshold)]
    rate = some.errors(threshold) / some.n
    fixed = resampling.plug_in(some, threshold)
    assert rate == pytest.approx(want[metric], rel=1e-12)
    assert fixed.variance == pytest.approx(want["plug_in_variance"][metric], rel=1e-9)
    size = rate * (1 - rate) / fixed.variance
    assert wilson(rate * size, size, LEVEL) == pytest.approx(want["interval"][metric], rel=1e-9)
    selected = resampling.double_or_nothing(PEOPLE, DRAWS, 0)
    draws = resampling.replicate_rates(some, selected, np.full(DRAWS, threshold))
    # The relative standard error of each variance is sqrt(2 / draws) = 2.2 %; theirs has it too.
    room = 3.5 * np.sqrt(2) * np.sqrt(2 / DRAWS)
    assert draws.var() == pytest.approx(want["bootstrap_variance"][metric], rel=room)


def test_rates_at_a_reestimated_threshold_are_cimats():
    """Quantiles of TMR at a target FMR; cimat interpolates between thresholds, so a step is the tolerance."""
    every = generated()
    selected = resampling.double_or_nothing(PEOPLE, DRAWS, 0)
    totals = resampling.replicate_totals(every["fmr"], selected)
    for target in TARGETS:
        thresholds = resampling.replicate_thresholds(every["fmr"], totals, selected, target, -1.0)
        tmr = 1 - resampling.replicate_rates(every["fnmr"], selected, thresholds)
        assert np.percentile(tmr, [2.5, 97.5]) == pytest.approx(CIMAT["tmr_at_fmr"][str(target)], abs=0.015)


def test_replicates_are_rates_among_the_chosen_people():
    every = generated()
    selected = resampling.double_or_nothing(PEOPLE, 5, 1)
    thresholds = np.array([0.3, 0.5, 0.6, 0.7, 0.9])
    for some in every.values():
        got = resampling.replicate_rates(some, selected, thresholds)
        for draw, threshold in enumerate(thresholds):
            chosen = selected[:, draw].astype(bool)
            scores = some.scores[chosen[some.first] & chosen[some.second]]
            wrong = scores < threshold if some.design == "within" else scores >= threshold
            assert got[draw] == pytest.approx(wrong.mean(), rel=1e-12)


def between():
    rng = np.random.default_rng(5)
    probes, references = np.repeat(np.arange(8), 2), np.arange(4, 20)
    one, two = (x.ravel() for x in np.meshgrid(probes, references, indexing="ij"))
    kept = one != two
    left, right = (np.bincount(x, minlength=20).astype(float) for x in (probes, references))
    return comparisons("between", rng.random(kept.sum()), one[kept], two[kept], left, right)


def test_plug_in_of_probes_against_references_is_the_double_sum():
    some, threshold = between(), 0.8
    assert some.n == len(some.scores)
    residual = (some.scores >= threshold) - some.errors(threshold) / some.n
    share = np.zeros((some.n, some.n), dtype=bool)
    for one in (some.first, some.second):
        for two in (some.first, some.second):
            share |= one[:, None] == two[None, :]
    own = np.minimum(some.first, some.second) * 99 + np.maximum(some.first, some.second)
    own = own[:, None] == own[None, :]
    products = np.outer(residual, residual)
    whole, alone = products[share].sum(), products[own].sum()
    got = resampling.plug_in(some, threshold)
    assert got.variance == pytest.approx(max(whole, alone) / some.n**2, rel=1e-9)
    assert got.excess == pytest.approx(2 * alone / some.n**2, rel=1e-9)


def test_half_of_the_known_excess_of_the_bootstrap_is_taken_out():
    """Independent scores: twice the variance of a pair too much, exactly as predicted."""
    rng = np.random.default_rng(2)
    one, two = np.triu_indices(80, 1)
    some = comparisons("among", rng.random(len(one)), one, two, np.ones(80))
    selected = resampling.double_or_nothing(80, 4000, 0)
    draws = resampling.replicate_rates(some, selected, np.full(4000, 0.95))
    fixed = resampling.plug_in(some, 0.95)
    assert draws.var() == pytest.approx(fixed.variance + fixed.excess, rel=0.15)
    assert fixed.excess > 0.8 * fixed.variance
    rate = resampling.rate_interval(some, 0.95, draws, 0.95)
    assert rate.n_effective == pytest.approx(
        resampling.effective_size(rate.rate, some.n, fixed.variance + fixed.excess / 2, 79, 0.95), rel=0.15
    )


def test_no_error_has_the_people_as_size():
    every = generated()
    flat = np.zeros(100)
    own = resampling.rate_interval(every["fnmr"], -1.0, flat, 0.95)
    other = resampling.rate_interval(every["fmr"], 1.0, flat, 0.95)
    people = int((np.bincount(embeddings()[1]) > 1).sum())
    assert (own.status, own.n_effective) == ("identities_as_size", people)
    assert (other.status, other.n_effective) == ("identities_as_size", PEOPLE)
    assert (own.low, own.high) == pytest.approx(wilson(0, people))
    all_wrong = resampling.rate_interval(every["fnmr"], 2.0, flat + 1, 0.95)
    assert all_wrong.high == 1
    assert all_wrong.low == pytest.approx(1 - own.high)


def test_rates_that_are_undefined_say_why():
    some = comparisons("within", np.array([0.5]), np.array([0]), np.array([0]), np.array([1.0, 0.0]))
    few = resampling.rate_interval(some, 0.4, np.zeros(10), 0.95)
    assert (few.status, few.rate) == ("too_few_identities", 0)
    assert np.isnan(few.low)
    empty = comparisons("among", np.empty(0), np.empty(0, int), np.empty(0, int), np.zeros(3))
    none = resampling.rate_interval(empty, 0.4, np.full(10, np.nan), 0.95)
    assert none.status == "no_comparisons"
    assert np.isnan(none.rate)
    with pytest.raises(ValueError, match="needs a comparison"):
        resampling.plug_in(empty, 0.4)
    every = generated()["fnmr"]
    scarce = np.where(np.arange(100) < 15, np.nan, 0.3)
    assert resampling.rate_interval(every, 0.6, scarce, 0.95).status == "too_few_identities"
    change = resampling.paired_change(few, few, (scarce, scarce))
    assert change.status == "undefined"
    assert np.isnan(change.low)


def test_a_change_without_variance_keeps_a_width():
    every = generated()["fnmr"]
    flat = np.zeros(200)
    before = resampling.rate_interval(every, -1.0, flat, 0.95)
    after = resampling.rate_interval(every, 2.0, flat + 1, 0.95)
    same = resampling.paired_change(before, before, (flat, flat))
    assert same.difference == 0
    assert same.low == pytest.approx(-before.high)
    assert same.high == pytest.approx(before.high)
    change = resampling.paired_change(before, after, (flat, flat + 1))
    assert (change.difference, change.high) == (1, 1)
    assert 0.5 < change.low < 1


def test_correlated_rates_make_a_narrower_change():
    every = generated()["fnmr"]
    selected = resampling.double_or_nothing(PEOPLE, 1000, 0)
    draws = [resampling.replicate_rates(every, selected, np.full(1000, t)) for t in (0.5, 0.55)]
    rates = [resampling.rate_interval(every, t, d, 0.95) for t, d in zip((0.5, 0.55), draws, strict=True)]
    paired = resampling.paired_change(*rates, (draws[0], draws[1]))
    shuffled = np.random.default_rng(0).permutation(draws[1])
    unpaired = resampling.paired_change(*rates, (draws[0], shuffled))
    assert paired.correlation > 0.8
    assert paired.high - paired.low < 0.6 * (unpaired.high - unpaired.low)


def test_a_resample_without_enough_scores_takes_the_lowest_threshold():
    some = generated()["fmr"]
    selected = np.zeros((PEOPLE, 2), dtype=np.uint8)
    selected[:, 1] = 1
    totals = resampling.replicate_totals(some, selected)
    got = resampling.replicate_thresholds(some, totals, selected, 0.1, -0.5)
    assert got[0] == -0.5
    assert got[1] == pytest.approx(np.quantile(some.scores, 0.9), abs=0.01)


def test_one_error_is_no_less_certain_than_as_many_people_allow():
    """One person of 26 errs once: not wider than Wilson's on 26, the least that shares in [0, 1] can mean."""
    owner = np.repeat(np.arange(26), 2)
    scores = np.where(np.arange(52) == 7, 0.1, 0.9)
    some = comparisons("within", scores, owner, owner, np.full(26, 2.0))
    selected = resampling.double_or_nothing(26, 500, 0)
    rate = resampling.rate_interval(
        some, 0.5, resampling.replicate_rates(some, selected, np.full(500, 0.5)), 0.95
    )
    assert (rate.errors, rate.status, rate.n_effective) == (1, "ok", 26)
    assert (rate.low, rate.high) == pytest.approx(wilson(26 / 52, 26))


def test_the_variance_of_a_change_is_the_double_sum():
    """Two models on the same pictures: every two comparisons that share a person, by brute force."""
    base, new = between(), between()
    rng = np.random.default_rng(9)
    order = rng.permutation(len(new.scores))
    moved = comparisons("between", new.scores[order], new.first, new.second, new.left, new.right)
    n, errors = base.n, []
    code = {}
    for some in (base, moved):
        pairs = some.first * 99 + some.second
        for pair in pairs:
            code.setdefault(int(pair), len(code))
        wrong = np.zeros(n)
        np.add.at(wrong, [code[int(pair)] for pair in pairs], some.scores >= 0.8)
        errors.append(wrong)
    # Probes of one person meet a reference several times: compare per (probe person, reference person).
    people = np.array([[pair // 99, pair % 99] for pair in code])
    counts = np.zeros(len(code))
    np.add.at(counts, [code[int(pair)] for pair in base.first * 99 + base.second], 1)
    rates = [wrong[: len(code)].sum() / n for wrong in errors]
    residual = (errors[1][: len(code)] - rates[1] * counts) - (errors[0][: len(code)] - rates[0] * counts)
    share = np.zeros((len(code), len(code)), dtype=bool)
    for one in range(2):
        for two in range(2):
            share |= people[:, one][:, None] == people[:, two][None, :]
    own = np.sort(people, axis=1)
    alone = (own[:, None, :] == own[None, :, :]).all(axis=2)
    products = np.outer(residual, residual)
    got = resampling.paired_plug_in((base, 0.8), (moved, 0.8))
    assert got.variance == pytest.approx(max(products[share].sum(), products[alone].sum()) / n**2, rel=1e-9)
    assert got.excess == pytest.approx(2 * products[alone].sum() / n**2, rel=1e-9)
    same = resampling.paired_plug_in((base, 0.8), (base, 0.8))
    assert (same.variance, same.excess) == pytest.approx((0, 0))


def met(design, pictures, rng):
    """Random scores of all comparisons of different people, and per pair of people their number."""
    left, right = pictures
    first, second = [], []
    for one in range(len(left)):
        for two in range(len(left)):
            if one == two or (design == "among" and one > two):
                continue
            repeats = int(left[one] * (left[two] if design == "among" else right[two]))
            first += [one] * repeats
            second += [two] * repeats
    return comparisons(design, rng.uniform(size=len(first)), np.array(first), np.array(second), left, right)


@pytest.mark.parametrize("design", ["among", "between"])
@pytest.mark.parametrize("seed", range(4))
def test_two_models_that_acquired_other_faces(design, seed):
    """The double sum over people, from a matrix of people by people, where the runs' numbers differ."""
    rng = np.random.default_rng(seed)
    threshold, size, residual = 0.7, 9, np.zeros((9, 9))
    some = []
    for sign in (-1.0, 1.0):
        left = rng.integers(0, 4, size).astype(float)
        right = rng.integers(0, 4, size).astype(float) if design == "between" else np.zeros(size)
        one = met(design, (left, right), rng)
        matches = np.zeros((size, size))
        counts = np.zeros((size, size))
        np.add.at(counts, (one.first, one.second), 1.0)
        found = one.scores >= threshold
        np.add.at(matches, (one.first[found], one.second[found]), 1.0)
        assert one.n == counts.sum()
        part = matches - matches.sum() / one.n * counts
        residual += sign * (part + part.T) / one.n
        some.append((one, threshold))
    own = (residual**2).sum() / 2.0
    people = residual.sum(axis=1)
    got = resampling.paired_plug_in(*some)
    assert got.variance == pytest.approx(own + max((people**2).sum() - 2.0 * own, 0.0), rel=1e-9)
    assert got.excess == pytest.approx(2.0 * own, rel=1e-9)
