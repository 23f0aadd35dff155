"""A record that contradicts itself or its pairs is refused in one line by everything that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.harness.runs import spread, write_deltas
from tests.support import Result, call, drawn_pairs, write_csv

CELLS = {("glasses", group): spread(12, 0.1, 0.05, seed) for seed, group in enumerate(("WM", "BF"))}
POLICY = """
[[rule]]
metric = "delta"
attribute = "glasses"
concept = "sunglass"
harmful = "both"
margin = 0.4
"""
Change = Callable[[dict[str, Any]], object]


def cell(**values: object) -> Change:
    return lambda record: record["cells"][0].update(values)


CHANGES: dict[str, tuple[Change, str]] = {
    "se": (cell(se=-0.01), "'cells.0.se' must not be negative, got -0.01"),
    "df": (cell(df=-1), "'cells.0.df' must not be negative"),
    "low above high": (lambda r: r["cells"][0]["ci"].update(low=0.9), "'cells.0.ci': low 0.9 is above high"),
    "method": (lambda r: r["cells"][0]["ci"].update(method="magic"), "'cells.0.ci.method' must be one of"),
    "settings": (lambda r: r["settings"].update(method="magic"), "'settings.method' must be one of t,"),
    "twice": (lambda r: r["cells"].append(r["cells"][0]), "'cells' holds ('made', 'demographic', 'glasses'"),
    "row twice": (lambda r: r["rows"].append(r["rows"][0]), "'rows' holds"),
    "group": (cell(group="XX"), "'groups' of the record does not hold 'XX'"),
    "concept": (cell(concept="XX"), "'concepts' of the record does not hold 'XX'"),
    "delta": (cell(delta=0.5), "delta 0.5 is not mean_transformed - mean_source"),
    "means": (cell(mean_source=None), "delta needs pairs and both means"),
    "identities": (cell(n_identities=13), "13 identities, 12 pairs of 24 can't be"),
    "p": (cell(p=0.5, p_adjusted=0.01), "p_adjusted 0.01 is below p 0.5"),
    "pairs": (cell(n_pairs=14), "has 14 pairs in one and 12 in the other"),
    "difference": (
        lambda r: r["disparities"][0]["pairwise"][0].update(se=-1),
        "'disparities.0.pairwise.0.se' must not be negative",
    ),
    "band": (
        lambda r: r["disparities"][0]["pairwise"][0]["band"].update(high=-9),
        "'disparities.0.pairwise.0.band': low",
    ),
}  # fmt: skip


def read_by(command: str, run: Path, capsys: pytest.CaptureFixture[str]) -> Result:
    other = run.with_name("other")
    if command in ("compare", "gate", "side by side"):
        write_deltas(other, CELLS, score_range=(0, 1))
    (run.parent / "p.toml").write_text(POLICY, encoding="utf-8")
    words = {
        "table": ("table", run),
        "side by side": ("table", run, other),
        "report": ("report", run),
        "compare": ("compare", other, run),
        "gate": ("gate", run, "--baseline", other, "--policy", run.parent / "p.toml"),
    }
    return call(capsys, *words[command])


@pytest.mark.parametrize("command", ["table", "gate"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_record_that_was_edited(
    name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_deltas(tmp_path / "run", CELLS, score_range=(0, 1))
    change, words = CHANGES[name]
    record = json.loads((run / "record.json").read_text(encoding="utf-8"))
    change(record)
    (run / "record.json").write_text(json.dumps(record), encoding="utf-8")
    done = read_by(command, run, capsys)
    assert (done.status, words in done.err, done.err.count("\n")) == (2, True, 1), done.err


@pytest.mark.parametrize("command", ["table", "side by side", "report", "compare", "gate"])
@pytest.mark.parametrize("part", ["record", "pairs"])
def test_everything_that_reads_runs_refuses(
    command: str, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_deltas(tmp_path / "run", CELLS, score_range=(0, 1))
    if part == "record":
        text = (run / "record.json").read_text(encoding="utf-8")
        (run / "record.json").write_text(text.replace('"se": 0', '"se": -0', 1), encoding="utf-8")
    else:
        table = pq.read_table(run / "pairs.parquet")
        lost = pa.array([None, *table.column("source:sunglass").to_pylist()[1:]], pa.float64())
        at = table.column_names.index("source:sunglass")
        pq.write_table(table.set_column(at, "source:sunglass", lost), run / "pairs.parquet")
    done = read_by(command, run, capsys)
    words = "must not be negative" if part == "record" else "has 12 pairs in one and 11 in the other"
    assert (done.status, words in done.err, done.err.count("\n")) == (2, True, 1), done.err


@pytest.mark.parametrize("value", ["1.1", "-1.1", "-250"])
def test_comparisons_beyond_the_scale(value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = drawn_pairs(tmp_path, ("WM",))
    table = write_csv(
        tmp_path / "c.csv", ("first", "second", "similarity"), [("a", "b", 0.5), ("a", "c", value)]
    )
    more = ("--target", f"captured-comparisons:{table}", "--set", "scale=1", "--out", tmp_path / "run")
    done = call(capsys, "audit", pairs, *more)
    words = f"row 3: a similarity must be at {'least minus' if value[0] == '-' else 'most'} scale=1"
    assert (done.status, words in done.err) == (2, True), done.err


def test_sound_records_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = {**CELLS, ("glasses", "AM"): np.full(3, np.nan), ("hat", "WM"): [0.1, np.nan, 0.1]}
    assert read_by("table", write_deltas(tmp_path / "run", lost, score_range=(0, 1)), capsys).status == 0
