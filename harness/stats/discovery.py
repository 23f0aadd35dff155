"""Searching many concepts for effects worth naming, without paying for the search with false ones.

A zero null is nearly always false, so the null is |delta| <= m with m stated. The default splits the
identities: one half discovers, the other confirms with Holm. Without a split there are false discovery
rates and intervals that account for the selection. Concepts with the same scores are one concept. Tests and
bounds of skewed cells are those of `harness.stats.hall`.

"At least" is said of bounds that hold all at once: with planted effects, 79 to 91 % of searches printed a
bound of a single test that lay above the truth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from harness.stats import hall
from harness.stats.families import adjust
from harness.stats.numerics import Bools, Floats, Ints


def distinct_concepts(source: Floats, transformed: Floats) -> Ints:
    """Return for each concept the index of the first concept with the same scores, shape (c,).

    Args:
        source, transformed: shape (n, c), over all pairs of the search. Missing scores equal each other.
    """
    scores = np.concatenate([source, transformed]).T + 0.0
    scores[np.isnan(scores)] = np.nan
    rows = np.ascontiguousarray(scores).view(np.uint64)
    _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[which], dtype=np.int64)


def split_identities(groups: Ints, clusters: Ints, *, seed: int) -> Bools:
    """Pick half of the identities of each group at random for the discovery half.

    Args:
        groups: shape (n,), group code of each pair.
        clusters: shape (n,), code of the person; one in several groups counts in the first.
        seed: entropy of the generator; record it.

    Returns:
        Boolean array of shape (n,): True for the pairs of the discovery half. With an odd number of
        identities the extra one joins a half at random.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    chosen: list[Ints] = []
    everybody, first = np.unique(clusters, return_index=True)
    home = groups[first]
    for group in np.unique(home):
        identities = rng.permutation(everybody[home == group])
        extra = int(rng.integers(0, 2)) if len(identities) % 2 else 0
        chosen.append(identities[: len(identities) // 2 + extra])
    return np.isin(clusters, np.concatenate(chosen)) if chosen else np.zeros(0, dtype=bool)


def exceeds_margin(delta: Floats, se: Floats, df: Floats, margin: float, skew: ArrayLike = 0.0) -> Floats:
    """Return p values of the null |delta| <= margin against a larger effect (Hodges & Lehmann 1954).

    At its boundary, P(T > (|d| - m) / se) + P(T > (|d| + m) / se); for m = 0 the two-sided p.

    Args:
        delta, se, df: arrays of one shape; NaN where se is not positive.
        skew: skewness of the estimates; 0 for Student's t.
        margin: m, non-negative, in units of the score.

    Raises:
        ValueError: for a negative margin.
    """
    if not margin >= 0:
        raise ValueError(f"a margin must not be negative, got {margin}")
    s = np.where(se > 0.0, se, np.nan)
    size = np.abs(delta)
    away = np.sign(delta) * skew
    p = hall.p_above(size, s, df, away, margin) + hall.p_above(size, s, df, away, -margin)
    return np.asarray(np.minimum(p, 1.0))


def smallest_effect(delta: Floats, se: Floats, df: Floats, level: float, skew: ArrayLike = 0.0) -> Floats:
    """Return the lower bound of |delta|: the distance of the interval at `level` from zero."""
    low, high = hall.bounds(delta, np.where(se > 0.0, se, np.nan), df, skew, (1.0 - level) / 2.0)
    return np.asarray(np.maximum(0.0, np.maximum(low, -high)))


@dataclass(frozen=True)
class SearchTests:
    """The tests of a search, one entry each; arrays of shape (t,), NaN where undefined.

    Attributes:
        delta, se, df, skew: estimates; skew is 0 where they are not skewed.
        same_as: index of the first test with the same scores (its own index if there is none before).
    """

    delta: Floats
    se: Floats
    df: Floats
    skew: Floats
    same_as: Ints

    @property
    def first(self) -> Bools:
        """Which tests are not a repetition of an earlier one, shape (t,)."""
        return np.asarray(self.same_as == np.arange(len(self.same_as)))


@dataclass(frozen=True)
class Discovery:
    """Result of a search without a split; arrays of shape (t,), NaN where undefined.

    A repeated test has the numbers of the test it repeats and does not count in m.

    Attributes:
        margin, q: the null |delta| <= margin and the false discovery rate.
        m: number of distinct tests, undefined ones included.
        p: raw p values.
        p_bh: Benjamini-Hochberg adjusted.
        p_by: Benjamini-Yekutieli adjusted (any dependence), to be shown beside.
        found: p_bh <= q.
        low, high: intervals of the found tests with false coverage rate q; NaN elsewhere.
        smallest: lower bound of |delta|, simultaneous over all m tests at level 1 - q (Bonferroni).
        order: indices by `smallest`, largest first, undefined last.
    """

    margin: float
    q: float
    m: int
    p: Floats
    p_bh: Floats
    p_by: Floats
    found: Bools
    low: Floats
    high: Floats
    smallest: Floats
    order: Ints


def discover(tests: SearchTests, *, margin: float, q: float = 0.05) -> Discovery:
    """Search all tests at once, controlling the false discovery rate.

    The intervals of the R found tests among m have level 1 - R q / m (Benjamini & Yekutieli 2005).

    Args:
        tests: the estimates.
        margin: m in the null |delta| <= m.
        q: false discovery rate in (0, 1).

    Raises:
        ValueError: for a negative margin or q outside (0, 1).
    """
    if not 0.0 < q < 1.0:
        raise ValueError(f"q must lie strictly between 0 and 1, got {q}")
    p = exceeds_margin(tests.delta, tests.se, tests.df, margin, tests.skew)
    first, same = tests.first, tests.same_as
    m = int(first.sum())
    adjusted = np.full((2, len(p)), np.nan)
    for row, method in enumerate(("bh", "by")):
        adjusted[row, first] = adjust(p[first], "bh" if method == "bh" else "by").p
    p_bh, p_by = adjusted[:, same]
    found = np.asarray(p_bh <= q)
    share = max(int((found & first).sum()), 1) / max(m, 1)
    low, high = hall.bounds(
        tests.delta, np.where(found, tests.se, np.nan), tests.df, tests.skew, share * q / 2.0
    )
    smallest = smallest_effect(tests.delta, tests.se, tests.df, 1.0 - q / max(m, 1), tests.skew)
    return Discovery(
        margin=margin,
        q=q,
        m=m,
        p=p,
        p_bh=p_bh,
        p_by=p_by,
        found=found,
        low=low,
        high=high,
        smallest=smallest,
        order=_ranked(smallest),
    )


def _ranked(smallest: Floats) -> Ints:
    return np.argsort(-np.nan_to_num(smallest, nan=-1.0), kind="stable").astype(np.int64)


@dataclass(frozen=True)
class Confirmation:
    """Result of a search with a split; arrays of shape (t,).

    Attributes:
        margin, alpha: the null |delta| <= margin and the family-wise error rate.
        discovered: found in the first half (Benjamini-Hochberg at alpha).
        p: p value in the second half, in the direction found in the first; NaN unless discovered.
        p_holm: Holm over the distinct discovered tests; NaN unless discovered and defined.
        confirmed: p_holm <= alpha.
        smallest: lower bound of |delta| in the second half, in the direction found in the first, simultaneous
            over the distinct discovered tests at level 1 - alpha (Bonferroni); NaN unless discovered. It may
            lie below the margin where Holm confirms: each holds with its own error alpha.
        order: indices of the discovered tests by `smallest`, largest first, then the others.
    """

    margin: float
    alpha: float
    discovered: Bools
    p: Floats
    p_holm: Floats
    confirmed: Bools
    smallest: Floats
    order: Ints


def discover_and_confirm(
    first: SearchTests, second: SearchTests, *, margin: float, alpha: float = 0.05
) -> Confirmation:
    """Discover in one half of the identities and confirm in the other.

    Only the second half's numbers may be reported: the first half's are inflated by the selection.

    Args:
        first: estimates from the discovery half.
        second: the same tests from the confirmation half, repetitions marked alike.
        margin: m in the null |delta| <= m.
        alpha: rate of both steps.

    Raises:
        ValueError: if the halves list different tests, or for a setting out of range.
    """
    if not np.array_equal(first.same_as, second.same_as):
        raise ValueError("both halves must list the same tests with the same repetitions")
    found = discover(first, margin=margin, q=alpha).found
    s = np.where(found & (second.se > 0.0), second.se, np.nan)
    sign = np.sign(first.delta)
    towards = sign * second.delta, s, second.df, sign * second.skew
    p = hall.p_above(*towards, margin)
    p_holm = np.full(len(p), np.nan)
    distinct = found & first.first
    p_holm[distinct] = adjust(p[distinct], "holm").p
    p_holm = p_holm[first.same_as]
    smallest = np.maximum(0.0, hall.bounds(*towards, alpha / max(int(distinct.sum()), 1))[0])
    return Confirmation(
        margin, alpha, found, p, p_holm, np.asarray(p_holm <= alpha), smallest, _ranked(smallest)
    )
