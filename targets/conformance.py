"""What every target must keep to: one ``check_*`` function a rule, shipped for plug-in writers.

``run_checks(loaded)`` runs them all and returns what each found; ``facedelta targets check SPEC`` prints
that. In pytest it is three lines::

    @parametrize_with_checks("my_model.py:SmileNet")
    def test_smilenet_conforms(check):
        check()

Numbers that should be equal may differ by ``floor(loaded)`` times the largest score, since a matrix
product rounds differently for another batch size.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from targets.base.errors import FacedeltaError, InputError, TargetError
from targets.base.foreign import foreign_code
from targets.base.text import shortlist
from targets.catalogue import LoadedTarget, describe, load_target
from targets.drawn_pictures import coloured_quarters, drawn_faces
from targets.frame import Frame
from targets.protocol import FloatArray, PictureId, Scores, Staged
from targets.scoring import ask_target

TOLERANCE = 1e-4
HALF_TOLERANCE = 2e-3
# Opened by what is loaded once: a leak grows with every question, this does not.
OPEN_FILES = Path("/proc/self/fd")

Check = Callable[[LoadedTarget], None]


def floor(loaded: LoadedTarget) -> float:
    """How far equal scores may differ, as a share of the largest: more in half precision."""
    half = loaded.card.settings.get("precision") in ("float16", "bfloat16")
    return HALF_TOLERANCE if half else TOLERANCE


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one check.

    Attributes:
        name, rule: of the check.
        fault: what does not hold, or None.
        unseen: why the rule can't be seen on this target; empty where it was checked.
    """

    name: str
    rule: str
    fault: str | None
    unseen: str = ""


class NotCheckedError(InputError):
    """A rule can't be seen on this target; the message says why."""


def _ask(loaded: LoadedTarget, images: Sequence[Image.Image]) -> Scores:
    return ask_target(loaded, images, [f"test picture {index}" for index in range(len(images))])


def _method(loaded: LoadedTarget) -> Callable[[Sequence[Any]], Any]:
    return loaded.target.embed if loaded.card.kind == "embedding" else loaded.target.score  # type: ignore[union-attr]


def _same(loaded: LoadedTarget, first: FloatArray, second: FloatArray, rule: str) -> None:
    if first.shape != second.shape:
        raise TargetError(f"{rule}: shapes {first.shape} and {second.shape}")
    if not np.array_equal(np.isnan(first), np.isnan(second)):
        raise TargetError(f"{rule}: answered one time and not the other")
    scale = max(1.0, float(np.nanmax(np.abs(first), initial=0.0)))
    with np.errstate(invalid="ignore"):
        gap = float(np.nanmax(np.abs(first - second), initial=0.0))
    if gap > floor(loaded) * scale:
        raise TargetError(f"{rule}: scores differ by {gap:.3g}, more than {floor(loaded) * scale:.1g}")


def check_shape(loaded: LoadedTarget) -> None:
    """n pictures give (n, c) floats, c the number of concepts."""
    _ask(loaded, drawn_faces(3))


def check_label_space(loaded: LoadedTarget) -> None:
    """The concepts are those of the card, and stay so; a vector has the same length every time."""
    if loaded.card.kind == "concepts":
        now = tuple(loaded.target.concepts)  # type: ignore[union-attr]
        _ask(loaded, drawn_faces(1))
        after = tuple(loaded.target.concepts)  # type: ignore[union-attr]
        for concepts in (now, after):
            if concepts != loaded.card.concepts:
                raise TargetError(f"concepts are {concepts}, but the card says {loaded.card.concepts}")
        return
    widths = {_ask(loaded, drawn_faces(count)).values.shape[1] for count in (1, 3)}
    if len(widths) > 1:
        raise TargetError(f"vectors must have one length, got {sorted(widths)}")


def check_empty_batch(loaded: LoadedTarget) -> None:
    """No pictures give no rows."""
    with foreign_code("an empty batch must give no rows, got"):
        answer = _method(loaded)([])
    rows = len(answer.values if isinstance(answer, Scores) else answer)
    if rows:
        raise TargetError(f"an empty batch must give no rows, got {rows}")


