"""The largest change that one identity can suffer: of a rule, or from the range of the score."""

from __future__ import annotations

import numpy as np

from harness.finished import ComparedRuns, FloatArray
from harness.policy import Rule
from harness.similarity import CONCEPTS
from targets.card import ScoreRange


def largest_change(rule: Rule, runs: ComparedRuns) -> tuple[float | None, str]:
    """The largest change that one identity can suffer, or None and why it is unknown."""
    if rule.worst_change is not None:
        return rule.worst_change, ""
    concept, both = rule.concept or "", (runs.base, runs.new)
    if concept in CONCEPTS and all(run.record.settings.references is not None for run in both):
        return 1.0, ""
    add = "add worst_change to the rule: how much one identity's score can change at most"
    ranges = [run.record.targets[0].range_of(concept) for run in both]
    widths = [item[1] - item[0] for item in ranges if item is not None]
    if len(widths) < 2:
        return None, f"the target's card has no score_range for '{concept}', so {add}"
    column = runs.base.record.concepts.index(concept)
    for run, known in zip(both, ranges, strict=True):
        values = np.concatenate([run.source[:, column], run.transformed[:, column]])
        values = values[np.isfinite(values)]
        if known and len(values) and not _within(values, known):
            far = f"{values.min():.6g} to {values.max():.6g}, the score_range on its card {list(known)}"
            return None, f"the scores of '{concept}' are {far}: mend the card, or {add}"
    return max(widths), ""


def _within(values: FloatArray, known: ScoreRange) -> bool:
    """Whether all scores lie in a range, up to the rounding of 32-bit floats."""
    room = 1e-6 * (known[1] - known[0])
    return bool(known[0] - room <= values.min() and values.max() <= known[1] + room)
