"""Pictures that show no face, or several: a pair is about one face."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from targets.alignment import FaceFinder
from targets.base.hashing import file_digest

if TYPE_CHECKING:
    from PIL import Image

NO_FACE, SEVERAL_FACES = "no_face", "several_faces"
THRESHOLD = 0.7


class OneFace:
    """Counts the faces of a picture with YuNet, loaded when first needed."""

    @cached_property
    def _finder(self) -> FaceFinder:
        return FaceFinder(THRESHOLD, "counting faces (one_face = true)")

    def settings(self) -> dict[str, Any]:
        """Everything that a fault depends on.

        Raises:
            MissingExtraError: the extra "face" is not installed.
        """
        return {"yunet": file_digest(self._finder.weights), "threshold": THRESHOLD}

    def fault(self, image: Image.Image, *, may_hide: bool = False) -> str:
        """What is wrong with the number of faces, empty where there is one.

        Args:
            image: an RGB picture.
            may_hide: no face is no fault: a mask or sunglasses can hide it from the detector.
        """
        count = self._finder.count(image)
        if count > 1:
            return SEVERAL_FACES
        return "" if count or may_hide else NO_FACE
