"""A generated face, and what makes such faces: the types that sources and editors share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Face:
    """One picture with what is known about it.

    ``picture`` holds encoded bytes, kept as they are until publication. ``labels`` maps each attribute to
    "yes", "no" or "unknown"; ``age`` is in years. ``provenance`` is JSON-able and says how the picture was
    made, well enough to make it again.
    """

    identity: str
    variation: int
    demographic: str
    picture: bytes
    labels: Mapping[str, str]
    age: float
    distorted: bool
    provenance: Mapping[str, object]


class SourceGenerator(Protocol):
    """Makes source faces; iterating twice yields the same faces in the same order."""

    def faces(self) -> Iterator[Face]:
        """All source faces, one demographic after the other."""
        ...


class Editor(Protocol):
    """Applies one attribute to source faces."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes this editor can apply."""
        ...

    def edit(self, faces: Iterable[Face], attribute: str) -> Iterator[Face]:
        """The transformed face of each source face, in the same order."""
        ...
