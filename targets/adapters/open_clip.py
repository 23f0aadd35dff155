"""``open-clip:MODEL/PRETRAINED``: any open_clip model, asked about concepts or as an embedder.

``MODEL/PRETRAINED`` is an architecture and a tag or a checkpoint file (``ViT-B-32/laion2b_s34b_b79k``,
``ViT-B-32//weights/mine.pt``); ``hf-hub:OWNER/NAME`` is a hub model; ``local-dir:FOLDER``, or a folder by
itself, holds ``open_clip_config.json`` and weights and needs no network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from targets.base.config import Settings, validated
from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.hashing import folder_digests
from targets.base.text import nearest, shortlist
from targets.card import OUTPUT_RANGES, TargetCard
from targets.clip_file import (
    CONFIG,
    Preprocessing,
    check_folder_activation,
    check_quick_gelu,
    from_file,
    preprocessing_of,
    preprocessing_of_folder,
)
from targets.gpu_batches import GpuBatches
from targets.prompts import ConceptSetting, TemplateSet, phrases, sentences
from targets.protocol import Scores
from targets.torch_attention import without_copies
from targets.torch_checkpoint import whole_loads
from targets.torch_tools import (
    OVERFLOW_HINT,
    Precision,
    answers,
    device_of,
    exact,
    loading,
    mean_direction,
    precision_of,
    probability,
    state_digest,
    unit,
    versions_of,
)

PURPOSE = "the target 'open-clip'"
HOW = (
    "fetch it once on a machine with a network and pass the folder as open-clip:local-dir:FOLDER "
    "(open_clip_config.json beside open_clip_model.safetensors), or pass MODEL/FILE for one checkpoint"
)
GPU_BATCH, CPU_BATCH = 256, 32
LOCAL = "local-dir:"


class OpenClipSettings(Settings):
    """Settings of the target.

    Attributes:
        concepts: names, or name -> phrases; the 19 face concepts where not given.
        templates: "face", "simple" (7), "imagenet" (80), or sentences with one ``{}`` each.
        output: "cosine" in [-1, 1]; the probability the model was trained for in [0, 1], "softmax" over the
            concepts (CLIP) or "sigmoid" of each (SigLIP); or "embedding".
        preprocessing: of a checkpoint file: the tag of published weights whose preprocessing it has, or a
            table of mean, std, interpolation and resize_mode.
        device: "auto", "cpu", "cuda" or "cuda:1".
        precision: "auto" is float16 on a GPU and float32 elsewhere.
        batch_size: pictures per call; 256 on a GPU and 32 elsewhere where not given.
        compile: compile the model, which takes a minute and pays from about 100,000 pictures.
        random_seed: random weights of that seed instead of a checkpoint, to measure speed.
    """

    concepts: ConceptSetting | None = None
    templates: TemplateSet | tuple[str, ...] = "face"
    output: Literal["cosine", "softmax", "sigmoid", "embedding"] = "cosine"
    preprocessing: str | Preprocessing | None = None
    device: str = "auto"
    precision: Precision = "auto"
    batch_size: int | None = None
    compile: bool = False
    random_seed: int | None = None


class _Clip:
    """The image tower behind the preprocessing that open_clip gives the model."""

    hints = OVERFLOW_HINT
    width = 0

    def __init__(self, name: str, settings: OpenClipSettings) -> None:
        self._torch = require("torch", "clip", PURPOSE)
        self._device = device_of(settings.device)
        precision = precision_of(settings.precision, self._device)
        self._dtype = getattr(self._torch, precision)
        self.batch_size = settings.batch_size or (GPU_BATCH if self._device.startswith("cuda") else CPU_BATCH)
        self._model, self.prepare = _load_model(name, settings, self._device)
        in_force = {
            "device": self._device,
            "precision": precision,
            "batch_size": self.batch_size,
            "preprocessing": dict(self._model.visual.preprocess_cfg),
            "activation": "quick_gelu" if _has_quick_gelu(self._model) else "gelu",
        }
        self.card = TargetCard(
            name=f"open_clip {name}",
            settings={**settings.model_dump(mode="json", exclude_none=True), **in_force},
            weights={"state": state_digest(self._model), **_files(name)},
            versions=versions_of("open_clip_torch", "torch", "torchvision", "pillow"),
            source="random weights" if settings.random_seed is not None else name,
            score_range=OUTPUT_RANGES.get(settings.output),
        )

    def _open_door(self, compiled: bool) -> None:
        """Turn the model to its precision and, on a GPU, open the way through it."""
        self._model.to(self._dtype)
        if self._device.startswith("cuda"):
            without_copies(self._model.visual)
        answered = self._torch.compile(self._answered) if compiled else self._answered
        self._compute: Callable[[Any], Any] = exact(answered, self._device, self._dtype)
        preprocessing = self._model.visual.preprocess_cfg
        if self._device.startswith("cuda") and GpuBatches.fits(preprocessing):
            batches = GpuBatches(self._compute, preprocessing, self._device, self._dtype, self.batch_size)
            if compiled:
                batches.compile()
            self.stage, self.start, self.frame = batches.stage, batches.start, batches.frame

    def _answered(self, batch: Any) -> Any:
        """(n, 3, s, s) pictures to (n, c) answers in float32."""
        vectors = self._model.encode_image(batch).float()
        return self._head(unit(vectors))

    def _head(self, vectors: Any) -> Any:
        return vectors

    def _ask(self, images: Sequence[Any]) -> Scores:
        if not images:
            return Scores(np.zeros((0, self.width)), ())
        is_tensor = self._torch.is_tensor
        tensors = [image if is_tensor(image) else self.prepare(image) for image in images]
        with self._torch.inference_mode():
            batch = self._torch.stack(tensors).to(self._device, self._dtype)
            return answers(self._compute(batch))

    def close(self) -> None:
        """Let the model go, and with it the accelerator's memory."""
        self.__dict__.clear()


