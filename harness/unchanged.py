"""Whether a model counts as unchanged between two runs, and whether its scores say anything at all.

The room that a gate leaves for unseen breaks would keep even an unchanged model from passing on few
identities. So a model passes without it where the weights are known to be the same and the scores are too, or
where every score is bit-equal and the scores are not those of a model that answers nearly always the same.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from harness.acquisition import states_of
from harness.changes import Score
from harness.finished import ComparedRuns, FinishedRun
from harness.outcomes import FAULTS

NEGLIGIBLE = 0.01
"""Scores of the same weights may differ by this share of the margin, as those of two graphics cards do."""
LEAST_DISTINCT = 0.5
CONSTANT = 0.95
"""From this share of one value on, a score counts as constant."""
NEARLY = 0.001
"""Scores within this share of the width of the baseline's count as one value."""
ROUNDING = 1e-6
"""Of 32-bit floats, relative to the largest score."""
_NOT_THE_MODEL = {"spec", "versions"}
Values = npt.NDArray[np.float64]
Sides = tuple[Literal["source", "transformed"], ...]
_BOTH: Sides = ("source", "transformed")
_WORDS: dict[Sides, str] = {("source",): " before the edit", ("transformed",): " after the edit"}


def unchanged_scores(runs: ComparedRuns, score: Score, groups: tuple[str, ...], margin: float) -> str:
    """Why the scores of some cells count as unchanged; empty where they don't, or where pairs are lost.

    Args:
        runs: the two runs.
        score: of what.
        groups: of the cells.
        margin: of the rule, in units of the score.
    """
    here = np.logical_or.reduce([runs.union[0].rows_of(score.attribute, group) for group in groups])
    column = runs.base.record.concepts.index(score.concept)
    sides = [
        (before[here, column], after[here, column])
        for before, after in zip(*((run.source, run.transformed) for run in runs.union), strict=True)
    ]
    same = same_target(runs)
    if all(np.array_equal(before, after, equal_nan=True) for before, after in sides) and not _differs(runs):
        if same:
            return "the weights are the same, and every score is"
        if distinct_share(runs.new, column) >= LEAST_DISTINCT:
            return "every score is the same"
        return ""
    room = NEGLIGIBLE * margin
    if same and all(_close(*both, room) for both in sides) and not _differs(runs, column, room):
        return "the weights are the same, and no score differs by more than a hundredth of the margin"
    return ""


def _differs(runs: ComparedRuns, column: int | None = None, room: float = 0.0) -> bool:
    """Whether any pair of both runs got another answer: then the model is another one, in every cell.

    A model that breaks for some people leaves the scores of the others as they were, and a cell may hold none
    of those it breaks for. Pairs that a run failed on by a fault say nothing about the model.
    """
    base, new = runs.common.base, runs.common.new
    told = ~np.logical_or(*(np.isin(run.texts["reason"], FAULTS) for run in (base, new)))
    columns = slice(None) if column is None else column
    return not all(
        _close(getattr(base, side)[told, columns], getattr(new, side)[told, columns], room)
        for side in ("source", "transformed")
    )


def _close(before: Values, after: Values, room: float) -> bool:
    known = np.isfinite(before)
    return bool(np.array_equal(known, np.isfinite(after)) and (np.abs(after - before)[known] <= room).all())


def unchanged_acquisition(runs: ComparedRuns, attribute: str, groups: tuple[str, ...]) -> str:
    """Why the failures to acquire of some cells count as unchanged; empty where they don't."""
    for group in groups:
        before, after, _ = states_of(runs, attribute, group)
        if not np.array_equal(before, after, equal_nan=True):
            return ""
    if same_target(runs):
        return "the weights are the same, and every pair is answered as before"
    one, other = runs.union
    equal = all(
        np.array_equal(getattr(one, side), getattr(other, side), equal_nan=True)
        for side in ("source", "transformed")
    )
    return "every score is the same" if equal and _says_something(runs.new) else ""


def unchanged_rates(runs: ComparedRuns) -> str:
    """Why a recogniser's error rates count as unchanged: its comparisons and threshold are the same."""
    reports = [run.record.recognition for run in (runs.base, runs.new)]
    if not all(reports):
        return ""
    one, two = (report[0] for report in reports)
    if one.comparisons_sha256 is None or one.comparisons_sha256 != two.comparisons_sha256:
        return ""
    if one.thresholds != two.thresholds:
        return ""
    return "every comparison is the same" if same_target(runs) or _says_something(runs.new) else ""


