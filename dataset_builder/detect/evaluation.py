"""A detector's labels beside the truth on a built dataset: what it confuses, what that does to deltas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dataset_builder.detect.labels import FacePair, PairLabeller
from dataset_builder.filter import judge
from dataset_builder.published import read_config
from dataset_builder.recipe import Recipe
from dataset_builder.schema.taxonomy import Taxonomy
from dataset_builder.schema.verdict import Evidence, Label
from harness.stats.intervals import CellEstimates, cell_estimates
from harness.stats.proportions import clopper_pearson
from harness.stats.vectors import row_cosines
from targets.base.errors import InputError
from targets.catalogue import LoadedTarget
from targets.protocol import FloatArray
from targets.scoring import PictureRef, score_pictures

LEVEL = 0.95


@dataclass(frozen=True)
class Candidate:
    """A candidate pair of a dataset, twice: as the generator made it, and as the detectors saw it."""

    pair_id: str
    identity: str
    group: str
    source: PictureRef
    transformed: PictureRef
    truth: Evidence
    seen: Evidence

    @property
    def attribute(self) -> str:
        """What was applied."""
        return self.truth.attribute


def load_candidates(dataset: Path, *, need_truth: bool = True) -> list[Candidate]:
    """Every candidate with two pictures, by default only where the generator knows the labels of both faces.

    Raises:
        InputError: no built dataset, or no candidate with known labels.
    """
    sources = {row["sha256"]: row for row in read_config(dataset, "sources")}
    made = {row["pair_id"]: row for row in read_config(dataset, "candidates")}
    found = []
    for verdict in read_config(dataset, "verdicts"):
        face, source = made[verdict["pair_id"]], sources[verdict["source_sha256"]]
        if face["fault"] or source["fault"] or (need_truth and not (_known(source) and _known(face))):
            continue
        found.append(_candidate(verdict, source, face))
    if not found:
        raise InputError(
            f"{dataset}: no candidate whose labels the generator knows; rendered heads have them"
        )
    return found


def _known(face: Mapping[str, Any]) -> bool:
    return set(face["labels"].values()) != {"unknown"}


def _candidate(verdict: Mapping[str, Any], source: Mapping[str, Any], face: Mapping[str, Any]) -> Candidate:
    same: dict[str, Any] = {
        "attribute": verdict["attribute"],
        "identical": "identical" in verdict["violations"],
    }
    return Candidate(
        pair_id=verdict["pair_id"],
        identity=verdict["identity"],
        group=verdict["demographic"],
        source=_ref(source),
        transformed=_ref(face),
        truth=Evidence(
            source_labels=source["labels"],
            transformed_labels=face["labels"],
            source_age=source["age"],
            transformed_age=face["age"],
            distorted=face["distorted"],
            **same,
        ),
        seen=Evidence(
            source_labels=verdict["source_labels"],
            transformed_labels=verdict["transformed_labels"],
            source_age=verdict["source_age"],
            transformed_age=verdict["transformed_age"],
            distorted=verdict["distorted"],
            complete=verdict["complete"],
            **same,
        ),
    )


def _ref(row: Mapping[str, Any]) -> PictureRef:
    return PictureRef(row["sha256"], partial(bytes, row["image"]["bytes"]))


def relabelled(candidates: Sequence[Candidate], detector: PairLabeller) -> list[Candidate]:
    """The candidates as another attribute detector sees them; all else stays as it was seen."""
    pairs = [FacePair(item.attribute, item.group, item.source, item.transformed) for item in candidates]
    found = detector.label_pairs(pairs, lambda _, __: True)
    return [
        replace(
            item,
            seen=replace(
                item.seen,
                source_labels=labels.source.labels,
                transformed_labels=labels.transformed.labels if labels.transformed else {},
                complete=True,
            ),
        )
        for item, labels in zip(candidates, found, strict=True)
    ]


@dataclass(frozen=True)
class Confusion:
    """Labels of distinct faces of one group for one attribute, by truth.

    Attributes:
        yes_yes, yes_no, yes_unknown: the attribute is there; the detector says yes, no, unknown.
        no_yes, no_no, no_unknown: it is not there.
    """

    attribute: str
    group: str
    yes_yes: int = 0
    yes_no: int = 0
    yes_unknown: int = 0
    no_yes: int = 0
    no_no: int = 0
    no_unknown: int = 0

    @property
    def sensitivity(self) -> tuple[float, float, float] | None:
        """Share of faces with the attribute that are called so, with its exact 95 % interval."""
        return _rate(self.yes_yes, self.yes_yes + self.yes_no + self.yes_unknown)

    @property
    def specificity(self) -> tuple[float, float, float] | None:
        """Share of faces without it that are called so, with its exact 95 % interval."""
        return _rate(self.no_no, self.no_yes + self.no_no + self.no_unknown)


def _rate(hits: int, n: int) -> tuple[float, float, float] | None:
    return (hits / n, *clopper_pearson(hits, n, LEVEL)) if n else None


def confusion(
    candidates: Sequence[Candidate], attributes: Sequence[str], groups: Sequence[str]
) -> list[Confusion]:
    """Count every attribute and group; a face is counted once, and only if the detector was asked about it.

    Args:
        candidates: pairs with truth and labels.
        attributes, groups: the cells, in order; those without a face are left out.
    """
    faces: dict[str, tuple[str, Mapping[str, Label], Mapping[str, Label]]] = {}
    for item in candidates:
        if item.seen.source_labels and set(item.seen.source_labels.values()) != {"unknown"}:
            faces[item.source.name] = item.group, item.truth.source_labels, item.seen.source_labels
        if item.seen.complete:
            faces[item.transformed.name] = (
                item.group,
                item.truth.transformed_labels,
                item.seen.transformed_labels,
            )
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for group, truth, seen in faces.values():
        for name in attributes:
            if truth.get(name, "unknown") != "unknown":
                cell = counts.setdefault((name, group), {})
                key = f"{truth[name]}_{seen.get(name, 'unknown')}"
                cell[key] = cell.get(key, 0) + 1
    return [
        Confusion(name, group, **counts[name, group])
        for name in attributes
        for group in groups
        if (name, group) in counts
    ]


@dataclass(frozen=True)
class Kept:
    """What the filter keeps of one cell under the truth and under the detector.

    Attributes:
        truth, detector, both: candidates kept.
    """

    attribute: str
    group: str
    truth: int
    detector: int
    both: int


@dataclass(frozen=True)
class Effect:
    """A delta on the pairs kept under the truth, and on those kept under the detector.

    Attributes:
        truth, detector: mean transformed minus source; None without a pair.
        truth_interval, detector_interval: 99.9 % by identity; None where undefined.
    """

    attribute: str
    group: str
    concept: str
    truth: float | None
    detector: float | None
    truth_interval: tuple[float, float] | None
    detector_interval: tuple[float, float] | None

    @property
    def changed(self) -> bool:
        """Whether sign or decision (the interval excludes 0) differ between the two."""
        return _decision(self.truth, self.truth_interval) != _decision(self.detector, self.detector_interval)


def _decision(delta: float | None, interval: tuple[float, float] | None) -> tuple[bool, bool]:
    decided = interval is not None and not interval[0] <= 0 <= interval[1]
    return decided, decided and delta is not None and delta > 0


Verdicts = tuple[tuple[bool, ...], tuple[bool, ...]]


def verdicts(candidates: Sequence[Candidate], taxonomy: Taxonomy, recipe: Recipe) -> Verdicts:
    """Whether each candidate is kept under the truth, and under the detector."""
    return (
        tuple(judge(item.truth, taxonomy, recipe.filter).kept for item in candidates),
        tuple(judge(item.seen, taxonomy, recipe.filter).kept for item in candidates),
    )


def kept_counts(candidates: Sequence[Candidate], kept: Verdicts) -> list[Kept]:
    """What is kept of every cell with candidates."""
    cells: dict[tuple[str, str], list[int]] = {}
    for index, item in enumerate(candidates):
        cells.setdefault((item.attribute, item.group), []).append(index)
    truth, seen = kept
    return [
        Kept(
            attribute,
            group,
            sum(truth[row] for row in rows),
            sum(seen[row] for row in rows),
            sum(truth[row] and seen[row] for row in rows),
        )
        for (attribute, group), rows in sorted(cells.items())
    ]


def effects(
    candidates: Sequence[Candidate],
    kept: Verdicts,
    loaded: LoadedTarget,
    cache_root: Path,
    *,
    level: float = 0.999,
    show_progress: bool = True,
) -> list[Effect]:
    """Ask a target about all candidates and compare its deltas on both kept sets.

    An embedder is compared by the cosine of source and transformed face ("identity").

    Raises:
        TargetError: the target breaks its protocol.
    """
    refs = [ref for item in candidates for ref in (item.source, item.transformed)]
    seen = score_pictures(loaded, refs, cache_root, show_progress=show_progress)
    before = np.array([seen[item.source.name].values for item in candidates])
    after = np.array([seen[item.transformed.name].values for item in candidates])
    concepts = loaded.card.concepts
    if loaded.card.kind == "embedding":
        before, after, concepts = _cosines(before, after)
    found = []
    for cell in kept_counts(candidates, kept):
        here = [(item.attribute, item.group) == (cell.attribute, cell.group) for item in candidates]
        estimates = [
            _estimate(candidates, np.array(here) & np.array(part), before, after, level) for part in kept
        ]
        for column, concept in enumerate(concepts):
            (truth, truth_ci), (detector, detector_ci) = (_numbers(part, column) for part in estimates)
            found.append(Effect(cell.attribute, cell.group, concept, truth, detector, truth_ci, detector_ci))
    return found


def _cosines(before: FloatArray, after: FloatArray) -> tuple[FloatArray, FloatArray, tuple[str, ...]]:
    return np.ones((len(before), 1)), row_cosines(before, after)[:, None], ("identity",)


def _estimate(
    candidates: Sequence[Candidate],
    rows: np.ndarray[tuple[int], np.dtype[np.bool_]],
    before: FloatArray,
    after: FloatArray,
    level: float,
) -> CellEstimates:
    numbers: dict[str, int] = {}
    codes = [
        numbers.setdefault(item.identity, len(numbers))
        for item, here in zip(candidates, rows, strict=True)
        if here
    ]
    return cell_estimates(before[rows], after[rows], np.array(codes, dtype=np.int64), level=level)


def _numbers(cell: CellEstimates, column: int) -> tuple[float | None, tuple[float, float] | None]:
    delta = float(cell.delta[column])
    interval = float(cell.low[column]), float(cell.high[column])
    return (
        None if np.isnan(delta) else delta,
        interval if cell.status[column] == "ok" else None,
    )
