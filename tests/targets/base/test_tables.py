"""Tables are read as they are written: no label lost, no identity merged, nothing guessed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from targets.base.errors import InputError
from targets.base.tables import parse_number, read_table
from tests.support import shipped


def test_text_stays_text(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,group\n007,NA\n7,None\n1e5,null\n9007199254740993,\n", encoding="utf-8")
    table = read_table(path)
    assert table.text("id").tolist() == ["007", "7", "1e5", "9007199254740993"]
    assert table.text("group").tolist() == ["NA", "None", "null", ""]


def test_byte_order_mark_quotes_and_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbfid,note\r\n1,"two\nlines, and ""quotes"""\r\n')
    table = read_table(path)
    assert list(table.columns) == ["id", "note"]
    assert table.text("note").tolist() == ['two\nlines, and "quotes"']


def test_parquet_numbers_become_labels_without_a_point(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"variation": [1.0, None], "identity": [3, 4]}), path)
    table = read_table(path)
    assert table.text("variation").tolist() == ["1", ""]
    assert table.text("identity").tolist() == ["3", "4"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"a,a\n1,2\n", "'a' occurs twice"),
        (b"a,b\n1,2\n1,2,3\n", "every row must have 2 cells, got 3"),
        ("a,b\nJosé,2\n".encode("cp1252"), "declare it with --encoding"),
        ("a,b\n1,2\n".encode("utf-16"), "pass --encoding utf-16"),
    ],
)
def test_a_bad_csv_is_one_clear_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_table(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_a_declared_encoding_is_used(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("name\nJosé\n".encode(encoding))
    assert read_table(path, encoding).text("name").tolist() == ["José"]


@pytest.mark.parametrize(
    ("line", "words"), [("[1]", "one JSON object, got list"), ("{", "line 2 must be one")]
)
def test_a_bad_json_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"t\.jsonl line 2") as caught:
        read_table(path)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("0.25", None),
        (" 1e-3 ", None),
        (0, None),
        ("", "absent"),
        ("NA", "absent"),
        ("NaN", "absent"),
        (float("nan"), "absent"),
        (None, "absent"),
        ("inf", "not a finite number"),
        (float("-inf"), "not a finite number"),
        ("1_000", "not a finite number"),
        ("high", "not a finite number"),
        (True, "not a finite number"),
        ([1], "not a finite number"),
    ],
)
def test_scores(value: object, fault: str | None) -> None:
    assert parse_number(value)[1] == fault


def test_corpus_labels() -> None:
    tables = shipped("corpus") / "tables"
    groups = read_table(tables / "na_demographic.csv").text("demographic").tolist()
    assert {group: groups.count(group) for group in set(groups)} == {"NA": 6, "WM": 6}
    assert len(set(read_table(tables / "na_like_labels.csv").text("demographic"))) == 8
    assert len(set(read_table(tables / "numeric_looking_ids.csv").text("identity"))) == 6
    ok = {name: column.tolist() for name, column in read_table(tables / "ok.csv").columns.items()}
    bom = {name: column.tolist() for name, column in read_table(tables / "bom_utf8.csv").columns.items()}
    assert ok == bom
    assert len(read_table(tables / "utf16le_bom.csv", "utf-16")) == len(ok["pair_id"])
    with pytest.raises(InputError, match="--encoding utf-16"):
        read_table(tables / "utf16le_bom.csv")
    with pytest.raises(InputError, match="--encoding"):
        read_table(tables / "cp1252.csv")
