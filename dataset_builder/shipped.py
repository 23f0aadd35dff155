"""The recipes that ship: what they are for, and copies of them to change."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from targets.base.errors import InputError
from targets.base.files import atomic
from targets.base.text import nearest, shortlist


def recipes_folder() -> Path:
    """Where the shipped recipes lie."""
    return Path(str(files("dataset_builder") / "recipes"))


def shipped_recipes() -> dict[str, str]:
    """Name -> title of every shipped recipe, by name."""
    found = {}
    for path in sorted(recipes_folder().glob("*.toml")):
        title = tomllib.loads(path.read_text(encoding="utf-8")).get("title")
        # Lists of seeds lie beside the recipes; they have no title.
        if title is not None:
            found[path.stem] = str(title)
    return found


def shipped_recipe(name: str) -> Path:
    """The file of a shipped recipe.

    Raises:
        InputError: no such recipe.
    """
    known = sorted(shipped_recipes())
    if name not in known:
        raise InputError(
            f"unknown recipe '{name}'{nearest(name, known)}; shipped: {shortlist(known)}, "
            "or give a file ending in .toml"
        )
    return recipes_folder() / f"{name}.toml"


def copy_recipe(name: str, folder: Path) -> list[Path]:
    """Copy a shipped recipe with all shipped files that it needs; nothing is overwritten.

    That is every file beside it that it names, and where it names a detector that another shipped recipe
    makes the faces for (``x.json``, made by ``x.toml``), that recipe as well.

    Args:
        name: of the recipe.
        folder: new, empty, or without files of these names.

    Returns:
        The copies, the recipe first.

    Raises:
        InputError: no such recipe, or a file is there already.
    """
    sources = list(dict.fromkeys(_with_references(shipped_recipe(name))))
    copies = [folder / source.name for source in sources]
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} must be a folder, and is a file")
    there = [copy for copy in copies if copy.exists()]
    if there:
        raise InputError(f"{shortlist(there)} would be overwritten; name another folder, or remove it first")
    for source, copy in zip(sources, copies, strict=True):
        with atomic(copy) as temporary:
            shutil.copyfile(source, temporary)
    return copies


def _with_references(path: Path) -> Iterator[Path]:
    yield path
    for text in _texts(tomllib.loads(path.read_text(encoding="utf-8"))):
        named = path.parent / text
        maker = named.with_suffix(".toml")
        if text.endswith(".toml") and named.is_file():
            yield from _with_references(named)
        elif text.endswith(".json") and maker.is_file():
            yield from _with_references(maker)


def _texts(value: Any) -> Iterator[str]:
    """Every text in a TOML document that may be a file's name."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str) and "\n" not in value:
        yield value
