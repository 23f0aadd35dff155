"""A recogniser's error rates in two runs of the same faces: which can be held against each other, and how.

Both runs are resampled over the same people with the same weights, each run's threshold set anew in every
resample, so that a change keeps what the runs share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.changes import Change, Terms, counted_together, held, wider
from harness.comparison_file import read_comparisons
from harness.finished import CommonPairs, ComparedRuns
from harness.folder import COMPARISONS_FILE
from harness.kinds import Compared, Kept, Kind
from harness.policy import Quantity, Side
from harness.rate_changes import Rated, rate_change, rated
from harness.recognition_record import Comparison, Metric, Recognition, RecognitionThreshold
from harness.recognition_tables import refusal
from harness.stats.bounded import Bounded
from harness.stats.numerics import Floats, Ints
from harness.stats.resampling import Selection, double_or_nothing, replicate_thresholds, replicate_totals
from harness.stats.unseen import with_share
from targets.base.hashing import file_digest
from targets.base.text import counted

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
    """Change of a group's rate with failures to acquire left out, and as non-matches.

    ``ways`` has bounds widened by exact ones, ``by_t`` has t bounds only.
    """

    n_identities: int
    ways: tuple[Bounded, Bounded]
    by_t: tuple[Bounded, Bounded]


def _difference(parts: Sequence[Bounded]) -> Bounded:
    """The second less the first, or the only one."""
    return parts[0] if len(parts) == 1 else parts[1].minus(parts[0])


def _with_lost(found: Bounded, shares: Sequence[float]) -> Callable[[float], tuple[float, float]]:
    """Bounds where a share of each group's comparisons was lost, and may all be errors."""
    return lambda alpha: with_share(found.bounds(alpha), shares, 1.0)


@dataclass(frozen=True)
class ErrorRates:
    """Two runs that show the same people.

    Attributes:
        runs: baseline and new run.
        groups: names.
        group_of: shape (G,), group of every person.
        selected: shape (G, draws), who counts in each resample.
        cells: counts of every attribute and group.
        names: what messages call the two.
    """

    runs: tuple[_Run, _Run]
    groups: tuple[str, ...]
    group_of: Ints
    selected: Selection
    cells: Cells
    names: tuple[str, str]

    def change(self, wanted: Wanted, groups: tuple[str, ...], terms: Terms) -> Change:
        """The change of one group's rate, or of two groups' difference (the second's minus the first's).

        Failures to acquire are counted both ways, and the way that is further from a decision stands. A pair
        that a fault took from one of the runs counts as an error for a pass (for FMR it spoils all its
        comparisons) and is left out for a fail.

        Args:
            wanted: which rate.
            groups: one or two.
            terms: what the change is held against, as a share.
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
        pairs = wanted.error == "fmr"
        lost = [self.cells.get((wanted.attribute, group), Change()).lost_share for group in groups]
        spoiled = [1.0 - (1.0 - share) ** 2 if pairs else share for share in lost]
        seen, by_t = (
            wider(*(_difference([ways[way] for ways in own]) for way in range(2)))
            for own in ([part.ways for part in found], [part.by_t for part in found])
        )
        passing, room = (
            replace(item, bounds=_with_lost(item, spoiled), by_t=False) if any(spoiled) else item
            for item in (seen, by_t)
        )
        return held(counts, seen, passing, people, terms, room=room, pairs=pairs)

    def _group(self, wanted: Wanted, group: str) -> _Group | Change:
        if group not in self.groups:
            return Change(missing=f"{group} has no face in either run")
        compared = []
        for run, name in zip(self.runs, self.names, strict=True):
            kind = run.kinds.get((wanted.attribute, wanted.error, wanted.comparison))
            if kind is None:
                return Change(missing=f"no {wanted.error} comparison of {wanted.attribute} in the {name}")
            compared.append(kind.of(self.group_of, self.groups.index(group)))
        sides = ("after", "before") if wanted.side == "change" else (wanted.side,)
        ways: list[Bounded] = []
        by_t: list[Bounded] = []
        people = []
        for way in range(2):
            found = []
            for side in sides:
                rates = [self._rated(index, both[way], side) for index, both in enumerate(compared)]
                for rate, name in zip(rates, self.names, strict=True):
                    if rate is None:
                        return Change(missing=f"{group} has no {wanted.error} comparison in the {name}")
                    if rate.estimate.status == "too_few_identities":
                        return Change(undefined=f"{group} has too few people for an interval in the {name}")
                    people.append(rate.estimate.n_identities)
                found.append(rate_change(*(rate for rate in rates if rate is not None)))
            for kept, parts in ((ways, [x.exact for x in found]), (by_t, [x.by_t for x in found])):
                result = _difference(parts[::-1])
                kept.append(result.negative() if wanted.metric == "tmr" else result)
        return _Group(min(people), (ways[0], ways[1]), (by_t[0], by_t[1]))

    def _rated(self, index: int, compared: Compared, side: str) -> Rated | None:
        some, run = compared.before if side == "before" else compared.after, self.runs[index]
        return (
            rated(some, run.threshold, run.thresholds, self.selected) if some is not None and some.n else None
        )


def open_error_rates(compared: ComparedRuns) -> ErrorRates | Change:
    """Read both runs' comparisons and resample their thresholds.

    Args:
        compared: the two runs.

    Returns:
        The error rates, or a change that says why there are none.

    Raises:
        InputError: a file of comparisons is damaged.
    """
    runs, names, common = (compared.base, compared.new), compared.names, compared.common
    for run, name in zip(runs, names, strict=True):
        if not run.record.recognition:
            return Change(missing=f"the {name} has no recognition error rates: its target gives no vectors")
    before, after = (run.record.recognition[0] for run in runs)
    obstacle = _other_rules(before.thresholds[0], after.thresholds[0], names)
    if obstacle:
        return Change(missing=obstacle)
    kept = []
    for run, report, name in zip(runs, (before, after), names, strict=True):
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
    others = _other_faces(compared, kept[0], kept[1])
    if others:
        return Change(missing=f"error rates rest on all faces of a run, and these runs show others: {others}")
    groups = tuple(dict.fromkeys(group for group, _ in kept[0].people))
    group_of = np.array([groups.index(group) for group, _ in kept[0].people], dtype=np.int64)
    selected = double_or_nothing(len(group_of), before.draws, before.seed)
    selected = selected[compared.base.twins(kept[0].people)]
    one, two = (_opened(*both, group_of, selected) for both in zip(kept, (before, after), strict=True))
    return ErrorRates((one, two), groups, group_of, selected, cell_counts(common), names)


def _other_faces(compared: ComparedRuns, base: Kept, new: Kept) -> str:
    common = compared.common
    missing = zip((common.only_base, common.only_new), compared.names, strict=True)
    parts = [f"{counted(len(ids), 'pair')} only in the {name}" for ids, name in missing if ids]
    return ", ".join(parts) or ("" if base.people == new.people else "other people")


def _other_rules(one: RecognitionThreshold, two: RecognitionThreshold, names: tuple[str, str]) -> str:
    if (one.rule, one.target_fmr) == (two.rule, two.target_fmr):
        return ""
    texts = ["given" if item.rule == "given" else f"at FMR {item.target_fmr}" for item in (one, two)]
    return (
        f"the thresholds were set by other rules: {texts[0]} in the {names[0]}, {texts[1]} in the {names[1]}"
    )


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
