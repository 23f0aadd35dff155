"""The build: plan -> generate -> edit -> detect -> filter -> publish, each stage resumable.

Generated pictures lie as shards under ``DIR/.build``, one a planned batch, named by a digest of what they
were made from; a killed run finds its shards again and makes only what is missing. Detection keeps its
answers in the score cache. Filter and publication are cheap and run anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from dataset_builder.detect.attributes import attribute_detector, planned_cost, rule_order
from dataset_builder.detect.distortion import load_distortion_model
from dataset_builder.detect.evidence import Candidate, Detectors, gather
from dataset_builder.filter import judge
from dataset_builder.methods import editor, source_generator
from dataset_builder.publish import Judged, publish
from dataset_builder.recipe import Recipe, load_recipe
from dataset_builder.schema.faces import EditRequest, SourceRequest
from dataset_builder.schema.taxonomy import Taxonomy
from dataset_builder.store import Store, StoredFace, read_faces
from targets.base.errors import InputError
from targets.base.files import remove_leftovers
from targets.base.progress import progress

WORK_FOLDER = ".build"
SOURCES_FILE, CANDIDATES_FILE = "sources.parquet", "candidates.parquet"

ItemT = TypeVar("ItemT")


@dataclass(frozen=True)
class Plan:
    """What a build will do.

    Attributes:
        sources: source faces to make.
        edits: transformed faces to make.
        calls: detector -> pictures it will be asked about, at most.
        hours: estimated hours of making pictures.
        device: what those hours are hours of ("GPU" or "CPU").
        dollars: what the attribute detector may cost, about; None where it is free or has no prices.
    """

    sources: int
    edits: int
    calls: dict[str, int]
    hours: float
    device: str
    dollars: float | None = None

    def lines(self) -> list[str]:
        """The plan in words, a line a fact."""
        return [
            f"source faces      {self.sources:,}",
            f"transformed faces {self.edits:,}",
            *(f"{f'calls, {name}':18}{count:,} pictures at most" for name, count in self.calls.items()),
            f"estimated         {self.hours:.1f} {self.device} hours",
            *([] if self.dollars is None else [f"estimated         ${self.dollars:,.2f} for attributes"]),
        ]


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
    """

    path: Path
    out: Path
    limit: int | None = None
    prebuilt: Path | None = None
    show_progress: bool = True
    budget: float | None = None

    def plan(self) -> Plan:
        """Count what ``run`` will do, without doing it."""
        recipe, taxonomy = load_recipe(self.path)
        generator, edits = source_generator(recipe, self.path.parent), editor(recipe)
        sources = len(limited(generator.requests(), self.limit))
        transformed = sources * len(edits.attributes())
        seconds = sources * generator.seconds_per_picture + transformed * edits.seconds_per_picture
        calls = {}
        if recipe.detect.distortion:
            calls["distortion"] = transformed
        if recipe.detect.age:
            calls["age"] = sources + transformed
        if recipe.detect.attributes.method != "ground-truth":
            calls["attributes"] = sources + transformed
        dollars = planned_cost(recipe.detect.attributes, taxonomy, sources, transformed)
        return Plan(sources, transformed, calls, seconds / 3600, edits.device, dollars)

    def run(self) -> Built:
        """Build and publish the dataset.

        Raises:
            InputError: bad recipe, missing file, a detector that doesn't fit.
        """
        recipe, taxonomy = load_recipe(self.path)
        detectors = self._detectors(recipe, taxonomy)
        remove_leftovers(self.out)
        store = Store(self.out / WORK_FOLDER)
        if self.prebuilt is None:
            sources = self._generate(recipe, store)
            transformed = self._edit(recipe, store, sources)
        else:
            sources, transformed = self._prebuilt(self.prebuilt)
        judged = self._judge(recipe, taxonomy, detectors, sources, transformed)
        used = detectors.targets_used()
        publish(self.out, recipe, taxonomy, sources, judged, used)
        costs = detectors.attributes.summary() if detectors.attributes else []
        return Built(self.out, judged, used, tuple(costs))

    def _generate(self, recipe: Recipe, store: Store) -> list[StoredFace]:
        generator = source_generator(recipe, self.path.parent)
        requests = limited(generator.requests(), self.limit)
        faces: list[StoredFace] = []
        with progress("source faces", len(requests), enabled=self.show_progress) as advance:
            for batch in batched(requests, recipe.batch_size):
                inputs = {
                    "settings": generator.settings(),
                    "requests": [asdict(request) for request in batch],
                }
                shard = store.shard("generate", inputs)
                if not shard.exists():
                    empty = [""] * len(batch)
                    store.write(shard, generator.make(batch), empty, empty)
                faces += store.read(shard)
                advance(len(batch))
        return faces

    def _edit(self, recipe: Recipe, store: Store, sources: Sequence[StoredFace]) -> list[StoredFace]:
        edits = editor(recipe)
        jobs = [(face, name) for face in sources if not face.fault for name in edits.attributes()]
        faces: list[StoredFace] = []
        with progress("transformed faces", len(jobs), enabled=self.show_progress) as advance:
            for batch in batched(jobs, recipe.batch_size):
                shard = store.shard(
                    "edit", {"settings": edits.settings(), "jobs": [_job(*job) for job in batch]}
                )
                if not shard.exists():
                    made = edits.edit([EditRequest(face.face(), name) for face, name in batch])
                    names, digests = [name for _, name in batch], [face.sha256 for face, _ in batch]
                    store.write(shard, made, names, digests)
                faces += store.read(shard)
                advance(len(batch))
        return faces

    def _prebuilt(self, folder: Path) -> tuple[list[StoredFace], list[StoredFace]]:
        for name in (SOURCES_FILE, CANDIDATES_FILE):
            if not (folder / name).is_file():
                raise InputError(
                    f"{folder} must hold {SOURCES_FILE} and {CANDIDATES_FILE}; {name} is missing"
                )
        sources = limited(read_faces(folder / SOURCES_FILE), self.limit)
        known = {face.sha256 for face in sources}
        transformed = [face for face in read_faces(folder / CANDIDATES_FILE) if face.source_sha256 in known]
        return sources, transformed

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
        return Detectors(distortion=model, age=recipe.detect.age, attributes=attributes, order=order)

    def _judge(
        self,
        recipe: Recipe,
        taxonomy: Taxonomy,
        detectors: Detectors,
        sources: Sequence[StoredFace],
        transformed: Sequence[StoredFace],
    ) -> list[Judged]:
        by_digest = {face.sha256: face for face in sources}
        pairs = [(by_digest[face.source_sha256], face) for face in transformed]
        candidates = [_candidate(source, face) for source, face in pairs]
        cache = self.out / WORK_FOLDER / "scores"
        evidence, distortion = gather(candidates, detectors, cache, show_progress=self.show_progress)
        return [
            Judged(source, face, item, judge(item, taxonomy, recipe.filter), score)
            for (source, face), item, score in zip(pairs, evidence, distortion, strict=True)
        ]


def _job(face: StoredFace, attribute: str) -> dict[str, Any]:
    return {
        "sha256": face.sha256,
        "identity": face.identity,
        "variation": face.variation,
        "demographic": face.demographic,
        "attribute": attribute,
    }


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


def batched(items: Sequence[ItemT], size: int) -> Iterator[list[ItemT]]:
    """Consecutive batches of at most ``size``."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
