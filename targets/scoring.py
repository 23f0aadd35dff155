"""Asking a target about pictures: once per distinct picture, in planned batches, resumable."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from targets import opening
from targets.base.errors import InputError, TargetError
from targets.base.foreign import foreign_code
from targets.base.progress import progress
from targets.base.text import excerpt, shortlist, utf8
from targets.cache import ScoreCache
from targets.catalogue import LoadedTarget
from targets.executors import processes
from targets.executors.local import prefetched
from targets.frame import LARGE_PIXELS, Frame, unless_small
from targets.opening import MISSING as MISSING
from targets.opening import (
    UNREADABLE,
    Facts,
    Opened,
    Prepared,
    open_in_processes,
    open_in_threads,
)
from targets.opening import PictureRef as PictureRef
from targets.protocol import NO_ANSWER, NO_FACE, FloatArray, PictureId, Scores, Staged, declined
from targets.resuming import take_up
from targets.several_faces import SeveralFacesError

ResultT = TypeVar("ResultT")


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
    caution: Callable[[str], None] | None = None,
    resume: bool = False,
) -> dict[str, Seen]:
    """Ask a target about pictures.

    Args:
        loaded: the target.
        pictures: in any number; equal names are read once, equal pixels are asked about once.
        cache_root: folder that holds the cached scores of all targets.
        show_progress: a bar on a terminal, a line a minute in a log.
        caution: is told, in a sentence, what makes the answers doubtful.
        resume: use the answers of an earlier run of a target whose weights have no digest, if it still gives
            some of them.

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
        in_force = loaded.optional("in_force", dict, {})
        cache = ScoreCache.open(
            cache_root, loaded.card, in_force, run=loaded.run, hidden=loaded.hidden, resume=resume
        )
        take_up(loaded.card, distinct, cache, partial(ask_target, loaded))
        try:
            return _ask(loaded, distinct, cache, advance, caution)
        finally:
            cache.save(at_once=True)


# Below this, starting processes and filling the pipeline costs more than it gains.
PROCESSES_FROM = 512
NO_VECTOR = "a vector of NaN, or of length 0, which has no direction"

_Waiting = list[Opened]


def _ask(
    loaded: LoadedTarget,
    pictures: Sequence[PictureRef],
    cache: ScoreCache,
    advance: Callable[..., None],
    caution: Callable[[str], None] | None,
) -> dict[str, Seen]:
    facts: dict[str, Facts] = {}
    staged = isinstance(loaded.target, Staged)
    with closing(_open_all(loaded, pictures, staged=staged)) as opened:
        batches = _planned(opened, loaded.batch_size, set(cache.rows), facts, advance)
        if staged:
            _ask_staged(loaded, batches, cache)
        else:
            for waiting in batches:
                scores = _score_batch(loaded, waiting)
                if caution and len(waiting) > 1:
                    _ask_one_alone(loaded, waiting[0], scores, caution)
                    caution = None
                _keep(cache, waiting, scores)
    own: Mapping[str, str] = {NO_ANSWER: NO_VECTOR} if loaded.card.kind == "embedding" else {}
    hints = {**own, **loaded.optional("hints", Mapping, {})}
    width = len(loaded.card.concepts) or _vector_length(loaded, facts, cache)
    return {name: _seen(item, cache, width, hints) for name, item in facts.items()}


def _vector_length(loaded: LoadedTarget, facts: Mapping[str, Facts], cache: ScoreCache) -> int:
    """Components of an embedder's vectors; 1, for a NaN, where it was asked about no picture."""
    hashes = {fact.pixel_hash for fact in facts.values() if fact.pixel_hash in cache.rows}
    lengths = {len(cache.rows[name][1]) for name in hashes if name is not None}
    _check_one_length(loaded, lengths)
    return max(lengths, default=0) or 1


def _check_one_length(loaded: LoadedTarget, lengths: set[int]) -> None:
    if len(lengths) > 1:
        raise TargetError(f"target {loaded.card.spec}: vectors must have one length, got {sorted(lengths)}")


def _score_batch(loaded: LoadedTarget, waiting: _Waiting) -> Scores:
    """Ask about a batch; if the target raises, find out on which picture."""
    try:
        return call_target(loaded, [item.content for item in waiting], [item.name for item in waiting])
    except TargetError as error:
        if error.__cause__ is None:
            raise
        for item in waiting:
            call_target(loaded, [item.content], [item.name])
        raise


