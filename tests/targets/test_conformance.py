"""One deliberately broken target a rule: the suite must name that rule."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from targets.base.errors import TargetError
from targets.catalogue import LoadedTarget, describe
from targets.conformance import (
    floor,
    parametrize_with_checks,
    run_checks,
)
from targets.frame import Frame
from targets.protocol import PictureId, Scores
from tests.support import call


class Sound:
    """Keeps every rule: red and blue of the picture's middle, and a vector for nothing else."""

    concepts: Sequence[str] = ("red", "blue")
    batch_size = 4

    def prepare(self, image: Image.Image) -> np.ndarray:
        return np.asarray(image.resize((8, 8), Image.Resampling.BOX), dtype=np.float64).transpose(2, 0, 1)

    def score(self, images: Sequence[np.ndarray]) -> object:
        return np.array([(image[0].mean(), image[2].mean()) for image in images]).reshape(-1, 2)

    def stage(self, pixels: Sequence[np.ndarray]) -> object:
        return [self.prepare(Image.fromarray(array)) for array in pixels]

    def start(self, staged: Sequence[np.ndarray]) -> object:
        return lambda: self.score(staged)


class WrongWidth(Sound):
    def score(self, images):
        return np.zeros((len(images), 3))


class ChangesConcepts(Sound):
    def score(self, images):
        self.concepts = ("blue", "red")
        return super().score(images)


class FailsOnNothing(Sound):
    def score(self, images):
        return super().score([images[0], *images[1:]])


class Infinite(Sound):
    def score(self, images):
        return super().score(images) * np.inf


class UnknownReason(Sound):
    def score(self, images):
        values = super().score(images)
        values[:] = np.nan
        return Scores(values, ("too ugly",) * len(images))


class ReasonAndScore(Sound):
    def score(self, images):
        return Scores(super().score(images), ("no_face",) * len(images))


class Random(Sound):
    generator = np.random.default_rng(0)

    def score(self, images):
        return self.generator.random((len(images), 2))


class FirstIsSpecial(Sound):
    def score(self, images):
        values = super().score(images)
        values[:1] += 1
        return values


class BatchNorm(Sound):
    def score(self, images):
        values = super().score(images)
        return values - values.mean(axis=0) if len(values) > 1 else values


class Mates(Sound):
    """The same for one and for five at a time, but not for three."""

    def score(self, images):
        values = super().score(images)
        return values + values[-1] if len(values) == 3 else values


class Paints(Sound):
    prepare = None

    def score(self, images):
        for image in images:
            image.putpixel((0, 0), (1, 2, 3))
        return np.zeros((len(images), 2))


class OneSize(Sound):
    prepare = None

    def score(self, images):
        return np.stack([np.asarray(image) for image in images])[:, 0, 0, :2].astype(float)


class Bgr(Sound):
    def prepare(self, image):
        return super().prepare(image)[::-1]


class Mirrored(Sound):
    def prepare(self, image):
        return super().prepare(image)[:, :, ::-1]


class StagesOtherwise(Sound):
    def stage(self, pixels):
        return [array + 1 for array in super().stage(pixels)]


class FramesOtherwise(Sound):
    """Says that it resizes with a bicubic filter to 20 pixels, and takes means over blocks."""

    frame = Frame(20, squash=True)


class RandomWeights(Sound):
    """Each loading makes its weights up."""

    def __init__(self) -> None:
        self.weight = np.random.default_rng().uniform(1, 2)

    def score(self, images):
        return self.weight * super().score(images)


class FailsToClose(Sound):
    closed = False

    def close(self):
        if self.closed:
            raise RuntimeError("already closed")
        self.closed = True


class LeavesFile(Sound):
    opened: ClassVar[list] = []

    def score(self, images):
        self.opened.append(os.open(__file__, os.O_RDONLY))
        return super().score(images)


class LeavesThread(Sound):
    stop = threading.Event()

    def score(self, images):
        threading.Thread(target=self.stop.wait, daemon=True).start()
        return super().score(images)


class ChangesLength:
    def embed(self, images):
        return np.ones((len(images), 1 + len(images)))


BROKEN = {
    "shape": WrongWidth,
    "label_space": ChangesConcepts,
    "empty_batch": FailsOnNothing,
    "finite_or_nan": Infinite,
    "abstention": UnknownReason,
    "deterministic": Random,
    "order": FirstIsSpecial,
    "batch_size": BatchNorm,
    "batch_mates": Mates,
    "pictures_unchanged": Paints,
    "sizes": OneSize,
    "colours": Bgr,
    "staged": StagesOtherwise,
    "loaded_twice": RandomWeights,
    "closes": FailsToClose,
}


def as_loaded(target: object) -> LoadedTarget:
    return replace(describe(target, "test"), again=lambda: describe(type(target)(), "test"))


def faults(target: object) -> dict[str, str]:
    results = run_checks(as_loaded(target), closing=True)
    return {result.name: result.fault for result in results if result.fault is not None}


def test_a_sound_target_keeps_every_rule() -> None:
    assert faults(Sound()) == {}


@pytest.mark.parametrize("rule", BROKEN)
def test_the_broken_target_is_caught_by_its_rule(rule: str) -> None:
    assert rule in faults(BROKEN[rule]())


def test_every_rule_has_a_broken_target() -> None:
    names = {result.name for result in run_checks(as_loaded(Sound()), closing=True)}
    assert names == set(BROKEN)


