"""How often the gate errs: ``python -m tests.benchmarks.gate --draws 10000``.

Two runs are simulated (1 to 4 pairs an identity), estimated and decided by the gate's own functions. Rows are
printed as they come. In a row that ends in "passes" the true change lies at the margin or beyond, so a pass
is an error, which may happen in at most a share alpha; "no room" is the rate without room for unseen breaks.

- normal, exponential, 0/1: the change of an identity has that distribution (intraclass correlation .5);
- people break: a share of the identities suffers the worst change, nobody else changes;
- lost pairs: a share of the pairs has no score in the new run, and would have shown the worst change;
- acquisition: the share of faces not found rises by exactly the margin;
- fnmr, fmr: a recogniser's error rate rises by exactly the margin. Scores have a part that belongs to the
  person (so that comparisons that share a person are correlated) and are alike in both runs. With "at FMR"
  each run's threshold is set from its own impostor scores, and anew in every resample;
- fmr, people match everyone: a share of the people matches everyone in the new run;
- nothing, 20 rules: no cell changed; over all checks of a policy the gate may fail at most a share alpha;
- twice the margin: with the number of identities planned without room for unseen breaks the gate must fail
  with the planned power; nothing, planned: with the number that it plans, it must pass with that power.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from scipy import special

from harness.acquisition import acquisition_change
from harness.changes import Change, Terms, held, lies_inside, paired_scores_change
from harness.policy import Limits, Rule
from harness.rate_changes import RateChange, rate_change, rated
from harness.stats.bounded import student
from harness.stats.comparisons import Comparisons, comparisons
from harness.stats.error_rates import threshold_at_fmr
from harness.stats.intervals import cell_estimates
from harness.stats.planning import Floor, identities_to_decide
from harness.stats.resampling import double_or_nothing, replicate_thresholds, replicate_totals
from harness.verdict import Planned, decide

SEED = 20_260_102
LIMITS = Limits(min_pairs=2, min_identities=2)
MARGIN = 0.1
WORST = 1.0
"""The width of a probability's range, and so the worst that can happen to one identity."""
CHECKS = 20
RESAMPLES = 400
Row = dict[str, object]
Draw = Callable[[np.random.Generator, int, int], np.ndarray]


def sizes_of(n_identities: int) -> np.ndarray:
    """Return cluster sizes 1 to 4 in turn."""
    return np.arange(n_identities) % 4 + 1


def true_se(n_identities: int, icc: float = 0.5) -> float:
    """Return the standard error of the mean change of ``changes``, in units of its standard deviation."""
    sizes = sizes_of(n_identities)
    return float(np.sqrt((sizes * (1 + (sizes - 1) * icc)).sum()) / sizes.sum())


def normal(sd: float, mean: float) -> Draw:
    """Changes with an intraclass correlation of .5."""

    def draw(rng: np.random.Generator, n_identities: int, draws: int) -> np.ndarray:
        clusters = clusters_of(n_identities)
        person = rng.standard_normal((n_identities, draws))[clusters]
        return mean + sd * np.sqrt(0.5) * (person + rng.standard_normal(person.shape))

    return draw


def exponential(mean: float) -> Draw:
    """Falls of half the mean by identity and half by pair, each exponential, and at most the worst change."""

    def draw(rng: np.random.Generator, n_identities: int, draws: int) -> np.ndarray:
        clusters = clusters_of(n_identities)
        person = rng.standard_exponential((n_identities, draws))[clusters]
        return np.maximum(mean * (person + rng.standard_exponential(person.shape)) / 2, -WORST)

    return draw


def binary(mean: float) -> Draw:
    """A score of 1 that becomes 0, with a probability that varies between identities (beta)."""

    def draw(rng: np.random.Generator, n_identities: int, draws: int) -> np.ndarray:
        chance = rng.beta(-mean, 1 + mean, (n_identities, draws))[clusters_of(n_identities)]
        return -(rng.random(chance.shape) < chance).astype(float)

    return draw


def breaks(share: float) -> Draw:
    """A share of the identities suffers the worst change."""

    def draw(rng: np.random.Generator, n_identities: int, draws: int) -> np.ndarray:
        return -WORST * (rng.random((n_identities, draws)) < share)[clusters_of(n_identities)]

    return draw


def clusters_of(n_identities: int) -> np.ndarray:
    """Return the identity of every pair."""
    return np.repeat(np.arange(n_identities), sizes_of(n_identities))