# A float32 model moves in the seventh digit with its batch, a half-precision one in the third.
BATCH_TOLERANCE = 0.01


def _ask_one_alone(
    loaded: LoadedTarget, item: Opened, together: Scores, caution: Callable[[str], None]
) -> None:
    """Ask about the first picture of a run once more, alone: its batch-mates must not have mattered."""
    alone = call_target(loaded, [item.content], [item.name]).values[0]
    first = together.values[0]
    _check_one_length(loaded, {len(alone), len(first)})
    both = np.isfinite(alone) & np.isfinite(first)
    gap = np.abs(alone[both] - first[both]).max(initial=0.0)
    if gap > BATCH_TOLERANCE * max(1.0, float(np.abs(first[both]).max(initial=0.0))):
        caution(
            f"{item.name} asked about alone gets scores that differ by {gap:.2g}: the target depends on what "
            "is asked beside it, or answers at random; run facedelta targets check"
        )


def _open_all(
    loaded: LoadedTarget, pictures: Sequence[PictureRef], *, staged: bool
) -> Generator[Opened, None, None]:
    if not staged:
        yield from open_in_threads(pictures, _prepare(loaded))
        return
    frame = loaded.optional("frame", Frame, None)
    if len(pictures) >= PROCESSES_FROM and processes.available():
        # One batch is collected while another is copied.
        yield from open_in_processes(pictures, 2 * loaded.batch_size, frame)
    else:
        yield from open_in_threads(
            pictures, lambda image, _: Prepared(np.asarray(unless_small(image, frame)))
        )


def _prepare(loaded: LoadedTarget) -> Callable[[Image.Image, str], Prepared]:
    """What the target is given of a picture; what its own preprocessing raises names target and picture."""
    prepare = loaded.optional("prepare", Callable, None)
    hints = loaded.optional("hints", Mapping, {})

    def prepared(image: Image.Image, name: str) -> Prepared:
        if prepare is None:
            return Prepared(image)
        content = _called(loaded, partial(prepare, image), [name])
        reason = declined(content)
        return Prepared(None, (reason, _in_words(reason, hints))) if reason else Prepared(content)

    return prepared


def ask_target(loaded: LoadedTarget, images: Sequence[Image.Image], names: Sequence[str]) -> Scores:
    """Prepare RGB pictures and ask about them once, without a cache.

    Raises:
        TargetError: as for ``call_target``.
    """
    prepare = _prepare(loaded)
    made = [prepare(image, name) for image, name in zip(images, names, strict=True)]
    asked = [row for row, item in enumerate(made) if not item.fault[0]]
    reasons: list[str | None] = [item.fault[0] or None for item in made]
    if images and not asked:
        return Scores(np.full((len(images), len(loaded.card.concepts) or 1), np.nan), tuple(reasons))
    scores = call_target(loaded, [made[row].content for row in asked], [names[row] for row in asked])
    values = np.full((len(images), scores.values.shape[1]), np.nan)
    values[asked] = scores.values
    for row, reason in zip(asked, scores.reasons, strict=True):
        reasons[row] = reason
    return Scores(values, tuple(reasons))


def _planned(
    opened: Iterator[Opened],
    batch_size: int,
    known: set[str],
    facts: dict[str, Facts],
    advance: Callable[..., None],
) -> Iterator[_Waiting]:
    """Distinct pictures by planned batch, those left out that are ``known`` from an earlier run.

    What was found out about each picture goes into ``facts``; a batch holds no picture beyond its turn, and
    ends early where large pictures would fill the memory.
    """
    planned: set[str] = set()
    count, held, waiting = 0, 0, []
    for item in opened:
        advance()
        facts[item.name] = item.facts
        pixel_hash = item.facts.pixel_hash
        if item.content is None or pixel_hash is None or pixel_hash in planned:
            item.release()
            continue
        planned.add(pixel_hash)
        count += 1
        held += _large(item.content)
        if pixel_hash in known:
            item.release()
        else:
            waiting.append(item)
        if count == batch_size or held >= opening.MOST_PIXELS:
            if waiting:
                yield waiting
            count, held, waiting = 0, 0, []
    if waiting:
        yield waiting


