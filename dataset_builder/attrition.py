"""Which groups lose more candidates to the filter, and to which rule: tested like any other disparity.

The indicator "lost" takes the place of a change of score: CR2 variances by identity, one Games-Howell test
an attribute, Holm over the attributes. Then the same for each rule over all attributes, a family of its own.
First reasons depend on the order of the rules: the share lost to a late rule is a share of what came so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dataset_builder.funnel import Decided
from dataset_builder.schema.verdict import REASONS
from harness.stats.contrasts import pairwise
from harness.stats.families import adjust
from harness.stats.groups import GroupMeans
from harness.stats.intervals import cell_estimates
from harness.stats.numerics import Floats
from harness.stats.omnibus import games_howell

ALL = ""


@dataclass(frozen=True)
class AttritionTest:
    """One test of "all groups lose the same share".

    Attributes:
        attribute: whose candidates, ``ALL`` for every attribute's.
        rule: lost to this one, ``ALL`` for any.
        shares: group -> share lost; groups without candidates are not there.
        statistic, df1, df2, p: of the Games-Howell test (studentized range of the pair with the smallest p,
            number of groups, that pair's degrees of freedom); None where it is undefined.
        p_adjusted: by Holm within the family of ``family_size`` tests; None where undefined.
        left_out: groups that lose all or nothing and so have no variance; the test says nothing about them.
        few_identities, skewed: a group in the test has fewer than 10 identities, or a skewed share.
    """

    attribute: str
    rule: str
    shares: dict[str, float]
    statistic: float | None
    df1: float | None
    df2: float | None
    p: float | None
    left_out: tuple[str, ...]
    few_identities: bool
    skewed: bool
    p_adjusted: float | None = None
    family_size: int = 0


def attrition_tests(
    decided: Sequence[Decided], attributes: Sequence[str], groups: Sequence[str]
) -> list[AttritionTest]:
    """Test every attribute, then every rule that rejects anything.

    Args:
        decided: all candidates.
        attributes, groups: in order; those without candidates are left out.
    """
    by_attribute = [
        _test([item for item in decided if item.attribute == name], groups, name, ALL)
        for name in attributes
        if any(item.attribute == name for item in decided)
    ]
    met = {item.reason for item in decided}
    by_rule = [_test(decided, groups, ALL, reason) for reason in REASONS if reason in met]
    return [*_adjusted(by_attribute), *_adjusted(by_rule)]


def _test(decided: Sequence[Decided], groups: Sequence[str], attribute: str, rule: str) -> AttritionTest:
    lost: Callable[[Decided], bool] = (
        (lambda item: item.reason is not None) if rule == ALL else (lambda item: item.reason == rule)
    )
    names = [group for group in groups if any(item.demographic == group for item in decided)]
    cells, shares = [], {}
    for group in names:
        items = [item for item in decided if item.demographic == group]
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(item.identity, len(numbers)) for item in items]
        indicator = np.array([lost(item) for item in items], dtype=np.float64)
        cells.append(cell_estimates(np.zeros(len(items)), indicator, codes))
        shares[group] = float(indicator.mean())
    means = GroupMeans.stack(cells)
    if len(names) < 2:
        return AttritionTest(attribute, rule, shares, None, None, None, None, (), False, False)
    found = games_howell(means, pairwise(means))
    ok = str(found.status[0]) == "ok"
    out = tuple(group for group, is_out in zip(names, found.left_out[:, 0], strict=True) if is_out)

    def number(values: Floats) -> float | None:
        return float(values[0]) if ok else None

    return AttritionTest(
        attribute=attribute,
        rule=rule,
        shares=shares,
        statistic=number(found.statistic),
        df1=number(found.df1),
        df2=number(found.df2),
        p=number(found.p),
        left_out=out,
        few_identities=bool(found.few_identities[0]),
        skewed=bool(found.skewed[0]),
    )


def _adjusted(tests: Sequence[AttritionTest]) -> list[AttritionTest]:
    p = adjust([float("nan") if test.p is None else test.p for test in tests]).p
    return [
        replace(test, p_adjusted=None if np.isnan(value) else float(value), family_size=len(tests))
        for test, value in zip(tests, p, strict=True)
    ]


def in_words(test: AttritionTest, words: str) -> str:
    """One line about a test; ``words`` says what is lost ("glasses", "to rule distorted").

    Shares lost are ordered as the groups are, never by size.
    """
    shares = ", ".join(f"{group} {share:.0%}" for group, share in test.shares.items())
    if test.statistic is None or test.df1 is None or test.df2 is None or test.p_adjusted is None:
        return f"{words}: no test, too few groups or identities with a variance; lost: {shares}"
    named = {"fewer than 10 identities": test.few_identities, "skewed shares": test.skewed}
    flags = ", ".join(name for name, is_set in named.items() if is_set)
    mark = f" (some groups: {flags})" if flags else ""
    out = f"; not in the test, all or nothing lost: {', '.join(test.left_out)}" if test.left_out else ""
    return (
        f"{words}: q({test.df1:.0f}, {test.df2:.1f}) = {test.statistic:.2f}, adjusted p = "
        f"{test.p_adjusted:.2g}{mark}; lost: {shares}{out}"
    )
