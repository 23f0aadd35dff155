"""What every target must keep to: one ``check_*`` function a rule, shipped for plug-in writers.

``run_checks(loaded)`` runs them all and returns what each found; ``facedelta targets check SPEC`` prints
that. In pytest: ``@pytest.mark.parametrize("check", checks_for(loaded), ids=lambda c: c.__name__)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from targets.base.errors import TargetError
from targets.catalogue import LoadedTarget
from targets.protocol import FloatArray, PictureId, Scores
from targets.scoring import call_target

TOLERANCE = 1e-4

Check = Callable[[LoadedTarget], None]


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one check: ``fault`` is None where the rule holds."""

    name: str
    rule: str
    fault: str | None


def drawn_faces(count: int = 5, size: int = 160) -> list[Image.Image]:
    """Drawn faces with a coloured mark in each corner; no two are alike."""
    return [_drawn_face(index, size) for index in range(count)]


def _drawn_face(index: int, size: int) -> Image.Image:
    image = Image.new("RGB", (size, size), (120 + 10 * index, 130, 140))
    draw = ImageDraw.Draw(image)
    skin = (225 - 30 * index, 180 - 25 * index, 150 - 22 * index)
    draw.ellipse((size * 0.22, size * 0.12, size * 0.78, size * 0.9), fill=skin)
    for x in (0.38, 0.62):
        draw.ellipse((size * (x - 0.06), size * 0.4, size * (x + 0.06), size * 0.47), fill="white")
        draw.ellipse((size * (x - 0.025), size * 0.41, size * (x + 0.025), size * 0.46), fill="black")
        draw.line(
            (size * (x - 0.08), size * 0.36, size * (x + 0.08), size * 0.35), fill=(60, 40, 30), width=3
        )
    draw.line((size * 0.5, size * 0.47, size * 0.47, size * 0.62), fill=(90, 60, 50), width=2)
    draw.arc(
        (size * 0.4, size * 0.6, size * 0.6, size * (0.72 + 0.01 * index)),
        20,
        160,
        fill=(150, 50, 50),
        width=3,
    )
    corners = ((220, 30, 30), (30, 180, 60), (40, 60, 220), (230, 210, 40))
    mark = size // 10
    for colour, (x, y) in zip(corners, ((0, 0), (1, 0), (0, 1), (1, 1)), strict=True):
        left, top = x * (size - mark), y * (size - mark)
        draw.rectangle((left, top, left + mark, top + mark), fill=colour)
    return image


def _ask(loaded: LoadedTarget, images: Sequence[Image.Image]) -> Scores:
    prepare = getattr(loaded.target, "prepare", None)
    prepared = [prepare(image) if prepare else image for image in images]
    return call_target(loaded, prepared, [f"test picture {index}" for index in range(len(images))])


def _same(first: FloatArray, second: FloatArray, rule: str) -> None:
    if first.shape != second.shape:
        raise TargetError(f"{rule}: shapes {first.shape} and {second.shape}")
    if not np.array_equal(np.isnan(first), np.isnan(second)):
        raise TargetError(f"{rule}: answered one time and not the other")
    scale = max(1.0, float(np.nanmax(np.abs(first), initial=0.0)))
    gap = float(np.nanmax(np.abs(first - second), initial=0.0))
    if gap > TOLERANCE * scale:
        raise TargetError(f"{rule}: scores differ by {gap:.3g}")


def check_shape(loaded: LoadedTarget) -> None:
    """n pictures give (n, c) floats, c the number of concepts."""
    _ask(loaded, drawn_faces(3))


def check_finite_or_nan(loaded: LoadedTarget) -> None:
    """A score is finite or NaN, never infinite."""
    values = _ask(loaded, drawn_faces()).values
    if np.isinf(values).any():
        raise TargetError("a score is infinite; return NaN for a picture without an answer")


def check_deterministic(loaded: LoadedTarget) -> None:
    """The same pictures get the same scores twice."""
    _same(_ask(loaded, drawn_faces()).values, _ask(loaded, drawn_faces()).values, "asked twice")


def check_order(loaded: LoadedTarget) -> None:
    """Reversing the pictures reverses the scores."""
    faces = drawn_faces()
    _same(_ask(loaded, faces).values, _ask(loaded, faces[::-1]).values[::-1], "pictures reversed")


def check_batch_size(loaded: LoadedTarget) -> None:
    """One at a time gives the same as all together: no picture depends on its batch-mates."""
    faces = drawn_faces()
    single = np.concatenate([_ask(loaded, [face]).values for face in faces])
    _same(_ask(loaded, faces).values, single, "one at a time against together")


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


def check_unknown_picture(loaded: LoadedTarget) -> None:
    """A picture that was never captured is answered with a reason, not with a score."""
    scores = loaded.target.lookup([PictureId("no/such/picture-\u2603.png", None)])  # type: ignore[union-attr]
    if scores.reasons[0] is None or not np.isnan(scores.values).all():
        raise TargetError("an unknown picture got a score")


_MODEL_CHECKS: tuple[Check, ...] = (
    check_shape,
    check_finite_or_nan,
    check_deterministic,
    check_order,
    check_batch_size,
    check_pictures_unchanged,
    check_sizes,
)
_RECORDED_CHECKS: tuple[Check, ...] = (check_unknown_picture,)


def checks_for(loaded: LoadedTarget) -> tuple[Check, ...]:
    """The checks that apply to a target of this kind."""
    return _RECORDED_CHECKS if loaded.card.kind == "recorded" else _MODEL_CHECKS


def run_checks(loaded: LoadedTarget) -> list[CheckResult]:
    """Run every check that applies; none stops the others."""
    results = []
    for check in checks_for(loaded):
        fault: str | None = None
        try:
            check(loaded)
        except TargetError as error:
            fault = str(error)
        results.append(
            CheckResult(check.__name__.removeprefix("check_"), (check.__doc__ or "").strip(), fault)
        )
    return results