class ClipEmbedder(_Clip):
    """Embeds pictures as unit vectors."""

    def __init__(self, name: str, settings: OpenClipSettings) -> None:
        super().__init__(name, settings)
        self._open_door(settings.compile)

    def embed(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, d) unit vectors; a NaN row where the precision overflowed."""
        return self._ask(images)


class ClipConcepts(_Clip):
    """Scores how near a picture is to each concept's sentences."""

    def __init__(self, name: str, settings: OpenClipSettings) -> None:
        asked = {
            concept: sentences(texts, settings.templates)
            for concept, texts in phrases(settings.concepts).items()
        }
        super().__init__(name, settings)
        self.concepts = tuple(asked)
        self.width = len(asked)
        self._texts = self._text_vectors(_tokenizer(name), asked)
        self._probability = None
        if settings.output != "cosine":
            self._probability = probability(self._model, settings.output, f"open-clip:{name}")
        self._open_door(settings.compile)

    def _text_vectors(self, tokenizer: Callable[[list[str]], Any], asked: Mapping[str, list[str]]) -> Any:
        """(d, c): one unit vector a concept, the normalised mean over its sentences."""
        columns, read = [], hashlib.sha256()
        with self._torch.inference_mode():
            for concept, texts in asked.items():
                tokens = tokenizer(texts)
                read.update(tokens.numpy().tobytes())
                vectors = self._model.encode_text(tokens.to(self._device)).float()
                columns.append(mean_direction(vectors, f"concept '{concept}'"))
        # A tokenizer may come from elsewhere than the weights.
        settings = {**self.card.settings, "tokens_sha256": read.hexdigest()}
        self.card = self.card.model_copy(update={"settings": settings})
        return self._torch.stack(columns, dim=1)

    def _head(self, vectors: Any) -> Any:
        cosine = (vectors @ self._texts).clamp(-1.0, 1.0)
        return cosine if self._probability is None else self._probability(cosine)

    def score(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, c) cosines or probabilities; a NaN row where the precision overflowed."""
        return self._ask(images)


def _parts(name: str) -> tuple[str, str | None]:
    """Model and tag or checkpoint file; a schema such as ``hf-hub:`` takes the whole name."""
    if name.startswith(("hf-hub:", LOCAL)):
        return name, None
    if Path(name).is_dir():
        return f"{LOCAL}{name}", None
    model, _, pretrained = name.partition("/")
    return model, pretrained or None


def _load_model(
    name: str, settings: OpenClipSettings, device: str
) -> tuple[Any, Callable[[Image.Image], Any]]:
    """The model in float32 and its preprocessing.

    Raises:
        InputError: unknown model, missing weights, a checkpoint of another architecture.
    """
    open_clip = require("open_clip", "clip", PURPOSE)
    torch = require("torch", "clip", PURPOSE)
    model_name, pretrained = _parts(name)
    known = open_clip.list_models()
    if ":" not in model_name and model_name not in known:
        raise InputError(f"target open-clip:{name}: no model '{model_name}'{nearest(model_name, known)}")
    random = settings.random_seed is not None
    if ":" not in model_name and pretrained is None and not random:
        tags = open_clip.list_pretrained_tags_by_model(model_name)
        raise InputError(
            f"target open-clip:{name}: name the weights as {model_name}/TAG ({shortlist(tags, 6)}) "
            f"or {model_name}/FILE"
        )
    file = _checkpoint_file(open_clip, model_name, pretrained) if not random else None
    arguments = {
        "device": device,
        "load_weights": not random,
        "require_pretrained": not random,
        "force_preprocess_cfg": _preprocessing(open_clip, model_name, file, settings) if not random else None,
    }
    check_quick_gelu(open_clip, model_name, pretrained, file, name)
    with (
        loading(f"open-clip:{name}", HOW),
        whole_loads(f"open-clip:{name}"),
        torch.random.fork_rng(enabled=random),
    ):
        if random:
            torch.manual_seed(settings.random_seed)
        if file is None:
            model = open_clip.create_model(model_name, None if random else pretrained, **arguments)
        else:
            model = from_file(open_clip, model_name, file, arguments)
    model.eval()
    preprocessing = open_clip.transform.PreprocessCfg(**model.visual.preprocess_cfg)
    return model, open_clip.transform.image_transform_v2(preprocessing, is_train=False)


def _checkpoint_file(open_clip: Any, model: str, pretrained: str | None) -> Path | None:
    """The file, or folder of several, that stands where a tag could."""
    is_tag = pretrained is None or open_clip.is_pretrained_cfg(model, pretrained)
    return None if is_tag or not Path(str(pretrained)).exists() else Path(str(pretrained))


def _preprocessing(
    open_clip: Any, model: str, file: Path | None, settings: OpenClipSettings
) -> dict[str, Any] | None:
    """What is to stand in for the preprocessing that open_clip would take, None for that."""
    given = settings.preprocessing
    if file is not None:
        return preprocessing_of(open_clip, model, file, given)
    if model.startswith(LOCAL):
        folder = Path(model.removeprefix(LOCAL))
        check_folder_activation(folder)
        return preprocessing_of_folder(folder, given)
    if given is not None:
        raise InputError(
            f"target open-clip:{model} brings its preprocessing: 'preprocessing' is for checkpoints on disk"
        )
    return None


def _has_quick_gelu(model: Any) -> bool:
    return any(type(module).__name__ == "QuickGELU" for module in model.modules())


def _files(name: str) -> dict[str, str]:
    """Digests of what lies in a model's folder, or of the configuration beside a checkpoint file."""
    model, pretrained = _parts(name)
    if model.startswith(LOCAL):
        return folder_digests(Path(model.removeprefix(LOCAL)))
    if pretrained and Path(pretrained).exists():
        file = Path(pretrained)
        return folder_digests(file if file.is_dir() else file.parent, CONFIG)
    return {}


def _tokenizer(name: str) -> Callable[[list[str]], Any]:
    open_clip = require("open_clip", "clip", PURPOSE)
    with loading(f"open-clip:{name}", HOW):
        return open_clip.get_tokenizer(_parts(name)[0])  # type: ignore[no-any-return]


def load(argument: str | None, settings: Mapping[str, Any]) -> ClipConcepts | ClipEmbedder:
    """Load ``open-clip:MODEL/PRETRAINED``.

    Raises:
        MissingExtraError: open_clip is not installed.
        InputError: no model named, missing weights, wrong architecture, bad concepts or settings.
    """
    if argument is None:
        raise InputError("name the model: open-clip:MODEL/PRETRAINED, as in ViT-B-32/laion2b_s34b_b79k")
    chosen = validated(OpenClipSettings, settings, "target open-clip")
    kind = ClipEmbedder if chosen.output == "embedding" else ClipConcepts
    return kind(argument, chosen)
