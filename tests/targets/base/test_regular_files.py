"""A pipe under a file's name would be waited for without end: every reader refuses it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import call, drawn_pairs


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize(
    "words",
    [
        ("audit", "{pairs}", "--target", "captured:{pipe}", "--out", "{out}"),
        ("audit", "{pairs}", "--target", "{pipe}.toml", "--out", "{out}"),
        ("audit", "{pipe}.csv", "--target", "sface", "--out", "{out}"),
        ("audit", "--scores", "{pipe}.csv", "--out", "{out}"),
        ("gate", "{run}", "--baseline", "{run}", "--policy", "{pipe}.toml"),
        ("report", "{run}"),
        ("build", "{pipe}.toml", "--out", "{out}"),
    ],
    ids=lambda words: f"{words[0]} {words[1]}",
)
def test_a_pipe_is_refused(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    pipe = tmp_path / "pipe"
    for name in ("pipe", "pipe.toml", "pipe.csv", "run/record.json"):
        os.mkfifo(tmp_path / name)
    places = {"pairs": drawn_pairs(tmp_path), "pipe": pipe, "out": tmp_path / "out", "run": tmp_path / "run"}
    result = call(capsys, *(word.format(**places) for word in words))
    assert result.status == 2, result.err
    assert len(result.err.splitlines()) == 1
