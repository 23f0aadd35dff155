"""Outcomes -> record: every estimate, test and check of an audit, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

import numpy as np

from dataset_builder.schema.taxonomy import DEFAULT_TAXONOMY, Taxonomy, load_taxonomy
from harness.attrition import attrition
from harness.axes import Axis, CoarseAxis, coarse_axis
from harness.cells import adjusted_cells, coarse_cells, demographic_cells, order_of_appearance
from harness.details import cell_details
from harness.discovery import discover
from harness.disparities import Row, compare, disparities, mark_filter_dependence
from harness.estimates import AttributeEstimates, estimate_attributes
from harness.failure_to_acquire import failures_to_acquire
from harness.gallery import RecognitionOptions
from harness.labels import label_warnings
from harness.outcomes import Labels, Outcomes
from harness.plans import Wanted, adjusted_details, planned_differences
from harness.policy import LARGEST, SMALLEST
from harness.probes import concepts_by_attribute
from harness.reasons import explained
from harness.recognition import recognise
from harness.record import (
    AuditSettings,
    Cell,
    Data,
    Detail,
    Discovery,
    Disparity,
    Family,
    PictureCheck,
    Record,
    no_claim,
)
from harness.selection import Candidates, selection_checks
from harness.stats.intervals import Method
from targets.base.errors import InputError
from targets.base.text import nearest, shortlist
from targets.card import TargetCard

SHOWN_CONCEPTS = 12
"""Most concepts that are compared and shown without anybody naming them."""


@dataclass(frozen=True)
class Options:
    """What shapes an audit's numbers.

    Attributes:
        method: of the intervals.
        level: of the intervals, in (0, 1); tests reject at 1 - level.
        by: axes of groups; the demographic groups are always there.
        concepts: which concepts are compared and shown; none for those the taxonomy names, or all if few.
        max_failures: share of pairs that may fail by a fault, in [0, 1].
        taxonomy: whose groups and attributes are expected, in its order; None to take the table's.
        margin: smallest change that matters, in units of the score: of equivalence tests and of discovery.
        half_width: wanted half-width; the record then says how many identities it takes.
        discover: whether to search all concepts.
        search_level: of the search, in (0, 1): 1 - level is its false discovery rate, and the error of its
            confirmation.
        seed: of the split of identities for discovery, and of the bootstrap.
        recognition: how an embedder's error rates are made.
    """

    method: Method = "cluster"
    level: float = 0.999
    by: tuple[Axis, ...] = ("demographic",)
    concepts: tuple[str, ...] = ()
    max_failures: float = 0.05
    taxonomy: Taxonomy | None = None
    margin: float | None = None
    half_width: float | None = None
    discover: bool = False
    search_level: float = 0.95
    seed: int = 0
    recognition: RecognitionOptions = field(default_factory=RecognitionOptions)

    def __post_init__(self) -> None:
        if self.discover and self.margin is None:
            raise InputError("--discover needs --margin M: a change of at most M is not worth finding")
        for name in ("margin", "half_width"):
            value = getattr(self, name)
            if value is not None and not SMALLEST <= value <= LARGEST:
                raise InputError(
                    f"--{name.replace('_', '-')} must be a positive number from {SMALLEST:g} to {LARGEST:g}, "
                    f"got {value}"
                )

    @property
    def groups_of(self) -> Taxonomy:
        """The taxonomy that knows ethnicity and sex of a group, and the concept of an attribute."""
        return self.taxonomy or load_taxonomy(DEFAULT_TAXONOMY)


# A bound beyond all floats is infinite, and what is infinite is told as undefined.
@np.errstate(over="ignore", under="ignore")
def make_record(
    outcomes: Outcomes,
    card: TargetCard,
    origin: dict[str, Any],
    options: Options,
    candidates: Candidates | None = None,
) -> Record:
    """Compute everything a record holds.

    Args:
        outcomes: of the pairs; a recogniser's comparisons are kept in them for the run's folder.
        card: of the target.
        origin: where the pairs come from.
        options: what to compute.
        candidates: outcomes of all candidates the pairs were filtered from; None where there are none.

    Raises:
        InputError: a group, attribute or concept that is asked for and not there.
    """
    labels, taxonomy, target = outcomes.labels, options.taxonomy, card.spec
    check_request(labels, outcomes.concepts, options)
    groups = order_of_appearance(labels.demographic, taxonomy.groups if taxonomy else _familiar(labels))
    attributes = order_of_appearance(labels.attribute, taxonomy.attributes if taxonomy else None)
    named = concepts_by_attribute(attributes, outcomes.concepts, options.groups_of)
    rows = planned_rows(attributes, outcomes.concepts, options.concepts, named)
    estimates = estimate_attributes(
        outcomes, attributes, groups, method=options.method, level=options.level, seed=options.seed
    )
    axes = [
        coarse_axis(axis, groups, options.groups_of.groups) for axis in options.by if axis != "demographic"
    ]
    details = cell_details(
        outcomes, estimates, rows, level=options.level, margin=options.margin, half_width=options.half_width
    )
    cells, families = _cells(outcomes, estimates, axes, target, details, options)
    details, inside = adjusted_details(details, target, len(rows) * len(groups))
    entries, more = _disparities(estimates, axes, target, rows, outcomes.concepts, options)
    wanted = Wanted(options.margin, options.half_width, options.level)
    entries, apart = planned_differences(entries, cells, wanted)
    selection, state = selection_checks(
        outcomes, estimates, candidates or Candidates(), rows, level=options.level
    )
    recognised = recognise(outcomes, target, attributes, groups, options.recognition, seed=options.seed)
    if recognised is not None and recognised[1].kinds:
        outcomes.compared = recognised[1]
    depends = {(s.attribute, s.concept, s.a, s.b): bool(s.depends_on_filter) for s in selection}
    acquired, lost = failures_to_acquire(outcomes, target, attributes, groups, level=options.level)
    record = Record(
        facedelta_version=version("facedelta"),
        data=_data(outcomes, origin),
        settings=_settings(options, outcomes),
        targets=(card,),
        groups=groups,
        attributes=attributes,
        concepts=outcomes.concepts,
        rows=tuple(rows),
        cells=tuple(cells),
        families=(*families, *inside, *more, *apart, *lost),
        disparities=tuple(mark_filter_dependence(entries, depends)),
        details=tuple(details),
        discovery=_discovery(outcomes, attributes, groups, cells, options),
        selection=tuple(selection),
        selection_state=state,
        recognition=() if recognised is None else (recognised[0],),
        attrition=tuple(attrition(outcomes, target, attributes, groups, level=options.level)),
        acquisition=tuple(acquired),
        picture_checks=tuple(
            PictureCheck(check=check, group=group, n_pairs=count)
            for (check, group), count in sorted(outcomes.picture_checks.items())
        ),
        filtered_by=outcomes.filtered_by,
        warnings=(
            *origin.get("cautions", ()),
            *outcomes.warnings,
            *label_warnings(labels, outcomes.concepts),
            *_claim_warnings(outcomes),
            *_row_warnings(rows, attributes, outcomes),
        ),
    )
    return explained(record)


def check_request(labels: Labels, concepts: Sequence[str], options: Options) -> None:
    """Check what can be known to be wrong before a target is asked about anything.

    Raises:
        InputError: a group, attribute or concept that is asked for and not there.
    """
    taxonomy = options.taxonomy
    if taxonomy is not None:
        _check_known(labels.demographic, taxonomy.groups, "demographic", taxonomy.name)
        _check_known(labels.attribute, taxonomy.attributes, "attribute", taxonomy.name)
    groups = order_of_appearance(labels.demographic)
    for axis in options.by:
        if axis != "demographic":
            coarse_axis(axis, groups, options.groups_of.groups)
    planned_rows((), concepts, options.concepts, {})


def planned_rows(
    attributes: Sequence[str], concepts: Sequence[str], wanted: Sequence[str], named: dict[str, str]
) -> list[Row]:
    """Which (attribute, concept) rows are compared between groups and shown in tables.

    Args:
        attributes, concepts: what the run has.
        wanted: concepts asked for by name; each is taken for every attribute.
        named: attribute -> the concept that names it, used where the run has many concepts.

    Returns:
        Rows in order; none where there are many concepts and nobody named one.

    Raises:
        InputError: a wanted concept that the run does not have.
    """
    for concept in wanted:
        if concept not in concepts:
            raise InputError(f"the run has no concept '{concept}'{nearest(concept, concepts)}")
    if wanted or len(concepts) <= SHOWN_CONCEPTS:
        return [(attribute, concept) for attribute in attributes for concept in wanted or concepts]
    return [(name, named[name]) for name in attributes if name in named]


def _claim_warnings(outcomes: Outcomes) -> list[str]:
    reason = no_claim(outcomes.filtered_by)
    return [reason] if reason else []


def _row_warnings(rows: Sequence[Row], attributes: Sequence[str], outcomes: Outcomes) -> list[str]:
    planned = {attribute for attribute, _ in rows}
    there = set(outcomes.labels.attribute)
    without = [attribute for attribute in attributes if attribute in there - planned]
    if not without:
        return []
    text = (
        f"no row for {shortlist(without, 20)}, which none of {len(outcomes.concepts):,} concepts names: "
        "choose with --concept NAME or a taxonomy's 'concept', or search with --discover --margin M"
    )
    return [text]


def _cells(
    outcomes: Outcomes,
    estimates: Sequence[AttributeEstimates],
    axes: Sequence[CoarseAxis],
    target: str,
    details: Sequence[Detail],
    options: Options,
) -> tuple[list[Cell], list[Family]]:
    cells = demographic_cells(outcomes, estimates, target)
    dependent = {(d.attribute, d.concept, d.group) for d in details if d.scale.scale_dependent}
    cells = [
        cell.model_copy(update={"flags": (*cell.flags, "scale_dependent")})
        if (cell.attribute, cell.concept, cell.group) in dependent
        else cell
        for cell in cells
    ]
    coarse: list[Cell] = []
    for axis in axes:
        coarse += coarse_cells(estimates, axis, cells, outcomes.concepts, level=options.level)
    return adjusted_cells([*cells, *coarse], target)


def _disparities(
    estimates: Sequence[AttributeEstimates],
    axes: Sequence[CoarseAxis],
    target: str,
    rows: Sequence[Row],
    concepts: Sequence[str],
    options: Options,
) -> tuple[list[Disparity], list[Family]]:
    entries: list[Disparity] = []
    families: list[Family] = []
    planned = [concept for concept in concepts if any(concept == name for _, name in rows)]
    columns = np.array([concepts.index(concept) for concept in planned], dtype=np.int64)
    every = np.arange(len(estimates[0].groups))
    estimates = [replace(item, means=item.means.take(every, columns)) for item in estimates]
    for axis in (None, *axes):
        if not planned or len(axis.names if axis else every) < 2:
            continue
        found = [compare(item, axis, method=options.method, level=options.level) for item in estimates]
        more, own = disparities(found, target, rows, planned, level=options.level)
        entries += more
        families += own
    return entries, families


def _discovery(
    outcomes: Outcomes,
    attributes: Sequence[str],
    groups: Sequence[str],
    cells: Sequence[Cell],
    options: Options,
) -> Discovery | None:
    if not options.discover or options.margin is None:
        return None
    own = [cell for cell in cells if cell.by == "demographic"]
    level, seed = options.search_level, options.seed
    return discover(outcomes, attributes, groups, own, margin=options.margin, level=level, seed=seed)


def _data(outcomes: Outcomes, origin: dict[str, Any]) -> Data:
    labels = outcomes.labels
    return Data(
        **origin,
        n_pairs=len(labels),
        n_pictures=len({*labels.source_name, *labels.transformed_name} - {""}),
        fault_share=outcomes.fault_share(),
    )


def _settings(options: Options, outcomes: Outcomes) -> AuditSettings:
    taxonomy = options.taxonomy
    return AuditSettings(
        method=options.method,
        level=options.level,
        by=options.by,
        seed=options.seed,
        margin=options.margin,
        half_width=options.half_width,
        references=outcomes.references,
        taxonomy=taxonomy.name if taxonomy else None,
        taxonomy_digest=taxonomy.digest if taxonomy else None,
        max_failures=options.max_failures,
        identities="group" if outcomes.labels.person is None else "people",
    )


def _familiar(labels: Labels) -> tuple[str, ...]:
    """Groups that all bear the paper's codes stand in the paper's order."""
    codes = load_taxonomy(DEFAULT_TAXONOMY).groups
    present = set(labels.demographic)
    return tuple(code for code in codes if code in present) if present <= set(codes) else ()


def _check_known(values: np.ndarray[Any, Any], known: dict[str, Any], column: str, taxonomy: str) -> None:
    for value in dict.fromkeys(values):
        if value not in known:
            raise InputError(
                f"{column} '{value}' is not in taxonomy '{taxonomy}'{nearest(value, known)}; extend the "
                "taxonomy or leave out --taxonomy to take the table's own"
            )
