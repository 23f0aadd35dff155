"""Whether a diffusers checkpoint is there and complete, found out without loading its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dataset_builder.generate.checkpoint import NEEDED, PURPOSE, pipeline_class
from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.strict_json import parse_json
from targets.base.text import excerpt, shortlist

GUIDED = "StableDiffusionPipeline"
INDEX_FILE = "model_index.json"
CONFIG_FILE = "config.json"  # of a part that has weights


def check_checkpoint(
    checkpoint: str, revision: str | None, kind: str = "DiffusionPipeline", *, guided: bool = False
) -> None:
    """Find out whether a checkpoint can be loaded.

    Of one on the hub only its index is fetched: that shows that it exists and may be read.

    Args:
        checkpoint: a hub id, or a directory that holds a model_index.json.
        revision: commit, tag or branch of a hub id.
        kind: the pipeline class of diffusers to load it into.
        guided: whether semantic guidance is to edit with it.

    Raises:
        MissingExtraError: diffusers, transformers or torch is not installed.
        InputError: no such checkpoint, one without a part or its weights, or one that can't be guided.
    """
    for module in ("torch", "transformers", "accelerate"):
        require(module, "diffusion", PURPOSE)
    pipeline_class(kind)
    index = _index(checkpoint, revision)
    parts = {name for name, value in index.items() if isinstance(value, list | tuple) and value[0]}
    if guided:
        _check_guided(checkpoint, str(index.get("_class_name")), parts)
    folder = Path(checkpoint)
    if not folder.is_dir():
        return
    missing = sorted(name for name in parts if not (folder / name).is_dir())
    if missing:
        raise InputError(f"checkpoint {checkpoint} names {shortlist(missing)}, but has no such folder")
    for name in sorted(parts):
        if (folder / name / CONFIG_FILE).is_file() and not list((folder / name).glob("*.safetensors")):
            raise InputError(f"checkpoint {checkpoint} must hold weights as .safetensors in {name}, has none")


def _index(checkpoint: str, revision: str | None) -> dict[str, Any]:
    """The content of a checkpoint's model_index.json."""
    path = Path(checkpoint) / INDEX_FILE
    if not Path(checkpoint).is_dir():
        hub = require("huggingface_hub", "diffusion", PURPOSE)
        try:
            path = Path(hub.hf_hub_download(checkpoint, INDEX_FILE, revision=revision))
        except (OSError, ValueError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise InputError(
                f"no checkpoint '{checkpoint}': neither a directory here nor to be had from the hub "
                f"({excerpt(lines[0])})"
            ) from None
    if not path.is_file():
        raise InputError(f"checkpoint {checkpoint} must hold a {INDEX_FILE}, and there is none")
    try:
        return dict(parse_json(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} must be a JSON object: {error}") from None


def _check_guided(checkpoint: str, kind: str, parts: set[str]) -> None:
    if not kind.startswith(GUIDED):
        raise InputError(
            "semantic guidance (edit.method = 'sega') needs Stable Diffusion 1 or 2, checkpoint "
            f"{checkpoint} is for {kind}"
        )
    missing = [name for name in NEEDED if name not in parts]
    if missing:
        raise InputError(
            f"checkpoint {checkpoint} must have {shortlist(NEEDED)} for semantic guidance; it has no "
            f"{shortlist(missing)}"
        )
