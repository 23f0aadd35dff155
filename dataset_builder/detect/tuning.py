"""Thresholds of a distortion detector from people's labels: recall first, and said where it can't be shown.

Pooled by attribute category, or for every attribute and group as the paper does it. A threshold is the
largest that finds the wanted share of the distorted faces people labelled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dataset_builder.detect.choice import read_human_labels
from dataset_builder.detect.distortion import DistortionModel, FloatArray, threshold_for_recall
from dataset_builder.detect.evidence import embedder_of
from dataset_builder.published import read_config
from dataset_builder.schema.taxonomy import Taxonomy
from harness.stats.proportions import clopper_pearson, examples_to_show
from targets.base.errors import InputError
from targets.base.text import counted
from targets.scoring import PictureRef, score_pictures

LEVEL = 0.95
Scope = Literal["category", "cell"]
# The "attribute" under which a table of human labels says whether a face is distorted.
DISTORTED = "distorted"


@dataclass(frozen=True)
class JudgedFace:
    """A transformed face that people judged."""

    picture: PictureRef
    attribute: str
    group: str
    distorted: bool


@dataclass(frozen=True)
class Tuned:
    """One threshold and what the labels show about it.

    Attributes:
        scope: category, or "attribute/group".
        distorted, clean, without_face: labelled faces; those without a face count as neither.
        threshold: None where there is no distorted face to tune it on.
        recall, recall_low: share found, and its exact one-sided 95 % lower bound.
        false_positives, false_low, false_high: share of clean faces called distorted, exact 95 % interval.
    """

    scope: str
    distorted: int
    clean: int
    without_face: int
    threshold: float | None
    recall: float | None
    recall_low: float | None
    false_positives: float | None
    false_low: float | None
    false_high: float | None

    def in_words(self, wanted: float) -> str:
        """One line, bounds included."""
        counts = f"{self.distorted} distorted, {self.clean} clean"
        if self.threshold is None or self.recall is None or self.recall_low is None:
            return f"{self.scope}: can't be tuned, {counts}; the model's own threshold stays"
        shown = (
            ""
            if self.recall_low >= wanted
            else f"; {wanted:g} is not shown, which takes {examples_to_show(wanted)} without a miss"
        )
        false = (
            "no clean face"
            if self.false_positives is None
            else f"false positives {self.false_positives:.3f} [{self.false_low:.3f}, {self.false_high:.3f}]"
        )
        return (
            f"{self.scope}: threshold {self.threshold:.4f}, recall {self.recall:.3f} (at least "
            f"{self.recall_low:.3f}), {false}; {counts}{shown}"
        )


def judged_faces(dataset: Path, labels: Path) -> list[JudgedFace]:
    """The candidates of a dataset that people judged, from a table with sha256, distorted (yes or no).

    Raises:
        InputError: no built dataset, a bad table, or no face of the dataset in it.
    """
    human = read_human_labels(labels, attribute=DISTORTED)
    names = ["sha256", "attribute", "demographic", "image"]
    faces = [
        JudgedFace(
            PictureRef(row["sha256"], partial(bytes, row["image"]["bytes"])),
            row["attribute"],
            row["demographic"],
            human[row["sha256"], DISTORTED] == "yes",
        )
        for row in read_config(dataset, "candidates", names)
        if (row["sha256"], DISTORTED) in human and row["image"] is not None
    ]
    if not faces:
        raise InputError(f"{labels} judges no transformed face of {dataset}")
    return faces


def tune(
    model: DistortionModel,
    faces: Sequence[JudgedFace],
    taxonomy: Taxonomy,
    cache_root: Path,
    *,
    scope: Scope = "category",
    recall: float = 0.97,
    show_progress: bool = True,
) -> tuple[DistortionModel, list[Tuned]]:
    """Tune a model's thresholds.

    Args:
        model: trained before.
        faces: judged by people.
        taxonomy: says which category an attribute belongs to.
        cache_root: folder of cached vectors.
        scope: pooled by attribute category, or for each attribute and group.
        recall: share of distorted faces to find, in (0, 1].
        show_progress: a bar on a terminal, a line a minute in a log.

    Returns:
        The model with its thresholds and their table in its card, and that table.

    Raises:
        InputError: the embedder is not the model's.
    """
    scores = _scores(model, faces, cache_root, show_progress=show_progress)
    scopes = [_scope(face.attribute, face.group, taxonomy, scope) for face in faces]
    table: list[Tuned] = []
    thresholds: dict[str, float] = {}
    judged = {face.attribute for face in faces}
    for name, keys in _keys(taxonomy, scope, judged).items():
        here = np.array([item == name for item in scopes])
        truth = np.array([face.distorted for face in faces])[here]
        found = _tuned(name, scores[here], truth.tolist(), recall)
        table.append(found)
        if found.threshold is not None:
            thresholds |= dict.fromkeys(keys, found.threshold)
    card: dict[str, Any] = {
        **model.card,
        "tuned_on_human_labels": {
            "scope": scope,
            "wanted_recall": recall,
            "level": LEVEL,
            "faces": len(faces),
            "table": [vars(item) for item in table],
        },
    }
    return model.model_copy(update={"thresholds": thresholds, "card": card}), table


def _scores(
    model: DistortionModel, faces: Sequence[JudgedFace], cache_root: Path, *, show_progress: bool
) -> FloatArray:
    loaded = embedder_of(model)
    try:
        seen = score_pictures(
            loaded, [face.picture for face in faces], cache_root, show_progress=show_progress
        )
    finally:
        loaded.close()
    width = len(model.coefficients)
    vectors = np.full((len(faces), width), np.nan)
    for row, face in enumerate(faces):
        if seen[face.picture.name].reason is None:
            vectors[row] = seen[face.picture.name].values
    return model.scores(vectors)


def _scope(attribute: str, group: str, taxonomy: Taxonomy, scope: Scope) -> str:
    return taxonomy.attributes[attribute].category if scope == "category" else f"{attribute}/{group}"


def _keys(taxonomy: Taxonomy, scope: Scope, judged: Collection[str]) -> Mapping[str, list[str]]:
    """Every scope of the judged attributes, labelled or not -> the model's thresholds that it decides."""
    keys: dict[str, list[str]] = {}
    for name, attribute in taxonomy.attributes.items():
        if name not in judged:
            continue
        if scope == "category":
            keys.setdefault(attribute.category, []).append(name)
        else:
            keys |= {f"{name}/{group}": [f"{name}/{group}"] for group in taxonomy.groups}
    return keys


