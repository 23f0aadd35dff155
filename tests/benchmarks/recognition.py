"""How fast comparisons are, and how often intervals miss: ``python -m tests.benchmarks.recognition``.

Prints the seconds and peak memory of 20,000 embeddings compared with each other (histograms, the highest
scores, a threshold at FMR .001 and its 1,000 resamples), and of a whole recognition report on as many (2,000
people, 2 pictures and 4 edits of each). Then people who look alike are simulated: how often
the interval of FMR, of FNMR and of a change misses, beside Wilson's on comparisons taken as independent; and
how often the tests of ratios of FMR find a difference between groups that have none, among them groups with
centres of their own in the embedding, people who match nearly everyone, and groups of very unequal size.
"""

import argparse
import os
import resource
import time
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from harness.gallery import RecognitionOptions
from harness.outcomes import Embedded, Labels, Outcomes
from harness.recognition import recognise
from harness.stats import resampling
from harness.stats.comparisons import (
    Comparisons,
    Design,
    comparisons,
    floor_for,
    impostor_histograms,
    impostors,
    of_group,
    sorted_side,
)
from harness.stats.equitability import ratio_tests
from harness.stats.error_rates import threshold_at_fmr
from harness.stats.proportions import wilson
from targets.base.tables import ObjectArray

Floats = NDArray[np.float64]
GROUPS, DIMENSIONS = 8, 128
MATCH = 3.0


