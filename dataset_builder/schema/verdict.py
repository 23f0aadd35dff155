"""What is known about a candidate pair, and what the filter made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Label = Literal["yes", "no", "unknown"]
LABELS: tuple[Label, ...] = ("yes", "no", "unknown")

# In the order in which the rules are applied; a rejected candidate has the first that holds.
Reason = Literal[
    "unreadable",
    "identical",
    "distorted",
    "age_moved",
    "source_has_attribute",
    "attribute_absent",
    "other_changed",
    "unknown",
]
REASONS: tuple[Reason, ...] = (
    "unreadable",
    "identical",
    "distorted",
    "age_moved",
    "source_has_attribute",
    "attribute_absent",
    "other_changed",
    "unknown",
)


@dataclass(frozen=True)
class Evidence:
    """What the detectors say about one candidate pair.

    Attributes:
        attribute: the attribute that was applied.
        source_labels, transformed_labels: attribute -> "yes", "no" or "unknown"; one that is not there is
            unknown.
        source_age, transformed_age: years, None where not known.
        distorted: whether the transformed face is distorted.
        unreadable: what is wrong with one of the two pictures, empty where nothing is.
        identical: both pictures have the same pixels.
        complete: every detector was asked. Where not, an earlier rule had settled the pair, and only the
            first violation says anything.
        audited: belongs to the random sample of candidates that is run through every rule.
        label_reasons: "source glasses" -> why that label is unknown, where the detector says so.
    """

    attribute: str
    source_labels: Mapping[str, Label] = field(default_factory=dict)
    transformed_labels: Mapping[str, Label] = field(default_factory=dict)
    source_age: float | None = None
    transformed_age: float | None = None
    distorted: Label = "unknown"
    unreadable: str = ""
    identical: bool = False
    complete: bool = True
    audited: bool = True
    label_reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Violation:
    """One rule that does not hold: ``reason`` is the rule, ``detail`` what was found."""

    reason: Reason
    detail: str


@dataclass(frozen=True)
class Verdict:
    """The filter's answer.

    Attributes:
        violations: every rule that does not hold, in the order of ``REASONS``.
    """

    violations: tuple[Violation, ...]

    @property
    def kept(self) -> bool:
        """Whether the pair is a counterfactual under the rules."""
        return not self.violations

    @property
    def reason(self) -> Reason | None:
        """The first rule that does not hold, or None for a kept pair."""
        return self.violations[0].reason if self.violations else None

    @property
    def detail(self) -> str:
        """What was found by that rule."""
        return self.violations[0].detail if self.violations else ""
