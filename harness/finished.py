"""Finished runs read back: the record and the scores of every pair, without any picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.consistency import miscounted
from harness.folder import PAIRS_FILE
from harness.outcomes import cluster_codes
from harness.record import RECORD_FILE, SCHEMA_VERSION, Record, read_record
from targets.base.errors import InputError, NotComparableError
from targets.base.files import read_parquet, read_regular
from targets.base.strict_json import parse_json
from targets.base.tables import ObjectArray
from targets.base.text import counted, shortlist

PERSON = "person"
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_TEXTS = (
    "pair_id",
    "identity",
    "variation",
    "demographic",
    "attribute",
    "source",
    "transformed",
    "source_hash",
    "transformed_hash",
    "reason",
)
_LABELS = ("identity", "demographic", "attribute")


@dataclass(frozen=True)
class FinishedRun:
    """A run that lies on disk.

    Attributes:
        folder: where.
        record: what it found.
        texts: column -> n texts, None where absent: labels, picture names, pixel hashes, reason; "person"
            where the run's clusters are people who may be in several groups.
        source, transformed: (n, c) scores in the order of the record's concepts, NaN where there is none.
        not_finite: scores that the file holds as NaN or infinity, which no audit writes.
    """

    folder: Path
    record: Record
    texts: dict[str, ObjectArray]
    source: FloatArray
    transformed: FloatArray
    not_finite: int = 0

    def __len__(self) -> int:
        return len(self.texts["pair_id"])

    def take(self, rows: npt.ArrayLike) -> FinishedRun:
        """The same run with some of its pairs, by index or mask."""
        index = np.asarray(rows)
        texts = {name: values[index] for name, values in self.texts.items()}
        return replace(self, texts=texts, source=self.source[index], transformed=self.transformed[index])

    def clusters(self) -> IntArray:
        """Integer code of the person, as in the audit, shape (n,)."""
        return cluster_codes(self.texts["demographic"], self.texts["identity"], self.texts.get(PERSON))

    def twins(self, people: Sequence[tuple[str, str]]) -> IntArray:
        """For each (demographic, identity), the place of the first that is the same person, shape (G,)."""
        labels = zip(self.texts["demographic"], self.texts["identity"], strict=True)
        person = dict(zip(labels, self.clusters().tolist(), strict=True))
        first: dict[int, int] = {}
        return np.array([first.setdefault(person[key], place) for place, key in enumerate(people)])

    def rows_of(self, attribute: str, group: str) -> npt.NDArray[np.bool_]:
        """Which pairs belong to a cell, shape (n,)."""
        return np.asarray((self.texts["attribute"] == attribute) & (self.texts["demographic"] == group))


def load_run(path: Path) -> FinishedRun:
    """Read a run's record and pairs.

    Args:
        path: the run's folder, or its record.json.

    Raises:
        InputError: not a run, damaged, or record and pairs don't belong together.
        NotComparableError: a record of another version of the schema.
    """
    folder = path if path.is_dir() else path.parent
    _check_version(path)
    record = read_record(path)
    table = read_parquet(folder / PAIRS_FILE)
    missing = [name for name in (*_TEXTS, *_score_columns(record)) if name not in table.column_names]
    if missing:
        raise InputError(f"{folder / PAIRS_FILE} needs the columns {shortlist(missing)}")
    if len(table) != record.data.n_pairs:
        raise InputError(
            f"{folder}: {PAIRS_FILE} must belong to {RECORD_FILE}, but one has "
            f"{counted(len(table), 'pair')} and the other {record.data.n_pairs}"
        )
    named = [*_TEXTS, *([PERSON] if PERSON in table.column_names else [])]
    texts = {name: _texts(table, name, folder) for name in named}
    _check_labels(texts, folder / PAIRS_FILE)
    names = record.concepts
    source = _scores(table, [f"source:{name}" for name in names], folder)
    transformed = _scores(table, [f"transformed:{name}" for name in names], folder)
    scored = _given(table, "source", names) & _given(table, "transformed", names)
    for fault in miscounted(record, texts["attribute"], texts["demographic"], scored):
        raise InputError(f"{folder}: {PAIRS_FILE} must belong to {RECORD_FILE}, but {fault}")
    nulls = sum(table.column(name).null_count for name in _score_columns(record))
    absent = int((~np.isfinite(source)).sum() + (~np.isfinite(transformed)).sum())
    return FinishedRun(folder, record, texts, source, transformed, absent - nulls)


def read_whole(path: Path) -> Record:
    """Read a record, and refuse one that contradicts the pairs that lie beside it.

    Raises:
        InputError: as ``read_record`` and ``load_run``.
    """
    record = read_record(path)
    folder = path if path.is_dir() else path.parent
    return load_run(path).record if (folder / PAIRS_FILE).is_file() else record


def _check_version(path: Path) -> None:
    """Another version of our own record is not comparable; anything else is no record at all."""
    file = path / RECORD_FILE if path.is_dir() else path
    try:
        data = parse_json(read_regular(file).decode())
    except (OSError, ValueError):
        return
    version = data.get("schema") if isinstance(data, dict) else None
    family = SCHEMA_VERSION.rpartition("/")[0]
    if isinstance(version, str) and version != SCHEMA_VERSION and version.startswith(f"{family}/"):
        raise NotComparableError(f"{file} has schema '{version}'; this version reads '{SCHEMA_VERSION}'")


def _score_columns(record: Record) -> list[str]:
    return [f"{side}:{name}" for name in record.concepts for side in ("source", "transformed")]


def _scores(table: pa.Table, names: Sequence[str], folder: Path) -> FloatArray:
    values = np.full((len(table), len(names)), np.nan)
    for index, name in enumerate(names):
        column = table.column(name)
        if not pa.types.is_floating(column.type):
            raise InputError(f"{folder / PAIRS_FILE}: column '{name}' must hold numbers, got {column.type}")
        values[:, index] = column.to_numpy()
    return values


def _given(table: pa.Table, side: str, concepts: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which pairs have a score, be it none that an audit writes, shape (n, c)."""
    columns = [table.column(f"{side}:{name}").is_valid().to_numpy() for name in concepts]
    return np.array(columns, dtype=bool).reshape(len(concepts), len(table)).T


