"""``onnx:FILE``: any ONNX model, described by a TOML card.

The card has the model's name and ends in ``.toml``; another is named by the setting ``card``::

    name = "SmileNet"
    licence = "MIT"

    [input]
    size = [112, 112]              # width, height
    layout = "NCHW"                # or "NHWC"
    colour = "RGB"                 # or "BGR"
    mean = [127.5, 127.5, 127.5]   # of pixels in 0 to 255, in the colour order above
    std = [127.5, 127.5, 127.5]
    dtype = "float32"              # or "float16", "uint8" (mean and std are then left out)
    resize = "stretch"             # or "crop": shorter side to size, then the middle
    alignment = "none"             # "face": a square around the face, "points": on ArcFace's five points

    [output]
    concepts = ["smile", "teeth"]  # or embedding = true
    activation = "none"            # "sigmoid" or "softmax" turn logits into probabilities
    score_range = [0, 1]           # lowest and highest score, for a gate; known after an activation
    tensor = "scores"              # where the model has several outputs
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import Field

from targets.alignment import FaceFinder, cropped, five_points, upright
from targets.base.config import Settings, read_toml, validated
from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.hashing import file_digest
from targets.base.text import excerpt, shortlist
from targets.card import OUTPUT_RANGES, ScoreRange, TargetCard
from targets.onnx_files import known_providers, model_digests, providers_in_force
from targets.protocol import NO_ANSWER, FloatArray, NoScores, Scores, declined
from targets.several_faces import FacesRule, hints, in_words
from targets.torch_tools import versions_of

PURPOSE = "the target 'onnx'"
FACE_MARGIN = 1.3
Triple = tuple[float, float, float]
Activation = Callable[[FloatArray], FloatArray]


class Input(Settings):
    """``[input]``: what the model is fed, as in the module's example."""

    size: tuple[int, int]
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    colour: Literal["RGB", "BGR"] = "RGB"
    mean: Triple = (0.0, 0.0, 0.0)
    std: Triple = (1.0, 1.0, 1.0)
    dtype: Literal["float32", "float16", "uint8"] = "float32"
    resize: Literal["stretch", "crop"] = "stretch"
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    alignment: Literal["none", "face", "points"] = "none"
    tensor: str | None = None


class Output(Settings):
    """``[output]``: what the model answers."""

    concepts: tuple[str, ...] = ()
    embedding: bool = False
    activation: Literal["none", "sigmoid", "softmax"] = "none"
    score_range: ScoreRange | None = None
    tensor: str | None = None


class OnnxCard(Settings):
    """The TOML card."""

    name: str
    licence: str = "unknown"
    source: str = "unknown"
    input: Input
    output: Output


class OnnxSettings(Settings):
    """Settings of the target.

    Attributes:
        card: the TOML card, where it is not beside the model under its name.
        batch_size: pictures per call; a model with a fixed batch is called with that many.
        detection_threshold: lowest detection score of a face, in (0, 1), where the card aligns.
        faces: where it aligns and there are several: "largest" box, "error" or "no_answer".
        providers: of onnxruntime, first choice first.
    """

    card: Path | None = None
    batch_size: int = Field(default=16, ge=1)
    detection_threshold: float = Field(default=0.6, gt=0, lt=1)
    faces: FacesRule = "largest"
    providers: tuple[str, ...] = Field(default=("CPUExecutionProvider",), min_length=1)


def _softmax(values: FloatArray) -> FloatArray:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]


def _sigmoid(values: FloatArray) -> FloatArray:
    return 1 / (1 + np.exp(-values))


ACTIVATIONS: Mapping[str, Activation] = {
    "none": lambda values: values,
    "sigmoid": _sigmoid,
    "softmax": _softmax,
}


