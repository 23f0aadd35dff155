"""How often intervals and tests err: ``python -m tests.benchmarks.coverage --draws 100000 --out DIR``.

Scores are simulated, estimated by the package's own functions (a draw is a concept, so all draws of a design
are one call) and counted. Tables are written as CSV, with a README.md that says what they show:

- intervals: the default interval on normal scores, clusters of 1 to 6 pairs, by ICC and identities G;
- skewed: the same on skewed scores, as shipped and by CR2-t alone;
- bootstrap: the percentile interval where it is refused, flagged and neither;
- groups: the test that decides whether eight equal groups differ, and HTZ beside it;
- families: the same over 36 rows with Holm;
- planted: a group with no extra delta, and one with an extra delta of the minimum detectable size.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from harness.stats.bootstrap import misses_often, normal_miss_rate, percentile_interval, refusal
from harness.stats.contrasts import pairwise
from harness.stats.groups import GroupMeans
from harness.stats.intervals import CellEstimates, cell_estimates
from harness.stats.omnibus import games_howell, htz
from harness.stats.planning import detectable_ratio
from harness.stats.sandwich import Structure, satterthwaite_df
from tests.benchmarks.coverage_page import README, Row, in_words, markdown, write_table

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SEED = 20_260_101
CHUNK = 5_000
GROUPS = 8


def sizes_of(n_identities: int) -> Ints:
    """Return cluster sizes 1 to 6 in turn."""
    return np.arange(n_identities) % 6 + 1


def generators(design: object, draws: int, chunk: int = CHUNK) -> Iterator[tuple[np.random.Generator, int]]:
    """Yield a generator and a number of draws for each chunk of a design, named by its text."""
    entropy = [SEED, *str(design).encode()]
    for start, child in zip(
        range(0, draws, chunk), np.random.SeedSequence(entropy).spawn(-(-draws // chunk)), strict=True
    ):
        yield np.random.default_rng(child), min(chunk, draws - start)


def normal_deltas(rng: np.random.Generator, sizes: Ints, icc: float, draws: int) -> tuple[Floats, Ints]:
    """Return deltas of variance 1 around 0, shape (n, draws), and the clusters of the rows."""
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    person = rng.standard_normal((len(sizes), draws))[clusters]
    return np.sqrt(icc) * person + np.sqrt(1 - icc) * rng.standard_normal(person.shape), clusters


def estimate(deltas: Floats, clusters: Ints, level: float, method: str = "cluster") -> CellEstimates:
    source = np.zeros_like(deltas)
    return cell_estimates(source, deltas, clusters, method=method, level=level)  # type: ignore[arg-type]


def misses(cell: CellEstimates, truth: float = 0.0) -> int:
    return int(((cell.low > truth) | (cell.high < truth)).sum())


def rate(count: int, draws: int) -> Row:
    """Return a rate and its Monte-Carlo standard error."""
    share = count / draws
    return {"rate": round(share, 6), "mc_se": round(float(np.sqrt(share * (1 - share) / draws)), 6)}


def interval_study(
    draws: int, levels: tuple[float, ...] = (0.95, 0.999), counts: tuple[int, ...] = (10, 20, 40, 100)
) -> list[Row]:
    """Miss rates of the default interval and of the paper's, normal scores."""
    rows: list[Row] = []
    for icc in (0.0, 0.5, 0.9):
        for g in counts:
            missed = {(method, level): 0 for method in ("cluster", "t") for level in levels}
            for rng, n in generators(("interval", icc, g), draws):
                deltas, clusters = normal_deltas(rng, sizes_of(g), icc, n)
                for method, level in missed:
                    missed[method, level] += misses(estimate(deltas, clusters, level, method))
            rows.extend(
                {"method": method, "icc": icc, "identities": g, "nominal": round(1 - level, 6)}
                | rate(count, draws)
                for (method, level), count in missed.items()
            )
    return rows


def gamma_deltas(rng: np.random.Generator, shape: tuple[int, int], skewness: float) -> Floats:
    k = 4.0 / skewness**2
    return np.asarray((rng.standard_gamma(k, size=shape) - k) / np.sqrt(k))