def _texts(table: pa.Table, name: str, folder: Path) -> ObjectArray:
    column = table.column(name)
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_null)
    if not any(is_kind(column.type) for is_kind in kinds):
        raise InputError(f"{folder / PAIRS_FILE}: column '{name}' must hold texts, got {column.type}")
    return np.array(column.to_pylist(), dtype=object)


def _check_labels(texts: dict[str, ObjectArray], file: Path) -> None:
    for name in ("pair_id", *_LABELS, *([PERSON] if PERSON in texts else [])):
        if any(not isinstance(value, str) or not value for value in texts[name]):
            raise InputError(f"{file}: every row needs a text in '{name}'")
    if len(set(texts["pair_id"])) != len(texts["pair_id"]):
        raise InputError(f"{file}: a pair_id must occur once")


@dataclass(frozen=True)
class CommonPairs:
    """The pairs that two runs share, in one order.

    Attributes:
        base, new: both runs with exactly these n pairs.
        only_base, only_new: ids of the other pairs.
    """

    base: FinishedRun
    new: FinishedRun
    only_base: tuple[str, ...]
    only_new: tuple[str, ...]

    def other_pictures(self) -> npt.NDArray[np.bool_]:
        """Which pairs show other pixels in the new run, or pixels known in one run only; shape (n,)."""
        differ = np.zeros(len(self.base), dtype=bool)
        scored = [np.isfinite(run.transformed).any(axis=1) for run in (self.base, self.new)]
        for side in ("source_hash", "transformed_hash"):
            before, after = self.base.texts[side], self.new.texts[side]
            known = [np.array([key is not None for key in keys], dtype=bool) for keys in (before, after)]
            differ |= (before != after) & known[0] & known[1]
            differ |= (known[0] != known[1]) & scored[0] & scored[1]
        return differ

    def pictures_unknown(self) -> bool:
        """Whether no picture can be compared, because both runs are of finished scores."""
        return all((run.texts["source_hash"] == None).all() for run in (self.base, self.new))  # noqa: E711

    def other_labels(self) -> list[str]:
        """Ids of pairs with another identity, person, group or attribute in the new run."""
        differ = np.zeros(len(self.base), dtype=bool)
        for name in _LABELS:
            differ |= self.base.texts[name] != self.new.texts[name]
        people = [run.texts.get(PERSON) for run in (self.base, self.new)]
        if people[0] is None or people[1] is None:
            differ |= people[0] is not people[1]
        else:
            differ |= people[0] != people[1]
        return [str(name) for name in self.base.texts["pair_id"][differ]]

    def keep(self, rows: npt.NDArray[np.bool_]) -> CommonPairs:
        """Only some of the common pairs."""
        return replace(self, base=self.base.take(rows), new=self.new.take(rows))


