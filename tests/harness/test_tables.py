"""Tables say what the record says, in each way of writing, and labels stay labels."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from harness.record import read_record
from harness.tables import disparity_table, table_rows, two_digits
from harness.terminal import print_table
from tests.harness.test_audit_scores import row, scores
from tests.support import call, write_csv

HOSTILE = [
    "=1+1",
    "<img src=x onerror=alert(1)>",
    "a|b",
    "50% & $x_1$ \\input{x}",
    "[red]bold[/red]",
    "a\nb",
    "*a*",
]


def run(folder: Path, capsys: pytest.CaptureFixture[str], rows: list[tuple[object, ...]]) -> Path:
    table = scores(folder / "s.csv", rows)
    out = folder / "run"
    result = call(capsys, "audit", "--scores", table, "--out", out, "--max-failures", 1)
    assert result.status == 0, result.err
    return out


@given(st.floats(min_value=1e-6, max_value=1e8))
def test_two_significant_digits_without_an_exponent(value: float) -> None:
    text = two_digits(value)
    assert "e" not in text
    assert float(text) == float(f"{value:.2g}")
    assert two_digits(-value) == f"-{text}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0718, "0.072"),
        (0.3, "0.3"),
        (88.2, "88"),
        (1234.0, "1200"),
        (-0.005, "-0.005"),
        (0.0, "0"),
        (0.0999, "0.1"),
        (-9.3e-18, "-9.3e-18"),
    ],
)
def test_rounding_as_the_paper_prints(value: float, text: str) -> None:
    assert two_digits(value) == text


def test_every_format_shows_the_cells_with_their_marks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row(i, 0.5, 0.5 + 0.01 * i, identity=f"i{i}") for i in range(12)]
    rows += [row(20 + i, 0.2, 0.3, demographic="BF", identity=f"j{i}") for i in range(3)]
    rows += [row(30, 0.2, 0.6, demographic="AM"), row(31, 0.2, "", demographic="IF")]
    out = run(tmp_path, capsys, rows)
    record = json.loads((out / "record.json").read_text(encoding="utf-8"))
    cell = next(c for c in record["cells"] if c["group"] == "WM")
    shown = f"{two_digits(cell['delta'])} ± {two_digits(cell['ci']['high'] - cell['delta'])}"
    for style in ("terminal", "markdown", "latex"):
        text = call(capsys, "table", out, "--format", style).out
        assert shown in text
        assert "0.1 ==†" in text, "equal deltas are no certainty"
        assert "0.4 ?†" in text, "one identity has no interval"
        assert "—" in text
        assert "fewer than 10 identities" in text
        assert "no pair, face: smile (IF)" in text
    counts = call(capsys, "table", out, "--counts", "--format", "markdown").out
    assert "| 12 / 12 |" in counts
    assert "0 / 0 (1 out)" in counts


def test_csv_holds_every_cell_in_full(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(
        tmp_path, capsys, [row(i, 0.1, 0.1 + i / 7) for i in range(5)] + [row(9, "", 1, demographic="BF")]
    )
    record = json.loads((out / "record.json").read_text(encoding="utf-8"))
    text = call(capsys, "table", out, "--format", "csv").out
    assert text == (out / "tables" / "cells.csv").read_text(encoding="utf-8")
    lines = list(csv.DictReader(io.StringIO(text)))
    for line, cell in zip(lines, record["cells"], strict=True):
        assert (line["group"], line["status"]) == (cell["group"], cell["status"])
        assert int(line["n_pairs"]) == cell["n_pairs"]
        if cell["ci"] is None:
            assert line["ci_low"] == line["se"] == line["p"] == ""
        else:
            assert float(line["ci_low"]) == cell["ci"]["low"]
            assert float(line["se"]) == cell["se"]
    assert [line["excluded_missing_source"] for line in lines] == ["1", "0"]


@pytest.mark.parametrize("label", HOSTILE)
def test_labels_stay_labels(label: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(i, 0.1, 0.2 + i / 9, demographic=label, attribute=label, concept=label) for i in range(3)]
    out = run(tmp_path, capsys, rows)
    written = next(csv.DictReader(io.StringIO((out / "tables" / "cells.csv").read_text(encoding="utf-8"))))
    assert not written["attribute"].startswith("=")
    assert written["attribute"].lstrip("'") == label
    markdown = (out / "tables" / "deltas.md").read_text(encoding="utf-8")
    assert "<img" not in markdown
    tables = [line for line in markdown.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in tables} == {4}
    latex = (out / "tables" / "deltas.tex").read_text(encoding="utf-8")
    assert "\\input{" not in latex
    body = latex[latex.index("\\midrule") : latex.index("\\bottomrule")]
    assert body.replace("\\&", "").count("&") == 2
    terminal = call(capsys, "table", out).out
    assert label.split("\n")[0] in terminal


def test_many_concepts_need_a_choice_and_the_taxonomy_makes_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    concepts = ["sunglass", "face", *(f"c{i}" for i in range(15))]
    rows = [
        row(i, 0.1, 0.2 + i / 9, concept=concept, attribute="sunglasses")
        for i in range(3)
        for concept in concepts
    ]
    out = run(tmp_path, capsys, rows)
    markdown = call(capsys, "table", out, "--format", "markdown").out
    assert "sunglass " in markdown
    assert "c3" not in markdown
    assert "c3" in call(capsys, "table", out, "--concept", "c3").out
    result = call(capsys, "table", out, "--concept", "fase")
    assert (result.status, "did you mean 'face'?" in result.err) == (2, True)
    other = tmp_path / "other"
    other.mkdir()
    rows = [row(i, 0.1, 0.2, concept=f"c{j}", attribute="wink") for i in range(3) for j in range(15)]
    out = run(other, capsys, rows)
    result = call(capsys, "table", out, "--counts")
    assert result.status == 2
    assert "15 concepts: choose some with --concept NAME" in result.err
    shown = call(capsys, "table", out).out
    assert "--discover" in shown
    assert "│ wink" in shown


def test_a_printed_table_must_hold_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_text("attribute,concept,group,delta,half_width\na,c,WM,much,1\n", encoding="utf-8")
    result = call(capsys, "table", path)
    assert result.status == 2
    assert "must be numbers" in result.err


def test_digits_survive_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(tmp_path, capsys, [row(1, 1 / 3, 2 / 3), row(2, 1 / 7, 5 / 7)])
    (cell,) = json.loads((out / "record.json").read_text(encoding="utf-8"))["cells"]
    assert math.isclose(cell["delta"], ((2 / 3 - 1 / 3) + (5 / 7 - 1 / 7)) / 2, rel_tol=1e-15)


@pytest.mark.parametrize("columns", [200, 60])
@pytest.mark.parametrize("length", [5, 60, 300])
def test_a_terminal_cuts_no_number(
    columns: int, length: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = [f"group number {index}" for index in range(9)]
    rows = [
        row(f"{group}-{i}", 0.1, 0.2 + (i + index) / 97, demographic=group, attribute="a" * length)
        for index, group in enumerate(groups)
        for i in range(12)
    ]
    record = read_record(run(tmp_path, capsys, rows))
    table = disparity_table(record, table_rows(record, []))
    stream = io.StringIO()
    print_table(Console(file=stream, width=columns), table)
    shown = stream.getvalue()
    for group, text in zip(groups, table.rows[0][2], strict=True):
        assert group in shown
        assert text in shown
    assert shown.count("a" * min(length, 5)) >= 1
    lines = [line for line in shown.splitlines() if line.startswith(("│", "┃"))]
    assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("sign", ["\x1b[31m", "\r", "\x00", "\u2028", "\x85"])
@pytest.mark.parametrize("column", ["demographic", "attribute", "concept", "identity"])
def test_control_characters_are_refused_before_anything_is_written(
    sign: str, column: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = scores(tmp_path / "s.csv", [row(i, 0.1, 0.2, **{column: f"a{sign}b"}) for i in range(3)])
    result = call(capsys, "audit", "--scores", table, "--out", tmp_path / "run")
    assert result.status == 2
    assert f"holds the control character U+{ord(sign[0]):04X}" in result.err
    assert column in result.err
    assert result.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_tables_stand_apart_and_explain_the_marks_they_bear(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two axes share one interaction; a group without a pair has no mark; a title is no part of a list."""
    rng = np.random.default_rng(0)
    columns = ("pair_id", "identity", "variation", "demographic", "attribute", "concept", "source_score")
    rows = [
        (f"{attribute}{group}{i}", f"{group}{i}", 1, group, attribute, "face", 0.5, rng.normal(0.6, 0.1))
        for attribute in ("sunglasses", "facemask")
        for group in ("WM", "WF", "BM", "BF", "AF")
        for i in range(12)
        if (attribute, group) != ("facemask", "AF")
    ]
    table = write_csv(tmp_path / "scores.csv", (*columns, "transformed_score"), rows)
    asked = ("--by", "sex", "--by", "ethnicity", "--margin", "0.1")
    run = tmp_path / "run"
    shown = call(capsys, "audit", "--scores", table, "--out", run, *asked).out
    assert shown.count("Are differences by sex the same in all strata?") == 1
    own = call(capsys, "table", run, "--differences", "--by", "ethnicity").out
    assert "Are differences by sex the same in all strata?" in own
    card = call(capsys, "table", run, "--format", "model-card").out
    assert card.count("the difference by sex is not the same in all strata (interaction)") == 1
    for by in ("demographic", "sex", "ethnicity"):
        assert "†" not in call(capsys, "table", run, "--differences", "--by", by).out
    for extra in ((), ("--differences",)):
        text = call(capsys, "table", run, "--format", "markdown", *extra).out
        tokens = MarkdownIt("commonmark").enable("table").parse(text)
        titles = [(token.content, token.level) for token in tokens if "**" in token.content]
        assert len(titles) >= 2
        assert all(level == 1 for _, level in titles), "inside a list a paragraph lies deeper"
        assert len(titles) == text.count("\n**") + 1, "no title continues a list's last item"
