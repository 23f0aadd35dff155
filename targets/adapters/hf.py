"""``hf:MODEL``: a vision model of transformers, by hub name or folder.

What it is asked depends on the setting ``task``; "auto" reads it off the model's configuration:

- "classification": a model with a classifier, its labels as concepts;
- "zero-shot": a model with an image and a text tower (CLIP, SigLIP, ALIGN, ...), asked about concepts;
- "embedding": any AutoModel, its pooled output as a vector. Where the checkpoint lacks the pooler's weights,
  the vector is the mean of the last hidden states, and the card's setting ``pooling`` says "mean".

Weights are read as safetensors only, and no code of a repository is run. Any other weights that a checkpoint
lacks are an error: transformers would make them up anew at each run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from targets.base.config import Settings, validated
from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.hashing import folder_digests
from targets.card import OUTPUT_RANGES, TargetCard
from targets.clip_file import CONFIG, beside
from targets.prompts import ConceptSetting, TemplateSet, phrases, sentences
from targets.protocol import Scores
from targets.torch_checkpoint import check_whole
from targets.torch_tools import (
    OVERFLOW_HINT,
    Precision,
    answers,
    chosen_columns,
    device_of,
    distinct_names,
    loading,
    mean_direction,
    precision_of,
    probability,
    state_digest,
    unit,
    versions_of,
)

PURPOSE = "the target 'hf'"
HOW = (
    "fetch it once on a machine with a network (hf download MODEL --local-dir FOLDER) and pass the folder: "
    "hf:FOLDER with config.json, model.safetensors and preprocessor_config.json"
)
Task = Literal["auto", "classification", "zero-shot", "embedding"]


class HfSettings(Settings):
    """Settings of the target.

    Attributes:
        task: what to ask, as in the module's text.
        concepts: labels to keep of a classifier; names, or name -> phrases, of a zero-shot model.
        templates: sentences of a zero-shot model: "face", "simple" (7), "imagenet" (80), or your own.
        output: of a zero-shot model "cosine", or the probability it was trained for: "softmax" over the
            concepts (CLIP) or "sigmoid" of each (SigLIP); of a classifier "softmax", "sigmoid" or "logits".
        revision: commit or tag on the hub.
        device: "auto", "cpu", "cuda" or "cuda:1".
        precision: "auto" is float16 on a GPU and float32 elsewhere.
        batch_size: pictures per call.
    """

    task: Task = "auto"
    concepts: ConceptSetting | None = None
    templates: TemplateSet | tuple[str, ...] = "face"
    output: Literal["cosine", "softmax", "sigmoid", "logits"] | None = None
    revision: str | None = None
    device: str = "auto"
    precision: Precision = "auto"
    batch_size: int = 32


class _Hf:
    hints = OVERFLOW_HINT
    auto_class = "AutoModel"

    def __init__(self, name: str, settings: HfSettings) -> None:
        self._torch = require("torch", "hf", PURPOSE)
        self._name = name
        self._device = device_of(settings.device)
        precision = precision_of(settings.precision, self._device)
        self._dtype = getattr(self._torch, precision)
        self.batch_size = settings.batch_size
        self._transformers = transformers = require("transformers", "hf", PURPOSE)
        self._in_force: dict[str, Any] = {"device": self._device, "precision": precision}
        files = folder_digests(Path(name)) if Path(name).is_dir() else {}
        with loading(f"hf:{name}", HOW):
            self._processor = transformers.AutoImageProcessor.from_pretrained(
                name, revision=settings.revision
            )
            self._model, report = getattr(transformers, self.auto_class).from_pretrained(
                name,
                revision=settings.revision,
                use_safetensors=True,
                dtype=self._torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
        self._check_weights(report["missing_keys"], report["mismatched_keys"], report["unexpected_keys"])
        check_activations(self._model.config, name)
        self._model.eval().to(self._device)
        digest = state_digest(self._model)
        self._set_up(settings)
        self._model.to(self._dtype)
        if not files:
            # A commit pins every file of a hub's model, as the digests do those of a folder.
            self._in_force["revision"] = getattr(self._model.config, "_commit_hash", None)
        self.card = TargetCard(
            name=f"hf {name}",
            settings={
                **settings.model_dump(mode="json", exclude_none=True),
                **self._in_force,
                "preprocessing": json.loads(self._processor.to_json_string()),
                "activation": activations(self._model.config),
            },
            weights={"state": digest, **files},
            versions=versions_of("transformers", "torch", "torchvision", "pillow"),
            source=name,
            score_range=OUTPUT_RANGES.get(getattr(self, "_output", "")),
        )

    def _check_weights(
        self, missing: Sequence[str], mismatched: Sequence[Any], unused: Sequence[str]
    ) -> None:
        """Refuse weights that transformers has made up."""
        check_whole(f"hf:{self._name}", missing, [str(key) for key, *_ in mismatched], unused)

    def _set_up(self, settings: HfSettings) -> None:
        """What a kind of target needs before the model is turned to its precision."""

    def prepare(self, image: Image.Image) -> Any:
        """The model's own preprocessing: an RGB picture to a (3, h, w) float32 tensor."""
        return self._processor(images=image, return_tensors="pt")["pixel_values"][0]

    def _batch(self, images: Sequence[Any]) -> Any:
        is_tensor = self._torch.is_tensor
        tensors = [image if is_tensor(image) else self.prepare(image) for image in images]
        return self._torch.stack(tensors).to(self._device, self._dtype)

    def close(self) -> None:
        """Let the model go."""
        self.__dict__.clear()


