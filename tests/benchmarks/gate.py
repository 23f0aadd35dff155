"""How often the gate errs: ``python -m tests.benchmarks.gate --draws 20000``.

Changes between two runs are simulated (1 to 4 pairs an identity, intraclass correlation .5), estimated and
decided by the gate's own functions, and counted:

- margin: the true change lies exactly at the margin; the gate may pass at most a share alpha;
- nothing: no cell changed; over all eight checks of a policy the gate may fail at most a share alpha;
- twice: the change is twice the margin, with the number of identities that the gate asks for; it must fail
  with the power that was planned (.8; the plan is a normal approximation);
- acquisition: the share of faces not found rises by exactly the margin;
- fnmr, fmr: a recogniser's error rate rises by exactly the margin. Scores have a part that belongs to the
  person (so false matches come in stars around people) and are alike in both runs. With "at FMR" each run's
  threshold is set from its own impostor scores, and anew in every resample.
"""

import argparse
from collections.abc import Iterator

import numpy as np
from scipy import special

from harness.acquisition import acquisition_change
from harness.changes import Change, Margin, held, held_bounded
from harness.gate import decide
from harness.policy import Limits, Rule
from harness.rate_changes import rate_change, rated
from harness.stats.comparisons import Comparisons, comparisons
from harness.stats.error_rates import threshold_at_fmr
from harness.stats.intervals import cell_estimates
from harness.stats.planning import identities_to_decide
from harness.stats.resampling import double_or_nothing, replicate_thresholds, replicate_totals

SEED = 20_260_102
LIMITS = Limits(min_pairs=2, min_identities=2)
MARGIN = 1.0
CHECKS = 8
RESAMPLES = 400
Row = dict[str, object]


def sizes_of(n_identities: int) -> np.ndarray:
    """Return cluster sizes 1 to 4 in turn."""
    return np.arange(n_identities) % 4 + 1


def true_se(n_identities: int, icc: float = 0.5) -> float:
    """Return the standard error of the mean change of ``changes``, in units of its standard deviation."""
    sizes = sizes_of(n_identities)
    return float(np.sqrt((sizes * (1 + (sizes - 1) * icc)).sum()) / sizes.sum())


def changes(
    rng: np.random.Generator, n_identities: int, draws: int, shift: float, sd: float, harmful: str
) -> Iterator[Change]:
    """Yield one estimated change a draw."""
    clusters = np.repeat(np.arange(n_identities), sizes_of(n_identities))
    person = rng.standard_normal((n_identities, draws))[clusters]
    noise = np.sqrt(0.5) * (person + rng.standard_normal(person.shape))
    found = cell_estimates(np.zeros_like(noise), shift + sd * noise, clusters)
    margin = Margin(MARGIN, harmful, LIMITS.alpha)  # type: ignore[arg-type]
    counts = Change(len(clusters), n_identities, n_identities)
    for estimate in zip(found.delta, found.se, found.df, strict=True):
        yield held(counts, *map(float, estimate), margin)


def rule(harmful: str) -> Rule:
    return Rule(metric="delta", attribute="a", concept="c", harmful=harmful, margin=MARGIN)  # type: ignore[arg-type]


def rate(what: str, identities: int, count: int, draws: int, promised: float) -> Row:
    share = count / draws
    error = float(np.sqrt(share * (1 - share) / draws))
    return {"what": what, "identities": identities, "promised": promised, "rate": share, "mc_se": error}


def at_the_margin(draws: int, counts: tuple[int, ...] = (10, 20, 40, 100)) -> list[Row]:
    rows = []
    for harmful, shift in (("lower", -MARGIN), ("both", MARGIN)):
        for g in counts:
            rng = np.random.default_rng([SEED, g])
            passed = sum(
                decide([(rule(harmful), ("g",))], [change], LIMITS)[0].passed
                for change in changes(rng, g, draws, shift, 0.3 * np.sqrt(g), harmful)
            )
            rows.append(rate(f"margin, {harmful}: passes", g, passed, draws, LIMITS.alpha))
    return rows


def nothing_changed(draws: int, counts: tuple[int, ...] = (10, 20, 40, 100)) -> list[Row]:
    """The margin is tiny beside the noise, which is where a false fail is likeliest."""
    rows = []
    for g in counts:
        rng = np.random.default_rng([SEED, g, 1])
        found = [list(changes(rng, g, draws, 0.0, 1e6, "both")) for _ in range(CHECKS)]
        planned = [(rule("both"), ("g",))] * CHECKS
        failed = sum(
            any(check.outcome == "fail" for check in decide(planned, list(group), LIMITS))
            for group in zip(*found, strict=True)
        )
        rows.append(rate(f"nothing, {CHECKS} checks: fails", g, failed, draws, LIMITS.alpha))
    return rows


