"""The build: plan -> generate -> edit -> detect -> filter -> publish, each stage resumable.

Generated pictures lie as shards under ``DIR/.build``, one a planned batch, named by a digest of what they
were made from; a killed run finds its shards again and makes only what is missing. Detection keeps its
answers in the score cache. Filter and publication are cheap and run anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from dataset_builder.detect.attributes import attribute_detector, check_server, planned_cost, rule_order
from dataset_builder.detect.distortion import load_distortion_model
from dataset_builder.detect.evidence import Candidate, Detectors, age_loader, embedder_of, gather
from dataset_builder.filter import judge
from dataset_builder.folder import BUILD_FILE, CARD_FILE, WORK_FOLDER, is_build
from dataset_builder.making import Making, Share, check_labels
from dataset_builder.methods import editor, source_generator
from dataset_builder.plan import Plan
from dataset_builder.publish import Judged, publish
from dataset_builder.recipe import Recipe, load_recipe
from dataset_builder.schema.faces import SourceRequest
from dataset_builder.schema.taxonomy import Taxonomy
from dataset_builder.stages import RenderSource
from dataset_builder.store import Store, StoredFace, read_faces
from dataset_builder.workers import make_in_processes
from targets.base.errors import InputError
from targets.base.files import remove_leftovers
from targets.base.text import counted, shortlist
from targets.cache import forget_unpinned

SOURCES_FILE, CANDIDATES_FILE = "sources.parquet", "candidates.parquet"


@dataclass(frozen=True)
class Built:
    """What a build has published.

    Attributes:
        directory: of the dataset.
        judged: every candidate with its verdict.
        detectors: role -> digest of the weights that decided.
        costs: what the detectors took, a line a fact.
    """

    directory: Path
    judged: list[Judged]
    detectors: dict[str, str]
    costs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Build:
    """One build of a recipe.

    Attributes:
        path: of the recipe.
        out: of the dataset.
        limit: most identities, over all groups; None for all.
        prebuilt: folder with sources.parquet and candidates.parquet, made earlier from the same recipe; None
            to make the pictures.
        show_progress: a bar on a terminal, a line a minute in a log.
        budget: dollars for the attribute detector, in place of the recipe's; None leaves that in force.
        processes: how many make pictures, each on a GPU of its own where there are several.
    """

    path: Path
    out: Path
    limit: int | None = None
    prebuilt: Path | None = None
    show_progress: bool = True
    budget: float | None = None
    processes: int = 1

    def plan(self) -> Plan:
        """Count what ``run`` will do, without doing it."""
        recipe, taxonomy = load_recipe(self.path)
        making = self._making(recipe, taxonomy)
        generator, edits = making.generator, making.editor
        requests = limited(generator.requests(), self.limit)
        sources = len(requests)
        transformed = sum(request.edited for request in requests) * len(edits.attributes())
        seconds = sources * generator.seconds_per_picture + transformed * edits.seconds_per_picture
        calls: dict[str, int] = {}
        if recipe.detect.distortion:
            calls["distortion"] = transformed
        if recipe.detect.age:
            calls["age"] = sources + transformed
        if recipe.detect.attributes.method != "ground-truth":
            calls["attributes"] = sources + transformed
        dollars = planned_cost(recipe.detect.attributes, taxonomy, sources, transformed)
        return Plan(sources, transformed, calls, seconds / 3600, edits.device, dollars)

    def faults(self) -> Iterator[InputError]:
        """What would stop ``run``, in the order of the stages; no picture is made."""
        recipe, taxonomy = load_recipe(self.path)
        detect = recipe.detect
        checks: list[Callable[[], object]] = []
        if self.prebuilt is None:
            checks += self._making_checks(recipe, taxonomy)
        checks += [
            lambda: self._detectors(recipe, taxonomy),
            lambda: self._check_distortion(recipe),
            lambda: age_loader(detect.age_detector, self.path.parent, check=True),
            lambda: check_server(detect.attributes, self.path.parent),
        ]
        try:
            refuse_foreign(self.out)
        except InputError as error:
            yield error
            return
        known: set[str] = set()
        for check in checks:
            try:
                check()
            except InputError as error:
                if str(error) not in known:
                    known.add(str(error))
                    yield error

    def _making_checks(self, recipe: Recipe, taxonomy: Taxonomy) -> list[Callable[[], object]]:
        folder, work = self.path.parent, self.out / WORK_FOLDER
        return [
            lambda: source_generator(recipe, taxonomy, folder, work).check(),
            lambda: check_labels(source_generator(recipe, taxonomy, folder, work).requests()),
            lambda: editor(recipe, taxonomy, folder, work).check(),
        ]

    def check_making(self) -> None:
        """Refuse to make pictures where a stage that makes them lacks something.

        Raises:
            InputError: naming it.
        """
        refuse_foreign(self.out)
        for check in self._making_checks(*load_recipe(self.path)):
            check()

    def run(self) -> Built:
        """Build and publish the dataset.

        Raises:
            InputError: bad recipe, missing file, a detector that doesn't fit, another build at work.
        """
        for fault in self.faults():
            raise fault
        recipe, taxonomy = load_recipe(self.path)
        detectors = self._detectors(recipe, taxonomy)
        faces = None if self.prebuilt is None else self._prebuilt(self.prebuilt, recipe, taxonomy)
        claim(self.out)
        used: dict[str, str] = {}
        with alone(self.out):
            remove_leftovers(self.out, (BUILD_FILE, CARD_FILE))
            work = self.out / WORK_FOLDER
            for folder in (work, *(path for path in work.rglob("*") if path.is_dir())):
                remove_leftovers(folder)
            if faces is None:
                making = self._making(recipe, taxonomy)
                faces = self._made(making)
                used |= making.generator.detectors()
            sources, transformed = faces
            judged = self._judge(recipe, taxonomy, detectors, sources, transformed)
            used |= detectors.targets_used()
            publish(self.out, recipe, taxonomy, sources, judged, used)
            forget_unpinned(self._scores)
        costs = detectors.attributes.summary() if detectors.attributes else []
        return Built(self.out, judged, used, tuple(costs))

    def make(self, share: Share | None = None) -> tuple[list[StoredFace], list[StoredFace]]:
        """Make what is missing of the pictures: all of them, or a share.

        Raises:
            InputError: bad recipe, missing file, or what a process of its own could not do.
        """
        recipe, taxonomy = load_recipe(self.path)
        claim(self.out)
        return self._made(self._making(recipe, taxonomy), share)

    def _made(self, making: Making, share: Share | None = None) -> tuple[list[StoredFace], list[StoredFace]]:
        if share is None and self.processes > 1:
            make_in_processes(
                self.path, self.out, self.limit, self.processes, show_progress=self.show_progress
            )
        return making.make(limited(making.generator.requests(), self.limit), share or Share())

    def _making(self, recipe: Recipe, taxonomy: Taxonomy) -> Making:
        work = self.out / WORK_FOLDER
        return Making(
            source_generator(recipe, taxonomy, self.path.parent, work),
            editor(recipe, taxonomy, self.path.parent, work),
            Store(work),
            recipe.batch_size,
            self.show_progress,
        )

    def _prebuilt(
        self, folder: Path, recipe: Recipe, taxonomy: Taxonomy
    ) -> tuple[list[StoredFace], list[StoredFace]]:
        for name in (SOURCES_FILE, CANDIDATES_FILE):
            if not (folder / name).is_file():
                raise InputError(
                    f"{folder} must hold {SOURCES_FILE} and {CANDIDATES_FILE}; {name} is missing"
                )
        sources, transformed = (read_faces(folder / name) for name in (SOURCES_FILE, CANDIDATES_FILE))
        obstacle = _of_another_recipe(recipe, taxonomy, sources, transformed)
        if obstacle:
            raise InputError(
                f"{folder} is not of {self.path}: it {obstacle}; build from the recipe that the candidates "
                "were made from"
            )
        chosen = limited(sources, self.limit)
        known = {face.key for face in chosen}
        return chosen, [face for face in transformed if face.source_key in known]

    @property
    def _scores(self) -> Path:
        """Folder of the detectors' cached scores."""
        return self.out / WORK_FOLDER / "scores"

    def _detectors(self, recipe: Recipe, taxonomy: Taxonomy) -> Detectors:
        name = recipe.detect.distortion
        model = load_distortion_model(self.path.parent / name) if name else None
        attributes = attribute_detector(
            recipe.detect.attributes,
            taxonomy,
            self.path.parent,
            self.out / WORK_FOLDER,
            budget=self.budget,
            show_progress=self.show_progress,
        )
        order = rule_order(recipe.detect.attributes, taxonomy, recipe.filter, recipe.detect.audit_sample)
        age = age_loader(recipe.detect.age_detector, self.path.parent)
        return Detectors(distortion=model, age=age, attributes=attributes, order=order)

    def _check_distortion(self, recipe: Recipe) -> None:
        name = recipe.detect.distortion
        if name and (self.path.parent / name).is_file():
            embedder_of(load_distortion_model(self.path.parent / name)).close()

    def _judge(
        self,
        recipe: Recipe,
        taxonomy: Taxonomy,
        detectors: Detectors,
        sources: Sequence[StoredFace],
        transformed: Sequence[StoredFace],
    ) -> list[Judged]:
        by_key = {face.key: face for face in sources}
        pairs = [(by_key[face.source_key], face) for face in transformed]
        candidates = [_candidate(source, face) for source, face in pairs]
        evidence, distortion = gather(candidates, detectors, self._scores, show_progress=self.show_progress)
        return [
            Judged(source, face, item, judge(item, taxonomy, recipe.filter), score)
            for (source, face), item, score in zip(pairs, evidence, distortion, strict=True)
        ]