def _large(content: Any) -> int:
    """Pixels of a picture of more than a megapixel, else 0: small ones fill no memory."""
    if isinstance(content, Mapping):
        return sum(map(_large, content.values()))
    if isinstance(content, list | tuple):
        return sum(map(_large, content))
    if isinstance(content, Image.Image):
        pixels = content.width * content.height
    else:
        pixels = int(getattr(content, "nbytes", 0)) // 3
    return pixels if pixels > LARGE_PIXELS else 0


def _ask_staged(loaded: LoadedTarget, batches: Iterator[_Waiting], cache: ScoreCache) -> None:
    """Keep two batches on the accelerator, one computed and one waiting behind it.

    A third is copied there and a fourth collected, each in a thread of its own.
    """
    target: Staged = loaded.target  # type: ignore[assignment]

    def stage_all(collected: Iterator[_Waiting]) -> Generator[tuple[_Waiting, Any], None, None]:
        for waiting in collected:
            contents, names = [item.content for item in waiting], [item.name for item in waiting]
            staged = _called(loaded, partial(target.stage, contents), names)
            for item in waiting:
                item.release()
            yield [replace(item, content=None) for item in waiting], staged

    def finish(waiting: _Waiting, answer: Callable[[], FloatArray | Scores]) -> None:
        names = [item.name for item in waiting]
        _keep(cache, waiting, _guarded(loaded, answer, names))

    computing: deque[tuple[_Waiting, Callable[[], FloatArray | Scores]]] = deque()
    with (
        _short_collections(),
        closing(prefetched(batches)) as collected,
        closing(prefetched(stage_all(collected))) as ahead,
    ):
        for waiting, staged in ahead:
            names = [item.name for item in waiting]
            computing.append((waiting, _called(loaded, partial(target.start, staged), names)))
            if len(computing) > 1:
                finish(*computing.popleft())
        while computing:
            finish(*computing.popleft())


@contextmanager
def _short_collections() -> Iterator[None]:
    """Leave what exists out of garbage collection: going through all of torch stops every thread."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _keep(cache: ScoreCache, waiting: _Waiting, scores: Scores) -> None:
    details = scores.details or ("",) * len(waiting)
    for item, reason, detail, values in zip(waiting, scores.reasons, details, scores.values, strict=True):
        # Kept in one text, as "no_answer: the server refused it".
        cache.add(item.facts.pixel_hash or "", f"{reason}: {detail}" if reason and detail else reason, values)
    cache.save()


def _seen(facts: Facts, cache: ScoreCache, width: int, hints: Mapping[str, str]) -> Seen:
    reason, detail = facts.fault
    values = None
    if not reason and facts.pixel_hash is not None:
        answer, values = cache.rows[facts.pixel_hash]
        reason, width = (answer or "").partition(":")[0], len(values)
        detail = _in_words(answer, hints)
    if reason or values is None:
        values = np.full(width, np.nan)
    return Seen(facts.pixel_hash, reason or None, detail, facts.size, facts.format, facts.notes, values)


def _in_words(reason: str | None, hints: Mapping[str, str]) -> str:
    """The reason, with what the target says of it in words, or its hint."""
    if reason is None:
        return ""
    kind, _, why = reason.partition(": ")
    text = "the target found no face" if kind == NO_FACE else "the target gave no answer"
    return ": ".join(filter(None, [text, why or utf8(hints.get(kind, ""))]))


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
    return _guarded(loaded, partial(method, images), names)


def _guarded(loaded: LoadedTarget, ask: Callable[[], object], names: Sequence[str]) -> Scores:
    return _checked(_called(loaded, ask, names), loaded, len(names))


def _called(loaded: LoadedTarget, ask: Callable[[], ResultT], names: Sequence[str]) -> ResultT:
    advice = "for a picture without an answer return a row of NaN"
    try:
        with foreign_code(f"target {loaded.card.spec} failed on {shortlist(names, 3)}:", advice):
            return ask()
    except SeveralFacesError as error:
        raise TargetError(f"target {loaded.card.spec}: {shortlist(names, 3)} shows {error}") from error


def _checked(answer: object, loaded: LoadedTarget, count: int) -> Scores:
    values = _floats(answer.values if isinstance(answer, Scores) else answer, loaded, count)
    if not isinstance(answer, Scores):
        answer = Scores(values, (None,) * count)
    with foreign_code(f"target {loaded.card.spec}: the reasons of its answer can't be read:"):
        reasons, details = tuple(answer.reasons), tuple(map(utf8, answer.details or ()))
        unknown = [reason for reason in reasons if reason not in (None, NO_FACE, NO_ANSWER)]
    if len(reasons) != count or len(details) not in (0, count):
        came = f"{len(reasons)} reasons and {len(details)} details"
        raise TargetError(
            f"target {loaded.card.spec} must give {count} reasons, and details too or none, got {came}"
        )
    if unknown:
        known = f"'{NO_FACE}' or '{NO_ANSWER}'"
        raise TargetError(f"target {loaded.card.spec}: a reason must be {known}, got '{unknown[0]}'")
    if loaded.card.kind == "embedding":
        # A vector without a direction has no cosine.
        values = np.where((values == 0.0).all(axis=1, keepdims=True), np.nan, values)
    silent = [bool(np.isnan(row).all()) for row in values]
    kept = tuple((r or loaded.card.nan_means) if s else r for r, s in zip(reasons, silent, strict=True))
    return Scores(values, kept, details)


def _floats(given: object, loaded: LoadedTarget, count: int) -> FloatArray:
    """The numbers of an answer; ``given`` is the target's, so that all it does may fail."""
    width = len(loaded.card.concepts) or "d"
    must = f"target {loaded.card.spec} must return ({count}, {width}) floats, got"
    kind = type(given).__name__
    with foreign_code(f"{must} {kind}, which can't be read:"):
        absent = [row for row, value in enumerate(given) if value is None] if isinstance(given, list) else []
        if absent:
            raise TargetError(
                f"target {loaded.card.spec}: row {absent[0]} is None; use a row of NaN for no answer"
            )
        plain = np.asarray(given)
        if plain.dtype.kind not in "fiuO" or np.ma.isMaskedArray(given):
            raise TargetError(f"{must} {kind} of {plain.dtype}")
        if odd := _odd_cell(given, plain):
            raise TargetError(f"{must} {kind} with {odd}")
        named = list(getattr(given, "columns", ()))
        if named and named not in ([*loaded.card.concepts], [*range(len(named))]):
            raise TargetError(f"{must} {kind} with the columns {excerpt(shortlist(named))}")
        with np.errstate(over="ignore"):
            values = plain.astype(np.float64)
    if values.ndim != 2 or values.shape[0] != count or (width != "d" and values.shape[1] != width):
        raise TargetError(f"{must} {values.shape}")
    if values.shape[1] == 0:
        raise TargetError(f"target {loaded.card.spec} must return vectors of at least one number, got none")
    return values