def faces(n: int, people: int, seed: int = 0) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Return n embeddings in any order, their people, and the group of every person."""
    rng = np.random.default_rng(seed)
    owner = rng.permutation(np.arange(n) % people)
    group_of = np.arange(people) * GROUPS // people
    group = 0.4 * rng.normal(size=(GROUPS, DIMENSIONS))
    centre = group[group_of] + rng.normal(size=(people, DIMENSIONS))
    return centre[owner] + 0.5 * rng.normal(size=(n, DIMENSIONS)), owner, group_of


def speed(n: int, people: int, draws: int = 1000) -> dict[str, float]:
    """Time a threshold at FMR .001 with its resamples, from embeddings."""
    vectors, owner, group_of = faces(n, people)
    start = time.perf_counter()
    side = sorted_side(vectors, owner, group_of)
    counts, _ = impostor_histograms(side)
    floor = floor_for(counts.sum(axis=0), 0.004, 50_000)
    same, _ = impostors(side, None, np.full(GROUPS, floor), floor)
    seconds = {"comparisons": time.perf_counter() - start}
    parts = [of_group(same, group_of, group, same=True) for group in range(GROUPS)]
    total = sum(part.n for part in parts)
    threshold, fmr = threshold_at_fmr(same.scores, total, 0.001)
    selected = resampling.double_or_nothing(people, draws, 0)
    totals = np.sum([resampling.replicate_totals(part, selected) for part in parts], axis=0)
    thresholds = resampling.replicate_thresholds(same, totals, selected, 0.001, floor)
    for part in parts:
        resampling.rate_interval(
            part, threshold, resampling.replicate_rates(part, selected, thresholds), 0.95
        )
    seconds["whole"] = time.perf_counter() - start
    return seconds | {"fmr": fmr, "comparisons_made": float(total)}


def report_speed() -> dict[str, float]:
    """Time a report on 16,000 pairs of 4,000 source pictures."""
    vectors, owner, group_of = faces(20_000, 2_000)
    groups, attributes = [f"G{place}" for place in range(GROUPS)], [f"a{place}" for place in range(4)]
    by_person = np.argsort(owner, kind="stable").reshape(2_000, 10)
    rows = [(p, v, a) for p in range(2_000) for v in range(2) for a in range(len(attributes))]
    person, variation, attribute = (np.array(column) for column in zip(*rows, strict=True))
    source = vectors[by_person[person, variation]]
    transformed = vectors[by_person[person, 2 + variation * len(attributes) + attribute]]

    def text(values: Iterable[object]) -> ObjectArray:
        return np.array([str(value) for value in values], dtype=object)

    pictures = text(f"{p}-{v}" for p, v, _ in rows)
    names = text("-".join(map(str, row)) for row in rows)
    labels = Labels(
        pair_id=names,
        identity=text(person),
        variation=text(variation),
        demographic=text(groups[group_of[p]] for p in person),
        attribute=text(attributes[a] for a in attribute),
        source_name=pictures,
        transformed_name=names,
    )
    nothing, codes = np.zeros((len(rows), 2)), np.zeros((len(rows), 2), dtype=np.int8)
    outcomes = Outcomes(
        labels,
        ("match", "identity"),
        nothing,
        nothing,
        codes,
        pictures,
        names,
        embedded=Embedded(source, transformed, codes[:, 0], pictures),
    )
    start, cpu = time.perf_counter(), time.process_time()
    assert recognise(outcomes, "x", attributes, groups, RecognitionOptions()) is not None
    return {"wall": time.perf_counter() - start, "cpu": time.process_time() - cpu}


def simulated(rng: np.random.Generator, people: int, pictures: int) -> tuple[Comparisons, Comparisons]:
    """Scores whose errors come in stars: some people match everybody, some do not match themselves."""
    one, two = np.triu_indices(people, 1)
    likeness = rng.normal(size=people)
    scores = 0.6 * (likeness[one] + likeness[two]) + rng.normal(size=len(one))
    other = comparisons("among", scores, one, two, np.ones(people))
    owner = np.repeat(np.arange(people), pictures)
    own = 4.5 + 0.8 * rng.normal(size=people)[owner] + rng.normal(size=len(owner))
    return comparisons("within", own, owner, owner, np.full(people, float(pictures))), other


def truth() -> tuple[float, float]:
    """Return the true FNMR and FMR of `simulated` at `MATCH`."""
    from scipy import special

    own = special.ndtr((MATCH - 4.5) / np.sqrt(1 + 0.8**2))
    other = special.ndtr(-MATCH / np.sqrt(1 + 2 * 0.6**2))
    return float(own), float(other)


def coverage(draws: int, people: int, resamples: int = 400, level: float = 0.95) -> dict[str, float]:
    """Share of simulated data sets whose interval misses the truth, at a fixed threshold."""
    rng = np.random.default_rng([people, draws])
    missed = dict.fromkeys(("fnmr", "fmr", "change", "naive fnmr", "naive fmr"), 0)
    at = np.full(resamples, MATCH)
    for draw in range(draws):
        selected = resampling.double_or_nothing(people, resamples, draw)
        both = simulated(rng, people, 3)
        for name, some, rate in zip(("fnmr", "fmr"), both, truth(), strict=True):
            found = resampling.rate_interval(
                some, MATCH, resampling.replicate_rates(some, selected, at), level
            )
            low, high = wilson(found.errors, found.n, level)
            missed[name] += not found.low <= rate <= found.high
            missed[f"naive {name}"] += not low <= rate <= high
        after = simulated(rng, people, 3)[0]
        sides = [resampling.replicate_rates(some, selected, at) for some in (both[0], after)]
        rates = [
            resampling.rate_interval(some, MATCH, x, level)
            for some, x in zip((both[0], after), sides, strict=True)
        ]
        change = resampling.paired_change(rates[0], rates[1], (sides[0], sides[1]))
        missed["change"] += not change.low <= 0 <= change.high
    return {name: count / draws for name, count in missed.items()}


RATIO_DESIGNS: dict[str, tuple[tuple[int, ...], float, float, float, float]] = {
    "one centre, 8 x 30 people, FMR .1": ((30,) * 8, 0.0, 0.0, 1.0, 0.1),
    "separate centres, 2 x 30 people, FMR .1": ((30,) * 2, 2.5, 0.0, 1.0, 0.1),
    "separate centres, 8 x 30 people, FMR .1": ((30,) * 8, 2.5, 0.0, 1.0, 0.1),
    "separate centres, 4 x 15 people, FMR .1": ((15,) * 4, 2.5, 0.0, 1.0, 0.1),
    "separate centres, 4 x 100 people, FMR .01": ((100,) * 4, 2.5, 0.0, 1.0, 0.01),
    "separate centres, 20 to 100 people, FMR .03": ((20, 20, 100, 100), 2.5, 0.0, 1.0, 0.03),
    "one in ten looks like everybody, 20 to 100 people, FMR .03": ((20, 20, 100, 100), 2.5, 0.1, 0.3, 0.03),
    "one in fifty matches nearly everybody, 2 x 60 people, FMR .01": ((60,) * 2, 2.5, 0.02, 0.1, 0.01),
    "every second looks like everybody, 2 x 30 people, FMR .1": ((30,) * 2, 2.5, 0.5, 0.3, 0.1),
}
"""People of each group, distance of the groups' centres, share of people who look like everybody, their
distance from the centre as a share of the others', target FMR."""