class _Onnx:
    def __init__(self, model: Path, card: OnnxCard, settings: OnnxSettings) -> None:
        self._runtime = require("onnxruntime", "onnx", PURPOSE)
        self._card, self._path = card, model
        self.colour_order = card.input.colour
        weights = model_digests(model)
        self._session = _session(self._runtime, model, settings)
        in_force = {"providers": providers_in_force([self._session], settings.providers, f"onnx:{model}")}
        self._input = _named(self._session.get_inputs(), card.input.tensor, "input", model)
        self._output = _named(self._session.get_outputs(), card.output.tensor, "output", model)
        self._fixed = self._input.shape[0] if isinstance(self._input.shape[0], int) else None
        self._mean, self._std = (np.array(three, np.float32) for three in (card.input.mean, card.input.std))
        self.batch_size = settings.batch_size
        self._rule, self.hints = settings.faces, hints(settings.faces)
        self._finder = None
        if card.input.alignment != "none":
            self._finder = FaceFinder(settings.detection_threshold, f"alignment of {model.name}")
            weights[self._finder.weights.name] = file_digest(self._finder.weights)
        self.card = TargetCard(
            name=card.name,
            settings={
                **settings.model_dump(mode="json"),
                **in_force,
                "description": card.model_dump(mode="json"),
            },
            weights=weights,
            versions=versions_of("onnxruntime", "pillow", "numpy"),
            licence=card.licence,
            score_range=card.output.score_range or OUTPUT_RANGES.get(card.output.activation),
            detection=_detection(card.input.alignment, settings.faces),
            source=card.source,
        )

    def prepare(self, image: Image.Image) -> Any:
        """One input of the model without its batch axis, or why there is none."""
        framed = self._framed(image)
        if isinstance(framed, str):
            return framed
        given = self._card.input
        pixels: npt.NDArray[Any] = np.asarray(framed)
        if given.colour == "BGR":
            pixels = pixels[:, :, ::-1]
        if given.dtype != "uint8":
            scaled = (pixels.astype(np.float32) - self._mean) / self._std
            pixels = scaled.astype(given.dtype)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1) if given.layout == "NCHW" else pixels)

    def _framed(self, image: Image.Image) -> Image.Image | NoScores:
        given = self._card.input
        width, height = given.size
        if self._finder is not None:
            face = self._finder.face(image, self._rule)
            if isinstance(face, str):
                return face
            if given.alignment == "points":
                return upright(image, five_points(face), width, height)
            image = cropped(image, face[:4], FACE_MARGIN)
        filter_ = Image.Resampling.BICUBIC if given.interpolation == "bicubic" else Image.Resampling.BILINEAR
        if given.resize == "stretch":
            return image.resize((width, height), filter_)
        scale = max(width / image.width, height / image.height)
        image = image.resize((round(image.width * scale), round(image.height * scale)), filter_)
        left, top = (image.width - width) // 2, (image.height - height) // 2
        return image.crop((left, top, left + width, top + height))

    def _ask(self, images: Sequence[Any], width: int) -> Scores:
        prepared = [self.prepare(image) if isinstance(image, Image.Image) else image for image in images]
        reasons: list[str | None] = [declined(item) for item in prepared]
        rows = [index for index, reason in enumerate(reasons) if reason is None]
        answers = self._run([prepared[index] for index in rows]) if rows else np.zeros((0, width))
        values = np.full((len(images), answers.shape[1]), np.nan)
        values[rows] = answers
        for index in rows:
            if not np.isfinite(values[index]).all():
                values[index], reasons[index] = np.nan, NO_ANSWER
        return Scores(values, tuple(reasons))

    def _run(self, inputs: list[npt.NDArray[Any]]) -> FloatArray:
        """(n, c) float64; a model with a fixed batch is fed that many, the last one repeated."""
        step = self._fixed or len(inputs)
        parts = []
        for start in range(0, len(inputs), step):
            chunk = inputs[start : start + step]
            padded = chunk + [chunk[-1]] * (step - len(chunk))
            try:
                answer = self._session.run([self._output.name], {self._input.name: np.stack(padded)})[0]
            except Exception as error:
                # onnxruntime has an exception class of its own for every kind of fault.
                if not type(error).__module__.startswith("onnxruntime"):
                    raise
                raise InputError(
                    f"{self._path}: the model refuses what its card describes ({excerpt(error)})"
                ) from None
            parts.append(np.asarray(answer, dtype=np.float64).reshape(step, -1)[: len(chunk)])
        return ACTIVATIONS[self._card.output.activation](np.concatenate(parts))

    def close(self) -> None:
        """Let the session go."""
        self.__dict__.clear()


class OnnxConcepts(_Onnx):
    """Scores the concepts that the card names."""

    def __init__(self, model: Path, card: OnnxCard, settings: OnnxSettings) -> None:
        self.concepts = card.output.concepts
        super().__init__(model, card, settings)

    def score(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, c)."""
        return self._ask(images, len(self.concepts))


class OnnxEmbedder(_Onnx):
    """Embeds pictures."""

    def embed(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, d)."""
        return self._ask(images, 0)


@contextmanager
def _faults(message: str) -> Iterator[None]:
    """onnxruntime has a class of its own for every fault and no common one: told by their module."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("onnxruntime"):
            raise
        raise InputError(f"{message} ({excerpt(error)})") from None


def _session(runtime: Any, model: Path, settings: OnnxSettings) -> Any:
    providers = known_providers(runtime, settings.providers, f"onnx:{model}")
    with _faults(f"{model} can't be loaded as an ONNX model"):
        return runtime.InferenceSession(str(model), providers=providers)


def _named(tensors: Sequence[Any], wanted: str | None, what: str, model: Path) -> Any:
    names = [tensor.name for tensor in tensors]
    if wanted is None and len(names) > 1:
        raise InputError(
            f"{model} has {len(names)} {what}s ({shortlist(names)}): name one as '{what}.tensor'"
        )
    if wanted is not None and wanted not in names:
        raise InputError(f"{model} has no {what} '{wanted}', only {shortlist(names)}")
    return tensors[names.index(wanted) if wanted else 0]


def _detection(alignment: str, rule: FacesRule) -> str:
    cut = {"face": "a square around it", "points": "aligned on five points"}
    if alignment not in cut:
        return "none: the whole picture is given to the model"
    return f"{in_words('YuNet', rule)}; {cut[alignment]}"


def load(argument: str | None, settings: Mapping[str, Any]) -> OnnxConcepts | OnnxEmbedder:
    """Load ``onnx:FILE``.

    Raises:
        MissingExtraError: onnxruntime, or the detector of an alignment, is not installed.
        InputError: no file, no card, a card that doesn't fit, a file that is no ONNX model.
    """
    if argument is None:
        raise InputError("name the file: onnx:MODEL.onnx, with its card MODEL.toml beside it")
    chosen = validated(OnnxSettings, settings, "target onnx")
    model = Path(argument)
    if not model.is_file():
        raise InputError(f"target onnx: no such file: {model}")
    toml = chosen.card or model.with_suffix(".toml")
    card = validated(OnnxCard, read_toml(toml), str(toml))
    if bool(card.output.concepts) == card.output.embedding:
        raise InputError(f"{toml}: [output] must have either concepts or embedding = true")
    return (OnnxEmbedder if card.output.embedding else OnnxConcepts)(model, card, chosen)
