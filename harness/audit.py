"""Pairs x target -> outcomes: both faces of every pair asked about, every missing answer with a reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from harness.analysis import Options, check_request, make_record
from harness.captured_table import tabulated
from harness.outcomes import CODES, OK, REASONS, CodeArray, Embedded, Failure, FloatArray, Labels, Outcomes
from harness.pairs import Pairs
from harness.record import Record
from harness.selection import NOT_ASKED, Candidates
from harness.similarity import CONCEPTS, MATCH, Similarities, captured_similarities, similarities
from targets.base.tables import LARGEST_SCORE, ObjectArray
from targets.base.text import utf8
from targets.catalogue import LoadedTarget
from targets.protocol import PictureId
from targets.scoring import MISSING, PictureRef, Seen, score_pictures


@dataclass(frozen=True)
class Asking:
    """How a target is asked.

    Attributes:
        cache_root: folder of cached scores.
        references: other source pictures behind each ``match``; None to take as many as all have.
        keep_identical: count pairs whose two pictures have the same pixels instead of excluding them.
        show_progress: a bar on a terminal, a line a minute in a log.
        resume: go on with an earlier run of a target whose weights have no digest.
    """

    cache_root: Path
    references: int | None = None
    keep_identical: bool = False
    show_progress: bool = True
    resume: bool = False


def audit_pairs(
    pairs: Pairs, loaded: LoadedTarget, options: Options, asking: Asking, *, candidates: bool = True
) -> tuple[Outcomes, Record]:
    """Audit a target on pairs, and on the candidates they were filtered from where those are there.

    Args:
        pairs: n pairs.
        loaded: the target; it is closed afterwards.
        options: what to compute.
        asking: how to ask.
        candidates: whether to ask about rejected candidates too.

    Returns:
        The outcomes of the pairs, and the record.
    """
    try:
        check_request(pairs.labels, concepts_of(loaded), options)
        if loaded.card.kind == "embedding":
            options.recognition.check_level()
        outcomes = audit_pictures(pairs, loaded, asking)
        others = Candidates()
        if pairs.candidates is not None and candidates:
            same_references = replace(asking, references=outcomes.references or asking.references)
            others = Candidates(audit_pictures(pairs.candidates, loaded, same_references))
        elif pairs.candidates is not None:
            others = Candidates(reason=NOT_ASKED)
    finally:
        loaded.close()
    return outcomes, make_record(outcomes, loaded.settled_card(), pairs.origin, options, others)


def concepts_of(loaded: LoadedTarget) -> tuple[str, ...]:
    """The concepts a run with this target will have."""
    return CONCEPTS if loaded.card.kind == "embedding" else loaded.card.concepts


def audit_pictures(
    pairs: Pairs,
    loaded: LoadedTarget,
    asking: Asking,
) -> Outcomes:
    """Ask the target about every distinct picture of the pairs.

    Args:
        pairs: n pairs.
        loaded: the target.
        asking: how to ask.

    Raises:
        TargetError: the target failed or broke its protocol.
        InputError: a captured log that can't be matched to the pictures.
    """
    pictures = [*pairs.source, *pairs.transformed]
    cautions: list[str] = []
    seen = score_pictures(
        loaded,
        pictures,
        asking.cache_root,
        show_progress=asking.show_progress,
        caution=cautions.append,
        resume=asking.resume,
    )
    source = [seen[picture.name] for picture in pairs.source]
    transformed = [seen[picture.name] for picture in pairs.transformed]
    reasons = _pair_reasons(pairs, source, transformed, keep_identical=asking.keep_identical)
    width = max((len(item.values) for item in seen.values()), default=0)
    before, after = _stack(source, width), _stack(transformed, width)
    concepts: tuple[str, ...] = loaded.card.concepts
    embedded, lacking = _embedded(pairs, loaded, source, transformed, reasons, before, after)
    compared = _compared(pairs, loaded, source, transformed, before, after, asking.references)
    if compared is not None:
        concepts, before, after = CONCEPTS, compared.source, compared.transformed
    codes = _codes(reasons, before, after)
    if compared is None:
        # Of a concept, NaN is the target's word for no answer.
        silent = (np.isnan(before) | np.isnan(after)) & (codes == CODES["non_finite"])
        codes[silent] = CODES["no_answer"]
    if compared is not None:
        if loaded.card.kind == "recorded":
            # A comparison that was not captured; a vector's NaN is the target's own.
            codes[codes == CODES["non_finite"]] = CODES["no_answer"]
        no_reference = np.isnan(before[:, MATCH]) & (reasons == OK)
        codes[no_reference, MATCH] = CODES["no_reference"]
    before[codes != OK], after[codes != OK] = np.nan, np.nan
    outcomes = Outcomes(
        labels=pairs.labels,
        concepts=concepts,
        source=before,
        transformed=after,
        codes=codes,
        source_hash=_hashes(source),
        transformed_hash=_hashes(transformed),
        failures=list(pairs.failures),
        warnings=[*pairs.warnings, *map(utf8, loaded.optional("remarks", Sequence, ())), *cautions, *lacking],
        filtered_by=_filtered_by(pairs, loaded),
        picture_checks=_picture_checks(pairs.labels, source, transformed),
        references=None if compared is None else compared.references,
        embedded=embedded,
    )
    outcomes.failures.extend(_failures(outcomes, pairs.source, pairs.transformed, source, transformed))
    return outcomes


def _embedded(
    pairs: Pairs,
    loaded: LoadedTarget,
    source: list[Seen],
    transformed: list[Seen],
    reasons: CodeArray,
    before: FloatArray,
    after: FloatArray,
) -> tuple[Embedded | None, list[str]]:
    """What error rates are made of: vectors, or captured comparisons if none is missing; else a warning."""
    if loaded.card.kind == "embedding":
        return Embedded(before, after, reasons, _hashes(source)), []
    table = getattr(loaded.target, "table", None)
    if table is None:
        return None, []
    first, second = _picture_ids(pairs, source, transformed)
    found = (before[:, 0], after[:, 0])
    made, lacking = tabulated(first, second, found, reasons, table, len(loaded.target))  # type: ignore[arg-type]
    return made, [lacking] if lacking else []


def _picture_ids(
    pairs: Pairs, source: list[Seen], transformed: list[Seen]
) -> tuple[list[PictureId], list[PictureId]]:
    first, second = (
        [PictureId(ref.name, item.pixel_hash) for ref, item in zip(refs, seen, strict=True)]
        for refs, seen in ((pairs.source, source), (pairs.transformed, transformed))
    )
    return first, second


def _compared(
    pairs: Pairs,
    loaded: LoadedTarget,
    source: list[Seen],
    transformed: list[Seen],
    before: FloatArray,
    after: FloatArray,
    references: int | None,
) -> Similarities | None:
    """``match`` and ``identity`` of a target that gives vectors or captured comparisons, else None."""
    if loaded.card.kind == "embedding":
        keys = [item.pixel_hash for item in source]
        return similarities(pairs.labels, before, after, keys, references)
    compare = getattr(loaded.target, "compare", None)
    if compare is None:
        return None
    first, second = _picture_ids(pairs, source, transformed)
    return captured_similarities(pairs.labels, first, second, before[:, 0], compare, references)


def _filtered_by(pairs: Pairs, loaded: LoadedTarget) -> tuple[str, ...]:
    """Roles in which the model under audit has itself decided which pairs were kept.

    A model without a known digest of its weights stands in a build by its spec.
    """
    known = {loaded.card.weights_digest or loaded.card.spec}
    return tuple(role for role, other in pairs.detectors.items() if other in known)


def _stack(seen: list[Seen], width: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    rows = np.full((len(seen), width), np.nan)
    for index, item in enumerate(seen):
        if item.reason is None:
            rows[index] = item.values
    return rows


def _hashes(seen: list[Seen]) -> ObjectArray:
    return np.array([item.pixel_hash for item in seen], dtype=object)


def _pair_reasons(
    pairs: Pairs, source: list[Seen], transformed: list[Seen], *, keep_identical: bool
) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """One reason a pair, the source face's before the transformed face's."""
    reasons = np.zeros(len(source), dtype=np.int8)
    earlier: set[tuple[object, ...]] = set()
    for index, (before, after) in enumerate(zip(source, transformed, strict=True)):
        reason = _side_reason(before, "source") or _side_reason(after, "transformed")
        if reason is None and before.pixel_hash is not None:
            pair = (pairs.labels.attribute[index], before.pixel_hash, after.pixel_hash)
            if before.pixel_hash == after.pixel_hash and not keep_identical:
                reason = "identical"
            elif pair in earlier:
                reason = "duplicate"
            earlier.add(pair)
        reasons[index] = CODES[reason] if reason else OK
    return reasons


def _side_reason(seen: Seen, side: str) -> str | None:
    return f"missing_{side}" if seen.reason == MISSING else seen.reason


def _codes(
    reasons: np.ndarray[tuple[int], np.dtype[np.int8]],
    before: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    after: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, int], np.dtype[np.int8]]:
    codes = np.repeat(reasons[:, None], before.shape[1], axis=1)
    broken = ~((np.abs(before) <= LARGEST_SCORE) & (np.abs(after) <= LARGEST_SCORE))
    codes[broken & (codes == OK)] = CODES["non_finite"]
    return codes


def _picture_checks(
    labels: Labels, source: list[Seen], transformed: list[Seen]
) -> dict[tuple[str, str], int]:
    """Differences between a pair's two files that move scores by themselves, and what the decoder did."""
    checks: dict[tuple[str, str], int] = {}
    tests: dict[str, Callable[[Seen, Seen], bool]] = {
        "unequal picture size": lambda a, b: a.size != b.size,
        "unequal file format": lambda a, b: a.format != b.format,
        "identical pixels": lambda a, b: a.pixel_hash == b.pixel_hash,
    }
    for group, before, after in zip(labels.demographic, source, transformed, strict=True):
        if before.pixel_hash is None or after.pixel_hash is None:
            continue
        names = [name for name, test in tests.items() if test(before, after)]
        for name in dict.fromkeys((*names, *before.notes, *after.notes)):
            checks[name, group] = checks.get((name, group), 0) + 1
    return checks


