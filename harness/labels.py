"""Labels that look alike, and a column in which people have said which pairs are valid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from harness.outcomes import Labels
from targets.base.tables import Table
from targets.base.text import alike, counted, folded, shortlist

VALIDATED = "validated"
_YES = {"yes", "y", "true", "t", "1", "valid", "validated", "ok"}
_NO = {"no", "n", "false", "f", "0", "invalid", "rejected"}


def label_warnings(labels: Labels, concepts: Sequence[str]) -> list[str]:
    """One sentence a column whose labels hold some that differ only as ``folded`` does not see."""
    found = {
        "demographic": alike(labels.demographic),
        "attribute": alike(labels.attribute),
        "identity": list(_identities_alike(labels)),
        "pair_id": alike(labels.pair_id),
        "person": alike(() if labels.person is None else labels.person),
        "concept": alike(concepts),
    }
    return [_sentence(column, sets) for column, sets in found.items() if sets]


def _identities_alike(labels: Labels) -> Iterator[tuple[str, ...]]:
    """Within each group, since a label is another person in another group."""
    members: dict[str, list[str]] = {}
    for group, identity in zip(labels.demographic, labels.identity, strict=True):
        members.setdefault(group, []).append(identity)
    for identities in members.values():
        yield from alike(identities)


def _sentence(column: str, sets: Sequence[tuple[str, ...]]) -> str:
    named = shortlist([" and ".join(map(ascii, names)) for names in sets], 3)
    return (
        f"column '{column}': {named} differ only in case, spaces, Unicode form or invisible characters and "
        "are taken as different; write them alike if they are the same"
    )


def identity_warnings(labels: Labels) -> list[str]:
    """A sentence where a label of an identity stands in several groups and nobody has said who is who."""
    if labels.person is not None:
        return []
    groups: dict[str, set[str]] = {}
    for identity, group in zip(labels.identity, labels.demographic, strict=True):
        groups.setdefault(identity, set()).add(group)
    shared = sorted(identity for identity, names in groups.items() if len(names) > 1)
    if not shared:
        return []
    count = counted(len(shared), "identity label", "identity labels")
    consequence = (
        "taken as different people, since a cluster is (group, identity); if they are the same, say so with "
        "--identities global"
    )
    return [f"{count} in more than one group ({shortlist(shared)}): {consequence}"]


def validated_column(names: Iterable[str]) -> str | None:
    """The column of people's verdicts, however it is written; None without one."""
    return next((name for name in names if folded(name) == VALIDATED), None)


def judged_invalid(table: Table) -> set[int]:
    """Rows that somebody has judged not valid in a column ``validated``."""
    name = validated_column(table.columns)
    return set() if name is None else {row for row, word in _verdicts(table, name) if word in _NO}


def verdict_warnings(table: Table) -> list[str]:
    """A sentence where a column ``validated`` holds what is neither yes nor no."""
    name = validated_column(table.columns)
    if name is None:
        return []
    others = [(row, word) for row, word in _verdicts(table, name) if word not in _YES | _NO]
    if not others:
        return []
    row, word = others[0]
    count = counted(len(others), "row")
    where = f"{word!r} in {table.row(row)}"
    return [
        f"column '{name}': {count} with neither yes nor no ({where}) are kept; only rows with no are left out"
    ]


def _verdicts(table: Table, name: str) -> Iterator[tuple[int, str]]:
    return ((row, folded(word)) for row, word in enumerate(table.text(name)))
