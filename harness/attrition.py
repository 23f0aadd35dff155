"""Pairs that a target could not answer: by reason, attribute and group, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.outcomes import CODES, REASONS, Outcomes
from harness.record import Attrition
from harness.stats.proportions import clustered_proportion

# What an edit can do to a target's ability to answer; the other reasons are about files and rows.
COUNTED = ("no_face", "no_answer", "non_finite", "unreadable")


def attrition(
    outcomes: Outcomes, target: str, attributes: Sequence[str], groups: Sequence[str], *, level: float
) -> list[Attrition]:
    """Share of pairs lost to each reason that occurs at all, in every cell with pairs.

    A pair counts as lost to a reason when it is lost for every concept.
    """
    codes = outcomes.pair_codes
    clusters = outcomes.labels.clusters()
    reasons = [name for name in COUNTED if (codes == CODES[name]).any()]
    found = []
    for attribute in attributes:
        for group in groups:
            rows = np.flatnonzero(
                (outcomes.labels.attribute == attribute) & (outcomes.labels.demographic == group)
            )
            if not len(rows):
                continue
            for reason in reasons:
                lost = codes[rows] == REASONS.index(reason)
                share = clustered_proportion(lost, clusters[rows], level=level)
                found.append(
                    Attrition(
                        target=target,
                        attribute=attribute,
                        group=group,
                        reason=reason,
                        n_pairs=share.n,
                        lost=share.successes,
                        share=share.rate,
                        low=share.low,
                        high=share.high,
                        level=level,
                    )
                )
    return found