def changes(
    rng: np.random.Generator, draw: Draw, n_identities: int, draws: int, terms: Terms
) -> Iterator[Change]:
    """Yield one estimated change a draw."""
    values = draw(rng, n_identities, draws)
    found = cell_estimates(np.zeros_like(values), values, clusters_of(n_identities))
    counts = Change(len(values), n_identities, n_identities)
    for estimate in zip(found.delta, found.se, found.df, strict=True):
        known = student(*map(float, estimate))
        yield held(counts, known, known, [n_identities], terms)


def terms_of(harmful: str, *, margin: float = MARGIN, unseen: bool = True) -> Terms:
    return Terms(margin, harmful, LIMITS.alpha, WORST, unseen=unseen)  # type: ignore[arg-type]


def planned(terms: Terms) -> Planned:
    rule = Rule(metric="delta", attribute="a", concept="c", harmful=terms.harmful, margin=terms.margin)
    return Planned(rule, ("g",), terms)


def rate(
    what: str, identities: int, count: int, draws: int, promised: float, without: int | None = None
) -> Row:
    share = count / draws
    error = float(np.sqrt(share * (1 - share) / draws))
    row: Row = {"what": what, "identities": identities, "promised": promised, "rate": share, "mc_se": error}
    return {**row, "without": "" if without is None else f"{without / draws:.4f}"}


def at_the_margin(draws: int, counts: tuple[int, ...] = (10, 30, 100)) -> Iterator[Row]:
    """Margins of .1, and of .6, which leaves room for a pass at 10 identities."""
    designs: list[tuple[str, str, float, Draw]] = [
        ("normal", "lower", MARGIN, normal(0.15, -MARGIN)),
        ("normal", "both", MARGIN, normal(0.15, MARGIN)),
        ("normal", "lower", 0.6, normal(0.15, -0.6)),
        ("exponential", "lower", MARGIN, exponential(-MARGIN)),
        ("exponential", "lower", 0.4, exponential(-0.43)),
        ("0/1", "lower", MARGIN, binary(-MARGIN)),
        ("0/1", "lower", 0.5, binary(-0.5)),
        ("people break", "lower", MARGIN, breaks(MARGIN)),
        ("people break, twice the margin", "lower", MARGIN, breaks(2 * MARGIN)),
        ("people break", "lower", 0.4, breaks(0.4)),
    ]
    for number, (name, harmful, margin, draw) in enumerate(designs):
        for g in counts:
            rng = np.random.default_rng([SEED, g, number])
            terms = terms_of(harmful, margin=margin)
            plain = replace(terms, unseen=False)
            passed = without = 0
            for change in changes(rng, draw, g, draws, terms):
                passed += lies_inside(change, terms)
                without += lies_inside(replace(change, worst_low=change.low, worst_high=change.high), plain)
            title = f"{name}, margin {margin:g} {harmful}: passes"
            yield rate(title, g, passed, draws, LIMITS.alpha, without)


def lost_pairs(draws: int, counts: tuple[int, ...] = (30, 100)) -> Iterator[Row]:
    """Pairs that would have shown the worst change have no score; those left are unchanged but for noise."""
    for margin in (MARGIN, 0.3):
        for g in counts:
            rng = np.random.default_rng([SEED, g, 7])
            clusters, terms = clusters_of(g), terms_of("lower", margin=margin)
            passed = without = 0
            for _ in range(draws):
                after = 0.02 * rng.standard_normal(len(clusters))
                after[rng.random(len(clusters)) < margin] = np.nan
                zeros = np.zeros(len(clusters))
                change = paired_scores_change((zeros, zeros), (zeros, after), clusters, terms)
                passed += lies_inside(change, terms)
                seen = np.isfinite(after)
                sides = (zeros[seen], zeros[seen]), (zeros[seen], after[seen])
                left_out = paired_scores_change(*sides, clusters[seen], replace(terms, unseen=False))
                without += lies_inside(left_out, terms)
            yield rate(
                f"lost pairs, margin {margin:g} lower: passes", g, passed, draws, LIMITS.alpha, without
            )


def nothing_changed(draws: int, counts: tuple[int, ...] = (10, 30, 100)) -> Iterator[Row]:
    """The margin is tiny beside the noise, which is where a false fail is likeliest."""
    for g in counts:
        rng = np.random.default_rng([SEED, g, 1])
        terms = terms_of("both")
        found = [list(changes(rng, normal(1e5, 0.0), g, draws, terms)) for _ in range(CHECKS)]
        failed = sum(
            any(check.outcome == "fail" for check in decide([planned(terms)] * CHECKS, list(group), LIMITS))
            for group in zip(*found, strict=True)
        )
        yield rate(f"nothing, {CHECKS} rules: fails", g, failed, draws, LIMITS.alpha)


