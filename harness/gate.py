"""The gate: may a new run take a baseline's place? One check for every rule and group of a policy.

In pytest it is three lines::

    from harness.gate import gate
    result = gate("runs/new", "runs/baseline", "policy.toml")
    assert result.passed, result.summary

or one test a check: ``@pytest.mark.parametrize("check", cases("runs/new", "runs/baseline", "policy.toml"),
ids=str)``. Everything is recomputed from the pairs of both runs. What can't be compared, or is too uncertain,
never passes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from harness.acquisition import fta_change
from harness.changes import Change, Margin, delta_change, difference_change
from harness.finished import CommonPairs, FinishedRun, common_pairs, load_run
from harness.paired_rates import ErrorRates, Wanted, cell_counts, counts_of, open_error_rates
from harness.policy import EVERY, Limits, Policy, Rule, load_policy
from harness.stats.families import adjust
from harness.stats.planning import identities_to_decide
from targets.base.errors import InputError, NotComparableError
from targets.base.text import counted, nearest, shortlist

Outcome = Literal["pass", "fail", "inconclusive", "not comparable"]
EXIT_STATUS: dict[Outcome, int] = {"pass": 0, "fail": 1, "inconclusive": 3, "not comparable": 3}
EXACT = ("fta", "fnmr", "tmr")
"""Shares whose bounds rest on how many people changed, where none did."""
_GRAVEST: tuple[Outcome, ...] = ("fail", "not comparable", "inconclusive", "pass")
LOOKS = (
    "every look at one margin with the same identities is another chance to err (six looks: a false pass in "
    "7 % of cases at a nominal 2.5 %); decide on fresh identities"
)


@dataclass(frozen=True)
class Check:
    """One rule for one group, or for one pair of groups.

    Attributes:
        rule: of the policy.
        groups: one group, or two for a difference; ("*",) where groups can't be told.
        outcome: "pass", "fail", "inconclusive" or "not comparable".
        reason: one sentence.
        change: what it rests on.
        p_beyond_adjusted: Holm over all checks of the policy; NaN where there is no test.
        identities_needed: how many would decide an inconclusive check with the policy's power; None where no
            number would, or the spread is unknown.
    """

    rule: Rule
    groups: tuple[str, ...]
    outcome: Outcome
    reason: str
    change: Change
    p_beyond_adjusted: float = math.nan
    identities_needed: int | None = None

    @property
    def name(self) -> str:
        """Metric, comparison, attribute, concept and groups, in one line."""
        rule = self.rule
        what = "/".join(filter(None, (rule.attribute, rule.concept)))
        of = f"of {rule.of}" if rule.metric == "difference" and rule.of != "delta" else None
        side = rule.side if rule.side != "after" else None
        words = (rule.metric, of, rule.comparison, side, what, " to ".join(self.groups))
        return " ".join(filter(None, words))

    @property
    def passed(self) -> bool:
        """Whether the outcome is "pass"."""
        return self.outcome == "pass"

    @property
    def summary(self) -> str:
        """Name, outcome and reason, in one line."""
        return f"{self.name}: {self.outcome}: {self.reason}"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class GateResult:
    """All checks of a policy.

    Attributes:
        new, baseline: folders of the two runs.
        limits: what held for all checks.
        checks: one a rule and group.
        notes: one sentence each.
    """

    new: Path
    baseline: Path
    limits: Limits
    checks: tuple[Check, ...]
    notes: tuple[str, ...]

    @property
    def outcome(self) -> Outcome:
        """The gravest outcome of all checks."""
        found = {check.outcome for check in self.checks}
        return next(outcome for outcome in _GRAVEST if outcome in found)

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return self.outcome == "pass"

    @property
    def exit_status(self) -> int:
        """0 passed, 1 failed, 3 inconclusive or not comparable."""
        return EXIT_STATUS[self.outcome]

    @property
    def summary(self) -> str:
        """The outcome, and a line for every check that did not pass."""
        lines = [check.summary for check in self.checks if not check.passed]
        return "\n".join([f"gate: {self.outcome} ({counted(len(self.checks), 'check')})", *lines])


def gate(new: str | Path, baseline: str | Path, policy: str | Path | Policy) -> GateResult:
    """Hold a new run against a baseline.

    Args:
        new, baseline: folders of runs, or their record.json.
        policy: a policy file, or a policy.

    Raises:
        InputError: a file is damaged or no run, or a rule matches nothing.
    """
    chosen = policy if isinstance(policy, Policy) else load_policy(Path(policy))
    try:
        runs = load_run(Path(baseline)), load_run(Path(new))
    except NotComparableError as error:
        checks = [_not_comparable(rule, rule.groups, str(error)) for rule in chosen.rule]
        return GateResult(Path(new), Path(baseline), chosen.policy, tuple(checks), ())
    common = common_pairs(*runs)
    planned = [(rule, groups) for rule in chosen.rule for groups in _expanded(rule, runs)]
    obstacle = _obstacle(runs, common)
    if obstacle:
        checks = [_not_comparable(rule, groups, obstacle) for rule, groups in planned]
    else:
        recognised = any(rule.kind is not None for rule, _ in planned)
        rates = open_error_rates(runs, common) if recognised else Change()
        changes = [_change(rule, groups, runs, common, rates, chosen.policy) for rule, groups in planned]
        checks = decide(planned, changes, chosen.policy)
    notes = _notes(runs, common, chosen, checks)
    return GateResult(runs[1].folder, runs[0].folder, chosen.policy, tuple(checks), tuple(notes))


def cases(new: str | Path, baseline: str | Path, policy: str | Path | Policy) -> list[Check]:
    """The checks of a policy, for ``pytest.mark.parametrize(..., ids=str)``: assert ``check.passed``."""
    return list(gate(new, baseline, policy).checks)


def _not_comparable(rule: Rule, groups: tuple[str, ...], reason: str) -> Check:
    return Check(rule, groups, "not comparable", reason, Change())


def _expanded(rule: Rule, runs: tuple[FinishedRun, FinishedRun]) -> Iterable[tuple[str, ...]]:
    """Groups of each check of a rule.

    Raises:
        InputError: the rule matches nothing.
    """
    if rule.kind is not None and not any(run.record.recognition for run in runs):
        raise InputError(
            f"a policy rule matches nothing: '{rule.quantity}' needs a recogniser, and neither run is of one"
        )
    attributes = {name for run in runs for name in run.texts["attribute"]}
    if rule.attribute not in attributes:
        hint = nearest(rule.attribute, attributes)
        raise InputError(f"a policy rule matches nothing: no run has attribute '{rule.attribute}'{hint}")
    concepts = {name for run in runs for name in run.record.concepts}
    if rule.concept is not None and rule.concept not in concepts:
        hint = nearest(rule.concept, concepts)
        raise InputError(f"a policy rule matches nothing: no run has concept '{rule.concept}'{hint}")
    present = [_groups_of(run, rule.attribute) for run in runs]
    for group in rule.groups:
        if group != EVERY and group not in (*present[0], *present[1]):
            hint = nearest(group, {*present[0], *present[1]})
            raise InputError(
                f"a policy rule matches nothing: group '{group}' has no pair for '{rule.attribute}'{hint}"
            )
    groups = (present[0] or present[1]) if rule.group == EVERY else rule.groups
    if rule.metric != "difference":
        return [(group,) for group in groups]
    if len(groups) < 2:
        raise InputError(f"a policy rule matches nothing: only {shortlist(groups)} for '{rule.attribute}'")
    return list(itertools.combinations(groups, 2))


def _groups_of(run: FinishedRun, attribute: str) -> tuple[str, ...]:
    present = set(run.texts["demographic"][run.texts["attribute"] == attribute])
    return tuple(group for group in run.record.groups if group in present)


def _obstacle(runs: tuple[FinishedRun, FinishedRun], common: CommonPairs) -> str:
    """Why the runs as wholes can't be compared, empty where they can."""
    base, new = runs[0].record, runs[1].record
    if base.concepts != new.concepts:
        differing = sorted({*base.concepts} ^ {*new.concepts}) or ["their order"]
        return f"the target's concept lists differ: {shortlist(differing)}"
    if base.settings.taxonomy_digest != new.settings.taxonomy_digest:
        return "the runs were made with different taxonomies"
    if base.settings.references != new.settings.references:
        return "'match' rests on another number of reference pictures"
    not_finite = sum(run.not_finite for run in runs)
    if not_finite:
        return f"pairs.parquet holds {counted(not_finite, 'score')} that are no finite numbers"
    if not len(common.base):
        return "the runs have no pair in common"
    relabelled = common.other_labels()
    if relabelled:
        return f"{counted(len(relabelled), 'pair')} bear other labels: {shortlist(relabelled)}"
    others = common.base.texts["pair_id"][common.other_pictures()]
    if len(others):
        return f"{counted(len(others), 'pair')} show other pictures: {shortlist(list(others))}"
    return ""


