"""The example that ships: its commands, and the comparisons' seeded maker."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tests.harness.example_comparisons import FOLDER, text
from tests.support import ROOT, call


def commands(path: Path) -> list[list[str]]:
    """Audit commands of a Markdown file that use the example, as arguments."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^\s*facedelta (audit harness/example/.*)$", text, re.MULTILINE)
    return [shlex.split(line) for line in lines]


def test_the_comparisons_are_what_the_seed_gives() -> None:
    assert (FOLDER / "comparisons.csv").read_text(encoding="utf-8") == text()


@pytest.mark.parametrize("page", ["README.md", "harness/example/README.md"])
def test_the_pages_commands_run_as_they_stand(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "example").symlink_to(FOLDER)
    monkeypatch.chdir(tmp_path)
    found = commands(ROOT / page)
    assert any("captured-comparisons:harness/example/comparisons.csv" in line for line in found)
    for arguments in found:
        assert call(capsys, *arguments).status == 0
        assert (tmp_path / arguments[arguments.index("--out") + 1] / "record.json").is_file()


def test_the_cells_are_means_of_the_tables_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recomputed from the two tables with csv alone."""
    table = FOLDER / "comparisons.csv"
    more = ("--target", f"captured-comparisons:{table}", "--set", "scale=100", "--out", tmp_path / "run")
    assert call(capsys, "audit", FOLDER / "pairs.csv", *more).status == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))
    with table.open(encoding="utf-8") as stream:
        given = {
            frozenset((row["first"], row["second"])): float(row["similarity"]) / 100
            for row in csv.DictReader(stream)
            if row["similarity"]
        }
    with (FOLDER / "pairs.csv").open(encoding="utf-8") as stream:
        pairs = list(csv.DictReader(stream))
    wanted: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for pair in pairs:
        identity = given.get(frozenset((pair["source"], pair["transformed"])))
        other = next(
            item["source"]
            for item in pairs
            if item["identity"] == pair["identity"] and item["source"] != pair["source"]
        )
        before, after = (given.get(frozenset((pair[side], other))) for side in ("source", "transformed"))
        key = pair["attribute"], pair["demographic"]
        if identity is not None:
            wanted["identity", *key].append(identity - 1)
        if before is not None and after is not None:
            wanted["match", *key].append(after - before)
    for cell in record["cells"]:
        if cell["by"] == "demographic":
            values = wanted[cell["concept"], cell["attribute"], cell["group"]]
            assert (cell["n_pairs"], cell["delta"]) == (len(values), pytest.approx(float(np.mean(values))))