def alike_groups(
    rng: np.random.Generator, sizes: tuple[int, ...], apart: float, share: float, shrink: float
) -> dict[str, list[Comparisons]]:
    """Return each group's impostor comparisons among sources, and of edits with sources; equal in law."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    centre = np.zeros((len(sizes), 16))
    centre[np.arange(len(sizes)), np.arange(len(sizes))] = apart
    distance = np.where(rng.random(len(group)) < share, shrink, 1.0)[:, None]
    look = centre[group] + distance * rng.normal(size=(len(group), 16))
    count = rng.integers(1, 4, size=len(group))
    owner = np.repeat(np.arange(len(group)), count)
    sides = [look[owner] + 0.4 * rng.normal(size=(len(owner), 16)) for _ in range(2)]
    sources, edits = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides)
    found: dict[str, list[Comparisons]] = {"among": [], "between": []}
    for place in range(len(sizes)):
        rows = np.flatnonzero(group[owner] == place)
        left = np.where(group == place, count, 0).astype(np.float64)
        for kind, probes in (("among", sources), ("between", edits)):
            one, two = np.triu_indices(len(rows), 1) if kind == "among" else np.indices((len(rows),) * 2)
            first, second = owner[rows][one.ravel()], owner[rows][two.ravel()]
            other = first != second
            scores = np.einsum(
                "nd,nd->n", probes[rows][one.ravel()[other]], sources[rows][two.ravel()[other]]
            )
            right = left if kind == "between" else None
            design: Design = "between" if kind == "between" else "among"
            found[kind].append(comparisons(design, scores, first[other], second[other], left, right))
    return found


def ratio_size(draws: int, design: str, resamples: int = 200, alpha: float = 0.05) -> dict[str, float]:
    """Share of data sets without a difference in which some ratio of two groups' FMR is found, after Holm."""
    sizes, apart, share, shrink, target = RATIO_DESIGNS[design]
    rng = np.random.default_rng([draws, len(design), *sizes])
    found = dict.fromkeys(("among", "between"), 0)
    for draw in range(draws):
        both = alike_groups(rng, sizes, apart, share, shrink)
        every = np.sort(np.concatenate([part.scores for part in both["among"]]))[::-1]
        threshold, _ = threshold_at_fmr(every, len(every), target)
        selected = resampling.double_or_nothing(sum(sizes), resamples, draw)
        at = np.full(resamples, threshold)
        for kind, parts in both.items():
            rates = [
                resampling.estimate(part, threshold, resampling.replicate_rates(part, selected, at))
                for part in parts
            ]
            found[kind] += bool((ratio_tests(rates, 0.95).p_adjusted <= alpha).any())
    return {kind: count / draws for kind, count in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embeddings", type=int, default=20_000)
    parser.add_argument("--draws", type=int, default=1_000)
    settings = parser.parse_args()
    found = speed(settings.embeddings, settings.embeddings // 5)
    report = report_speed()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(f"cores: {os.cpu_count()}, load {os.getloadavg()[0]:.1f}")
    print(f"{settings.embeddings:,} embeddings: comparisons {found['comparisons']:.1f} s", end=", ")
    print(f"with threshold, 1,000 resamples and intervals {found['whole']:.1f} s (target 60)")
    print(f"whole report on 20,000 embeddings: {report['wall']:.1f} s, CPU {report['cpu']:.1f} s (target 60)")
    print(f"peak memory {peak:.2f} GiB (target 4), CPU {time.process_time():.1f} s")
    for design in RATIO_DESIGNS:
        size = ratio_size(max(settings.draws // 5, 20), design)
        print(f"ratios of FMR at 5 %, {design}: among sources {size['among']:.3f}, ", end="")
        print(f"edits with sources {size['between']:.3f}", flush=True)
    for people in (20, 60, 100):
        rates = coverage(settings.draws, people)
        print(f"{people} people, misses at 95 %: {', '.join(f'{k} {v:.3f}' for k, v in rates.items())}")


if __name__ == "__main__":
    main()
