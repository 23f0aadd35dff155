"""Error rates before and after an edit, their intervals, and what goes into a record of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from harness.kinds import Compared
from harness.recognition_record import Comparison, ErrorRate, Metric, RateChange, RecognitionCell
from harness.stats.comparisons import Comparisons
from harness.stats.numerics import Floats, Ints
from harness.stats.resampling import (
    Estimate,
    Rate,
    Selection,
    estimate,
    paired_change,
    rate_interval,
    replicate_rates,
)


def number(value: float) -> float | None:
    """Null for what is undefined or infinite."""
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True)
class Resampler:
    """The resamples that all rates of a run share, so that differences between rates keep what they share.

    Attributes:
        selected: shape (G, draws).
        threshold: the global one; ``thresholds``: of every resample, shape (draws,).
        level: of intervals.
        checks: cells of one comparison, for the simultaneous bands.
    """

    selected: Selection
    threshold: float
    thresholds: Floats
    level: float
    checks: int

    @property
    def lowest(self) -> float:
        """The lowest of all thresholds: what kept scores must reach down to."""
        return float(min(self.thresholds.min(), self.threshold))

    def at_threshold(self, some: Comparisons) -> Estimate:
        """Estimate an error rate at the one threshold, which does not move from resample to resample."""
        fixed = np.full(len(self.thresholds), self.threshold)
        return estimate(some, self.threshold, replicate_rates(some, self.selected, fixed))

    def cell(
        self,
        attribute: str | None,
        group: str,
        metric: Metric,
        comparison: Comparison,
        apart: Compared,
        with_fta: Compared,
    ) -> RecognitionCell:
        """Estimate one cell with failures to acquire left out, and with them as non-matches."""
        before, after, change = self._both(apart)
        counted = (before, after, change) if with_fta is apart else self._both(with_fta)
        return RecognitionCell(
            attribute=attribute,
            group=group,
            metric=metric,
            comparison=comparison,
            before=before,
            after=after,
            change=change,
            before_with_fta=counted[0],
            after_with_fta=counted[1],
            change_with_fta=counted[2],
        )

    def _both(self, sides: Compared) -> tuple[ErrorRate | None, ErrorRate | None, RateChange | None]:
        draws = [self._draws(side) for side in (sides.before, sides.after)]
        band = 1.0 - (1.0 - self.level) / max(self.checks, 1)
        rates = [
            [
                None if some is None or own is None else rate_interval(some, self.threshold, own, level)
                for some, own in zip((sides.before, sides.after), draws, strict=True)
            ]
            for level in (self.level, band)
        ]
        shown = [None if rate is None else _shown(rate) for rate in rates[0]]
        change = None
        if draws[0] is not None and draws[1] is not None:
            pairs = [(one, two) for one, two in rates if one is not None and two is not None]
            change = _change([(*pair, (draws[0], draws[1])) for pair in pairs])
        return shown[0], shown[1], change

    def _draws(self, some: Comparisons | None) -> Floats | None:
        return None if some is None else replicate_rates(some, self.selected, self.thresholds)


def _shown(rate: Rate) -> ErrorRate:
    return ErrorRate(
        errors=rate.errors,
        n=rate.n,
        n_identities=rate.n_identities,
        rate=number(rate.rate),
        complement=number(1.0 - rate.rate),
        n_effective=number(rate.n_effective),
        low=number(rate.low),
        high=number(rate.high),
        status=rate.status,
    )


def _change(levels: list[tuple[Rate, Rate, tuple[Floats, Floats]]]) -> RateChange:
    """Combine the paired change at the level of intervals with that at the level of bands."""
    own, band = (paired_change(before, after, draws) for before, after, draws in levels)
    return RateChange(
        difference=number(own.difference),
        low=number(own.low),
        high=number(own.high),
        band_low=number(band.low),
        band_high=number(band.high),
        status="ok" if own.status == "ok" else "undefined",
    )


def acquisition(failed: Floats, people: Ints, size: int) -> Comparisons:
    """Faces as if compared with themselves, so that a failure to acquire is an error at any threshold.

    Args:
        failed: shape (n,), 1 where a face was not acquired.
        people: shape (n,), codes.
        size: number of people.
    """
    scores = np.where(failed > 0, -np.inf, np.inf)
    order = np.argsort(-scores, kind="stable")
    counts = np.bincount(people, minlength=size).astype(np.float64)
    return Comparisons("within", scores[order], people[order], people[order], counts, np.zeros(size))
