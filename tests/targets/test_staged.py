"""Targets on an accelerator: the same answers, plan and cache as any other, by threads or processes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from targets import scoring
from targets.base.errors import FacedeltaError, TargetError
from targets.catalogue import LoadedTarget, describe
from targets.conformance import drawn_faces
from targets.executors import processes
from targets.executors.local import prefetched
from targets.opening import open_in_processes
from targets.scoring import PictureRef, Seen, score_pictures

needs_memfd = pytest.mark.skipif(not processes.available(), reason="this system has no memfd_create")


class Means:
    concepts = ("red", "green")
    batch_size = 4

    def score(self, images):
        return np.array([np.asarray(image)[:, :, :2].mean((0, 1)) for image in images])


class StagedMeans(Means):
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


@needs_memfd
def test_a_picture_larger_than_a_slot_comes_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.DecoderPool.__init__, "__defaults__", (1000,))
    path = tmp_path / "face.png"
    drawn_faces(1)[0].save(path)
    opened = list(open_in_processes([PictureRef("face", path.read_bytes)], held=1))
    assert np.array_equal(opened[0].content, np.asarray(drawn_faces(1)[0]))


@needs_memfd
def test_slots_are_enough_while_a_whole_batch_is_held(tmp_path: Path) -> None:
    refs = [PictureRef(f"{n}", ref.read) for n in range(40) for ref in pictures(tmp_path, 11)[:1]]
    held = []
    for item in open_in_processes(refs, held=40):
        held.append(item)
    assert len(held) == 40
    for item in held:
        item.release()


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


@needs_memfd
def test_a_worker_that_dies_is_named(tmp_path: Path) -> None:
    pool = processes.DecoderPool(1, slots=2)
    try:
        pool._workers[0].process.kill()
        with pytest.raises(FacedeltaError, match=r"a decoding process ended .* one of face"):
            pool.decode([("face", b"x")])
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