class OtherFile(Sound):
    """Its weights were exchanged between two loadings; the answers happen to agree."""

    count = 0

    def __init__(self) -> None:
        OtherFile.count += 1
        self.card = {"name": "other", "weights": {"net.bin": str(OtherFile.count)}}


def test_other_digests_are_another_model() -> None:
    assert faults(OtherFile()) == {"loaded_twice": "loaded twice: the digests of net.bin differ"}


def test_the_command_catches_random_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
import numpy as np

class Net:
    concepts = ("smile",)

    def __init__(self):
        self.weight = np.random.default_rng().normal()

    def score(self, images):
        return np.array([[self.weight * np.asarray(image, float).mean()] for image in images]).reshape(-1, 1)
"""
    (tmp_path / "net.py").write_text(text)
    result = call(capsys, "targets", "check", f"{tmp_path / 'net.py'}:Net")
    assert result.status == 2
    assert "FAIL  loaded_twice" in result.out
    assert result.err.strip().endswith("breaks 1 rule: loaded_twice")


def test_the_target_is_left_open_unless_closing_is_asked_for() -> None:
    target = FailsToClose()
    run_checks(describe(target, "t"))
    assert not target.closed


@pytest.mark.parametrize(
    ("target", "rule", "words"),
    [
        (ReasonAndScore, "abstention", "must have NaN throughout, got a number"),
        (UnknownReason, "abstention", "must be 'no_face' or 'no_answer', got 'too ugly'"),
        (Bgr, "colours", "channel 0 must be red"),
        (Mirrored, "colours", "BGR instead of RGB, or turned"),
        (ChangesLength, "label_space", "vectors must have one length, got [2, 4]"),
        (FailsToClose, "closes", "close() must not fail, got RuntimeError: already closed"),
        (FailsOnNothing, "empty_batch", "must give no rows, got IndexError"),
        (StagesOtherwise, "staged", "staged against asked: scores differ by 1, more than"),
        (
            FramesOtherwise,
            "staged",
            "resized to Frame(side=20, squash=True) and staged against asked: scores",
        ),
    ],
)
def test_the_fault_says_what_must_hold_and_what_came(target: type, rule: str, words: str) -> None:
    assert words in faults(target())[rule]


def test_a_file_left_open_is_caught() -> None:
    try:
        assert "files or connections open" in faults(LeavesFile())["closes"]
    finally:
        for descriptor in LeavesFile.opened:
            os.close(descriptor)


def test_a_thread_left_running_is_caught() -> None:
    try:
        assert "threads running" in faults(LeavesThread())["closes"]
    finally:
        LeavesThread.stop.set()


def test_a_model_trained_on_bgr_says_so() -> None:
    target = Bgr()
    target.colour_order = "BGR"
    assert "colours" not in faults(target)


def test_the_floor_is_wider_in_half_precision() -> None:
    whole, half = Sound(), Sound()
    half.card = {"name": "half", "settings": {"precision": "float16"}}
    assert floor(describe(whole, "t")) == 1e-4
    assert floor(describe(half, "t")) == 2e-3


class Plain:
    """No prepare, so that nobody sees in which order it takes the channels."""

    concepts = ("red",)

    def score(self, images: Sequence[Image.Image]) -> np.ndarray:
        return np.array([[np.asarray(image)[:, :, 0].mean()] for image in images])


def test_colours_are_ok_only_where_they_were_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    states = {item.name: (item.fault, item.unseen) for item in run_checks(as_loaded(Plain()))}
    unseen = "the target has no prepare, so that its colours can't be seen from outside"
    assert states["colours"] == (None, unseen)
    assert states["staged"] == (None, "the target has no stage and start")
    assert states["shape"] == (None, "")
    bound = {item.check.__name__: item for item in parametrize_with_checks(Plain).mark.args[1]}
    with pytest.raises(pytest.skip.Exception, match="no prepare"):
        bound["check_colours"]()
    with pytest.raises(pytest.skip.Exception, match="no rule for a target of kind 'concepts'"):
        bound["check_unknown_picture"]()
    (tmp_path / "own.py").write_text(
        "import numpy as np\nclass Plain:\n    concepts = ('red',)\n    def score(self, images):\n"
        "        return np.array([[np.asarray(image)[:, :, 0].mean()] for image in images])\n"
    )
    shown = call(capsys, "targets", "check", f"{tmp_path}/own.py:Plain").out.splitlines()
    (line,) = [line for line in shown if " colours " in line]
    assert line.split() == ["-", "colours", *unseen.split()]


class Log:
    concepts = ("smile",)
    needs_pixels = False

    def lookup(self, ids: Sequence[PictureId]) -> Scores:
        return Scores(np.full((len(ids), 1), np.nan), ("no_answer",) * len(ids))


class Inventive(Log):
    def lookup(self, ids):
        return Scores(np.zeros((len(ids), 1)), (None,) * len(ids))


class Uneven(Log):
    def lookup(self, ids):
        return Scores(np.full((len(ids), 2), np.nan), ("no_answer",) * len(ids))


def test_recorded_targets_have_rules_of_their_own() -> None:
    assert faults(Log()) == {}
    assert set(faults(Inventive())) == {"unknown_picture"}
    assert set(faults(Uneven())) == {"recorded_shape"}


@parametrize_with_checks(Sound)
def test_the_parametrizer_runs_every_check(check) -> None:
    check()


def test_the_parametrizer_lets_a_fault_through() -> None:
    checks = parametrize_with_checks(WrongWidth).mark.args[1]
    shape = next(bound for bound in checks if bound.check.__name__ == "check_shape")
    with pytest.raises(TargetError, match="must return"):
        shape()
