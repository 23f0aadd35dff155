"""Pairs that a target could not answer, compared between groups like any other difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from harness.disparities import compare, disparities
from harness.estimates import estimate_attributes
from harness.faces import FTA
from harness.outcomes import CODES, OK, Labels, Outcomes
from harness.record import Acquisition, AcquisitionShare, Disparity, Family
from harness.stats.numerics import Bools
from harness.stats.proportions import clustered_proportion
from targets.base.tables import ObjectArray

CONCEPT = "failure_to_acquire"
# Other reasons are about files and rows: of such a pair nobody knows whether the target would have answered.
_TOLD = (OK, *FTA, CODES["no_reference"])


def failures_to_acquire(
    outcomes: Outcomes, target: str, attributes: Sequence[str], groups: Sequence[str], *, level: float
) -> tuple[list[Acquisition], list[Family]]:
    """Shares of pairs without an answer, and tests of whether the groups lose the same share.

    Tests and bands are those of mean changes (``harness/disparities.py``), Holm over the attributes. A group
    that loses nothing, or everything, has no variance and would leave the test, just where the difference is
    largest. So each group gets two more identities of average size for the test, one that always fails and
    one that never does (Agresti & Caffo 2000). Shares and differences are those of the real pairs.

    Args:
        outcomes: n pairs.
        target: its spec.
        attributes, groups: in the order of the tables.
        level: of intervals and bands; a test rejects at 1 - level.

    Returns:
        One entry an attribute and the families of its tests; nothing where every pair has an answer.
    """
    codes = outcomes.pair_codes
    failed, told = np.isin(codes, FTA), np.isin(codes, _TOLD)
    if not failed.any():
        return [], []
    shares = {name: _shares(outcomes, failed, told, name, groups, level) for name in attributes}
    shares = {name: own for name, own in shares.items() if own}
    entries, families = _tested(outcomes, failed, told, target, tuple(shares), groups, level)
    found = []
    for name, own in shares.items():
        entry = next((item for item in entries if item.attribute == name), None)
        found.append(
            Acquisition(
                target=target,
                attribute=name,
                shares=tuple(own),
                disparity=_with_own_differences(entry, own) if entry else None,
            )
        )
    return found, families


def _shares(
    outcomes: Outcomes,
    failed: Bools,
    told: Bools,
    attribute: str,
    groups: Sequence[str],
    level: float,
) -> list[AcquisitionShare]:
    labels, clusters = outcomes.labels, outcomes.labels.clusters()
    found = []
    for group in groups:
        rows = told & (labels.attribute == attribute) & (labels.demographic == group)
        if rows.any():
            share = clustered_proportion(failed[rows], clusters[rows], level=level)
            found.append(
                AcquisitionShare(
                    group=group,
                    n_pairs=share.n,
                    n_identities=share.n_identities,
                    failed=share.successes,
                    share=share.rate,
                    low=share.low,
                    high=share.high,
                    level=level,
                )
            )
    return found


def _tested(
    outcomes: Outcomes,
    failed: Bools,
    told: Bools,
    target: str,
    attributes: Sequence[str],
    groups: Sequence[str],
    level: float,
) -> tuple[list[Disparity], list[Family]]:
    if len(groups) < 2:
        return [], []
    scored = _as_scores(outcomes.labels, failed, told)
    estimates = estimate_attributes(scored, attributes, groups, method="cluster", level=level)
    compared = [compare(item, None, method="cluster", level=level) for item in estimates]
    rows = [(name, CONCEPT) for name in attributes]
    entries, families = disparities(compared, target, rows, scored.concepts, level=level)
    return [_renamed(entry) for entry in entries], [
        family.model_copy(update={"id": _family(family.id)}) for family in families
    ]


def _as_scores(
    labels: Labels,
    failed: Bools,
    told: Bools,
) -> Outcomes:
    """One concept that is 1 where a pair failed, with the two identities more in every cell."""
    rows = np.flatnonzero(told)
    values = [failed[rows].astype(np.float64)]
    taken = [rows]
    who = labels.identity if labels.person is None else labels.person
    names: list[str] = [str(name) for name in who[rows]]
    for attribute, group in dict.fromkeys(zip(labels.attribute[rows], labels.demographic[rows], strict=True)):
        own = rows[(labels.attribute[rows] == attribute) & (labels.demographic[rows] == group)]
        size = max(1, round(len(own) / len(set(who[own]))))
        for value in (0.0, 1.0):
            # A control character, which no label holds.
            names += [f"\x00{group}{value}"] * size
            taken.append(np.repeat(own[:1], size))
            values.append(np.full(size, value))
    index = np.concatenate(taken)
    columns = {item.name: getattr(labels, item.name) for item in fields(labels)}
    picked: dict[str, Any] = {name: None if own is None else own[index] for name, own in columns.items()}
    people: ObjectArray = np.array(names, dtype=object)
    picked["identity" if labels.person is None else "person"] = people
    scores = np.concatenate(values)[:, None]
    nobody = np.full(len(index), None, dtype=object)
    return Outcomes(
        labels=replace(labels, **picked),
        concepts=(CONCEPT,),
        source=np.zeros_like(scores),
        transformed=scores,
        codes=np.zeros(scores.shape, dtype=np.int8),
        source_hash=nobody,
        transformed_hash=nobody,
    )


def _family(name: str | None) -> str | None:
    return None if name is None else f"{CONCEPT}:{name}"


def _renamed(entry: Disparity) -> Disparity:
    pairwise = tuple(pair.model_copy(update={"family": _family(pair.family)}) for pair in entry.pairwise)
    omnibus = entry.omnibus.model_copy(update={"family": _family(entry.omnibus.family)})
    return entry.model_copy(update={"pairwise": pairwise, "omnibus": omnibus})


def _with_own_differences(entry: Disparity, shares: Sequence[AcquisitionShare]) -> Disparity:
    by_group = {item.group: item.share for item in shares}
    pairwise = tuple(
        pair.model_copy(update={"difference": by_group[pair.b] - by_group[pair.a]})
        if pair.a in by_group and pair.b in by_group
        else pair
        for pair in entry.pairwise
    )
    return entry.model_copy(update={"pairwise": pairwise})