def check_finite_or_nan(loaded: LoadedTarget) -> None:
    """A score is finite or NaN, never infinite."""
    values = _ask(loaded, drawn_faces()).values
    if np.isinf(values).any():
        raise TargetError("a score is infinite; return NaN for a picture without an answer")


def check_abstention(loaded: LoadedTarget) -> None:
    """A picture without a face gets numbers, or NaN with a reason; never both, never an error."""
    noise = np.random.default_rng(0).integers(0, 256, (96, 96, 3), dtype=np.uint8)
    pictures = [Image.fromarray(noise), Image.new("RGB", (64, 64), (127, 127, 127)), *drawn_faces(1)]
    scores = _ask(loaded, pictures)
    for reason, row in zip(scores.reasons, scores.values, strict=True):
        if reason is not None and not np.isnan(row).all():
            raise TargetError(f"a picture with the reason '{reason}' must have NaN throughout, got a number")


def check_deterministic(loaded: LoadedTarget) -> None:
    """The same pictures get the same scores twice."""
    _same(loaded, _ask(loaded, drawn_faces()).values, _ask(loaded, drawn_faces()).values, "asked twice")


def check_order(loaded: LoadedTarget) -> None:
    """Reversing the pictures reverses the scores."""
    faces = drawn_faces()
    _same(loaded, _ask(loaded, faces).values, _ask(loaded, faces[::-1]).values[::-1], "pictures reversed")


def check_batch_size(loaded: LoadedTarget) -> None:
    """One at a time gives the same as all together."""
    faces = drawn_faces()
    single = np.concatenate([_ask(loaded, [face]).values for face in faces])
    _same(loaded, _ask(loaded, faces).values, single, "one at a time against together")


def check_batch_mates(loaded: LoadedTarget) -> None:
    """A picture's scores don't depend on which others come with it."""
    first, second, third, fourth, fifth = drawn_faces()
    among_some = _ask(loaded, [first, second, third]).values[:1]
    among_others = _ask(loaded, [first, fourth, fifth]).values[:1]
    _same(loaded, among_some, among_others, "among other pictures")


def check_pictures_unchanged(loaded: LoadedTarget) -> None:
    """The pictures are not changed in place."""
    faces = drawn_faces()
    before = [face.tobytes() for face in faces]
    _ask(loaded, faces)
    if before != [face.tobytes() for face in faces]:
        raise TargetError("a picture was changed in place; work on a copy")


def check_sizes(loaded: LoadedTarget) -> None:
    """Pictures of different sizes in one batch are accepted."""
    _ask(
        loaded, [drawn_faces(1, 96)[0], drawn_faces(1, 224)[0], drawn_faces(1, 160)[0].crop((0, 0, 160, 120))]
    )


def check_colours(loaded: LoadedTarget) -> None:
    """What ``prepare`` makes is RGB and not turned or mirrored, seen on a picture with a mark in each corner.

    A model that was trained on BGR says so by an attribute ``colour_order = "BGR"``. Of a target without
    ``prepare``, or whose ``prepare`` gives no picture, this can't be seen from outside.
    """
    prepare = getattr(loaded.target, "prepare", None)
    if prepare is None:
        raise NotCheckedError("the target has no prepare, so that its colours can't be seen from outside")
    seen = _channels(prepare(coloured_quarters()))
    if seen is None:
        raise NotCheckedError("what prepare makes is no picture of three channels")
    order = getattr(loaded.target, "colour_order", "RGB")
    expected = ("red", "green", "blue") if order == "RGB" else ("blue", "green", "red")
    for channel, colour in enumerate(expected):
        bright = _bright_corners(seen[channel])
        if bright != _CORNERS[colour]:
            raise TargetError(
                f"channel {channel} must be {colour}, bright in the corners {_CORNERS[colour]} of the test "
                f"picture, but it is bright in {bright}: BGR instead of RGB, or turned"
            )


# Corner colours of the test picture: red, green / blue, yellow.
_CORNERS = {
    "red": ("top left", "bottom right"),
    "green": ("top right", "bottom right"),
    "blue": ("bottom left",),
}


