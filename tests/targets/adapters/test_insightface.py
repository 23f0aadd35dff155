"""insightface on a pack written here: a detector that always finds one face, tiny random other models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from targets.base.errors import InputError
from targets.catalogue import load_target
from targets.drawn_pictures import drawn_faces
from tests.targets.tools import conforms

onnx = pytest.importorskip("onnx", reason="needs package onnx, which writes the pack of this test")
pytest.importorskip("insightface", reason="needs the extra 'insightface'")

SIDE = 64


def save(path: Path, nodes: list, inputs: list, outputs: list, constants: list) -> None:
    graph = onnx.helper.make_graph(nodes, path.stem, inputs, outputs, constants)
    opset = [onnx.helper.make_opsetid("", 18)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def info(name: str, shape: list) -> object:
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


def constant(name: str, values: np.ndarray) -> object:
    return onnx.numpy_helper.from_array(values, name)


def write_detector(path: Path) -> None:
    """SCRFD's nine outputs (scores, boxes, points at three strides): one anchor in the middle fires.

    Every output adds nought times the picture's mean, so that the graph depends on its input.
    """
    nodes, outputs = [], []
    constants = [constant("nought", np.zeros(1, np.float32)), constant("axes", np.array([1, 2, 3]))]
    nodes.append(onnx.helper.make_node("ReduceMean", ["picture", "axes"], ["mean"], keepdims=0))
    nodes.append(onnx.helper.make_node("Mul", ["mean", "nought"], ["zero"]))
    for kind, width in (("score", 1), ("box", 4), ("points", 10)):
        for stride in (8, 16, 32):
            cells = SIDE // stride
            values = np.zeros((cells * cells * 2, width), np.float32)
            if stride == 8:
                middle = (cells // 2 * cells + cells // 2) * 2
                face = np.array([-1, -1, 1, -1, 0, 0, -0.8, 1, 0.8, 1], np.float32) * 1.5
                values[middle] = {"score": [0.9], "box": [3, 3, 3, 3], "points": face}[kind]
            name = f"{kind}_{stride}"
            constants.append(constant(f"{name}_values", values))
            nodes.append(onnx.helper.make_node("Add", [f"{name}_values", "zero"], [name]))
            outputs.append(info(name, list(values.shape)))
    save(path, nodes, [info("picture", [1, 3, "height", "width"])], outputs, constants)


def write_pooled(path: Path, side: int, width: int, batch: int | str) -> None:
    """A few random weights over the means of an 8 x 8 grid."""
    weights = np.random.default_rng(side).normal(size=(3 * 64, width)).astype(np.float32)
    step = side // 8
    nodes = [
        onnx.helper.make_node(
            "AveragePool", ["picture"], ["grid"], kernel_shape=[step, step], strides=[step, step]
        ),
        onnx.helper.make_node("Flatten", ["grid"], ["flat"]),
        onnx.helper.make_node("MatMul", ["flat", "weights"], ["answer"]),
    ]
    inputs, outputs = [info("picture", [batch, 3, side, side])], [info("answer", [batch, width])]
    save(path, nodes, inputs, outputs, [constant("weights", weights)])


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("insightface") / "tiny"
    folder.mkdir()
    write_detector(folder / "det.onnx")
    write_pooled(folder / "recognition.onnx", 112, 16, "n")
    write_pooled(folder / "genderage.onnx", 96, 3, "n")
    return folder


@pytest.mark.parametrize("output", ["embedding", "attributes"])
def test_conforms(pack: Path, output: str) -> None:
    conforms(f"insightface:{pack}", {"output": output, "detection_size": SIDE})


def test_male_is_one_and_age_is_in_years(pack: Path) -> None:
    loaded = load_target(f"insightface:{pack}", {"output": "attributes", "detection_size": SIDE})
    scores = loaded.target.score(drawn_faces(2))
    assert loaded.card.concepts == ("age", "male")
    assert set(scores.values[:, 1]) <= {0.0, 1.0}
    assert loaded.card.licence.endswith("non-commercial research only")
    assert set(loaded.card.weights) == {"det.onnx", "recognition.onnx", "genderage.onnx"}


def test_nothing_found_is_no_face(pack: Path) -> None:
    strict = {"detection_size": SIDE, "detection_threshold": 0.95}
    scores = load_target(f"insightface:{pack}", strict).target.embed(drawn_faces(1))
    assert scores.reasons == ("no_face",)


def test_a_pack_without_models_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no \.onnx file; download and unpack the pack"):
        load_target(f"insightface:{tmp_path}")


def test_a_pack_without_the_asked_model(pack: Path, tmp_path: Path) -> None:
    for name in ("det.onnx", "recognition.onnx"):
        (tmp_path / name).write_bytes((pack / name).read_bytes())
    with pytest.raises(InputError, match="has no model for genderage"):
        load_target(f"insightface:{tmp_path}", {"output": "attributes", "detection_size": SIDE})


@pytest.mark.parametrize(
    ("spec", "settings", "words"),
    [("insightface", {}, "name the pack"), ("insightface:x", {"detection_size": 100}, "multiple of 32")],
)
def test_bad_input(spec: str, settings: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_target(spec, settings)
