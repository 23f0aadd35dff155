"""Whether a model counts as unchanged between two runs, and whether its scores say anything at all.

The room that a gate leaves for unseen breaks would keep even an unchanged model from passing on few
identities. So a model passes without it where the weights are known to be the same and the scores are too, or
where every score is bit-equal and the scores are not those of a model that answers nearly always the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from harness.acquisition import states_of
from harness.changes import Score
from harness.finished import ComparedRuns, FinishedRun

NEGLIGIBLE = 0.01
"""Scores of the same weights may differ by this share of the margin, as those of two graphics cards do."""
LEAST_DISTINCT = 0.5
CONSTANT = 0.95
"""From this share of one value on, a score counts as constant."""
_NOT_THE_MODEL = {"spec", "versions"}
Values = npt.NDArray[np.float64]


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
    if all(np.array_equal(before, after, equal_nan=True) for before, after in sides):
        if same:
            return "the weights are the same, and every score is"
        if distinct_share(runs.new, column) >= LEAST_DISTINCT:
            return "every score is the same"
        return ""
    if same and all(_close(before, after, NEGLIGIBLE * margin) for before, after in sides):
        return "the weights are the same, and no score differs by more than a hundredth of the margin"
    return ""


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
    values = _answers(run, column)
    return len(np.unique(values)) / len(values) if len(values) else 0.0


def constant_score(runs: ComparedRuns, score: Score, groups: tuple[str, ...]) -> str:
    """Say that the new run gives nearly all pictures one score; empty where it does not.

    Told of a whole concept, and of one cell where the baseline's scores were not constant as well.
    """
    column = runs.new.record.concepts.index(score.concept)
    value, share = _commonest(_answers(runs.new, column))
    if share >= CONSTANT:
        return f"'{score.concept}' is {value:.6g} for {_percent(share)} of all answers of the new run"
    for group in groups:
        old, new = (run.take(run.rows_of(score.attribute, group)) for run in (runs.base, runs.new))
        value, share = _commonest(_answers(new, column))
        if share >= CONSTANT and _commonest(_answers(old, column))[1] < CONSTANT:
            return f"'{score.concept}' is {value:.6g} for {_percent(share)} of the answers about {group}"
    return ""


def _percent(share: float) -> str:
    return f"{np.floor(1000 * share) / 10:g} %"


def _answers(run: FinishedRun, column: int) -> Values:
    """The scores of a concept, those of a picture that stands in several pairs once."""
    found: list[Values] = []
    for side, name in ((run.source, "source_hash"), (run.transformed, "transformed_hash")):
        known = np.isfinite(side[:, column])
        values, keys = side[known, column], run.texts[name][known]
        told = np.array([key is not None for key in keys], dtype=bool)
        first = np.unique(keys[told].astype(str), return_index=True)[1]
        found += [values[told][first], values[~told]]
    return np.concatenate(found)


def _commonest(values: Values) -> tuple[float, float]:
    if not len(values):
        return np.nan, 0.0
    unique, counts = np.unique(values, return_counts=True)
    place = int(counts.argmax())
    return float(unique[place]), float(counts[place] / len(values))
