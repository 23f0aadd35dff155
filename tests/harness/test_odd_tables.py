"""Tables as other programs write them: what is a line, a label, a number and a missing value."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from targets.base.tables import read_table
from tests.support import Result, call

COLUMNS = ("pair_id", "identity", "variation", "demographic", "attribute", "concept", "source_score")
Columns = dict[str, list[object]]


def plain() -> Columns:
    """24 rows, two groups of six identities, a change of exactly 0.25."""
    groups = [group for group in ("BF", "WM") for _ in range(12)]
    source = [(row % 5) / 16 for row in range(24)]
    return {
        "pair_id": [f"p{row}" for row in range(24)],
        "identity": [f"{group}{row % 6}" for row, group in enumerate(groups)],
        "variation": [row // 6 % 2 for row in range(24)],
        "demographic": list(groups),
        "attribute": ["glasses"] * 24,
        "concept": ["smile"] * 24,
        "source_score": list(source),
        "transformed_score": [score + 0.25 + row % 3 / 64 for row, score in enumerate(source)],
    }


def jsonl(path: Path, columns: Columns, end: str = "\n") -> Path:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    path.write_bytes((end.join(json.dumps(row, ensure_ascii=False) for row in rows) + end).encode())
    return path


def parquet(path: Path, columns: Columns, types: dict[str, pa.DataType] | None = None) -> Path:
    arrays = {name: pa.array(values, (types or {}).get(name)) for name, values in columns.items()}
    pq.write_table(pa.table(arrays), path)
    return path


def csv_file(path: Path, columns: Columns, before: str = "", end: str = "\n") -> Path:
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_bytes((before + end.join(lines) + end).encode())
    return path


def audited(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Result, list[dict[str, object]]]:
    run = path.parent / f"{path.name}-run"
    done = call(capsys, "audit", "--scores", path, "--out", run, "--max-failures", 1)
    if not (run / "record.json").exists():
        return done, []
    cells = json.loads((run / "record.json").read_text())["cells"]
    # The target's name is the file's.
    return done, [{**cell, "target": "", "family": ""} for cell in cells]


def the_same(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file gives the cells of the plain CSV with these columns."""
    expected = audited(csv_file(path.parent / "plain.csv", plain()), capsys)[1]
    done, cells = audited(path, capsys)
    assert (done.status, done.err) == (0, "")
    assert [cell["group"] for cell in expected] == ["BF", "WM"]
    assert cells == expected


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_a_line_feed_ends_a_line_of_json(
    sign: str, end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    the_same(jsonl(tmp_path / "t.jsonl", {**plain(), "note": [f"a{sign}b"] * 24}, end), capsys)


def test_a_raw_vertical_tab_is_a_character(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(b'{"a": "x\x0by\x0cz"}\n{"a": "2"}\n')
    assert list(read_table(tmp_path / "t.jsonl").text("a")) == ["x\x0by\x0cz", "2"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"a": 1, "a": 2}', "line 2 must be one JSON object: key 'a' occurs twice"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "line 2 must be one JSON object"),
        ("[1]", "line 2 must be one JSON object, got list"),
    ],
)
def test_a_line_that_is_no_row(
    line: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.jsonl").write_text(f'{{"a": 1}}\n{line}\n')
    done = call(capsys, "audit", "--scores", tmp_path / "t.jsonl", "--out", tmp_path / "run")
    assert (done.status, words in done.err, len(done.err) < 1000) == (2, True, True)


@pytest.mark.parametrize("before", ["\n", "\r\n\r\n", "  \n\n", "\ufeff\n"])
def test_empty_lines_before_the_header(
    before: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    the_same(csv_file(tmp_path / "t.csv", plain(), before), capsys)


def test_a_row_keeps_its_number_behind_empty_lines(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n\na,b\n1,2\n")
    assert read_table(tmp_path / "t.csv").row(0) == "t.csv row 4"


TYPES = {
    "binary": {name: pa.binary() for name in ("pair_id", "identity", "demographic", "attribute", "concept")},
    "large": {name: pa.large_string() for name in ("identity", "demographic", "concept")},
    "view": {name: pa.string_view() for name in ("identity", "demographic", "concept")},
    "categories": {name: pa.dictionary(pa.int8(), pa.string()) for name in ("identity", "demographic")},
    "decimal": {name: pa.decimal128(12, 8) for name in ("source_score", "transformed_score")},
}


@pytest.mark.parametrize("kind", TYPES)
def test_types_of_other_programs(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = plain()
    if kind == "decimal":
        for name in TYPES[kind]:
            columns[name] = [Decimal(str(value)) for value in columns[name]]
    if kind == "binary":
        for name in TYPES[kind]:
            columns[name] = [str(value).encode() for value in columns[name]]
    the_same(parquet(tmp_path / "t.parquet", columns, TYPES[kind]), capsys)


@pytest.mark.parametrize("number", [float, Decimal])
def test_numbers_as_ids_are_whole(number: type, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = plain()
    columns["pair_id"] = [number(row) for row in range(24)]
    path = parquet(tmp_path / "t.parquet", columns)
    assert list(read_table(path).text("pair_id")) == [str(row) for row in range(24)]
    assert audited(path, capsys)[0].status == 0


@pytest.mark.parametrize("missing", [float("nan"), None])
@pytest.mark.parametrize("column", ["demographic", "identity", "attribute", "pair_id"])
def test_a_label_that_is_not_a_number_is_missing(
    column: str, missing: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = plain()
    columns[column][3] = missing
    done, cells = audited(jsonl(tmp_path / "t.jsonl", columns), capsys)
    assert "left out: missing_label 1" in done.out
    assert {cell["group"] for cell in cells} == {"BF", "WM"}


def test_float_ids_with_a_hole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = plain()
    columns["identity"] = [float("nan") if row == 3 else float(row % 6) for row in range(24)]
    assert "missing_label 1" in audited(parquet(tmp_path / "t.parquet", columns), capsys)[0].out


@pytest.mark.parametrize("value", [b"\xff\xfe\xfa", ["a"], {"a": 1}])
def test_what_is_no_text_is_one_line(
    value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = plain()
    columns["demographic"] = [value] * 24
    done, _ = audited(parquet(tmp_path / "t.parquet", columns), capsys)
    assert done.status == 2
    assert "column 'demographic' must hold UTF-8 text or numbers, got" in done.err
    assert "t.parquet row 1" in done.err


def test_times_and_truth_values_are_no_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for value, kind in (
        (dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC), pa.timestamp("ns", "UTC")),
        (dt.date(2024, 5, 1), pa.date32()),
        (dt.timedelta(seconds=3), pa.duration("us")),
        (True, pa.bool_()),
        ("0.5", pa.string()),
        (b"0.5", pa.binary()),
    ):
        columns = {**plain(), "source_score": [value] * 24}
        done, _ = audited(parquet(tmp_path / "t.parquet", columns, {"source_score": kind}), capsys)
        assert "left out: non_finite 24" in done.out, kind


def test_nanoseconds_in_a_column_that_is_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns: Columns = {**plain(), "when": [1_700_000_000_000_000_001] * 24}
    the_same(parquet(tmp_path / "t.parquet", columns, {"when": pa.timestamp("ns")}), capsys)


def test_a_number_beyond_all_floats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = plain()
    columns["source_score"][0] = 10**400
    assert "non_finite 1" in audited(jsonl(tmp_path / "t.jsonl", columns), capsys)[0].out


def test_half_precision_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {name: pa.float16() for name in ("source_score", "transformed_score")}
    import numpy as np

    columns = plain()
    for name in kinds:
        columns[name] = [np.float16(value) for value in columns[name]]  # type: ignore[arg-type]
    the_same(parquet(tmp_path / "t.parquet", columns, kinds), capsys)


def test_one_column_name_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = [pa.array(["a"]), pa.array(["b"])]
    pq.write_table(pa.Table.from_arrays(arrays, names=["pair_id", "pair_id"]), tmp_path / "t.parquet")
    done, _ = audited(tmp_path / "t.parquet", capsys)
    assert (done.status, "'pair_id' occurs twice" in done.err) == (2, True)


def test_half_a_surrogate_pair_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns: Columns = {**plain(), "identity": ["a\ud800"] * 24}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done, _ = audited(tmp_path / "t.jsonl", capsys)
    assert (done.status, "column 'identity' must hold UTF-8 text" in done.err) == (2, True)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_break_in_a_header(end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = csv_file(tmp_path / "t.csv", {"note": ["x"] * 24, **plain()}, end=end)
    path.write_bytes(path.read_bytes().replace(b"note", b'"no\nte"', 1))
    the_same(path, capsys)


@pytest.mark.parametrize("before", ['"', '"a"b,"', 'a,"'])
def test_a_quotation_mark_that_stays_open_in_the_header(
    before: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done, _ = audited(csv_file(tmp_path / "t.csv", plain(), before), capsys)
    assert (done.status, len(done.err.splitlines())) == (2, 1), done.err
    assert "t.csv: " in done.err


@pytest.mark.parametrize(
    "encoding", ["punycode", "undefined", "a\0b", "unicode_escape", "rot13", "utf-7", "no such"]
)
def test_an_encoding_that_gives_no_text(
    encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = csv_file(tmp_path / "t.csv", {**plain(), "attribute": ["\\udc80+2AA-"] * 24})
    done = call(capsys, "audit", "--scores", path, "--out", tmp_path / "run", "--encoding", encoding)
    assert done.status == 2, done.err
    assert len(done.err.splitlines()) == 1
    assert "encoding" in done.err or "can't be read as" in done.err


@pytest.mark.parametrize("column", ["demographic", "source_score", "note"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (10**70, pa.decimal256(76, 0)),
        (1, pa.timestamp("us", "Nowhere/Zone")),
        (2**62, pa.duration("s")),
        (2**62, pa.timestamp("us")),
        (2**31 - 1, pa.date32()),
    ],
    ids=str,
)
def test_a_cell_that_python_has_no_value_for(
    value: int, kind: pa.DataType, column: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done, _ = audited(
        parquet(tmp_path / "t.parquet", {**plain(), column: [value] * 24}, {column: kind}), capsys
    )
    assert done.status in (0, 2), done.err
    assert done.status == 0 or f"'{column}'" in done.err


def test_a_parquet_text_that_is_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = parquet(tmp_path / "t.parquet", plain())
    path.write_bytes(path.read_bytes().replace(b"glasses", b"gl\xffsses"))
    done, _ = audited(path, capsys)
    assert (done.status, "t.parquet is not a readable parquet file" in done.err) == (2, True), done.err


@pytest.mark.parametrize("method", ["cluster", "t", "bootstrap"])
def test_scores_at_the_ends_of_all_floats(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for size in (9e99, 1e-320):
        signs = [(-1) ** row for row in range(24)]
        ends = {"source_score": [sign * size for sign in signs], "transformed_score": [-size] * 24}
        path = csv_file(tmp_path / f"{size}.csv", {**plain(), **ends})
        for option in (("--margin", 1e-12), ("--half-width", 1e-12)):
            run = tmp_path / f"{size}{option[0]}"
            done = call(capsys, "audit", "--scores", path, "--out", run, "--ci", method, *option)
            assert (done.status, done.err) == (0, "")
            json.loads((run / "record.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("size", [1.7e308, -1e101])
def test_a_score_beyond_all_scales_is_a_counted_row(
    size: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = plain()
    columns["source_score"][0] = size
    for path in (csv_file(tmp_path / "t.csv", columns), jsonl(tmp_path / "t.jsonl", columns)):
        assert "left out: non_finite 1" in audited(path, capsys)[0].out


@pytest.mark.parametrize("option", ["--half-width", "--margin"])
@pytest.mark.parametrize("value", ["1e-300", "1e-320", "1e300", "nan", "inf", "0", "-1"])
def test_a_width_that_is_a_typo(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = csv_file(tmp_path / "t.csv", plain())
    done = call(capsys, "audit", "--scores", path, "--out", tmp_path / "run", option, value)
    assert (done.status, option in done.err, len(done.err.splitlines())) == (2, True, 1), done.err


def test_a_quotation_mark_inside_a_header_is_a_character(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('picture,attrib",+yes\n1,2,3\n')
    assert list(read_table(tmp_path / "t.csv").columns) == ["picture", 'attrib"', "+yes"]
