"""The gate's policy: a TOML file of rules, each with a margin in the direction that does harm."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from harness.recognition_record import Comparison
from harness.stats.equivalence import Harmful
from targets.base.config import Settings, read_toml, validated

EVERY = "*"
SMALLEST, LARGEST = 1e-12, 1e12
"""A margin beyond these is rejected as a typo; numbers of identities planned for it would overflow."""
Side = Literal["before", "after", "change"]
Metric = Literal["delta", "level", "difference", "fnmr", "fmr", "tmr", "fta"]
Quantity = Literal["delta", "level", "fnmr", "fmr", "tmr", "fta"]
SCORED = ("delta", "level")
"""Quantities that are means of a score; the others are shares."""
OF_RATES: dict[str, tuple[Comparison, ...]] = {
    "fnmr": ("other_source", "own_source"),
    "tmr": ("other_source", "own_source"),
    "fmr": ("same_group", "cross_group", "both_edited"),
}
"""Comparisons behind each error rate, the default first."""


class Limits(Settings):
    """What holds for all rules.

    Attributes:
        alpha: one-sided error rate of a pass, and of a fail over all rules, in [1e-12, 0.5).
        min_pairs, min_identities: below these in a cell, a rule is inconclusive.
        max_lost: largest share of a cell's pairs that may have scores in one of the runs only, in [0, 1]; by
            default there is no limit besides that such pairs count as changed by the worst amount.
        planned_change: the true change that the number of identities is planned for, in units of the rule.
        power: wanted probability of a decision, in (0.5, 1).
    """

    alpha: float = Field(default=0.025, ge=1e-12, lt=0.5, strict=True)
    min_pairs: int = Field(default=20, ge=2)
    min_identities: int = Field(default=10, ge=2)
    max_lost: float = Field(default=1.0, ge=0, le=1, strict=True)
    planned_change: float = Field(default=0.0, ge=-LARGEST, le=LARGEST, strict=True)
    power: float = Field(default=0.8, gt=0.5, lt=1, strict=True)


class Rule(Settings):
    """One rule; ``group`` "*" or several groups make one check each, a difference takes two.

    Attributes:
        metric: "delta" (mean change of a score by the edit), "level" (the mean score itself), "fta" (share of
            pairs whose face the target can't find), a recogniser's "fnmr", "fmr" or "tmr" at the run's
            threshold, or "difference" between two groups (the second's minus the first's).
        of: of a difference: what differs between the groups.
        attribute: which pairs.
        concept: which score; none for error rates.
        comparison: of an error rate: "other_source" (default) or "own_source", "same_group" (default),
            "cross_group" or "both_edited", as in the record.
        side: of a level or an error rate: faces "after" the edit or "before" it; of an error rate also the
            "change" from before to after.
        group: "*", one group, or several.
        harmful: the direction in which a change from the baseline does harm.
        margin: largest change that is let pass, positive, in units of the score or as a share.
        worst_change: largest change that one identity can suffer, in units of the score; by default the width
            of the score's range on the target's card. Shares have 1.
        drift_margin: largest change since the anchor (the first accepted baseline) that is let pass; by
            default twice the margin.
        unseen_breaks: whether a pass needs room for breaks that no identity of the sample shows ("count"), or
            not ("ignore", which the check then says).
    """

    metric: Metric
    of: Quantity = "delta"
    attribute: str
    concept: str | None = None
    comparison: Comparison | None = None
    side: Side = "after"
    group: str | tuple[str, ...] = EVERY
    harmful: Harmful
    margin: float = Field(ge=SMALLEST, le=LARGEST, strict=True)
    worst_change: float | None = Field(default=None, ge=SMALLEST, le=LARGEST, strict=True)
    drift_margin: float | None = Field(default=None, ge=SMALLEST, le=LARGEST, strict=True)
    unseen_breaks: Literal["count", "ignore"] = "count"

    @model_validator(mode="after")
    def _is_whole(self) -> Rule:
        if self.metric != "difference" and self.of != "delta":
            raise ValueError("'of' belongs to metric 'difference'")
        scored = self.quantity in SCORED
        if scored and self.concept is None:
            raise ValueError(f"a rule of metric '{self.metric}' needs a 'concept'")
        if not scored and self.concept is not None:
            raise ValueError(f"a rule of metric '{self.quantity}' has no 'concept'")
        if not scored and self.margin >= 1:
            raise ValueError("a margin of shares must be below 1")
        if not scored and self.worst_change is not None:
            raise ValueError("'worst_change' belongs to scores; the largest change of a share is 1")
        if self.drift_margin is not None and self.drift_margin < self.margin:
            raise ValueError("'drift_margin' must be at least the margin")
        self._check_comparison()
        if len(set(self.groups)) != len(self.groups) or not self.groups:
            raise ValueError("'group' must name at least one group, each once")
        if EVERY in self.groups and len(self.groups) > 1:
            raise ValueError("'group' must be \"*\" or name groups, not both")
        if self.metric == "difference" and self.group != EVERY and len(self.groups) != 2:
            raise ValueError("a difference needs 'group' with two groups, or \"*\"")
        if self.metric == "difference" and self.group == EVERY and self.harmful != "both":
            raise ValueError('a difference between all pairs of groups must have harmful = "both"')
        return self

    def _check_comparison(self) -> None:
        kinds = OF_RATES.get(self.quantity, ())
        if self.comparison is not None and self.comparison not in kinds:
            known = f"one of {', '.join(kinds)}" if kinds else "left out"
            raise ValueError(f"'comparison' of '{self.quantity}' must be {known}, got '{self.comparison}'")
        if self.side != "after" and not kinds and self.quantity != "level":
            raise ValueError("'side' belongs to levels and error rates")
        if self.side == "change" and self.quantity == "level":
            raise ValueError("the change of a level from before to after is metric 'delta'")
        if self.side != "after" and self.comparison == "own_source":
            raise ValueError("'own_source' compares edited faces only: 'side' must be 'after'")

    @property
    def quantity(self) -> Quantity:
        """What is compared between the runs, of one group or between two."""
        return self.of if self.metric == "difference" else self.metric

    @property
    def margin_since_anchor(self) -> float:
        """Largest change since the anchor that is let pass."""
        return 2.0 * self.margin if self.drift_margin is None else self.drift_margin

    @property
    def kind(self) -> Comparison | None:
        """The comparison behind an error rate."""
        return self.comparison or next(iter(OF_RATES.get(self.quantity, ())), None)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups as a tuple; ("*",) for every one."""
        return (self.group,) if isinstance(self.group, str) else self.group


class Policy(Settings):
    """A policy file.

    Attributes:
        policy: what holds for all rules.
        rule: the rules, all of which must pass.
    """

    policy: Limits = Limits()
    rule: tuple[Rule, ...] = Field(min_length=1)


def load_policy(path: Path) -> Policy:
    """Read a policy.

    Raises:
        InputError: missing, not TOML, an unknown key (naming the nearest known one), or a value out of range.
    """
    return validated(Policy, read_toml(path), str(path))
