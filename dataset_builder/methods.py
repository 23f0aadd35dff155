"""From a recipe's method names to the code that makes and edits faces; loaded when first needed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataset_builder.beside import path_beside, settings_beside, spec_beside
from dataset_builder.recipe import Recipe, seeds_of
from dataset_builder.schema.faces import Editor, SourceGenerator
from dataset_builder.schema.taxonomy import Taxonomy
from dataset_builder.stages import (
    COMPOSED,
    DiffusionSource,
    InstructEdit,
    OwnEditor,
    PhotosSource,
    RenderSource,
    SegaEdit,
)
from targets.base.errors import InputError
from targets.catalogue import LoadedTarget, load_embedder
from targets.scoring import ask_target

if TYPE_CHECKING:
    from PIL import Image

    from dataset_builder.edit.instruct import InstructEditor
    from dataset_builder.edit.semantic import SemanticEdits
    from dataset_builder.generate.engine import CheckpointEngine
    from dataset_builder.generate.names import Name
    from dataset_builder.generate.one_face import OneFace
    from targets.card import TargetCard

BATCH_FILE = "batch_size.json"


def source_generator(recipe: Recipe, taxonomy: Taxonomy, folder: Path, work: Path) -> SourceGenerator:
    """The generator that the recipe's ``[source]`` names. No model is loaded yet.

    Args:
        recipe: as read.
        taxonomy: its groups.
        folder: that relative paths in the recipe start from.
        work: folder of the build, where a batch size that was found is kept.

    Raises:
        MissingExtraError: its packages are not installed.
        InputError: a file it needs is missing or wrong.
    """
    source = recipe.source
    if isinstance(source, DiffusionSource):
        from dataset_builder.generate.diffusion import DiffusionFaces

        embedder = SelectionEmbedder(source, folder) if source.kept < source.tries else None
        names = _names(source, taxonomy, folder)
        return DiffusionFaces(
            names, source, _engine(source, folder, work), embedder, _one_face(wanted=source.one_face)
        )
    if isinstance(source, PhotosSource):
        from dataset_builder.generate.photos import Photos

        return Photos(folder / source.faces, taxonomy.groups, _one_face(wanted=source.one_face))
    return _rendered(source, taxonomy.groups, folder)


def _rendered(source: RenderSource, groups: Collection[str], folder: Path) -> SourceGenerator:
    from dataset_builder.generate.render import RenderedHeads
    from dataset_builder.heads.renderer import RenderSettings

    rendering = RenderSettings(size=source.size, samples=source.samples, quality=source.quality)
    seeds = seeds_of(folder / source.seeds, groups)
    return RenderedHeads(seeds, source.variations, rendering, source.processes)


def editor(recipe: Recipe, taxonomy: Taxonomy, folder: Path, work: Path) -> Editor:
    """The editor that the recipe's ``[edit]`` names. No model is loaded yet.

    Args:
        recipe, taxonomy, folder, work: as for ``source_generator``.

    Raises:
        MissingExtraError: its packages are not installed.
        InputError: an attribute it can't apply, or sources it can't work with.
    """
    edit = recipe.edit
    if isinstance(edit, SegaEdit):
        return semantic_edits(recipe, taxonomy, folder, work)
    if isinstance(edit, InstructEdit):
        from dataset_builder.edit.instruct import InstructedEdits, find_editor, instructions_for, loader

        wanted = edit.editor
        known = _own_editor(wanted, folder) if isinstance(wanted, OwnEditor) else find_editor(wanted)
        return InstructedEdits(
            known,
            instructions_for(edit.attributes, edit.instructions),
            loader(known, edit.precision),
            seed=edit.seed,
            batch_size=edit.batch_size,
            one_face=_one_face(wanted=edit.one_face),
        )
    from dataset_builder.edit.render import RenderedEdits

    if not isinstance(recipe.source, RenderSource):
        raise InputError(
            f"edit.method = 'render' needs source.method = 'render', got '{recipe.source.method}'"
        )
    return RenderedEdits(edit.distorted, edit.attributes, edit.processes)


def semantic_edits(recipe: Recipe, taxonomy: Taxonomy, folder: Path, work: Path) -> SemanticEdits:
    """Semantic guidance on the sources' own checkpoint.

    Raises:
        InputError: the recipe's edits or sources are of another method.
    """
    from dataset_builder.edit.semantic import SemanticEdits

    source, edit = guided(recipe)
    return SemanticEdits(
        taxonomy,
        edit.attributes,
        source.engine(1),
        _engine(source, folder, work),
        pushed=edit.pushed,
        one_face=_one_face(wanted=edit.one_face),
    )


def guided(recipe: Recipe) -> tuple[DiffusionSource, SegaEdit]:
    """The settings of a recipe whose faces semantic guidance can edit.

    Raises:
        InputError: its edits or sources are of another method.
    """
    source, edit = recipe.source, recipe.edit
    if not isinstance(source, DiffusionSource) or not isinstance(edit, SegaEdit):
        raise InputError(
            "semantic guidance needs source.method = 'diffusion' and edit.method = 'sega', got "
            f"'{source.method}' and '{edit.method}'"
        )
    return source, edit


class SelectionEmbedder:
    """The embedder that chooses among the pictures of a name, loaded when first asked."""

    def __init__(self, source: DiffusionSource, folder: Path) -> None:
        self._spec, self._settings, self._folder = str(source.embedder), source.embedder_settings, folder

    @cached_property
    def _loaded(self) -> LoadedTarget:
        folder = self._folder
        found = load_embedder(
            spec_beside(self._spec, folder), settings_beside(self._settings, folder), "source.embedder"
        )
        # Where the recipe lies is no part of what its embedder is.
        loaded = replace(found, card=found.card.model_copy(update={"spec": self._spec}))
        if not loaded.card.pinned:
            # Sources that it chose would be found again after its weights have changed.
            raise InputError(
                f"source.embedder must be pinned by its weights, and the card of '{self._spec}' gives no "
                "'weights' (file name -> SHA-256); add them to its card, or set source.kept to source.tries"
            )
        return loaded

    @property
    def card(self) -> TargetCard:
        """What is known about it."""
        return self._loaded.card

    def embed(self, images: Sequence[Image.Image], /) -> Any:
        """Return (n, d) vectors; a NaN row where it finds no face."""
        return ask_target(self._loaded, images, [f"try {number}" for number in range(1, len(images) + 1)])


def _engine(source: DiffusionSource, folder: Path, work: Path) -> CheckpointEngine:
    from dataset_builder.generate.engine import shared_engine

    checkpoint = path_beside(source.checkpoint, folder)
    if source.batch_size == "auto":
        return shared_engine(checkpoint, source.revision, source.engine(1), work / BATCH_FILE)
    return shared_engine(checkpoint, source.revision, source.engine(source.batch_size))


def _one_face(*, wanted: bool) -> OneFace | None:
    from dataset_builder.generate.one_face import OneFace

    return OneFace() if wanted else None


def _names(source: DiffusionSource, taxonomy: Taxonomy, folder: Path) -> list[Name]:
    from dataset_builder.generate.names import composed_names, read_names

    known = (
        composed_names() if source.names == COMPOSED else read_names(folder / source.names, taxonomy.groups)
    )
    names = []
    for group in taxonomy.groups:
        own = [name for name in known if name.group == group and name.split == source.split]
        if len(own) < (source.identities or 1):
            raise InputError(
                f"source.names = '{source.names}' must have {source.identities or 1} names of group {group} "
                f"for '{source.split}', has {len(own)}"
            )
        names += own[: source.identities]
    return names


def _own_editor(own: OwnEditor, folder: Path) -> InstructEditor:
    from dataset_builder.edit.instruct import InstructEditor, check_call

    known = InstructEditor(path_beside(own.checkpoint, folder), own.pipeline)
    call = known.call if own.call is None else own.call
    check_call(own.pipeline, call)
    return replace(known, revision=own.revision, batched=own.batched, call=call)
