"""Five ways to bring a model, each from what the README says to the table on the terminal."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.targets.tools import ROOT, facedelta, pairs_folder, record_of

pytestmark = pytest.mark.slow

CLASS = """
import numpy as np

class Darkness:
    concepts = ("dark",)
    def score(self, images):
        return np.array([[255 - np.asarray(image).mean()] for image in images]).reshape(-1, 1)
"""

PACKAGE = (
    CLASS
    + """
def load(argument, settings):
    target = Darkness()
    target.card = {"name": "darkness", "weights": {"none": "00"}, "licence": "MIT"}
    return target
"""
)


def darkness_of(tmp_path: Path, target: str, *more: str, **options: object) -> dict[str, float]:
    """Audit a target and return the change of its first concept by group, checked against the table."""
    pairs = pairs_folder(tmp_path / "data")
    done = facedelta("audit", pairs, "--target", target, "--out", "run", *more, cwd=tmp_path, **options)
    assert done.status == 0, done.err
    assert "glasses" in done.out
    assert "written to run" in done.out
    record = record_of(tmp_path / "run")
    cells = [cell for cell in record["cells"] if cell["by"] == "demographic"]
    first = record["concepts"][0]
    return {cell["group"]: cell["delta"] for cell in cells if cell["concept"] == first}


def true_darkness(tmp_path: Path) -> dict[str, float]:
    """What drawing dark glasses changed, from the pictures themselves."""
    changes: dict[str, list[float]] = {}
    with (tmp_path / "data/pairs.csv").open() as stream:
        for row in csv.DictReader(stream):
            before, after = (
                np.asarray(Image.open(tmp_path / "data" / row[side])).mean()
                for side in ("source", "transformed")
            )
            changes.setdefault(row["demographic"], []).append(before - after)
    return {group: float(np.mean(values)) for group, values in changes.items()}


def test_a_callable_class_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text(CLASS)
    assert darkness_of(tmp_path, "my_model.py:Darkness") == pytest.approx(true_darkness(tmp_path))
    checked = facedelta("targets", "check", "my_model.py:Darkness", cwd=tmp_path)
    assert checked.status == 0, checked.err
    assert "FAIL" not in checked.out


def test_a_package_with_an_entry_point(tmp_path: Path) -> None:
    site = tmp_path / "site"
    metadata = site / "darkness-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "darkness.py").write_text(PACKAGE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: darkness\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[facedelta.targets]\ndarkness = darkness:load\n")
    env = {"PYTHONPATH": f"{site}:{ROOT}"}
    assert "darkness:load" in facedelta("targets", "list", cwd=tmp_path, env=env).out
    assert darkness_of(tmp_path, "darkness", env=env) == pytest.approx(true_darkness(tmp_path))
    assert record_of(tmp_path / "run")["targets"][0]["licence"] == "MIT"


def test_an_onnx_file_with_a_card(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs package onnx, which writes the model of this test")
    pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    kind, helper = onnx.TensorProto, onnx.helper
    graph = helper.make_graph(
        [
            helper.make_node("ReduceMean", ["picture", "axes"], ["mean"], keepdims=0),
            helper.make_node("Neg", ["mean"], ["minus"]),
            helper.make_node("Unsqueeze", ["minus", "last"], ["dark"]),
        ],
        "darkness",
        [helper.make_tensor_value_info("picture", kind.FLOAT, ["n", 3, 160, 160])],
        [helper.make_tensor_value_info("dark", kind.FLOAT, ["n", 1])],
        [
            helper.make_tensor("axes", kind.INT64, [3], [1, 2, 3]),
            helper.make_tensor("last", kind.INT64, [1], [1]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "dark.onnx")
    (tmp_path / "dark.toml").write_text(
        'name = "Dark"\n[input]\nsize = [160, 160]\n[output]\nconcepts = ["dark"]\n'
    )
    found = darkness_of(tmp_path, "onnx:dark.onnx")
    assert found == pytest.approx(true_darkness(tmp_path), rel=1e-4)


def test_a_server_behind_http(tmp_path: Path) -> None:
    example = Path(__file__).with_name("http_server.py")
    with subprocess.Popen([sys.executable, str(example)], stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().strip()
            found = darkness_of(tmp_path, f"http:{url}", "--concept", "bright")
        finally:
            server.terminate()
    expected = {group: -value / 255 for group, value in true_darkness(tmp_path).items()}
    assert found == pytest.approx(expected)
    assert sum(1 for line in example.read_text().splitlines() if line.strip()) <= 36


def test_outputs_captured_elsewhere(tmp_path: Path) -> None:
    pairs = pairs_folder(tmp_path / "data")
    exported = facedelta("capture", "export", pairs, "--out", "export", cwd=tmp_path)
    assert exported.status == 0, exported.err
    lines = ["image,dark"]
    for picture in sorted((tmp_path / "export").glob("*.png")):
        lines.append(f"{picture.name},{255 - np.asarray(Image.open(picture)).mean()}")
    (tmp_path / "captured.csv").write_text("\n".join(lines) + "\n")
    done = facedelta(
        *("audit", pairs, "--target", "captured:captured.csv", "--set", "manifest=export/manifest.csv"),
        *("--out", "run"),
        cwd=tmp_path,
    )
    assert done.status == 0, done.err
    cells = [cell for cell in record_of(tmp_path / "run")["cells"] if cell["by"] == "demographic"]
    assert {cell["group"]: cell["delta"] for cell in cells} == pytest.approx(true_darkness(tmp_path))
