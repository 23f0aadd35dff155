"""A record is strict, versioned, whole, and described by a published schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.record import json_schema, read_record
from targets.base.errors import InputError
from tests.harness.test_audit_scores import row, scores
from tests.support import ROOT, call

CELL_KEYS = (
    "target by attribute concept group n_pairs n_identities mean_source mean_transformed delta se df ci p "
    "p_adjusted family status reason flags missing excluded reasons"
)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    table = scores(tmp_path / "s.csv", [row(1, 0.1, 0.2), row(2, 0.1, 0.4), row(3, 0.2, 0.4)])
    assert call(capsys, "audit", "--scores", table, "--out", tmp_path / "run").status == 0
    return tmp_path / "run"


def test_cells_have_the_published_keys(run: Path) -> None:
    data = json.loads((run / "record.json").read_text(encoding="utf-8"))
    assert data["schema"] == "facedelta.audit/1"
    assert [" ".join(cell) for cell in data["cells"]] == [CELL_KEYS]
    assert list(data["cells"][0]["ci"]) == ["low", "high", "level", "method"]


def test_it_reads_back_whole(run: Path) -> None:
    record = read_record(run)
    assert record == read_record(run / "record.json")
    assert record.cells[0].delta == pytest.approx(0.2)


def test_the_schema_file_is_the_models(run: Path) -> None:
    path = ROOT / "harness" / "record.schema.json"
    assert json.loads(path.read_text(encoding="utf-8")) == json_schema()
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    jsonschema.validate(json.loads((run / "record.json").read_text(encoding="utf-8")), json_schema())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[: len(text) // 2], "truncated, NaN, or a key twice"),
        (lambda text: text.replace('"se": 0.', '"se": NaN, "x": 0.'), "truncated, NaN, or a key twice"),
        (lambda text: text.replace("audit/1", "audit/2"), "schema must be 'facedelta.audit/1', got"),
        (lambda text: text.replace('"n_pairs": 3,\n   "n_id', '"n_pairs": -3,\n   "n_id'), "cells.0.n_pairs"),
        (lambda text: text.replace('"status": "ok"', '"status": "fine"'), "cells.0.status"),
        (lambda text: text.replace('"groups"', '"gruops"'), "not a valid record"),
        (lambda _: "[]", "schema must be"),
        (lambda _: "", "not strict JSON"),
    ],
)
def test_a_damaged_record_is_refused(run: Path, change: object, words: str) -> None:
    path = run / "record.json"
    before = path.read_text(encoding="utf-8")
    after = change(before)  # type: ignore[operator]
    assert after != before
    path.write_text(after, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_record(run)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "table", tmp_path / "none")
    assert result.status == 2
    assert "no such record" in result.err
