"""Training the distortion detector on a built dataset whose generator knows what is distorted.

The identities are split into thirds: one trains the support vector machine, one tunes the threshold, one
says how well the tuned detector does. Nobody shown in one part is shown in another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dataset_builder.detect.distortion import (
    DistortionModel,
    FloatArray,
    decision_values,
    threshold_for_recall,
    train_svm,
)
from dataset_builder.read import read_config
from harness.stats.proportions import clopper_pearson
from targets.base.errors import InputError
from targets.base.extras import require
from targets.catalogue import load_embedder
from targets.scoring import PictureRef, score_pictures

BoolArray = npt.NDArray[np.bool_]
PARTS = ("train", "tune", "test")
LEVEL = 0.95


@dataclass(frozen=True)
class LabelledFace:
    """A transformed face with the truth about it."""

    picture: PictureRef
    identity: str
    group: str
    distorted: bool


def load_labelled(dataset: Path) -> list[LabelledFace]:
    """All faces of a built dataset whose generator knows whether they are distorted.

    Raises:
        InputError: no such dataset, or one without such knowledge.
    """
    faces: list[LabelledFace] = []
    for name in ("sources", "candidates"):
        data = read_config(str(dataset), name) if dataset.is_dir() else None
        if data is None:
            raise InputError(f"{dataset} is no built dataset with a config '{name}'")
        columns = (data.columns[column] for column in ("identity", "demographic", "distorted", "fault"))
        pictures = data.refs("image", "sha256")
        faces += [
            LabelledFace(picture, identity, group, distorted == "yes")
            for picture, identity, group, distorted, fault in zip(pictures, *columns, strict=True)
            if distorted in {"yes", "no"} and not fault
        ]
    if not faces:
        raise InputError(f"{dataset}: no face with a known distortion; rendered heads have one")
    return faces


def train(
    faces: Sequence[LabelledFace],
    target: str,
    settings: Mapping[str, Any],
    cache_root: Path,
    *,
    recall: float = 0.97,
    cost: float = 1.0,
    seed: int = 0,
    show_progress: bool = True,
) -> DistortionModel:
    """Train, tune and test a detector.

    Args:
        faces: with the truth about each.
        target: spec of an embedder.
        settings: its settings.
        cache_root: folder of cached vectors.
        recall: share of distorted faces the tuned detector must find, in (0, 1].
        cost: penalty C of the support vector machine.
        seed: of the split of identities.
        show_progress: a bar on a terminal, a line a minute in a log.

    Raises:
        InputError: the target is no embedder with known weights, or a part lacks a kind of picture.
    """
    for module in ("sklearn.svm", "sklearn.metrics"):
        require(module, "detector", "training a distortion detector")
    loaded = load_embedder(target, settings, "the target of a distortion detector")
    if loaded.card.weights_digest is None:
        raise InputError(f"a distortion detector needs an embedder with known weights; '{target}' gives none")
    seen = score_pictures(loaded, [face.picture for face in faces], cache_root, show_progress=show_progress)
    loaded.close()
    width = max(len(item.values) for item in seen.values())
    vectors = np.full((len(faces), width), np.nan)
    for row, face in enumerate(faces):
        item = seen[face.picture.name]
        if item.reason is None:
            vectors[row] = item.values
    truth = np.array([face.distorted for face in faces])
    parts = split_by_identity(faces, seed)
    found = ~np.isnan(vectors[:, 0])
    fit = parts["train"] & found
    coefficients, intercept = train_svm(vectors[fit], truth[fit].tolist(), cost=cost)
    scores = decision_values(vectors, coefficients, intercept)
    threshold = threshold_for_recall(scores[parts["tune"]], truth[parts["tune"]].tolist(), recall)
    card = {
        "trained_on": {name: _counts(truth, parts[name], found) for name in PARTS},
        "cost": cost,
        "seed": seed,
        "wanted_recall": recall,
        "level": LEVEL,
        "held_out": evaluate(scores, truth, parts["test"], threshold, [face.group for face in faces]),
    }
    return DistortionModel(
        target=target,
        # The one that was told to give vectors must be told so again.
        target_settings={**settings, **_output(loaded.card.settings)},
        weights_digest=loaded.card.weights_digest,
        reading_digest=loaded.card.reading_digest,
        coefficients=tuple(map(float, coefficients)),
        intercept=intercept,
        threshold=threshold,
        card=card,
    )


def _output(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"output": settings["output"]} if "output" in settings else {}


def split_by_identity(faces: Sequence[LabelledFace], seed: int) -> dict[str, BoolArray]:
    """Sort the identities of every group into three parts of like size."""
    rng = np.random.default_rng(seed)
    part_of: dict[tuple[str, str], int] = {}
    for group in dict.fromkeys(face.group for face in faces):
        identities = sorted({face.identity for face in faces if face.group == group})
        for position, index in enumerate(rng.permutation(len(identities))):
            part_of[group, identities[index]] = position % len(PARTS)
    codes = np.array([part_of[face.group, face.identity] for face in faces])
    return {name: codes == code for code, name in enumerate(PARTS)}


def _counts(truth: BoolArray, part: BoolArray, found: BoolArray) -> dict[str, int]:
    return {
        "clean": int((part & ~truth).sum()),
        "distorted": int((part & truth).sum()),
        "without_a_face": int((part & ~found).sum()),
    }


def evaluate(
    scores: FloatArray, truth: BoolArray, part: BoolArray, threshold: float, groups: Sequence[str]
) -> dict[str, Any]:
    """Recall and false-positive rate, in all and per group, with exact (Clopper-Pearson) intervals, and ROC.

    Faces without a vector count as neither: the detector calls them unknown. The ROC has one point for each
    threshold at which it turns; its area is null where a kind of picture is missing.
    """
    usable = part & ~np.isnan(scores)
    positive = scores >= threshold
    names = np.array(groups)
    result = {"recall": _rate(positive[usable & truth]), "false_positives": _rate(positive[usable & ~truth])}
    for name, part_of_truth in (("recall_by_group", truth), ("false_positives_by_group", ~truth)):
        result[name] = {
            group: _rate(positive[usable & part_of_truth & (names == group)])
            for group in dict.fromkeys(groups)
        }
    return {**result, **_roc(scores[usable], truth[usable])}


def _roc(scores: FloatArray, truth: BoolArray) -> dict[str, Any]:
    if truth.all() or not truth.any():
        return {"auc": None, "roc": []}
    metrics = require("sklearn.metrics", "detector", "training a distortion detector")
    false, true, thresholds = metrics.roc_curve(truth, scores)
    # The first threshold is infinite: nothing is positive.
    points = zip(thresholds[1:], true[1:], false[1:], strict=True)
    return {
        "auc": float(metrics.auc(false, true)),
        "roc": [
            {"threshold": float(at), "recall": float(hits), "false_positives": float(alarms)}
            for at, hits, alarms in points
        ],
    }


def _rate(hits: BoolArray) -> dict[str, Any]:
    n, k = len(hits), int(hits.sum())
    if not n:
        return {"n": 0, "hits": 0, "rate": None, "low": None, "high": None}
    low, high = clopper_pearson(k, n, LEVEL)
    return {"n": n, "hits": k, "rate": k / n, "low": low, "high": high}


def in_words(held_out: Mapping[str, Any]) -> list[str]:
    """What ``evaluate`` found, a line a rate."""
    lines = []
    for name, title in (("recall", "recall"), ("false_positives", "false-positive rate")):
        rates = {"": held_out[name], **held_out[f"{name}_by_group"]}
        for group, rate in rates.items():
            words = "no picture"
            if rate["n"]:
                interval = f"[{rate['low']:.3f}, {rate['high']:.3f}]"
                words = f"{rate['rate']:.3f} {interval}, {rate['hits']} of {rate['n']}"
            lines.append(f"{title}{f', {group}' if group else ''}: {words}")
    auc = held_out["auc"]
    return [*lines, f"area under the ROC: {'undefined' if auc is None else f'{auc:.3f}'}"]