def power(draws: int, pilots: tuple[int, ...] = (20, 60, 150)) -> Iterator[Row]:
    """The spread is set so that the plan without a floor asks for about as many identities as ``pilots``."""
    for wanted in pilots:
        sd = MARGIN / true_se(wanted) / 2.8
        for name, harmful, shift, floor in (
            ("twice the margin: fails", "higher", 2 * MARGIN, None),
            ("nothing, planned, lower: passes", "lower", 0.0, Floor(WORST, (1.0,), both_of_a_pair=False)),
            ("nothing, planned, both: passes", "both", 0.0, Floor(WORST, (1.0,), both_of_a_pair=False)),
        ):
            g = identities_to_decide(
                sd * true_se(wanted),
                wanted,
                MARGIN,
                floor=floor,
                planned=0.0,
                alpha=LIMITS.alpha,
                power=LIMITS.power,
                both=harmful == "both",
            )
            assert g is not None
            rng = np.random.default_rng([SEED, wanted, 2])
            terms = terms_of(harmful)
            outcome = "fail" if "fails" in name else "pass"
            decided = sum(
                decide([planned(terms)], [change], LIMITS)[0].outcome == outcome
                for change in changes(rng, normal(sd, shift), g, draws, terms)
            )
            yield rate(name, g, decided, draws, LIMITS.power)


def acquisition_at_the_margin(draws: int, counts: tuple[int, ...] = (50, 100, 200, 400)) -> Iterator[Row]:
    """A share of .05 more of the faces, one pair an identity, is not found; some others are found newly."""
    terms = terms_of("higher", margin=0.05)
    for regained in (0.0, 0.03):
        for g in counts:
            rng = np.random.default_rng([SEED, g, int(100 * regained), 3])
            passed = 0
            for _ in range(draws):
                fate = rng.random(g)
                before = (fate > 1 - regained).astype(float)
                after = (fate < terms.margin + regained).astype(float)
                change = acquisition_change([(before, after, np.arange(g))], terms)
                passed += lies_inside(change, terms)
            yield rate(f"acquisition, {regained:.0%} regained: passes", g, passed, draws, LIMITS.alpha)


OWN, OTHER = 0.8, 0.6
"""Part of a genuine, and of either person in an impostor score, that belongs to the person; noise is 1."""
ALIKE = 0.8
"""Correlation of the noise of one comparison in both runs."""
TARGET = 0.02


