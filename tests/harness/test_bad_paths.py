"""A path that can't be read is a counted row, whatever stands there, and the run goes on."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
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


def finished(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    rows = [f"p{n},{'AB'[n % 2]}{n // 4},{n},{'AB'[n % 2]},glasses,smile,0.{n}1,0.{n}4" for n in range(9)]
    head = "pair_id,identity,variation,demographic,attribute,concept,source_score,transformed_score"
    (folder / "s.csv").write_text("\n".join([head, *rows]))
    arguments = ("--scores", folder / "s.csv", "--out", folder / "run", "--score-range", 0, 1)
    assert call(capsys, "audit", *arguments).status == 0
    (folder / "policy.toml").write_text(
        '[[rule]]\nmetric = "delta"\nattribute = "glasses"\nconcept = "smile"\nharmful = "both"\n'
        "margin = 0.1\n"
    )
    return folder / "run"


def odd_places(folder: Path) -> dict[str, str]:
    (folder / "file").write_text("x")
    (folder / "folder").mkdir()
    (folder / "folder" / "x").write_text("x")
    (folder / "dangling").symlink_to(folder / "nowhere" / "x")
    (folder / "loop").symlink_to("loop")
    names = {name: str(folder / name) for name in ("file", "folder", "dangling", "loop", "a" * 300)}
    return {**names, "below": str(folder / "file" / "x"), "dot": ".",
            "markup": str(folder / "[red]" / "[/]"), "bytes": str(folder / "\udcff")}  # fmt: skip


COMMANDS = {
    "audit": ("audit", "--scores", "SCORES", "--out", "X"),
    "scores": ("audit", "--scores", "X", "--out", "NEW"),
    "pairs": ("audit", "X", "--target", "captured:SCORES", "--out", "NEW"),
    "taxonomy": ("audit", "--scores", "SCORES", "--out", "NEW", "--taxonomy", "X"),
    "target": ("audit", "SCORES", "--target", "X.toml", "--out", "NEW"),
    "junit": ("gate", "RUN", "--baseline", "RUN", "--policy", "POLICY", "--junit", "X"),
    "json": ("gate", "RUN", "--baseline", "RUN", "--policy", "POLICY", "--json", "X"),
    "summary": ("gate", "RUN", "--baseline", "RUN", "--policy", "POLICY", "--step-summary", "X"),
    "policy": ("gate", "RUN", "--baseline", "RUN", "--policy", "X"),
    "baseline": ("gate", "RUN", "--baseline", "X", "--policy", "POLICY"),
    "compare": ("compare", "X", "RUN"),
    "report": ("report", "X"),
    "pictures": ("report", "RUN", "--pictures", "X"),
    "table": ("table", "X"),
    "export": ("capture", "export", "X", "--out", "NEW"),
    "build": ("build", "X", "--out", "NEW"),
    "recipe": ("recipe", "copy", "demo", "X"),
    "check": ("targets", "check", "X"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_odd_place_is_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished(tmp_path, capsys)
    monkeypatch.chdir(tmp_path / "run")
    known = {
        "SCORES": tmp_path / "s.csv",
        "RUN": run,
        "POLICY": tmp_path / "policy.toml",
        "NEW": tmp_path / "new",
    }
    for kind, place in odd_places(tmp_path).items():
        words = [str(known.get(word, word.replace("X", place) if word[0] == "X" else word))
                 for word in COMMANDS[name]]  # fmt: skip
        done = call(capsys, *words)
        assert done.status in (0, 2, 3), (kind, done.err)
        assert done.status != 2 or len(done.err.splitlines()) == 1, (kind, done.err)


def test_a_dataset_whose_files_differ_in_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = finished(tmp_path, capsys)
    done = call(capsys, "audit", run, "--target", f"captured:{tmp_path}/s.csv", "--out", tmp_path / "new")
    assert (done.status, "must have the same columns" in done.err) == (2, True), done.err


@pytest.mark.parametrize("column", ["variation", "source", "source_hash", "reason"])
def test_pairs_of_a_run_with_another_type(
    column: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished(tmp_path, capsys)
    table = pq.read_table(run / "pairs.parquet")
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, column, pa.array([[1]] * len(table))), run / "pairs.parquet")
    done = call(capsys, "gate", run, "--baseline", run, "--policy", tmp_path / "policy.toml")
    assert (done.status, f"column '{column}' must hold texts" in done.err) == (2, True), done.err


def test_failures_of_another_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = finished(tmp_path, capsys)
    pq.write_table(pa.table({"x": [1]}), run / "failures.parquet")
    done = call(capsys, "report", run)
    assert (done.status, "has no column 'what'" in done.err) == (2, True), done.err


def test_a_row_without_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = finished(tmp_path, capsys)
    record = json.loads((run / "record.json").read_text())
    record["rows"] = [["x", "smile"]]
    (run / "record.json").write_text(json.dumps(record))
    done = call(capsys, "table", run)
    assert (done.status, "'rows' holds x / smile, of which A has no cell" in done.err) == (2, True), done.err


@pytest.mark.parametrize("value", ["[" * 5000, "9" * 5000, "2020-01-01", "nan"])
def test_an_odd_setting_is_one_line(value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(TARGET + "    def __init__(self, x): pass\n")
    arguments = ("--target", "own.py:T", "--set", f"x={value}", "--out", tmp_path / "run")
    os.chdir(tmp_path)
    done = call(capsys, "audit", drawn_pairs(tmp_path, ("WM",), 2), *arguments)
    assert done.status in (0, 2), done.err
    assert len(done.err.splitlines()) == (done.status != 0)


@pytest.mark.parametrize("limit", [0, 4096])
def test_a_full_disk_is_one_line(limit: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(tmp_path, capsys)
    code = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
        "from harness.exits import main; main()"
    )
    words = ["audit", "--scores", str(tmp_path / "s.csv"), "--out", str(tmp_path / "full")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "too large" in done.stderr.lower()
    assert not (tmp_path / "full" / "record.json").exists()


def test_a_device_or_pipe_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = finished(tmp_path, capsys)
    os.mkfifo(tmp_path / "pipe")
    for option in ("--junit", "--json"):
        words = (run, "--baseline", run, "--policy", tmp_path / "policy.toml", option, tmp_path / "pipe")
        done = call(capsys, "gate", *words)
        assert (done.status, "must be a regular file" in done.err) == (2, True), done.err
        assert (tmp_path / "pipe").is_fifo()


def test_a_name_in_a_locale_without_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``LC_ALL=C`` cuts such a name into bytes; Python writes each as half of a surrogate pair."""
    finished(tmp_path, capsys)
    cut = os.fsencode(tmp_path / "é漢[red].csv").decode("ascii", "surrogateescape")
    (tmp_path / "s.csv").rename(cut)
    done = call(capsys, "audit", "--scores", cut, "--out", tmp_path / "new")
    assert done.status == 0, done.err
    record = json.loads((tmp_path / "new" / "record.json").read_text(encoding="utf-8"))
    assert record["data"]["path"] == str(tmp_path / "é漢[red].csv")
    assert record["targets"][0]["spec"] == "scores:é漢[red].csv"
