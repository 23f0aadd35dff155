"""Differences between groups: one omnibus test a row, pairwise differences with simultaneous bands.

Families (recorded with id, size and method): the omnibus tests of all rows, Holm; inside a row whose omnibus
is rejected at 1 - level, its pairwise differences, Holm. Without that rejection no pairwise difference is
tested, and its adjusted p is null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.axes import CoarseAxis
from harness.estimates import AttributeEstimates
from harness.numbers import number
from harness.record import Band, Difference, Disparity, Family, Interval, Omnibus
from harness.stats.contrasts import PairwiseContrasts, pairwise
from harness.stats.families import adjust
from harness.stats.intervals import Method
from harness.stats.omnibus import OmnibusTest, htz, welch_anova

Row = tuple[str, str]


@dataclass(frozen=True)
class Comparison:
    """Everything compared for one attribute on one axis, all concepts at once."""

    attribute: str
    by: str
    groups: tuple[str, ...]
    contrasts: PairwiseContrasts
    omnibus: OmnibusTest
    omnibus_groups: tuple[str, ...]
    interaction: OmnibusTest | None


def compare(
    estimates: AttributeEstimates, axis: CoarseAxis | None, *, method: Method, level: float
) -> Comparison:
    """Compare the groups of one attribute, or the levels of a coarser axis."""
    means = estimates.means
    if axis is None:
        omnibus = welch_anova(means) if method == "t" else htz(means)
        contrasts = pairwise(means, level=level)
        groups = estimates.groups
        return Comparison(estimates.attribute, "demographic", groups, contrasts, omnibus, groups, None)
    contrasts = pairwise(axis.means(means).means, level=level)
    return Comparison(
        estimates.attribute,
        axis.axis,
        axis.names,
        contrasts,
        axis.omnibus(means),
        estimates.groups,
        axis.interaction(means),
    )


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
    family = Family(id=f"omnibus:{target}:{planned[0][0].by}", m=len(planned), method="holm")
    adjusted = adjust([item.omnibus.p[index] for item, index in planned]).p
    entries: list[Disparity] = []
    families = [family]
    for (item, index), p_adjusted in zip(planned, adjusted, strict=True):
        rejected = bool(p_adjusted <= 1 - level)
        entry, inner = _entry(item, index, concepts[index], target, rejected=rejected)
        test = _omnibus(item.omnibus, index, item.omnibus_groups)
        test = test.model_copy(update={"p_adjusted": number(p_adjusted), "family": family.id})
        entries.append(entry.model_copy(update={"omnibus": test}))
        families += inner
    return entries, families


def _entry(
    item: Comparison, index: int, concept: str, target: str, *, rejected: bool
) -> tuple[Disparity, list[Family]]:
    family_id = f"pairwise:{target}:{item.by}:{item.attribute}:{concept}"
    p = item.contrasts.p[:, index]
    adjusted = adjust(p).p if rejected else np.full(len(p), np.nan)
    differences = tuple(_differences(item, index, adjusted, family_id if rejected else None))
    families = [Family(id=family_id, m=len(p), method="holm")] if rejected else []
    entry = Disparity(
        target=target,
        by=item.by,
        attribute=item.attribute,
        concept=concept,
        omnibus=_omnibus(item.omnibus, index, item.omnibus_groups),
        interaction=_omnibus(item.interaction, index, item.omnibus_groups) if item.interaction else None,
        pairwise=differences,
    )
    return entry, families


def _omnibus(test: OmnibusTest, index: int, groups: Sequence[str]) -> Omnibus:
    return Omnibus(
        method=test.method,
        statistic=number(test.statistic[index]),
        df1=number(test.df1[index]),
        df2=number(test.df2[index]),
        p=number(test.p[index]),
        p_adjusted=None,
        family=None,
        status="ok" if test.status[index] == "ok" else "undefined",
        flags=("few_identities",) if test.few_identities[index] else (),
        used=tuple(group for group, used in zip(groups, test.used[:, index], strict=True) if used),
        left_out=tuple(group for group, out in zip(groups, test.left_out[:, index], strict=True) if out),
    )


def _differences(
    item: Comparison, index: int, adjusted: np.ndarray[tuple[int], np.dtype[np.float64]], family: str | None
) -> Iterator[Difference]:
    found = item.contrasts
    for row, (a, b) in enumerate(zip(found.a, found.b, strict=True)):
        at = row, index
        ok = found.status[at] == "ok"
        has_band = np.isfinite(found.band_low[at])
        named = {"few_identities": found.few_identities[at], "skewed": found.skewed[at]}
        ci = band = None
        if ok:
            low, high = found.low[at], found.high[at]
            ci = Interval(low=low, high=high, level=found.level, method="satterthwaite")
        if has_band:
            low, high, size = found.band_low[at], found.band_high[at], int(found.n_groups[index])
            band = Band(low=low, high=high, level=found.level, groups=size)
        yield Difference(
            a=item.groups[a],
            b=item.groups[b],
            difference=number(found.difference[at]),
            se=number(found.se[at]) if ok else None,
            df=number(found.df[at]),
            ci=ci,
            band=band,
            p=number(found.p[at]),
            p_adjusted=number(adjusted[row]),
            family=family,
            status=str(found.status[at]),
            flags=tuple(name for name, is_set in named.items() if is_set),
        )


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