def _change(
    rule: Rule,
    groups: tuple[str, ...],
    runs: tuple[FinishedRun, FinishedRun],
    common: CommonPairs,
    rates: ErrorRates | Change,
    limits: Limits,
) -> Change:
    margin = Margin(rule.margin, rule.harmful, limits.alpha)
    if rule.quantity == "fta":
        return fta_change(runs, rule.attribute, groups, margin)
    if rule.kind is not None:
        if isinstance(rates, Change):
            counts = counts_of(cell_counts(common), rule.attribute, groups)
            return rates if rates.missing else replace(counts, undefined=rates.undefined)
        wanted = Wanted(rule.quantity, rule.kind, rule.side, rule.attribute)
        return rates.change(wanted, groups, margin)
    concept = rule.concept or ""
    if rule.metric == "delta":
        return delta_change(runs, common, (rule.attribute, concept, groups[0]), margin)
    return difference_change(runs, common, (rule.attribute, concept, (groups[0], groups[1])), margin)


def decide(
    planned: Sequence[tuple[Rule, tuple[str, ...]]], changes: Sequence[Change], limits: Limits
) -> list[Check]:
    """Outcomes of all checks: a pass needs no adjustment (Berger 1982), a fail is Holm-adjusted over all.

    Args:
        planned: rule and groups of each check.
        changes: what was found, in the same order.
        limits: of the policy.
    """
    tested = [math.nan if _too_few(change, limits) else change.p_beyond for change in changes]
    adjusted = adjust(np.array(tested)).p
    checks = []
    for (rule, groups), change, p in zip(planned, changes, adjusted, strict=True):
        outcome, reason = _outcome(rule, change, float(p), limits)
        needed = _needed(rule, change, limits) if outcome == "inconclusive" else None
        checks.append(Check(rule, groups, outcome, reason, change, float(p), needed))
    return checks


