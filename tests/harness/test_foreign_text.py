"""Text that comes from outside is shown and never obeyed: by a terminal, a CI runner, a browser, a viewer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from targets.base.progress import progress
from tests.harness.runs import spread, write_deltas
from tests.harness.test_audit_scores import row, scores
from tests.support import call, command

ESCAPE, REVERSED, ISOLATE = "\x1b[2J", "\u202e", "\u2066"
LABEL = f"::error::a\n::add-mask::b ##[error]c{ESCAPE}{REVERSED}d{ISOLATE}\u200f\x9b31m [red]e[/]"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# As actions/runner reads a log (ActionCommand.cs): trimmed lines that begin with "::", and "##[" anywhere.
RUNNER = re.compile(r"^\s*::|##\[", re.MULTILINE)
POLICY = """
[[rule]]
metric = "delta"
attribute = {attribute}
concept = "sunglass"
harmful = "both"
margin = 0.4
"""


def quoted(text: str) -> str:
    """A TOML string of any text."""
    return '"' + "".join(f"\\U{ord(sign):08X}" for sign in text) + '"'


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that somebody else has written, with labels that no audit lets in."""
    folder = tmp_path_factory.mktemp("foreign")
    groups = {(LABEL, f"{group}{LABEL}"): spread(24, 0.1, 0.05, seed) for seed, group in enumerate("AB")}
    write_deltas(folder / "run", groups, score_range=(0, 1))
    (folder / "policy.toml").write_text(POLICY.format(attribute=quoted(LABEL)), encoding="utf-8")
    return folder / "run"


@pytest.mark.parametrize("style", ["terminal", "markdown", "csv", "latex", "html", "model-card"])
@pytest.mark.parametrize("more", [(), ("--differences",)], ids=["changes", "differences"])
def test_tables(style: str, more: tuple[str, ...], run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if style == "model-card" and more:
        pytest.skip("a model card has all tables")
    done = call(capsys, "table", run, "--format", style, *more)
    assert done.status == 0, done.err
    assert "add-mask" in done.out
    assert not OBEYED.findall(done.out)
    assert not RUNNER.findall(done.out)


def test_the_gate(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = tmp_path / "j.xml", tmp_path / "s.md"
    done = call(
        capsys, "gate", run, "--baseline", run, "--policy", run.parent / "policy.toml",
        "--junit", files[0], "--step-summary", files[1],
    )  # fmt: skip
    assert done.status == 0, done.err
    assert "add-mask" in done.out
    assert not RUNNER.findall(done.out)
    for text in (done.out, *(file.read_text(encoding="utf-8") for file in files)):
        assert "error" in text
        assert not OBEYED.findall(text)


def test_the_report(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "report", run).status == 0
    text = (run / "report.html").read_text(encoding="utf-8")
    assert "add-mask" in text
    assert not OBEYED.findall(text)


@pytest.mark.parametrize("sign", ["\u202e", "\u2066", "\u2069", "\u200e", "\u200f", "\u061c"])
@pytest.mark.parametrize("column", ["demographic", "concept"])
def test_marks_of_direction_are_refused_in_labels(
    sign: str, column: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = scores(tmp_path / "s.csv", [row(i, 0.1, 0.2, **{column: f"a{sign}b"}) for i in range(3)])
    done = call(capsys, "audit", "--scores", table, "--out", tmp_path / "run")
    assert (done.status, f"control character U+{ord(sign):04X}" in done.err) == (2, True)
    assert sign not in done.err


NAMES = [
    f"a{REVERSED}b",
    "[red]x[/]",
    f"::error::{ESCAPE}",
    "x##[error]y",
    "\n::error::z",
    "y" * 3000,
    "y " * 2000,
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize(
    "words", [("table",), ("audit", "--out", "out", "--scores"), ("targets", "check")], ids=str
)
def test_paths_in_errors_are_one_line(
    name: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    done = call(capsys, *words, f"{name}.csv")
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert len(done.err) < 2100
    assert not OBEYED.findall(done.err)
    assert not RUNNER.findall(done.err)


def test_a_wrong_option_is_told_and_not_obeyed(tmp_path: Path) -> None:
    done = command("table", f"--{ESCAPE}::x", tmp_path)
    assert done.status == 2
    assert "No such option" in done.err
    assert not OBEYED.findall(done.err)


@pytest.mark.parametrize("title", ["[red]x[/]", "[/]", "[/red]"])
def test_a_bar_shows_brackets(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress(f"asking {title}", 2) as advance:
        advance()


def test_a_folder_with_brackets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = scores(tmp_path / "s.csv", [row(i, 0.1, 0.2 + i / 50, identity=f"i{i}") for i in range(12)])
    done = call(capsys, "audit", "--scores", table, "--out", tmp_path / "[red]x[" / "[bold]" / "::y")
    assert done.status == 0, done.err
    assert "[red]x[/[bold]/::y" in done.out


def test_a_warning_is_one_line(tmp_path: Path) -> None:
    """A library that a target uses warns with a text from outside."""
    said = f"a{ESCAPE}\n::error::b{REVERSED}"
    (tmp_path / "own.py").write_text(
        f"import warnings\nimport numpy as np\nwarnings.warn({said!a})\n"
        "class T:\n    concepts = ('bright',)\n    def score(self, images):\n"
        "        return np.array([[np.asarray(image).mean()] for image in images])\n"
    )
    done = command("targets", "check", f"{tmp_path}/own.py:T")
    assert done.status == 0, done.err
    # The target is loaded a second time.
    assert [line.partition("\ufffd")[0] for line in done.err.splitlines()] == ["warning: a"] * 2
    assert not OBEYED.findall(done.err)
    assert not RUNNER.findall(done.err)
