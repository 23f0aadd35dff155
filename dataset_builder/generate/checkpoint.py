"""Diffusers checkpoints: loaded from safetensors only, with the digest of every weight file."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.hashing import file_digest
from targets.base.text import nearest, shortlist

NEEDED = ("unet", "vae", "text_encoder", "tokenizer", "scheduler")
PURPOSE = "making faces with a diffusion model"


def load_pipeline(
    checkpoint: str, revision: str | None, precision: str, kind: str = "DiffusionPipeline"
) -> tuple[Any, dict[str, Any]]:
    """Load any diffusers checkpoint.

    Args:
        checkpoint: a hub id, or a directory that holds a model_index.json.
        revision: commit, tag or branch of a hub id; None for its default.
        precision: "float16", "bfloat16" or "float32".
        kind: the pipeline class of diffusers to load it into.

    Returns:
        The pipeline, on the CPU, and its facts: checkpoint, revision (the commit where known), weights (file
        -> SHA-256), package versions.

    Raises:
        MissingExtraError: diffusers or torch is not installed.
        InputError: no such class or checkpoint, or one without a part that its pipeline needs.
    """
    torch = require("torch", "diffusion", PURPOSE)
    found = pipeline_class(kind)
    folder = _folder(found, checkpoint, revision)
    try:
        pipeline = found.from_pretrained(
            str(folder), dtype=getattr(torch, precision), use_safetensors=True, local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise InputError(f"checkpoint {checkpoint} can't be loaded: {_first_line(error)}") from None
    pipeline.set_progress_bar_config(disable=True)
    return pipeline, _facts(checkpoint, revision, folder)


def pipeline_class(kind: str) -> Any:
    """A pipeline class of diffusers by its name.

    Raises:
        MissingExtraError: diffusers is not installed.
        InputError: it has no pipeline of that name.
    """
    diffusers = require("diffusers", "diffusion", PURPOSE)
    found = getattr(diffusers, kind, None)
    if not isinstance(found, type) or not issubclass(found, diffusers.DiffusionPipeline):
        known = [name for name in dir(diffusers) if name.endswith("Pipeline")]
        raise InputError(
            f"pipeline must name a pipeline class of diffusers, got '{kind}'{nearest(kind, known)}; "
            f"version {version('diffusers')} is installed"
        )
    return found


def _folder(found: Any, checkpoint: str, revision: str | None) -> Path:
    if Path(checkpoint).is_dir():
        if not (Path(checkpoint) / "model_index.json").is_file():
            raise InputError(f"checkpoint {checkpoint} must hold a model_index.json, and there is none")
        return Path(checkpoint)
    try:
        return Path(found.download(checkpoint, revision=revision, use_safetensors=True))
    except (OSError, ValueError) as error:
        raise InputError(
            f"no checkpoint '{checkpoint}': neither a directory here nor to be had from the hub "
            f"({_first_line(error)})"
        ) from None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _facts(checkpoint: str, revision: str | None, folder: Path) -> dict[str, Any]:
    # The hub's cache names a snapshot's folder by its commit.
    commit = folder.name if folder.parent.name == "snapshots" else revision
    weights = {
        path.relative_to(folder).as_posix(): file_digest(path)
        for path in sorted(folder.glob("*/*.safetensors"))
    }
    packages = ("diffusers", "torch", "transformers")
    return {
        "checkpoint": checkpoint,
        "revision": commit,
        "weights": weights,
        "versions": {package: version(package) for package in packages},
    }


def check_parts(pipeline: Any, checkpoint: str) -> None:
    """Refuse a pipeline that semantic guidance can't work with.

    Raises:
        InputError: naming the parts that are missing, or the part that is of another kind.
    """
    missing = [name for name in NEEDED if getattr(pipeline, name, None) is None]
    if missing:
        raise InputError(
            f"checkpoint {checkpoint} must have {shortlist(NEEDED)} for semantic guidance; "
            f"{type(pipeline).__name__} has no {shortlist(missing)}"
        )
    if getattr(pipeline, "text_encoder_2", None) is not None:
        raise InputError(
            f"checkpoint {checkpoint} must have one text encoder for semantic guidance (Stable Diffusion 1 "
            f"or 2), {type(pipeline).__name__} has more"
        )