def _failures(
    outcomes: Outcomes,
    source_refs: tuple[PictureRef, ...],
    transformed_refs: tuple[PictureRef, ...],
    source: list[Seen],
    transformed: list[Seen],
) -> list[Failure]:
    """One entry a failed picture, and one a pair that fails without a failed picture."""
    rows: dict[tuple[str, str], Failure] = {}
    pair_codes = outcomes.pair_codes
    labels = outcomes.labels
    for index in range(len(labels)):
        group, attribute = labels.demographic[index], labels.attribute[index]
        sides = (("source", source_refs, source), ("transformed", transformed_refs, transformed))
        for side, refs, seen in sides:
            reason = _side_reason(seen[index], side)
            if reason:
                key = ("picture", refs[index].name)
                detail = seen[index].detail
                rows.setdefault(
                    key, Failure(*key, reason, group, attribute if side == "transformed" else "", detail)
                )
        for code in dict.fromkeys(outcomes.codes[index]):
            if code != OK and not any(_side_reason(item[index], "x") for item in (source, transformed)):
                concepts = [
                    c for c, v in zip(outcomes.concepts, outcomes.codes[index], strict=True) if v == code
                ]
                key = ("pair", labels.pair_id[index])
                detail = _pair_detail(REASONS[code], concepts, whole=code == pair_codes[index])
                rows.setdefault((*key, REASONS[code]), Failure(*key, REASONS[code], group, attribute, detail))  # type: ignore[arg-type]
    return list(rows.values())


def _pair_detail(reason: str, concepts: list[str], *, whole: bool) -> str:
    words = {
        "identical": "both pictures have the same pixels",
        "duplicate": "an earlier pair shows the same two pictures",
        "no_reference": "the identity has too few other source pictures",
        "non_finite": "a score is not finite, or beyond 1e100",
        "no_answer": "the target gave no answer",
    }
    text = words.get(reason, reason)
    return text if whole else f"{text} ({', '.join(concepts[:5])}{', ...' if len(concepts) > 5 else ''})"
