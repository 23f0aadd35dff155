"""Attribute labels of the two faces of candidate pairs: what every attribute detector gives the filter.

A detector that looks at one face is a ``FaceLabeller``: ``labels_of(faces)``, face -> attribute -> label.
``EachFace`` asks it about the pairs of a build: sources first and once, transformed faces only where the
source's labels have not settled the pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dataset_builder.schema.verdict import Label
from targets.scoring import PictureRef


@dataclass(frozen=True)
class FaceLabels:
    """What a detector says about one face.

    Attributes:
        labels: attribute -> yes, no or unknown; one that is not there is unknown.
        reasons: attribute -> why it is unknown, where the detector says so.
    """

    labels: Mapping[str, Label]
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FacePair:
    """A candidate pair a detector is asked about; ``attribute`` was applied, ``group`` is its demographic."""

    attribute: str
    group: str
    source: PictureRef
    transformed: PictureRef


@dataclass(frozen=True)
class PairLabels:
    """What a detector says about a pair; ``transformed`` is None where it was not asked."""

    source: FaceLabels
    transformed: FaceLabels | None

    def reasons(self) -> dict[str, str]:
        """ "source glasses" -> why it is unknown, and likewise for the transformed face."""
        sides = {"source": self.source, "transformed": self.transformed}
        return {
            f"{side} {name}": reason
            for side, face in sides.items()
            if face is not None
            for name, reason in face.reasons.items()
        }


# Whether the transformed face of pair number i is worth asking about, given the source's labels.
GoesOn = Callable[[int, FaceLabels], bool]


class FaceLabeller(Protocol):
    """A detector that looks at one face at a time."""

    def labels_of(self, faces: Sequence[PictureRef]) -> Mapping[str, FaceLabels]:
        """Name of the picture -> its labels; equal names are asked about once."""


class PairLabeller(Protocol):
    """A detector at work in a build."""

    def label_pairs(self, pairs: Sequence[FacePair], goes_on: GoesOn) -> list[PairLabels]:
        """One answer a pair, in order; ``goes_on`` may spare it the transformed face."""

    def used(self) -> dict[str, str]:
        """Role -> what was asked (a digest of weights, or a name)."""

    def summary(self) -> list[str]:
        """What the work took, a line a fact; empty where it cost nothing worth saying."""


@dataclass(frozen=True)
class EachFace:
    """Asks a ``FaceLabeller`` about distinct faces: all sources, then the transformed faces that matter."""

    detector: FaceLabeller
    identity: Mapping[str, str]

    def label_pairs(self, pairs: Sequence[FacePair], goes_on: GoesOn) -> list[PairLabels]:
        """One answer a pair, in order."""
        sources = self.detector.labels_of([pair.source for pair in pairs])
        wanted = [goes_on(index, sources[pair.source.name]) for index, pair in enumerate(pairs)]
        faces = [pair.transformed for pair, ask in zip(pairs, wanted, strict=True) if ask]
        transformed = self.detector.labels_of(faces)
        return [
            PairLabels(sources[pair.source.name], transformed[pair.transformed.name] if ask else None)
            for pair, ask in zip(pairs, wanted, strict=True)
        ]

    def used(self) -> dict[str, str]:
        """Role -> what was asked."""
        return dict(self.identity)

    def summary(self) -> list[str]:
        """What the work took, where the detector counts it."""
        count: Callable[[], list[str]] | None = getattr(self.detector, "summary", None)
        return count() if count else []
