"""--level reaches everything that has a level, and what has one of its own says so."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.harness.test_audit_scores import row, scores
from tests.harness.test_recognition import TARGET
from tests.support import call, drawn_pairs


def searched(folder: Path) -> Path:
    """A table with a planted change, a copy of it and skewed scores, of two attributes."""
    rng = np.random.default_rng(4)
    rows = []
    for identity in range(24):
        labels = {"identity": f"WM{identity}", "demographic": "WM"}
        for attribute in ("hat", "scarf"):
            moved, skewed = 0.2 + rng.normal(0, 0.01), 0.1 + 0.1 * rng.exponential()
            for concept, delta in (("moved", moved), ("again", moved), ("skewed", skewed), ("still", 0.0)):
                delta += rng.normal(0, 0.001) if concept == "still" else 0.0
                name = f"WM{identity}-{attribute}"
                rows.append(row(name, 0.5, 0.5 + delta, concept=concept, attribute=attribute, **labels))
    return scores(folder / "s.csv", rows)


@pytest.mark.parametrize(("level", "alpha"), [((), 0.05), (("--level", 0.99), 0.01)])
def test_a_search_has_the_level_it_says(
    level: tuple[object, ...], alpha: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--out", tmp_path / "run", "--discover", "--margin", 0.02, *level)
    shown = call(capsys, "audit", "--scores", searched(tmp_path), *more)
    assert shown.status == 0, shown.err
    found = json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))["discovery"]
    assert found["alpha"] == alpha
    assert f"(Holm, {alpha:g})" in shown.out
    assert f"{100 * (1 - alpha):g} %: the level of searches" in shown.out


def test_findings_have_flags_and_stand_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--out", tmp_path / "run", "--discover", "--margin", 0.02)
    call(capsys, "audit", "--scores", searched(tmp_path), *more)
    record = json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))
    cells = {(c["attribute"], c["concept"]): c for c in record["cells"]}
    for finding in record["discovery"]["findings"]:
        flags = cells[finding["attribute"], finding["concept"]]["flags"]
        assert set(flags) <= set(finding["flags"])
        assert finding["smallest"] <= abs(finding["delta"])
    assert any("skewed" in finding["flags"] for finding in record["discovery"]["findings"])
    for style in ("markdown", "html", "model-card"):
        text = call(capsys, "table", tmp_path / "run", "--format", style).out.replace("\\", "")
        table = text[text.index("Search over") :]
        assert "‡" in table
        assert "no independent confirmations" in table
        assert "independent confirmations" not in table.replace("no independent confirmations", "")
        if style == "markdown":
            lines = [line for line in table.splitlines() if line.startswith(("| hat", "| scarf"))]
            assert [line.split(" | ")[1] for line in lines].count("again") == 0
            assert sum("| again |" in line for line in lines) == 2


def test_a_given_level_reaches_error_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = drawn_pairs(tmp_path, identities=6)
    (tmp_path / "eye.py").write_text(TARGET, encoding="utf-8")
    more = ("--target", f"{tmp_path / 'eye.py'}:Eye", "--out", tmp_path / "run", "--match-threshold", 0.5)
    widths = []
    for level, said in (((), "95 %"), (("--level", 0.99), "99 %")):
        assert call(capsys, "audit", table, *more, *level).status == 0
        record = json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))
        (item,) = record["recognition"]
        assert f"{100 * item['level']:g} %" == said
        shown = call(capsys, "table", tmp_path / "run", "--recognition").out
        assert f"{said} intervals" in shown
        assert f"{said}: the level of error rates" in shown
        widths.append(
            [
                rate["high"] - rate["low"]
                for cell in item["cells"]
                if (rate := cell["before"]) and rate["low"] is not None
            ]
        )
        assert item["permutations"] + 1 >= math.floor(2 / (1 - item["level"]))
    assert all(one < other for one, other in zip(*widths, strict=True))
    refused = call(capsys, "audit", table, *more, "--level", 0.9999)
    assert refused.status == 2
    assert "take a --level of at most 0.999, got 0.9999" in refused.err


def test_the_funnel_takes_a_level_and_a_run_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    call(capsys, "audit", "--scores", searched(tmp_path), "--out", run)
    refused = call(capsys, "table", run, "--level", 0.9)
    assert refused.status == 2
    assert "the level of a run was set when it was audited" in refused.err
