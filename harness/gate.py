"""The gate: decide whether a new run may replace the baseline, by one check for every rule and group.

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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from harness.acquisition import fta_change
from harness.anchor import load_anchor
from harness.changes import Change, Score, Terms, score_change
from harness.finished import ComparedRuns, FinishedRun, compared_runs, load_run
from harness.largest import largest_change
from harness.paired_rates import ErrorRates, Wanted, cell_counts, counts_of, open_error_rates
from harness.policy import EVERY, Limits, Policy, Rule, load_policy
from harness.tables import no_claim_notes
from harness.unchanged import (
    constant_score,
    constant_side,
    unchanged_acquisition,
    unchanged_rates,
    unchanged_scores,
)
from harness.verdict import Decided, Outcome, Planned, decide
from targets.base.errors import InputError, NotComparableError
from targets.base.text import counted, nearest, shortlist

EXIT_STATUS: dict[Outcome, int] = {"pass": 0, "fail": 1, "inconclusive": 3, "not comparable": 3}
_GRAVEST: tuple[Outcome, ...] = ("fail", "not comparable", "inconclusive", "pass")
LOOKS = (
    "every look at one margin with the same identities is another chance to err (six looks: a false pass in "
    "7 % of cases at a nominal 2.5 %); decide on fresh identities"
)
UNDRIFTED = (
    'so the drift of these is not tested (gate --update-baseline --new-anchor "why" sets another anchor)'
)


@dataclass(frozen=True)
class Check:
    """One rule for one group, or for one pair of groups.

    Attributes:
        planned: rule, groups, margin, and the run that the change is measured from.
        decided: the outcome and its reason.
        change: what it rests on.
    """

    planned: Planned
    decided: Decided
    change: Change

    @property
    def rule(self) -> Rule:
        """The policy's rule."""
        return self.planned.rule

    @property
    def groups(self) -> tuple[str, ...]:
        """One group, or two for a difference; ("*",) where groups can't be told."""
        return self.planned.groups

    @property
    def outcome(self) -> Outcome:
        """ "pass", "fail", "inconclusive" or "not comparable"."""
        return self.decided.outcome

    @property
    def reason(self) -> str:
        """Why, in one sentence."""
        return self.decided.reason

    @property
    def p_beyond_adjusted(self) -> float:
        """Holm over all checks of the policy; NaN where there is no test."""
        return self.decided.p_beyond_adjusted

    @property
    def identities_needed(self) -> int | None:
        """How many identities would decide an inconclusive check; None where no number would."""
        return self.decided.identities_needed

    @property
    def name(self) -> str:
        """Metric, comparison, attribute, concept and groups, in one line."""
        rule = self.rule
        what = "/".join(filter(None, (rule.attribute, rule.concept)))
        of = f"of {rule.of}" if rule.metric == "difference" and rule.of != "delta" else None
        side = rule.side if rule.side != "after" or rule.quantity == "level" else None
        since = "since the anchor" if self.planned.since == "anchor" else None
        words = (rule.metric, of, rule.comparison, side, what, " to ".join(self.groups), since)
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


@dataclass(frozen=True)
class _Opened:
    """Two runs and, where a rule is about them, their error rates or why there are none."""

    runs: ComparedRuns
    rates: ErrorRates | Change
    obstacle: str


