"""Detectors at work: pictures and what is known of them -> evidence for the filter.

Cheap first: a picture is opened before a model is asked, and only what an earlier rule has not settled costs
a further call. Every model is asked about a distinct picture once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dataset_builder.beside import settings_beside, spec_beside
from dataset_builder.detect.distortion import DistortionModel
from dataset_builder.detect.labels import FaceLabels, FacePair, PairLabeller
from dataset_builder.detect.order import RuleOrder
from dataset_builder.detect.settings import AgeDetector
from dataset_builder.schema.verdict import Evidence, Label
from targets.base.errors import InputError
from targets.base.text import shortlist
from targets.catalogue import LoadedTarget, load_target
from targets.images import Picture
from targets.opening import Fault, decode_ahead
from targets.scoring import PictureRef, score_pictures


@dataclass(frozen=True)
class Candidate:
    """A candidate pair as the detectors see it: two pictures and the generator's own knowledge."""

    attribute: str
    source: PictureRef
    transformed: PictureRef
    source_labels: dict[str, Label]
    transformed_labels: dict[str, Label]
    source_age: float | None
    transformed_age: float | None
    distorted: Label
    fault: str = ""
    group: str = ""


@dataclass(frozen=True)
class Opened:
    """What opening a picture shows: its pixel hash, or why it can't be used."""

    pixel_hash: str | None
    fault: str


@dataclass(frozen=True)
class Detectors:
    """Which detectors decide what; None leaves the decision to the generator's own knowledge.

    Attributes:
        distortion: a trained model.
        age: loads a target with a concept "age".
        attributes: labels the faces; needs ``order``.
        order: which rules may spare it a question.
    """

    distortion: DistortionModel | None = None
    age: Callable[[], LoadedTarget] | None = None
    attributes: PairLabeller | None = None
    order: RuleOrder | None = None

    def targets_used(self) -> dict[str, str]:
        """What the detectors ask: role -> digest of the weights or the spec."""
        used = {}
        if self.distortion:
            used["distortion"] = self.distortion.weights_digest
        if self.age:
            loaded = self.age()
            loaded.close()
            used["age"] = loaded.card.weights_digest or loaded.card.spec
        if self.attributes:
            used |= self.attributes.used()
        return used


def gather(
    candidates: Sequence[Candidate], detectors: Detectors, cache_root: Path, *, show_progress: bool = True
) -> tuple[list[Evidence], list[float | None]]:
    """Collect the evidence about every candidate.

    Args:
        candidates: n pairs.
        detectors: what decides.
        cache_root: folder of cached scores.
        show_progress: a bar on a terminal, a line a minute in a log.

    Returns:
        n pieces of evidence, and n distortion scores (None where no model was asked or no face was found).
    """
    opened = _open_all([ref for item in candidates for ref in (item.source, item.transformed)])
    usable = [_fault(item, opened) == "" for item in candidates]
    asked = [item for item, ok in zip(candidates, usable, strict=True) if ok]
    scores = _distortion_scores(asked, detectors.distortion, cache_root, show_progress=show_progress)
    ages = _ages(asked, detectors.age, cache_root, show_progress=show_progress)
    evidence = []
    for item in candidates:
        distorted = item.distorted
        if detectors.distortion:
            score = scores.get(item.transformed.name, float("nan"))
            distorted = detectors.distortion.label(score, item.attribute, item.group)
        before, after = opened[item.source.name], opened[item.transformed.name]
        evidence.append(
            Evidence(
                attribute=item.attribute,
                source_labels=item.source_labels,
                transformed_labels=item.transformed_labels,
                source_age=ages.get(item.source.name) if detectors.age else item.source_age,
                transformed_age=ages.get(item.transformed.name) if detectors.age else item.transformed_age,
                distorted=distorted,
                unreadable=_fault(item, opened),
                identical=before.pixel_hash is not None and before.pixel_hash == after.pixel_hash,
            )
        )
    if detectors.attributes is not None and detectors.order is not None:
        evidence = _labelled(candidates, evidence, detectors.attributes, detectors.order)
    return evidence, [_number(scores.get(item.transformed.name)) for item in candidates]


