"""What a target is: something that answers about pictures.

Three kinds, told apart by their method:

- ``ConceptScorer``: ``score(images)`` gives one number per concept;
- ``Embedder``: ``embed(images)`` gives one vector;
- ``Recorded``: ``lookup(ids)`` gives the scores that were captured earlier, elsewhere.

A target sees pictures only: no attribute, no group, no identity.

A picture without scores is "no_answer", a fault that ``--max-failures`` counts, or "no_face", a result about
the target, which it does not count. A target says which in one of three ways:

- ``score`` or ``embed`` returns ``Scores`` with a reason for each picture;
- ``prepare`` returns None or "no_face" (or "no_answer") in place of its result; ``score`` does not get it;
- ``card = {"nan_means": "no_face"}`` says what a row of NaN means; without it, "no_answer".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL import Image

FloatArray = npt.NDArray[np.float64]
PixelArray = npt.NDArray[np.uint8]
Kind = Literal["concepts", "embedding", "recorded"]

NO_FACE: Final = "no_face"
NO_ANSWER: Final = "no_answer"
NoScores = Literal["no_face", "no_answer"]


@dataclass(frozen=True)
class Scores:
    """Answers with reasons.

    Attributes:
        values: (n, c) floats: one row a picture, one column a concept or vector component. A row without
            an answer is NaN throughout.
        reasons: n entries: None where there is an answer, else why not ("no_face", "no_answer").
        details: n entries, or none at all: the reason in words, empty where there is nothing to say.
    """

    values: FloatArray
    reasons: tuple[str | None, ...]
    details: tuple[str, ...] = ()


def declined(prepared: object) -> NoScores | None:
    """The reason that ``prepare`` gave in place of its result, or None where it gave a result."""
    if prepared is None or (isinstance(prepared, str) and prepared == NO_FACE):
        return NO_FACE
    return NO_ANSWER if isinstance(prepared, str) and prepared == NO_ANSWER else None


@dataclass(frozen=True)
class PictureId:
    """What a captured log may know a picture by.

    Attributes:
        name: the path or file name in the pairs table.
        pixel_hash: SHA-256 of the decoded pixels, or None where the picture itself is not at hand.
    """

    name: str
    pixel_hash: str | None


@runtime_checkable
class ConceptScorer(Protocol):
    """Scores pictures for a fixed list of concepts.

    Optional attributes: ``card`` (TargetCard or a dict of its fields), ``prepare(image)`` (preprocessing
    that may run ahead of ``score``, in several threads at once; ``score`` then gets its results; None means
    that there is no face), ``batch_size`` (int), ``hints`` (reason -> a sentence that helps with it),
    ``in_force`` (a dict of settings that are found out while it is asked; a resumed run gives them back
    before it asks), ``close()``.
    """

    concepts: Sequence[str]

    def score(self, images: Sequence[Image.Image], /) -> FloatArray | Scores:
        """Return (n, len(concepts)) floats for n RGB pictures; a NaN row means what the card says."""


@runtime_checkable
class Embedder(Protocol):
    """Turns each picture into a vector whose cosine tells whether two show the same person."""

    def embed(self, images: Sequence[Image.Image], /) -> FloatArray | Scores:
        """Return (n, d) floats for n RGB pictures; a NaN row means what the card says."""


@runtime_checkable
class Staged(Protocol):
    """What a scorer or embedder on an accelerator may have besides ``score`` or ``embed``.

    Decoding, the way to the accelerator and the model then run at the same time: while one batch is
    computed, the next waits behind it and the one after is staged in another thread.

    Optional attribute: ``frame`` (``targets.frame.Frame``): the resize that ``stage`` or ``start`` would
    do; pictures of many megapixels then arrive resized.
    """

    def stage(self, pixels: Sequence[PixelArray], /) -> Any:
        """Copy (h, w, 3) RGB arrays, at most ``batch_size``, on their way; they are gone afterwards."""

    def start(self, staged: Any, /) -> Callable[[], FloatArray | Scores]:
        """Begin to compute a staged batch and return what waits for the answer."""


@runtime_checkable
class Recorded(Protocol):
    """Answers captured earlier; nothing is computed."""

    concepts: Sequence[str]
    needs_pixels: bool

    def lookup(self, ids: Sequence[PictureId], /) -> Scores:
        """Return the captured scores of n pictures; one that was not captured has reason "no_answer"."""
