"""A generated face, and what makes such faces: the types that source generators and editors share."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from dataset_builder.schema.verdict import Label

RENDERED_HEADS = "rendered-heads"
"""Name, without its version, of the generator of 3D heads in a provenance."""


@dataclass(frozen=True)
class Face:
    """One picture with what is known about it.

    Attributes:
        identity: who is shown, a label within the demographic.
        variation: which picture of that identity, from 0.
        demographic: code of the group the face was prompted or rendered as.
        picture: encoded bytes, kept as they are until publication; empty where none could be made.
        labels: attribute -> "yes", "no" or "unknown", as far as the generator itself knows.
        age: in years, None where the generator does not know.
        distorted: likewise whether the face is distorted, "unknown" for a generator that can't know.
        provenance: JSON-able; how the picture was made, well enough to make it again.
        fault: why there is no usable picture, empty where there is one.
    """

    identity: str
    variation: int
    demographic: str
    picture: bytes
    labels: Mapping[str, Label]
    age: float | None
    distorted: Label
    provenance: Mapping[str, Any]
    fault: str = ""

    @property
    def sha256(self) -> str:
        """Digest of the encoded bytes, 64 hexadecimal digits."""
        return hashlib.sha256(self.picture).hexdigest()


def label_in_dataset(group: str, identity: str) -> str:
    """An identity's label with its group before it, unless it begins with that already."""
    return identity if identity.startswith(f"{group}-") else f"{group}-{identity}"


def is_rendered(provenance: str) -> bool:
    """Whether JSON of a picture's provenance, or of what it was made from, names the renderer of heads."""
    return re.search(rf'"generator":\s*"{RENDERED_HEADS}/', provenance) is not None


@dataclass(frozen=True)
class SourceRequest:
    """A source face that is to be made; ``seed`` and ``prompt`` mean what the generator says.

    ``edited``: whether attributes are applied to it; a clean face for a detector's training has none.
    """

    identity: str
    variation: int
    demographic: str
    seed: int
    prompt: str = ""
    edited: bool = True

    def inputs(self) -> dict[str, Any]:
        """What its bytes depend on, JSON-able; that it is edited goes without saying."""
        return {name: value for name, value in asdict(self).items() if name != "edited" or not value}


@dataclass(frozen=True)
class EditRequest:
    """A source face and the attribute to apply to it."""

    face: Face
    attribute: str


class SourceGenerator(Protocol):
    """Makes source faces; the same request gives the same bytes on the same machine."""

    seconds_per_picture: float
    device: str

    def check(self) -> None:
        """Find out whether what it needs is there, without making anything; raises InputError if not."""

    def settings(self) -> Mapping[str, Any]:
        """Everything besides the request that the bytes depend on, JSON-able."""

    def requests(self) -> Sequence[SourceRequest]:
        """All source faces to make, group by group, identity by identity."""

    def make(self, requests: Sequence[SourceRequest]) -> Sequence[Face]:
        """Make them; one face a request, in order. An identity's variations are asked for together."""

    def detectors(self) -> Mapping[str, str]:
        """Models that chose among its pictures: role -> digest of the weights, or the spec."""


class Editor(Protocol):
    """Applies attributes to source faces."""

    seconds_per_picture: float
    device: str

    def check(self) -> None:
        """Find out whether what it needs is there, without making anything; raises InputError if not."""

    def settings(self) -> Mapping[str, Any]:
        """Everything besides the request that the bytes depend on, JSON-able."""

    def attributes(self) -> Sequence[str]:
        """The attributes it can apply."""

    def edit(self, requests: Sequence[EditRequest]) -> Sequence[Face]:
        """Apply them; one transformed face a request, in order."""