def _labelled(
    candidates: Sequence[Candidate], evidence: Sequence[Evidence], detector: PairLabeller, order: RuleOrder
) -> list[Evidence]:
    """The evidence with the detector's labels in place of the generator's, where a question was needed."""
    bare = [
        replace(item, source_labels={}, transformed_labels={}, audited=order.drawn(pair.transformed.name))
        for item, pair in zip(evidence, candidates, strict=True)
    ]
    asked = [index for index, item in enumerate(bare) if order.needs_labels(item)]
    pairs = [
        FacePair(item.attribute, item.group, item.source, item.transformed)
        for item in (candidates[index] for index in asked)
    ]

    def goes_on(number: int, source: FaceLabels) -> bool:
        return order.goes_on(replace(bare[asked[number]], source_labels=source.labels))

    found = dict(zip(asked, detector.label_pairs(pairs, goes_on), strict=True))
    labelled = []
    for index, item in enumerate(bare):
        labels = found.get(index)
        if labels is None:
            labelled.append(replace(item, complete=False))
            continue
        labelled.append(
            replace(
                item,
                source_labels=labels.source.labels,
                transformed_labels=labels.transformed.labels if labels.transformed else {},
                complete=labels.transformed is not None,
                label_reasons=labels.reasons(),
            )
        )
    return labelled


def _number(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else value


def _fault(item: Candidate, opened: dict[str, Opened]) -> str:
    return item.fault or opened[item.source.name].fault or opened[item.transformed.name].fault


def _open_all(refs: Sequence[PictureRef]) -> dict[str, Opened]:
    distinct = {ref.name: replace(ref, name=ref.name[:16]) for ref in refs}
    return dict(zip(distinct, decode_ahead(_opened, distinct.values()), strict=True))


def _opened(_: str, picture: Picture | Fault) -> Opened:
    if not isinstance(picture, Picture):
        return Opened(None, picture[1])
    return Opened(picture.pixel_hash, "every pixel has the same colour" if picture.constant else "")


def _distortion_scores(
    candidates: Sequence[Candidate], model: DistortionModel | None, cache_root: Path, *, show_progress: bool
) -> dict[str, float]:
    if model is None:
        return {}
    loaded = embedder_of(model)
    refs = [item.transformed for item in candidates]
    try:
        seen = score_pictures(loaded, refs, cache_root, show_progress=show_progress)
    finally:
        loaded.close()
    width = len(model.coefficients)
    vectors = [item.values if item.reason is None else np.full(width, np.nan) for item in seen.values()]
    values = model.scores(np.array(vectors).reshape(-1, width))
    return dict(zip(seen, map(float, values), strict=True))


def embedder_of(model: DistortionModel) -> LoadedTarget:
    """Load the embedder a distortion model was trained on.

    Raises:
        InputError: the embedder's weights, or how it reads pictures, are not those of the model.
    """
    loaded = load_target(model.target, model.target_settings)
    if loaded.card.weights_digest != model.weights_digest:
        raise InputError(
            f"the distortion model was trained on {model.target} with weights {model.weights_digest[:16]}, "
            f"installed are {(loaded.card.weights_digest or 'unknown')[:16]}; train it again"
        )
    if model.reading_digest not in (None, loaded.card.reading_digest):
        raise InputError(
            f"the distortion model was trained on {model.target} when it read pictures in another way "
            "(preprocessing or settings have changed); train it again"
        )
    return loaded


def age_loader(
    detector: AgeDetector | None, folder: Path, *, check: bool = False
) -> Callable[[], LoadedTarget] | None:
    """What loads the age detector; None where the generator's own knowledge decides.

    Args:
        detector: its spec and settings.
        folder: that paths in them start from, where something is there.
        check: load it once, and let it go.

    Raises:
        InputError: when it is loaded: it can't be, or it has no concept "age".
    """
    if detector is None:
        return None

    def load() -> LoadedTarget:
        spec = spec_beside(detector.target, folder)
        loaded = load_target(spec, settings_beside(detector.settings, folder))
        if "age" not in loaded.card.concepts:
            loaded.close()
            has = shortlist(loaded.card.concepts) or f"none ({loaded.card.kind})"
            raise InputError(
                f"detect.age: target '{detector.target}' must have a concept 'age', it has {has}; some "
                "targets need a setting, as insightface does: settings = { output = 'attributes' }"
            )
        return replace(loaded, card=loaded.card.model_copy(update={"spec": detector.target}))

    if check:
        load().close()
    return load


def _ages(
    candidates: Sequence[Candidate],
    age: Callable[[], LoadedTarget] | None,
    cache_root: Path,
    *,
    show_progress: bool,
) -> dict[str, float]:
    if age is None:
        return {}
    loaded = age()
    column = loaded.card.concepts.index("age")
    refs = [ref for item in candidates for ref in (item.source, item.transformed)]
    try:
        seen = score_pictures(loaded, refs, cache_root, show_progress=show_progress)
    finally:
        loaded.close()
    return {name: float(item.values[column]) for name, item in seen.items() if item.reason is None}
