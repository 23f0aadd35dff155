"""Which rules come before the attribute detector, so that no question is bought about a settled pair."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from dataset_builder.filter import FilterSettings, RuleName, breaks
from dataset_builder.schema.taxonomy import Taxonomy
from dataset_builder.schema.verdict import Evidence

# As the paper does it: distorted faces are rejected first, age and attributes are looked at together.
PAPER_FIRST: tuple[RuleName, ...] = ("identical", "distorted")
CHEAP_FIRST: tuple[RuleName, ...] = ("identical", "distorted", "age_moved")


@dataclass(frozen=True)
class RuleOrder:
    """When a pair needs no label any more.

    Attributes:
        taxonomy, settings: of the filter.
        first: rules that are looked at before the attribute detector.
        audit_sample: share of candidates that go through every rule all the same, in [0, 1].
    """

    taxonomy: Taxonomy
    settings: FilterSettings
    first: tuple[RuleName, ...] = CHEAP_FIRST
    audit_sample: float = 0.0

    def drawn(self, name: str) -> bool:
        """Whether a candidate is in the sample: by a hash of its name, the same in every run."""
        number = int.from_bytes(hashlib.sha256(f"audit {name}".encode()).digest()[:8])
        return number < self.audit_sample * 2**64

    def needs_labels(self, evidence: Evidence) -> bool:
        """Whether anything has to be asked about a pair of which everything but labels is known."""
        if evidence.unreadable:
            return False
        return evidence.audited or not breaks(evidence, self.taxonomy, self.settings, self.first)

    def goes_on(self, evidence: Evidence) -> bool:
        """Whether the transformed face has to be asked about, once the source's labels are known."""
        rules: tuple[RuleName, ...] = ("source_has_attribute",)
        return evidence.audited or not breaks(evidence, self.taxonomy, self.settings, rules)
