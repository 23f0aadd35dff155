"""The R reference numbers and their inputs as arrays."""

import csv
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support import shipped

LEVEL = 0.999


def folder() -> Path:
    return shipped("oracle")


@dataclass(frozen=True)
class Pairs:
    source: NDArray[np.float64]
    transformed: NDArray[np.float64]
    clusters: NDArray[np.int64]

    @property
    def delta(self) -> NDArray[np.float64]:
        return (self.transformed - self.source)[np.isfinite(self.transformed - self.source)]


def number(text: str) -> float:
    return float("nan") if text.strip() in {"", "NA", "NaN", "null"} else float(text)


def read_rows(dataset: str) -> list[dict[str, str]]:
    path = folder() / "inputs" / f"{dataset}.csv"
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def as_pairs(rows: list[dict[str, str]]) -> Pairs:
    labels = [(row["demographic"], row["identity"]) for row in rows]
    code = {label: i for i, label in enumerate(sorted(set(labels)))}
    return Pairs(
        np.array([number(row["source_score"]) for row in rows]),
        np.array([number(row["transformed_score"]) for row in rows]),
        np.array([code[label] for label in labels], dtype=np.int64),
    )


@cache
def cells(dataset: str) -> dict[str, Pairs]:
    found: dict[str, list[dict[str, str]]] = {}
    for row in read_rows(dataset):
        found.setdefault(f"{row['attribute']}|{row['concept']}|{row['demographic']}", []).append(row)
    return {key: as_pairs(rows) for key, rows in found.items()}


@cache
def reference(dataset: str) -> dict[str, Any]:
    path = folder() / "reference" / f"{dataset}.json"
    return dict(json.loads(path.read_text()))


CELL_DATASETS = [
    "D01_tiny_n",
    "D02_zero_variance",
    "D04_cluster_icc50",
    "D05_cluster_icc90",
    "D06_cluster_edge",
    "D09_missing",
    "D11_eight_unbalanced",
    "D14_reused_identity_labels",
]


def cell_references(dataset: str) -> list[tuple[str, Pairs, dict[str, Any]]]:
    pairs = cells(dataset)
    return [(key, pairs[key], ref) for key, ref in reference(dataset)["cells"].items()]


def assert_close(got: float, want: float, rel: float = 1e-9, absolute: float = 0.0) -> None:
    assert got == pytest.approx(want, rel=rel, abs=absolute)


def assert_p(got: float, want: float) -> None:
    assert_close(got, want, rel=1e-9 if want >= 1e-12 else 1e-6)