def ceiling_deltas(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return scores cut off at a ceiling that 84 % reach, less their mean."""
    return np.minimum(rng.standard_normal(shape) + 1.0, 0.0) + float(stats.norm.pdf(1) - stats.norm.sf(1))


def lognormal_deltas(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return np.asarray(rng.lognormal(size=shape) - np.exp(0.5))


def coin_deltas(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return 0/1 scores of which a tenth are 1, less their mean."""
    return (rng.random(shape) < 0.1) - 0.1


def normal_singles(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.standard_normal(shape)


def exponential_deltas(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return gamma_deltas(rng, shape, 2.0)


Sampler = Callable[[np.random.Generator, tuple[int, int]], Floats]
SCORES: dict[str, Sampler] = {
    "normal": normal_singles,
    "gamma, skewness 0.5": partial(gamma_deltas, skewness=0.5),
    "gamma, skewness 1": partial(gamma_deltas, skewness=1.0),
    "exponential, skewness 2": exponential_deltas,
    "gamma, skewness 3": partial(gamma_deltas, skewness=3.0),
    "lognormal, skewness 6": lognormal_deltas,
    "ceiling": ceiling_deltas,
    "0/1 at .1": coin_deltas,
}


def skewed_study(
    draws: int,
    levels: tuple[float, ...] = (0.95, 0.999),
    counts: tuple[int, ...] = (10, 20, 40, 100, 400),
    scores: tuple[str, ...] = tuple(SCORES),
) -> list[Row]:
    """Miss rates on skewed scores, as shipped and by CR2-t alone; how many samples bear the flag."""
    rows: list[Row] = []
    for name in scores:
        for g in counts:
            counted = {(what, level): 0 for what in ("shipped", "t", "skewed", "ok") for level in levels}
            for rng, n in generators(("skewed", name, g), draws):
                deltas = SCORES[name](rng, (g, n))
                for level in levels:
                    cell = estimate(deltas, np.arange(g), level)
                    by_t = stats.t.ppf(0.5 + level / 2, g - 1) * cell.se
                    ok = cell.status == "ok"
                    counted["shipped", level] += misses(cell)
                    counted["t", level] += int((ok & (np.abs(cell.delta) > by_t)).sum())
                    counted["skewed", level] += int(cell.skewed.sum())
                    counted["ok", level] += int(ok.sum())
            rows.extend(
                {"scores": name, "identities": g, "nominal": round(1 - level, 6)}
                | rate(counted["shipped", level], draws)
                | {
                    "by_t_alone": round(counted["t", level] / draws, 6),
                    "flagged_share": round(counted["skewed", level] / draws, 4),
                    "no_interval": round(1 - counted["ok", level] / draws, 4),
                }
                for level in levels
            )
    return rows


BOOTSTRAPS: dict[float, tuple[int, tuple[int, ...]]] = {
    0.95: (2_000, (5, 10, 20, 40, 60, 100)),
    0.99: (2_000, (10, 20, 40, 100)),
    0.999: (20_000, (20, 60, 250)),
}


def bootstrap_study(draws: int, designs: dict[float, tuple[int, tuple[int, ...]]] = BOOTSTRAPS) -> list[Row]:
    """Miss rates of the percentile interval where it is refused, flagged and neither."""
    rows: list[Row] = []
    for level, (resamples, counts) in designs.items():
        for name in ("normal", "exponential, skewness 2"):
            for g in counts:
                missed = flagged = 0
                for rng, n in generators(("bootstrap", level, name, g), draws):
                    deltas = SCORES[name](rng, (g, n))
                    mean = deltas.mean(axis=0)
                    sizes = np.ones(g, dtype=np.int64)
                    seed = int(rng.integers(2**31))
                    found = percentile_interval(
                        deltas - mean, sizes, mean, level=level, draws=resamples, seed=seed
                    )
                    missed += int(((found.low > 0) | (found.high < 0)).sum())
                    flagged += int(estimate(deltas, np.arange(g), level).skewed.sum())
                why = refusal(g, resamples, level)
                rows.append(
                    {"scores": name, "identities": g, "nominal": round(1 - level, 6)}
                    | rate(missed, draws)
                    | {
                        "rule": "refused" if why else "flagged" if misses_often(g, level) else "shown",
                        "rule_takes": round(normal_miss_rate(g, level), 6),
                        "skewed_share": round(flagged / draws, 4),
                    }
                )
    return rows


GROUP_DESIGNS: dict[str, tuple[list[int], list[float]]] = {
    "10 identities each": ([10] * GROUPS, [1.0] * GROUPS),
    "20 identities each": ([20] * GROUPS, [1.0] * GROUPS),
    "40 identities each": ([40] * GROUPS, [1.0] * GROUPS),
    "100 identities each": ([100] * GROUPS, [1.0] * GROUPS),
    "20 to 60 identities, sd 1 to 3": ([60, 50, 40, 40, 30, 30, 20, 20], [1, 3, 1, 2, 1, 2, 1, 3]),
    "10 to 60 identities, sd 1 to 3": ([60, 50, 40, 30, 20, 15, 10, 10], [1, 1, 1, 2, 2, 2, 3, 3]),
}
ALPHAS = (0.05, 0.01, 0.001)


def group_study(draws: int, designs: tuple[str, ...] = tuple(GROUP_DESIGNS), icc: float = 0.5) -> list[Row]:
    """How often a row of equal groups is rejected: by Games-Howell, which decides, and by HTZ."""
    rows: list[Row] = []
    for name in designs:
        counts = {(what, a): 0 for what in ("games-howell", "htz") for a in ALPHAS}
        for rng, n in generators(("groups", name, icc), draws):
            cells = []
            for g, sd in zip(*GROUP_DESIGNS[name], strict=True):
                deltas, clusters = normal_deltas(rng, sizes_of(g), icc, n)
                cells.append(estimate(sd * deltas, clusters, 0.95))
            for what, p in row_tests(cells).items():
                for alpha in ALPHAS:
                    counts[what, alpha] += int((p <= alpha).sum())
        rows.extend(
            {"what": what, "design": name, "icc": icc, "nominal": alpha} | rate(count, draws)
            for (what, alpha), count in counts.items()
        )
    return rows


def row_tests(cells: list[CellEstimates]) -> dict[str, Floats]:
    """Return the p values of each row's tests, shape (draws,)."""
    groups = GroupMeans.stack(cells)
    return {"games-howell": games_howell(groups, pairwise(groups, level=0.95)).p, "htz": htz(groups).p}


def correlated(sampler: Sampler, rng: np.random.Generator, sizes: Ints, draws: int) -> tuple[Floats, Ints]:
    """Return deltas with an intraclass correlation of .5, shape (n, draws), and the clusters of the rows."""
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    person = sampler(rng, (len(sizes), draws))[clusters]
    single = sampler(rng, person.shape)
    if sampler is coin_deltas:
        return np.where(rng.random(person.shape) < np.sqrt(0.5), person, single), clusters
    return np.sqrt(0.5) * (person + single), clusters


FAMILY = 36
UNEQUAL, SPREAD = GROUP_DESIGNS["10 to 60 identities, sd 1 to 3"]
FAMILIES: dict[str, tuple[Sampler, list[int], list[float]]] = {
    "normal, 40 each": (normal_singles, [40] * GROUPS, [1.0] * GROUPS),
    "normal, 10 each": (normal_singles, [10] * GROUPS, [1.0] * GROUPS),
    "normal, 10 to 60, sd 1 to 3": (normal_singles, UNEQUAL, SPREAD),
    "0/1 at .1, 40 each": (coin_deltas, [40] * GROUPS, [1.0] * GROUPS),
    "exponential, 40 each": (exponential_deltas, [40] * GROUPS, [1.0] * GROUPS),
    "0/1 at .1, 10 to 60": (coin_deltas, UNEQUAL, [1.0] * GROUPS),
    "exponential, 10 to 60": (exponential_deltas, UNEQUAL, [1.0] * GROUPS),
    "exponential, 10 to 60, sd 1 to 3": (exponential_deltas, UNEQUAL, SPREAD),
}


def family_study(families: int, designs: tuple[str, ...] = tuple(FAMILIES)) -> list[Row]:
    """Family error of 36 rows of eight equal groups with Holm, and how many rows bear the flag."""
    rows: list[Row] = []
    for name in designs:
        sampler, counts, spreads = FAMILIES[name]
        found = {(what, a): 0 for what in ("games-howell", "htz") for a in ALPHAS}
        flagged = 0
        # A chunk holds whole families.
        for rng, n in generators(("families", name), families, CHUNK // FAMILY):
            cells = []
            for g, sd in zip(counts, spreads, strict=True):
                deltas, clusters = correlated(sampler, rng, sizes_of(g), n * FAMILY)
                cells.append(estimate(sd * deltas, clusters, 0.95))
            flagged += int(np.any([cell.skewed for cell in cells], axis=0).sum())
            for what, p in row_tests(cells).items():
                # Holm rejects something where its smallest p, times the size of the family, is at most alpha.
                least = FAMILY * np.nan_to_num(p, nan=1.0).reshape(n, FAMILY).min(axis=1)
                for alpha in ALPHAS:
                    found[what, alpha] += int((least <= alpha).sum())
        rows.extend(
            {"what": what, "design": name, "rows": FAMILY, "nominal": alpha}
            | rate(count, families)
            | {"rows_flagged_skewed": round(flagged / families / FAMILY, 4)}
            for (what, alpha), count in found.items()
        )
    return rows


def true_se(sizes: Ints, icc: float) -> float:
    """Return the standard error of the mean of `normal_deltas`."""
    return float(np.sqrt((sizes * (1 + (sizes - 1) * icc)).sum()) / sizes.sum())


def planted_study(
    draws: int, levels: tuple[float, ...] = (0.95, 0.999), counts: tuple[int, ...] = (10, 20, 40, 100)
) -> list[Row]:
    """How often an extra delta of the detectable size is found in a cell and between two groups."""
    rows = []
    for level in levels:
        for g in counts:
            sizes, icc = sizes_of(g), 0.5
            df = satterthwaite_df(Structure.of(np.repeat(np.arange(g), sizes)))
            cell_extra = detectable_ratio(df, level) * true_se(sizes, icc)
            pair_extra = detectable_ratio(2 * df, level) * np.sqrt(2) * true_se(sizes, icc)
            found = dict.fromkeys([("cell", 0), ("cell", 1), ("difference", 0), ("difference", 1)], 0)
            for rng, n in generators(("planted", level, g), draws):
                (a, clusters), (b, _) = (normal_deltas(rng, sizes, icc, n) for _ in range(2))
                for planted in (0, 1):
                    cell = estimate(a + planted * cell_extra, clusters, level)
                    found["cell", planted] += int((cell.p < 1 - level).sum())
                    pair = [estimate(a + planted * pair_extra, clusters, level), estimate(b, clusters, level)]
                    p = pairwise(GroupMeans.stack(pair), level=level).p
                    found["difference", planted] += int((p < 1 - level).sum())
            rows.extend(
                {
                    "what": what,
                    "level": level,
                    "identities": g,
                    "icc": icc,
                    "planted": "detectable" if planted else "nothing",
                    "expected": 0.8 if planted else round(1 - level, 6),
                }
                | rate(count, draws)
                for (what, planted), count in found.items()
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=40_000)
    parser.add_argument("--out", type=Path, default=Path("results/coverage"))
    settings = parser.parse_args()
    settings.out.mkdir(parents=True, exist_ok=True)
    draws = settings.draws
    bootstraps, families = max(draws // 5, 1), max(draws // 40, 1)
    studies: dict[str, Callable[[], list[Row]]] = {
        "intervals": partial(interval_study, draws),
        "skewed": partial(skewed_study, draws),
        "bootstrap": partial(bootstrap_study, bootstraps),
        "groups": partial(group_study, draws),
        "families": partial(family_study, families),
        "planted": partial(planted_study, draws),
    }
    tables: dict[str, list[Row]] = {}
    for name, study in studies.items():
        tables[name] = study()
        write_table(settings.out / f"{name}.csv", tables[name])
        print(f"{name}: {len(tables[name])} rows", flush=True)
    text = {name: markdown(rows) for name, rows in tables.items()}
    page = README.format(
        draws=draws,
        out=settings.out,
        seed=SEED,
        bootstraps=bootstraps,
        families=families,
        fails=in_words(tables),
        families_table=text.pop("families"),
        **text,
    )
    (settings.out / "README.md").write_text(page)


if __name__ == "__main__":
    main()
