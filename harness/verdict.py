"""From changes to outcomes: which checks pass, which fail, and what would decide the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.changes import Change, Terms, harm, lies_inside
from harness.policy import Limits, Rule
from harness.stats.bounded import beyond_bound
from harness.stats.equivalence import Harmful
from harness.stats.families import adjust
from harness.stats.planning import identities_to_decide
from targets.base.text import counted

Outcome = Literal["pass", "fail", "inconclusive", "not comparable"]
Since = Literal["baseline", "anchor"]


@dataclass(frozen=True)
class Planned:
    """What is to be checked.

    Attributes:
        rule: of the policy.
        groups: one group, or two for a difference.
        terms: margin, direction and alpha.
        since: which run the change is measured from.
        constant: which score says nothing since it is nearly always the same, empty where none is.
    """

    rule: Rule
    groups: tuple[str, ...]
    terms: Terms
    since: Since = "baseline"
    constant: str = ""


@dataclass(frozen=True)
class Decided:
    """An outcome and what it rests on.

    Attributes:
        outcome: "pass", "fail", "inconclusive" or "not comparable".
        reason: one sentence.
        p_beyond_adjusted: Holm over all checks of the policy; NaN where there is no test.
        bound: the bound that decided: for a fail how far the change goes at least, else how far it may go at
            worst (for "both" the end that is further out); NaN where there is none.
        identities_needed: how many would decide an inconclusive check with the policy's power; None where no
            number would, or the spread is unknown.
    """

    outcome: Outcome
    reason: str
    p_beyond_adjusted: float = math.nan
    bound: float = math.nan
    identities_needed: int | None = None


def decide(planned: Sequence[Planned], changes: Sequence[Change], limits: Limits) -> list[Decided]:
    """Outcomes of all checks: a pass needs no adjustment (Berger 1982), a fail is Holm-adjusted over all.

    Args:
        planned: the checks.
        changes: what was found, in the same order.
        limits: of the policy.
    """
    tested = np.array([math.nan if _too_few(change, limits) else change.p_beyond for change in changes])
    adjusted = adjust(tested).p
    # Holm's test of the i-th smallest of m p values is one at alpha / (m - i + 1).
    order = np.argsort(np.where(np.isnan(tested), np.inf, tested), kind="stable")
    levels = np.empty(len(tested))
    levels[order] = limits.alpha / np.arange(len(tested), 0, -1)
    return [
        _decided(*item, limits)
        for item in zip(planned, changes, adjusted.tolist(), levels.tolist(), strict=True)
    ]


def _decided(planned: Planned, change: Change, p_beyond: float, level: float, limits: Limits) -> Decided:
    if change.missing:
        return Decided("not comparable", change.missing)
    if change.unchanged:
        return Decided("pass", f"unchanged: {change.unchanged}", p_beyond)
    if change.undefined:
        return Decided("inconclusive", change.undefined)
    seen = f"change {change.change:.3g}{_lost(change)}"
    if planned.constant:
        return Decided(
            "inconclusive", f"{seen}: {planned.constant}, and a constant score shows nothing", p_beyond
        )
    if few := _too_few(change, limits):
        needed = _needed(planned, change, limits)
        return Decided("inconclusive", f"{seen}: {few}", identities_needed=needed)
    against = f"the margin {planned.terms.margin:g} ({planned.terms.harmful})"
    if p_beyond < limits.alpha and change.failing is not None:
        bound = beyond_bound(change.failing, level, planned.terms.harmful)
        return Decided(
            "fail", f"{seen}, {_at_least(bound, planned.terms.harmful)}: beyond {against}", p_beyond, bound
        )
    if planned.rule.quantity != "fta" and change.lost_share > limits.max_lost:
        words = f"the policy allows {limits.max_lost:.3g} of the pairs to be lost"
        return Decided("inconclusive", f"{seen}: {words}", p_beyond)
    if change.cannot_pass:
        return Decided("inconclusive", f"{seen}: {change.cannot_pass}", p_beyond)
    bound, words = _at_worst(change, planned, limits)
    if lies_inside(change, planned.terms):
        return Decided("pass", f"{seen}, {words}: inside {against}", p_beyond, bound)
    needed = _needed(planned, change, limits)
    reason = f"{seen}, {words}: shown neither inside nor beyond {against}"
    if change.p_beyond < limits.alpha:
        reason += f"; beyond it alone, but not after Holm's adjustment over all checks (p {p_beyond:.2g})"
    if _lost_change(planned.terms, change) >= planned.terms.margin:
        reason += ", which the lost pairs alone may reach"
    return Decided("inconclusive", reason, p_beyond, bound, needed)


def _lost(change: Change) -> str:
    if not change.lost:
        return ""
    pairs = counted(change.lost + change.n_pairs, "pair")
    return f" ({change.lost} of {pairs} have scores in one of the runs only)"


def _lost_change(terms: Terms, change: Change) -> float:
    """The change that the lost pairs alone may be."""
    return change.lost_share * (terms.largest or 0.0)


def _too_few(change: Change, limits: Limits) -> str:
    if change.n_pairs < limits.min_pairs:
        return f"{counted(change.n_pairs, 'pair')}, the policy asks for {limits.min_pairs}"
    if change.n_identities < limits.min_identities:
        found = counted(change.n_identities, "identity", "identities")
        return f"{found}, the policy asks for {limits.min_identities}"
    return ""


def _at_least(bound: float, harmful: Harmful) -> str:
    return (
        f"{'at most' if harmful == 'lower' or (harmful == 'both' and bound < 0) else 'at least'} {bound:.3g}"
    )


def _at_worst(change: Change, planned: Planned, limits: Limits) -> tuple[float, str]:
    """The worst bound that a pass needs inside the margin, and words for it."""
    low, high = change.worst_low, change.worst_high
    further = low if -low > high else high
    bound = {"lower": low, "higher": high, "both": further}[planned.terms.harmful]
    where = {
        "lower": f"may be as low as {low:.3g}",
        "higher": f"may be as high as {high:.3g}",
        "both": f"may lie between {low:.3g} and {high:.3g}",
    }[planned.terms.harmful]
    if change.floor is None:
        return bound, f"{where} (breaks that no identity of the sample shows are ignored)"
    what = "pairs of identities" if change.floor.both_of_a_pair else "identities"
    unseen = f"up to {100 * change.unseen:.2g} % of {what} may have broken unseen"
    least = _identities(planned.terms, change, limits, planned.terms.margin, 0.0, se=0.0)
    total = " in both groups" if len(change.floor.parts) > 1 else ""
    return (
        bound,
        f"{where} ({unseen}; the margin has room for that from {least} identities{total} on)",
    )


def _identities(
    terms: Terms,
    change: Change,
    limits: Limits,
    margin: float,
    planned: float,
    *,
    se: float,
    fail: bool = False,
) -> int | None:
    """How many identities would let a bound clear a margin, if the true change is the one planned."""
    return identities_to_decide(
        se,
        change.identities,
        margin,
        floor=None if fail else change.floor,
        planned=planned,
        alpha=limits.alpha,
        power=limits.power,
        both=terms.harmful == "both" and not fail,
    )


def _needed(planned: Planned, change: Change, limits: Limits) -> int | None:
    """How many identities would decide: more than there are, and each group's least by the policy."""
    terms = planned.terms
    if not math.isfinite(change.se) or not change.identities or change.cannot_pass:
        return None
    se = change.se
    # More identities lose as many of their pairs.
    expected = abs(limits.planned_change) + _lost_change(terms, change)
    needed = _identities(terms, change, limits, terms.margin, expected, se=se)
    if needed is not None and needed <= change.identities:
        # The plan holds less than what was seen, so what was seen is planned for: towards a pass or a fail.
        seen = max(harm(change.change, terms.harmful) + _lost_change(terms, change), expected)
        if math.isclose(seen, terms.margin, rel_tol=1e-9):
            return None
        if seen < terms.margin:
            needed = _identities(terms, change, limits, terms.margin, seen, se=se)
        else:
            needed = _identities(terms, change, limits, seen - terms.margin, 0.0, se=se, fail=True)
    if needed is None:
        return None
    return max(needed, change.identities + 1, limits.min_identities * len(planned.groups))
