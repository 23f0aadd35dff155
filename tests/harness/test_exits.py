"""How commands end: one line and an exit status, whatever happens inside."""

from __future__ import annotations

import enum
import inspect
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import typer

from harness.cli import app
from tests.support import Result, call, command, drawn_pairs

OURS = ("targets.", "dataset_builder.", "harness.")


def all_commands() -> Iterator[tuple[tuple[str, ...], object]]:
    """Every command of the command line, found by asking it."""
    waiting = [((), typer.main.get_command(app))]
    while waiting:
        path, item = waiting.pop()
        children = getattr(item, "commands", None)
        if children is None:
            yield path, item
        else:
            waiting += [((*path, name), child) for name, child in children.items()]


COMMANDS = dict(sorted(all_commands()))


def arguments_of(path: tuple[str, ...], folder: Path) -> list[str]:
    """The command with a value for all it requires."""
    words = list(path)
    function = inspect.unwrap(COMMANDS[path].callback)
    types = inspect.signature(function, eval_str=True).parameters
    for parameter in COMMANDS[path].params:
        if parameter.required:
            kind = get_args(types[parameter.name].annotation)[0]
            value = {float: "0.5", int: "1"}.get(kind, str(folder / "named.csv"))
            words += [value] if parameter.param_type_name == "argument" else [parameter.opts[0], value]
    return words


def spoil(path: tuple[str, ...], error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make everything of ours that the command's own function calls raise ``error``."""

    def broken(*_: object, **__: object) -> None:
        raise error

    function = inspect.unwrap(COMMANDS[path].callback)
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        is_error = isinstance(value, type) and issubclass(value, BaseException | enum.Enum)
        if callable(value) and not is_error and getattr(value, "__module__", "").startswith(OURS):
            monkeypatch.setitem(function.__globals__, name, broken)


def ended(
    path: tuple[str, ...], error: BaseException, folder: Path, patch: pytest.MonkeyPatch, capsys: object
) -> Result:
    patch.setattr("tempfile.tempdir", str(folder))
    spoil(path, error, patch)
    return call(capsys, *arguments_of(path, folder))


class Outside(BaseException):
    """An error outside the tree of Exception."""


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_an_unknown_error_in_any_command(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = ended(path, RuntimeError("nobody\nknows \x1b[31m this"), tmp_path, monkeypatch, capsys)
    assert result.status == 70
    (line,) = result.err.splitlines()
    assert "RuntimeError: nobody knows" in line
    assert "\x1b" not in line
    file = Path(re.search(r"traceback in (\S+)$", line).group(1))
    assert "in broken" in file.read_text(encoding="utf-8")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RecursionError(), SystemExit(0), SystemExit(1), SystemExit("text"), EOFError(), Outside(),
     typer.Abort()],
    ids=repr,
)  # fmt: skip
def test_no_error_ends_as_a_failed_gate_or_as_done(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = ended(("audit",), error, tmp_path, monkeypatch, capsys)
    assert result.status == 70
    assert type(error).__name__ in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_ctrl_c_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = ended(("doctor",), KeyboardInterrupt(), tmp_path, monkeypatch, capsys)
    assert (result.status, result.err) == (130, "error: stopped by Ctrl-C\n")


def test_a_broken_installation_is_no_failed_gate(tmp_path: Path) -> None:
    code = "import sys; sys.modules['scipy'] = None; from harness.exits import main; main()"
    done = in_a_shell(f'TMPDIR={tmp_path} {sys.executable} -c "{code}"')
    assert done.returncode == 70
    assert "ModuleNotFoundError" in done.stderr


def in_a_shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)


TARGET = """
import sys

class Mine:
    concepts = ("mood",)
    {extra}

    def __init__(self):
        {init}

    def score(self, images):
        {score}

    def close(self):
        {close}
"""
WHOLE = {"extra": "", "init": "pass", "score": "return [[0.5]] * len(images)", "close": "pass"}


