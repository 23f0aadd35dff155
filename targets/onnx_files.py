"""What the adapters on onnxruntime share: every file of a model, and the execution providers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from targets.base.errors import InputError
from targets.base.extras import require
from targets.base.hashing import file_digest
from targets.base.text import excerpt, nearest, shortlist

PURPOSE = "reading which files an ONNX model has"


def model_digests(model: Path) -> dict[str, str]:
    """Name -> SHA-256 of the model and of every file that its tensors lie in (external data).

    Raises:
        MissingExtraError: the package onnx is not installed.
        InputError: not an ONNX model, or an external file that is missing or outside the model's folder.
    """
    names = sorted({*_locations(model)})
    return {model.name: file_digest(model), **{name: file_digest(_beside(model, name)) for name in names}}


def _locations(model: Path) -> Iterator[str]:
    onnx = require("onnx", "onnx", PURPOSE)
    decode_error = require("google.protobuf.message", "onnx", PURPOSE).DecodeError
    try:
        content = onnx.load(model, load_external_data=False)
    except (decode_error, ValueError) as error:
        reason = excerpt(error, 120)
        raise InputError(f"{model} can't be loaded as an ONNX model ({reason})") from None
    for tensor in _tensors(content, onnx.TensorProto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield from (entry.value for entry in tensor.external_data if entry.key == "location")


def _tensors(message: Any, kind: type) -> Iterator[Any]:
    """Every tensor below a protobuf message, wherever the format may have one: subgraphs, functions, ..."""
    if isinstance(message, kind):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if hasattr(value, "add") else (value,):
                yield from _tensors(part, kind)


def _beside(model: Path, name: str) -> Path:
    pure = PurePosixPath(name.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts:
        raise InputError(f"{model}: its external data must lie in its folder, '{name}' does not")
    path = model.parent / pure
    if not path.is_file():
        raise InputError(f"{model} has tensors in the file '{name}', which is not beside it; put it there")
    return path


def known_providers(runtime: Any, wanted: Sequence[str], target: str) -> list[str]:
    """The execution providers as given, if this onnxruntime has each of them.

    Raises:
        InputError: none is given, or one is misspelt or not part of what is installed; onnxruntime itself
            would take another in its place.
    """
    there = runtime.get_available_providers()
    for name in wanted:
        if name not in there:
            raise InputError(
                f"target {target}: onnxruntime has no provider '{name}' here{nearest(name, there)}; "
                f"it has {shortlist(there)}"
            )
    return list(wanted)


def providers_in_force(sessions: Sequence[Any], wanted: Sequence[str], target: str) -> list[str]:
    """The execution providers that all sessions use.

    Raises:
        InputError: a provider that was asked for could not be started.
    """
    for session in sessions:
        lost = [name for name in wanted if name not in session.get_providers()]
        if lost:
            raise InputError(
                f"target {target}: provider {shortlist(lost)} could not be started, onnxruntime fell back to "
                f"{shortlist(session.get_providers())}; leave it out of 'providers', or mend its libraries"
            )
    return list(sessions[0].get_providers()) if sessions else list(wanted)
