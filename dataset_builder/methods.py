"""From a recipe's method names to the code that makes and edits faces; loaded when first needed."""

from __future__ import annotations

from pathlib import Path

from dataset_builder.recipe import Recipe
from dataset_builder.schema.faces import Editor, SourceGenerator
from targets.base.config import read_toml
from targets.base.errors import InputError


def source_generator(recipe: Recipe, folder: Path) -> SourceGenerator:
    """The generator that the recipe's ``[source]`` names.

    Raises:
        MissingExtraError: its packages are not installed.
        InputError: a file it needs is missing or wrong.
    """
    from dataset_builder.generate.render import RenderedHeads
    from dataset_builder.heads.renderer import RenderSettings

    source = recipe.source
    rendering = RenderSettings(size=source.size, samples=source.samples, quality=source.quality)
    return RenderedHeads(seeds_of(folder / source.seeds), source.variations, rendering, source.processes)


def editor(recipe: Recipe) -> Editor:
    """The editor that the recipe's ``[edit]`` names.

    Raises:
        MissingExtraError: its packages are not installed.
    """
    from dataset_builder.edit.render import RenderedEdits

    return RenderedEdits(recipe.edit.distorted, recipe.edit.attributes, recipe.edit.processes)


def seeds_of(path: Path) -> dict[str, tuple[int, ...]]:
    """Group code -> seeds, from a TOML file's ``[seeds]``.

    Raises:
        InputError: no such table, or a seed that is no whole number.
    """
    seeds = read_toml(path).get("seeds")
    if not isinstance(seeds, dict) or not seeds:
        raise InputError(f"{path} must have a table [seeds] with a list of whole numbers a group")
    for group, numbers in seeds.items():
        if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
            raise InputError(f"{path}: seeds.{group} must be a list of whole numbers, got {numbers!r}")
    return {group: tuple(numbers) for group, numbers in seeds.items()}
