"""``insightface:PACK``: a model pack of insightface, as an embedder or for age and sex.

PACK is a folder of ONNX files, which needs no network, or a name (``buffalo_l``), which insightface
downloads. All its packs are for non-commercial research only.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from pydantic import Field

from targets.base.config import Settings, validated
from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.hashing import folder_digests
from targets.card import TargetCard
from targets.onnx_files import known_providers, providers_in_force
from targets.protocol import Scores
from targets.several_faces import FacesRule, hints, in_words, one_of
from targets.torch_tools import loading, versions_of

PURPOSE = "the target 'insightface'"
HOW = (
    "download and unpack the pack on a machine with a network "
    "(https://github.com/deepinsight/insightface/releases) and pass its folder: insightface:FOLDER"
)


class InsightFaceSettings(Settings):
    """Settings of the target.

    Attributes:
        output: "embedding" of the recogniser, or "attributes": age in years and male as 0 or 1.
        detection_size: side in pixels that pictures are scaled to for detection, a multiple of 32.
        detection_threshold: lowest detection score of a face, in (0, 1).
        faces: where there are several: the one with the "largest" box, "error" or "no_answer".
        providers: of onnxruntime, first choice first.
    """

    output: Literal["embedding", "attributes"] = "embedding"
    detection_size: int = Field(default=640, ge=64, multiple_of=32)
    detection_threshold: float = Field(default=0.5, gt=0, lt=1)
    faces: FacesRule = "largest"
    providers: tuple[str, ...] = Field(default=("CPUExecutionProvider",), min_length=1)


class _InsightFace:
    batch_size = 16

    def __init__(self, pack: str, settings: InsightFaceSettings, module: str) -> None:
        self._app = _analysis(pack, settings, module)
        self._rule, self.hints = settings.faces, hints(settings.faces)
        folder = Path(pack) if Path(pack).is_dir() else Path(self._app.model_dir)
        sessions = [part.session for part in self._app.models.values()]
        providers = providers_in_force(sessions, settings.providers, f"insightface:{pack}")
        self.card = TargetCard(
            name=f"insightface {folder.name}",
            settings={**settings.model_dump(mode="json"), "providers": providers},
            # External data and whatever else the pack brings, not only its .onnx files.
            weights=folder_digests(folder, "**/*"),
            versions=versions_of("insightface", "onnxruntime", "numpy"),
            licence="insightface model packs: non-commercial research only",
            detection=in_words("the pack's detector", settings.faces),
            source=pack if pack == folder.name else folder.name,
        )

    def _faces(self, images: Sequence[Image.Image]) -> list[Any]:
        """The face that is meant in each picture, or the reason why there is none."""
        found: list[Any] = []
        for image in images:
            # insightface was written for OpenCV's channel order.
            bgr = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
            with warnings.catch_warnings():
                # Its alignment calls what scikit-image has renamed.
                warnings.simplefilter("ignore", FutureWarning)
                faces = self._app.get(bgr)
            found.append(one_of(faces, _area, self._rule))
        return found

    def close(self) -> None:
        """Let the sessions go."""
        self.__dict__.clear()


class InsightFaceEmbedder(_InsightFace):
    """Embeds one face; a picture without one has reason "no_face"."""

    def embed(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, d) vectors of the pack's recogniser."""
        faces = self._faces(images)
        width = int(self._app.models["recognition"].output_shape[-1])
        return _scores(faces, lambda face: face.embedding, width)


class InsightFaceAttributes(_InsightFace):
    """Scores ``age`` (years) and ``male`` (0 or 1) of one face."""

    concepts = ("age", "male")

    def score(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, 2)."""
        return _scores(self._faces(images), lambda face: (face.age, face.gender), 2)


def _area(face: Any) -> float:
    left, top, right, bottom = face.bbox
    return float((right - left) * (bottom - top))


def _scores(faces: Sequence[Any], row: Callable[[Any], Any], width: int) -> Scores:
    values = np.full((len(faces), width), np.nan)
    for index, face in enumerate(faces):
        if not isinstance(face, str):
            values[index] = row(face)
    return Scores(values, tuple(face if isinstance(face, str) else None for face in faces))


def _analysis(pack: str, settings: InsightFaceSettings, module: str) -> Any:
    # insightface prints what it loads, and scikit-image's import may warn.
    with (
        loading(f"insightface:{pack}", HOW),
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        app_module = require("insightface.app", "insightface", PURPOSE)
        runtime = require("onnxruntime", "insightface", PURPOSE)
        providers = known_providers(runtime, settings.providers, f"insightface:{pack}")
        app = app_module.FaceAnalysis(name=pack, allowed_modules=["detection", module], providers=providers)
        if module not in app.models:
            raise InputError(
                f"insightface pack {pack} has no model for {module}: it has {', '.join(app.models)}"
            )
        side = settings.detection_size
        app.prepare(ctx_id=-1, det_thresh=settings.detection_threshold, det_size=(side, side))
    return app


def load(argument: str | None, settings: Mapping[str, Any]) -> InsightFaceEmbedder | InsightFaceAttributes:
    """Load ``insightface:PACK``.

    Raises:
        MissingExtraError: insightface is not installed.
        InputError: no pack named, a folder without models, a pack that can't be fetched, bad settings.
    """
    if argument is None:
        raise InputError("name the pack: insightface:FOLDER, or insightface:buffalo_l")
    chosen = validated(InsightFaceSettings, settings, "target insightface")
    if Path(argument).is_dir() and not list(Path(argument).glob("*.onnx")):
        raise InputError(f"insightface pack {argument} holds no .onnx file; {HOW}")
    if chosen.output == "embedding":
        return InsightFaceEmbedder(argument, chosen, "recognition")
    return InsightFaceAttributes(argument, chosen, "genderage")
