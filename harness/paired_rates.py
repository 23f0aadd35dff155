"""A recogniser's error rates in two runs of the same faces: which can be held against each other, and how.

Both runs are resampled over the same people with the same weights, each run's threshold set anew in every
resample, so that a change keeps what the runs share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.changes import Change, Margin, counted_together, further_from_a_decision, held_bounded
from harness.comparison_file import COMPARISONS_FILE, read_comparisons
from harness.finished import CommonPairs, FinishedRun
from harness.kinds import Compared, Kept, Kind
from harness.policy import Quantity, Side
from harness.rate_changes import Rated, rate_change, rated
from harness.recognition_record import Comparison, Metric, Recognition, RecognitionThreshold
from harness.recognition_tables import refusal
from harness.stats.bounded import Bounded
from harness.stats.numerics import Floats, Ints
from harness.stats.resampling import Selection, double_or_nothing, replicate_thresholds, replicate_totals
from targets.base.hashing import file_digest
from targets.base.text import counted

NAMES = ("baseline", "new run")
LEFT_OUT = ("missing_source", "missing_transformed", "unreadable", "duplicate", "identical", "missing_label")
"""Reasons of pairs that no comparison is made of; failures to acquire are counted."""


@dataclass(frozen=True)
class Wanted:
    """Which error rate.

    Attributes:
        metric: "fnmr", "fmr", or "tmr", which is 1 - FNMR.
        comparison: the kind.
        side: faces "before" or "after" the edit, or the "change" from one to the other.
        attribute: what was changed.
    """

    metric: Quantity
    comparison: Comparison
    side: Side
    attribute: str

    @property
    def error(self) -> Metric:
        """The error rate behind it."""
        return "fmr" if self.metric == "fmr" else "fnmr"


Cells = dict[tuple[str, str], Change]
_Key = tuple[str | None, Metric, Comparison]


@dataclass(frozen=True)
class _Run:
    """A run's comparisons and its thresholds, that of the data and of every resample."""

    kinds: dict[_Key, Kind]
    threshold: float
    thresholds: Floats


@dataclass(frozen=True)
class _Group:
    """Change of a group's rate with failures to acquire left out, and as non-matches."""

    n_identities: int
    ways: tuple[Bounded, Bounded]


@dataclass(frozen=True)
class ErrorRates:
    """Two runs that show the same people.

    Attributes:
        runs: baseline and new run.
        groups: names.
        group_of: shape (G,), group of every person.
        selected: shape (G, draws), who counts in each resample.
        cells: counts of every attribute and group.
    """

    runs: tuple[_Run, _Run]
    groups: tuple[str, ...]
    group_of: Ints
    selected: Selection
    cells: Cells

    def change(self, wanted: Wanted, groups: tuple[str, ...], margin: Margin) -> Change:
        """The change of one group's rate, or of two groups' difference (the second's minus the first's).

        Failures to acquire are counted both ways, and the way that is further from a decision stands.

        Args:
            wanted: which rate.
            groups: one or two.
            margin: what the change is held against, as a share.
        """
        counts = counts_of(self.cells, wanted.attribute, groups)
        found = []
        for group in groups:
            part = self._group(wanted, group)
            if isinstance(part, Change):
                return part if part.missing else replace(counts, undefined=part.undefined)
            found.append(part)
        people = [part.n_identities for part in found]
        counts = replace(counts, n_identities=min(people), identities=sum(people))
        own = [[part.ways[way] for part in found] for way in range(2)]
        both = [way[0] if len(way) == 1 else way[1].minus(way[0]) for way in own]
        return further_from_a_decision(*(held_bounded(counts, way, margin) for way in both))

    def _group(self, wanted: Wanted, group: str) -> _Group | Change:
        if group not in self.groups:
            return Change(missing=f"{group} has no face in either run")
        compared = []
        for run, name in zip(self.runs, NAMES, strict=True):
            kind = run.kinds.get((wanted.attribute, wanted.error, wanted.comparison))
            if kind is None:
                return Change(missing=f"no {wanted.error} comparison of {wanted.attribute} in the {name}")
            compared.append(kind.of(self.group_of, self.groups.index(group)))
        sides = ("after", "before") if wanted.side == "change" else (wanted.side,)
        ways, people = [], []
        for way in range(2):
            found = []
            for side in sides:
                rates = [self._rated(index, both[way], side) for index, both in enumerate(compared)]
                for rate, name in zip(rates, NAMES, strict=True):
                    if rate is None:
                        return Change(missing=f"{group} has no {wanted.error} comparison in the {name}")
                    if rate.estimate.status == "too_few_identities":
                        return Change(undefined=f"{group} has too few people for an interval in the {name}")
                    people.append(rate.estimate.n_identities)
                found.append(rate_change(*(rate for rate in rates if rate is not None)))
            result = found[0] if len(found) == 1 else found[0].minus(found[1])
            ways.append(result.negative() if wanted.metric == "tmr" else result)
        return _Group(min(people), (ways[0], ways[1]))

    def _rated(self, index: int, compared: Compared, side: str) -> Rated | None:
        some, run = compared.before if side == "before" else compared.after, self.runs[index]
        return (
            rated(some, run.threshold, run.thresholds, self.selected) if some is not None and some.n else None
        )