def gate(
    new: str | Path, baseline: str | Path, policy: str | Path | Policy, *, since_anchor: bool = True
) -> GateResult:
    """Hold a new run against a baseline and, where the baseline has one, against its anchor.

    Args:
        new, baseline: folders of runs, or their record.json.
        policy: a policy file, or a policy.
        since_anchor: whether the change since the anchor is tested as well.

    Raises:
        InputError: a file is damaged or no run, or a rule matches nothing.
    """
    chosen = policy if isinstance(policy, Policy) else load_policy(Path(policy))
    limits = chosen.policy
    try:
        runs = load_run(Path(baseline)), load_run(Path(new))
        anchor = load_anchor(runs[0].folder) if since_anchor else None
    except NotComparableError as error:
        checks = tuple(_not_comparable(rule, rule.groups, str(error)) for rule in chosen.rule)
        return GateResult(Path(new), Path(baseline), limits, checks, ())
    expanded = [(rule, groups) for rule in chosen.rule for groups in _expanded(rule, runs)]
    recognised = any(rule.kind is not None for rule, _ in expanded)
    against_base = _opened(compared_runs(*runs), recognised=recognised)
    found = [_check(rule, groups, against_base, limits, "baseline") for rule, groups in expanded]
    undrifted: list[str] = []
    if anchor is not None:
        since = _opened(compared_runs(anchor, runs[1], base_name="anchor"), recognised=recognised)
        for rule, groups in expanded:
            absent = [group for group in groups if group not in _groups_of(anchor, rule.attribute)]
            if absent and not since.obstacle:
                undrifted.append(f"{rule.attribute}: the anchor has no {shortlist(absent)}, {UNDRIFTED}")
            else:
                found.append(_check(rule, groups, since, limits, "anchor"))
    planned, changes = [item[0] for item in found], [item[1] for item in found]
    decided = decide(planned, changes, limits)
    checks = tuple(Check(*item) for item in zip(planned, decided, changes, strict=True))
    notes = tuple(dict.fromkeys([*undrifted, *_notes(against_base.runs, chosen, checks)]))
    return GateResult(runs[1].folder, runs[0].folder, limits, checks, notes)


def cases(new: str | Path, baseline: str | Path, policy: str | Path | Policy) -> list[Check]:
    """The checks of a policy, for ``pytest.mark.parametrize(..., ids=str)``: assert ``check.passed``."""
    return list(gate(new, baseline, policy).checks)


def _not_comparable(rule: Rule, groups: tuple[str, ...], reason: str) -> Check:
    planned = Planned(rule, groups, Terms(rule.margin, rule.harmful, 0.5))
    return Check(planned, Decided("not comparable", reason), Change())


def _opened(runs: ComparedRuns, *, recognised: bool) -> _Opened:
    obstacle = _obstacle(runs)
    rates = open_error_rates(runs) if recognised and not obstacle else Change()
    return _Opened(runs, rates, obstacle)


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


def _obstacle(runs: ComparedRuns) -> str:
    """Why the runs as wholes can't be compared, empty where they can."""
    base, new, common = runs.base.record, runs.new.record, runs.common
    if base.concepts != new.concepts:
        differing = sorted({*base.concepts} ^ {*new.concepts}) or ["their order"]
        return f"the target's concept lists differ: {shortlist(differing)}"
    if base.settings.taxonomy_digest != new.settings.taxonomy_digest:
        return "the runs were made with different taxonomies"
    if base.settings.references != new.settings.references:
        return "'match' rests on another number of reference pictures"
    not_finite = runs.base.not_finite + runs.new.not_finite
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


def _check(
    rule: Rule, groups: tuple[str, ...], opened: _Opened, limits: Limits, since: Literal["baseline", "anchor"]
) -> tuple[Planned, Change]:
    """What is planned for some cells, and the change that was found."""
    margin = rule.margin if since == "baseline" else rule.margin_since_anchor
    terms = Terms(margin, rule.harmful, limits.alpha, unseen=rule.unseen_breaks == "count")
    planned = Planned(rule, groups, terms, since)
    if opened.obstacle:
        hint = ' (gate --update-baseline --new-anchor "why" sets another anchor)' if since == "anchor" else ""
        return planned, Change(missing=opened.obstacle + hint)
    if rule.quantity == "fta":
        change = fta_change(opened.runs, rule.attribute, groups, terms)
        unchanged = unchanged_acquisition(opened.runs, rule.attribute, groups)
    elif rule.kind is not None:
        change = _rate_change(rule, groups, opened, terms)
        unchanged = unchanged_rates(opened.runs)
    else:
        score = _score_of(rule)
        largest, unknown = largest_change(rule, opened.runs)
        terms = replace(terms, largest=largest, unknown=unknown)
        planned = replace(planned, terms=terms, constant=constant_score(opened.runs, score, groups))
        change = score_change(opened.runs, score, groups, terms)
        silent = constant_side(opened.runs, score, groups)
        if silent and not change.missing:
            change = replace(change, cannot_pass=f"{silent}, and a constant score shows nothing")
        unchanged = unchanged_scores(opened.runs, score, groups, rule.margin)
    claim = opened.runs.base.record.no_claim or opened.runs.new.record.no_claim
    if rule.metric == "difference" and claim and not change.missing:
        change = replace(change, undefined=claim)
    return planned, replace(change, unchanged="" if change.missing else unchanged)