class HfClassifier(_Hf):
    """Scores a classifier's labels."""

    auto_class = "AutoModelForImageClassification"

    def _set_up(self, settings: HfSettings) -> None:
        names = self._model.config.id2label
        labels = distinct_names([str(names[index]) for index in range(len(names))])
        if isinstance(settings.concepts, dict):
            raise InputError(f"hf:{self._name} is a classifier: concepts must be a list of its labels")
        self._columns = chosen_columns(settings.concepts or (), labels, f"hf:{self._name}")
        self.concepts = tuple(labels[column] for column in self._columns)
        self._output = settings.output or "softmax"
        if self._output == "cosine":
            raise InputError(f"hf:{self._name} is a classifier: output must be softmax, sigmoid or logits")

    def score(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, c) probabilities or logits; a NaN row where the precision overflowed."""
        if not images:
            return Scores(np.zeros((0, len(self.concepts))), ())
        with self._torch.inference_mode():
            logits = self._model(pixel_values=self._batch(images)).logits.float()
            if self._output == "softmax":
                logits = logits.softmax(dim=-1)
            elif self._output == "sigmoid":
                logits = logits.sigmoid()
            return answers(logits[:, self._columns])


class HfZeroShot(_Hf):
    """Scores how near a picture is to each concept's sentences."""

    def _set_up(self, settings: HfSettings) -> None:
        self._output = settings.output or "cosine"
        if self._output == "logits":
            raise InputError(
                f"hf:{self._name} is asked zero-shot: output must be cosine or softmax (sigmoid of SigLIP)"
            )
        if not hasattr(self._model, "get_text_features"):
            raise InputError(f"hf:{self._name} has no text tower, which task=zero-shot needs")
        asked = {
            name: sentences(texts, settings.templates) for name, texts in phrases(settings.concepts).items()
        }
        self.concepts = tuple(asked)
        with loading(f"hf:{self._name}", HOW):
            tokenizer = self._transformers.AutoTokenizer.from_pretrained(
                self._name, revision=settings.revision
            )
        self._texts = self._torch.stack(
            [self._text_vector(tokenizer, texts) for texts in asked.values()], dim=1
        )
        self._probability = None
        if self._output != "cosine":
            self._probability = probability(self._model, self._output, f"hf:{self._name}")

    def _text_vector(self, tokenizer: Any, texts: list[str]) -> Any:
        """(d,): the normalised mean over a concept's sentences."""
        # SigLIP was trained on padded texts, CLIP does not mind.
        text = self._model.config.text_config
        longest = min(tokenizer.model_max_length, getattr(text, "max_position_embeddings", 512))
        tokens = tokenizer(
            texts, padding="max_length", max_length=longest, truncation=True, return_tensors="pt"
        ).to(self._device)
        with self._torch.inference_mode():
            vectors = _pooled(self._model.get_text_features(**tokens)).float()
            return mean_direction(vectors, f"hf:{self._name}, concept '{texts[0]}'")

    def score(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, c) cosines or probabilities; a NaN row where the precision overflowed."""
        if not images:
            return Scores(np.zeros((0, len(self.concepts))), ())
        with self._torch.inference_mode():
            vectors = _pooled(self._model.get_image_features(pixel_values=self._batch(images))).float()
            cosine = (unit(vectors) @ self._texts).clamp(-1.0, 1.0)
            return answers(cosine if self._probability is None else self._probability(cosine))


class HfEmbedder(_Hf):
    """Embeds pictures by the model's pooled output."""

    def _check_weights(
        self, missing: Sequence[str], mismatched: Sequence[Any], unused: Sequence[str]
    ) -> None:
        """A pooler without weights is left out; the mean of the last hidden states needs none."""
        has_features = hasattr(self._model, "get_image_features")
        poolers = {_pooler(key) for key in missing} - {None} if not has_features else set()
        super()._check_weights([key for key in missing if _pooler(key) not in poolers], mismatched, unused)
        for path in poolers:
            parent, _, name = str(path).rpartition(".")
            setattr(self._model.get_submodule(parent), name, None)
        self._in_force["pooling"] = "mean" if poolers else "own"

    def embed(self, images: Sequence[Image.Image]) -> Scores:
        """Return (n, d): image features, else the pooled output, else the mean over positions."""
        if not images:
            return Scores(np.zeros((0, 0)), ())
        with self._torch.inference_mode():
            batch = self._batch(images)
            if hasattr(self._model, "get_image_features"):
                return answers(_pooled(self._model.get_image_features(pixel_values=batch)))
            return answers(_pooled(self._model(pixel_values=batch)).flatten(1))


