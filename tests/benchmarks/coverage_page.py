"""The page and the tables of the coverage study, with a list of where it fails."""

import csv
from pathlib import Path

Row = dict[str, object]


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

Made by `python -m tests.benchmarks.coverage --draws {draws} --out {out}` (seed {seed}).
Every number comes from the package's own functions on simulated scores. `rate` is the share of {draws:,}
draws (of the bootstrap {bootstraps:,}, of families {families:,}) that err or, for planted effects, that find
something; `mc_se` is its Monte-Carlo standard error.

## Where it fails

{fails}

## Default interval and the paper's, normal scores, 1 to 6 pairs an identity

The paper's (`t`) takes pairs as independent.

{intervals}

## Skewed scores, one pair an identity

`rate` is that of the bounds as shipped: CR2-t, and for a sample with the `skewed` flag (`flagged_share`) on
each side the wider of that and Hall's. `by_t_alone`: what CR2-t alone misses. `no_interval`: all scores were
the same.

{skewed}

## Bootstrap, one pair an identity

`rule`: what `--ci bootstrap` does at so many identities; `rule_takes`: the miss rate for normal scores that
it goes by; `skewed_share`: samples that bear the `skewed` flag, all that is done about skewness.

{bootstrap}

## Do eight equal groups differ? One row, 1 to 6 pairs an identity, ICC .5

Games-Howell (the smallest simultaneous p of the pairs) decides; HTZ stays in the record and decides nothing.

{groups}

## Families of 36 rows, Holm

Eight equal groups, 1 to 6 pairs an identity, ICC .5; `rate`: families with a rejection.
`rows_flagged_skewed`: rows of which a cell bears the `skewed` flag.

{families_table}

## Planted effects, ICC .5

Nothing planted: how often something is found. Detectable: the extra delta is the minimum detectable effect
for power .8, computed from the true standard error and the Satterthwaite df, by the t test. Normal samples
that bear the `skewed` flag by chance have wider bounds, which costs power where identities are few.

{planted}
"""
_TIMES = 1.5


def failures(rows: list[Row], names: tuple[str, ...]) -> str:
    """Say which rows err more than one and a half times as often as they say, beyond chance."""
    bad = [
        row
        for row in rows
        if float(str(row["rate"])) - 3 * float(str(row["mc_se"])) > _TIMES * float(str(row["nominal"]))
    ]
    if not bad:
        return " nowhere"
    return "".join(
        f"\n  - {', '.join(str(row[name]) for name in names)}: {float(str(row['rate'])):.2%} "
        f"at {float(str(row['nominal'])):.1%}"
        for row in bad
    )


def in_words(tables: dict[str, list[Row]]) -> str:
    """Where a rate lies more than three Monte-Carlo errors beyond one and a half times the nominal one."""
    own = [row for row in tables["intervals"] if row["method"] == "cluster"]
    shown = [row for row in tables["bootstrap"] if row["rule"] == "shown"]
    flagged = [row for row in tables["bootstrap"] if row["rule"] == "flagged"]
    decided = {
        name: [row for row in tables[name] if row["what"] == "games-howell"]
        for name in ("groups", "families")
    }
    people = ("scores", "identities")
    return "\n".join(
        (
            "Rates more than three Monte-Carlo errors beyond one and a half times the nominal one:",
            "",
            f"- default interval, normal scores:{failures(own, ('icc', 'identities'))}",
            f"- default interval, skewed scores:{failures(tables['skewed'], people)}",
            f"- bootstrap with neither refusal nor flag of its own:{failures(shown, people)}",
            f"- bootstrap with the flag `bootstrap_misses`:{failures(flagged, people)}",
            f"- one row of eight groups:{failures(decided['groups'], ('design',))}",
            f"- 36 rows of eight groups:{failures(decided['families'], ('design',))}",
            "",
            "A bootstrap interval is not corrected for skewness, of which only its `skewed` flag warns.",
            "The `skewed` flag follows the sample's skewness, which small samples understate: with few",
            "identities of skewed scores it is missing from the samples that need it most. No method that",
            "was tried holds for groups that are skewed and unequal in size and spread at once; their rows",
            "bear the flag.",
        )
    )
