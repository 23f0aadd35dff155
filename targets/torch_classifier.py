"""A torch module, its preprocessing and its labels as a target: what three adapters share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from PIL import Image

from targets.base.config import Settings
from targets.base.extras import require
from targets.card import OUTPUT_RANGES, TargetCard
from targets.protocol import Scores
from targets.torch_tools import (
    OVERFLOW_HINT,
    Precision,
    answers,
    chosen_columns,
    device_of,
    distinct_names,
    exact,
    precision_of,
    state_digest,
    versions_of,
)

Output = Literal["softmax", "sigmoid", "logits", "embedding"]


class ClassifierSettings(Settings):
    """Settings that every classifier on torch has.

    Attributes:
        concepts: labels to keep, in this order; all of them where none are given.
        output: "softmax" over all labels of the model, "sigmoid" of each, "logits", or "embedding".
        device: "auto", "cpu", "cuda" or "cuda:1".
        precision: "auto" is float16 on a GPU and float32 elsewhere.
        batch_size: pictures per call.
    """

    concepts: tuple[str, ...] = ()
    output: Output = "softmax"
    device: str = "auto"
    precision: Precision = "auto"
    batch_size: int = 32


@dataclass(frozen=True)
class Parts:
    """What a classifier is made of.

    Attributes:
        name: for the card.
        spec: for messages.
        model: (n, 3, h, w) float tensor to (n, c) logits, or to vectors for the output "embedding".
        transform: an RGB picture to a (3, h, w) float32 tensor.
        preprocessing: what ``transform`` does, for the card; JSON values only.
        labels: c label names, in the order of the logits.
        packages: what computes the scores.
        source, licence: of the weights.
        files: name -> SHA-256 of what lies in the checkpoint's folder, where it has one.
    """

    name: str
    spec: str
    model: Any
    transform: Callable[[Image.Image], Any]
    preprocessing: Mapping[str, Any]
    labels: Sequence[str]
    packages: tuple[str, ...]
    source: str
    licence: str = "unknown"
    files: Mapping[str, str] = field(default_factory=dict)


class _Torch:
    hints = OVERFLOW_HINT

    def __init__(self, parts: Parts, settings: ClassifierSettings) -> None:
        self._torch = require("torch", "clip", f"the target '{parts.spec}'")
        self._device = device_of(settings.device)
        precision = precision_of(settings.precision, self._device)
        self._dtype = getattr(self._torch, precision)
        self.batch_size = settings.batch_size
        self.prepare = parts.transform
        in_force = {
            "device": self._device,
            "precision": precision,
            "preprocessing": dict(parts.preprocessing),
        }
        self.card = TargetCard(
            name=parts.name,
            settings={**settings.model_dump(mode="json", exclude_none=True), **in_force},
            weights={"state": state_digest(parts.model), **parts.files},
            versions=versions_of("torch", "pillow", *parts.packages),
            licence=parts.licence,
            score_range=OUTPUT_RANGES.get(settings.output),
            source=parts.source,
        )
        model = parts.model.eval().to(self._device, self._dtype)
        self._compute = exact(model, self._device, self._dtype)

    def _run(self, images: Sequence[Any]) -> Any:
        """(n, c) float32 on the processor, for pictures or what ``prepare`` made of them."""
        is_tensor = self._torch.is_tensor
        tensors = [image if is_tensor(image) else self.prepare(image) for image in images]
        with self._torch.inference_mode():
            return self._compute(self._torch.stack(tensors).to(self._device, self._dtype)).float()

    def close(self) -> None:
        """Let the model go."""
        self.__dict__.clear()


class TorchClassifier(_Torch):
    """Scores labels."""

    def __init__(self, parts: Parts, settings: ClassifierSettings) -> None:
        labels = distinct_names(parts.labels)
        self._columns = chosen_columns(settings.concepts, labels, parts.spec)
        self.concepts = tuple(labels[column] for column in self._columns)
        self._output = settings.output
        super().__init__(parts, settings)

    def score(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, c) probabilities or logits; a NaN row where the precision overflowed."""
        if not images:
            return Scores(np.zeros((0, len(self.concepts))), ())
        logits = self._run(images)
        if self._output == "softmax":
            logits = logits.softmax(dim=-1)
        elif self._output == "sigmoid":
            logits = logits.sigmoid()
        return answers(logits[:, self._columns])


class TorchEmbedder(_Torch):
    """Embeds pictures."""

    def embed(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, d) vectors; a NaN row where the precision overflowed."""
        return answers(self._run(images)) if images else Scores(np.zeros((0, 0)), ())


def made(parts: Parts, settings: ClassifierSettings) -> TorchClassifier | TorchEmbedder:
    """The target for these parts.

    Raises:
        InputError: a concept that is no label, a device that isn't there.
    """
    return (TorchEmbedder if settings.output == "embedding" else TorchClassifier)(parts, settings)
