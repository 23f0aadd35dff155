"""Checkpoints of torch modules: read without pickle, unwrapped, and loaded whole or not at all."""

from __future__ import annotations

import pickle
import re
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.strict_json import parse_json
from targets.base.text import counted, excerpt, shortlist

PURPOSE = "a checkpoint"
State = dict[str, Any]
# Under which names training scripts keep a state dictionary; averaged weights only where there are no others.
_NESTED = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "module", "weights")
_AVERAGED = ("state_dict_ema", "ema_state_dict", "model_ema", "ema_model", "ema")
# What wraps a module: data parallelism, and torch.compile, which may also wrap a part of it.
_PARALLEL, _COMPILED = "module", "_orig_mod"
_PART = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})(?P<suffix>\.\w+)")
# Counters of batch normalisation, which old checkpoints lack and no answer depends on.
_COUNTER = "num_batches_tracked"


def read_state(path: Path) -> State:
    """Read a state dictionary without unpickling anything but tensors.

    Args:
        path: a file of tensors (.pth, .pt, .bin, .safetensors); the index (.index.json) or a part
            (NAME-00001-of-00002.safetensors) of a checkpoint in several files; or a folder that holds one
            such checkpoint.

    Returns:
        Name -> tensor. Dictionaries around it (``state_dict``, ``model``, ...) and the prefixes that data
        parallelism and torch.compile leave (``module.``, ``_orig_mod.``) are gone.

    Raises:
        InputError: no such file, a part is missing, or not a dictionary of tensors.
    """
    state: State = {}
    for file in _files(path):
        state |= _unwrapped(_read(file), file)
    return {_bare(name): tensor for name, tensor in state.items()}


def _files(path: Path) -> list[Path]:
    """The files of a checkpoint, in order."""
    if path.is_dir():
        return _files(_only_checkpoint(path))
    if not path.is_file():
        raise InputError(f"no such checkpoint: {path}")
    part = _PART.fullmatch(path.name)
    if path.suffix == ".json":
        names = _indexed(path)
    elif part:
        count = int(part["count"])
        names = [f"{part['stem']}-{n:05}-of-{count:05}{part['suffix']}" for n in range(1, count + 1)]
    else:
        names = [path.name]
    files = [path.with_name(name) for name in names]
    absent = [file.name for file in files if not file.is_file()]
    if absent:
        raise InputError(f"checkpoint {path} lacks {counted(len(absent), 'part')}: {shortlist(absent, 3)}")
    return files


def _only_checkpoint(folder: Path) -> Path:
    for pattern in ("*.index.json", "*.safetensors", "*.pth", "*.pt", "*.bin"):
        found = [file for file in sorted(folder.glob(pattern)) if not _PART.fullmatch(file.name)]
        if len(found) > 1:
            raise InputError(f"folder {folder} holds {shortlist([file.name for file in found])}: name one")
        if found:
            return found[0]
    raise InputError(f"folder {folder} holds no checkpoint (.safetensors, .pth, .pt, .bin or .index.json)")