def _tuned(scope: str, scores: FloatArray, truth: Sequence[bool], recall: float) -> Tuned:
    found = ~np.isnan(scores)
    positive, negative = scores[found & np.array(truth, bool)], scores[found & ~np.array(truth, bool)]
    counts = len(positive), len(negative), int((~found).sum())
    if not len(positive):
        return Tuned(scope, *counts, None, None, None, None, None, None)
    threshold = threshold_for_recall(positive, [True] * len(positive), recall)
    hits, wrong = int((positive >= threshold).sum()), int((negative >= threshold).sum())
    # The lower end of a two-sided interval at twice the miss rate is the one-sided bound.
    low, _ = clopper_pearson(hits, len(positive), 2 * LEVEL - 1)
    false: tuple[float | None, float | None, float | None] = (None, None, None)
    if len(negative):
        false = (wrong / len(negative), *clopper_pearson(wrong, len(negative), LEVEL))
    return Tuned(scope, *counts, threshold, hits / len(positive), low, *false)


def untunable(table: Sequence[Tuned]) -> str:
    """One line that names what can't be tuned, empty where everything can."""
    names = [item.scope for item in table if item.threshold is None]
    if not names:
        return ""
    return f"{counted(len(names), 'scope')} without a distorted example can't be tuned: {', '.join(names)}"