def twice_the_margin(draws: int, pilots: tuple[int, ...] = (20, 60, 150)) -> list[Row]:
    """The spread is set so that the plan asks for about as many identities as ``pilots`` says."""
    rows = []
    for wanted in pilots:
        sd = MARGIN / true_se(wanted) / 2.8
        planned = identities_to_decide(sd * true_se(wanted), wanted, MARGIN)
        assert planned is not None
        rng = np.random.default_rng([SEED, wanted, 2])
        failed = sum(
            decide([(rule("higher"), ("g",))], [change], LIMITS)[0].outcome == "fail"
            for change in changes(rng, planned, draws, 2 * MARGIN, sd, "higher")
        )
        rows.append(rate("twice the margin: fails", planned, failed, draws, LIMITS.power))
    return rows


def acquisition_at_the_margin(draws: int, counts: tuple[int, ...] = (50, 100, 200, 400)) -> list[Row]:
    """A share of .05 more of the faces, one pair an identity, is not found; some others are found newly."""
    rows = []
    margin = Margin(0.05, "higher", LIMITS.alpha)
    for regained in (0.0, 0.03):
        for g in counts:
            rng = np.random.default_rng([SEED, g, int(100 * regained), 3])
            passed = 0
            for _ in range(draws):
                fate = rng.random(g)
                before = (fate > 1 - regained).astype(float)
                after = (fate < margin.margin + regained).astype(float)
                change = acquisition_change([(before, after, np.arange(g))], margin)
                passed += change.p_inside < LIMITS.alpha
            name = f"acquisition, {regained:.0%} regained: passes"
            rows.append(rate(name, g, passed, draws, LIMITS.alpha))
    return rows


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


def impostors_of(rng: np.random.Generator, people: int, rise: float = 0.0) -> list[Comparisons]:
    """Impostor comparisons of both runs, the second's scores raised."""
    first, second = np.triu_indices(people, 1)
    like = rng.standard_normal(people)
    scores = twice(rng, OTHER * (like[first] + like[second]))
    ones = np.ones(people)
    return [
        comparisons("among", values + more, first, second, ones)
        for values, more in zip(scores, (0.0, rise), strict=True)
    ]


def error_rates_at_the_margin(draws: int, counts: tuple[int, ...] = (20, 60, 150)) -> list[Row]:
    """FNMR from .05 to .10, FMR from .02 to .04."""
    rows = []
    for what, base, margin in (("fnmr", 0.05, 0.05), ("fnmr at FMR", 0.05, 0.05), ("fmr", TARGET, 0.02)):
        for g in counts:
            rng = np.random.default_rng([SEED, g, len(what)])
            passed = failed = 0
            for draw in range(draws):
                change = _error_rate_change(rng, what, g, base, margin, draw)
                passed += change.p_inside < LIMITS.alpha
                failed += change.p_beyond < LIMITS.alpha
            rows.append(rate(f"{what} at the margin: passes", g, passed, draws, LIMITS.alpha))
            rows.append(rate(f"{what} at the margin: fails", g, failed, draws, LIMITS.alpha))
    return rows


def _error_rate_change(
    rng: np.random.Generator, what: str, people: int, base: float, margin: float, draw: int
) -> Change:
    """Simulate both runs, with thresholds of 0 (or as set), and hold the change against the margin."""
    selected = double_or_nothing(people, RESAMPLES, draw)
    spread = np.sqrt(1 + 2 * OTHER**2) if what == "fmr" else np.sqrt(1 + OWN**2)
    low, high = (float(special.ndtri(share)) * spread for share in (base, base + margin))
    thresholds = [0.0, 0.0]
    resampled = [np.zeros(RESAMPLES)] * 2
    if what == "fmr":
        both = impostors_of(rng, people, high - low)
        thresholds, resampled = [-low] * 2, [np.full(RESAMPLES, -low)] * 2
    else:
        owner = np.repeat(np.arange(people), 4)
        scores = twice(rng, OWN * rng.standard_normal(people)[owner])
        both = [genuine_of(v - more, owner) for v, more in zip(scores, (low, high), strict=True)]
    if what == "fnmr at FMR":
        others = impostors_of(rng, people)
        place = -float(special.ndtri(TARGET)) * np.sqrt(1 + 2 * OTHER**2)
        both = [genuine_of(v - more + place, owner) for v, more in zip(scores, (low, high), strict=True)]
        thresholds = [threshold_at_fmr(some.scores, some.n, TARGET)[0] for some in others]
        resampled = [
            replicate_thresholds(some, replicate_totals(some, selected), selected, TARGET, some.scores[-1])
            for some in others
        ]
    rates = [rated(*item, selected) for item in zip(both, thresholds, resampled, strict=True)]
    counts = Change(people, people, people)
    return held_bounded(counts, rate_change(*rates), Margin(margin, "higher", LIMITS.alpha))


def study(draws: int) -> list[Row]:
    return [
        *at_the_margin(draws),
        *nothing_changed(draws),
        *twice_the_margin(draws),
        *acquisition_at_the_margin(draws // 5),
        *error_rates_at_the_margin(draws // 20),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=20_000)
    print(f"{'what':42}{'identities':>11}{'promised':>10}{'rate':>9}{'mc_se':>9}")
    for row in study(parser.parse_args().draws):
        print("{what:42}{identities:>11}{promised:>10}{rate:>9.4f}{mc_se:>9.4f}".format(**row))


if __name__ == "__main__":
    main()