def _score_of(rule: Rule) -> Score:
    return Score(rule.attribute, rule.concept or "", rule.side if rule.quantity == "level" else "change")


def _rate_change(rule: Rule, groups: tuple[str, ...], opened: _Opened, terms: Terms) -> Change:
    rates = opened.rates
    if isinstance(rates, Change):
        counts = counts_of(cell_counts(opened.runs.common), rule.attribute, groups)
        return rates if rates.missing else replace(counts, undefined=rates.undefined)
    if rule.kind is None:
        raise ValueError(f"'{rule.quantity}' is no error rate")
    return rates.change(Wanted(rule.quantity, rule.kind, rule.side, rule.attribute), groups, terms)


def _notes(runs: ComparedRuns, policy: Policy, checks: Sequence[Check]) -> list[str]:
    notes = []
    base, new, common = runs.base, runs.new, runs.common
    for pairs, run in ((common.only_base, "baseline"), (common.only_new, "new run")):
        if pairs:
            notes.append(f"{counted(len(pairs), 'pair')} only in the {run}: counted as lost")
    for rule in policy.rule:
        more = [g for g in _groups_of(new, rule.attribute) if g not in _groups_of(base, rule.attribute)]
        if more:
            notes.append(
                f"{rule.attribute}: no baseline for {shortlist(more)}, so nothing is said about them"
            )
    notes += [*no_claim_notes(base.record, "baseline"), *no_claim_notes(new.record, "new run")]
    if common.pictures_unknown():
        notes.append("both runs are of finished scores: nobody has seen whether the pictures are the same")
    if base.record.settings.level != new.record.settings.level:
        notes.append("the runs were reported at different levels; the gate recomputes from the pairs")
    notes += [*_moved_levels(runs, checks), *_worse_than_worst(checks)]
    if any(check.outcome == "inconclusive" for check in checks):
        notes.append(LOOKS)
    return list(dict.fromkeys(notes))


def _moved_levels(runs: ComparedRuns, checks: Sequence[Check]) -> Iterator[str]:
    """Say where a change by the edit passes although the score itself moved by more than the margin."""
    for check in checks:
        rule = check.rule
        if not check.passed or rule.quantity != "delta" or check.planned.since != "baseline":
            continue
        for group, side in itertools.product(check.groups, ("before", "after")):
            terms = replace(check.planned.terms, harmful="both")
            level = score_change(runs, Score(rule.attribute, rule.concept or "", side), [group], terms)
            if abs(level.change) > rule.margin:
                what = f"{rule.attribute}/{rule.concept} {group}"
                yield (
                    f"{what}: the change by the edit passes, but the mean score {side} the edit moved by "
                    f"{level.change:.3g}, more than the margin {rule.margin:g}: add a rule of metric 'level'"
                )


def _worse_than_worst(checks: Sequence[Check]) -> Iterator[str]:
    """Say where an identity changed by more than a rule holds for the worst."""
    for check in checks:
        worst, most = check.rule.worst_change, check.change.most
        if worst is not None and most > worst and check.passed:
            yield (
                f"{check.name}: one identity changed by {most:.3g}, more than the rule's worst_change "
                f"{worst:g}, so the room left for unseen breaks is too small"
            )
