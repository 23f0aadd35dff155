"""What must not matter: the side called source, the order of rows, the spelling of clusters, offsets."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.stats.contrasts import pairwise
from harness.stats.discovery import SearchTests, discover, distinct_concepts
from harness.stats.families import adjust
from harness.stats.groups import GroupMeans
from harness.stats.intervals import cell_estimates
from harness.stats.means import icc, identity_means
from harness.stats.omnibus import htz
from harness.stats.planning import detectable_ratio

NUMBERS = ("delta", "se", "df", "low", "high", "p")

ordinary = st.floats(-1e3, 1e3).map(lambda x: round(x, 4))
any_score = st.one_of(ordinary, st.sampled_from([np.nan, np.inf, -np.inf, 1e300, 1e-300, 0.0]))


@st.composite
def structures(draw, scores=ordinary, concepts=2):
    n = draw(st.integers(0, 14))
    shape = (n, concepts)
    source, transformed = (draw(hnp.arrays(float, shape, elements=scores)) for _ in range(2))
    clusters = draw(hnp.arrays(np.int64, n, elements=st.integers(0, 5)))
    return source, transformed, clusters


def assert_same(got, want, rtol=1e-12):
    """Compare two results, absolute errors being measured against the standard error."""
    np.testing.assert_array_equal(got.status, want.status)
    np.testing.assert_array_equal(got.reason, want.reason)
    for name in NUMBERS:
        a, b = getattr(got, name), getattr(want, name)
        room = rtol * (1.0 + np.nan_to_num(np.abs(want.delta)) + np.nan_to_num(want.se))
        assert (np.isnan(a) == np.isnan(b)).all(), name
        assert np.all(np.isnan(a) | (np.abs(a - b) <= room + rtol * np.abs(b))), name


@given(structures(any_score), st.sampled_from(["cluster", "t"]))
@settings(max_examples=80, deadline=None)
def test_swapping_the_sides_flips_signs_exactly(structure, method):
    source, transformed, clusters = structure
    there = cell_estimates(source, transformed, clusters, method=method)
    back = cell_estimates(transformed, source, clusters, method=method)
    np.testing.assert_array_equal(there.status, back.status)
    np.testing.assert_array_equal(back.delta, -there.delta)
    np.testing.assert_array_equal(back.low, -there.high)
    np.testing.assert_array_equal(back.high, -there.low)
    np.testing.assert_array_equal(back.skewness, -there.skewness)
    for name in ("se", "df", "p", "n_pairs", "few_identities", "skewed"):
        np.testing.assert_array_equal(getattr(back, name), getattr(there, name))


@given(structures(any_score), st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_the_order_of_rows_does_not_matter(structure, random):
    source, transformed, clusters = structure
    order = list(range(len(source)))
    random.shuffle(order)
    order = np.array(order, dtype=int)
    got = cell_estimates(source[order], transformed[order], clusters[order])
    assert_same(got, cell_estimates(source, transformed, clusters))


@given(structures(any_score), st.permutations(range(6)), st.integers(-(10**12), 10**12))
@settings(max_examples=80, deadline=None)
def test_the_spelling_of_clusters_does_not_matter(structure, names, shift):
    source, transformed, clusters = structure
    renamed = np.array(names, dtype=np.int64)[clusters] * 7 + shift
    assert_same(cell_estimates(source, transformed, renamed), cell_estimates(source, transformed, clusters))


@given(structures(any_score, concepts=3), st.integers(0, 2), st.sampled_from(["cluster", "t"]))
@settings(max_examples=80, deadline=None)
def test_a_duplicated_concept_changes_no_number(structure, which, method):
    source, transformed, clusters = structure
    more = [np.hstack([x, x[:, [which]]]) for x in (source, transformed)]
    plain = cell_estimates(source, transformed, clusters, method=method)
    got = cell_estimates(*more, clusters, method=method)
    for name in NUMBERS:
        np.testing.assert_array_equal(getattr(got, name)[:3], getattr(plain, name))
        np.testing.assert_array_equal(getattr(got, name)[3], getattr(plain, name)[which])


@given(structures(concepts=4), st.integers(0, 3), st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_a_duplicated_concept_changes_no_discovery(structure, which, where):
    source, transformed, clusters = structure
    columns = np.insert(np.arange(4), where, which)

    def found(columns):
        s, t = source[:, columns], transformed[:, columns]
        cell = cell_estimates(s, t, clusters)
        tests = SearchTests(cell.delta, cell.se, cell.df, cell.skew, distinct_concepts(s, t))
        result = discover(tests, margin=0.01, q=0.2)
        return {
            int(c): (bool(f), float(p)) for c, f, p in zip(columns, result.found, result.p_bh, strict=True)
        }

    got, want = found(columns), found(np.arange(4))
    assert all(
        got[c][0] == want[c][0] and np.array_equal(got[c][1], want[c][1], equal_nan=True) for c in want
    )


@given(structures(), st.sampled_from([0.5, -3.0, 1e3, 1e6, 1e9]))
@settings(max_examples=80, deadline=None)
def test_a_constant_on_both_sides_changes_nothing_beyond_rounding(structure, constant):
    source, transformed, clusters = structure
    plain = cell_estimates(source, transformed, clusters)
    moved = cell_estimates(source + constant, transformed + constant, clusters)
    room = 8 * np.spacing(abs(constant) + 1e3)
    np.testing.assert_allclose(moved.delta, plain.delta, rtol=0, atol=room)
    np.testing.assert_allclose(moved.se, plain.se, rtol=1e-9, atol=room * 4)
    np.testing.assert_array_equal(moved.df, plain.df)


@given(structures(any_score))
@settings(max_examples=80, deadline=None)
def test_every_number_is_finite_or_has_a_status(structure):
    cell = cell_estimates(*structure)
    ok = cell.status == "ok"
    for name in ("low", "high", "p"):
        np.testing.assert_array_equal(np.isfinite(getattr(cell, name)), ok)
    assert ((cell.reason == "") == ok).all()
    assert (cell.se[ok] > 0).all()
    assert (cell.n_pairs + cell.n_excluded == len(structure[0])).all()


@given(st.lists(structures(), min_size=2, max_size=4), st.sampled_from([0.5, 0.95, 0.999]))
@settings(max_examples=40, deadline=None)
def test_contrasts_are_antisymmetric_and_bands_are_wider(raw, level):
    groups = GroupMeans.stack([cell_estimates(*structure) for structure in raw])
    found = pairwise(groups, level=level)
    back = np.arange(groups.n_groups)[::-1]
    flipped = pairwise(groups.take(back, np.arange(2)), level=level)
    np.testing.assert_array_equal(np.sort(found.p, axis=0), np.sort(flipped.p, axis=0))
    np.testing.assert_array_equal(found.difference[0], -flipped.difference[-1])
    known = np.isfinite(found.band_low)
    assert (found.band_low[known] <= found.low[known] + 1e-9 * found.se[known]).all()
    # The columns of three numbers that either group's order can only change by rounding.
    np.testing.assert_allclose(htz(groups).p, htz(groups.take(back, np.arange(2))).p, rtol=1e-6)


@given(structures())
@settings(max_examples=80, deadline=None)
def test_identity_means_and_icc_flip_and_shift(structure):
    source, transformed, clusters = structure
    there, back = (identity_means(*x, clusters) for x in ((source, transformed), (transformed, source)))
    np.testing.assert_array_equal(back.delta, -there.delta)
    np.testing.assert_array_equal(back.se, there.se)
    np.testing.assert_array_equal(icc(source, transformed, clusters), icc(transformed, source, clusters))


@given(
    st.lists(st.floats(0, 1) | st.just(np.nan), max_size=20),
    st.sampled_from(["holm", "bonferroni", "bh", "by"]),
)
@settings(max_examples=60, deadline=None)
def test_adjusted_p_are_larger_and_keep_the_order(p, method):
    raw = np.array(p, dtype=float)
    got = adjust(raw, method).p
    known = ~np.isnan(raw)
    assert (got[known] >= raw[known]).all()
    assert (got[known] <= 1).all()
    assert (np.diff(got[known][np.argsort(raw[known], kind="stable")]) >= 0).all()


@given(st.floats(1, 500), st.floats(0.5, 0.999))
@settings(max_examples=25, deadline=None)
def test_more_power_takes_a_larger_effect(df, level):
    assert detectable_ratio(df, level, 0.9) > detectable_ratio(df, level, 0.8) > 0
