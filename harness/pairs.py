"""Pairs from a table of picture paths, a dataset directory, a hub id, or a table of finished scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dataset_builder.folder import BUILD_FILE
from dataset_builder.read import DEFAULT, Config, configs_of, has_pictures, read_config
from dataset_builder.schema.faces import is_rendered
from harness.labels import VALIDATED, identity_warnings, judged_invalid, validated_column, verdict_warnings
from harness.outcomes import CODES, OK, Failure, Labels, Outcomes
from targets.base.errors import InputError
from targets.base.files import read_named
from targets.base.hashing import file_digest, settings_digest
from targets.base.strict_json import parse_json
from targets.base.tables import ObjectArray, Table, decimal_hint, parse_numbers, read_table
from targets.base.text import control_character, counted, shortlist, utf8
from targets.scoring import PictureRef

LABEL_COLUMNS = ("pair_id", "identity", "variation", "demographic", "attribute")
PAIRS = "pairs"
TABLE_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_NEEDED = ("pair_id", "identity", "demographic", "attribute")
PERSON = "person"
Identities = Literal["group", "global"]


RENDERED = (
    "rendered heads, and groups are settings of the renderer: they test this tool and say nothing about how "
    "a model treats people"
)


@dataclass(frozen=True)
class Pairs:
    """Labelled pairs with their pictures.

    Attributes:
        labels: n pairs, every one with a pair_id, an identity, a demographic and an attribute.
        source, transformed: n pictures each.
        origin: what a record says about where the pairs come from.
        failures: rows that are not among the pairs, and why.
        warnings: one sentence each.
        detectors: role -> digest of the weights that decided which pairs were kept, where that is known.
        candidates: all pairs that these were filtered from, where the dataset holds them.
    """

    labels: Labels
    source: tuple[PictureRef, ...]
    transformed: tuple[PictureRef, ...]
    origin: dict[str, Any]
    failures: list[Failure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    detectors: dict[str, str] = field(default_factory=dict)
    candidates: Pairs | None = None


def load_pairs(
    path: str,
    encoding: str = "utf-8",
    identities: Identities | None = None,
    config: str | None = None,
    split: str | None = None,
) -> Pairs:
    """Load pairs with pictures.

    Args:
        path: a table ending in .csv, .tsv, .jsonl or .parquet with the columns pair_id, identity,
            variation, demographic, attribute, source, transformed (paths from the table's folder, in a
            parquet file pictures too); or a dataset directory, also as ``save_to_disk`` writes it; or the hub
            id of a dataset.
        encoding: of a text table.
        identities: "group": an identity belongs to its group; "global": one label is one person everywhere.
            None to take a column ``person`` where there is one, else "group".
        config: of a dataset; None takes "pairs", or the only one.
        split: of the config; None takes "train", or the only one.

    Raises:
        InputError: the table can't be read, lacks a column, or holds one pair_id with two rows; the dataset
            has no such config or split, or several to choose from.
    """
    place = Path(path)
    if place.suffix.lower() in TABLE_ENDINGS and not place.exists():
        raise InputError(f"no such file: {path}")
    if not place.is_file() or (place.suffix.lower() == ".parquet" and has_pictures(place)):
        return _from_dataset(path, identities, config, split)
    if config is not None or split is not None:
        raise InputError(f"{path} is a table: it has no config or split to choose")
    return _from_table(read_table(place, encoding), identities)


def _from_table(table: Table, identities: Identities | None) -> Pairs:
    table.require((*_NEEDED, "source", "transformed"), "a table of pairs")
    columns = {name: table.text(name) for name in _NEEDED}
    columns |= {name: table.text(name, stripped=False) for name in ("source", "transformed")}
    columns["variation"] = _optional(table, "variation")
    columns |= _person_column(columns, table, identities)
    rows, failures = _usable_rows(columns, table, keys=("pair_id",), values=("source", "transformed"))
    labels = _labels(columns, rows)
    folder = table.path.parent.absolute()
    origin = {
        "path": utf8(table.path),
        "kind": "table",
        "sha256": file_digest(table.path),
        "rows": len(table),
        "cautions": _cautions(_optional(table, "provenance")),
    }
    return Pairs(
        labels,
        tuple(_file_picture(folder, name) for name in labels.source_name),
        tuple(_file_picture(folder, name) for name in labels.transformed_name),
        origin,
        failures,
        [*verdict_warnings(table), *identity_warnings(labels)],
    )


def _file_picture(folder: Path, name: str) -> PictureRef:
    return PictureRef(name, partial(read_named, folder, name) if name else _absent)


def _absent() -> bytes:
    raise FileNotFoundError("the table names no picture")


def _from_dataset(
    path: str, identities: Identities | None, config: str | None = None, split: str | None = None
) -> Pairs:
    names = configs_of(path)
    if not names:
        raise InputError(
            f"{path} is neither a table of pairs nor a dataset: it must hold parquet files, or what "
            "save_to_disk writes"
        )
    chosen = config or next((name for name in (PAIRS, DEFAULT) if name in names), names[0])
    if config is None and chosen not in (PAIRS, DEFAULT) and len(names) > 1:
        raise InputError(
            f"{path} has no config 'pairs': choose one of its configs {shortlist(names)} with --config"
        )
    data = read_config(path, chosen, split)
    if data is None:
        raise InputError(f"{path} has no config '{chosen}', only {shortlist(names)}")
    data.require((*_NEEDED, "source", "transformed"))
    source = data.refs("source", "source_sha256")
    pairs = _dataset_pairs(data, source, data.refs("transformed", "transformed_sha256"), identities)
    return replace(
        pairs,
        detectors=_detectors(Path(path)),
        candidates=_candidates(path, identities) if chosen == PAIRS else None,
    )


def _candidates(path: str, identities: Identities | None) -> Pairs | None:
    """All candidates of a built dataset, where it holds them."""
    data, sources = read_config(path, "candidates"), read_config(path, "sources")
    if data is None or sources is None:
        return None
    by_digest = dict(zip(sources.columns["sha256"], sources.refs("image", "sha256"), strict=True))
    missing = [digest for digest in data.columns["source_sha256"] if digest not in by_digest]
    if missing:
        raise InputError(f"{path}: candidates name a source {missing[0]} that config 'sources' lacks")
    source = tuple(by_digest[digest] for digest in data.columns["source_sha256"])
    return _dataset_pairs(data, source, data.refs("image", "sha256"), identities)


def _dataset_pairs(
    data: Config,
    source: tuple[PictureRef, ...],
    transformed: tuple[PictureRef, ...],
    identities: Identities | None,
) -> Pairs:
    nothing: ObjectArray = np.full(len(data), "", dtype=object)
    columns = {name: data.text(name) if name in data.columns else nothing for name in LABEL_COLUMNS}
    columns["source"] = np.array([ref.name for ref in source], dtype=object)
    columns["transformed"] = np.array([ref.name for ref in transformed], dtype=object)
    own = {PERSON: data.text(PERSON)} if PERSON in data.columns else {}
    columns |= _person_column(columns, Table(Path(data.path), own, first_row=1), identities)
    judged = {name: data.text(name) for name in filter(None, [validated_column(data.columns)])}
    table = Table(Path(data.path), {**columns, **judged}, first_row=1)
    rows, failures = _usable_rows(columns, table, keys=("pair_id",), values=("source", "transformed"))
    labels = _labels(columns, rows)
    said = {name: list(map(str, values)) for name, values in columns.items()}
    # Without digests of pictures the files stand for them.
    files = [] if "source_sha256" in data.columns else [file_digest(file) for file in data.files]
    digest = settings_digest({**said, "files": files} if files else said)
    return Pairs(
        labels,
        tuple(source[row] for row in rows),
        tuple(transformed[row] for row in rows),
        {
            "path": data.path,
            "kind": "dataset",
            "sha256": digest,
            "rows": len(data),
            "config": data.name,
            "split": data.split,
            "cautions": _cautions(map(str, data.columns.get("provenance", ()))),
        },
        failures,
        [*verdict_warnings(table), *identity_warnings(labels)],
    )


def _cautions(provenance: Iterable[str]) -> tuple[str, ...]:
    """What the pictures can't show, from how they were made."""
    rendered = [is_rendered(text) for text in provenance]
    if not any(rendered):
        return ()
    some = f"{sum(rendered):,} of {counted(len(rendered), 'pair')} show"
    return (f"{'the faces are' if all(rendered) else some} {RENDERED}",)


