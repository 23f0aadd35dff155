"""``torchvision:MODEL`` or ``torchvision:MODEL/WEIGHTS``: torchvision's classifiers, labels as concepts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from targets.base.config import validated
from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.text import nearest
from targets.torch_classifier import ClassifierSettings, Parts, TorchClassifier, TorchEmbedder, made
from targets.torch_tools import loading, read_state

PURPOSE = "the target 'torchvision'"
HOW = (
    "download the file on a machine with a network (torchvision keeps it in ~/.cache/torch/hub/checkpoints) "
    "and pass it with --set weights_file=FILE"
)


class TorchvisionSettings(ClassifierSettings):
    """Settings of the target, besides those of every classifier.

    Attributes:
        weights_file: a state dictionary (.pth, .safetensors) to load instead of downloading.
        random_seed: random weights of that seed instead, to try things out.
    """

    weights_file: Path | None = None
    random_seed: int | None = None


def load(argument: str | None, settings: Mapping[str, Any]) -> TorchClassifier | TorchEmbedder:
    """Load ``torchvision:MODEL`` with its default weights, or ``torchvision:MODEL/WEIGHTS``.

    Raises:
        MissingExtraError: torchvision is not installed.
        InputError: unknown model or weights, weights missing offline, wrong architecture, bad settings.
    """
    models = require("torchvision.models", "torchvision", PURPOSE)
    if argument is None:
        raise InputError("name the model: torchvision:MODEL, as in torchvision:resnet50")
    chosen = validated(TorchvisionSettings, settings, "target torchvision")
    name, _, weights_name = argument.partition("/")
    classifiers = models.list_models(module=models)
    if name not in classifiers:
        raise InputError(f"torchvision has no classifier '{name}'{nearest(name, classifiers)}")
    weights = _weights(models.get_model_weights(name), name, weights_name)
    labels = weights.meta["categories"]
    model = _model(models, name, weights, chosen, argument, len(labels))
    if chosen.output == "embedding":
        _drop_classifier(model)
    parts = Parts(
        name=f"torchvision {name} {weights.name}",
        spec=f"torchvision:{argument}",
        model=model,
        transform=weights.transforms(),
        labels=labels,
        packages=("torchvision",),
        source=str(chosen.weights_file.name) if chosen.weights_file else weights.url,
        licence="BSD-3-Clause (code); trained on ImageNet-1K",
    )
    return made(parts, chosen)


def _weights(known: Any, name: str, wanted: str) -> Any:
    names = [item.name for item in known]
    if wanted and wanted not in names:
        raise InputError(f"torchvision's {name} has no weights '{wanted}'{nearest(wanted, names)}")
    return known[wanted] if wanted else known.DEFAULT


def _model(
    models: Any, name: str, weights: Any, settings: TorchvisionSettings, argument: str, classes: int
) -> Any:
    torch = require("torch", "torchvision", PURPOSE)
    with loading(f"torchvision:{argument}", HOW), torch.random.fork_rng():
        torch.manual_seed(settings.random_seed or 0)
        # Some models warn about their default initialisation, which the weights replace.
        extra = {"init_weights": True} if name in ("inception_v3", "googlenet") else {}
        model = models.get_model(name, weights=None, num_classes=classes, **extra)
        if settings.weights_file is not None:
            model.load_state_dict(read_state(settings.weights_file))
        elif settings.random_seed is None:
            model.load_state_dict(weights.get_state_dict(progress=False, check_hash=True))
    return model


def _drop_classifier(model: Any) -> None:
    """Take the last linear layer out, so that the model gives what comes before it."""
    torch = require("torch", "torchvision", PURPOSE)
    for attribute in ("fc", "classifier", "head", "heads"):
        layer = getattr(model, attribute, None)
        if isinstance(layer, torch.nn.Linear):
            setattr(model, attribute, torch.nn.Identity())
            return
        if isinstance(layer, torch.nn.Sequential):
            layer[-1] = torch.nn.Identity()
            return
    raise InputError(f"{type(model).__name__} has no last linear layer to leave out for output=embedding")