def common_pairs(base: FinishedRun, new: FinishedRun) -> CommonPairs:
    """Match the pairs of two runs by their ids; the baseline's order is kept."""
    index = {name: row for row, name in enumerate(new.texts["pair_id"])}
    known = set(base.texts["pair_id"])
    rows = [row for row, name in enumerate(base.texts["pair_id"]) if name in index]
    others = [index[base.texts["pair_id"][row]] for row in rows]
    return CommonPairs(
        base=base.take(np.array(rows, dtype=np.intp)),
        new=new.take(np.array(others, dtype=np.intp)),
        only_base=tuple(name for name in base.texts["pair_id"] if name not in index),
        only_new=tuple(name for name in new.texts["pair_id"] if name not in known),
    )


@dataclass(frozen=True)
class ComparedRuns:
    """Two runs that are held against each other.

    Attributes:
        base, new: as they lie on disk.
        common: the pairs that both have.
        union: both runs with every pair of either, in one order; a run that lacks a pair has NaN there.
        people: code of the person of every pair of ``union``.
        names: what messages call the two.
    """

    base: FinishedRun
    new: FinishedRun
    common: CommonPairs
    union: tuple[FinishedRun, FinishedRun]
    people: IntArray
    names: tuple[str, str]


def compared_runs(base: FinishedRun, new: FinishedRun, *, base_name: str = "baseline") -> ComparedRuns:
    """Match two runs by the ids of their pairs."""
    common = common_pairs(base, new)
    extra = np.flatnonzero(np.isin(new.texts["pair_id"].astype(str), common.only_new))
    row_of = {name: row for row, name in enumerate(new.texts["pair_id"])}
    own = np.array([row_of.get(name, -1) for name in base.texts["pair_id"]], dtype=np.intp)
    here = np.concatenate([own, extra])
    known = [name for name in base.texts if name in new.texts]
    texts = {name: np.concatenate([base.texts[name], new.texts[name][extra]]) for name in known}
    there = np.concatenate([np.arange(len(base)), np.full(len(extra), -1)])
    union = (_spread(base, there, texts), _spread(new, here, texts))
    return ComparedRuns(base, new, common, union, union[0].clusters(), (base_name, "new run"))


def _spread(run: FinishedRun, rows: npt.NDArray[np.intp], texts: dict[str, ObjectArray]) -> FinishedRun:
    """A run on other rows, with no score where a row is -1."""
    absent = rows[:, None] < 0
    sides = [
        np.where(absent, np.nan, side[rows] if len(side) else np.nan)
        for side in (run.source, run.transformed)
    ]
    return replace(run, texts=texts, source=sides[0], transformed=sides[1])
