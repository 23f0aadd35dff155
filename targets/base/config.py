"""TOML files read into frozen pydantic models; an unknown key names the nearest known one."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from targets.base.errors import InputError
from targets.base.text import nearest


class Settings(BaseModel):
    """Base of every configuration model: frozen, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


ModelT = TypeVar("ModelT", bound=BaseModel)


def read_toml(path: Path) -> dict[str, Any]:
    """Read one TOML file.

    Raises:
        InputError: the file is missing, not UTF-8 or not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"no such file: {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"can't read {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} must be TOML: {error}") from None


def validated(model: type[ModelT], data: Mapping[str, Any], where: str) -> ModelT:
    """Build ``model`` from ``data``.

    Raises:
        InputError: with the first fault as one line; ``where`` names the file or option.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{where}: {_one_line(model, error)}") from None


def _one_line(model: type[BaseModel], error: ValidationError) -> str:
    faults = error.errors(include_url=False)
    # A misspelt key also shows as a missing one; the misspelling is what to mend.
    fault = next((item for item in faults if item["type"] == "extra_forbidden"), faults[0])
    place = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        key = str(fault["loc"][-1])
        hint = nearest(key, _known_keys(model, fault["loc"][:-1]))
        return f"unknown key '{place}'{hint}"
    if fault["type"] == "missing":
        return f"key '{place}' is missing"
    came = repr(fault.get("input"))
    came = came if len(came) <= 80 else came[:77] + "..."
    return f"'{place}': {fault['msg']}, got {came}" if place else str(fault["msg"])


def _known_keys(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Follow ``path`` through nested models and list the fields allowed there."""
    current: Any = model
    for part in path:
        fields = getattr(current, "model_fields", None)
        if fields is not None and part in fields:
            current = _model_inside(fields[part].annotation)
    fields = getattr(current, "model_fields", {})
    return [field.alias or name for name, field in fields.items()]


def _model_inside(annotation: Any) -> Any:
    """Find the model in ``X``, ``X | None``, ``tuple[X, ...]`` or ``dict[str, X]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_inside(argument)
        if found is not None:
            return found
    return None
