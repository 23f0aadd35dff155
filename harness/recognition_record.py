"""The part of a record about a recogniser: error rates, thresholds and how unevenly errors fall."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

Share = Annotated[FiniteFloat, Field(ge=0, le=1)]
Number = Annotated[int, Field(ge=0)]

Metric = Literal["fnmr", "fmr", "fta"]
Comparison = Literal["other_source", "own_source", "same_group", "cross_group", "both_edited", "acquisition"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RecognitionThreshold(_Part):
    """A threshold, or why there is none.

    Attributes:
        scope: "all" (the one global threshold) or a group, whose FMR it equalises by construction.
        rule: "target_fmr" or "given".
        target_fmr: wanted FMR among source faces of one group, null where the threshold was given.
        threshold: a cosine of this size matches.
        fmr: at the threshold.
        status: "ok" or "not_enough_identities".
        identities: of the group with the fewest, or of this group.
        identities_needed: in every group, by the rule of 30.
        lowest_target: lowest target FMR that so many identities can show.
    """

    scope: str
    rule: Literal["target_fmr", "given"]
    target_fmr: Share | None
    threshold: FiniteFloat | None
    fmr: Share | None
    status: Literal["ok", "not_enough_identities"]
    identities: Number
    identities_needed: Number | None
    lowest_target: Share | None
    reasons: dict[str, str] = {}


class ErrorRate(_Part):
    """A share of comparisons (for "fta": of faces) with its interval.

    Attributes:
        errors, n, n_identities: counts.
        rate: errors over n; ``complement``: 1 minus that, which for FNMR is the TMR.
        n_effective, low, high: Wilson's interval on the effective sample size, at the recognition's level.
        status: "ok", "identities_as_size", "too_few_identities" or "no_comparisons".
    """

    errors: Number
    n: Number
    n_identities: Number
    rate: Share | None
    complement: Share | None
    n_effective: FiniteFloat | None
    low: Share | None
    high: Share | None
    status: str
    reasons: dict[str, str] = {}


class RateChange(_Part):
    """Rate after the edit minus rate before it, over the same comparisons.

    Attributes:
        difference, low, high: in [-1, 1].
        band_low, band_high: simultaneous over all cells of this comparison (Bonferroni).
        status: "ok" or "undefined".
    """

    difference: FiniteFloat | None
    low: FiniteFloat | None
    high: FiniteFloat | None
    band_low: FiniteFloat | None
    band_high: FiniteFloat | None
    status: Literal["ok", "undefined"]
    reasons: dict[str, str] = {}


class RecognitionCell(_Part):
    """One error rate of one group, before and after the edit.

    Attributes:
        attribute: what was changed; null for the source faces alone.
        group: whose probes; "all" for all groups' comparisons together.
        metric: "fnmr", "fmr" or "fta" (failure to acquire, of the probes).
        comparison: "other_source": with other source pictures of the person; "own_source": with the very
            picture that was edited; "same_group" and "cross_group": with source pictures of other people;
            "both_edited": two edited people of a group; "acquisition": no comparison.
        before, after: with failures to acquire left out; for an attribute only pairs with both faces found.
        before_with_fta, after_with_fta: with them as non-matches, over all pairs.
        change, change_with_fta: after minus before.
    """

    attribute: str | None
    group: str
    metric: Metric
    comparison: Comparison
    before: ErrorRate | None
    after: ErrorRate | None
    change: RateChange | None
    before_with_fta: ErrorRate | None
    after_with_fta: ErrorRate | None
    change_with_fta: RateChange | None
    reasons: dict[str, str] = {}


class InequityMeasure(_Part):
    """A measure, one of FNMR beside what permuted group labels make of it; null where undefined or infinite.

    Attributes:
        name: like "max_over_geomean_fmr"; NIST's measure comes first.
        value: at the global threshold; ``status`` says why it is null.
        null_median, null_extreme: of the permutations, the extreme at the recognition's level.
        p: share of permutations at least as uneven; without a null (``reasons``) where FMR enters.
    """

    name: str
    value: FiniteFloat | None
    status: str
    null_median: FiniteFloat | None
    null_extreme: FiniteFloat | None
    p: Share | None
    reasons: dict[str, str] = {}


class RateRatio(_Part):
    """The FMR of group ``b`` over that of ``a``, tested on the logarithm with person-level variances.

    Attributes:
        a, b: groups.
        ratio, low, high: with its single interval at the recognition's level.
        p, p_adjusted: of a ratio of 1; Holm over all pairs of groups, those without a p counted as 1.
        reason: why they are null.
    """

    a: str
    b: str
    ratio: FiniteFloat | None
    low: FiniteFloat | None
    high: FiniteFloat | None
    p: Share | None
    p_adjusted: Share | None
    reason: str = ""
    reasons: dict[str, str] = {}


class Inequity(_Part):
    """Measures over the groups that have both rates; ``attribute`` null for source faces.

    ``fmr_ratios`` tests whether the groups' FMR against themselves differ; where there is none,
    ``fmr_ratios_reason`` says why.
    """

    attribute: str | None
    groups: tuple[str, ...]
    measures: tuple[InequityMeasure, ...]
    fmr_ratios: tuple[RateRatio, ...] = ()
    fmr_ratios_reason: str = ""
    reasons: dict[str, str] = {}


class DetPoint(_Part):
    """Error rates at one threshold."""

    threshold: FiniteFloat
    fmr: Share
    fnmr: Share


class Distribution(_Part):
    """Scores of the source faces of one group, or of all.

    Attributes:
        group: or "all".
        eer_threshold, eer_average, eer_interpolated: equal error rate in both customary ways; null without
            genuine comparisons.
        det: points of the curve.
        edges: lower edges of the histogram's bins.
        genuine, impostor: comparisons by bin; impostors of the same group.
    """

    group: str
    eer_threshold: FiniteFloat | None
    eer_average: Share | None
    eer_interpolated: Share | None
    det: tuple[DetPoint, ...]
    edges: tuple[FiniteFloat, ...]
    genuine: tuple[Number, ...]
    impostor: tuple[Number, ...]
    reasons: dict[str, str] = {}


class Recognition(_Part):
    """A recogniser's report.

    Attributes:
        target: spec of the target.
        level: of intervals, bands and nulls.
        draws, permutations, seed: of the double-or-nothing bootstrap and of the nulls.
        rules: enrolment, template, comparisons, threshold, selector, failure to acquire: in words.
        thresholds: the global one first, then each group's own.
        cells: without a global threshold only failures to acquire.
        inequity: source faces first, then each attribute after the edit.
        distributions: all groups together first.
        comparisons_sha256: of comparisons.parquet, so that a gate takes no other run's; null without one.
    """

    target: str
    level: Share
    draws: Number
    permutations: Number
    seed: Number
    rules: dict[str, str]
    thresholds: tuple[RecognitionThreshold, ...]
    cells: tuple[RecognitionCell, ...]
    inequity: tuple[Inequity, ...]
    distributions: tuple[Distribution, ...]
    comparisons_sha256: str | None = None
    reasons: dict[str, str] = {}
