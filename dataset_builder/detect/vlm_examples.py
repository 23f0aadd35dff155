"""Few-shot examples: faces with known labels, from a folder or from a built dataset (paper, appendix C.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from dataset_builder.detect.vlm_prompt import Example
from dataset_builder.schema.verdict import Label
from targets.base.errors import InputError
from targets.base.tables import read_table
from targets.base.text import counted
from targets.scoring import PictureRef

LABELS_FILE = "labels.csv"
CONFIGS = ("sources", "candidates")


def load_examples(folder: Path) -> list[Example]:
    """Every labelled face of a folder with labels.csv (picture, attribute, label), or of a built dataset.

    Raises:
        InputError: neither of the two, or a label that is none.
    """
    if (folder / LABELS_FILE).is_file():
        return _from_table(folder)
    if all((folder / name).is_dir() for name in CONFIGS):
        return _from_dataset(folder)
    raise InputError(f"examples {folder} must be a folder with {LABELS_FILE}, or a built dataset")


def _from_table(folder: Path) -> list[Example]:
    table = read_table(folder / LABELS_FILE)
    table.require(("picture", "attribute", "label"), "examples")
    labels: dict[str, dict[str, Label]] = {}
    columns = (table.text(name) for name in ("picture", "attribute", "label"))
    for row, (picture, attribute, label) in enumerate(zip(*columns, strict=True)):
        labels.setdefault(picture, {})[attribute] = label_of(label, table.row(row))
    return [Example(PictureRef(name, (folder / name).read_bytes), found) for name, found in labels.items()]


def label_of(text: str, where: str) -> Label:
    """A label as a person wrote it.

    Raises:
        InputError: neither yes, no nor unknown.
    """
    labels: Mapping[str, Label] = {"yes": "yes", "no": "no", "unknown": "unknown"}
    label = labels.get(text.strip().casefold())
    if label is None:
        raise InputError(f"{where}: a label must be yes, no or unknown, got '{text}'")
    return label


def _from_dataset(folder: Path) -> list[Example]:
    rows = [
        row
        for name in CONFIGS
        for row in pq.read_table(folder / name, columns=["sha256", "image", "labels", "fault"]).to_pylist()
    ]
    return [
        Example(PictureRef(row["sha256"], partial(bytes, row["image"]["bytes"])), row["labels"])
        for row in rows
        if not row["fault"] and row["image"] is not None
    ]


def choose_examples(
    examples: Sequence[Example], attributes: Sequence[str], shots: int
) -> tuple[Example, ...]:
    """Examples for one question: half of them with its attribute, half without, where it asks for one.

    With several attributes they are taken in turn, so that as many different ones as possible are shown.
    The choice is by name and the same every time.

    Raises:
        InputError: too few faces whose labels for all these attributes are known.
    """
    known = sorted(
        (
            item
            for item in examples
            if all(item.labels.get(name, "unknown") != "unknown" for name in attributes)
        ),
        key=lambda item: item.picture.name,
    )
    positive = _positives(known, attributes, shots // 2)
    negative = [item for item in known if all(item.labels[name] == "no" for name in attributes)]
    chosen = [*positive, *negative[: shots - shots // 2]]
    if len(chosen) < shots:
        raise InputError(
            f"{counted(shots, 'example')} needed for {', '.join(attributes[:3])}: half with an attribute and "
            f"half without any, with labels for all of them; found {len(positive)} and {len(negative)}"
        )
    return tuple(chosen)


def _positives(known: Sequence[Example], attributes: Sequence[str], wanted: int) -> list[Example]:
    chosen: list[Example] = []
    grown = True
    while grown:
        grown = False
        for name in attributes:
            fresh = (item for item in known if item.labels[name] == "yes" and item not in chosen)
            found = next(fresh, None)
            if found is not None and len(chosen) < wanted:
                chosen.append(found)
                grown = True
    return chosen
