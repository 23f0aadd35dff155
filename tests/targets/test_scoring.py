"""Every distinct picture is asked about once, and never again where its answer can be trusted."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from targets.base.errors import TargetError
from targets.catalogue import LoadedTarget, describe
from targets.drawn_pictures import drawn_faces
from targets.protocol import NO_FACE, Scores
from targets.scoring import PictureRef, score_pictures


def picture(number: int, name: str | None = None, kind: str = "PNG") -> PictureRef:
    image = drawn_faces(1)[0]
    image.putpixel((number, 0), (number, 1, 2))
    stream = io.BytesIO()
    image.save(stream, kind)
    return PictureRef(name or f"p{number}.png", stream.getvalue)


class Counting:
    """Scores the first pixel that differs and remembers every call."""

    concepts = ("number", "bright")
    batch_size = 4

    def __init__(self, weights: str = "w1", gain: float = 1.0) -> None:
        self.batches: list[int] = []
        self.card = {"name": "counting", "weights": {"w": weights}, "settings": {"gain": gain}}
        self.gain = gain

    def score(self, images: Sequence[Image.Image]) -> np.ndarray:
        self.batches.append(len(images))
        rows = [np.asarray(image, float)[0] for image in images]
        return np.array(
            [[self.gain * max(0, *(r[c, 0] for c in range(20) if r[c, 1] == 1)), 1] for r in rows]
        )


def loaded(target: object) -> LoadedTarget:
    return describe(target, "test")


def test_equal_names_and_equal_pixels_are_asked_once(tmp_path: Path) -> None:
    target = Counting()
    pictures = [picture(1), picture(1), picture(2), picture(1, "copy.bmp", "BMP"), picture(3)]
    seen = score_pictures(loaded(target), pictures, tmp_path, show_progress=False)
    assert sum(target.batches) == 3
    assert seen["p1.png"].values.tolist() == seen["copy.bmp"].values.tolist() == [1.0, 1.0]
    assert seen["copy.bmp"].format == "BMP"
    assert seen["p1.png"].size == (160, 160)


def test_a_second_run_asks_nothing_and_another_model_asks_again(tmp_path: Path) -> None:
    pictures = [picture(number) for number in range(1, 7)]
    first = score_pictures(loaded(Counting()), pictures, tmp_path, show_progress=False)
    again = Counting()
    second = score_pictures(loaded(again), pictures, tmp_path, show_progress=False)
    assert again.batches == []
    assert {k: v.values.tolist() for k, v in first.items()} == {
        k: v.values.tolist() for k, v in second.items()
    }
    for other in (Counting(weights="w2"), Counting(gain=2.0)):
        result = score_pictures(loaded(other), pictures, tmp_path, show_progress=False)
        assert sum(other.batches) == 6
        assert result["p3.png"].values[0] == 3 * other.gain


def test_batches_follow_the_plan_whatever_is_cached(tmp_path: Path) -> None:
    """A run that goes on makes the very batches an undisturbed run would have made."""
    pictures = [picture(number) for number in range(1, 11)]
    score_pictures(loaded(Counting()), pictures[:4], tmp_path, show_progress=False)
    rest = Counting()
    score_pictures(loaded(rest), pictures, tmp_path, show_progress=False)
    assert rest.batches == [4, 2]


def test_what_was_answered_before_a_fault_is_kept(tmp_path: Path) -> None:
    class Fragile(Counting):
        def score(self, images: Sequence[Image.Image]) -> np.ndarray:
            if len(self.batches) == 2:
                raise RuntimeError("out of luck")
            return super().score(images)

    pictures = [picture(number) for number in range(1, 11)]
    with pytest.raises(TargetError, match=r"target test failed on p9\.png: RuntimeError: out of luck"):
        score_pictures(loaded(Fragile()), pictures, tmp_path, show_progress=False)
    after = Counting()
    score_pictures(loaded(after), pictures, tmp_path, show_progress=False)
    assert after.batches == [2]


def test_missing_unreadable_blank_and_faceless_pictures_have_their_reason(tmp_path: Path) -> None:
    class Picky(Counting):
        def score(self, images: Sequence[Image.Image]) -> Scores:  # type: ignore[override]
            values = super().score(images)
            return Scores(values, tuple(NO_FACE if row[0] == 2 else None for row in values))

    def absent() -> bytes:
        raise FileNotFoundError("gone")

    blank = io.BytesIO()
    Image.new("RGB", (64, 64), "black").save(blank, "PNG")
    pictures = [
        picture(1),
        picture(2),
        PictureRef("gone.png", absent),
        PictureRef("torn.png", lambda: b"\x89PNG\r\n\x1a\ntorn"),
        PictureRef("blank.png", blank.getvalue),
    ]
    target = Picky()
    seen = score_pictures(loaded(target), pictures, tmp_path, show_progress=False)
    reasons = {name: item.reason for name, item in seen.items()}
    assert reasons == {
        "p1.png": None,
        "p2.png": "no_face",
        "gone.png": "missing",
        "torn.png": "unreadable",
        "blank.png": "unreadable",
    }
    assert target.batches == [2]
    assert np.isnan(seen["p2.png"].values).all()
    assert "same colour" in seen["blank.png"].detail


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda n: np.zeros(n), r"must return \(2, 2\) floats, got \(2,\)"),
        (lambda n: np.zeros((n, 3)), r"got \(2, 3\)"),
        (lambda n: np.zeros((n + 1, 2)), r"got \(3, 2\)"),
        (lambda n: [["a", "b"]] * n, "floats, got list"),
        (lambda n: None, r"floats, got \(\)|floats, got NoneType"),
        (
            lambda n: Scores(np.zeros((n, 2)), (None,)),
            "must give 2 reasons, and details too or none, got 1 reasons",
        ),
    ],
)
def test_an_answer_of_another_shape_is_refused(tmp_path: Path, answer: object, words: str) -> None:
    class Wrong(Counting):
        def score(self, images: Sequence[Image.Image]) -> object:  # type: ignore[override]
            return answer(len(images))  # type: ignore[operator]

    with pytest.raises(TargetError, match=words):
        score_pictures(loaded(Wrong()), [picture(1), picture(2)], tmp_path, show_progress=False)


def test_infinite_scores_never_reach_the_disk_as_numbers(tmp_path: Path) -> None:
    class Wild(Counting):
        def score(self, images: Sequence[Image.Image]) -> np.ndarray:
            return np.array([[np.inf, 0.5]] * len(images))

    for _ in range(2):
        seen = score_pictures(loaded(Wild()), [picture(1)], tmp_path, show_progress=False)
        assert not np.isfinite(seen["p1.png"].values[0])
        assert seen["p1.png"].values[1] == 0.5
        assert seen["p1.png"].reason is None


class Holding:
    """Keeps count of the pictures that were decoded and not yet scored."""

    concepts = ("bright",)
    batch_size = 64

    def __init__(self) -> None:
        self.decoded, self.scored, self.most, self.batches = 0, 0, 0, []

    def prepare(self, image: Image.Image) -> Image.Image:
        self.decoded += 1
        return image

    def score(self, images: Sequence[Image.Image]) -> np.ndarray:
        self.most = max(self.most, self.decoded - self.scored)
        self.scored += len(images)
        self.batches.append(len(images))
        return np.ones((len(images), 1))


def test_pictures_in_flight_are_bounded_in_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("targets.opening.MOST_PIXELS", 5 * 1_210_000)
    pictures = []
    for number in range(30):
        image = Image.new("RGB", (1100, 1100))
        image.putpixel((0, 0), (number + 1, 0, 0))
        stream = io.BytesIO()
        image.save(stream, "PNG", compress_level=1)
        pictures.append(PictureRef(str(number), stream.getvalue))
    target = Holding()
    score_pictures(loaded(target), pictures, tmp_path, show_progress=False)
    assert sum(target.batches) == 30
    assert max(target.batches) == 5
    # One batch is asked about while no more than another is decoded.
    assert target.most <= 10


def test_small_pictures_fill_whole_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("targets.opening.MOST_PIXELS", 5 * 160 * 160)
    target = Counting()
    score_pictures(loaded(target), [picture(n) for n in range(1, 9)], tmp_path, show_progress=False)
    assert target.batches == [4, 4]
