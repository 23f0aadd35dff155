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
from targets.base.hashing import folder_digests
from targets.base.strict_json import parse_json
from targets.base.text import nearest
from targets.torch_checkpoint import load_into, other_classes, read_state, whole_loads
from targets.torch_classifier import ClassifierSettings, Parts, TorchClassifier, TorchEmbedder, made
from targets.torch_tools import loading

PURPOSE = "the target 'timm'"
HOW = (
    "fetch it once on a machine with a network and pass the folder as timm:local-dir:FOLDER (config.json "
    "beside model.safetensors), or one checkpoint with --set weights_file=FILE"
)

LOCAL = "local-dir:"


class TimmSettings(ClassifierSettings):
    """Settings of the target, besides those of every classifier.

    Attributes:
        weights_file: a state dictionary (.pth, .safetensors, in one file or several) to load instead of
            downloading; timm's config.json beside it is read.
        labels: names of the classes, in their order, for a model that brings none or other ones.
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
    folder = Path(argument.removeprefix(LOCAL)) if argument.startswith(LOCAL) else None
    model = _model(timm, argument, chosen, folder)
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
        preprocessing=configuration,
        labels=labels,
        packages=("timm", "torchvision"),
        source=chosen.weights_file.name if chosen.weights_file else argument,
        licence=str(model.pretrained_cfg.get("license") or "unknown"),
        files=folder_digests(folder) if folder else {},
    )
    return made(parts, chosen)


def _model(timm: Any, name: str, settings: TimmSettings, folder: Path | None) -> Any:
    torch = require("torch", "timm", PURPOSE)
    file = settings.weights_file or _parts(folder)
    given = file is not None or settings.random_seed is not None
    spec = f"timm:{name}"
    with loading(spec, HOW), whole_loads(spec), torch.random.fork_rng():
        torch.manual_seed(settings.random_seed or 0)
        if file is None:
            return timm.create_model(name, pretrained=not given)
        known, arguments = _configuration(file)
        labels = settings.labels or known.get("label_names") or ()
        arguments |= {"pretrained_cfg_overlay": known, **({"num_classes": len(labels)} if labels else {})}
        state = read_state(file)
        model = timm.create_model(name, **arguments)
        other = other_classes(model.state_dict(), state)
        if other and settings.output == "embedding":
            # The classifier is left out anyway.
            model = timm.create_model(name, **{**arguments, "num_classes": other[1]})
        load_into(model, state, spec)
    return model


def _parts(folder: Path | None) -> Path | None:
    """The index of a folder's checkpoint in several files, of which timm would read one."""
    return next(iter(sorted(folder.glob("*.index.json"))), None) if folder else None


def _configuration(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Preprocessing and labels, and arguments of the model, in timm's config.json beside a checkpoint."""
    path = (file if file.is_dir() else file.parent) / "config.json"
    if not path.is_file():
        return {}, {}
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        known, arguments = (dict(content.get(name) or {}) for name in ("pretrained_cfg", "model_args"))
    except (ValueError, TypeError, AttributeError):
        raise InputError(f"{path} must be timm's config.json, a table with 'pretrained_cfg'") from None
    labels = content.get("label_names")
    return known | ({"label_names": labels} if known and labels else {}), arguments


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
