"""Pairs as the datasets library leaves them: one file, a saved folder, any split and config."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Image

from tests.support import call, drawn_pairs

TARGET = """
import numpy as np
class T:
    concepts = ("bright",)
    def score(self, images):
        return np.array([[np.asarray(image).mean() / 255] for image in images])
"""


def rows_of(folder: Path) -> list[dict[str, object]]:
    """The drawn pairs with their pictures' bytes."""
    with drawn_pairs(folder).open(encoding="utf-8") as stream:
        rows: list[dict[str, object]] = list(csv.DictReader(stream))
    for row in rows:
        for side in ("source", "transformed"):
            row[side] = {"bytes": (folder / str(row[side])).read_bytes(), "path": str(row[side])}
    return rows


def dataset(folder: Path) -> Dataset:
    """As a user has it: pictures and class labels as features."""
    made = Dataset.from_list(rows_of(folder))
    for side in ("source", "transformed"):
        made = made.cast_column(side, Image())
    return made.cast_column("demographic", ClassLabel(names=["BF", "WM"]))


def filtered_file(folder: Path) -> Path:
    dataset(folder).filter(lambda group: group >= 0, input_columns="demographic").to_parquet(
        folder / "filtered.parquet"
    )
    return folder / "filtered.parquet"


def struct_file(folder: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(rows_of(folder)), folder / "structs.parquet")
    return folder / "structs.parquet"


def bare_bytes(folder: Path) -> Path:
    """As an export from a database holds pictures; its labels may be bytes as well."""
    rows = rows_of(folder)
    for row in rows:
        row["demographic"] = str(row["demographic"]).encode()
        for side in ("source", "transformed"):
            row[side] = row[side]["bytes"]  # type: ignore[index]
    pq.write_table(pa.Table.from_pylist(rows), folder / "bare.parquet")
    return folder / "bare.parquet"


def paths_in_structs(folder: Path) -> Path:
    rows = rows_of(folder)
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.Table.from_pylist(rows)
    for side in ("source", "transformed"):
        values = pa.array([{"bytes": None, "path": row[side]["path"]} for row in rows], kind)  # type: ignore[index]
        table = table.set_column(table.column_names.index(side), side, values)
    pq.write_table(table, folder / "paths.parquet")
    return folder / "paths.parquet"


def saved(folder: Path) -> Path:
    dataset(folder).filter(lambda group: group >= 0, input_columns="demographic").save_to_disk(
        folder / "saved"
    )
    return folder / "saved"


def saved_test_split(folder: Path) -> Path:
    DatasetDict(test=dataset(folder)).save_to_disk(folder / "both")
    return folder / "both"


def shards(folder: Path) -> Path:
    """As the hub lays them out, with only a split "test" and a config "default"."""
    out = folder / "hub.v1"
    (out / "data").mkdir(parents=True)
    made = dataset(folder)
    for number in (0, 1):
        made.shard(2, number).to_parquet(out / f"data/test-{number:05}-of-00002.parquet")
    (out / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: test\n    path: data/test-*\n---\n"
    )
    return out


def shards_without_card(folder: Path) -> Path:
    out = shards(folder)
    (out / "README.md").unlink()
    return out


@pytest.mark.parametrize(
    "make",
    [
        filtered_file,
        struct_file,
        bare_bytes,
        paths_in_structs,
        saved,
        saved_test_split,
        shards,
        shards_without_card,
    ],
)
def test_every_form_gives_the_cells_of_the_table(
    make: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(TARGET)
    data = make(tmp_path)
    cells = {}
    for name, path in (("table", tmp_path / "pairs.csv"), ("data", data)):
        run = tmp_path / f"run-{name}"
        done = call(capsys, "audit", path, "--target", f"{tmp_path}/own.py:T", "--out", run)
        assert done.status == 0, done.err
        cells[name] = sorted(
            json.loads((run / "record.json").read_text())["cells"], key=lambda cell: str(cell["group"])
        )
    assert [cell["n_pairs"] for cell in cells["table"]] == [6, 6]
    assert cells["data"] == cells["table"]


def two_of_each(folder: Path) -> Path:
    """Configs "easy" and "hard" with two splits each, told by a card."""
    out = folder / "two"
    lines = ["---", "configs:"]
    rows = rows_of(folder)
    for config in ("easy", "hard"):
        lines += [f"- config_name: {config}", "  data_files:"]
        (out / config).mkdir(parents=True)
        for number, split in enumerate(("validation", "test")):
            lines += [f"  - split: {split}", f"    path: {config}/{split}.parquet"]
            half = rows[number * 6 : number * 6 + 6] if config == "easy" else rows
            pq.write_table(pa.Table.from_pylist(half), out / config / f"{split}.parquet")
    (out / "README.md").write_text("\n".join([*lines, "---", ""]))
    return out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "has no config 'pairs': choose one of its configs easy, hard with --config"),
        (["--config", "easy"], "choose one of the splits validation, test with --split"),
        (
            ["--config", "easy", "--split", "train"],
            "no split 'train', only validation, test",
        ),
        (["--config", "none"], "has no config 'none', only easy, hard"),
    ],
)
@pytest.mark.parametrize("command", ["audit", "export"])
def test_what_there_is_to_choose(
    command: str, options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(TARGET)
    start = ("audit", "--target", f"{tmp_path}/own.py:T") if command == "audit" else ("capture", "export")
    done = call(capsys, *start, two_of_each(tmp_path), "--out", tmp_path / "run", *options)
    assert (done.status, words in done.err) == (2, True), done.err


def test_a_choice_is_read_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(TARGET)
    run = tmp_path / "run"
    choice = ("--config", "easy", "--split", "test")
    target = f"{tmp_path}/own.py:T"
    done = call(capsys, "audit", two_of_each(tmp_path), "--target", target, "--out", run, *choice)
    assert done.status == 0, done.err
    record = json.loads((run / "record.json").read_text())
    assert (record["data"]["config"], record["data"]["split"]) == ("easy", "test")
    assert {cell["group"]: cell["n_pairs"] for cell in record["cells"]} == {"BF": 6}


def test_a_table_has_nothing_to_choose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = call(
        capsys, "capture", "export", drawn_pairs(tmp_path), "--split", "test", "--out", tmp_path / "x"
    )
    assert (done.status, "has no config or split to choose" in done.err) == (2, True)


def test_an_empty_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none").mkdir()
    done = call(capsys, "capture", "export", tmp_path / "none", "--out", tmp_path / "x")
    assert (done.status, "must hold parquet files, or what save_to_disk writes" in done.err) == (2, True)


def test_labels_and_verdicts_of_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Spaces around labels go, look-alikes are named, rows judged invalid are left out."""
    rows = rows_of(tmp_path)
    for number, row in enumerate(rows):
        row["demographic"] = ("\u00a0WM ", "WM", "wm")[number % 3]
        row["validated"] = number != 0
    (tmp_path / "data" / "pairs").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data" / "pairs" / "train.parquet")
    (tmp_path / "own.py").write_text(TARGET)
    run = tmp_path / "run"
    done = call(capsys, "audit", tmp_path / "data", "--target", f"{tmp_path}/own.py:T", "--out", run)
    assert (done.status, "left out: not_validated 1" in done.out) == (0, True), done.err + done.out
    record = json.loads((run / "record.json").read_text(encoding="utf-8"))
    assert (sorted(record["groups"]), record["data"]["n_pairs"]) == (["WM", "wm"], len(rows) - 1)
    assert any("'WM' and 'wm' differ only" in text for text in record["warnings"])
