"""Answers of an earlier run of a target whose weights have no digest: used only if it still gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np
from PIL import Image

from targets.base.errors import TargetError
from targets.cache import ScoreCache
from targets.card import TargetCard
from targets.images import Picture
from targets.opening import Fault, PictureRef, decode_ahead
from targets.protocol import FloatArray, Scores

ASKED_AGAIN = 8
# A half-precision model moves in the third digit with its batch.
TOLERANCE = 0.01


def take_up(
    card: TargetCard,
    pictures: Sequence[PictureRef],
    cache: ScoreCache,
    ask: Callable[[Sequence[Image.Image], Sequence[str]], Scores],
) -> None:
    """Ask about some pictures again and use the earlier answers if they are the same.

    Args:
        card: of the target.
        pictures: the distinct pictures of this run, in the order in which they are asked about.
        cache: holds the earlier answers.
        ask: asks the target about RGB pictures and their names.

    Raises:
        TargetError: an answer differs, or no two can be compared.
    """
    if not cache.earlier:
        return
    known = _known(pictures, cache)
    scores = ask([picture.image for _, picture in known], [name for name, _ in known])
    compared = 0
    for (name, picture), now in zip(known, scores.values, strict=True):
        compared += _same(card, name, cache.earlier[picture.pixel_hash][1], now)
    if not compared:
        raise TargetError(
            f"target {card.spec}: no answer of the run that --resume goes on with could be asked again; "
            "run without --resume"
        )
    cache.adopt()


def _known(pictures: Sequence[PictureRef], cache: ScoreCache) -> list[tuple[str, Picture]]:
    """Pictures that were answered, from the beginning to the end of those that were."""
    count = min(len(cache.earlier), len(pictures))
    first = [pictures[i] for i in sorted({*np.linspace(0, count - 1, min(count, ASKED_AGAIN)).astype(int)})]
    chosen = {ref.name for ref in first}
    found: list[tuple[str, Picture]] = []
    with closing(
        decode_ahead(_named, [*first, *(ref for ref in pictures if ref.name not in chosen)])
    ) as all_:
        for name, picture in all_:
            if isinstance(picture, Picture) and picture.pixel_hash in cache.earlier:
                found.append((name, picture))
            if len(found) == ASKED_AGAIN:
                break
    return found


def _named(name: str, picture: Picture | Fault) -> tuple[str, Picture | Fault]:
    return name, picture


def _same(card: TargetCard, name: str, before: FloatArray, now: FloatArray) -> bool:
    """Whether there is anything to compare; what is there must agree."""
    both = np.isfinite(before) & np.isfinite(now) if len(before) == len(now) else np.zeros(1, bool)
    if len(before) == len(now) and not both.any():
        return False
    gap = np.abs(before[both] - now[both]) if both.any() else np.array([np.inf])
    if gap.max() > TOLERANCE * max(float(np.abs(before[both]).max(initial=0.0)), np.finfo(float).tiny):
        came = f"{before[both][gap.argmax()]:.4g} then and {now[both][gap.argmax()]:.4g} now"
        raise TargetError(
            f"target {card.spec} is not what it was in the run that --resume goes on with: {name} got "
            f"{came if both.any() else 'another number of values'}; run without --resume"
        )
    return True
