"""A recipe: which faces, which edits, which detectors, how strict a filter. One TOML file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from pydantic import Field

from dataset_builder.detect.settings import Attributes, GroundTruth
from dataset_builder.filter import FilterSettings
from dataset_builder.schema.taxonomy import DEFAULT_TAXONOMY, Taxonomy, load_taxonomy
from dataset_builder.stages import Edit, Source
from targets.base.config import Settings, read_toml, validated
from targets.base.errors import InputError
from targets.base.text import nearest, shortlist


class Detect(Settings):
    """Which detectors decide; what is left out is decided by the generator's own knowledge.

    Attributes:
        distortion: JSON file of a trained model, beside the recipe.
        age: spec of a target with a concept "age".
        attributes: settings of the attribute detector, told apart by ``method``.
        audit_sample: share of candidates, drawn at random, that are run through every rule: how often a rule
            is broken can't be read from first reasons, which depend on the order of the rules.
    """

    distortion: str | None = None
    age: str | None = None
    attributes: Attributes = GroundTruth()
    audit_sample: float = Field(default=0.05, ge=0, le=1)


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
    if name.endswith(".toml"):
        return Path(name)
    shipped = Path(str(files("dataset_builder") / "recipes"))
    known = sorted(path.stem for path in shipped.glob("*.toml") if not path.stem.endswith("_seeds"))
    if name not in known:
        raise InputError(
            f"unknown recipe '{name}'{nearest(name, known)}; shipped: {shortlist(known)}, "
            "or give a file ending in .toml"
        )
    return shipped / f"{name}.toml"


def load_recipe(path: Path) -> tuple[Recipe, Taxonomy]:
    """Read a recipe and the taxonomy it names.

    Raises:
        InputError: missing file, unknown key, an attribute or group that the taxonomy doesn't have.
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
    return recipe, taxonomy