@pytest.mark.parametrize(
    ("where", "what", "line"),
    [
        ("init", "raise ValueError('no\\nweights' + chr(27))", 9),
        ("init", "sys.exit(0)", 9),
        ("init", "raise KeyError('x' * 10000)", 9),
        ("score", "sys.exit(0)", 12),
        ("score", "raise MemoryError", 12),
        ("score", "return self.score(images)", 12),
        ("score", "raise type('Odd', (BaseException,), {})('outside')", 12),
        ("close", "sys.exit(0)", 15),
        ("close", "1 / 0", 15),
        ("extra", "prepare = lambda self, image: 1 / 0", 6),
        ("extra", "card = property(lambda self: 1 / 0)", 6),
        ("extra", "concepts = property(lambda self: sys.exit(0))", 6),
        ("extra", "sys.exit(0)", 6),
    ],
)
def test_what_a_target_raises_names_its_file_and_line(
    where: str, what: str, line: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(TARGET.format(**{**WHOLE, where: what}), encoding="utf-8")
    arguments = ("audit", drawn_pairs(tmp_path), "--target", f"{file}:Mine", "--out", tmp_path / "run")
    result = call(capsys, *arguments, "--no-progress")
    assert result.status == 2, result.err
    assert len(result.err.splitlines()) == 1
    assert f"{file}, line {line}" in result.err
    assert len(result.err) < 700
    assert "\x1b" not in result.err
    assert not (tmp_path / "run" / "record.json").exists()
    checked = call(capsys, "targets", "check", f"{file}:Mine")
    assert checked.status == 2, checked.err
    assert f"{file}, line {line}" in checked.out + checked.err


def test_an_embedder_that_raises_names_its_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class Mine:\n    def embed(self, images):\n        return 1 / 0\n", encoding="utf-8")
    result = call(
        capsys, "audit", drawn_pairs(tmp_path), "--target", f"{file}:Mine", "--out", tmp_path / "run"
    )
    assert result.status == 2
    assert f"{file}, line 3" in result.err


def test_a_value_in_a_message_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for value in ("x" * 5000, "x y" * 2000, "\x1b[2J" + "z" * 300):
        result = call(capsys, "audit", "--scores", "s.csv", "--set", value, "--concept", value, "--out", "o")
        assert result.status == 2
        result = call(capsys, "targets", "check", value)
        assert result.status == 2
        assert len(result.err) < 1200
        assert "\x1b" not in result.err


ENDING = """
import os
import threading
import time

import numpy as np

class Grey:
    concepts = ("grey",)

    def __init__(self, way):
        self.way = way
        if way == "thread":
            threading.Thread(target=time.sleep, args=(100_000,)).start()

    def score(self, images):
        if self.way == "exit":
            os._exit(0)
        return np.array([[np.asarray(image).mean()] for image in images])
"""


def ending(folder: Path, way: str) -> Result:
    (folder / "ending.py").write_text(ENDING, encoding="utf-8")
    spec = f"{folder / 'ending.py'}:Grey"
    return command(
        "audit", drawn_pairs(folder), "--target", spec, "--set", f"way={way}", "--out", folder / "run"
    )


def test_a_target_can_not_end_the_run_with_its_own_status(tmp_path: Path) -> None:
    result = ending(tmp_path, "exit")
    assert result.status == 2
    (line,) = result.err.splitlines()
    assert "os._exit(0)" in line
    assert "ending.py, line 18" in line


def test_a_targets_threads_do_not_keep_a_finished_audit_alive(tmp_path: Path) -> None:
    result = ending(tmp_path, "thread")
    assert (result.status, result.err) == (0, "")
    assert (tmp_path / "run" / "record.json").exists()


def test_ctrl_c_while_libraries_are_loaded_is_one_line(tmp_path: Path) -> None:
    """A library that makes another error of the interrupt, as numpy's C code does."""
    (tmp_path / "scipy").mkdir()
    # The interrupt may come a moment after it was sent, by way of another thread.
    (tmp_path / "scipy" / "__init__.py").write_text(
        "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    raise ImportError('multiarray failed') from None\n",
        encoding="utf-8",
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from harness.exits import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "error: stopped by Ctrl-C\n")
