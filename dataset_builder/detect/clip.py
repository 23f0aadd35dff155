"""Attribute labels as a decision rule over any target's concept scores, such as zero-shot CLIP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dataset_builder.detect.labels import FaceLabels
from dataset_builder.detect.settings import Clip, ClipConcepts
from dataset_builder.schema.verdict import Label
from targets.base.errors import InputError
from targets.base.text import nearest
from targets.catalogue import load_target
from targets.protocol import FloatArray
from targets.scoring import PictureRef, Seen, score_pictures


class ConceptDetector:
    """An attribute is there where its positive concepts score enough above its negative ones."""

    def __init__(self, settings: Clip, cache_root: Path, *, show_progress: bool = True) -> None:
        """Load the target to see that its concepts are there; it is loaded again when it is asked.

        Raises:
            InputError: the target can't be loaded, or lacks a concept.
        """
        self._settings, self._cache_root, self._show_progress = settings, cache_root, show_progress
        loaded = load_target(settings.target, settings.settings)
        loaded.close()
        self._columns = {
            name: tuple(_columns(part, loaded.card.concepts, settings.target) for part in _parts(rule))
            for name, rule in settings.concepts.items()
        }
        self.digest = loaded.card.weights_digest or settings.target

    def labels_of(self, faces: Sequence[PictureRef]) -> dict[str, FaceLabels]:
        """Name of the picture -> its labels; attributes without concepts are unknown."""
        loaded = load_target(self._settings.target, self._settings.settings)
        try:
            seen = score_pictures(loaded, faces, self._cache_root, show_progress=self._show_progress)
        finally:
            loaded.close()
        return {name: self._labels(item) for name, item in seen.items()}

    def _labels(self, item: Seen) -> FaceLabels:
        if item.reason is not None:
            names = list(self._columns)
            return FaceLabels(dict.fromkeys(names, "unknown"), dict.fromkeys(names, item.reason))
        labels = {name: self._label(name, item.values) for name in self._columns}
        reasons = {name: "near_threshold" for name, label in labels.items() if label == "unknown"}
        return FaceLabels(labels, reasons)

    def _label(self, name: str, values: FloatArray) -> Label:
        rule = self._settings.concepts[name]
        positive, negative = self._columns[name]
        difference = float(np.mean(values[positive]))
        if len(negative):
            difference -= float(np.mean(values[negative]))
        return decided(difference, rule)


def decided(difference: float, rule: ClipConcepts) -> Label:
    """Yes, no or unknown for a difference of scores; NaN is unknown."""
    if np.isnan(difference) or abs(difference - rule.threshold) < rule.margin:
        return "unknown"
    return "yes" if difference >= rule.threshold else "no"


def _parts(rule: ClipConcepts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return rule.positive, rule.negative


def _columns(names: Sequence[str], concepts: Sequence[str], target: str) -> list[int]:
    places: Mapping[str, int] = {name: place for place, name in enumerate(concepts)}
    for name in names:
        if name not in places:
            raise InputError(f"target '{target}' has no concept '{name}'{nearest(name, concepts)}")
    return [places[name] for name in names]