def _odd_cell(given: object, plain: npt.NDArray[Any]) -> str:
    """The type of a cell that numpy would silently turn into a number; empty where there is none."""
    rows = list(given) if isinstance(given, list | tuple) else []
    cells = (cell for row in rows if isinstance(row, list | tuple) for cell in row)
    for cell in [*rows, *(plain.ravel() if plain.dtype.kind == "O" else cells)]:
        if isinstance(cell, bool | np.bool_ | str | bytes | np.ma.MaskedArray):
            return type(cell).__name__
    return ""


def _look_up(
    loaded: LoadedTarget, pictures: Sequence[PictureRef], advance: Callable[..., None]
) -> dict[str, Seen]:
    """Recorded answers: a picture that isn't at hand may still be known by its path."""
    facts: dict[str, Facts] = {}
    for item in open_in_threads(pictures, lambda image, _: Prepared(image)):
        advance()
        facts[item.name] = item.facts
    ids = [PictureId(name, fact.pixel_hash) for name, fact in facts.items()]
    with foreign_code(f"target {loaded.card.spec}: lookup() failed:"):
        answer = loaded.target.lookup(ids)  # type: ignore[union-attr]
    scores = _checked(answer, loaded, len(ids))
    if ids and (unmatched := loaded.optional("no_match", str, "")):
        raise InputError(unmatched)
    seen = {}
    for (name, fact), reason, values in zip(facts.items(), scores.reasons, scores.values, strict=True):
        kept = fact.fault if fact.fault[0] == UNREADABLE else ((reason or ""), _in_words(reason, {}))
        if kept[0] == NO_ANSWER and fact.fault[0] == MISSING:
            kept = fact.fault
        row = np.full_like(values, np.nan) if kept[0] else values
        seen[name] = Seen(fact.pixel_hash, kept[0] or None, kept[1], fact.size, fact.format, fact.notes, row)
    return seen