def twice(rng: np.random.Generator, person: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores of both runs around what the people bring."""
    shared, *own = rng.standard_normal((3, len(person)))
    one, two = (person + np.sqrt(ALIKE) * shared + np.sqrt(1 - ALIKE) * noise for noise in own)
    return one, two


def genuine_of(scores: np.ndarray, owner: np.ndarray) -> Comparisons:
    return comparisons("within", scores, owner, owner, np.bincount(owner).astype(float))


def impostors_of(
    rng: np.random.Generator, people: int, rise: float = 0.0, spoiled: np.ndarray | None = None
) -> list[Comparisons]:
    """Impostor comparisons of both runs, the second's scores raised; spoiled people match everyone there."""
    first, second = np.triu_indices(people, 1)
    like = rng.standard_normal(people)
    scores = twice(rng, OTHER * (like[first] + like[second]))
    if spoiled is not None:
        scores[1][spoiled[first] | spoiled[second]] = 10.0
    ones = np.ones(people)
    return [
        comparisons("among", values + more, first, second, ones)
        for values, more in zip(scores, (0.0, rise), strict=True)
    ]


def error_rates_at_the_margin(draws: int, counts: tuple[int, ...] = (20, 60, 150)) -> Iterator[Row]:
    """FNMR from .05 to .10, FMR from .02 to .04."""
    for what, base, margin in (("fnmr", 0.05, 0.05), ("fnmr at FMR", 0.05, 0.05), ("fmr", TARGET, 0.02)):
        for g in counts:
            rng = np.random.default_rng([SEED, g, len(what)])
            terms = terms_of("higher", margin=margin)
            passed = failed = without = 0
            for draw in range(draws):
                found = _error_rate_change(rng, what, g, base, margin, draw)
                change = _held_rate(found, g, terms, pairs=what == "fmr")
                passed += lies_inside(change, terms)
                failed += change.p_beyond < LIMITS.alpha
                plain = _held_rate(found, g, replace(terms, unseen=False), pairs=what == "fmr")
                without += lies_inside(plain, terms)
            yield rate(f"{what} at the margin: passes", g, passed, draws, LIMITS.alpha, without)
            yield rate(f"{what} at the margin: fails", g, failed, draws, LIMITS.alpha)


def people_who_match_everyone(draws: int, counts: tuple[int, ...] = (20, 60, 150)) -> Iterator[Row]:
    """One in twenty matches everyone in the new run; FMR rises by (1 - .95^2) of what did not match."""
    share = 0.05
    margin = (1.0 - TARGET) * (1.0 - (1.0 - share) ** 2)
    for g in counts:
        rng = np.random.default_rng([SEED, g, 9])
        terms = terms_of("higher", margin=margin)
        passed = without = 0
        for draw in range(draws):
            spoiled = rng.random(g) < share
            both = impostors_of(rng, g, spoiled=spoiled)
            found = _rate_change(both, [_threshold()] * 2, draw)
            passed += lies_inside(_held_rate(found, g, terms, pairs=True), terms)
            plain = replace(terms, unseen=False)
            without += lies_inside(_held_rate(found, g, plain, pairs=True), plain)
        yield rate("fmr, people match everyone: passes", g, passed, draws, LIMITS.alpha, without)


def _held_rate(found: RateChange, people: int, terms: Terms, *, pairs: bool) -> Change:
    counts = Change(people, people, people)
    return held(counts, found.exact, found.exact, [people], terms, room=found.by_t, pairs=pairs)


def _threshold() -> float:
    return -float(special.ndtri(TARGET)) * np.sqrt(1 + 2 * OTHER**2)


def _rate_change(both: list[Comparisons], thresholds: list[float], draw: int) -> RateChange:
    """Thresholds that stay what they are."""
    selected = double_or_nothing(len(both[0].left), RESAMPLES, draw)
    resampled = [np.full(RESAMPLES, threshold) for threshold in thresholds]
    return rate_change(*(rated(*item, selected) for item in zip(both, thresholds, resampled, strict=True)))


def _error_rate_change(
    rng: np.random.Generator, what: str, people: int, base: float, margin: float, draw: int
) -> RateChange:
    """Simulate both runs, with thresholds of 0 (or as set)."""
    spread = np.sqrt(1 + 2 * OTHER**2) if what == "fmr" else np.sqrt(1 + OWN**2)
    low, high = (float(special.ndtri(share)) * spread for share in (base, base + margin))
    if what == "fmr":
        return _rate_change(impostors_of(rng, people, high - low), [-low] * 2, draw)
    owner = np.repeat(np.arange(people), 4)
    scores = twice(rng, OWN * rng.standard_normal(people)[owner])
    if what == "fnmr":
        both = [genuine_of(v - more, owner) for v, more in zip(scores, (low, high), strict=True)]
        return _rate_change(both, [0.0, 0.0], draw)
    selected = double_or_nothing(people, RESAMPLES, draw)
    others = impostors_of(rng, people)
    both = [genuine_of(v - more + _threshold(), owner) for v, more in zip(scores, (low, high), strict=True)]
    thresholds = [threshold_at_fmr(some.scores, some.n, TARGET)[0] for some in others]
    resampled = [
        replicate_thresholds(some, replicate_totals(some, selected), selected, TARGET, some.scores[-1])
        for some in others
    ]
    return rate_change(*(rated(*item, selected) for item in zip(both, thresholds, resampled, strict=True)))


def study(draws: int) -> Iterator[Row]:
    yield from at_the_margin(draws)
    yield from lost_pairs(draws // 5)
    yield from nothing_changed(draws // 2)
    yield from power(draws)
    yield from acquisition_at_the_margin(draws // 5)
    yield from people_who_match_everyone(draws // 20)
    yield from error_rates_at_the_margin(draws // 20)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=10_000)
    draws = parser.parse_args().draws
    print(f"{'what':54}{'identities':>11}{'promised':>10}{'rate':>9}{'mc_se':>9}{'no room':>9}", flush=True)
    for row in study(draws):
        line = "{what:54}{identities:>11}{promised:>10}{rate:>9.4f}{mc_se:>9.4f}{without:>9}".format(**row)
        print(line, flush=True)


if __name__ == "__main__":
    main()
