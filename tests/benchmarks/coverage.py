"""How often intervals and tests err: ``python -m tests.benchmarks.coverage --draws 100000 --out DIR``.

Scores are simulated, estimated by the package's own functions (a draw is a concept, so all draws of a design
are one call) and counted. Four tables are written as CSV, with a README.md that says what they show:

- intervals: the default interval on normal scores, clusters of 1 to 6 pairs, by ICC and identities G;
- skewed: the same on skewed scores, with how often the `skewed` flag is up;
- groups: the omnibus test and the simultaneous bands for eight equal groups;
- planted: a group with no extra delta, and one with an extra delta of the minimum detectable size.
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.stats.contrasts import pairwise
from harness.stats.groups import GroupMeans
from harness.stats.intervals import CellEstimates, cell_estimates
from harness.stats.omnibus import htz
from harness.stats.planning import detectable_ratio
from harness.stats.sandwich import Structure, satterthwaite_df

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Row = dict[str, object]

SEED = 20_260_101
CHUNK = 5_000
GROUPS = 8


def sizes_of(n_identities: int) -> Ints:
    """Return cluster sizes 1 to 6 in turn."""
    return np.arange(n_identities) % 6 + 1


def generators(design: object, draws: int) -> Iterator[tuple[np.random.Generator, int]]:
    """Yield a generator and a number of draws for each chunk of a design, named by its text."""
    entropy = [SEED, *str(design).encode()]
    for start, child in zip(
        range(0, draws, CHUNK), np.random.SeedSequence(entropy).spawn(-(-draws // CHUNK)), strict=True
    ):
        yield np.random.default_rng(child), min(CHUNK, draws - start)


def normal_deltas(rng: np.random.Generator, sizes: Ints, icc: float, draws: int) -> tuple[Floats, Ints]:
    """Return deltas of variance 1 around 0, shape (n, draws), and the clusters of the rows."""
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    person = rng.standard_normal((len(sizes), draws))[clusters]
    return np.sqrt(icc) * person + np.sqrt(1 - icc) * rng.standard_normal(person.shape), clusters


def skewed_deltas(rng: np.random.Generator, n_identities: int, skewness: float, draws: int) -> Floats:
    """Return standardised gamma deltas, one pair an identity, shape (n, draws)."""
    shape = 4.0 / skewness**2
    return (rng.standard_gamma(shape, size=(n_identities, draws)) - shape) / np.sqrt(shape)


def estimate(deltas: Floats, clusters: Ints, level: float, method: str = "cluster") -> CellEstimates:
    source = np.zeros_like(deltas)
    return cell_estimates(source, deltas, clusters, method=method, level=level)  # type: ignore[arg-type]


def misses(cell: CellEstimates, truth: float = 0.0) -> int:
    return int(((cell.low > truth) | (cell.high < truth)).sum())


def rate(count: int, draws: int) -> Row:
    """Return a rate and its Monte-Carlo standard error."""
    share = count / draws
    return {"rate": round(share, 6), "mc_se": round(float(np.sqrt(share * (1 - share) / draws)), 6)}


def interval_study(draws: int, level: float, counts: tuple[int, ...] = (10, 20, 40, 100)) -> list[Row]:
    """Miss rates of the default interval and of the paper's, normal scores."""
    rows = []
    for icc in (0.0, 0.5, 0.9):
        for g in counts:
            missed = {"cluster": 0, "t": 0}
            for rng, n in generators(("interval", icc, g), draws):
                deltas, clusters = normal_deltas(rng, sizes_of(g), icc, n)
                for method in missed:
                    missed[method] += misses(estimate(deltas, clusters, level, method))
            rows.extend(
                {"method": method, "icc": icc, "identities": g, "nominal": round(1 - level, 6)}
                | rate(count, draws)
                for method, count in missed.items()
            )
    return rows


