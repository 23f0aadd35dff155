"""Comparisons by blocks against the whole cross product."""

import numpy as np
import pytest

from harness.stats import comparisons as blocks
from harness.stats.comparisons import Comparisons, impostor_histograms, impostors, of_group, sorted_side

GROUP_OF = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2])
EVERYTHING = np.full(3, -np.inf)


@pytest.fixture
def pictures(monkeypatch):
    """Vectors of 40 pictures in any order, their people, and blocks so small that many are needed."""
    monkeypatch.setattr(blocks, "_BLOCK", 4)
    rng = np.random.default_rng(3)
    people = rng.permutation(np.repeat(np.arange(9), [1, 2, 8, 3, 9, 1, 6, 5, 5]))
    return rng.normal(size=(40, 5)), people


def cosines(one, other):
    units = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (one, other)]
    return units[0] @ units[1].T


def whole(vectors, people, other_vectors, other_people, same_group, *, among):
    """Brute force: (score, person, person) of every impostor comparison."""
    scores = cosines(vectors, other_vectors)
    found = []
    for i, one in enumerate(people):
        for j, two in enumerate(other_people):
            if one == two or (GROUP_OF[one] == GROUP_OF[two]) != same_group:
                continue
            if among and j < i:
                continue
            found.append((round(scores[i, j], 5), *(sorted((one, two)) if among else (one, two))))
    return sorted(found)


def listed(some, *, among):
    rows = zip(some.scores, some.first, some.second, strict=True)
    return sorted((round(s, 5), *(sorted((a, b)) if among else (a, b))) for s, a, b in rows)


@pytest.mark.parametrize("among", [True, False])
def test_blocks_hold_every_comparison_once(pictures, among):
    vectors, people = pictures
    probes = sorted_side(
        vectors[:25] if not among else vectors, people[:25] if not among else people, GROUP_OF
    )
    references = None if among else sorted_side(vectors, people, GROUP_OF)
    found = impostors(probes, references, EVERYTHING, -np.inf)
    n = 40 if among else 25
    for some, same in zip(found, (True, False), strict=True):
        want = whole(vectors[:n], people[:n], vectors, people, same, among=among)
        got = listed(some, among=among)
        assert len(got) == len(want)
        assert np.allclose(got, want, atol=2e-5)
        groups = [of_group(some, GROUP_OF, g, same=same) for g in range(3)]
        for group in groups:
            assert group.n == len(group.scores), "totals from counts are the numbers of comparisons"
        if same or not among:
            assert sum(group.n for group in groups) == len(want)
        else:
            assert sum(group.n for group in groups) == 2 * len(want), "one group on either side"
    histograms = impostor_histograms(probes, references)
    assert histograms[0].sum(axis=1).tolist() == [
        of_group(found[0], GROUP_OF, g, same=True).n for g in range(3)
    ]
    assert histograms[1].sum() == len(found[1].scores)


def test_only_the_highest_scores_are_kept_and_totals_stay(pictures):
    vectors, people = pictures
    side = sorted_side(vectors, people, GROUP_OF)
    every, _ = impostors(side, None, EVERYTHING, np.inf)
    kept, cross = impostors(side, None, np.array([0.5, 0.2, 2.0]), np.inf)
    assert len(cross.scores) == 0
    groups = GROUP_OF[kept.first]
    assert kept.scores[groups == 0].min() >= 0.5
    assert kept.scores[groups == 1].min() >= 0.2
    assert not (groups == 2).any()
    full, narrow = (of_group(some, GROUP_OF, 0, same=True) for some in (every, kept))
    assert full.n == narrow.n
    assert full.errors(0.6) == narrow.errors(0.6) > 0


def test_a_floor_reaches_the_wanted_share(pictures):
    vectors, people = pictures
    side = sorted_side(vectors, people, GROUP_OF)
    counts, _ = impostor_histograms(side)
    every, _ = impostors(side, None, EVERYTHING, np.inf)
    pooled = counts.sum(axis=0)
    floor = blocks.floor_for(pooled, 0.25, 10)
    reached = int((every.scores >= floor).sum())
    assert 0.25 * pooled.sum() <= reached <= 0.35 * pooled.sum()
    assert blocks.floor_for(pooled, 2.0, 1) == -np.inf
    assert blocks.floor_for(pooled, 0.0, 10**9) == -np.inf


def test_pictures_without_a_vector_are_left_out():
    vectors = np.array([[1.0, 0.0], [np.nan, np.nan], [0.0, 0.0], [0.6, 0.8]])
    side = sorted_side(vectors, np.array([1, 0, 0, 0]), np.array([0, 0]))
    assert side.people.tolist() == [0, 1]
    assert side.counts.tolist() == [1.0, 1.0]
    some, _ = impostors(side, None, np.array([-np.inf]), np.inf)
    assert some.scores.tolist() == [0.6]


def test_people_must_be_sorted_by_group():
    with pytest.raises(ValueError, match="must be sorted"):
        blocks.Side(np.zeros((2, 2), np.float32), np.array([1, 0]), np.array([0, 0]))
    with pytest.raises(ValueError, match="ascend with the groups"):
        sorted_side(np.ones((2, 2)), np.array([0, 1]), np.array([1, 0]))


def test_pairs_of_people_are_counted_once_in_both_roles():
    nothing = np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64)
    some = Comparisons("between", *nothing, np.array([1.0, 2.0, 0.0]), np.array([3.0, 1.0, 1.0]))
    assert some.n == 1 * 2 + 2 * 4
    assert some.n_people_pairs == 3
    assert some.n_identities == 2
    among = Comparisons("among", *nothing, np.array([2.0, 2.0, 1.0, 0.0]), np.zeros(4))
    assert (among.n, among.n_people_pairs, among.n_identities) == (8, 3, 3)
