"""What the dataset card says about the filter itself: whom it cost more, and what nobody could tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dataset_builder.attrition import attrition_tests, in_words
from dataset_builder.funnel import Decided
from dataset_builder.schema.verdict import REASONS, Evidence, Verdict


@dataclass(frozen=True)
class Weighed:
    """One candidate: what the funnel counts, the evidence, every rule that did not hold."""

    decided: Decided
    evidence: Evidence
    verdict: Verdict


def filtering_text(items: Sequence[Weighed], attributes: Sequence[str], groups: Sequence[str]) -> list[str]:
    """Markdown lines: attrition tests, the audit sample, reasons for unknown labels by group.

    Args:
        items: every candidate.
        attributes, groups: in order.
    """
    if not items:
        return []
    return [
        *_attrition([item.decided for item in items], attributes, groups),
        *_sample([item for item in items if item.evidence.audited], groups),
        *_unknown(items, groups),
    ]


def _attrition(decided: Sequence[Decided], attributes: Sequence[str], groups: Sequence[str]) -> list[str]:
    tests = attrition_tests(decided, attributes, groups)
    return [
        "## Attrition",
        "",
        "Do the groups lose the same share of their candidates? Games-Howell tests by identity, Holm over",
        "the attributes and over the rules. A detector that is stricter for one group makes gaps by itself.",
        "",
        *(f"- {in_words(test, test.attribute or f'to rule `{test.rule}`')}" for test in tests),
        "",
    ]


def _sample(items: Sequence[Weighed], groups: Sequence[str]) -> list[str]:
    counts: Counter[tuple[str, str]] = Counter(
        (violation.reason, item.decided.demographic)
        for item in items
        for violation in item.verdict.violations
    )
    sizes = Counter(item.decided.demographic for item in items)
    return [
        "How often each rule was broken in the random sample of candidates that went through all of them:",
        "",
        *_table("rule", [(reason, counts) for reason in REASONS], groups),
        f"| sample size | {' | '.join(str(sizes[group]) for group in groups)} |",
        "",
    ]


def _unknown(items: Sequence[Weighed], groups: Sequence[str]) -> list[str]:
    counts = Counter(
        (reason, item.decided.demographic)
        for item in items
        for reason in set(item.evidence.label_reasons.values())
    )
    if not counts:
        return []
    reasons = sorted({reason for reason, _ in counts})
    return [
        "Candidates with a label that the attribute detector could not tell, by reason:",
        "",
        *_table("reason", [(reason, counts) for reason in reasons], groups),
        "",
    ]


def _table(
    head: str, rows: Sequence[tuple[str, Counter[tuple[str, str]]]], groups: Sequence[str]
) -> list[str]:
    lines = [f"| {head} | {' | '.join(groups)} |", f"|---|{'---:|' * len(groups)}"]
    lines += [
        f"| {name} | {' | '.join(str(counts[name, group]) for group in groups)} |" for name, counts in rows
    ]
    return lines
