"""Several runs in one table: the same rows, a block each, and only what can be held together."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from dataset_builder.schema.taxonomy import load_taxonomy
from harness.record import read_record
from harness.tables import cell_text, escape_markdown
from tests.harness.runs import spread, write_deltas
from tests.support import call

HOSTILE = "<img src=x onerror=alert(1)>|$x_1$"
CELLS = {
    ("sunglasses", "WM"): spread(30, 0.3, 0.1),
    ("sunglasses", HOSTILE): spread(4, 0.2, 0.1, seed=2),
    ("smile", "WM"): spread(30, 0.1, 0.1, seed=3),
}
OTHER = {**CELLS, ("sunglasses", "WM"): CELLS["sunglasses", "WM"] + 0.5, ("smile", "BF"): spread(12, 0, 1)}
del OTHER["sunglasses", HOSTILE]
OTHER["sunglasses", "WM"][:3] = np.nan


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    return write_deltas(tmp_path / "before", CELLS), write_deltas(tmp_path / "after", OTHER)


def renamed(run: Path, name: str) -> None:
    data = json.loads((run / "record.json").read_text(encoding="utf-8"))
    data["targets"][0]["name"] = name
    (run / "record.json").write_text(json.dumps(data), encoding="utf-8")


def pipe_rows(markdown: str) -> list[list[str]]:
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[text.strip() for text in line.replace("\\|", "¦").strip("|").split("|")] for line in lines]


def test_every_cell_of_every_run_stands_in_its_block(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    result = call(capsys, "table", *runs, "--format", "markdown")
    assert result.status == 0
    head, _, *rows = pipe_rows(result.out)
    assert head[:3] == ["attribute", "concept", "group"]
    assert head[3:] == [
        "made (before): change", "made (before): pairs / identities",
        "made (after): change", "made (after): pairs / identities",
    ]  # fmt: skip
    by_key = {(row[0], row[2]): row[3:] for row in rows}
    assert len(by_key) == len(rows) == 4
    for place, run in enumerate(runs):
        for cell in read_record(run).cells:
            if not cell.n_pairs:
                continue
            shown = by_key[cell.attribute, escape_markdown(cell.group).replace("\\|", "¦")]
            assert shown[2 * place].replace("\\", "") == cell_text(cell)
            assert shown[2 * place + 1].startswith(f"{cell.n_pairs} / {cell.n_identities}")
    assert by_key["smile", "BF"][:2] == ["not asked", "—"]
    assert by_key["sunglasses", "WM"][3] == "27 / 27 (3 out)"


def test_it_says_what_it_is_no_test_of_and_that_the_pairs_are_the_same(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    text = call(capsys, "table", *runs).out
    assert "every run is over the same data" in text
    assert "no test of a difference between runs" in text
    data = json.loads((runs[1] / "record.json").read_text(encoding="utf-8"))
    data["data"] |= {"sha256": "f" * 64, "path": "others.csv"}
    (runs[1] / "record.json").write_text(json.dumps(data), encoding="utf-8")
    text = " ".join(call(capsys, "table", *runs).out.split())
    assert "the runs are over different data" in text
    assert "others.csv" in text
    assert "every run is over the same data" not in text


@pytest.mark.parametrize("style", ["markdown", "html", "latex", "terminal"])
def test_labels_stay_labels(style: str, runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    renamed(runs[0], HOSTILE)
    renamed(runs[1], "{{m^2}}")
    text = call(capsys, "table", *runs, "--format", style).out
    assert ("<img src" in text) == (style == "terminal")
    if style == "html":
        assert "&lt;img src=x onerror=alert(1)&gt;" in text
        assert "{{m^2}}" in text
        assert "<script" not in text
    if style == "latex":
        assert "\\{\\{m\\textasciicircum{}2\\}\\}" in text
        assert text.count("\\multicolumn{2}{c}") == 2


def test_csv_holds_every_cell_of_every_run(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = list(csv.DictReader(io.StringIO(call(capsys, "table", *runs, "--format", "csv").out)))
    texts = [(run / "tables" / "cells.csv").read_text(encoding="utf-8") for run in runs]
    own = [list(csv.DictReader(io.StringIO(text))) for text in texts]
    assert [row["run"] for row in rows] == ["made (before)"] * len(own[0]) + ["made (after)"] * len(own[1])
    for row, cell in zip(rows, [*own[0], *own[1]], strict=True):
        assert {name: row[name] for name in cell} == cell


def test_what_cannot_stand_side_by_side(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    level = write_deltas(tmp_path / "level", CELLS, level=0.95)
    known = {("smile", "WM"): CELLS["smile", "WM"]}
    taxonomy = write_deltas(tmp_path / "taxonomy", known, taxonomy=load_taxonomy("paper"))
    concept = write_deltas(tmp_path / "concept", CELLS, concept="shades")
    copy = tmp_path / "copy"
    shutil.copytree(runs[0], copy)
    data = json.loads((copy / "record.json").read_text(encoding="utf-8"))
    data["settings"]["method"] = "t"
    (copy / "record.json").write_text(json.dumps(data), encoding="utf-8")
    for other, words, status in (
        (level, "level differs (made (before) has 0.999; made (level) has 0.95)", 3),
        (taxonomy, "taxonomy_digest differs", 3),
        (copy, "method differs", 3),
        (concept, "share no row (attribute, concept)", 3),
        (runs[0] / "record.json", "once, got twice", 2),
        (tmp_path / "none", "no such record", 2),
    ):
        for style in ("markdown", *(["csv"] if "share no row" not in words else [])):
            result = call(capsys, "table", runs[0], other, "--format", style)
            assert (result.status, result.out) == (status, ""), words
            assert words in result.err
            assert result.err.count("\n") == 1


@pytest.mark.parametrize("option", ["--counts", "--differences", "--recognition", "--funnel"])
def test_other_tables_show_one_run(
    option: str, runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    result = call(capsys, "table", *runs, option)
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "give one run" in result.err


def test_rows_of_one_run_only_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write_deltas(tmp_path / "a", CELLS)
    second = write_deltas(tmp_path / "b", {("sunglasses", "WM"): CELLS["sunglasses", "WM"]})
    text = call(capsys, "table", first, second, "--format", "markdown").out
    assert "rows that only some runs have are left out: smile / sunglass" in text
    assert {row[0] for row in pipe_rows(text)[2:]} == {"sunglasses"}
