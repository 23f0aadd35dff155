"""What the adapters on torch share: device, precision, digests of weights, and errors in plain words."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.text import excerpt, nearest, shortlist
from targets.protocol import NO_ANSWER, FloatArray, Scores

Precision = Literal["auto", "float32", "float16", "bfloat16"]
OVERFLOW_HINT = {NO_ANSWER: "half precision may have overflowed, try --set precision=float32"}


def device_of(name: str) -> str:
    """The device to use: "auto" takes a GPU where there is one.

    Raises:
        InputError: a GPU was asked for and there is none.
    """
    torch = require("torch", "clip", "a target on torch")
    there = bool(torch.cuda.is_available())
    if name == "auto":
        return "cuda" if there else "cpu"
    if name.startswith("cuda") and not there:
        raise InputError(f"device '{name}' was asked for, but torch {torch.__version__} sees no GPU")
    return name


def precision_of(name: Precision, device: str) -> str:
    """The precision to use: "auto" is float16 on a GPU and float32 elsewhere."""
    if name != "auto":
        return name
    return "float16" if device.startswith("cuda") else "float32"


def exact(compute: Callable[[Any], Any], device: str, dtype: Any) -> Callable[[Any], Any]:
    """``compute`` without the short-cut that cuDNN takes in float32 convolutions unless told not to."""
    torch = require("torch", "clip", "a target on torch")
    if not device.startswith("cuda") or dtype is not torch.float32:
        return compute

    def exactly(batch: Any) -> Any:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return compute(batch)

    return exactly


def sent(array: npt.NDArray[Any], device: str) -> Any:
    """The array as a tensor on ``device``; a GPU that is computing is not waited for."""
    tensor = require("torch", "clip", "a target on torch").from_numpy(array)
    # From ordinary memory the copy would wait for all that the GPU has been given before.
    return (
        tensor.pin_memory().to(device, non_blocking=True) if device.startswith("cuda") else tensor.to(device)
    )


def state_digest(module: Any) -> str:
    """SHA-256 over the names, shapes, types and bytes of a module's state, in order of their names."""
    torch = require("torch", "clip", "a target on torch")
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} ".encode())
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(plain.view(torch.uint8).numpy() if plain.numel() else b"")
    return digest.hexdigest()


def versions_of(*packages: str) -> dict[str, str]:
    """Package -> version, for a card."""
    return {package: version(package) for package in packages}


def probability(model: Any, output: str, target: str) -> Callable[[Any], Any]:
    """What turns cosines (n, c) into the probabilities that an image-and-text model is trained for.

    Args:
        model: with ``logit_scale`` (its logarithm), and ``logit_bias`` where it was trained with a sigmoid.
        output: "softmax" over the concepts (CLIP; Radford et al. 2021) or "sigmoid" of each (SigLIP; Zhai et
            al. 2023).
        target: the spec, for the message.

    Raises:
        InputError: the model was trained for the other one.
    """
    scale, bias = getattr(model, "logit_scale", None), getattr(model, "logit_bias", None)
    if scale is None:
        raise InputError(f"{target} has no logit_scale, which output={output} needs")
    factor = float(scale.detach().exp())
    if output == "softmax":
        if bias is not None:
            raise InputError(
                f"{target} was trained with a sigmoid (it has a logit_bias): set output=sigmoid, or cosine"
            )
        return lambda cosine: (factor * cosine).softmax(dim=-1)
    if bias is None:
        raise InputError(
            f"{target} was trained with a softmax (no logit_bias): set output=softmax, or cosine"
        )
    offset = float(bias.detach())
    if not offset:
        # open_clip puts a zero where a checkpoint has none.
        raise InputError(f"{target}: the checkpoint has no logit_bias, which output=sigmoid needs")
    return lambda cosine: (factor * cosine + offset).sigmoid()


@contextmanager
def loading(target: str, how: str) -> Iterator[None]:
    """Turn what libraries raise while they load weights into one line.

    Args:
        target: the spec, for the message.
        how: how to get the weights.

    Raises:
        InputError: weights that can't be found or fetched, or of another architecture.
    """
    try:
        yield
    except InputError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, AttributeError, ImportError) as error:
        text = excerpt(error) or type(error).__name__
        if "state_dict" in str(error) or "size mismatch" in str(error):
            raise InputError(
                f"target {target}: the checkpoint belongs to another architecture ({text})"
            ) from None
        raise InputError(f"target {target}: the model can't be loaded ({text}); {how}") from None


def answers(values: Any) -> Scores:
    """Scores from an (n, c) tensor; a row that is not finite throughout counts as no answer."""
    rows: FloatArray = values.float().cpu().numpy().astype(np.float64)
    whole = [bool(np.isfinite(row).all()) for row in rows]
    rows[np.logical_not(whole)] = np.nan
    return Scores(rows, tuple(None if fine else NO_ANSWER for fine in whole))


def unit(vectors: Any) -> Any:
    """(..., d) float32 vectors scaled to length 1, of any finite length; NaN for one of length 0.

    The largest component is divided out first: in float32 the square of 1e20 overflows.
    """
    scaled = vectors / vectors.abs().amax(dim=-1, keepdim=True)
    return scaled / scaled.norm(dim=-1, keepdim=True)


def mean_direction(vectors: Any, what: str) -> Any:
    """(d,): the normalised mean of the directions of (n, d) vectors.

    Raises:
        InputError: a vector, or the mean, has no direction; ``what`` names them in the message.
    """
    mean = unit(unit(vectors).mean(dim=0))
    if not bool(mean.isfinite().all()):
        raise InputError(f"{what}: the model's vector must have a finite length above 0")
    return mean


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """Label names as concepts: a name that occurs twice (ImageNet's "crane") gets its number behind it."""
    return tuple(
        f"{name} #{index}" if names.count(name) > 1 or not name.strip() else name
        for index, name in enumerate(names)
    )


def chosen_columns(concepts: Sequence[str], labels: Sequence[str], target: str) -> list[int]:
    """Positions of ``concepts`` among a classifier's labels; all of them where none are chosen.

    Raises:
        InputError: a concept that is not a label.
    """
    position: Mapping[str, int] = {name: index for index, name in enumerate(labels)}
    for name in concepts:
        if name not in position:
            known = shortlist(labels, 4)
            raise InputError(
                f"target {target} has no concept '{name}'{nearest(name, labels)}; it has {known}"
            )
    return [position[name] for name in concepts] if concepts else list(range(len(labels)))
