"""The target card: what was run, pinned tightly enough to run it again."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from targets.base.config import Settings
from targets.base.hashing import settings_digest
from targets.protocol import Kind, NoScores

ScoreRange = tuple[float, float]
OUTPUT_RANGES: dict[str, ScoreRange] = {"softmax": (0.0, 1.0), "sigmoid": (0.0, 1.0), "cosine": (-1.0, 1.0)}
"""The range of what a model's head gives; logits have none."""

_WHERE = {"device", "precision", "batch_size", "compile", "providers"}


class TargetCard(Settings):
    """What a record says about a target.

    Attributes:
        name: a person's name for the model.
        spec: what was given on the command line.
        kind: which protocol it answers.
        concepts: the concepts of a scorer, in order; empty for an embedder.
        settings: every setting in force.
        weights: file name -> SHA-256 of all weights; empty where they are unknown (a file, a server).
        code: SHA-256 of the code that was loaded from a file, or None.
        versions: package -> version of what computes the scores.
        licence: of the weights.
        score_range: lowest and highest value that a score can take: one pair for all concepts, or concept ->
            pair. The gate needs it: it says how much one identity can lose.
        detection: how the face is found and which of several is taken, in words.
        source: where the weights come from.
        nan_means: the reason of a picture whose row is NaN and that was given no reason.
    """

    name: str
    spec: str = ""
    kind: Kind = "concepts"
    concepts: tuple[str, ...] = ()
    settings: dict[str, Any] = Field(default_factory=dict)
    weights: dict[str, str] = Field(default_factory=dict)
    code: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    licence: str = "unknown"
    score_range: ScoreRange | dict[str, ScoreRange] | None = None
    detection: str = "none: the whole picture is given to the model"
    source: str = "unknown"
    nan_means: NoScores = "no_answer"

    @model_validator(mode="after")
    def _ranges_rise(self) -> TargetCard:
        ranges = self.score_range.values() if isinstance(self.score_range, dict) else [self.score_range]
        for item in ranges:
            if item is not None and not item[0] < item[1]:
                raise ValueError(f"'score_range' must be the lowest and the highest score, got {list(item)}")
        return self

    def range_of(self, concept: str) -> ScoreRange | None:
        """The range of a concept's scores, or None where the card does not say it."""
        if isinstance(self.score_range, dict):
            return self.score_range.get(concept)
        return self.score_range

    @property
    def pinned(self) -> bool:
        """Whether the weights are known by digest, so that a score may be reused in another run."""
        return bool(self.weights)

    @property
    def reading_digest(self) -> str:
        """One digest over the settings that say how a picture is read; not where or how fast."""
        return settings_digest({name: value for name, value in self.settings.items() if name not in _WHERE})

    @property
    def weights_digest(self) -> str | None:
        """One digest over all weights, or None where they are unknown."""
        return settings_digest(self.weights) if self.weights else None
