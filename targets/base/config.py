"""TOML files read into frozen pydantic models; an unknown key names the nearest known one."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from targets.base.errors import InputError
from targets.base.files import read_regular
from targets.base.text import excerpt, is_utf8, nearest


class Settings(BaseModel):
    """Base of every configuration model: frozen, no unknown keys, and nothing that JSON can't hold."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _is_json(cls, value: Any) -> Any:
        for place, fault in not_json(value):
            where = f"'{place}' must" if place else "must"
            raise ValueError(f"{where} be a finite number, a text, true or false, got {fault}")
        return value


def not_json(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """What UTF-8 JSON with integers of 64 bits can't hold inside ``value``: where, and what came."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from not_json(key, place)
            yield from not_json(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from not_json(item, place)
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield place, str(value)
    elif isinstance(value, int):
        if abs(value) > LARGEST_INTEGER:
            yield place, "an integer past 64 bits"
    elif isinstance(value, str):
        if not is_utf8(value):
            yield place, f"{excerpt(ascii(value), 80)}, which is not UTF-8"
    elif not (value is None or isinstance(value, PurePath | BaseModel)):
        yield place, excerpt(f"{type(value).__name__} {value}", 80)


LARGEST_INTEGER = 2**63 - 1


ModelT = TypeVar("ModelT", bound=BaseModel)
# What pydantic calls the members of a union that are no models.
_PLAIN_MEMBER = re.compile(r"(int|float|str|bool)$|constrained-|literal\[|(dict|tuple|list)\[")


def read_toml(path: Path) -> dict[str, Any]:
    """Read one TOML file.

    Raises:
        InputError: the file is missing, not UTF-8 or not TOML.
    """
    try:
        return tomllib.loads(read_regular(path).decode("utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"no such file: {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"can't read {path}: {error}") from None
    except RecursionError:
        raise InputError(f"{path} must be TOML: nested too deeply") from None
    except ValueError as error:
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
    # Of a union's members, the one that was meant is the one that got furthest.
    furthest = max(faults, key=lambda item: len(item["loc"]))
    fault = next((item for item in faults if item["type"] == "extra_forbidden"), furthest)
    path, known = _followed(model, fault["loc"])
    place = ".".join(path)
    if fault["type"] == "extra_forbidden":
        return f"unknown key '{place}'{nearest(str(fault['loc'][-1]), known)}"
    if fault["type"] == "missing":
        return f"key '{place}' is missing"
    message = fault["msg"]
    if fault["type"] == "union_tag_invalid":
        place = f"{place}.{str(fault['ctx']['discriminator']).strip(chr(39))}"
        message = f"must be one of {fault['ctx']['expected_tags']}"
        return f"'{place}' {message}, got '{fault['ctx']['tag']}'"
    if fault["type"] == "value_error":
        return f"'{place}': {fault['ctx']['error']}" if place else message
    came = repr(fault.get("input"))
    came = came if len(came) <= 80 else came[:77] + "..."
    return f"'{place}': {message}, got {came}" if place else message


def _followed(model: type[BaseModel], path: tuple[int | str, ...]) -> tuple[list[str], list[str]]:
    """Follow a fault's path through nested models.

    Returns:
        The keys a user wrote (pydantic's path also names the members of unions), and the keys that the last
        model on the way knows.
    """
    written: list[str] = []
    models = [model]
    known: list[str] = []
    for part in path:
        fields = [one.model_fields[str(part)] for one in models if part in one.model_fields]
        known = [field.alias or name for one in models for name, field in one.model_fields.items()]
        named = [one for one in models if _is_named(one, part)]
        if fields:
            written.append(str(part))
            models = [found for field in fields for found in _models_inside(field.annotation)]
        elif named:
            models = named
        elif not _PLAIN_MEMBER.match(str(part)):
            written.append(str(part))
    return written, known


def _is_named(model: type[BaseModel], part: int | str) -> bool:
    """Whether ``part`` stands for this member of a union: by its class, or by a tag it fixes."""
    tags = [getattr(field.annotation, "__args__", ()) for field in model.model_fields.values()]
    return part == model.__name__ or any(part in some for some in tags)


def _models_inside(annotation: Any) -> list[type[BaseModel]]:
    """Find the models in ``X``, ``X | Y``, ``tuple[X, ...]`` or ``dict[str, X]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for item in getattr(annotation, "__args__", ()) for found in _models_inside(item)]
