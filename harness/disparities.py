"""Differences between groups: one omnibus test a row, pairwise differences with simultaneous bands.

Families (recorded with id, size and method): the omnibus tests of all rows, Holm; inside a row whose omnibus
is rejected at 1 - level, its pairwise differences, with the p values of their simultaneous bands. Without
that rejection no pairwise difference is tested, and its adjusted p is null. The interactions of an axis are
a family of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.axes import CoarseAxis
from harness.estimates import AttributeEstimates
from harness.numbers import number
from harness.record import (
    Band,
    Difference,
    Disparity,
    Family,
    Interaction,
    Interval,
    LevelDifference,
    Omnibus,
)
from harness.stats import aggregate
from harness.stats.contrasts import REASONS, PairwiseContrasts, pairwise
from harness.stats.families import adjust
from harness.stats.intervals import Method
from harness.stats.numerics import Bools
from harness.stats.omnibus import REASONS as TEST_REASONS
from harness.stats.omnibus import OmnibusTest, games_howell, htz, welch_anova

Row = tuple[str, str]


@dataclass(frozen=True)
class Compared:
    """What an interaction compares: levels of a factor inside the strata of the other."""

    axis: CoarseAxis
    test: OmnibusTest
    pairs: tuple[aggregate.Interaction, ...]


@dataclass(frozen=True)
class Comparison:
    """Everything compared for one attribute on one axis, all concepts at once.

    Attributes:
        attribute, by: where.
        groups: the groups or levels that are compared.
        contrasts: their r differences.
        omnibus: the test that decides; ``diagnostic``: the one that does not, or None.
        strata: of levels, the strata behind each difference, shape (r, S, c), and their names.
        interaction: of a coarser axis.
        fine_groups: the demographic groups, which the interaction and a diagnostic of levels name.
    """

    attribute: str
    by: str
    groups: tuple[str, ...]
    contrasts: PairwiseContrasts
    omnibus: OmnibusTest
    diagnostic: OmnibusTest | None
    fine_groups: tuple[str, ...]
    strata: tuple[Bools, tuple[str, ...]] | None = None
    interaction: Compared | None = None


def compare(
    estimates: AttributeEstimates, axis: CoarseAxis | None, *, method: Method, level: float
) -> Comparison:
    """Compare the groups of one attribute, or the levels of a coarser axis."""
    means, groups = estimates.means, estimates.groups
    alone = means.people is None
    if axis is None:
        found = pairwise(means, level=level)
        other = welch_anova if method == "t" else htz
        return Comparison(
            estimates.attribute,
            "demographic",
            groups,
            found,
            games_howell(means, found),
            other(means) if alone and len(groups) > 2 else None,
            groups,
        )
    levels = aggregate.aggregate(means, axis.levels, axis.strata).means
    found, strata = aggregate.compare_levels(means, axis.levels, axis.strata, level=level)
    return Comparison(
        estimates.attribute,
        axis.axis,
        axis.names,
        found,
        games_howell(levels, found),
        aggregate.level_htz(means, axis.levels) if alone and len(axis.names) > 2 else None,
        groups,
        (strata, axis.stratum_names),
        _interaction_of(estimates, axis.crossed, level),
    )


def _interaction_of(estimates: AttributeEstimates, axis: CoarseAxis, level: float) -> Compared | None:
    pairs = aggregate.interactions(estimates.means, axis.levels, axis.strata, level=level)
    if not pairs:
        return None
    return Compared(axis, aggregate.interaction_test(estimates.means, pairs), tuple(pairs))


def disparities(
    comparisons: Sequence[Comparison],
    target: str,
    rows: Sequence[Row],
    concepts: Sequence[str],
    *,
    level: float,
) -> tuple[list[Disparity], list[Family]]:
    """Turn comparisons into record entries, adjusted in their families.

    Args:
        comparisons: of one axis, one an attribute.
        target: spec of the target.
        rows: (attribute, concept) planned for comparison.
        concepts: c names.
        level: of the intervals; a test rejects at 1 - level.
    """
    by_attribute = {item.attribute: item for item in comparisons}
    planned = [
        (by_attribute[name], concepts.index(concept)) for name, concept in rows if name in by_attribute
    ]
    if not planned:
        return [], []
    by = planned[0][0].by
    family = Family(id=f"omnibus:{target}:{by}", m=len(planned), method="holm")
    adjusted = adjust([item.omnibus.p[index] for item, index in planned]).p
    families = [family]
    crossed = [item.interaction for item, _ in planned]
    across = np.full(len(planned), np.nan)
    if any(crossed):
        families.append(Family(id=f"interaction:{target}:{by}", m=len(planned), method="holm"))
        p = [
            test.test.p[index] if test else np.nan for test, (_, index) in zip(crossed, planned, strict=True)
        ]
        across = adjust(p).p
    entries: list[Disparity] = []
    for (item, index), *tests in zip(planned, adjusted, across, strict=True):
        entry, inner = _entry(item, index, concepts[index], target, level, (tests[0], tests[1]))
        entries.append(entry)
        families += inner
    return entries, families


def _entry(
    item: Comparison, index: int, concept: str, target: str, level: float, adjusted: tuple[float, float]
) -> tuple[Disparity, list[Family]]:
    """One row; ``adjusted`` are the p values of its omnibus test and of its interaction."""
    place = f"{target}:{item.by}:{item.attribute}:{concept}"
    alpha = 1 - level
    family = f"pairwise:{place}" if adjusted[0] <= alpha else None
    inner = f"interaction-pairwise:{place}" if adjusted[1] <= alpha else None
    found = item.contrasts
    names = item.groups
    strata = item.strata
    test = _omnibus(item.omnibus, index, names, adjusted[0], f"omnibus:{target}:{item.by}")
    test = test.model_copy(update={"method": str(found.simultaneous[index])})
    crossed = item.interaction
    entry = Disparity(
        target=target,
        by=item.by,
        attribute=item.attribute,
        concept=concept,
        omnibus=test,
        diagnostic=_omnibus(item.diagnostic, index, item.fine_groups) if item.diagnostic else None,
        interaction=_interaction(crossed, index, adjusted[1], f"interaction:{target}:{item.by}", inner)
        if crossed
        else None,
        pairwise=tuple(
            Difference(
                **_difference(found, (row, index), names, family),
                strata=_marked(strata[1], strata[0][row, :, index]) if strata else (),
            )
            for row in range(len(found.a))
        ),
    )
    how = str(found.simultaneous[index])
    families = [Family(id=family, m=len(found.a), method=how)] if family else []
    if inner and entry.interaction:
        families.append(Family(id=inner, m=len(entry.interaction.between), method="games-howell"))
    return entry, families


def _marked(names: Sequence[str], mask: Bools) -> tuple[str, ...]:
    return tuple(name for name, is_set in zip(names, mask, strict=True) if is_set)


def _omnibus(
    test: OmnibusTest,
    index: int,
    groups: Sequence[str],
    adjusted: float = np.nan,
    family: str | None = None,
) -> Omnibus:
    flags = {"few_identities": test.few_identities[index], "skewed": test.skewed[index]}
    return Omnibus(
        method=test.method,
        statistic=number(test.statistic[index]),
        df1=number(test.df1[index]),
        df2=number(test.df2[index]),
        p=number(test.p[index]),
        p_adjusted=number(adjusted),
        family=family,
        status="ok" if test.status[index] == "ok" else "undefined",
        reason=TEST_REASONS.get(str(test.reason[index]), ""),
        flags=tuple(name for name, is_set in flags.items() if is_set),
        used=_marked(groups, test.used[:, index]),
        left_out=_marked(groups, test.left_out[:, index]),
    )


def _interaction(found: Compared, index: int, adjusted: float, family: str, inner: str | None) -> Interaction:
    names, strata = found.axis.names, found.axis.stratum_names
    within: list[LevelDifference] = []
    between: list[LevelDifference] = []
    for pair in found.pairs:
        own = [strata[code] for code in pair.strata]
        for row, stratum in enumerate(own):
            single = _difference(pair.within, (row, index), names, None) | {"band": None}
            within.append(LevelDifference(**single, where=stratum))
        which = f"{names[pair.b]} minus {names[pair.a]}"
        between += [
            LevelDifference(**_difference(pair.between, (row, index), own, inner), where=which)
            for row in range(len(pair.between.a))
        ]
    return Interaction(
        factor=found.axis.axis,
        test=_omnibus(found.test, index, found.axis.groups, adjusted, family),
        within=tuple(within),
        between=tuple(between),
    )


def _difference(
    found: PairwiseContrasts, at: tuple[int, int], names: Sequence[str], family: str | None
) -> dict[str, Any]:
    """The fields of a difference; its adjusted p is null where no ``family`` tests it."""
    ok = found.status[at] == "ok"
    flags = {"few_identities": found.few_identities[at], "skewed": found.skewed[at]}
    ci = band = None
    if ok:
        low, high = found.low[at], found.high[at]
        ci = Interval(low=low, high=high, level=found.level, method="satterthwaite")
    if np.isfinite(found.band_low[at]):
        low, high, size = found.band_low[at], found.band_high[at], int(found.n_groups[at[1]])
        band = Band(low=low, high=high, level=found.level, groups=size)
    return {
        "a": names[found.a[at[0]]],
        "b": names[found.b[at[0]]],
        "difference": number(found.difference[at]),
        "se": number(found.se[at]) if ok else None,
        "df": number(found.df[at]),
        "ci": ci,
        "band": band,
        "p": number(found.p[at]),
        "p_adjusted": number(found.p_simultaneous[at]) if family else None,
        "family": family,
        "status": str(found.status[at]),
        "reason": REASONS.get(str(found.reason[at]), ""),
        "flags": tuple(name for name, is_set in flags.items() if is_set),
    }


def mark_filter_dependence(
    entries: Sequence[Disparity], depends: dict[tuple[str, str, str, str], bool]
) -> list[Disparity]:
    """Add the flag "depends_on_filter" to the differences for which ``depends`` says so."""
    marked = []
    for entry in entries:
        pairs = tuple(
            difference.model_copy(update={"flags": (*difference.flags, "depends_on_filter")})
            if depends.get((entry.attribute, entry.concept, difference.a, difference.b))
            else difference
            for difference in entry.pairwise
        )
        marked.append(entry.model_copy(update={"pairwise": pairs}))
    return marked
