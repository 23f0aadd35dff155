"""Targets on an accelerator: the same answers, plan and cache as any other, by threads or processes."""

from __future__ import annotations

import gc
import io
import signal
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from targets import scoring
from targets.base.errors import FacedeltaError, TargetError
from targets.catalogue import LoadedTarget, describe
from targets.drawn_pictures import drawn_faces
from targets.executors import processes
from targets.executors.local import prefetched
from targets.frame import Frame
from targets.opening import open_in_processes
from targets.scoring import PictureRef, Seen, score_pictures

needs_memfd = pytest.mark.skipif(not processes.available(), reason="this system has no memfd_create")


class Means:
    concepts = ("red", "green")
    batch_size = 4

    def score(self, images):
        return np.array([np.asarray(image)[:, :, :2].mean((0, 1)) for image in images])


class StagedMeans(Means):
    card: ClassVar = {"name": "means", "weights": {"none": "0"}}

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.threads: set[str] = set()

    def stage(self, pixels: Sequence[np.ndarray]) -> np.ndarray:
        self.batches.append(len(pixels))
        self.threads.add(threading.current_thread().name)
        return np.array([array[:, :, :2].mean((0, 1)) for array in pixels])

    def start(self, staged):
        assert threading.current_thread() is threading.main_thread()
        return lambda: staged


def pictures(folder: Path, count: int = 11) -> list[PictureRef]:
    """Distinct pictures, one of them twice, one damaged, one missing, one of a single colour."""
    refs = []
    for number in range(count):
        path = folder / f"{number}.png"
        image = drawn_faces(5)[number % 5]
        image.putpixel((number, 80), (number, 0, 0))
        image.save(path)
        refs.append(PictureRef(path.name, path.read_bytes))
    blank = folder / "blank.png"
    drawn_faces(1)[0].crop((20, 20, 40, 40)).save(blank)
    refs.insert(3, PictureRef("again.png", (folder / "0.png").read_bytes))
    refs.insert(5, PictureRef("damaged.png", lambda: b"\x89PNG\r\n\x1a\n but no more"))
    refs.insert(7, PictureRef("missing.png", (folder / "nowhere.png").read_bytes))
    refs.append(PictureRef("blank.png", blank.read_bytes))
    return refs


def asked(target: object, refs: Sequence[PictureRef], cache: Path) -> dict[str, Seen]:
    return score_pictures(describe(target, "t"), refs, cache, show_progress=False)


def same(first: dict[str, Seen], second: dict[str, Seen]) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(first[name].values, second[name].values, equal_nan=True)
        and (first[name].reason, first[name].detail, first[name].pixel_hash, first[name].size)
        == (second[name].reason, second[name].detail, second[name].pixel_hash, second[name].size)
        for name in first
    )


@pytest.mark.parametrize("least", [1, 10_000], ids=["processes", "threads"])
@needs_memfd
def test_the_answers_equal_those_of_a_plain_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr(scoring, "PROCESSES_FROM", least)
    refs, target = pictures(tmp_path), StagedMeans()
    assert same(asked(Means(), refs, tmp_path / "a"), asked(target, refs, tmp_path / "b"))
    assert target.batches == [4, 4, 3]
    assert threading.main_thread().name not in target.threads


@needs_memfd
def test_a_resumed_run_computes_what_is_missing_in_the_planned_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "PROCESSES_FROM", 1)
    refs = pictures(tmp_path)
    whole = asked(StagedMeans(), refs, tmp_path / "whole")
    asked(StagedMeans(), refs[:4], tmp_path / "cache")
    resumed = StagedMeans()
    assert same(whole, asked(resumed, refs, tmp_path / "cache"))
    assert resumed.batches == [1, 4, 3]


def noise(number: int) -> bytes:
    """A PNG of 120 kB, more than a pipe or a socket takes at once."""
    pixels = np.random.default_rng(number).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


@needs_memfd
@pytest.mark.parametrize("slot", [1000, 119_000, 1 << 20], ids=["neither fits", "pixels fit not", "all fits"])
def test_pictures_larger_than_a_slot_come_whole_and_in_order(
    monkeypatch: pytest.MonkeyPatch, slot: int
) -> None:
    monkeypatch.setattr(processes.DecoderPool.__init__, "__defaults__", (slot,))
    files = {f"{number}": noise(number) for number in range(100)}
    refs = [PictureRef(name, lambda data=data: data) for name, data in files.items()]
    names = []
    for item in open_in_processes(refs, held=1):
        assert np.array_equal(item.content, np.asarray(Image.open(io.BytesIO(files[item.name]))))
        names.append(item.name)
        item.release()
    assert names == list(files)


@needs_memfd
def test_faults_longer_than_a_socket_takes_are_no_hindrance() -> None:
    refs = [PictureRef(f"{number}/" + "x" * 60_000, lambda: b"damaged") for number in range(200)]
    opened = list(open_in_processes(refs, held=200))
    assert [item.name for item in opened] == [ref.name for ref in refs]
    assert all(item.facts.fault[1].startswith(item.name) for item in opened)


