"""LaTeX that a real TeX compiles without an overfull line, and HTML that stays text."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness.test_audit_scores import row, scores
from tests.support import ROOT, call

HOSTILE = (
    "50% & $x_1$ # { } ~ ^ \\input{x}",
    "<img src=x onerror=alert(1)>",
    "[red]*bold*[/red]",
    '*a*|b -- `c\' "d"',
    "{{m^2}} }{ \\end{tabular*}",
    "Zoë Çelik Łódź ± §¶",
    "a\n\nb\tc",
    "*star* -- ěščřžýáíé őű ğ İ ż",
)
OTHER_SCRIPTS = "東アジア Ж नमस्ते 🙂"
SHIPPED = sorted((ROOT / "results").glob("**/*.tex"))
ENGINES = {"pdflatex": "texlive-latex-recommended", "lualatex": "texlive-latex-recommended"}


def audited(folder: Path, capsys: pytest.CaptureFixture[str], labels: tuple[str, ...]) -> Path:
    rows = [
        row(f"{place}-{i}", 0.1, 0.2 + i / 90, identity=f"i{i}", demographic=label, attribute=label)
        for place, label in enumerate(labels)
        for i in range(12)
    ]
    out = folder / "run"
    result = call(capsys, "audit", "--scores", scores(folder / "s.csv", rows), "--out", out)
    assert result.status == 0, result.err
    return out


def compiled(table: str, folder: Path, engine: str = "pdflatex") -> tuple[str, Path]:
    """Set a table in a document with no more than its first lines ask for: the log and the PDF."""
    if shutil.which(engine) is None:
        pytest.skip(f"no {engine} on this machine (Debian: {ENGINES[engine]})")
    needs = re.findall(r"^% needs: (\\usepackage\{[a-z,]+\})$", table, flags=re.MULTILINE)
    assert len(needs) == 1
    lines = ["\\documentclass{article}", *needs, "\\begin{document}", table, "\\end{document}"]
    (folder / "table.tex").write_text("\n".join(lines), encoding="utf-8")
    done = subprocess.run(
        [engine, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "table.tex"],
        cwd=folder, capture_output=True, check=False,
    )  # fmt: skip
    log = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, log[-3000:]
    return log, folder / "table.pdf"


def pdf_text(path: Path) -> str:
    if shutil.which("pdftotext") is None:
        pytest.skip("no pdftotext on this machine (Debian: poppler-utils)")
    done = subprocess.run(["pdftotext", "-layout", path, "-"], capture_output=True, check=True)
    return done.stdout.decode("utf-8")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(ROOT / "results")))
def test_shipped_tables_compile_and_fit(path: Path, tmp_path: Path) -> None:
    log, _ = compiled(path.read_text(encoding="utf-8"), tmp_path)
    assert "Overfull" not in log


def test_there_are_shipped_tables() -> None:
    assert len(SHIPPED) >= 2


def test_the_papers_table_compiles_and_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    latex = call(capsys, "table", ROOT / "results" / "paper" / "table3.csv", "--format", "latex").out
    log, pdf = compiled(latex, tmp_path)
    assert "Overfull" not in log
    assert "shoulder_hair" in re.sub(r"\s", "", pdf_text(pdf)) or "shoulder hair" in pdf_text(pdf)


def test_runs_side_by_side_break_over_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "results" / "demo" / "sface", tmp_path / "other")
    runs = ROOT / "results" / "demo" / "sface", tmp_path / "other"
    log, _ = compiled(call(capsys, "table", *runs, "--format", "latex").out, tmp_path)
    assert "Overfull" not in log
    assert "(2 pages" in log or "(3 pages" in log


def test_hostile_labels_compile_to_themselves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    latex = call(capsys, "table", audited(tmp_path, capsys, HOSTILE), "--format", "latex").out
    assert "lualatex" not in latex
    _, pdf = compiled(latex, tmp_path)
    shown = re.sub(r"\s", "", pdf_text(pdf))
    assert shown.count("[red]*bold*[/red]") >= 2, "as a column's head and at the start of a row"
    assert shown.count("*star*") == shown.count("star"), "a row above takes no star"
    for text in ("50%&$x", "<imgsrc=xonerror=alert(1)>", "*a*|b", "}{\\end{tabular*}"):
        assert text in shown


def test_signs_side_by_side_stay_what_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = ("a--b---c", "not?`a!`b", "a<<b>>c,,d")
    latex = call(capsys, "table", audited(tmp_path, capsys, labels), "--format", "latex").out
    _, pdf = compiled(latex, tmp_path)
    shown = re.sub(r"\s", "", pdf_text(pdf)).replace("‘", "`")
    assert not set(shown) & set("–¿¡«»„"), "a pair of signs became one"
    assert all(shown.count(label) >= 2 for label in labels), "as a column's head and as an attribute"


def test_letters_of_other_scripts_name_the_engine_they_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    latex = call(capsys, "table", audited(tmp_path, capsys, (OTHER_SCRIPTS,)), "--format", "latex").out
    assert "% needs: lualatex or xelatex" in latex
    compiled(latex, tmp_path, "lualatex")


@pytest.mark.parametrize("letter", ["ą", "þ", "đ", "ŋ", "ĸ", "«", "\u00ad", "ħ"])
def test_letters_that_pdflatex_lacks_name_another_engine(
    letter: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    latex = call(capsys, "table", audited(tmp_path, capsys, (letter,)), "--format", "latex").out
    assert "% needs: lualatex or xelatex" in latex


def test_all_letters_said_to_be_pdflatexs_are(tmp_path: Path) -> None:
    from harness.typeset import _set_by_pdflatex

    letters = [sign for sign in map(chr, range(0xA1, 0x250)) if _set_by_pdflatex(sign)]
    assert len(letters) > 180
    table = "% needs: \\usepackage{array}\n" + " ".join([*letters, *"†‡—–…‘’“”"])
    compiled(table, tmp_path)


def test_html_is_one_page_whose_labels_stay_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = audited(tmp_path, capsys, HOSTILE)
    for options in ((), ("--counts",), ("--differences",)):
        page = call(capsys, "table", run, "--format", "html", *options).out
        assert page.count("<!doctype html>") == page.count("</html>") == 1
        assert "<img" not in page
        assert "<script" not in page
        assert not re.search(r'(?:src|href)="', page)
        assert "&lt;img src=x onerror=alert(1)&gt;" in page
        assert "{{m^2}} }{ \\end{tabular*}" in page
        assert page == call(capsys, "table", run, "--format", "html", *options).out
