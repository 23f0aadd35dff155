"""``timm:MODEL``: any timm classifier, its label names as concepts, or its features as an embedding.

MODEL is a name (``resnet18.a1_in1k``), ``hf-hub:OWNER/NAME``, or ``local-dir:FOLDER`` with ``config.json``
and weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from targets.base.config import validated
from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.text import nearest
from targets.torch_classifier import ClassifierSettings, Parts, TorchClassifier, TorchEmbedder, made
from targets.torch_tools import loading, read_state

PURPOSE = "the target 'timm'"
HOW = (
    "fetch it once on a machine with a network and pass the folder as timm:local-dir:FOLDER (config.json "
    "beside model.safetensors), or one checkpoint with --set weights_file=FILE"
)


class TimmSettings(ClassifierSettings):
    """Settings of the target, besides those of every classifier.

    Attributes:
        weights_file: a state dictionary (.pth, .safetensors) to load instead of downloading.
        labels: names of the classes, for a model that brings none.
        random_seed: random weights of that seed instead, to try things out.
    """

    weights_file: Path | None = None
    labels: tuple[str, ...] = ()
    random_seed: int | None = None


def load(argument: str | None, settings: Mapping[str, Any]) -> TorchClassifier | TorchEmbedder:
    """Load ``timm:MODEL``.

    Raises:
        MissingExtraError: timm is not installed.
        InputError: unknown model, weights missing offline, wrong architecture, labels that don't fit.
    """
    timm = require("timm", "timm", PURPOSE)
    if argument is None:
        raise InputError("name the model: timm:MODEL, as in timm:resnet18.a1_in1k")
    chosen = validated(TimmSettings, settings, "target timm")
    if ":" not in argument and not timm.is_model(argument):
        raise InputError(f"timm has no model '{argument}'{nearest(argument, timm.list_models())}")
    spec = f"timm:{argument}"
    model = _model(timm, argument, chosen, spec)
    labels: Sequence[str] = ()
    if chosen.output == "embedding":
        model.reset_classifier(0)
    else:
        labels = chosen.labels or _labels(timm, model)
        if len(labels) != model.num_classes:
            raise InputError(f"target {spec} has {model.num_classes} classes, but {len(labels)} labels came")
    configuration = timm.data.resolve_model_data_config(model)
    parts = Parts(
        name=f"timm {argument}",
        spec=spec,
        model=model,
        transform=timm.data.create_transform(**configuration, is_training=False),
        labels=labels,
        packages=("timm", "torchvision"),
        source=chosen.weights_file.name if chosen.weights_file else argument,
        licence=str(model.pretrained_cfg.get("license") or "unknown"),
    )
    return made(parts, chosen)


def _model(timm: Any, name: str, settings: TimmSettings, spec: str) -> Any:
    torch = require("torch", "timm", PURPOSE)
    given = settings.weights_file is not None or settings.random_seed is not None
    with loading(spec, HOW), torch.random.fork_rng():
        torch.manual_seed(settings.random_seed or 0)
        model = timm.create_model(name, pretrained=not given)
        if settings.weights_file is not None:
            model.load_state_dict(read_state(settings.weights_file))
    return model


def _labels(timm: Any, model: Any) -> list[str]:
    """Names from the model's own configuration, else those of the ImageNet subset it was trained on."""
    configuration = model.pretrained_cfg
    names = configuration.get("label_names")
    if names:
        return list(names)
    subset = timm.data.infer_imagenet_subset(model)
    if not subset:
        return []
    info = timm.data.ImageNetInfo(subset)
    return [info.index_to_description(index) for index in range(model.num_classes)]
