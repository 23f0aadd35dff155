"""What standard output can't take: no command may end as a failed gate does, and no file may be missing."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.support import FACEDELTA, call, command, write_csv

pytestmark = pytest.mark.slow

JAPANESE = ("黒人女性", "白人男性")
POLICY = """
[[rule]]
metric = "delta"
attribute = "glasses"
concept = "smile"
harmful = "both"
margin = 0.4
"""
FULL = Path("/dev/full")


COLUMNS = ("pair_id", "identity", "demographic", "attribute", "concept", "source_score", "transformed_score")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with Japanese groups, one worse than the other, and a policy."""
    place = tmp_path_factory.mktemp("output")
    for name, change in (("good", 0.1), ("worse", 0.7)):
        rows = [
            (f"{group}{i}", f"{group}{i}", group, "glasses", "smile", 0.2, 0.2 + change + (i * 7 % 11) / 100)
            for group in JAPANESE
            for i in range(24)
        ]
        write_csv(place / f"{name}.csv", COLUMNS, rows)
        arguments = ("--scores", place / f"{name}.csv", "--score-range", 0, 1, "--out", place / name)
        assert command("audit", *arguments).status == 0
    (place / "policy.toml").write_text(POLICY, encoding="utf-8")
    return place


def shell(folder: Path, redirect: str, *arguments: str, **env: str) -> tuple[int, bytes, bytes]:
    """Run a command in a folder with a shell's redirections: exit status, standard output and error."""
    done = subprocess.run(
        ["bash", "-c", f'"$0" "$@" {redirect}', str(FACEDELTA), *arguments],
        cwd=folder,
        capture_output=True,
        env={**os.environ, **env},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def gate(new: str, *more: str) -> tuple[str, ...]:
    return ("gate", new, "--baseline", "good", "--policy", "policy.toml", *more)


LOCALES = [
    {"PYTHONIOENCODING": "cp1252"},
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
]


@pytest.mark.parametrize("env", LOCALES, ids=str)
def test_a_locale_that_lacks_a_character_changes_neither_status_nor_bytes(
    folder: Path, env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    files = folder / "g.xml", folder / "g.json"
    status, shown, _ = shell(folder, "", *gate("worse", "--junit", "g.xml", "--json", "g.json"), **env)
    assert status == 1
    assert JAPANESE[0] in shown.decode("utf-8")
    assert JAPANESE[0] in files[0].read_text(encoding="utf-8")
    assert json.loads(files[1].read_text(encoding="utf-8"))["exit_status"] == 1
    for file in files:
        file.unlink()
    status, shown, _ = shell(folder, "", "table", "good", "--format", "html", **env)
    assert status == 0
    assert shown.decode("utf-8") == call(capsys, "table", folder / "good", "--format", "html").out


@pytest.mark.parametrize(
    ("arguments", "redirect", "expected"),
    [
        (gate("good", "--junit", "g.xml"), ">/dev/full", 0),
        (gate("worse", "--junit", "g.xml"), ">&- 2>&-", 1),
        (("table", "good"), ">&-", 0),
        (("audit", "--scores", "good.csv", "--out", "again"), ">/dev/full 2>/dev/full", 0),
        (("doctor",), ">/dev/full", 0),
        (("table", "nowhere"), ">/dev/full 2>/dev/full", 2),
        # A page that is cut short must not look like a whole one.
        (("table", "good", "--format", "html"), ">/dev/full", 2),
    ],
)
def test_output_that_goes_nowhere_changes_no_status(
    folder: Path, arguments: tuple[str, ...], redirect: str, expected: int
) -> None:
    if "full" in redirect and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    status, _, error = shell(folder, redirect, *arguments)
    assert status == expected
    assert error.count(b"\n") == (redirect == ">/dev/full")
    if "--junit" in arguments:
        (folder / "g.xml").unlink()


def test_a_terminal_without_a_character_shows_its_number_and_no_mark(folder: Path) -> None:
    """'?' is a mark of the tables, so it may not stand for what the terminal lacks."""
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [str(FACEDELTA), "table", str(folder / "good"), "--counts"],
        stdout=theirs,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "120", "TERM": "dumb"},
    )
    os.close(theirs)
    shown = b""
    # Linux answers an error where a terminal has closed, other systems nothing.
    with contextlib.suppress(OSError):
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert done.wait() == 0
    assert rb"\u9ed2" in shown
    assert b"?" not in shown


def test_names_of_checks_are_whole_in_a_narrow_terminal_and_in_a_pipe(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a rather long name of an attribute that somebody gave"
    rows = [(i, i, "WM", name, "face", 0.2, 0.3 + i / 100) for i in range(12)]
    write_csv(folder / "long.csv", COLUMNS, rows)
    assert call(capsys, "audit", "--scores", folder / "long.csv", "--out", folder / "long").status == 0
    policy = folder / "long.toml"
    policy.write_text(POLICY.replace("glasses", name).replace("smile", "face"), encoding="utf-8")
    arguments = ("gate", folder / "long", "--baseline", folder / "long", "--policy", policy)
    assert f"delta {name}/face WM" in call(capsys, *arguments).out
    for width in (40, 80):
        monkeypatch.setattr("harness.terminal.PIPE_WIDTH", width)
        shown = call(capsys, *arguments).out
        assert "…" not in shown
        for word in (*name.split()[:-1], "outcome", "identities", "0.4 both", "to decide"):
            assert word in shown
