"""A checkpoint file for an architecture of open_clip: its weights, preprocessing and activation."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from targets.base.config import Settings
from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.strict_json import parse_json
from targets.base.text import nearest, shortlist
from targets.torch_checkpoint import read_state

PURPOSE = "the target 'open-clip'"
CONFIG, QUICK = "open_clip_config.json", "-quickgelu"
# Numbers that OpenAI's archives hold beside the weights.
OPENAI = ("input_resolution", "context_length", "vocab_size")


class Preprocessing(Settings):
    """How pictures reach a model: resized, scaled to [0, 1], less ``mean``, over ``std``."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    resize_mode: Literal["shortest", "longest", "squash"] = "shortest"
    fill_color: int = 0


def from_file(open_clip: Any, model_name: str, file: Path, arguments: Mapping[str, Any]) -> Any:
    """The model with a file's weights; open_clip reads one file and takes one prefix off, we the others."""
    if file.suffix in (".npz", ".npy"):
        return open_clip.create_model(model_name, str(file), **arguments)
    safetensors = require("safetensors.torch", "clip", PURPOSE)
    state = read_state(file)
    if set(OPENAI) <= set(state) and not (open_clip.get_model_config(model_name) or {}).get("quick_gelu"):
        raise InputError(
            f"{file} holds OpenAI's weights, trained with QuickGELU, and {model_name} computes GELU: "
            f"QuickGELU mismatch; name {model_name}{QUICK}"
        )
    state = {key: tensor for key, tensor in state.items() if key not in OPENAI}
    with TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.safetensors"
        safetensors.save_file({key: tensor.contiguous().clone() for key, tensor in state.items()}, bare)
        return open_clip.create_model(model_name, str(bare), **arguments)


def beside(file: Path) -> dict[str, Any]:
    """The content of open_clip_config.json beside a checkpoint file, empty where there is none."""
    path = (file if file.is_dir() else file.parent) / CONFIG
    if not path.is_file():
        return {}
    try:
        return dict(parse_json(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise InputError(f"{path} must be a JSON object with 'model_cfg' and 'preprocess_cfg'") from None


def preprocessing_of(
    open_clip: Any, model: str, file: Path, given: str | Preprocessing | None
) -> dict[str, Any]:
    """The preprocessing that a checkpoint file was trained with.

    Raises:
        InputError: nothing says which, or an unknown tag.
    """
    tags = open_clip.list_pretrained_tags_by_model(model)
    published = {tag: open_clip.get_pretrained_cfg(model, tag) for tag in tags}
    known = {
        tag: {name: found[name] for name in Preprocessing.model_fields if name in found}
        for tag, found in published.items()
    }
    if isinstance(given, Preprocessing):
        return given.model_dump()
    if given is not None:
        if given not in known:
            raise InputError(f"open_clip has no weights '{given}' of {model}{nearest(given, tags)}")
        return known[given]
    own = beside(file).get("preprocess_cfg")
    if own and {"mean", "std"} <= set(own):
        return {name: value for name, value in own.items() if name != "size"}
    distinct = {json.dumps(value, sort_keys=True): value for value in known.values()}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    several = f"the published weights have {len(distinct)}" if distinct else "no weights are published"
    named = f"a tag ({shortlist(tags, 4)}) or " if tags else ""
    raise InputError(
        f"target open-clip:{model}/{file}: which preprocessing was it trained with? {several}; put its "
        f"{CONFIG} beside it, or set preprocessing to {named}a table, as in --set 'preprocessing="
        '{"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}\''
    )


def preprocessing_of_folder(folder: Path, given: str | Preprocessing | None) -> dict[str, Any] | None:
    """The preprocessing to use in place of a model folder's own, None for that.

    Raises:
        InputError: nothing says which: open_clip would take CLIP's for any model.
    """
    if isinstance(given, Preprocessing):
        return given.model_dump()
    own = beside(folder).get("preprocess_cfg") or {}
    if given is None and (not (folder / CONFIG).is_file() or {"mean", "std"} <= set(own)):
        return None
    raise InputError(
        f"target open-clip:{folder}: which preprocessing was it trained with? {CONFIG} must have a "
        "'preprocess_cfg' with mean and std, or set preprocessing to a table of them"
    )


def check_folder_activation(folder: Path) -> None:
    """Say where the configurations of open_clip and of transformers in one folder differ in QuickGELU.

    Raises:
        InputError: they do.
    """
    path, model = folder / "config.json", beside(folder).get("model_cfg") or {}
    try:
        other = parse_json(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError:
        return  # open_clip does not read it
    if not isinstance(other, dict) or other.get("model_type") != "clip":
        return
    act = (other.get("vision_config") or {}).get("hidden_act", "quick_gelu")
    quick = bool(model.get("quick_gelu"))
    if (act == "quick_gelu") != quick:
        raise InputError(
            f"target open-clip:{folder}: QuickGELU mismatch: {CONFIG} says {_act(quick)}, config.json beside "
            f"it hidden_act '{act}'; mend the wrong one"
        )


def check_quick_gelu(
    open_clip: Any, model: str, pretrained: str | None, file: Path | None, name: str
) -> None:
    """Say where weights meet another activation than they were trained with, which open_clip only warns of.

    Raises:
        InputError: the tag, or the configuration beside a file, says otherwise than the architecture.
    """
    if ":" in model or pretrained is None:
        return
    has = bool((open_clip.get_model_config(model) or {}).get("quick_gelu"))
    plain = model.removesuffix(QUICK)
    other = plain if model != plain else plain + QUICK
    there = other in open_clip.list_models()
    says = open_clip.get_pretrained_cfg(model, pretrained) if file is None else beside(file).get("model_cfg")
    if says and bool(says.get("quick_gelu")) != has and (file or there):
        raise InputError(
            f"target open-clip:{name}: QuickGELU mismatch: the weights were trained with {_act(not has)} and "
            f"{model} computes {_act(has)}" + (f": name {other}" if there else "")
        )
    if file and not says and there:
        warnings.warn(
            f"{file} doesn't say which activation it was trained with, and {model} computes {_act(has)}; "
            f"with {_act(not has)} (OpenAI's weights have QuickGELU) name {other}",
            stacklevel=2,
        )


def _act(quick: bool) -> str:
    return "QuickGELU" if quick else "GELU"
