"""A key that occurs twice is an error wherever a user's or another program's JSON is read."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_builder.detect.choice import load_choice
from dataset_builder.detect.distortion import load_distortion_model
from harness.finished import load_run
from targets.base.errors import InputError
from targets.catalogue import load_target
from targets.openai_client import parsed
from tests.harness.runs import spread, write_deltas
from tests.support import call
from tests.targets.http_server import Handler

TWICE = "occurs twice"


def doubled(text: str, key: str) -> str:
    """The text with a second value before the key's own."""
    assert f'"{key}":' in text
    return text.replace(f'"{key}":', f'"{key}": 0, "{key}":', 1)


@pytest.mark.parametrize(
    "words", [("table",), ("report",), ("compare",), ("gate", "--policy", "p.toml")], ids=str
)
@pytest.mark.parametrize("key", ["groups", "n_pairs", "se"])
def test_a_record(
    words: tuple[str, ...], key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_deltas(tmp_path / "run", {("glasses", "WM"): spread(12, 0.1, 0.05)}, score_range=(0, 1))
    record = run / "record.json"
    record.write_text(doubled(record.read_text(encoding="utf-8"), key), encoding="utf-8")
    (tmp_path / "p.toml").write_text(
        '[[rule]]\nmetric = "delta"\nattribute = "glasses"\nconcept = "sunglass"\n'
        'harmful = "both"\nmargin = 1\n'
    )
    command, *more = [str(tmp_path / word) if word == "p.toml" else word for word in words]
    other = {"compare": (run,), "gate": ("--baseline", run)}.get(command, ())
    done = call(capsys, command, run, *other, *more)
    assert (done.status, f"key '{key}' {TWICE}" in done.err, done.err.count("\n")) == (2, True, 1), done.err


def test_a_deeply_nested_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "record.json").write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    done = call(capsys, "table", tmp_path)
    assert (done.status, "nested too deeply" in done.err) == (2, True)


def test_the_labels_beside_a_parquet_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feature = '{"_type": "ClassLabel", "names": ["WM", "BF"]}'
    metadata = f'{{"info": {{"features": {{"demographic": {feature}, "demographic": {feature}}}}}}}'
    names = ("pair_id", "identity", "attribute", "source", "transformed")
    columns = {**{name: ["x"] for name in names}, "demographic": [0]}
    table = pa.table(columns).replace_schema_metadata({"huggingface": metadata})
    (tmp_path / "pairs").mkdir()
    pq.write_table(table, tmp_path / "pairs" / "train.parquet")
    done = call(capsys, "audit", tmp_path, "--target", "sface", "--out", tmp_path / "run")
    assert (done.status, f"key 'demographic' {TWICE}" in done.err) == (2, True), done.err


@pytest.mark.parametrize("read", [load_choice, load_distortion_model, load_run])
def test_files_that_detectors_and_runs_read(read: Callable[[Path], object], tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    file.write_text('{"a": 1, "a": 2}')
    with pytest.raises(InputError, match=f"key 'a' {TWICE}"):
        read(file)


def test_what_a_server_says(tmp_path: Path) -> None:
    class Doubled(Handler):
        def answer(self, value: dict[str, object]) -> None:
            body = doubled(json.dumps(value), next(iter(value))).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Doubled) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(InputError, match=f"must answer JSON: key 'name' {TWICE}"):
            load_target(f"http:http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert parsed('{"a": 1}') == {"a": 1}
    assert parsed('{"a": 1, "a": 2}') is None