def _too_few(change: Change, limits: Limits) -> str:
    if change.n_pairs < limits.min_pairs:
        return f"{counted(change.n_pairs, 'pair')}, the policy asks for {limits.min_pairs}"
    if change.n_identities < limits.min_identities:
        found = counted(change.n_identities, "identity", "identities")
        return f"{found}, the policy asks for {limits.min_identities}"
    return ""


def _outcome(rule: Rule, change: Change, p_beyond: float, limits: Limits) -> tuple[Outcome, str]:
    if change.missing:
        return "not comparable", change.missing
    if change.undefined:
        return "inconclusive", change.undefined
    if few := _too_few(change, limits):
        return "inconclusive", few
    bound = f"change {change.change:.3g}, one-sided bounds {change.low:.3g} and {change.high:.3g}"
    if p_beyond < limits.alpha:
        return "fail", f"{bound}: beyond the margin {rule.margin:g} ({rule.harmful})"
    if rule.quantity != "fta" and change.lost_share > limits.max_lost:
        lost = f"{change.lost} of {change.lost + change.n_pairs} pairs have scores in one of the runs only"
        return "inconclusive", f"{lost}, the policy allows {limits.max_lost:.3g} of them"
    if change.p_inside < limits.alpha:
        return "pass", f"{bound}: inside the margin {rule.margin:g} ({rule.harmful})"
    return (
        "inconclusive",
        f"{bound}: shown neither inside nor beyond the margin {rule.margin:g} ({rule.harmful})",
    )


def _needed(rule: Rule, change: Change, limits: Limits) -> int | None:
    if not math.isfinite(change.se):
        return None
    if change.se == 0.0:
        # Nothing changed, so the count is what an exact bound takes: (1 - margin)^G < alpha.
        exact = rule.quantity in EXACT and rule.metric != "difference" and change.change == 0
        return math.ceil(math.log(limits.alpha) / math.log1p(-rule.margin)) if exact else None
    return identities_to_decide(
        change.se,
        change.identities,
        rule.margin,
        planned=limits.planned_change,
        alpha=limits.alpha,
        power=limits.power,
    )


def _notes(
    runs: tuple[FinishedRun, FinishedRun], common: CommonPairs, policy: Policy, checks: Sequence[Check]
) -> list[str]:
    notes = []
    base, new = runs
    for pairs, run in ((common.only_base, "baseline"), (common.only_new, "new run")):
        if pairs:
            notes.append(f"{counted(len(pairs), 'pair')} only in the {run}: counted as lost")
    for rule in policy.rule:
        more = [g for g in _groups_of(new, rule.attribute) if g not in _groups_of(base, rule.attribute)]
        if more:
            notes.append(
                f"{rule.attribute}: no baseline for {shortlist(more)}, so nothing is said about them"
            )
    if common.pictures_unknown():
        notes.append("both runs are of finished scores: nobody has seen whether the pictures are the same")
    if base.record.settings.level != new.record.settings.level:
        notes.append("the runs were reported at different levels; the gate recomputes from the pairs")
    if any(check.outcome == "inconclusive" for check in checks):
        notes.append(LOOKS)
    return list(dict.fromkeys(notes))