def _says_something(run: FinishedRun) -> bool:
    columns = range(len(run.record.concepts))
    return any(distinct_share(run, column) >= LEAST_DISTINCT for column in columns)


def same_target(runs: ComparedRuns) -> bool:
    """Whether both runs are of the same weights, asked in the same way."""
    cards = [
        run.record.targets[0].model_dump(mode="json", exclude=_NOT_THE_MODEL) for run in (runs.base, runs.new)
    ]
    return bool(cards[0]["weights"]) and cards[0] == cards[1]


def distinct_share(run: FinishedRun, column: int) -> float:
    """Different values of a concept among all its answers, each picture counted once, in [0, 1]."""
    return _distinct(_answers(run, column))


def constant_score(runs: ComparedRuns, score: Score, groups: tuple[str, ...]) -> str:
    """Say that the new run gives nearly all pictures one score; empty where it does not.

    One score is one up to rounding, and up to a thousandth of the width in which the baseline's scores lay.
    Told of a whole concept, and of one cell where the baseline's scores were not constant as well.
    """
    column = runs.new.record.concepts.index(score.concept)
    old, new = (_answers(run, column) for run in (runs.base, runs.new))
    value, share = _commonest(new, _room(old, new))
    if share >= CONSTANT:
        return f"'{score.concept}' is {value:.6g} for {_percent(share)} of all answers of the new run"
    return _became_constant(runs, score, groups, _BOTH, 0.0)


def constant_side(runs: ComparedRuns, score: Score, groups: tuple[str, ...]) -> str:
    """Say that scores before or after the edit are one value where the baseline's mostly differed; or empty.

    Yes/no scores of one side are one value by rights, so those of the baseline must have been no such scores.
    """
    sides = {"before": _BOTH[:1], "after": _BOTH[1:], "change": _BOTH}[score.side]
    found = (_became_constant(runs, score, groups, (side,), LEAST_DISTINCT) for side in sides)
    return next(filter(None, found), "")


def _became_constant(
    runs: ComparedRuns, score: Score, groups: tuple[str, ...], sides: Sides, distinct: float
) -> str:
    """Which group's scores are one value now; those of the baseline were not, and so distinct at least."""
    column = runs.new.record.concepts.index(score.concept)
    for group in groups:
        cells = [run.take(run.rows_of(score.attribute, group)) for run in (runs.base, runs.new)]
        old, new = (_answers(run, column, sides) for run in cells)
        room = _room(old, new)
        value, share = _commonest(new, room)
        if share >= CONSTANT and _commonest(old, room)[1] < CONSTANT and _distinct(old) >= distinct:
            what = f"'{score.concept}' is {value:.6g} for {_percent(share)} of the answers about {group}"
            return what + _WORDS.get(sides, "")
    return ""


def _room(old: Values, new: Values) -> float:
    """How far scores may lie apart and still count as one."""
    if not len(old) or not len(new):
        return 0.0
    ordered = np.sort(old)
    most = math.ceil(CONSTANT * len(ordered))
    width = (ordered[most - 1 :] - ordered[: len(ordered) - most + 1]).min()
    return float(max(width * NEARLY, np.abs(new).max() * ROUNDING))


def _percent(share: float) -> str:
    return f"{np.floor(1000 * share) / 10:g} %"


def _answers(run: FinishedRun, column: int, sides: Sides = _BOTH) -> Values:
    """The scores of a concept, those of a picture that stands in several pairs once."""
    found: list[Values] = []
    for side in sides:
        scores = {"source": run.source, "transformed": run.transformed}[side]
        known = np.isfinite(scores[:, column])
        values, keys = scores[known, column], run.texts[f"{side}_hash"][known]
        told = np.array([key is not None for key in keys], dtype=bool)
        first = np.unique(keys[told].astype(str), return_index=True)[1]
        found += [values[told][first], values[~told]]
    return np.concatenate(found)


def _distinct(values: Values) -> float:
    return len(np.unique(values)) / len(values) if len(values) else 0.0


def _commonest(values: Values, room: float) -> tuple[float, float]:
    """The score that most answers have, up to ``room``, and their share."""
    if not len(values):
        return np.nan, 0.0
    ordered = np.sort(values)
    counts = np.searchsorted(ordered, ordered + room, side="right") - np.arange(len(ordered))
    place = int(counts.argmax())
    return float(ordered[place + counts[place] // 2]), float(counts[place] / len(ordered))
