"""The smaller commands, as a person calls them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import call, command, drawn_pairs

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


def test_doctor_says_how_to_install_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "python" in call(capsys, "doctor").out
    versions = {"opencv-python": "5.0.1", "opencv-python-headless": "4.14.0", "facedelta": "1"}
    monkeypatch.setattr("harness.doctor._installed", versions.get)
    result = call(capsys, "doctor")
    assert "pip install 'facedelta[render]'" in result.out
    assert result.status == 2
    assert "to mend: opencv" in result.err


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
