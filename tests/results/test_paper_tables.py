"""The paper's printed tables as data: complete, and with the slips that results/paper names."""

from __future__ import annotations

import csv
import re

import pytest

from tests.support import ROOT, SHARED, call

PAPER = ROOT / "results" / "paper"


def rows(name: str) -> list[dict[str, str]]:
    with (PAPER / name).open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_table_2_sums_as_the_readme_says() -> None:
    cells = {
        (row["attribute"], row["group"]): (int(row["validated"]), int(row["surveyed"]))
        for row in rows("table2.csv")
    }
    assert len(cells) == 152
    assert (sum(v for v, _ in cells.values()), sum(n for _, n in cells.values())) == (564, 751)
    low = {key for key, (validated, surveyed) in cells.items() if 2 * validated < surveyed}
    assert len(low) == 23
    rest = [cells[key] for key in cells.keys() - low]
    assert (sum(v for v, _ in rest), sum(n for _, n in rest)) == (537, 638)
    assert round(100 * 537 / 638, 1) == 84.2
    printed = {(row["attribute"], row["group"]) for row in rows("table3.csv")}
    assert len(printed & low) == 13
    # The text's own numbers: buzz_cut IM read as 1 of 5 while the total stays 751.
    cells["buzz_cut", "IM"] = (1, 5)
    low = {key for key, (validated, surveyed) in cells.items() if 2 * validated < surveyed}
    dropped = [cells[key] for key in low]
    assert len(low) == 24
    assert (564 - sum(v for v, _ in dropped), 751 - sum(n for _, n in dropped)) == (536, 633)


def test_table_3_prints_every_cell_as_the_paper_does(capsys: pytest.CaptureFixture[str]) -> None:
    markdown = call(capsys, "table", PAPER / "table3.csv", "--format", "markdown").out
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    cells = [[text.strip().replace("\\_", "_") for text in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["attribute", "concept", *["AM", "AF", "BM", "BF", "IM", "IF", "WM", "WF"]]
    printed = cells[2:]
    assert len(printed) == 8
    if not SHARED.exists():
        pytest.skip(f"the paper's text is not beside this checkout: {SHARED}")
    text = (SHARED / "paper.md").read_text(encoding="utf-8")
    paper = [line.split("\t") for line in text.splitlines() if line.count(" ± ") == 8]
    assert printed == paper


def test_table_3_as_latex_is_balanced_booktabs(capsys: pytest.CaptureFixture[str]) -> None:
    latex = call(capsys, "table", PAPER / "table3.csv", "--format", "latex").out
    for rule in ("toprule", "midrule", "bottomrule"):
        assert latex.count(f"\\{rule}") == 1
    opened, closed = re.findall(r"\\begin\{(\w+\*?)\}", latex), re.findall(r"\\end\{(\w+\*?)\}", latex)
    assert sorted(opened) == sorted(closed)
    body = [line for line in latex.splitlines() if line.rstrip().endswith("\\\\")]
    assert {line.replace("\\&", "").count("&") for line in body} == {9}
    assert "shoulder\\_hair & hair\\_long" in latex
    assert "0.12 ± 88" in latex


def test_table_4() -> None:
    assert [(r["attribute"], r["shots"], r["matching"], r["pairs"]) for r in rows("table4.csv")] == [
        ("shoulder_hair", "2", "2", "7"),
        ("shoulder_hair", "4", "3", "7"),
        ("pigtails", "2", "2", "2"),
        ("pigtails", "4", "2", "2"),
        ("buzz_cut", "2", "1", "5"),
        ("buzz_cut", "4", "2", "5"),
    ]
