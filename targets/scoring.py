"""Asking a target about pictures: once per distinct picture, in planned batches, resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from targets.base.errors import FacedeltaError, TargetError
from targets.base.progress import progress
from targets.base.text import shortlist
from targets.cache import ScoreCache
from targets.catalogue import LoadedTarget
from targets.executors.local import ordered_map
from targets.images import Picture, UnreadableError, decode
from targets.protocol import NO_ANSWER, FloatArray, PictureId, Scores

MISSING = "missing"
UNREADABLE = "unreadable"


@dataclass(frozen=True)
class PictureRef:
    """A picture that can be fetched.

    Attributes:
        name: what it is called in messages and in captured logs; equal names mean equal pictures.
        read: returns the encoded bytes; raises FileNotFoundError where there is none.
    """

    name: str
    read: Callable[[], bytes]


@dataclass(frozen=True)
class Seen:
    """What became of one distinct picture.

    Attributes:
        pixel_hash: of the decoded pixels, or None where there are none.
        reason: None, "missing", "unreadable", "no_face" or "no_answer".
        detail: the reason in words, for the table of failures.
        size: width and height in pixels, or None.
        format: what the content is, or None.
        notes: what the decoder did.
        values: (c,) scores or vector components; NaN where there are none.
    """

    pixel_hash: str | None
    reason: str | None
    detail: str
    size: tuple[int, int] | None
    format: str | None
    notes: tuple[str, ...]
    values: FloatArray


def score_pictures(
    loaded: LoadedTarget,
    pictures: Sequence[PictureRef],
    cache_root: Path,
    *,
    show_progress: bool = True,
) -> dict[str, Seen]:
    """Ask a target about pictures.

    Args:
        loaded: the target.
        pictures: in any number; equal names are read once, equal pixels are asked about once.
        cache_root: folder that holds the cached scores of all targets.
        show_progress: a bar on a terminal, a line a minute in a log.

    Returns:
        Picture name -> what was seen.

    Raises:
        TargetError: the target raised, or answered with something else than its protocol says; what was
            answered before is kept in the cache.
    """
    distinct = list({picture.name: picture for picture in pictures}.values())
    with progress(f"asking {loaded.card.name}", len(distinct), enabled=show_progress) as advance:
        if loaded.card.kind == "recorded":
            return _look_up(loaded, distinct, advance)
        cache = ScoreCache.open(cache_root, loaded.card)
        try:
            return _ask(loaded, distinct, cache, advance)
        finally:
            cache.save(at_once=True)


@dataclass(frozen=True)
class _Opened:
    ref: PictureRef
    picture: Picture | None
    prepared: Any
    fault: tuple[str, str] = ("", "")


def _open_all(loaded: LoadedTarget, pictures: Sequence[PictureRef]) -> Iterator[_Opened]:
    prepare = getattr(loaded.target, "prepare", None)

    def open_one(ref: PictureRef) -> _Opened:
        try:
            picture = decode(ref.read(), ref.name)
        except FileNotFoundError:
            return _Opened(ref, None, None, (MISSING, f"{ref.name}: no such picture"))
        except UnreadableError as error:
            return _Opened(ref, None, None, (UNREADABLE, str(error)))
        if picture.constant:
            return _Opened(ref, picture, None, (UNREADABLE, f"{ref.name}: every pixel has the same colour"))
        return _Opened(ref, picture, prepare(picture.image) if prepare else picture.image)

    return ordered_map(open_one, pictures)


@dataclass
class _Batch:
    """The next pictures of the plan; ``hashes`` holds all of them, ``waiting`` those not yet answered."""

    size: int
    planned: int = 0
    waiting: list[tuple[str, str, Any]] = field(default_factory=list)

    def take(self, name: str, pixel_hash: str, prepared: Any, *, known: bool) -> bool:
        """Count one distinct picture; return whether the planned batch is full."""
        self.planned += 1
        if not known:
            self.waiting.append((name, pixel_hash, prepared))
        return self.planned == self.size

    def empty(self) -> list[tuple[str, str, Any]]:
        """Hand out what waits and begin the next batch."""
        waiting, self.waiting, self.planned = self.waiting, [], 0
        return waiting


def _ask(
    loaded: LoadedTarget, pictures: Sequence[PictureRef], cache: ScoreCache, advance: Callable[..., None]
) -> dict[str, Seen]:
    batch = _Batch(loaded.batch_size)
    opened: dict[str, _Facts] = {}
    planned: set[str] = set()
    for item in _open_all(loaded, pictures):
        advance()
        opened[item.ref.name] = _Facts.of(item)
        if item.picture is None or item.fault[0] or item.picture.pixel_hash in planned:
            continue
        pixel_hash = item.picture.pixel_hash
        planned.add(pixel_hash)
        if batch.take(item.ref.name, pixel_hash, item.prepared, known=pixel_hash in cache.rows):
            _score_batch(loaded, batch.empty(), cache)
    _score_batch(loaded, batch.empty(), cache)
    return {name: facts.seen(cache, len(loaded.card.concepts)) for name, facts in opened.items()}


@dataclass(frozen=True)
class _Facts:
    """What is kept of an opened picture once its pixels are let go."""

    pixel_hash: str | None
    size: tuple[int, int] | None
    format: str | None
    notes: tuple[str, ...]
    fault: tuple[str, str]

    @classmethod
    def of(cls, item: _Opened) -> _Facts:
        picture = item.picture
        if picture is None:
            return cls(None, None, None, (), item.fault)
        return cls(picture.pixel_hash, picture.image.size, picture.format, picture.notes, item.fault)

    def seen(self, cache: ScoreCache, width: int) -> Seen:
        reason, detail = self.fault
        values = np.full(width, np.nan)
        if not reason and self.pixel_hash is not None:
            answer, values = cache.rows[self.pixel_hash]
            reason, detail = answer or "", _in_words(answer)
            values = np.full_like(values, np.nan) if reason else values
        return Seen(self.pixel_hash, reason or None, detail, self.size, self.format, self.notes, values)


def _in_words(reason: str | None) -> str:
    return {"no_face": "the target found no face", None: ""}.get(reason, "the target gave no answer")


def _score_batch(loaded: LoadedTarget, waiting: list[tuple[str, str, Any]], cache: ScoreCache) -> None:
    if not waiting:
        return
    names = [name for name, _, _ in waiting]
    scores = call_target(loaded, [prepared for _, _, prepared in waiting], names)
    for (_, pixel_hash, _), reason, values in zip(waiting, scores.reasons, scores.values, strict=True):
        cache.add(pixel_hash, reason, values)
    cache.save()


def call_target(loaded: LoadedTarget, images: Sequence[Image.Image], names: Sequence[str]) -> Scores:
    """Call ``score`` or ``embed`` once and check the answer.

    Args:
        loaded: the target.
        images: what ``prepare`` made, or RGB pictures.
        names: of the pictures, for messages.

    Raises:
        TargetError: the target raised, or its answer has another shape or type than the protocol says.
    """
    method = loaded.target.embed if loaded.card.kind == "embedding" else loaded.target.score  # type: ignore[union-attr]
    try:
        answer = method(images)
    except FacedeltaError:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise TargetError(
            f"target {loaded.card.spec} failed on {shortlist(names, 3)}: {kind}: {error}"
        ) from error
    return _checked(answer, loaded, len(images))


def _checked(answer: object, loaded: LoadedTarget, count: int) -> Scores:
    given = answer.values if isinstance(answer, Scores) else answer
    width = len(loaded.card.concepts) or "d"
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TargetError(
            f"target {loaded.card.spec} must return ({count}, {width}) floats, "
            f"got {type(given).__name__}: {error}"
        ) from None
    if values.ndim != 2 or values.shape[0] != count or (width != "d" and values.shape[1] != width):
        raise TargetError(
            f"target {loaded.card.spec} must return ({count}, {width}) floats, got {values.shape}"
        )
    reasons: Sequence[str | None] = answer.reasons if isinstance(answer, Scores) else (None,) * count
    if len(reasons) != count:
        raise TargetError(f"target {loaded.card.spec} must give {count} reasons, got {len(reasons)}")
    silent = [bool(np.isnan(row).all()) for row in values]
    kept = tuple((r or NO_ANSWER) if s else r for r, s in zip(reasons, silent, strict=True))
    return Scores(values, kept)


def _look_up(
    loaded: LoadedTarget, pictures: Sequence[PictureRef], advance: Callable[..., None]
) -> dict[str, Seen]:
    """Recorded answers: a picture that isn't at hand may still be known by its path."""
    facts: dict[str, _Facts] = {}
    for item in _open_all(loaded, pictures):
        advance()
        facts[item.ref.name] = _Facts.of(item)
    ids = [PictureId(name, fact.pixel_hash) for name, fact in facts.items()]
    scores = loaded.target.lookup(ids)  # type: ignore[union-attr]
    seen = {}
    for (name, fact), reason, values in zip(facts.items(), scores.reasons, scores.values, strict=True):
        kept = fact.fault if fact.fault[0] == UNREADABLE else ((reason or ""), _in_words(reason))
        if kept[0] == NO_ANSWER and fact.fault[0] == MISSING:
            kept = fact.fault
        row = np.full_like(values, np.nan) if kept[0] else values
        seen[name] = Seen(fact.pixel_hash, kept[0] or None, kept[1], fact.size, fact.format, fact.notes, row)
    return seen
