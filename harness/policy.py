"""The gate's policy: a TOML file of rules, each with a margin in the direction that does harm."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from harness.stats.equivalence import Harmful
from targets.base.config import Settings, read_toml, validated

EVERY = "*"
Metric = Literal["delta", "difference", "fnmr", "fmr", "fta"]


class Limits(Settings):
    """What holds for all rules.

    Attributes:
        alpha: one-sided error rate of a pass, and of a fail over all rules, in (0, 0.5).
        min_pairs, min_identities: below these in a cell, a rule is inconclusive.
        max_lost: largest share of a cell's pairs that may have scores in one of the runs only, in [0, 1].
        planned_change: the true change that the number of identities is planned for, in units of the rule.
        power: wanted probability of a decision, in (0.5, 1).
    """

    alpha: float = Field(default=0.025, gt=0, lt=0.5)
    min_pairs: int = Field(default=20, ge=2)
    min_identities: int = Field(default=10, ge=2)
    max_lost: float = Field(default=0.05, ge=0, le=1)
    planned_change: float = 0.0
    power: float = Field(default=0.8, gt=0.5, lt=1)


class Rule(Settings):
    """One rule; ``group`` "*" or several groups make one check each, a difference takes two.

    Attributes:
        metric: "delta" (mean change of a score), "difference" (of two groups' deltas: the second's minus the
            first's), "fta" (share of pairs whose face the target can't find), "fnmr" or "fmr".
        attribute: which pairs.
        concept: which score; none for error rates.
        group: "*", one group, or several.
        harmful: the direction in which a change from the baseline does harm.
        margin: largest change that is let pass, positive, in units of the score or as a share.
    """

    metric: Metric
    attribute: str
    concept: str | None = None
    group: str | tuple[str, ...] = EVERY
    harmful: Harmful
    margin: float = Field(gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _is_whole(self) -> Rule:
        scored = self.metric in ("delta", "difference")
        if scored and self.concept is None:
            raise ValueError(f"a rule of metric '{self.metric}' needs a 'concept'")
        if not scored and self.concept is not None:
            raise ValueError(f"a rule of metric '{self.metric}' has no 'concept'")
        if len(set(self.groups)) != len(self.groups) or not self.groups:
            raise ValueError("'group' must name at least one group, each once")
        if self.metric == "difference" and self.group != EVERY and len(self.groups) != 2:
            raise ValueError("a difference needs 'group' with two groups, or \"*\"")
        if self.metric == "difference" and self.group == EVERY and self.harmful != "both":
            raise ValueError('a difference between all pairs of groups must have harmful = "both"')
        return self

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
