"""The filter keeps to the paper's three requirements, row by row of its matrix."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_builder.filter import FilterSettings, judge
from dataset_builder.schema.taxonomy import Transition, load_taxonomy
from dataset_builder.schema.verdict import REASONS, Evidence

PAPER = load_taxonomy("paper")
NAMES = list(PAPER.attributes)
PRESENCE = [name for name in NAMES if PAPER.attributes[name].kind == "presence"]
NOTHING = dict.fromkeys(NAMES, "no")


def evidence(attribute: str, before: str = "", after: str = "", **more: Any) -> Evidence:
    """A clean pair: attributes named in ``before`` and ``after`` are present, all others absent."""
    fields: dict[str, Any] = {
        "source_labels": {**NOTHING, **dict.fromkeys(before.split(), "yes")},
        "transformed_labels": {**NOTHING, **dict.fromkeys(after.split(), "yes")},
        "source_age": 30.0,
        "transformed_age": 30.0,
        "distorted": "no",
        **more,
    }
    return Evidence(attribute, **fields)


def reason(item: Evidence, **settings: Any) -> str | None:
    return judge(item, PAPER, FilterSettings(**settings)).reason


# One row of Figure 3 after the other, worked by hand: what is kept, and one thing that is not.
@pytest.mark.parametrize(
    ("attribute", "before", "after", "verdict"),
    [
        ("glasses", "", "glasses", None),
        ("glasses", "", "glasses sunglasses", "other_changed"),
        ("sunglasses", "", "sunglasses", None),
        ("sunglasses", "", "sunglasses glasses", None),
        ("sunglasses", "glasses", "sunglasses", None),
        ("sunglasses", "", "sunglasses head_band", "other_changed"),
        ("mustache", "", "mustache", None),
        ("mustache", "", "mustache goatee", "other_changed"),
        ("heavy_makeup", "", "heavy_makeup", None),
        ("heavy_makeup", "", "heavy_makeup red_lipstick", None),
        ("heavy_makeup", "", "heavy_makeup smile", "other_changed"),
        ("shoulder_hair", "", "shoulder_hair", None),
        ("shoulder_hair", "buzz_cut", "shoulder_hair", None),
        ("shoulder_hair", "buzz_cut", "shoulder_hair buzz_cut", "other_changed"),
        ("scarf", "smile", "scarf smile", None),
        ("scarf", "smile", "scarf", "other_changed"),
        ("pigtails", "", "pigtails shoulder_hair", None),
        ("pigtails", "", "pigtails", "other_changed"),
        ("pigtails", "buzz_cut", "pigtails shoulder_hair buzz_cut", "other_changed"),
        ("smile", "", "smile", None),
        ("smile", "", "", "attribute_absent"),
        ("buzz_cut", "shoulder_hair curly_hair", "buzz_cut", None),
        ("buzz_cut", "curly_hair", "buzz_cut curly_hair", "other_changed"),
        ("head_band", "", "head_band", None),
        ("head_band", "blue_hair", "head_band", "other_changed"),
        ("thick_beard", "", "thick_beard mustache goatee", None),
        ("thick_beard", "mustache", "thick_beard", None),
        ("thick_beard", "", "thick_beard glasses", "other_changed"),
        ("blue_hair", "red_hair", "blue_hair", None),
        ("blue_hair", "", "blue_hair red_hair", "other_changed"),
        ("facemask", "mustache smile goatee red_lipstick", "facemask", None),
        ("facemask", "smile", "facemask smile", "other_changed"),
        ("curly_hair", "", "curly_hair", None),
        ("curly_hair", "", "curly_hair shoulder_hair", "other_changed"),
        ("goatee", "", "goatee mustache", None),
        ("goatee", "", "goatee", "other_changed"),
        ("red_lipstick", "", "red_lipstick heavy_makeup", None),
        ("red_lipstick", "", "red_lipstick", "other_changed"),
        ("red_hair", "blue_hair", "red_hair", None),
        ("red_hair", "", "red_hair blue_hair", "other_changed"),
        ("glasses", "glasses", "glasses", "source_has_attribute"),
    ],
)
def test_rows_worked_by_hand(attribute: str, before: str, after: str, verdict: str | None) -> None:
    assert reason(evidence(attribute, before, after)) == verdict


@pytest.mark.parametrize(
    ("attribute", "source_age", "transformed_age", "verdict"),
    [
        ("smile", 30, 39.9, None),
        ("smile", 30, 40, "age_moved"),
        ("smile", 40, 30, "age_moved"),
        ("old", 30, 40, None),
        ("old", 30, 39.9, "age_moved"),
        ("old", 50, 30, "age_moved"),
        ("young", 50, 40, None),
        ("young", 50, 40.1, "age_moved"),
        ("young", 30, 50, "age_moved"),
    ],
)
def test_the_age_rule(attribute: str, source_age: float, transformed_age: float, verdict: str | None) -> None:
    after = attribute if attribute == "smile" else ""
    item = evidence(attribute, "", after, source_age=source_age, transformed_age=transformed_age)
    assert reason(item) == verdict


def test_an_age_attribute_may_change_nothing_else() -> None:
    assert reason(evidence("old", "", "glasses", transformed_age=50.0)) == "other_changed"
    assert reason(evidence("old", "", "old", transformed_age=50.0)) is None


def test_reasons_come_in_the_designs_order_and_all_are_listed() -> None:
    bad = evidence("smile", "smile", "glasses", distorted="yes", transformed_age=60.0, identical=True)
    verdict = judge(bad, PAPER)
    assert [item.reason for item in verdict.violations] == [
        "identical",
        "distorted",
        "age_moved",
        "source_has_attribute",
        "attribute_absent",
        "other_changed",
    ]
    assert verdict.reason == "identical"
    assert verdict.violations[-1].detail == "glasses no -> yes"
    torn = judge(evidence("smile", unreadable="p.png: torn"), PAPER)
    assert (torn.reason, torn.detail) == ("unreadable", "p.png: torn")


@pytest.mark.parametrize(
    ("change", "rejected", "accepted", "as_no"),
    [
        ({"distorted": "unknown"}, "unknown", None, None),
        ({"source_age": None}, "unknown", None, "unknown"),
        ({"source_labels": {**NOTHING, "smile": "unknown"}}, "unknown", None, None),
        ({"transformed_labels": {**NOTHING, "smile": "unknown"}}, "unknown", None, "attribute_absent"),
        ({"transformed_labels": {**NOTHING, "smile": "yes", "scarf": "unknown"}}, "unknown", None, None),
        ({"source_labels": {}, "transformed_labels": {}}, "unknown", None, "attribute_absent"),
    ],
)
def test_what_nobody_can_tell(
    change: dict[str, Any], rejected: str | None, accepted: str | None, as_no: str | None
) -> None:
    item = evidence("smile", "", "smile", **change)
    assert reason(item) == rejected
    assert reason(item, unknown="accept") == accepted
    assert reason(item, unknown="no") == (None if as_no == "unknown" else as_no)


def test_a_definite_violation_is_named_before_an_unknown_one() -> None:
    item = evidence("smile", "smile", "smile", distorted="unknown")
    assert reason(item) == "source_has_attribute"


def test_no_gain_allows_a_loss_and_no_gain() -> None:
    lost = evidence("smile", "glasses", "smile")
    gained = evidence("smile", "", "smile glasses")
    assert (reason(lost), reason(lost, specificity="no_gain")) == ("other_changed", None)
    assert (reason(gained), reason(gained, specificity="no_gain")) == ("other_changed", "other_changed")
    half = evidence("smile", "", "smile", source_labels={**NOTHING, "scarf": "unknown"})
    assert (reason(half), reason(half, specificity="no_gain")) == ("unknown", None)


label = st.sampled_from(["yes", "no", "unknown"])
labels = st.fixed_dictionaries(dict.fromkeys(NAMES, label))
ages = st.one_of(st.none(), st.floats(0, 90))
anything = st.builds(
    Evidence,
    attribute=st.sampled_from(NAMES),
    source_labels=labels,
    transformed_labels=labels,
    source_age=ages,
    transformed_age=ages,
    distorted=label,
    unreadable=st.sampled_from(["", "torn"]),
    identical=st.booleans(),
)
settings = st.builds(
    FilterSettings,
    specificity=st.sampled_from(["equal", "no_gain"]),
    unknown=st.sampled_from(["reject", "accept", "no"]),
)


@given(anything, settings)
def test_total_and_pure(item: Evidence, chosen: FilterSettings) -> None:
    first = judge(item, PAPER, chosen)
    assert first == judge(item, PAPER, chosen)
    order = [REASONS.index(violation.reason) for violation in first.violations]
    assert order == sorted(set(order))
    assert all(violation.detail for violation in first.violations)


@given(anything)
def test_a_kept_pair_meets_the_three_requirements(item: Evidence) -> None:
    """Validity, correctness and specificity, stated here as section 3.2 does, for every kept pair."""
    if not judge(item, PAPER).kept:
        return
    assert (item.unreadable, item.identical, item.distorted) == ("", False, "no")
    assert item.source_age is not None
    assert item.transformed_age is not None
    moved = item.transformed_age - item.source_age
    kind = PAPER.attributes[item.attribute].kind
    assert {"presence": abs(moved) < 10, "older": moved >= 10, "younger": moved <= -10}[kind]
    if kind == "presence":
        assert (item.source_labels[item.attribute], item.transformed_labels[item.attribute]) == ("no", "yes")
    for other in set(PRESENCE) - {item.attribute}:
        before, after = item.source_labels[other], item.transformed_labels[other]
        wanted = {
            Transition.UNCHANGED: before == after != "unknown",
            Transition.REQUIRED: after == "yes",
            Transition.FORBIDDEN: after == "no",
            Transition.IGNORED: True,
        }
        assert wanted[PAPER.row(item.attribute)[other]]


@given(st.sampled_from(PRESENCE), st.sets(st.sampled_from(PRESENCE)), st.sampled_from(PRESENCE))
def test_a_clean_counterfactual_is_kept_and_one_wrong_label_rejects_it(
    attribute: str, worn: set[str], wrong: str
) -> None:
    row = PAPER.row(attribute)
    before = {name: "yes" if name in worn - {attribute} else "no" for name in NAMES}
    after = dict(before)
    for name, transition in row.items():
        if transition is Transition.REQUIRED:
            after[name] = "yes"
        if transition is Transition.FORBIDDEN:
            after[name] = "no"
    fields = {"source_labels": before, "source_age": 30.0, "transformed_age": 31.0, "distorted": "no"}
    assert judge(Evidence(attribute, transformed_labels=after, **fields), PAPER).kept
    flipped = {**after, wrong: "no" if after[wrong] == "yes" else "yes"}
    verdict = judge(Evidence(attribute, transformed_labels=flipped, **fields), PAPER)
    assert verdict.kept == (row[wrong] is Transition.IGNORED)


@given(anything)
def test_stricter_settings_never_keep_more(item: Evidence) -> None:
    if judge(item, PAPER, FilterSettings()).kept:
        assert judge(item, PAPER, FilterSettings(specificity="no_gain")).kept
        assert judge(item, PAPER, FilterSettings(unknown="accept")).kept
