"""A recipe: which faces, which edits, which detectors, how strict a filter. One TOML file."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from pydantic import Field

from dataset_builder.detect.settings import AgeDetector, Attributes, GroundTruth
from dataset_builder.filter import FilterSettings
from dataset_builder.schema.taxonomy import DEFAULT_TAXONOMY, Taxonomy, load_taxonomy
from dataset_builder.shipped import shipped_recipe
from dataset_builder.stages import COMPOSED, Edit, PhotosSource, RenderSource, Source
from targets.base.config import Settings, read_toml, validated
from targets.base.errors import InputError
from targets.base.text import nearest, shortlist


class Detect(Settings):
    """Which detectors decide; what is left out is decided by the generator's own knowledge.

    Attributes:
        distortion: JSON file of a trained model, beside the recipe.
        age: a target with a concept "age": its spec, or a table with its settings.
        attributes: settings of the attribute detector, told apart by ``method``.
        audit_sample: share of candidates, drawn at random, that are run through every rule: how often a rule
            is broken can't be read from first reasons, which depend on the order of the rules.
    """

    distortion: str | None = None
    age: str | AgeDetector | None = None
    attributes: Attributes = GroundTruth()
    audit_sample: float = Field(default=0.05, ge=0, le=1)

    @property
    def age_detector(self) -> AgeDetector | None:
        """The age detector with its settings, if a target decides."""
        return AgeDetector(target=self.age) if isinstance(self.age, str) else self.age


class Recipe(Settings):
    """The content of a recipe file.

    Attributes:
        name: what the dataset is called.
        title: one line for its card.
        licence: of the published pictures, as a hub identifier.
        taxonomy: shipped name or file beside the recipe.
        source, edit, detect, filter: the stages.
        batch_size: pictures per planned batch, unless one identity or one source's edits are more; a
            resumed run recomputes whole batches.
        notes: paragraphs for the dataset card (what the pictures are, limits, licences of models).
    """

    name: str
    title: str
    licence: str
    taxonomy: str = DEFAULT_TAXONOMY
    source: Source
    edit: Edit
    detect: Detect = Detect()
    filter: FilterSettings = FilterSettings()
    batch_size: int = Field(default=16, ge=1)
    notes: tuple[str, ...] = ()


def find_recipe(name: str) -> Path:
    """The file of a shipped recipe ("demo") or a path ending in .toml.

    Raises:
        InputError: no such recipe.
    """
    return Path(name) if name.endswith(".toml") else shipped_recipe(name)


def load_recipe(path: Path) -> tuple[Recipe, Taxonomy]:
    """Read a recipe and the taxonomy it names.

    Raises:
        InputError: missing file, unknown key, an attribute or group that the taxonomy doesn't have, seeds
            that no heads can be made from.
    """
    recipe = validated(Recipe, read_toml(path), str(path))
    name = recipe.taxonomy
    taxonomy = load_taxonomy(str(path.parent / name) if name.endswith(".toml") else name)
    for attribute in recipe.edit.attributes:
        if attribute not in taxonomy.attributes:
            hint = nearest(attribute, taxonomy.attributes)
            raise InputError(
                f"{path}: edit.attributes names '{attribute}', not in taxonomy '{taxonomy.name}'{hint}"
            )
        taxonomy.row(attribute)
    _check_groups(recipe.source, taxonomy.groups, path.parent)
    return recipe, taxonomy


def _check_groups(source: Source, groups: Collection[str], folder: Path) -> None:
    """Check the file that lists the sources, where it is there: a build from candidates needs none."""
    if isinstance(source, RenderSource):
        if (folder / source.seeds).exists():
            seeds_of(folder / source.seeds, groups)
    elif isinstance(source, PhotosSource):
        if (folder / source.faces).exists():
            _check_photos(folder / source.faces, groups)
    elif source.names != COMPOSED and (folder / source.names).exists():
        from dataset_builder.generate.names import read_names

        read_names(folder / source.names, groups)


def _check_photos(path: Path, groups: Collection[str]) -> None:
    from dataset_builder.read import read_config
    from targets.base.tables import read_table

    data = read_config(str(path), "sources") if path.is_dir() else read_table(path)
    # What else may be wrong with it is found when its pictures are read.
    if data is None or "demographic" not in data.columns:
        return
    faulty = data.text("fault") if path.is_dir() and "fault" in data.columns else [""] * len(data)
    for group, fault in zip(data.text("demographic"), faulty, strict=True):
        if not fault and group.strip() and group.strip() not in groups:
            raise InputError(f"{path} names group '{group.strip()}', {_groups_are(groups)}")


def _groups_are(groups: Collection[str]) -> str:
    known = shortlist(list(groups), 20)
    return f"but the taxonomy's groups are {known}; leave it out, or add it to the taxonomy"


def seeds_of(path: Path, groups: Collection[str]) -> dict[str, tuple[int, ...]]:
    """Group code -> seeds, from a TOML file's ``[seeds]``.

    Raises:
        InputError: no such table, a group that the taxonomy doesn't have or rendering doesn't know, a group
            without seeds, or a seed that is there twice or is no whole number from 0 on.
    """
    from dataset_builder.heads.identity import GROUPS

    seeds = read_toml(path).get("seeds")
    if not isinstance(seeds, dict) or not seeds:
        raise InputError(f"{path} must have a table [seeds] with a list of whole numbers a group")
    for group, numbers in seeds.items():
        if group not in groups:
            raise InputError(f"{path}: seeds names '{group}', {_groups_are(groups)}")
        if group not in GROUPS:
            raise InputError(
                f"{path}: seeds must name groups of {', '.join(GROUPS)} to render, got '{group}'"
            )
        whole = isinstance(numbers, list) and all(type(number) is int and number >= 0 for number in numbers)
        if not whole or not numbers:
            raise InputError(
                f"{path}: seeds.{group} must be a list of whole numbers from 0 on, at least one, "
                f"got {numbers!r}"
            )
        twice = next((number for place, number in enumerate(numbers) if number in numbers[:place]), None)
        if twice is not None:
            raise InputError(f"{path}: seeds.{group} may hold each seed once, {twice} is there twice")
    return {group: tuple(numbers) for group, numbers in seeds.items()}