def refuse_foreign(out: Path) -> None:
    """Keep out of folders in which publishing could replace what no build has written.

    Raises:
        InputError: it holds files, and none of a build.
    """
    if not is_build(out) and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(
            f"--out {out} must be a new or empty folder, or one that a build made: what it holds could be "
            "replaced"
        )


def claim(out: Path) -> None:
    """Make ``out`` a build's folder.

    Raises:
        InputError: it holds files, and none of a build.
    """
    refuse_foreign(out)
    (out / WORK_FOLDER).mkdir(parents=True, exist_ok=True)


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Be the only build that publishes into a folder.

    Raises:
        InputError: another one is at work there.
    """
    try:
        held = FileLock(out / WORK_FOLDER / "lock").acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"another build is at work in {out}: wait until it has ended, or name another --out"
        ) from None
    with held:
        yield


def _of_another_recipe(
    recipe: Recipe, taxonomy: Taxonomy, sources: Sequence[StoredFace], transformed: Sequence[StoredFace]
) -> str:
    """What shows that faces were not made from a recipe; empty where nothing does."""
    named, found = recipe.edit.attributes, {face.attribute for face in transformed}
    if others := sorted(found.difference(named)):
        return f"holds {shortlist(others)}, which edit.attributes doesn't name ({shortlist(named)})"
    if missing := [name for name in named if name not in found]:
        return f"holds no {shortlist(missing)}, which edit.attributes names"
    if others := sorted({face.demographic for face in sources}.difference(taxonomy.groups)):
        return f"holds faces of {shortlist(others)}, which are no groups of taxonomy '{recipe.taxonomy}'"
    if isinstance(recipe.source, RenderSource):
        expected = set(range(recipe.source.variations))
        made: dict[tuple[str, str], set[int]] = {}
        for face in sources:
            made.setdefault((face.demographic, face.identity), set()).add(face.variation)
        for (_, identity), variations in made.items():
            if variations != expected:
                return (
                    f"holds {counted(len(variations), 'variation')} of {identity}, where source.variations "
                    f"says {len(expected)} (numbered from 0)"
                )
    known = {face.key for face in sources}
    orphans = sum(face.source_key not in known for face in transformed)
    return f"holds no source face of {counted(orphans, 'candidate')}" if orphans else ""


def _candidate(source: StoredFace, transformed: StoredFace) -> Candidate:
    return Candidate(
        attribute=transformed.attribute,
        source=source.ref(),
        transformed=transformed.ref(),
        source_labels=source.labels,
        transformed_labels=transformed.labels,
        source_age=source.age,
        transformed_age=transformed.age,
        distorted=transformed.distorted,  # type: ignore[arg-type]
        fault=source.fault or transformed.fault,
        group=source.demographic,
    )


RequestT = TypeVar("RequestT", SourceRequest, StoredFace)


def limited(requests: Sequence[RequestT], limit: int | None) -> list[RequestT]:
    """The requests of the first ``limit`` identities, one group after the other in turn."""
    if limit is None:
        return list(requests)
    by_group: dict[str, dict[str, None]] = {}
    for request in requests:
        by_group.setdefault(request.demographic, {}).setdefault(request.identity)
    turns = max(map(len, by_group.values()), default=0)
    in_turn = [
        (group, list(identities)[turn])
        for turn in range(turns)
        for group, identities in by_group.items()
        if turn < len(identities)
    ]
    chosen = set(in_turn[:limit])
    return [request for request in requests if (request.demographic, request.identity) in chosen]