def skewed_study(draws: int, level: float, counts: tuple[int, ...] = (10, 20, 40, 100, 400)) -> list[Row]:
    """Miss rates on skewed scores, and how often the flag is up (in all draws, and in those that miss)."""
    rows = []
    for skewness in (0.5, 1.0, 2.0, 3.0):
        for g in counts:
            missed = flagged = both = 0
            for rng, n in generators(("skewed", skewness, g), draws):
                cell = estimate(skewed_deltas(rng, g, skewness, n), np.arange(g), level)
                wrong = (cell.low > 0) | (cell.high < 0)
                missed += int(wrong.sum())
                flagged += int(cell.skewed.sum())
                both += int((wrong & cell.skewed).sum())
            rows.append(
                {"skewness": skewness, "identities": g, "nominal": round(1 - level, 6)}
                | rate(missed, draws)
                | {
                    "flagged_by_true_skewness": g < 100 * skewness**2,
                    "flagged_share": round(flagged / draws, 4),
                    "flagged_share_of_misses": round(both / max(missed, 1), 4),
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


def group_study(draws: int, designs: tuple[str, ...] = tuple(GROUP_DESIGNS), icc: float = 0.5) -> list[Row]:
    """Rejection rates of the omnibus test and family error of the bands, all groups equal."""
    rows = []
    for name in designs:
        counts = {(what, a): 0 for what in ("omnibus", "bands") for a in (0.05, 0.01, 0.001)}
        for rng, n in generators(("groups", name, icc), draws):
            cells = []
            for g, sd in zip(*GROUP_DESIGNS[name], strict=True):
                deltas, clusters = normal_deltas(rng, sizes_of(g), icc, n)
                cells.append(estimate(sd * deltas, clusters, 0.95))
            groups = GroupMeans.stack(cells)
            p = htz(groups).p
            for alpha in (0.05, 0.01, 0.001):
                bands = pairwise(groups, level=1 - alpha)
                counts["omnibus", alpha] += int((p < alpha).sum())
                outside = (bands.band_low > 0) | (bands.band_high < 0)
                counts["bands", alpha] += int(outside.any(axis=0).sum())
        rows.extend(
            {"what": what, "design": name, "icc": icc, "nominal": alpha} | rate(count, draws)
            for (what, alpha), count in counts.items()
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


def write_table(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def markdown(rows: list[Row]) -> str:
    heads = list(rows[0])
    lines = [heads, ["---"] * len(heads), *([str(row[head]) for head in heads] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


README = """# Coverage of the intervals and tests

Made by `python -m tests.benchmarks.coverage --draws {draws} --out {out}` (seed {seed}); every number comes
from the package's own functions on simulated scores. `rate` is the share of {draws:,} draws that err (or, for
planted effects, that find something); `mc_se` is its Monte-Carlo standard error.

## Default interval and the paper's, normal scores, 1 to 6 pairs an identity, nominal .001

The default (`cluster`) misses between {low:.3%} and {high:.3%}; the paper's (`t`), which takes pairs as
independent, up to {paper:.1%}.

{intervals}

## Skewed scores (gamma), one pair an identity, nominal .001

`flagged_by_true_skewness` is the rule "identities < 100 g^2" with the true skewness g; the two shares are the
rule with the skewness of the sample, which is what a user sees.

{skewed}

## Eight equal groups: HTZ omnibus test and Games-Howell bands, ICC .5

{groups}

## Planted effects, ICC .5

Nothing planted: how often something is found. Detectable: the extra delta is the minimum detectable effect
for power .8, computed from the true standard error and the Satterthwaite df.

{planted}
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path("results/coverage"))
    settings = parser.parse_args()
    settings.out.mkdir(parents=True, exist_ok=True)
    tables = {
        "intervals": interval_study(settings.draws, 0.999),
        "skewed": skewed_study(settings.draws, 0.999),
        "groups": group_study(settings.draws),
        "planted": planted_study(settings.draws),
    }
    for name, rows in tables.items():
        write_table(settings.out / f"{name}.csv", rows)
    text = {name: markdown(rows) for name, rows in tables.items()}
    missed = {
        m: [float(str(r["rate"])) for r in tables["intervals"] if r["method"] == m] for m in ("cluster", "t")
    }
    page = README.format(
        draws=settings.draws,
        out=settings.out,
        seed=SEED,
        low=min(missed["cluster"]),
        high=max(missed["cluster"]),
        paper=max(missed["t"]),
        **text,
    )
    (settings.out / "README.md").write_text(page)


if __name__ == "__main__":
    main()