def _indexed(index: Path) -> list[str]:
    try:
        names = sorted(set(parse_json(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError):
        names = []
    if not names or any(Path(name).name != name for name in names):
        raise InputError(
            f"{index} must be the index of a checkpoint, with a 'weight_map' of weight -> file beside it"
        )
    return names


def _read(path: Path) -> Any:
    torch = require("torch", "clip", PURPOSE)
    if path.suffix == ".safetensors":
        safetensors = require("safetensors", "clip", PURPOSE)
        try:
            return require("safetensors.torch", "clip", PURPOSE).load_file(path)
        except (safetensors.SafetensorError, OSError) as error:
            raise InputError(f"{path} can't be read as safetensors ({error})") from None
    # The options of a training script, which many of them keep beside the weights.
    torch.serialization.add_safe_globals([Namespace])
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError) as error:
        reason = excerpt(str(error).split(". ")[0], 120)
        raise InputError(
            f"{path} must be a file of tensors that loads without pickle ({reason}); of a whole model save "
            "its state_dict()"
        ) from None


def _unwrapped(state: Any, path: Path) -> State:
    """The dictionary of tensors inside the dictionaries that a training script has put around it."""
    is_tensor = require("torch", "clip", PURPOSE).is_tensor
    if not isinstance(state, Mapping):
        raise InputError(f"{path} must hold a dictionary of tensors, got {type(state).__name__}")
    named = [name for name in (*_NESTED, *_AVERAGED) if isinstance(state.get(name), Mapping)]
    if named:
        return _unwrapped(state[named[0]], path)
    tensors = {str(name): value for name, value in state.items() if is_tensor(value)}
    if not tensors:
        raise InputError(
            f"{path} must hold a dictionary of tensors, by itself or as {shortlist(_NESTED[:4])}; "
            f"it holds {shortlist(list(state), 6) or 'nothing'}"
        )
    return tensors


def _bare(name: str) -> str:
    parts = [part for part in name.split(".") if part != _COMPILED]
    while len(parts) > 1 and parts[0] == _PARALLEL:
        del parts[0]
    return ".".join(parts)


def load_into(model: Any, state: Mapping[str, Any], target: str) -> None:
    """Load a state dictionary that must fit: every weight of the model, in its shape, and none besides.

    Args:
        model: a torch module.
        state: as ``read_state`` gives it; a prefix that all of the model's weights share in it (``model.`` of
            Lightning) is taken off.
        target: the spec, for the message.

    Raises:
        InputError: with the real cause: other classes, or the first weights that are missing, too many or of
            another shape.
    """
    own = model.state_dict()
    state = _of_model(state, own)
    check_fits(own, state, target)
    # The model says of which version its parts are; without that some torchvision models refuse.
    versioned = OrderedDict(state)
    versioned._metadata = own._metadata  # type: ignore[attr-defined]
    model.load_state_dict(versioned, strict=False)


def _of_model(state: Mapping[str, Any], own: Mapping[str, Any]) -> Mapping[str, Any]:
    """The weights under the one prefix below which the whole model lies, else all as they are."""
    needed = [name for name in own if not name.endswith(_COUNTER)]
    first = needed[0] if needed else ""
    prefixes = {name.removesuffix(first) for name in state if name.endswith(f".{first}")}
    fitting = [prefix for prefix in sorted(prefixes) if all(prefix + name in state for name in needed)]
    if first in state or len(fitting) != 1:
        return state
    return {name[len(fitting[0]) :]: state[name] for name in state if name.startswith(fitting[0])}


def check_fits(own: Mapping[str, Any], state: Mapping[str, Any], target: str) -> None:
    """See that a state dictionary has a model's weights, no more and no less, in their shapes.

    Raises:
        InputError: it has not.
    """
    classes = other_classes(own, state)
    if classes is not None:
        raise InputError(
            f"target {target}: the checkpoint has {classes[1]} classes and the model {classes[0]}: name its "
            f"classes, all {classes[1]} in their order, with --set 'labels=[...]'"
        )
    missing = [name for name in own if name not in state and not name.endswith(_COUNTER)]
    unexpected = [name for name in state if name not in own]
    shapes = [
        f"{name} is {_shape(state[name])} and should be {_shape(own[name])}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    faults = [
        f"{counted(len(names), 'weight')} {what} ({shortlist(names, 3)})"
        for what, names in (("missing", missing), ("too many", unexpected), ("of another shape", shapes))
        if names
    ]
    if faults:
        raise InputError(
            f"target {target}: the checkpoint belongs to another architecture: {'; '.join(faults)}"
        )


def _shape(tensor: Any) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"


def other_classes(own: Mapping[str, Any], state: Mapping[str, Any]) -> tuple[int, int] | None:
    """Classes of the model and of the checkpoint, where those of the last layers are all that differs."""
    if {name for name in own if not name.endswith(_COUNTER)} - set(state):
        return None
    shapes = [
        (own[name].shape, state[name].shape)
        for name in own
        if name in state and own[name].shape != state[name].shape
    ]
    pairs = {(one[0], other[0]) if len(one) and one[1:] == other[1:] else None for one, other in shapes}
    has_weight = any(len(one) > 1 for one, _ in shapes)
    return pairs.pop() if has_weight and len(pairs) == 1 else None


def check_whole(
    target: str, missing: Iterable[str], mismatched: Iterable[str] = (), unused: Iterable[str] = ()
) -> None:
    """See that a checkpoint had every weight of its model: what it lacks would be random numbers.

    Args:
        target: the spec or the part of a pipeline, for the message.
        missing: names of weights that the checkpoint lacks.
        mismatched: those that it has in another shape.
        unused: what it holds besides; no fault by itself, but often the reason.

    Raises:
        InputError: a weight is missing or of another shape.
    """
    lacking, other, left = sorted(missing), sorted(mismatched), sorted(unused)
    faults = [
        f"{what} {counted(len(names), 'weight')} ({shortlist(names, 3)})"
        for what, names in (("lacks", lacking), ("has in another shape", other))
        if names
    ]
    if faults:
        besides = f"; it also holds {shortlist(left, 3)}, which the model has not" if left else ""
        raise InputError(
            f"{target}: the checkpoint {' and '.join(faults)}, and a model with random numbers in "
            f"their place would answer otherwise at each run{besides}; pass a checkpoint of this very model"
        )


@contextmanager
def whole_loads(target: str) -> Iterator[None]:
    """Refuse what a library loads with ``strict=False`` while weights are missing.

    timm leaves a classifier at random where the numbers of classes differ, and says so in a log only.

    Raises:
        InputError: a weight was missing.
    """
    module = require("torch.nn", "clip", PURPOSE).Module
    original = module.load_state_dict

    def checked(self: Any, state_dict: Mapping[str, Any], *arguments: Any, **keywords: Any) -> Any:
        result = original(self, state_dict, *arguments, **keywords)
        missing = [name for name in result.missing_keys if not name.endswith(_COUNTER)]
        check_whole(target, missing, (), result.unexpected_keys)
        return result

    module.load_state_dict = checked
    try:
        yield
    finally:
        module.load_state_dict = original