def open_error_rates(runs: tuple[FinishedRun, FinishedRun], common: CommonPairs) -> ErrorRates | Change:
    """Read both runs' comparisons and resample their thresholds.

    Args:
        runs: baseline and new run.
        common: their common pairs.

    Returns:
        The error rates, or a change that says why there are none.

    Raises:
        InputError: a file of comparisons is damaged.
    """
    for run, name in zip(runs, NAMES, strict=True):
        if not run.record.recognition:
            return Change(missing=f"the {name} has no recognition error rates: its target gives no vectors")
    before, after = (run.record.recognition[0] for run in runs)
    obstacle = _other_rules(before.thresholds[0], after.thresholds[0])
    if obstacle:
        return Change(missing=obstacle)
    kept = []
    for run, report, name in zip(runs, (before, after), NAMES, strict=True):
        if report.thresholds[0].threshold is None:
            return Change(undefined=f"the {name} has no threshold: {refusal(report.thresholds[0])}")
        found = read_comparisons(run.folder)
        if found is None:
            return Change(missing=f"the {name} has no {COMPARISONS_FILE}; audit it again")
        if report.comparisons_sha256 != file_digest(run.folder / COMPARISONS_FILE):
            return Change(
                missing=f"the {name}'s {COMPARISONS_FILE} is not the one of its record; audit it again"
            )
        kept.append(found)
    others = _other_faces(common, kept[0], kept[1])
    if others:
        return Change(missing=f"error rates rest on all faces of a run, and these runs show others: {others}")
    groups = tuple(dict.fromkeys(group for group, _ in kept[0].people))
    group_of = np.array([groups.index(group) for group, _ in kept[0].people], dtype=np.int64)
    selected = double_or_nothing(len(group_of), before.draws, before.seed)
    one, two = (_opened(*both, group_of, selected) for both in zip(kept, (before, after), strict=True))
    return ErrorRates((one, two), groups, group_of, selected, cell_counts(common))


def _other_faces(common: CommonPairs, base: Kept, new: Kept) -> str:
    missing = zip((common.only_base, common.only_new), NAMES, strict=True)
    parts = [f"{counted(len(ids), 'pair')} only in the {name}" for ids, name in missing if ids]
    return ", ".join(parts) or ("" if base.people == new.people else "other people")


def _other_rules(one: RecognitionThreshold, two: RecognitionThreshold) -> str:
    if (one.rule, one.target_fmr) == (two.rule, two.target_fmr):
        return ""
    texts = ["given" if item.rule == "given" else f"at FMR {item.target_fmr}" for item in (one, two)]
    return f"the thresholds were set by other rules: {texts[0]} in the baseline, {texts[1]} in the new run"


def _opened(kept: Kept, report: Recognition, group_of: Ints, selected: Selection) -> _Run:
    kinds = {(item.attribute, item.metric, item.comparison): item for item in kept.kinds}
    chosen = report.thresholds[0]
    threshold = float(chosen.threshold or 0.0)
    thresholds = np.full(selected.shape[1], threshold)
    pooled = kinds.get((None, "fmr", "same_group"))
    if chosen.target_fmr is not None and pooled is not None and pooled.apart.before is not None:
        every = pooled.apart.before
        parts = [
            pooled.apart.of("same_group", group_of, group).before for group in range(int(group_of[-1]) + 1)
        ]
        totals = np.sum([replicate_totals(part, selected) for part in parts if part is not None], axis=0)
        lowest = min(threshold, float(every.scores[-1]) if len(every.scores) else threshold)
        thresholds = replicate_thresholds(every, totals, selected, chosen.target_fmr, lowest)
    return _Run(kinds, threshold, thresholds)


def cell_counts(common: CommonPairs) -> Cells:
    """(attribute, group) -> pairs that count in both runs, their identities, pairs lost to a fault in one."""
    one, two = (np.isin(run.texts["reason"], LEFT_OUT) for run in (common.base, common.new))
    attribute, group, identity = (
        common.base.texts[name] for name in ("attribute", "demographic", "identity")
    )
    found: Cells = {}
    for key in dict.fromkeys(zip(attribute, group, strict=True)):
        here = (attribute == key[0]) & (group == key[1])
        both = here & ~one & ~two
        people = len(set(identity[both]))
        found[key] = Change(int(both.sum()), people, people, int((here & (one != two)).sum()))
    return found


def counts_of(cells: Cells, attribute: str, groups: Sequence[str]) -> Change:
    """What the change of one group, or of two groups' difference, could be known from."""
    return counted_together([cells.get((attribute, group), Change()) for group in groups])
