"""Diffusers checkpoints: loaded from safetensors only, whole, with the digests of all their files."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.hashing import folder_digests, settings_digest
from targets.base.strict_json import parse_json
from targets.base.text import nearest, shortlist
from targets.torch_checkpoint import check_whole

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
        -> SHA-256), files (one digest over all files of its parts: schedulers, tokenizers, configurations),
        package versions.

    Raises:
        MissingExtraError: diffusers or torch is not installed.
        InputError: no such class or checkpoint, or one without a part, or some of its weights, that its
            pipeline needs.
    """
    torch = require("torch", "diffusion", PURPOSE)
    found = pipeline_class(kind)
    folder = _folder(found, checkpoint, revision)
    index = _index(folder)
    facts = _facts(checkpoint, revision, folder, index)
    arguments = {"dtype": getattr(torch, precision), "use_safetensors": True, "local_files_only": True}
    try:
        networks = _networks(folder, index, arguments, checkpoint)
        pipeline = found.from_pretrained(str(folder), **networks, **arguments)
    except (OSError, ValueError) as error:
        raise InputError(f"checkpoint {checkpoint} can't be loaded: {_first_line(error)}") from None
    pipeline.set_progress_bar_config(disable=True)
    return pipeline, facts


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


def _index(folder: Path) -> dict[str, tuple[str, str]]:
    """Part -> package and class, as model_index.json names them; parts that are left out are not there.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / "model_index.json"
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        parts = {
            name: value for name, value in content.items() if isinstance(value, list) and len(value) == 2
        }
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{path} must name the parts of a pipeline ({_first_line(error)})") from None
    return {name: (value[0], value[1]) for name, value in parts.items() if all(value)}


def _networks(
    folder: Path, index: dict[str, tuple[str, str]], arguments: dict[str, Any], checkpoint: str
) -> dict[str, Any]:
    """The networks among the parts, each loaded by itself: a pipeline would not tell what they lack.

    Raises:
        InputError: a part lacks weights, which would be made up anew at each run.
    """
    torch, diffusers = (require(name, "diffusion", PURPOSE) for name in ("torch", "diffusers"))
    packages = {"diffusers": diffusers, "transformers": require("transformers", "diffusion", PURPOSE)}
    networks = {}
    for name, (package, kind) in index.items():
        home = packages.get(package) or getattr(diffusers.pipelines, package, None)
        found = getattr(home, kind, None)
        if isinstance(found, type) and issubclass(found, torch.nn.Module):
            networks[name], report = found.from_pretrained(  # type: ignore[attr-defined]
                str(folder / name), output_loading_info=True, **arguments
            )
            mismatched = [str(key) for key, *_ in report["mismatched_keys"]]
            check_whole(f"{checkpoint}, part {name}", report["missing_keys"], mismatched)
    return networks


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _facts(
    checkpoint: str, revision: str | None, folder: Path, index: dict[str, tuple[str, str]]
) -> dict[str, Any]:
    # The hub's cache names a snapshot's folder by its commit, which pins every file.
    commit = folder.name if folder.parent.name == "snapshots" else revision
    files = folder_digests(folder, "*", *(f"{name}/**/*" for name in index))
    weights = {name: digest for name, digest in files.items() if name.endswith(".safetensors")}
    packages = ("diffusers", "torch", "transformers")
    return {
        "checkpoint": checkpoint,
        "revision": commit,
        "weights": weights,
        "files": commit if folder.parent.name == "snapshots" else settings_digest(files),
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
