"""Whatever a target does, a command ends with one line that names it, and nothing is half-written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import call, command, drawn_pairs

SCORER = """
import os, sys, warnings
import numpy as np
from targets.protocol import Scores
{before}

class Mine:
    concepts = ("mood",)
    {body}

    def score(self, images):
        {score}
"""
PLAIN = "return [[0.5 + np.asarray(image).mean() / 1000] for image in images]"
SCORES = "return Scores(np.full((len(images), 1), np.nan), {})"
EMBEDDER = """
import numpy as np

class Mine:
    asked = 0

    def embed(self, images):
        Mine.asked += 1
        return {}
"""


def scorer(score: str = PLAIN, body: str = "pass", before: str = "") -> str:
    return SCORER.format(score=score, body=body, before=before)


LAZY = """
class Lazy:
    def __array__(self, *_, **__):
        {}
"""
CASES = {
    "prepare is no function": (scorer(body="prepare = 5"), "prepare must be a Callable, got int"),
    "prepare raises GeneratorExit": (
        scorer(body="prepare = lambda self, image: (_ for _ in ()).throw(GeneratorExit)"),
        "GeneratorExit (FILE, line 9)",
    ),
    "hints raise": (scorer(body="hints = property(lambda self: 1 / 0)"), "ZeroDivisionError"),
    "hints are no mapping": (scorer(body="hints = [1]"), "hints must be a Mapping, got list"),
    "in_force is none": (scorer(body="in_force = None"), "in_force must be a dict, got NoneType"),
    "in_force is no JSON": (scorer(body="in_force = {'a': {1}}"), "in_force must be JSON, 'a' is set {1}"),
    "remarks are a number": (scorer(body="remarks = 3"), "remarks must be a Sequence, got int"),
    "concepts once": (scorer(body="concepts = (name for name in ['mood'])"), "must have 'concepts'"),
    "concepts in no encoding": (scorer(body="concepts = ('\\udc80',)"), "must be UTF-8 text"),
    "card in no encoding": (scorer(body="card = {'name': '\\udc80'}"), "which is not UTF-8"),
    "card of anything": (scorer(body="card = {'settings': {'a': object()}}"), "'a' must be a finite number"),
    "card past 64 bits": (scorer(body="card = {'settings': {'a': -2**63}}"), "an integer past 64 bits"),
    "card past all digits": (scorer(body="card = {'settings': {'a': 10**5000}}"), "integer past 64 bits"),
    "array raises": (scorer("return Lazy()", before=LAZY.format("1 / 0")), "ZeroDivisionError"),
    "array exits": (
        scorer("return Lazy()", before=LAZY.format("sys.exit(0)")),
        "SystemExit: 0 (FILE, line 8)",
    ),
    "GeneratorExit": (scorer("raise GeneratorExit"), "GeneratorExit (FILE, line 12)"),
    "an error without a text": (
        scorer("raise Odd", before="class Odd(Exception):\n    def __str__(self): return 1 / 0"),
        "its text can't be read",
    ),
    "not comparable": (
        scorer("raise NotComparableError('x')", before="from targets.base.errors import *"),
        "NotComparableError: x",
    ),
    "an integer past all floats": (scorer("return [[10**400] for _ in images]"), "OverflowError"),
    "complex": (scorer("return np.full((len(images), 1), 1j)"), "got ndarray of complex128"),
    "masked": (scorer("return np.ma.masked_all((len(images), 1))"), "got MaskedArray of float64"),
    "truth values": (scorer("return np.ones((len(images), 1), bool)"), "got ndarray of bool"),
    "dates": (scorer("return np.zeros((len(images), 1), 'M8[D]')"), "got ndarray of datetime64"),
    "truth values among numbers": (
        scorer("return [[i > 2 or 0.5] for i in range(len(images))]"),
        "with bool",
    ),
    "truth values as objects": (scorer("return np.full((len(images), 1), True, object)"), "with bool"),
    "texts as objects": (scorer("return np.full((len(images), 1), '0.5', object)"), "with str"),
    "masked rows": (scorer("return [np.ma.masked_all(1) for _ in images]"), "list with MaskedArray"),
    "dates as objects": (
        scorer("return [[datetime.date(2024, 5, 1)] for _ in images]", before="import datetime"),
        "float() argument must be a string or a real number, not 'datetime.date'",
    ),
    "a frame": (
        scorer("return pd.DataFrame({'age': [1.0] * len(images)})", before="import pandas as pd"),
        "got DataFrame with the columns age",
    ),
    "a frame of truth values": (
        scorer("return pd.DataFrame({'mood': [True] * len(images)})", before="import pandas as pd"),
        "got DataFrame of bool",
    ),
    "texts": (scorer("return [['0.5'] for _ in images]"), "got list of <U3"),
    "no reasons": (scorer(SCORES.format("None")), "the reasons of its answer can't be read: TypeError"),
    "too few details": (
        scorer(SCORES.format("('no_face',) * len(images), ('x',)")),
        "details too or none, got 8 reasons and 1 details",
    ),
    "vectors of nothing": (EMBEDDER.format("np.zeros((len(images), 0))"), "of at least one number, got none"),
    "vectors that grow": (EMBEDDER.format("np.ones((len(images), 2 + Mine.asked))"), "must have one length"),
}


def audited(source: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    file, run = folder / "mine.py", folder / "run"
    file.write_text(source, encoding="utf-8")
    table = drawn_pairs(folder, ("WM",), 2)
    done = call(capsys, "audit", table, "--target", f"{file}:Mine", "--out", run, "--max-failures", 0)
    assert (run / "record.json").exists() == (done.status == 0 or "the run is kept" in done.err)
    return done.status, done.err


@pytest.mark.parametrize("case", CASES)
def test_a_faulty_target_is_one_line(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, words = CASES[case]
    status, error = audited(source, tmp_path, capsys)
    assert status == 2, error
    assert words.replace("FILE", str(tmp_path / "mine.py")) in error
    assert "mine.py" in error or "in_force must be JSON" in error
    assert len(error.splitlines()) == 1


def test_a_frame_of_columns_with_other_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = "class Frame(list):\n    columns = ['age']"
    assert "with the columns age" in audited(scorer("return Frame([[1.0]] * len(images))", before=before),
                                             tmp_path, capsys)[1]  # fmt: skip


def test_a_detail_in_no_encoding_is_written_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = SCORES.format("('no_answer',) * len(images), ('a\\ud800',) * len(images)")
    status, error = audited(scorer(given), tmp_path, capsys)
    assert (status, "the target gave no answer: a\\ud800;" in error) == (2, True)


@pytest.mark.parametrize(
    "setting", ["np.seterr(all='raise')", "np.seterrcall(lambda *_: 1 / 0); np.seterr(all='call')"]
)
@pytest.mark.parametrize("scale", ["1e-320", "9e99"])
def test_what_a_target_makes_of_overflow_is_its_own(
    setting: str, scale: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    score = f"{setting}; return [[{scale} * (-1) ** place] for place, _ in enumerate(images)]"
    assert audited(scorer(score), tmp_path, capsys) == (0, "")


@pytest.mark.parametrize(
    "harm",
    ["sys.stdout.close()", "os.closerange(1, 2)", "sys.stdout = None", "sys.stdout = open(os.devnull, 'w')"],
)
def test_a_target_that_takes_the_output_away(harm: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(scorer(f"{harm}; {PLAIN}"), encoding="utf-8")
    table = drawn_pairs(tmp_path, ("WM",), 2)
    done = command("audit", table, "--target", f"{tmp_path}/mine.py:Mine", "--out", tmp_path / "run")
    assert (done.status, "written to" in done.out) == (0, True), done.err
    json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))


def test_a_target_that_takes_the_error_output_away(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(scorer("sys.stderr.close(); 1 / 0"), encoding="utf-8")
    table = drawn_pairs(tmp_path, ("WM",), 2)
    done = command("audit", table, "--target", f"{tmp_path}/mine.py:Mine", "--out", tmp_path / "run")
    assert (done.status, "mine.py, line 12" in done.err) == (2, True), done.err


WANDERING = """
import os, tempfile
import numpy as np
{module}
class Mine:
    concepts = ("mood",)
    def __init__(self):
        {init}
    def prepare(self, image):
        {prepare}
        return image
    def score(self, images):
        {score}
        return [[0.5 + np.asarray(image).mean() / 1000] for image in images]
