"""The shipped taxonomy is the paper's, and others can be built on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataset_builder.schema.taxonomy import Transition, load_taxonomy
from targets.base.errors import InputError

# Figure 3 as printed, columns in its own order, the row heavy_makeup with its -2 under red_lipstick.
COLUMNS = [
    "glasses",
    "sunglasses",
    "mustache",
    "heavy_makeup",
    "shoulder_hair",
    "scarf",
    "pigtails",
    "smile",
    "buzz_cut",
    "head_band",
    "thick_beard",
    "blue_hair",
    "facemask",
    "curly_hair",
    "goatee",
    "old",
    "red_lipstick",
    "red_hair",
    "young",
]
FIGURE_3 = """
glasses        1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1
sunglasses    -2  1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1
mustache      -1 -1  1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1
heavy_makeup  -1 -1 -1  1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -2 -1 -1
shoulder_hair -1 -1 -1 -1  1 -1 -1 -1  0 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1
scarf         -1 -1 -1 -1 -1  1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1
pigtails      -1 -1 -1 -1  1 -1  1 -1  0 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1
smile         -1 -1 -1 -1 -1 -1 -1  1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1
buzz_cut      -1 -1 -1 -1  0 -1  0 -1  1 -1 -1 -1 -1  0 -1 -1 -1 -1 -1
head_band     -1 -1 -1 -1 -1 -1 -1 -1 -1  1 -1 -1 -1 -1 -1 -1 -1 -1 -1
thick_beard   -1 -1 -2 -1 -1 -1 -1 -1 -1 -1  1 -1 -1 -1 -2 -1 -1 -1 -1
blue_hair     -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1  1 -1 -1 -1 -1 -1  0 -1
facemask      -1 -1  0 -1 -1 -1 -1  0 -1 -1 -1 -1  1 -1  0 -1  0 -1 -1
curly_hair    -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1  1 -1 -1 -1 -1 -1
goatee        -1 -1  1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1  1 -1 -1 -1 -1
old           -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1  1 -1 -1  0
red_lipstick  -1 -1 -1  1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1  1 -1 -1
red_hair      -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1  0 -1 -1 -1 -1 -1  1 -1
young         -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1  0 -1 -1  1
"""


def test_the_matrix_is_the_papers() -> None:
    taxonomy = load_taxonomy("paper")
    rows = {line.split()[0]: line.split()[1:] for line in FIGURE_3.strip().splitlines()}
    assert set(rows) == set(taxonomy.attributes)
    for attribute, codes in rows.items():
        assert {name: int(code) for name, code in taxonomy.row(attribute).items()} == {
            name: int(code) for name, code in zip(COLUMNS, codes, strict=True)
        }


def test_groups_concepts_and_settings_are_the_papers() -> None:
    taxonomy = load_taxonomy("paper")
    assert list(taxonomy.groups) == ["AM", "AF", "BM", "BF", "IM", "IF", "WM", "WF"]
    assert taxonomy.groups_by("sex")["male"] == ("AM", "BM", "IM", "WM")
    assert taxonomy.groups_by("ethnicity")["Indian"] == ("IM", "IF")
    named = {name: attribute.concept for name, attribute in taxonomy.attributes.items() if attribute.concept}
    assert named == {
        "glasses": "eyeglasses",
        "sunglasses": "sunglass",
        "mustache": "beard",
        "facemask": "face",
        "shoulder_hair": "hair_long",
        "thick_beard": "beard",
        "buzz_cut": "hair_long",
        "goatee": "beard",
    }
    makeup = taxonomy.attributes["heavy_makeup"]
    (men,), (women,) = makeup.sega_for("male"), makeup.sega_for("female")
    assert (men.guidance_scale, men.threshold, men.weight, men.warmup_steps, men.momentum_scale) == (
        9, 0.9, 0.5, 20, 0.5,
    )  # fmt: skip
    assert (women.guidance_scale, women.warmup_steps, women.momentum_scale) == (6, 10, 0.3)
    assert [concept.reversed for concept in taxonomy.attributes["buzz_cut"].sega_for("female")] == [
        False,
        True,
    ]
    assert all(attribute.sega_for("male") for attribute in taxonomy.attributes.values())


def custom(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_extending_adds_replaces_and_drops(tmp_path: Path) -> None:
    name = custom(
        tmp_path,
        """
name = "mine"
extends = "paper"
drop = ["young", "WF"]
age_gap_years = 5

[groups.NA]
title = "North African"
ethnicity = "North African"
sex = "female"

[attributes.smile]
title = "Wide smile"
category = "facial expression"
transition = { mustache = -2, young = 0 }

[attributes.bob_cut]
title = "Bob cut"
category = "hairstyle"
""",
    )
    taxonomy = load_taxonomy(name)
    assert "NA" in taxonomy.groups
    assert "WF" not in taxonomy.groups
    assert "young" not in taxonomy.row("old")
    assert taxonomy.row("smile")["mustache"] is Transition.IGNORED
    assert taxonomy.attributes["smile"].sega == ()
    assert taxonomy.age_gap_years == 5
    assert taxonomy.digest != load_taxonomy("paper").digest
    with pytest.raises(InputError, match="'bob_cut' has no 'transition', which a build needs"):
        taxonomy.row("bob_cut")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('name = "x"\nextend = "paper"', "unknown key 'extend' (did you mean 'extends'?)"),
        ('name = "x"\nextends = "papr"', "unknown taxonomy 'papr' (did you mean 'paper'?)"),
        ('name = "x"\nextends = "paper"\ndrop = ["smlie"]', "did you mean 'smile'?"),
        ('name = "x"\nextends = "mine.toml"', "extends itself"),
        ('name = "x"', "at least one group and one attribute"),
        (
            'name="x"\nextends="paper"\n[attributes.a]\ntitle="A"\ncategory="c"\ntransition={ smlie = 0 }',
            "names 'smlie', which does not exist (did you mean 'smile'?)",
        ),
        (
            'name="x"\nextends="paper"\n[attributes.a]\ntitle="A"\ncategory="c"\ntransition={ smile = 3 }',
            "attributes.a.transition.smile",
        ),
        (
            'name="x"\nextends="paper"\n[attributes.a]\ntitle="A"\ncategory="c"\ntransition={ a = 0 }',
            "must require 'a' itself",
        ),
        ('name = "x"\nextends = "paper"\n[attributes.a]\ntitel="A"', "did you mean 'title'?"),
        ("name = ", "must be TOML"),
    ],
)
def test_a_bad_taxonomy_is_one_clear_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_taxonomy(custom(tmp_path, text))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
