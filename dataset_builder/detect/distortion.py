"""The distortion detector: a linear decision rule over any embedder's vectors (paper, section 4.2).

A model is data: coefficients, threshold and a card in JSON, no pickle. A picture in which the embedder finds
no face gets "unknown": a mask or sunglasses can hide a face as well as a distortion can.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from dataset_builder.beside import settings_beside, spec_beside
from dataset_builder.schema.verdict import Label
from harness.stats.vectors import unit_rows
from targets.base.config import Settings, validated
from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.files import read_regular, write_json
from targets.base.strict_json import parse_json

FloatArray = npt.NDArray[np.float64]


class DistortionModel(Settings):
    """A trained detector; a vector x is distorted when ``coefficients . x/|x| + intercept >= threshold``.

    Attributes:
        target: spec of the embedder.
        target_settings: its settings.
        weights_digest: of the embedder it was trained on; another embedder's vectors mean nothing to it.
        reading_digest: of how it read pictures then; None in models that don't know.
        coefficients: (d,) floats.
        intercept, threshold: of the decision.
        thresholds: "attribute/group" or "attribute" -> threshold in its place, tuned on people's labels.
        card: how it was trained and tuned, and how well it does.
    """

    target: str
    target_settings: dict[str, Any] = Field(default_factory=dict)
    weights_digest: str
    reading_digest: str | None = None
    coefficients: tuple[float, ...]
    intercept: float
    threshold: float
    thresholds: dict[str, float] = Field(default_factory=dict)
    card: dict[str, Any] = Field(default_factory=dict)

    def scores(self, vectors: FloatArray) -> FloatArray:
        """Decision values (n,) of (n, d) vectors; NaN where there is no vector."""
        return decision_values(vectors, np.array(self.coefficients), self.intercept)

    def label(self, score: float, attribute: str = "", group: str = "") -> Label:
        """Whether a decision value means distorted, for a face to which an attribute was applied."""
        if np.isnan(score):
            return "unknown"
        threshold = self.thresholds.get(attribute, self.threshold)
        return "yes" if score >= self.thresholds.get(f"{attribute}/{group}", threshold) else "no"

    def save(self, path: Path) -> None:
        """Write the model as JSON."""
        write_json(path, self.model_dump(mode="json"))


def decision_values(vectors: FloatArray, coefficients: FloatArray, intercept: float) -> FloatArray:
    """Signed distance-like values (n,) of (n, d) vectors, scaled to unit length first."""
    values: FloatArray = unit_rows(vectors) @ coefficients + intercept
    return values


def load_distortion_model(path: Path) -> DistortionModel:
    """Read a model; paths in its target's spec start from its folder where something is there.

    Raises:
        InputError: missing file, not JSON, or not a model.
    """
    try:
        data = parse_json(read_regular(path).decode())
    except FileNotFoundError:
        raise InputError(f"no such distortion model: {path}") from None
    except ValueError as error:
        raise InputError(f"{path} must be JSON: {error}") from None
    model = validated(DistortionModel, data, str(path))
    return model.model_copy(
        update={
            "target": spec_beside(model.target, path.parent),
            "target_settings": settings_beside(model.target_settings, path.parent),
        }
    )


def train_svm(
    vectors: FloatArray, distorted: Sequence[bool], *, cost: float = 1.0
) -> tuple[FloatArray, float]:
    """Fit a linear support vector machine on unit vectors, classes weighted alike.

    Args:
        vectors: (n, d) embeddings without NaN rows.
        distorted: n truths, both kinds present.
        cost: the penalty C of scikit-learn's LinearSVC.

    Returns:
        Coefficients (d,) and intercept.

    Raises:
        MissingExtraError: scikit-learn is not installed.
        InputError: only one kind of picture.
    """
    if len(set(distorted)) < 2:
        raise InputError("a distortion detector needs clean and distorted pictures to train on")
    svm = require("sklearn.svm", "detector", "training a distortion detector")
    model = svm.LinearSVC(C=cost, class_weight="balanced", random_state=0, max_iter=20_000)
    model.fit(unit_rows(vectors), np.asarray(distorted, dtype=int))
    return np.asarray(model.coef_[0], dtype=np.float64), float(model.intercept_[0])


def threshold_for_recall(scores: FloatArray, distorted: Sequence[bool], recall: float) -> float:
    """The highest threshold that finds at least ``recall`` of the distorted pictures.

    It lies half-way between the last distorted score it must find and the next score below: no picture at
    hand is decided otherwise, and a new one that scores a little lower is still found.

    Args:
        scores: (n,) decision values, NaN where there is none.
        distorted: n truths.
        recall: in (0, 1].

    Raises:
        InputError: no distorted picture with a score, so that nothing can be tuned.
    """
    known = scores[~np.isnan(scores)]
    positive = np.sort(scores[np.asarray(distorted) & ~np.isnan(scores)])[::-1]
    if not len(positive):
        raise InputError("a threshold can't be tuned without a distorted picture")
    last = positive[int(np.ceil(recall * len(positive) - 1e-9)) - 1]
    below = known[known < last]
    return float((last + below.max()) / 2) if len(below) else float(last)
