"""What several tests share: where the reference data lies, and how the command line is called."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.cli import main
from targets.drawn_pictures import drawn_faces

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
FACEDELTA = Path(sys.executable).with_name("facedelta")


def shipped(name: str) -> Path:
    """A folder of the tests' own data: R's numbers ("oracle"), awkward inputs ("corpus")."""
    return ROOT / "tests" / "data" / name


def shared(name: str) -> Path:
    """A folder of pictures beside the checkout that may not be shipped; without it the test is skipped."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"the reference data {path} is not beside this checkout")
    return path


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    status: int
    out: str
    err: str


def command(*arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Result:
    """Run the installed console script in a process of its own."""
    done = subprocess.run(
        [str(FACEDELTA), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def unread(*arguments: object) -> tuple[int, str]:
    """Run the console script with an output that nobody reads: exit status and error output."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [str(FACEDELTA), *map(str, arguments)],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> Result:
    """Run the command line in this process."""
    before = sys.argv
    sys.argv = ["facedelta", *map(str, arguments)]
    try:
        main()
        status = 0
    except SystemExit as stop:
        status = int(stop.code or 0)
    finally:
        sys.argv = before
    captured = capsys.readouterr()
    return Result(status, captured.out, captured.err)


PAIR_COLUMNS = ("pair_id", "identity", "variation", "demographic", "attribute", "source", "transformed")


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """Write a CSV with a header row."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def drawn_pairs(folder: Path, groups: Sequence[str] = ("WM", "BF"), identities: int = 3) -> Path:
    """Write a table of pairs with drawn pictures: two variations an identity, attribute "glasses".

    Source and transformed picture differ in one drawn pixel row, so that every picture is distinct.
    """
    (folder / "images").mkdir(parents=True, exist_ok=True)
    rows = []
    number = 0
    for group in groups:
        for identity in range(identities):
            for variation in (1, 2):
                number += 1
                stem = f"{group}{identity:02d}-{variation}"
                source = drawn_faces(5)[number % 5].copy()
                source.putpixel((number, 80), (number, 0, 0))
                source.save(folder / "images" / f"{stem}-source.png")
                edited = source.copy()
                edited.paste((10, 10, 10), (50, 60, 110, 66))
                edited.save(folder / "images" / f"{stem}-glasses.png")
                names = (f"images/{stem}-source.png", f"images/{stem}-glasses.png")
                rows.append(
                    (f"{stem}-glasses", f"{group}{identity:02d}", variation, group, "glasses", *names)
                )
    return write_csv(folder / "pairs.csv", PAIR_COLUMNS, rows)