def _detectors(directory: Path) -> dict[str, str]:
    file = directory / BUILD_FILE
    if not file.is_file():
        return {}
    try:
        return dict(parse_json(file.read_text(encoding="utf-8"))["detectors"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} must be JSON with a table 'detectors': {error!r}") from None


def _optional(table: Table, name: str) -> ObjectArray:
    if name in table.columns:
        return table.text(name)
    return np.full(len(table), "", dtype=object)


def _person_column(
    columns: dict[str, ObjectArray], table: Table, identities: Identities | None
) -> dict[str, ObjectArray]:
    """Who each row shows, where people may be in several groups; else no column."""
    named = PERSON in table.columns
    if identities == "global":
        if named:
            raise InputError(
                f"{table.path} has a column '{PERSON}', which says who is who; leave out "
                "--identities global, or the column"
            )
        return {PERSON: columns["identity"]}
    return {PERSON: table.text(PERSON)} if named and identities is None else {}


def _labels(columns: dict[str, ObjectArray], rows: Sequence[int]) -> Labels:
    index = np.array(rows, dtype=np.intp)
    for column in (*_NEEDED, *_person_names(columns)):
        for label in dict.fromkeys(columns[column][index]):
            _refuse_control_characters(label, column)
    empty: ObjectArray = np.full(len(index), "", dtype=object)
    return Labels(
        pair_id=columns["pair_id"][index],
        identity=columns["identity"][index],
        variation=columns["variation"][index],
        demographic=columns["demographic"][index],
        attribute=columns["attribute"][index],
        source_name=columns["source"][index] if "source" in columns else empty,
        transformed_name=columns["transformed"][index] if "transformed" in columns else empty,
        person=_people(columns, index) if PERSON in columns else None,
    )


def _person_names(columns: dict[str, ObjectArray]) -> tuple[str, ...]:
    return (PERSON,) if PERSON in columns else ()


def _people(columns: dict[str, ObjectArray], index: np.ndarray[tuple[int], np.dtype[np.intp]]) -> ObjectArray:
    """The person of each kept row; an identity of a group is one person."""
    first: dict[tuple[str, str], str] = {}
    for row in index:
        key = columns["demographic"][row], columns["identity"][row]
        person = first.setdefault(key, columns[PERSON][row])
        if person != columns[PERSON][row]:
            raise InputError(
                f"identity '{key[1]}' of group '{key[0]}' must be one person, got '{person}' and "
                f"'{columns[PERSON][row]}' in column '{PERSON}'; give the two people two identities"
            )
    return columns[PERSON][index]


def _refuse_control_characters(label: str, column: str) -> None:
    if sign := control_character(label):
        raise InputError(f"column '{column}': {label!r} holds the control character {sign}; take it out")


def _usable_rows(
    columns: dict[str, ObjectArray], table: Table, keys: tuple[str, ...], values: tuple[str, ...]
) -> tuple[list[int], list[Failure]]:
    """Drop rows without a label and exact repeats; one key with two different rows is an error."""
    first: dict[tuple[str, ...], int] = {}
    kept: list[int] = []
    failures: list[Failure] = []
    names = (*LABEL_COLUMNS, *_person_names(columns), *values)
    invalid = judged_invalid(table)
    for row in range(len(table)):
        needed = (*_NEEDED, *_person_names(columns), *keys)
        if row in invalid:
            detail = f"column '{VALIDATED}' says no"
            failures.append(_lost_row(columns, table, row, "not_validated", detail))
            continue
        empty = [name for name in needed if not str(columns[name][row]).strip()]
        if empty:
            failures.append(_lost_row(columns, table, row, "missing_label", f"'{empty[0]}' is empty"))
            continue
        key = tuple(columns[name][row] for name in keys)
        earlier = first.setdefault(key, row)
        if earlier == row:
            kept.append(row)
            continue
        differing = [name for name in names if columns[name][row] != columns[name][earlier]]
        if differing:
            raise InputError(
                f"{table.path}: {' and '.join(keys)} must name one row, but {', '.join(key)} has two that "
                f"differ in '{differing[0]}' ({table.row(earlier)}: {columns[differing[0]][earlier]!r}, "
                f"{table.row(row)}: {columns[differing[0]][row]!r}); remove or rename one"
            )
        failures.append(_lost_row(columns, table, row, "duplicate", f"repeats {table.row(earlier)}"))
    if not kept:
        raise InputError(f"{table.path} holds no usable pair")
    return kept, failures


def _lost_row(columns: dict[str, ObjectArray], table: Table, row: int, reason: str, detail: str) -> Failure:
    return Failure(
        what="row",
        where=table.row(row),
        reason=reason,
        group=str(columns["demographic"][row]),
        attribute=str(columns["attribute"][row]),
        detail=f"{table.row(row)}: {detail}",
    )


def load_scores(
    path: str, encoding: str = "utf-8", identities: Identities | None = None
) -> tuple[Outcomes, dict[str, Any]]:
    """Load a long table of finished scores.

    Args:
        path: a table with pair_id, identity, variation, demographic, attribute, concept, source_score and
            transformed_score.
        encoding: of a text table.
        identities: as in ``load_pairs``.

    Returns:
        The outcomes, and what a record says about where they come from.

    Raises:
        InputError: the table can't be read, lacks a column, or holds two rows for a pair and concept.
    """
    table = read_table(Path(path), encoding)
    sides = ("source_score", "transformed_score")
    table.require((*_NEEDED, "concept", *sides), "a table of scores")
    columns = {name: table.text(name) for name in (*_NEEDED, "concept", *sides)}
    columns["variation"] = _optional(table, "variation")
    columns |= _person_column(columns, table, identities)
    rows, failures = _usable_rows(columns, table, keys=("pair_id", "concept"), values=sides)
    pair_rows = _rows_of_pairs(columns, rows, table)
    names = (*LABEL_COLUMNS, *_person_names(columns))
    labels = _labels({name: columns[name] for name in names}, list(pair_rows.values()))
    concepts = tuple(dict.fromkeys(columns["concept"][rows]))
    for concept in concepts:
        _refuse_control_characters(concept, "concept")
    outcomes = _blank_outcomes(labels, concepts)
    outcomes.failures.extend(failures)
    outcomes.warnings.extend([*verdict_warnings(table), *identity_warnings(labels)])
    _fill_scores(outcomes, table, columns, rows)
    origin = {"path": utf8(path), "kind": "scores", "sha256": file_digest(table.path), "rows": len(table)}
    return outcomes, origin


def _rows_of_pairs(columns: dict[str, ObjectArray], rows: Sequence[int], table: Table) -> dict[str, int]:
    """First row of each pair; its labels must be the same for every concept."""
    first: dict[str, int] = {}
    for row in rows:
        earlier = first.setdefault(columns["pair_id"][row], row)
        for name in (*LABEL_COLUMNS, *_person_names(columns)):
            if columns[name][row] != columns[name][earlier]:
                raise InputError(
                    f"{table.path}: pair_id {columns['pair_id'][row]} must have one '{name}', got "
                    f"{columns[name][earlier]!r} in {table.row(earlier)} and {columns[name][row]!r} in "
                    f"{table.row(row)}"
                )
    return first


def _blank_outcomes(labels: Labels, concepts: tuple[str, ...]) -> Outcomes:
    shape = (len(labels), len(concepts))
    return Outcomes(
        labels=labels,
        concepts=concepts,
        source=np.full(shape, np.nan),
        transformed=np.full(shape, np.nan),
        codes=np.full(shape, CODES["no_answer"], dtype=np.int8),
        source_hash=np.full(len(labels), None, dtype=object),
        transformed_hash=np.full(len(labels), None, dtype=object),
    )


def _fill_scores(
    outcomes: Outcomes, table: Table, columns: dict[str, ObjectArray], rows: Sequence[int]
) -> None:
    is_text = table.path.suffix.lower() in {".csv", ".tsv"}
    source, source_faults = parse_numbers(table.columns["source_score"], text_is_number=is_text)
    transformed, transformed_faults = parse_numbers(
        table.columns["transformed_score"], text_is_number=is_text
    )
    pair_index = {name: index for index, name in enumerate(outcomes.labels.pair_id)}
    concept_index = {name: index for index, name in enumerate(outcomes.concepts)}
    for row in rows:
        cell = pair_index[columns["pair_id"][row]], concept_index[columns["concept"][row]]
        reason = _score_fault(source_faults.get(row), transformed_faults.get(row))
        outcomes.codes[cell] = CODES[reason] if reason else OK
        if not reason:
            outcomes.source[cell], outcomes.transformed[cell] = source[row], transformed[row]
            continue
        sides = ("source_score", "transformed_score")
        hint = next(filter(None, (decimal_hint(columns[side][row]) for side in sides)), "")
        found = f"source {columns['source_score'][row]!r}, transformed {columns['transformed_score'][row]!r}"
        outcomes.failures.append(
            Failure(
                what="pair",
                where=str(columns["pair_id"][row]),
                reason=reason,
                group=str(columns["demographic"][row]),
                attribute=str(columns["attribute"][row]),
                detail=f"{table.row(row)}, concept '{columns['concept'][row]}': {found}{hint}",
            )
        )


def _score_fault(source: str | None, transformed: str | None) -> str | None:
    if source == "absent":
        return "missing_source"
    if transformed == "absent":
        return "missing_transformed"
    return "non_finite" if source or transformed else None