def _pooler(key: str) -> str | None:
    """The path of the pooler that a weight belongs to: "vit.pooler" of "vit.pooler.dense.bias"."""
    parts = key.split(".")
    return ".".join(parts[: parts.index("pooler") + 1]) if "pooler" in parts else None


def _pooled(output: Any) -> Any:
    """The vector of each item in what a model returned; some versions return it bare."""
    if not hasattr(output, "last_hidden_state"):
        return output
    pooled = getattr(output, "pooler_output", None)
    if pooled is not None:
        return pooled
    # (n, positions, d) of a transformer, (n, d, h, w) of a convolutional network.
    states = output.last_hidden_state
    return states.mean(dim=1) if states.ndim == 3 else states.flatten(2).mean(dim=2)


def activations(config: Any) -> dict[str, str]:
    """Tower -> activation function, as the configuration names it."""
    towers = {"model": config} | {
        name: getattr(config, f"{name}_config", None) for name in ("vision", "text")
    }
    found = {name: getattr(tower, "hidden_act", None) for name, tower in towers.items()}
    return {name: act for name, act in found.items() if isinstance(act, str)}


def check_activations(config: Any, name: str) -> None:
    """Say where OpenAI's QuickGELU stands against GELU: CLIP's towers are trained with one of them.

    Raises:
        InputError: the two towers differ, or open_clip's configuration beside says otherwise.
    """
    if getattr(config, "model_type", None) != "clip":
        return
    found = activations(config)
    if found["vision"] != found["text"]:
        raise InputError(
            f"hf:{name}: QuickGELU mismatch: config.json says hidden_act '{found['vision']}' for pictures, "
            f"'{found['text']}' for texts, and CLIP is trained with one; mend config.json"
        )
    if not (Path(name) / CONFIG).is_file():
        return
    quick = bool((beside(Path(name)).get("model_cfg") or {}).get("quick_gelu"))
    if quick != (found["vision"] == "quick_gelu"):
        raise InputError(
            f"hf:{name}: QuickGELU mismatch: config.json says hidden_act '{found['vision']}', "
            f"open_clip_config.json beside it quick_gelu = {str(quick).lower()}; mend the wrong one"
        )


KINDS: Mapping[str, type[HfClassifier | HfZeroShot | HfEmbedder]] = {
    "classification": HfClassifier,
    "zero-shot": HfZeroShot,
    "embedding": HfEmbedder,
}


def _task(name: str, settings: HfSettings) -> str:
    """The task that the model's configuration tells."""
    transformers = require("transformers", "hf", PURPOSE)
    with loading(f"hf:{name}", HOW):
        config = transformers.AutoConfig.from_pretrained(name, revision=settings.revision)
    if any(text.endswith("ForImageClassification") for text in config.architectures or ()):
        return "classification"
    return "zero-shot" if hasattr(config, "text_config") and hasattr(config, "vision_config") else "embedding"


def load(argument: str | None, settings: Mapping[str, Any]) -> HfClassifier | HfZeroShot | HfEmbedder:
    """Load ``hf:MODEL``.

    Raises:
        MissingExtraError: transformers or torch is not installed.
        InputError: no model named, files missing offline, wrong architecture, bad concepts or settings.
    """
    if argument is None:
        raise InputError("name the model: hf:FOLDER or hf:OWNER/NAME")
    chosen = validated(HfSettings, settings, "target hf")
    task = _task(argument, chosen) if chosen.task == "auto" else chosen.task
    return KINDS[task](argument, chosen)
