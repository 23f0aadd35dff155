"""The filter: evidence about a candidate pair -> verdict. Pure, total, and every rejection has one reason.

The paper's three requirements (section 3.2):

- validity: the transformed face is readable, not blank, not distorted;
- correctness: the attribute is present afterwards and was not before; ``old`` and ``young`` are decided by
  the age having moved at least ten years the right way;
- specificity: nothing else changed, as the taxonomy's transition matrix says; the age moved less than ten
  years for every other attribute.

The columns of the age attributes are decided by the age rule and not by labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from dataset_builder.schema.taxonomy import Taxonomy, Transition
from dataset_builder.schema.verdict import REASONS, Evidence, Label, Verdict, Violation
from targets.base.config import Settings


class FilterSettings(Settings):
    """How strict the filter is.

    Attributes:
        specificity: what "unchanged" means. "equal": the transformed face has another attribute exactly if
            the source face has it (section 3.2). "no_gain": it may lose one (the wording of appendix B).
        unknown: what to do where a detector can't tell. "reject" the pair for it; "accept" it as if the rule
            held; "no" to take unknown as absent, as the paper's code does.
    """

    specificity: Literal["equal", "no_gain"] = "equal"
    unknown: Literal["reject", "accept", "no"] = "reject"


RuleName = Literal[
    "identical", "distorted", "age_moved", "source_has_attribute", "attribute_absent", "other_changed"
]
_Rule = Callable[[Evidence, Taxonomy, FilterSettings], Iterator[tuple[bool | None, str]]]


def judge(evidence: Evidence, taxonomy: Taxonomy, settings: FilterSettings | None = None) -> Verdict:
    """Judge one candidate pair by every rule.

    Args:
        evidence: what the detectors say.
        taxonomy: its transition matrix and age gap; must know the attribute.
        settings: strictness; the paper's requirements by default.

    Returns:
        All violations in the order of the rules; the pair is kept if there is none. Of evidence that is not
        complete, only the first.

    Raises:
        InputError: the taxonomy has no transitions for the attribute.
    """
    chosen = settings or FilterSettings()
    if evidence.unreadable:
        return Verdict((Violation("unreadable", evidence.unreadable),))
    found: list[Violation] = []
    unknown: list[str] = []
    for reason, rule in _RULES.items():
        failed = []
        for holds, detail in rule(evidence, taxonomy, chosen):
            if holds is False:
                failed.append(detail)
            elif holds is None:
                unknown.append(detail)
        if failed:
            found.append(Violation(reason, "; ".join(failed)))
    if unknown and chosen.unknown == "reject":
        found.append(Violation("unknown", "; ".join(dict.fromkeys(unknown))))
    found.sort(key=lambda violation: REASONS.index(violation.reason))
    return Verdict(tuple(found if evidence.complete else found[:1]))


def breaks(
    evidence: Evidence, taxonomy: Taxonomy, settings: FilterSettings, rules: Iterable[RuleName]
) -> bool:
    """Whether one of the given rules certainly does not hold, whatever else may become known."""
    return any(holds is False for name in rules for holds, _ in _RULES[name](evidence, taxonomy, settings))


def _identical(evidence: Evidence, _: Taxonomy, __: FilterSettings) -> Iterator[tuple[bool | None, str]]:
    yield not evidence.identical, "both pictures have the same pixels"


def _distorted(
    evidence: Evidence, _: Taxonomy, settings: FilterSettings
) -> Iterator[tuple[bool | None, str]]:
    yield _is(evidence.distorted, "no", settings), _said("distortion", evidence.distorted)


def _age_moved(
    evidence: Evidence, taxonomy: Taxonomy, _: FilterSettings
) -> Iterator[tuple[bool | None, str]]:
    kind, gap = taxonomy.attributes[evidence.attribute].kind, taxonomy.age_gap_years
    if evidence.source_age is None or evidence.transformed_age is None:
        yield None, "age unknown"
        return
    moved = evidence.transformed_age - evidence.source_age
    detail = f"age moved by {moved:+.1f} years"
    if kind == "older":
        yield moved >= gap, detail
    elif kind == "younger":
        yield moved <= -gap, detail
    else:
        yield abs(moved) < gap, detail


def _source_has_attribute(
    evidence: Evidence, taxonomy: Taxonomy, settings: FilterSettings
) -> Iterator[tuple[bool | None, str]]:
    name = evidence.attribute
    if taxonomy.attributes[name].kind == "presence":
        label = evidence.source_labels.get(name, "unknown")
        yield _is(label, "no", settings), _said(f"source {name}", label)


def _attribute_absent(
    evidence: Evidence, taxonomy: Taxonomy, settings: FilterSettings
) -> Iterator[tuple[bool | None, str]]:
    name = evidence.attribute
    if taxonomy.attributes[name].kind == "presence":
        label = evidence.transformed_labels.get(name, "unknown")
        yield _is(label, "yes", settings), _said(f"transformed {name}", label)


def _other_changed(
    evidence: Evidence, taxonomy: Taxonomy, settings: FilterSettings
) -> Iterator[tuple[bool | None, str]]:
    for other, transition in taxonomy.row(evidence.attribute).items():
        if other == evidence.attribute or taxonomy.attributes[other].kind != "presence":
            continue
        before = evidence.source_labels.get(other, "unknown")
        after = evidence.transformed_labels.get(other, "unknown")
        holds = _transition_holds(transition, before, after, settings)
        yield holds, f"{other} {before} -> {after}"


def _transition_holds(
    transition: Transition, before: Label, after: Label, settings: FilterSettings
) -> bool | None:
    if transition is Transition.IGNORED:
        return True
    if transition is Transition.REQUIRED:
        return _is(after, "yes", settings)
    if transition is Transition.FORBIDDEN:
        return _is(after, "no", settings)
    if settings.unknown == "no":
        before, after = (label if label != "unknown" else "no" for label in (before, after))
    if settings.specificity == "no_gain" and (before == "yes" or after == "no"):
        return True
    return None if "unknown" in (before, after) else before == after


def _is(label: Label, wanted: Label, settings: FilterSettings) -> bool | None:
    if label == "unknown":
        return wanted == "no" if settings.unknown == "no" else None
    return label == wanted


def _said(subject: str, label: Label) -> str:
    return f"{subject}: {label}"


_RULES: dict[RuleName, _Rule] = {
    "identical": _identical,
    "distorted": _distorted,
    "age_moved": _age_moved,
    "source_has_attribute": _source_has_attribute,
    "attribute_absent": _attribute_absent,
    "other_changed": _other_changed,
}
