"""The source faces of a run against each other: thresholds, score histograms and DET curves."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from harness.faces import Faces, gallery_pairs, genuine
from harness.recognition_record import DetPoint, Distribution, RecognitionThreshold
from harness.stats.comparisons import (
    N_BINS,
    Comparisons,
    Side,
    bin_edges,
    floor_for,
    impostor_histograms,
    impostors,
    of_group,
)
from harness.stats.error_rates import (
    curve_from_counts,
    det_points,
    equal_error_rate,
    identities_for_fmr,
    lowest_fmr,
    threshold_at_fmr,
)
from harness.stats.numerics import Floats, Ints
from targets.base.errors import InputError

DEPTH = 4.0
"""How many times the target FMR the kept scores reach: resampled thresholds lie well inside."""
AT_LEAST = 50_000
"""Scores that are kept whatever the share."""
HISTOGRAM_BINS = 100
HIGHEST_LEVEL = 0.999
"""Of error rates: their changes rest on resamples, and their nulls on permutations."""
DET_FMR = np.concatenate([[0.0], np.logspace(-6, 0, 49)])


@dataclass(frozen=True)
class RecognitionOptions:
    """How error rates are made.

    Attributes:
        target_fmr: in (0, 1).
        threshold: a cosine to use instead, in [-1, 1].
        level: of intervals, in (0, 1).
        draws, permutations: of the bootstrap and of the nulls; a high level takes more permutations.
    """

    target_fmr: float = 0.001
    threshold: float | None = None
    level: float = 0.95
    draws: int = 1000
    permutations: int = 499

    def at_level(self, level: float) -> RecognitionOptions:
        """Take another level, with permutations whose smallest p is at most half of 1 - level."""
        least = math.ceil(2.0 / (1.0 - min(level, HIGHEST_LEVEL)) - 1e-6) - 1
        return replace(self, level=level, permutations=max(self.permutations, least))

    def check_level(self) -> None:
        """Check the level before a recogniser is asked.

        Raises:
            InputError: it is beyond what resamples can show.
        """
        if self.level > HIGHEST_LEVEL:
            raise InputError(
                f"error rates of a recogniser take a --level of at most {HIGHEST_LEVEL}, got {self.level}: "
                "they rest on resamples and permutations"
            )

    def __post_init__(self) -> None:
        if not 0.0 < self.target_fmr < 1.0:
            raise InputError(f"--target-fmr must lie between 0 and 1, got {self.target_fmr}")
        if self.threshold is not None and not -1.0 <= self.threshold <= 1.0:
            raise InputError(f"--match-threshold must be a cosine in [-1, 1], got {self.threshold}")


@dataclass(frozen=True)
class Gallery:
    """The source pictures against each other, seen once.

    Attributes:
        side: the pictures.
        same_counts, cross_counts: impostor histograms, as `impostor_histograms` gives them.
        same, cross: the highest impostor comparisons within and across groups.
        own, own_with_fta: genuine comparisons; without, and with those that failed, as -inf.
    """

    side: Side
    same_counts: Ints
    cross_counts: Ints
    same: Comparisons
    cross: Comparisons
    own: Comparisons
    own_with_fta: Comparisons

    def of(self, faces: Faces, group: int) -> Comparisons:
        """Impostor comparisons of a group against itself."""
        return of_group(self.same, faces.group_of, group, same=True)


def open_gallery(faces: Faces, options: RecognitionOptions) -> Gallery:
    """Compare all source pictures with each other, keeping scores deep enough for every threshold."""
    side = faces.side(faces.gallery, faces.gallery_people)
    same_counts, cross_counts = impostor_histograms(side)
    depth = 1.0 if options.threshold is None else share_reached(same_counts, options.threshold)
    share = DEPTH * (options.target_fmr if options.threshold is None else depth)
    pooled = floor_for(same_counts.sum(axis=0), share, AT_LEAST)
    floors = np.array([min(pooled, floor_for(counts, share, 1)) for counts in same_counts])
    cross_floor = floor_for(same_counts.sum(axis=0) + cross_counts, share, AT_LEAST)
    same, cross = impostors(side, None, np.minimum(floors, cross_floor), cross_floor)
    scores, people = gallery_pairs(faces)
    size = len(faces.group_of)
    own = genuine(scores, people, size, np.isfinite(scores))
    every = genuine(scores, people, size, np.ones(len(scores), dtype=bool))
    return Gallery(side, same_counts, cross_counts, same, cross, own, every)


def share_reached(counts: Ints, threshold: float) -> float:
    """Share of counted comparisons in bins that a threshold reaches."""
    total = counts.sum()
    above = counts[..., bin_edges() + 2.0 / N_BINS >= threshold].sum()
    return float(above / total) if total else 0.0


def set_thresholds(faces: Faces, gallery: Gallery, options: RecognitionOptions) -> list[RecognitionThreshold]:
    """The global threshold, then each group's own."""
    people = faces.identities()
    parts = [gallery.of(faces, group) for group in range(len(faces.groups))]
    total = sum(part.n for part in parts)
    found = [_threshold("all", gallery.same.scores, total, int(people.min()), options)]
    if options.threshold is None:
        found += [
            _threshold(name, part.scores, part.n, int(count), options)
            for name, part, count in zip(faces.groups, parts, people, strict=True)
        ]
    return found