@needs_memfd
def test_stopping_early_ends_the_processes_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    data = noise(0)
    opened = open_in_processes([PictureRef(f"{number}", lambda: data) for number in range(200)], held=1)
    next(opened)
    opened.close()
    assert capfd.readouterr() == ("", "")


@needs_memfd
def test_slots_are_enough_while_a_whole_batch_is_held(tmp_path: Path) -> None:
    refs = [PictureRef(f"{n}", ref.read) for n in range(40) for ref in pictures(tmp_path, 11)[:1]]
    held = []
    for item in open_in_processes(refs, held=40):
        held.append(item)
    assert len(held) == 40
    for item in held:
        item.release()


FRAME = Frame(64, squash=False)


class Framed(StagedMeans):
    frame = FRAME

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[int, ...]] = set()

    def stage(self, pixels: Sequence[np.ndarray]) -> np.ndarray:
        self.shapes |= {array.shape for array in pixels}
        return super().stage(pixels)


class FramedByItself(Means):
    def score(self, images):
        large = [FRAME.resized(image) if image.width > 500 else image for image in images]
        return super().score(large)


@pytest.mark.parametrize("least", [1, 10_000], ids=["processes", "threads"])
@needs_memfd
def test_large_pictures_arrive_resized_to_the_frame_and_small_ones_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr(scoring, "PROCESSES_FROM", least)
    refs = pictures(tmp_path)[:3]
    drawn_faces(1)[0].resize((1400, 1000)).save(tmp_path / "large.png")
    refs.insert(1, PictureRef("large.png", (tmp_path / "large.png").read_bytes))
    target = Framed()
    seen = asked(target, refs, tmp_path / "b")
    assert same(asked(FramedByItself(), refs, tmp_path / "a"), seen)
    assert seen["large.png"].size == (1400, 1000)
    assert target.shapes == {(160, 160, 3), (64, 89, 3)}


class Failing(StagedMeans):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def stage(self, pixels):
        if self.where == "stage":
            raise ValueError("out of memory")
        return super().stage(pixels)

    def start(self, staged):
        if self.where == "start":
            raise ValueError("out of memory")
        if self.where == "shape":
            return lambda: staged[:, :1]

        def finish():
            if self.where == "finish":
                raise ValueError("out of memory")
            return staged

        return finish


@pytest.mark.parametrize("where", ["stage", "start", "finish", "shape"])
def test_a_fault_names_the_target_and_the_pictures(tmp_path: Path, where: str) -> None:
    words = "must return" if where == "shape" else "failed on 0.png, 1.png, 2.png and 1 more: ValueError"
    with pytest.raises(TargetError, match=words):
        asked(Failing(where), pictures(tmp_path), tmp_path / "cache")


@pytest.mark.parametrize("fails", [False, True])
def test_garbage_collection_passes_over_what_was_there_before_for_the_time_of_a_run(
    tmp_path: Path, fails: bool
) -> None:
    there: list[object] = [{}]
    looked_at: list[bool] = []

    def is_looked_at() -> bool:
        return any(item is there for item in gc.get_objects())

    class Watching(StagedMeans):
        def start(self, staged):
            looked_at.append(is_looked_at())
            if fails:
                raise ValueError("no")
            return super().start(staged)

    with pytest.raises(TargetError) if fails else nullcontext():
        asked(Watching(), pictures(tmp_path), tmp_path / "cache")
    assert looked_at
    assert not any(looked_at)
    assert is_looked_at()


@needs_memfd
def test_a_worker_that_dies_is_named(tmp_path: Path) -> None:
    pool = processes.DecoderPool(1, held=0, chunk=1)
    try:
        pool._workers[0].process.kill()
        with pytest.raises(FacedeltaError, match=r"a decoding process ended .* one of face"):
            list(pool.decode([[("face", b"x")]]))
    finally:
        pool.close()


@needs_memfd
def test_a_worker_that_dies_later_is_named_by_what_it_left_undone() -> None:
    pool = processes.DecoderPool(1, held=0, chunk=1)
    try:
        decoded = pool.decode([[(f"face {number}", noise(number))] for number in range(20)])
        assert next(decoded)[0][0] == "face 0"
        pool._workers[0].process.send_signal(signal.SIGKILL)
        with pytest.raises(FacedeltaError, match=r"it read one of face \d+") as caught:
            list(decoded)
        assert caught.value.__suppress_context__
    finally:
        pool.close()


def test_prefetching_keeps_the_order_and_passes_an_error_on_at_its_turn() -> None:
    def items():
        yield from range(3)
        raise KeyError("here")

    ahead = prefetched(items())
    assert [next(ahead) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="here"):
        next(ahead)


def test_hints_reach_the_reason_in_words(tmp_path: Path) -> None:
    class Silent(Means):
        hints = {"no_answer": "ask again"}  # noqa: RUF012

        def score(self, images):
            return np.full((len(images), 2), np.nan)

    loaded: LoadedTarget = describe(Silent(), "t")
    seen = score_pictures(loaded, pictures(tmp_path)[:1], tmp_path / "cache", show_progress=False)
    assert seen["0.png"].detail == "the target gave no answer: ask again"
