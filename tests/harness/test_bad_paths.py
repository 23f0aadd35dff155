"""A path that can't be read is a counted row, whatever stands there, and the run goes on."""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.pairs import load_pairs
from targets import opening
from targets.scoring import PictureRef
from tests.support import call, drawn_pairs

TARGET = """
import numpy as np
class T:
    concepts = ("bright",)
    def score(self, images):
        return np.array([[np.asarray(image).mean() / 255] for image in images])
class Staged(T):
    def stage(self, pixels):
        return [np.asarray(one).mean() / 255 for one in pixels]
    def start(self, staged):
        return lambda: np.array(staged)[:, None]
"""


def bad_path(kind: str, folder: Path) -> str:
    """Make what can't be read, and return its name in a table."""
    if kind == "folder":
        (folder / "sub.png").mkdir()
        return "sub.png"
    if kind == "loop":
        (folder / "loop").symlink_to("loop")
        return "loop"
    if kind == "pipe":
        os.mkfifo(folder / "pipe.png")
        return "pipe.png"
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            os.chdir(folder)
            server.bind("s.png")
        return "s.png"
    if kind == "locked":
        (folder / "locked").mkdir()
        (folder / "locked" / "a.png").write_bytes(b"x")
        (folder / "locked").chmod(0)
        return "locked/a.png"
    return {
        "device": "/dev/zero",
        "nul": "a\0b.png",
        "long": "a" * 300 + ".png",
        "longer": "a/" * 4000 + "b.png",
        "absent": "absent.png",
        "below a file": "pairs.csv/a.png",
    }[kind]


MISSING = {"nul", "long", "longer", "absent", "below a file"}


def table_with(folder: Path, path: str, side: str) -> Path:
    pairs = load_pairs(str(drawn_pairs(folder, ("WM",))))
    rows = []
    for index, pair_id in enumerate(pairs.labels.pair_id):
        row = {name: getattr(pairs.labels, name)[index] for name in ("identity", "demographic", "attribute")}
        names = {
            "source": pairs.labels.source_name[index],
            "transformed": pairs.labels.transformed_name[index],
        }
        rows.append({"pair_id": pair_id, **row, **names})
    rows[2][side] = path
    out = folder / "bad.jsonl"
    out.write_text("\n".join(map(json.dumps, rows)))
    return out


KINDS = ("folder", "loop", "pipe", "socket", "locked", "device", *sorted(MISSING))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", ["T", "Staged"])
def test_a_bad_path_is_a_counted_row(
    kind: str,
    target: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if kind == "locked" and os.geteuid() == 0:
        pytest.skip("root may read everything")
    (tmp_path / "own.py").write_text(TARGET)
    side = "source" if target == "T" else "transformed"
    table, run = table_with(tmp_path, bad_path(kind, tmp_path), side), tmp_path / "run"
    done = call(capsys, "audit", table, "--target", f"own.py:{target}", "--out", run, "--max-failures", 0.5)
    reason = f"missing_{side}" if kind in MISSING else "unreadable"
    assert (done.status, f"left out: {reason} 1" in done.out) == (0, True), done.err
    failed = pq.read_table(run / "failures.parquet").to_pylist()
    assert [row["reason"] for row in failed] == [reason]


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.EACCES, "unreadable"), (errno.EIO, "unreadable"), (errno.ENOENT, "missing")]
)
def test_every_fault_of_the_system_has_a_reason(number: int, reason: str) -> None:
    """A disk's fault can't be made here, so the reader raises it."""

    def read() -> bytes:
        raise OSError(number, os.strerror(number))

    data, (found, detail) = opening.read_or_fault(PictureRef("a.png", read))
    assert (data, found, detail.startswith("a.png: ")) == (None, reason, True)