def _threshold(
    scope: str, scores: Floats, total: int, identities: int, options: RecognitionOptions
) -> RecognitionThreshold:
    """One threshold, refused where the people are too few to show its FMR."""
    needed = identities_for_fmr(options.target_fmr)
    threshold, rate = options.threshold, None
    if threshold is not None:
        matches = int(np.searchsorted(-scores, -threshold, side="right"))
        rate = matches / total if total else None
    elif identities >= needed:
        threshold, rate = threshold_at_fmr(scores, total, options.target_fmr)
    given = options.threshold is not None
    return RecognitionThreshold(
        scope=scope,
        rule="given" if given else "target_fmr",
        target_fmr=None if given else options.target_fmr,
        threshold=threshold,
        fmr=rate,
        status="ok" if threshold is not None else "not_enough_identities",
        identities=identities,
        identities_needed=None if given else needed,
        lowest_target=lowest_fmr(identities),
    )


def distributions(faces: Faces, gallery: Gallery) -> list[Distribution]:
    """Score histograms and DET curves of source faces, all groups together first."""
    scores, people = gallery.own.scores, faces.group_of[gallery.own.first]
    place = np.clip(((scores + 1.0) * (N_BINS / 2)).astype(np.int64), 0, N_BINS - 1)
    own = [np.bincount(place[people == group], minlength=N_BINS) for group in range(len(faces.groups))]
    rows = [("all", np.sum(own, axis=0), gallery.same_counts.sum(axis=0))]
    rows += list(zip(faces.groups, own, gallery.same_counts, strict=True))
    return [_distribution(*row) for row in rows]


def _distribution(group: str, own: Ints, other: Ints) -> Distribution:
    eer, points = None, tuple[DetPoint, ...]()
    if own.sum() and other.sum():
        rates = curve_from_counts(bin_edges(), own, other)
        eer = equal_error_rate(rates)
        chosen = det_points(rates, DET_FMR)
        points = tuple(
            DetPoint(threshold=float(t), fmr=float(far), fnmr=float(near))
            for t, far, near in zip(chosen.threshold, chosen.fmr, chosen.fnmr, strict=True)
        )
    coarse = [part.reshape(HISTOGRAM_BINS, -1).sum(axis=1) for part in (own, other)]
    edges = bin_edges()[:: N_BINS // HISTOGRAM_BINS]
    return Distribution(
        group=group,
        eer_threshold=eer.threshold if eer else None,
        eer_average=eer.average if eer else None,
        eer_interpolated=eer.interpolated if eer else None,
        det=points,
        edges=tuple(float(np.round(edge, 4)) for edge in edges),
        genuine=tuple(int(count) for count in coarse[0]),
        impostor=tuple(int(count) for count in coarse[1]),
    )
