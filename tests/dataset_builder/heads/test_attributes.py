"""Labels say what the scene holds, and every edit passes the row of the paper's matrix."""

from dataclasses import replace

import pytest

from dataset_builder.heads.attributes import EDITS, PAPER_ATTRIBUTES, Look, base_look, edited, labels
from dataset_builder.heads.identity import sample_person
from dataset_builder.heads.variation import sample_variation


def look_of(group: str = "WM", seed: int = 7) -> Look:
    person = sample_person(group, seed)
    return base_look(person, sample_variation(person, 0))


def plain() -> Look:
    """A look of which every attribute is absent."""
    look = look_of()
    return replace(look, facial_hair=frozenset(), age=0.3, hair=replace(look.hair, style="short", wave=0.0))


def changed(attribute: str) -> dict[str, str]:
    """The labels that an edit of the plain look changes."""
    before, after = labels(plain()), labels(edited(plain(), attribute))
    return {name: after[name] for name in PAPER_ATTRIBUTES if after[name] != before[name]}


def test_the_plain_look_has_nothing() -> None:
    assert labels(plain()) == dict.fromkeys(PAPER_ATTRIBUTES, "no")


# Hand-worked from Figure 3 of the paper: what else must or may come with an attribute.
COMPANIONS = {
    "sunglasses": {"glasses"},
    "goatee": {"mustache"},
    "thick_beard": {"mustache"},
    "red_lipstick": {"heavy_makeup"},
}


@pytest.mark.parametrize("attribute", sorted(EDITS))
def test_an_edit_adds_its_attribute_and_what_belongs_to_it(attribute: str) -> None:
    expected = {attribute} | COMPANIONS.get(attribute, set())
    assert changed(attribute) == dict.fromkeys(expected, "yes")


def test_a_facemask_hides_the_mouth_and_what_grows_round_it() -> None:
    look = replace(plain(), facial_hair=frozenset({"mustache", "goatee"}))
    look = edited(edited(look, "smile"), "red_lipstick")
    assert {labels(look)[name] for name in ("mustache", "goatee", "smile", "red_lipstick")} == {"yes"}
    masked = labels(edited(look, "facemask"))
    assert {masked[name] for name in ("mustache", "goatee", "smile", "red_lipstick")} == {"no"}
    assert masked["heavy_makeup"] == "yes"


def test_a_beard_under_a_facemask_is_unknown() -> None:
    assert labels(edited(edited(plain(), "thick_beard"), "facemask"))["thick_beard"] == "unknown"


def test_a_buzz_cut_ends_long_and_curly_hair() -> None:
    look = replace(plain(), hair=replace(plain().hair, style="long", wave=1.0))
    assert (labels(look)["shoulder_hair"], labels(look)["curly_hair"]) == ("yes", "yes")
    shorn = labels(edited(look, "buzz_cut"))
    assert (shorn["shoulder_hair"], shorn["curly_hair"], shorn["buzz_cut"]) == ("no", "no", "yes")


def test_only_old_and_young_move_the_age() -> None:
    ages = {attribute: edited(plain(), attribute).years for attribute in EDITS}
    assert {name for name, age in ages.items() if age != plain().years} == {"old", "young"}
    assert (ages["young"], plain().years, ages["old"]) == (20.0, 40.0, 75.0)


def test_an_unknown_attribute_is_named() -> None:
    with pytest.raises(ValueError, match=r"must be one of blue_hair, .* got 'hat'"):
        edited(plain(), "hat")