def _channels(prepared: Any) -> FloatArray | None:
    """(3, h, w) of a picture, an array or a tensor; None for anything else."""
    try:
        array = np.asarray(prepared, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    array = array[0] if array.ndim == 4 and len(array) == 1 else array
    if array.ndim != 3 or 3 not in (array.shape[0], array.shape[2]):
        return None
    return array if array.shape[0] == 3 else array.transpose(2, 0, 1)


def _bright_corners(channel: FloatArray) -> tuple[str, ...]:
    height, width = channel.shape
    middle = (channel.max() + channel.min()) / 2
    spots = {
        "top left": (0.25, 0.25),
        "top right": (0.25, 0.75),
        "bottom left": (0.75, 0.25),
        "bottom right": (0.75, 0.75),
    }
    return tuple(name for name, (y, x) in spots.items() if channel[int(y * height), int(x * width)] > middle)


def check_staged(loaded: LoadedTarget) -> None:
    """Where a target has ``stage`` and ``start``, they answer as ``score`` or ``embed`` does.

    So they do if pictures come resized to its ``frame``, where it has one.
    """
    if not isinstance(loaded.target, Staged):
        raise NotCheckedError("the target has no stage and start")
    faces = drawn_faces()[: loaded.batch_size]
    asked = _ask(loaded, faces).values
    _same(loaded, asked, _staged(loaded, faces), "staged against asked")
    frame: Frame | None = getattr(loaded.target, "frame", None)
    if frame is not None:
        resized = _staged(loaded, [frame.resized(face) for face in faces])
        _same(loaded, asked, resized, f"resized to {frame} and staged against asked")


def _staged(loaded: LoadedTarget, faces: Sequence[Image.Image]) -> FloatArray:
    target: Staged = loaded.target  # type: ignore[assignment]
    with foreign_code("stage and start failed with"):
        answer = target.start(target.stage([np.asarray(face) for face in faces]))()
    return answer.values if isinstance(answer, Scores) else np.asarray(answer, dtype=np.float64)


def check_loaded_twice(loaded: LoadedTarget) -> None:
    """Loaded a second time, it is the same model: same weights, same answers."""
    if loaded.again is None:
        raise NotCheckedError("the target was not loaded by a spec")
    faces = drawn_faces(3)
    first = _ask(loaded, faces).values
    other = loaded.again()
    try:
        _same(loaded, first, _ask(other, faces).values, "loaded twice, a weight may be random")
    finally:
        other.close()
    if other.card.weights != loaded.card.weights:
        changed = {name for name, _ in other.card.weights.items() ^ loaded.card.weights.items()}
        raise TargetError(f"loaded twice: the digests of {shortlist(sorted(changed), 3)} differ")


def check_closes(loaded: LoadedTarget) -> None:
    """``close`` may be called twice and leaves no file or thread open. The target is closed afterwards."""
    files, threads = _open_files(), set(threading.enumerate())
    _ask(loaded, drawn_faces(2))
    for _ in range(2):
        with foreign_code("close() must not fail, got"):
            getattr(loaded.target, "close", lambda: None)()
    left = [thread.name for thread in threading.enumerate() if thread not in threads and thread.is_alive()]
    if left:
        raise TargetError(f"close() leaves {len(left)} threads running: {', '.join(left[:3])}")
    if _open_files() > files:
        raise TargetError(f"close() leaves {_open_files() - files} files or connections open")


def _open_files() -> int:
    """Open file descriptors, or 0 where the system doesn't show them."""
    return len(list(OPEN_FILES.iterdir())) if OPEN_FILES.is_dir() else 0


def check_unknown_picture(loaded: LoadedTarget) -> None:
    """A picture that was never captured is answered with a reason, not with a score."""
    scores = loaded.target.lookup([PictureId("no/such/picture-\u2603.png", None)])  # type: ignore[union-attr]
    if scores.reasons[0] is None or not np.isnan(scores.values).all():
        raise TargetError("an unknown picture got a score")


def check_recorded_shape(loaded: LoadedTarget) -> None:
    """n pictures give (n, c) scores and n reasons; none give none."""
    for count in (0, 2):
        ids = [PictureId(f"no/such/picture-{index}.png", None) for index in range(count)]
        scores = loaded.target.lookup(ids)  # type: ignore[union-attr]
        wanted = (count, len(loaded.card.concepts))
        if scores.values.shape != wanted or len(scores.reasons) != count:
            came = f"{scores.values.shape} and {len(scores.reasons)} reasons"
            raise TargetError(f"{count} pictures must give {wanted} scores and {count} reasons, got {came}")


# Without check_closes, after which the target is of no more use.
_MODEL_CHECKS: tuple[Check, ...] = (
    check_shape,
    check_label_space,
    check_empty_batch,
    check_finite_or_nan,
    check_abstention,
    check_deterministic,
    check_order,
    check_batch_size,
    check_batch_mates,
    check_pictures_unchanged,
    check_sizes,
    check_colours,
    check_staged,
    check_loaded_twice,
)
_RECORDED_CHECKS: tuple[Check, ...] = (check_recorded_shape, check_unknown_picture)


def checks_for(loaded: LoadedTarget) -> tuple[Check, ...]:
    """The checks that apply to a target of this kind and leave it usable."""
    checks = _RECORDED_CHECKS if loaded.card.kind == "recorded" else _MODEL_CHECKS
    return tuple(check for check in checks if check is not check_loaded_twice or loaded.again is not None)


def run_checks(loaded: LoadedTarget, *, closing: bool = False) -> list[CheckResult]:
    """Run every check that applies; none stops the others.

    Args:
        loaded: the target.
        closing: check at the end that it closes its resources, after which it is of no more use.
    """
    results = []
    last = (check_closes,) if closing and loaded.card.kind != "recorded" else ()
    for check in (*checks_for(loaded), *last):
        fault, unseen = None, ""
        try:
            with foreign_code("the check failed with"):
                check(loaded)
        except NotCheckedError as reason:
            unseen = str(reason)
        except FacedeltaError as error:
            fault = str(error)
        rule = (check.__doc__ or "").strip().splitlines()[0]
        results.append(CheckResult(check.__name__.removeprefix("check_"), rule, fault, unseen))
    return results


def parametrize_with_checks(
    target: str | Callable[[], object], settings: Mapping[str, Any] | None = None
) -> Any:
    """A pytest decorator: one test a rule, each given ``check`` to call.

    Args:
        target: a spec as on the command line, or what makes the target when it is called.
        settings: of the target, where a spec is given.

    Returns:
        ``pytest.mark.parametrize("check", ...)``. The target is loaded when the first test runs.
    """
    import pytest

    shared = _Shared(target, settings or {})
    checks = [*_MODEL_CHECKS, *_RECORDED_CHECKS, check_closes]
    return pytest.mark.parametrize(
        "check",
        [_Bound(shared, check) for check in checks],
        ids=[check.__name__.removeprefix("check_") for check in checks],
    )


@dataclass
class _Shared:
    """Loaded once for all checks, and again after the one that closes it."""

    target: str | Callable[[], object]
    settings: Mapping[str, Any]
    loaded: LoadedTarget | None = None

    def get(self) -> LoadedTarget:
        if self.loaded is None:
            self.loaded = self._load()
        return self.loaded

    def _load(self) -> LoadedTarget:
        made = self.target
        if isinstance(made, str):
            return load_target(made, self.settings)
        return replace(describe(made(), made.__name__), again=self._load)


@dataclass
class _Bound:
    shared: _Shared
    check: Check

    def __call__(self) -> None:
        import pytest

        loaded = self.shared.get()
        known = (*checks_for(loaded), *(() if loaded.card.kind == "recorded" else (check_closes,)))
        if self.check is check_closes:
            self.shared.loaded = None
        if self.check not in known:
            pytest.skip(f"no rule for a target of kind '{loaded.card.kind}'")
        try:
            self.check(loaded)
        except NotCheckedError as reason:
            pytest.skip(str(reason))
