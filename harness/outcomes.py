"""Outcomes: for every pair and concept two scores, or one reason why there are none."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from harness.kinds import Kept
from targets.base.tables import ObjectArray

FloatArray = npt.NDArray[np.float64]
CodeArray = npt.NDArray[np.int8]

OK = 0
# Position in the tuple is the code in ``Outcomes.codes``; 0 means that both scores are there.
REASONS: tuple[str, ...] = (
    "ok",
    "missing_source",
    "missing_transformed",
    "unreadable",
    "no_face",
    "no_answer",
    "non_finite",
    "no_reference",
    "duplicate",
    "identical",
    "missing_label",
    "not_validated",
)
CODES = {reason: code for code, reason in enumerate(REASONS)}
# What ``--max-failures`` counts. A face that the target can't find is a result about the target, a pair
# without another picture of its identity a fact about the data.
FAULTS = ("missing_source", "missing_transformed", "unreadable", "no_answer", "non_finite", "missing_label")


@dataclass(frozen=True)
class Failure:
    """One excluded row, pair or picture, for the table of failures.

    Attributes:
        what: "row", "pair" or "picture".
        where: the row, pair id or picture name.
        reason: one of ``REASONS``.
        group: the demographic, empty where the row names none.
        attribute: likewise.
        detail: one sentence.
    """

    what: str
    where: str
    reason: str
    group: str
    attribute: str
    detail: str


def cluster_codes(
    demographic: ObjectArray, identity: ObjectArray, person: ObjectArray | None = None
) -> npt.NDArray[np.int64]:
    """Integer code of the person of each pair, shape (n,): of (demographic, identity) if none is named."""
    numbers: dict[object, int] = {}
    keys = zip(demographic, identity, strict=True) if person is None else person
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


@dataclass(frozen=True)
class Labels:
    """Who and what the pairs are; every array has shape (n,), texts.

    Attributes:
        pair_id, identity, variation, demographic, attribute: the columns of the pairs table.
        source_name, transformed_name: what the pictures are called, empty where a table has only scores.
        person: who it is, where people may be in several groups; None where an identity belongs to its group.
    """

    pair_id: ObjectArray
    identity: ObjectArray
    variation: ObjectArray
    demographic: ObjectArray
    attribute: ObjectArray
    source_name: ObjectArray
    transformed_name: ObjectArray
    person: ObjectArray | None = None

    def __len__(self) -> int:
        return len(self.pair_id)

    def clusters(self) -> npt.NDArray[np.int64]:
        """Integer code of the person: the one definition of a cluster, shape (n,)."""
        return cluster_codes(self.demographic, self.identity, self.person)


@dataclass(frozen=True)
class Embedded:
    """What an embedder answered, before it becomes cosines.

    Attributes:
        source, transformed: (n, d) vectors, NaN rows where there is none; with a ``table`` (n, 1) numbers.
        reasons: (n,) code of the reason that holds for the whole pair, 0 where both faces have a vector.
        source_key: (n,) what tells source pictures apart.
        table: (m, m) captured similarities of numbered pictures; None where vectors give them.
    """

    source: FloatArray
    transformed: FloatArray
    reasons: CodeArray
    source_key: ObjectArray
    table: FloatArray | None = None


@dataclass
class Outcomes:
    """All that an audit has seen, before any statistics.

    Attributes:
        labels: n pairs.
        concepts: c names.
        source, transformed: (n, c) scores, NaN where ``codes`` is not 0.
        codes: (n, c) index into ``REASONS``.
        source_hash, transformed_hash: (n,) pixel hashes, None where no picture was decoded.
        failures: what was excluded, in words.
        warnings: one sentence each.
        filtered_by: roles of the detectors whose weights are the target's.
        picture_checks: (check, group) -> number of pairs, e.g. of unequal picture size.
        references: other source pictures behind each ``match``, or None where there is no such concept.
        embedded: the vectors, where the target is an embedder.
        compared: the comparisons behind its error rates, once they are made.
    """

    labels: Labels
    concepts: tuple[str, ...]
    source: FloatArray
    transformed: FloatArray
    codes: CodeArray
    source_hash: ObjectArray
    transformed_hash: ObjectArray
    failures: list[Failure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    filtered_by: tuple[str, ...] = ()
    picture_checks: dict[tuple[str, str], int] = field(default_factory=dict)
    references: int | None = None
    embedded: Embedded | None = None
    compared: Kept | None = None

    @property
    def pair_codes(self) -> CodeArray:
        """(n,) the reason that holds for every concept of a pair, else 0."""
        if self.codes.shape[1] == 0:
            return np.zeros(len(self.labels), dtype=np.int8)
        first = self.codes[:, 0]
        return np.where((self.codes == first[:, None]).all(axis=1), first, OK).astype(np.int8)

    def reason_counts(self) -> dict[str, int]:
        """Reason -> rows and pairs left out for it, of one concept or of all."""
        counts = {
            name: int((self.codes == code).any(axis=1).sum()) for name, code in CODES.items() if code != OK
        }
        for failure in self.failures:
            if failure.what == "row":
                counts[failure.reason] += 1
        return {name: count for name, count in counts.items() if count}

    def fault_share(self) -> float:
        """Share of all rows and pairs that failed by a fault of file, picture or answer, in [0, 1]."""
        faults = np.isin(self.codes, [CODES[name] for name in FAULTS]).mean(axis=1)
        lost_rows = sum(failure.what == "row" and failure.reason in FAULTS for failure in self.failures)
        total = len(self.labels) + lost_rows
        return float((faults.sum() + lost_rows) / total) if total else 0.0
