"""What stands beside a cell: other estimands, other scales, what the design could have found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.disparities import Row
from harness.estimates import AttributeEstimates, IntArray
from harness.numbers import number
from harness.outcomes import FloatArray, Outcomes
from harness.plans import NO_HALF_WIDTH, NO_MARGIN, TOO_MANY, null_fields
from harness.record import Detail, IdentityMean, ScaleCheck, Status
from harness.stats.effects import EffectSize, effect_size
from harness.stats.equivalence import tost
from harness.stats.intervals import REASONS
from harness.stats.means import icc, identity_means
from harness.stats.planning import identities_for_half_width, minimum_detectable_effect
from harness.stats.scales import scale_sensitivity


def cell_details(
    outcomes: Outcomes,
    estimates: Sequence[AttributeEstimates],
    rows: Sequence[Row],
    *,
    level: float,
    margin: float | None = None,
    half_width: float | None = None,
) -> list[Detail]:
    """Details of every cell of the planned rows that has pairs.

    Args:
        outcomes: n pairs, c concepts.
        estimates: one an attribute.
        rows: (attribute, concept) planned.
        level: of the intervals, in (0, 1).
        margin: of an equivalence test, in units of the score; None for none.
        half_width: wanted half-width of the interval; None where nobody asked.
    """
    clusters = outcomes.labels.clusters()
    details = []
    for item in estimates:
        named = [outcomes.concepts.index(concept) for name, concept in rows if name == item.attribute]
        columns = np.array(named, dtype=np.intp)
        if not len(columns):
            continue
        for position, group in enumerate(item.groups):
            own = item.rows[position]
            if not len(own):
                continue
            scores = outcomes.source[np.ix_(own, columns)], outcomes.transformed[np.ix_(own, columns)]
            one = _GroupDetails(item, position, columns, scores, clusters[own], level)
            details += one.all([outcomes.concepts[c] for c in columns], group, margin, half_width)
    return details


class _GroupDetails:
    """All planned concepts of one attribute and group."""

    def __init__(
        self,
        estimates: AttributeEstimates,
        position: int,
        columns: IntArray,
        scores: tuple[FloatArray, FloatArray],
        clusters: np.ndarray[tuple[int], np.dtype[np.int64]],
        level: float,
    ) -> None:
        self.attribute = estimates.attribute
        means = estimates.means
        self.delta, self.se, self.df = (
            values[position, columns] for values in (means.delta, means.se, means.df)
        )
        self.skew = means.skew[position, columns]
        self.identities = means.n_identities[position, columns]
        self.pairs = means.n_pairs[position, columns]
        self.scores, self.level = scores, level
        self.by_identity = identity_means(*scores, clusters, level=level)
        self.icc = icc(*scores, clusters)
        self.scale = scale_sensitivity(*scores, clusters, level=level)
        se = np.where(self.se > 0, self.se, np.nan)
        self.detectable = minimum_detectable_effect(se, self.df, level=level)

    def all(
        self, concepts: Sequence[str], group: str, margin: float | None, half_width: float | None
    ) -> list[Detail]:
        equivalence = (
            tost(self.delta, self.se, self.df, margin, self.skew).p
            if margin
            else np.full(len(concepts), np.nan)
        )
        return [
            self._one(index, concept, group, margin, number(equivalence[index]), half_width)
            for index, concept in enumerate(concepts)
        ]

    def _one(
        self,
        index: int,
        concept: str,
        group: str,
        margin: float | None,
        equivalence: float | None,
        half_width: float | None,
    ) -> Detail:
        before, after = self.scores
        size = effect_size(before[:, index], after[:, index], level=self.level)
        values = {
            "icc": number(self.icc[index]),
            "dz": number(size.dz),
            "g": number(size.g),
            "minimum_detectable_effect": number(self.detectable[index]),
            "identities_for_half_width": self._identities(index, half_width),
            "equivalence_p": equivalence,
        }
        spread = self._no_spread(index)
        without_margin = NO_MARGIN if margin is None else spread
        reasons = {
            "icc": self._no_icc(index),
            "dz": _no_size(size),
            "g": _no_size(size) if size.status != "ok" else "Hedges' correction takes three pairs",
            "minimum_detectable_effect": spread,
            "identities_for_half_width": NO_HALF_WIDTH if half_width is None else self._no_number(index),
            "equivalence_p": without_margin,
        }
        null = null_fields(reasons, values)
        if "equivalence_p" in null:
            null |= dict.fromkeys(("equivalence_p_adjusted", "equivalence_family"), without_margin)
        return Detail(
            attribute=self.attribute,
            concept=concept,
            group=group,
            identity_mean=self._identity_mean(index),
            scale=self._scale(index),
            reasons=null,
            **values,
        )

    def _no_spread(self, index: int) -> str:
        """Why the change has no positive standard error, for those that have none."""
        counts = {"no_pairs": self.pairs[index] == 0, "one_pair": self.pairs[index] == 1}
        counts |= {"one_identity": self.identities[index] == 1, "rounding_noise": self.se[index] == 0}
        return REASONS[next((name for name, is_so in counts.items() if is_so), "overflow")]

    def _no_number(self, index: int) -> str:
        """Why no number of identities stands there."""
        return TOO_MANY if self.se[index] > 0 and np.isfinite(self.se[index]) else self._no_spread(index)

    def _no_icc(self, index: int) -> str:
        if 2 <= self.pairs[index] == self.identities[index]:
            return "no identity has two pairs"
        return self._no_spread(index) if self.identities[index] < 2 else REASONS["rounding_noise"]

    def _identity_mean(self, index: int) -> IdentityMean:
        found = self.by_identity
        status: Status = str(found.status[index])  # type: ignore[assignment]
        delta, low, high = (number(values[index]) for values in (found.delta, found.low, found.high))
        reason = ""
        if None in (delta, low, high):
            reason = REASONS["rounding_noise"] if status == "zero_variance" else self._no_spread(index)
        return IdentityMean(delta=delta, low=low, high=high, status=status, reason=reason)

    def _scale(self, index: int) -> ScaleCheck:
        found = self.scale
        return ScaleCheck(
            floor_share=number(found.floor_share[index]),
            ceiling_share=number(found.ceiling_share[index]),
            scale=str(found.scale[index]),
            delta=number(found.other.delta[index]),
            low=number(found.other.low[index]),
            high=number(found.other.high[index]),
            status=str(found.other.status[index]),
            reason=REASONS.get(str(found.other.reason[index]), ""),
            scale_dependent=bool(found.scale_dependent[index]),
        )

    def _identities(self, index: int, half_width: float | None) -> int | None:
        spread = np.sqrt(self.identities[index]) * self.se[index]
        if half_width is None or not np.isfinite(spread) or spread <= 0:
            return None
        return identities_for_half_width(float(spread), half_width, level=self.level)


def _no_size(size: EffectSize) -> str:
    """Why there is no standardised change, for those that have none."""
    return REASONS["rounding_noise"] if size.status == "zero_variance" else "it takes two pairs"
