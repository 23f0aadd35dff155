"""A reason stands beside every null of a record, and beside nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness.test_audit_scores import row, scores
from tests.harness.test_recognition import TARGET
from tests.support import call, drawn_pairs


def parts(value: Any, path: str = "record") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of a record but the target's card, which is the target's own."""
    if isinstance(value, list):
        for item in value:
            yield from parts(item, path)
    if isinstance(value, dict):
        yield path, value
        for name, item in value.items():
            if name != "targets":
                yield from parts(item, f"{path}.{name}")


def check_reasons(run: Path) -> set[str]:
    """Check a run's record; the places of its nulls."""
    places = set()
    for path, part in parts(json.loads((run / "record.json").read_text(encoding="utf-8"))):
        null = {name for name, item in part.items() if item is None}
        places |= {f"{path}.{name}" for name in null}
        if "reasons" in part:
            assert set(part["reasons"]) == null, (path, part)
            assert all(part["reasons"].values()), (path, part["reasons"])
        elif null:
            assert part["reason"], (path, part)
    return places


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Groups with many identities, few, one, one pair, no spread and no score; two scales."""
    rng = np.random.default_rng(1)
    rows = []
    groups = {"WM": (12, 2), "WF": (9, 1), "BM": (2, 1), "BF": (1, 3), "AM": (1, 1), "AF": (5, 2)}
    for group, (people, pairs) in groups.items():
        for identity in range(people):
            for index in range(pairs):
                for attribute, spread in (("hat", 0.05), ("scarf", 0.0)):
                    delta = 0.125 if group == "AF" else 0.1 + spread * rng.normal()
                    labels = {"identity": f"{group}{identity}", "demographic": group, "attribute": attribute}
                    name = f"{group}{identity}-{index}-{attribute}"
                    rows.append(row(name, 0.5, 0.5 + delta, concept="a", **labels))
                    rows.append(
                        row(name, -3.0, float("nan") if group == "WF" else delta, concept="b", **labels)
                    )
    return scores(tmp_path / "s.csv", rows)


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--margin", 0.05, "--half-width", 0.02, "--discover", "--by", "sex", "--by", "ethnicity"),
        ("--ci", "bootstrap", "--level", 0.9),
        ("--ci", "t", "--half-width", 0.02),
    ],
)
def test_scores(
    more: tuple[object, ...], table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = call(capsys, "audit", "--scores", table, "--out", tmp_path / "run", "--max-failures", 1, *more)
    assert shown.status == 0, shown.err
    places = check_reasons(tmp_path / "run")
    for name in ("cells.ci", "details.icc", "details.dz", "details.minimum_detectable_effect"):
        assert f"record.{name}" in places
    assert {"record.disparities.pairwise.band", "record.disparities.pairwise.se"} <= places


@pytest.mark.parametrize("more", [(), ("--match-threshold", 0.5)])
def test_a_recogniser(more: tuple[object, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = drawn_pairs(tmp_path, identities=4)
    (tmp_path / "eye.py").write_text(TARGET, encoding="utf-8")
    target = f"{tmp_path / 'eye.py'}:Eye"
    assert call(capsys, "audit", pairs, "--target", target, "--out", tmp_path / "run", *more).status == 0
    assert any(place.startswith("record.recognition.") for place in check_reasons(tmp_path / "run"))


def test_a_mean_of_identities_without_spread_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Every identity has the mean .125, its pairs do not.
    rows = [
        row(f"p{identity}-{index}", 0.5, 0.5 + 0.125 + step, identity=f"p{identity}", demographic="WM")
        for identity in range(4)
        for index, step in enumerate((0.25, -0.25))
    ]
    table = scores(tmp_path / "s.csv", rows)
    assert call(capsys, "audit", "--scores", table, "--out", tmp_path / "run").status == 0
    check_reasons(tmp_path / "run")
    record = json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))
    mean = record["details"][0]["identity_mean"]
    assert (mean["delta"], mean["low"], mean["status"]) == (0.125, None, "zero_variance")
    assert mean["reason"] == "the deltas differ by no more than floating-point rounding"
