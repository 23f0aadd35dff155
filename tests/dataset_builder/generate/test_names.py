"""Name lists."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dataset_builder.generate.names import composed_names, read_names
from dataset_builder.schema.taxonomy import load_taxonomy
from targets.base.errors import InputError

GROUPS = load_taxonomy("paper").groups


def test_the_names_that_ship() -> None:
    names = composed_names()
    assert Counter((name.group, name.split) for name in names) == {
        (group, split): count for group in GROUPS for split, count in (("train", 10), ("candidates", 110))
    }
    assert len({name.name for name in names}) == len(names)
    assert names == composed_names()


def written(path: Path, text: str) -> Path:
    (path / "names.csv").write_text(text, encoding="utf-8")
    return path / "names.csv"


def test_a_list_from_a_file(tmp_path: Path) -> None:
    names = read_names(
        written(tmp_path, "name,group,split\nAda Poe,WF,train\nAda Poe,BF,candidates\n"), GROUPS
    )
    assert [(name.name, name.group, name.split) for name in names] == [
        ("Ada Poe", "WF", "train"),
        ("Ada Poe", "BF", "candidates"),
    ]


def test_split_may_be_left_out(tmp_path: Path) -> None:
    (name,) = read_names(written(tmp_path, "name,group\nAda Poe,WF\n"), GROUPS)
    assert name.split == "candidates"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name\nAda\n", "a name list needs a column 'group'"),
        ("name,group\nAda,\n", "names.csv row 2: a name must have both a name and a group, got 'Ada' and ''"),
        ("name,group\nAda,WX\n", "names.csv row 2: the taxonomy has no group 'WX'"),
        ("name,group,split\nAda,WF,test\n", "split must be 'train' or 'candidates', got 'test'"),
        ("name,group\nAda,WF\nAda,WF\n", "row 3: 'Ada' is in group WF already"),
    ],
)
def test_wrong_lists(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_names(written(tmp_path, text), GROUPS)
