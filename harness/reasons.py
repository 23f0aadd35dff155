"""Why a value of a record is null: every part that can hold one gets a reason beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel

Why = str | Callable[[Any], str]
_Part = TypeVar("_Part", bound=BaseModel)


def _status(part: Any) -> str:
    return f"status {part.status}"


def _rate(part: Any) -> str:
    return "no comparisons" if part.n == 0 else "too few identities for an interval"


_NO_MODEL_FACES = "source faces have nothing after the edit, two edited faces nothing before it"
_UNTESTED = "tested only where the row's, or the interaction's, test is rejected"
_NO_CANDIDATES = "a group has no pair with both scores, kept or among the candidates"
_GIVEN = "a threshold was given"
_FEW = "not enough identities"
_EER = "there are no genuine or no impostor comparisons"
_SOURCE = "source faces, to which nothing was done"
WHY: dict[tuple[str, str], Why] = {
    ("Cell", "df"): "the bootstrap has no degrees of freedom",
    ("Cell", "mean_source"): "a group's mean is not known",
    ("Cell", "mean_transformed"): "a group's mean is not known",
    ("Contrast", "band"): "one difference inside a stratum, which no simultaneous band is about",
    ("Contrast", "p_adjusted"): _UNTESTED,
    ("Contrast", "family"): _UNTESTED,
    ("Omnibus", "p_adjusted"): "a diagnostic, which decides nothing",
    ("Omnibus", "family"): "a diagnostic, which decides nothing",
    ("Disparity", "diagnostic"): "two groups have one p, and groups that share people no such test",
    ("Disparity", "interaction"): "only a coarser axis over two strata or more has one",
    **dict.fromkeys(
        [
            ("SelectionCheck", name)
            for name in ("kept", "candidates", "p_kept", "p_candidates", "keep_a", "keep_b")
        ],
        _NO_CANDIDATES,
    ),
    ("SelectionCheck", "lee_low"): _NO_CANDIDATES,
    ("SelectionCheck", "lee_high"): _NO_CANDIDATES,
    ("SelectionCheck", "lee_ci"): "a group has fewer than two identities, or its shares no spread",
    ("SelectionCheck", "depends_on_filter"): _NO_CANDIDATES,
    ("Record", "selection_state"): "made before it was told",
    ("AuditSettings", "margin"): "not given (--margin)",
    ("AuditSettings", "half_width"): "not given (--half-width)",
    ("AuditSettings", "references"): "the target has no 'match'",
    ("AuditSettings", "taxonomy"): "not given (--taxonomy)",
    ("AuditSettings", "taxonomy_digest"): "not given (--taxonomy)",
    ("Record", "discovery"): "not asked for (--discover)",
    ("RecognitionThreshold", "target_fmr"): _GIVEN,
    ("RecognitionThreshold", "identities_needed"): _GIVEN,
    ("RecognitionThreshold", "threshold"): _FEW,
    ("RecognitionThreshold", "fmr"): "not enough identities, or no impostor comparisons",
    ("RecognitionThreshold", "lowest_target"): _FEW,
    **dict.fromkeys(
        [("ErrorRate", name) for name in ("rate", "complement", "n_effective", "low", "high")], _rate
    ),
    **dict.fromkeys(
        [("RateChange", name) for name in ("difference", "low", "high", "band_low", "band_high")],
        "a rate before or after the edit has no interval",
    ),
    ("RecognitionCell", "attribute"): _SOURCE,
    **dict.fromkeys(
        [
            ("RecognitionCell", name + end)
            for name in ("before", "after", "change")
            for end in ("", "_with_fta")
        ],
        _NO_MODEL_FACES,
    ),
    **dict.fromkeys(
        [("InequityMeasure", name) for name in ("value", "null_median", "null_extreme", "p")], _status
    ),
    ("Inequity", "attribute"): _SOURCE,
    **dict.fromkeys(
        [("Distribution", name) for name in ("eer_threshold", "eer_average", "eer_interpolated")], _EER
    ),
    ("Recognition", "comparisons_sha256"): "no threshold, so no comparisons are kept",
}
"""(class, field) -> why it may be null; a subclass takes its parent's."""


def explained(part: _Part) -> _Part:
    """The part and all parts inside it with ``reasons`` for exactly the fields that are null."""
    update: dict[str, Any] = {}
    null = []
    # A record may hold a hundred thousand cells: its fields are looked at once.
    for name, value in part.__dict__.items():
        if value is None:
            null.append(name)
        elif isinstance(value, BaseModel):
            if (inner := explained(value)) is not value:
                update[name] = inner
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            items = tuple(map(explained, value))
            if any(one is not other for one, other in zip(items, value, strict=True)):
                update[name] = items
    own = getattr(part, "reasons", None)
    if own is not None:
        reasons = {name: _why(part, name) for name in null}
        if reasons != own:
            update["reasons"] = reasons
    return part.model_copy(update=update) if update else part


def _why(part: Any, name: str) -> str:
    """What the part says itself of this field, or of all its nulls, else what is known of its class."""
    if own := part.reasons.get(name):
        return str(own)
    if reason := getattr(part, "reason", ""):
        return str(reason)
    for kind in type(part).__mro__:
        if why := WHY.get((kind.__name__, name)):
            return why if isinstance(why, str) else why(part)
    return ""
