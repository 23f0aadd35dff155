"""``torchvision:MODEL`` or ``torchvision:MODEL/WEIGHTS``: torchvision's classifiers, labels as concepts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from targets.base.config import validated
from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.text import nearest
from targets.torch_checkpoint import load_into, other_classes, read_state, whole_loads
from targets.torch_classifier import ClassifierSettings, Parts, TorchClassifier, TorchEmbedder, made
from targets.torch_tools import loading

PURPOSE = "the target 'torchvision'"
HOW = (
    "download the file on a machine with a network (torchvision keeps it in ~/.cache/torch/hub/checkpoints) "
    "and pass it with --set weights_file=FILE"
)


class TorchvisionSettings(ClassifierSettings):
    """Settings of the target, besides those of every classifier.

    Attributes:
        weights_file: a state dictionary (.pth, .safetensors, in one file or several) to load instead of
            downloading.
        labels: names of the classes, in their order, of a model that was fine-tuned to its own.
        random_seed: random weights of that seed instead, to try things out.
    """

    weights_file: Path | None = None
    labels: tuple[str, ...] = ()
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
    labels = chosen.labels or weights.meta["categories"]
    model = _model(models, name, weights, chosen, len(labels))
    if chosen.output == "embedding":
        _drop_classifier(model)
    file = chosen.weights_file
    parts = Parts(
        name=f"torchvision {name} {file.name if file else weights.name}",
        spec=f"torchvision:{argument}",
        model=model,
        transform=weights.transforms(),
        preprocessing=_described(weights.transforms()),
        labels=labels,
        packages=("torchvision",),
        source=file.name if file else weights.url,
        licence="unknown" if file else "BSD-3-Clause (code); trained on ImageNet-1K",
    )
    return made(parts, chosen)


def _weights(known: Any, name: str, wanted: str) -> Any:
    names = [item.name for item in known]
    if wanted and wanted not in names:
        raise InputError(f"torchvision's {name} has no weights '{wanted}'{nearest(wanted, names)}")
    return known[wanted] if wanted else known.DEFAULT


def _model(models: Any, name: str, weights: Any, settings: TorchvisionSettings, classes: int) -> Any:
    torch = require("torch", "torchvision", PURPOSE)
    spec, file = f"torchvision:{name}", settings.weights_file
    own = len(weights.meta["categories"])
    if file is None and settings.random_seed is None and classes != own:
        raise InputError(f"target {spec} has {own} classes, but {classes} labels came")
    with loading(spec, HOW), whole_loads(spec), torch.random.fork_rng():
        torch.manual_seed(settings.random_seed or 0)
        if file is not None:
            return _from_file(models, name, read_state(file), settings, classes)
        if settings.random_seed is not None:
            return _bare_model(models, name, classes, {})
        # Some models need more than their weights: another scale of the input, or names of old.
        return models.get_model(name, weights=weights, progress=False)


def _from_file(
    models: Any, name: str, state: Mapping[str, Any], settings: TorchvisionSettings, classes: int
) -> Any:
    model = _bare_model(models, name, classes, state)
    other = other_classes(model.state_dict(), state)
    if other and settings.output == "embedding":
        # The classifier is left out anyway.
        model = _bare_model(models, name, other[1], state)
    load_into(model, state, f"torchvision:{name}")
    return model


def _bare_model(models: Any, name: str, classes: int, state: Mapping[str, Any]) -> Any:
    extra = {}
    if name in ("inception_v3", "googlenet"):
        extra = {
            # They take pictures scaled as their published weights' transform does to a scale of their own.
            "transform_input": True,
            # What only helps to train them is left out of many checkpoints.
            "aux_logits": not state or any("aux" in key.lower() for key in state),
            "init_weights": not state,
        }
    return models.get_model(name, weights=None, num_classes=classes, **extra)


def _described(transform: Any) -> dict[str, Any]:
    """What a preset of torchvision does, as it says itself."""
    kinds = (bool, int, float, str, list, tuple)
    return {
        "name": type(transform).__name__,
        **{name: value for name, value in vars(transform).items() if isinstance(value, kinds)},
        "interpolation": str(getattr(transform.interpolation, "value", transform.interpolation)),
    }


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
