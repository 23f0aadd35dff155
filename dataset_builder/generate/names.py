"""Names to prompt faces with: a list from a file, or composed ones that ship.

The shipped names join a common given name and a common family name by a fixed rule. They are meant for no
one: that some living person bears such a name can't be excluded, that a model knows that person's face is
unlikely.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from targets.base.errors import InputError
from targets.base.tables import read_table
from targets.base.text import nearest

Split = Literal["train", "candidates"]
TRAIN, CANDIDATES = 10, 110


@dataclass(frozen=True)
class Name:
    """Who is prompted.

    Attributes:
        name: as the prompt has it; the identity's label too.
        group: code of the demographic it stands for.
        split: "train" for the distortion detector's faces, "candidates" for those of the dataset.
    """

    name: str
    group: str
    split: Split = "candidates"


_FAMILY = {
    "A": "Arimoto Baek Chiba Dongwa Furuya Guo Hosoda Jeong Kuroda Liao Moriwaki Noh Okubo Shen Tanabe",
    "B": "Abara Bekele Chikwanha Danjuma Eze Fofana Gumede Hinds Ilunga Kamara Lumumba Moyo Nkemelu "
    "Okoro Sesay",
    "I": "Acharya Bhandari Chavan Deshmukh Engineer Gadgil Hegde Iyengar Joshi Kulkarni Lokhande Mhatre "
    "Naidu Pillai Raghavan",
    "W": "Aldershaw Brandvold Castell Dunmore Eriksen Fairbank Grunwald Hollister Ingram Janssen "
    "Kowalczyk Lindqvist Merrow Novotny Ostrander",
}
_GIVEN = {
    "AM": "Akio Bowen Chihiro Daiki Eiji Fumio Guang Haruto Isamu Jianyu Kazuo Minjun Naoki Osamu Ryota "
    "Sungho",
    "AF": "Aiko Boyoung Chiyo Dandan Emiko Fumiko Haruka Izumi Jiayi Kanako Lihua Misaki Natsumi Rin "
    "Seoyeon Yui",
    "BM": "Abdou Babatunde Chidi Demba Emeka Farai Gatluak Hamisi Isaka Jabari Kwadwo Lamine Modou Nnamdi "
    "Obinna Tafari",
    "BF": "Abeni Binta Chidera Desta Ebele Fatou Gimbya Hawa Imani Jamila Kehinde Lindiwe Makena Nkechi "
    "Oluchi Thandeka",
    "IM": "Aditya Bhaskar Chirag Dinesh Eknath Girish Harish Inder Jatin Kedar Lalit Madhav Nikhil Omkar "
    "Prakash Rohan",
    "IF": "Anjali Bhavna Charu Damini Esha Falguni Gauri Harini Ila Jyoti Kavita Leela Meenal Nandini "
    "Pallavi Rekha",
    "WM": "Anders Bertram Casimir Dorian Edmund Fabian Gregor Henrik Ivo Jasper Konrad Leopold Magnus "
    "Nils Oswin Percival",
    "WF": "Adelheid Beatrix Clarissa Dorothea Elspeth Freya Greta Henrike Imogen Jolanta Katrin Leonie "
    "Margit Nadine Ottilie Petra",
}


def composed_names() -> tuple[Name, ...]:
    """The names that ship: for each group of the paper's taxonomy 10 to train with and 110 candidates."""
    return tuple(
        Name(name, group, "train" if number < TRAIN else "candidates")
        for group in _GIVEN
        for number, name in enumerate(_composed(group))
    )


def _composed(group: str) -> list[str]:
    given, family = _GIVEN[group].split(), _FAMILY[group[0]].split()
    # Stepping through both lists at different strides meets no pair twice and repeats no name in a row.
    return [
        f"{given[number % len(given)]} {family[(number + number // len(given)) % len(family)]}"
        for number in range(TRAIN + CANDIDATES)
    ]


def read_names(path: Path, groups: Collection[str]) -> tuple[Name, ...]:
    """Read a list of names: columns ``name`` and ``group``, and ``split`` where there are both.

    Raises:
        InputError: a column is missing, a cell is empty, a group that the taxonomy doesn't have, a split
            that is neither "train" nor "candidates", a name twice in a group.
    """
    table = read_table(path)
    table.require(("name", "group"), "a name list")
    splits = table.text("split") if "split" in table.columns else ["candidates"] * len(table)
    names: dict[tuple[str, str], Name] = {}
    rows = zip(table.text("name"), table.text("group"), splits, strict=True)
    for index, row in enumerate(rows):
        name, group, split = (text.strip() for text in row)
        where = table.row(index)
        if not name or not group:
            raise InputError(f"{where}: a name must have both a name and a group, got '{name}' and '{group}'")
        if group not in groups:
            raise InputError(f"{where}: the taxonomy has no group '{group}'{nearest(group, groups)}")
        if split not in get_args(Split):
            raise InputError(f"{where}: split must be 'train' or 'candidates', got '{split}'")
        if (name, group) in names:
            raise InputError(f"{where}: '{name}' is in group {group} already")
        names[name, group] = Name(name, group, split)
    return tuple(names.values())