"""


@pytest.mark.parametrize("when", ["module", "init", "prepare", "score"])
def test_a_target_may_go_anywhere(
    when: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed working directory changes nothing: relative paths begin where the command was given."""
    monkeypatch.chdir(tmp_path)
    drawn_pairs(tmp_path, ("WM",))
    cells = []
    for name, step in (("stays", "pass"), ("goes", "os.chdir(tempfile.mkdtemp())")):
        steps = dict.fromkeys(("module", "init", "prepare", "score"), "pass") | {when: step}
        (tmp_path / f"{name}.py").write_text(WANDERING.format(**steps), encoding="utf-8")
        words = ("audit", "pairs.csv", "--target", f"{name}.py:Mine", "--out", name, "--cache", "kept")
        done = call(capsys, *words)
        monkeypatch.chdir(tmp_path)
        assert done.status == 0, done.err
        record = json.loads((tmp_path / name / "record.json").read_text(encoding="utf-8"))
        assert record["data"]["path"] == "pairs.csv"
        cells.append([{**cell, "target": "", "family": ""} for cell in record["cells"]])
        done = call(capsys, "targets", "check", f"{name}.py:Mine")
        monkeypatch.chdir(tmp_path)
        assert done.status == 0, done.err + done.out
    assert cells[0] == cells[1]
