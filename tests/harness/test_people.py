"""People who are in several groups: joint CR2 against brute force, through the command line and the gate."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.finished import load_run
from harness.pairs import load_pairs
from harness.stats.contrasts import pairwise
from harness.stats.groups import GroupMeans
from harness.stats.intervals import cell_estimates
from harness.stats.people import SharedPeople
from tests.harness.test_audit_scores import COLUMNS, audited, row, scores
from tests.support import call, drawn_pairs, write_csv

GROUPS = ("AF", "AM", "WF", "WM")


def shared_rows(seed: int = 3, people: int = 14) -> list[Any]:
    """Everybody in up to four groups, with one to three pairs in each; a strong person effect."""
    rng = np.random.default_rng(seed)
    rows = []
    for person in range(people):
        own = rng.normal(0, 0.1)
        for place, group in enumerate(GROUPS):
            if rng.random() < 0.2:
                continue
            for pair in range(int(rng.integers(1, 4))):
                delta = 0.02 * place + own + rng.normal(0, 0.03)
                labels = {"identity": f"p{person}", "demographic": group}
                rows.append(row(f"{person}-{group}-{pair}", 0.4, 0.4 + delta, **labels))
    return rows


def brute_force(rows: list[Any], contrast: dict[str, float]) -> tuple[float, float, float]:
    """Estimate, se and df from n x n matrices: CR2 by person, group indicators as regressors.

    The working model of the degrees of freedom has independent pairs, with each group's own variance.
    """
    groups = sorted({r[3] for r in rows})
    people = sorted({r[1] for r in rows})
    y = np.array([r[7] - r[6] for r in rows])
    design = np.array([[float(r[3] == g) for g in groups] for r in rows])
    who = np.array([people.index(r[1]) for r in rows])
    c = np.array([contrast.get(g, 0.0) for g in groups])
    bread = np.linalg.inv(design.T @ design)
    maker = np.eye(len(y)) - design @ bread @ design.T
    forms = []
    for person in range(len(people)):
        at = np.flatnonzero(who == person)
        values, vectors = np.linalg.eigh(maker[np.ix_(at, at)])
        root = vectors @ np.diag([1 / math.sqrt(v) if v > 1e-12 else 0.0 for v in values]) @ vectors.T
        forms.append((bread @ design[at].T @ root @ maker[at], at))
    residuals = maker @ y
    covariance = sum(np.outer(form @ y, form @ y) for form, _ in forms)
    assert np.allclose(design.T @ residuals, 0)
    own = np.diag(covariance) * design.sum(axis=0)
    omega = np.diag(design @ own)
    p = np.array([c @ form for form, _ in forms])
    middle = p @ omega @ p.T
    df = np.trace(middle) ** 2 / np.trace(middle @ middle)
    return float(c @ bread @ design.T @ y), math.sqrt(c @ covariance @ c), float(df)


def check(found: dict[str, Any], wanted: tuple[float, float, float]) -> None:
    estimate, se, df = wanted
    assert abs(found["difference"]) == pytest.approx(abs(estimate), rel=1e-9)
    assert found["se"] == pytest.approx(se, rel=1e-9)
    assert found["df"] == pytest.approx(df, rel=1e-9)
    assert found["p"] == pytest.approx(2 * stats.t.sf(abs(estimate) / se, df), rel=1e-8)


def test_differences_between_groups_that_share_people_equal_brute_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = shared_rows()
    table = scores(tmp_path / "s.csv", rows)
    record = audited(capsys, table, tmp_path / "run", "--identities", "global", "--by", "sex")
    assert record["settings"]["identities"] == "people"
    assert not any("more than one group" in warning for warning in record["warnings"])
    entries = {entry["by"]: entry for entry in record["disparities"]}
    for pair in entries["demographic"]["pairwise"]:
        check(pair, brute_force(rows, {pair["a"]: -1.0, pair["b"]: 1.0}))
    (sex,) = entries["sex"]["pairwise"]
    check(sex, brute_force(rows, {"AF": 0.5, "WF": 0.5, "AM": -0.5, "WM": -0.5}))
    (between,) = entries["sex"]["interaction"]["between"]
    check(between, brute_force(rows, {"AF": 1.0, "AM": -1.0, "WF": -1.0, "WM": 1.0}))
    women = next(c for c in record["cells"] if (c["by"], c["group"]) == ("sex", "female"))
    _, se, df = brute_force(rows, {"AF": 0.5, "WF": 0.5})
    assert (women["se"], women["df"]) == (pytest.approx(se, rel=1e-9), pytest.approx(df, rel=1e-9))
    assert women["n_identities"] == len({r[1] for r in rows if r[3][1] == "F"})
    # HTZ has no formula for groups that share people.
    assert entries["demographic"]["diagnostic"] is None


def test_a_column_person_says_the_same_and_the_gate_keeps_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = shared_rows()
    globally = audited(capsys, scores(tmp_path / "s.csv", rows), tmp_path / "a", "--identities", "global")
    named = [(r[0], f"{r[3]}-{r[1]}", *r[2:], r[1]) for r in rows]
    table = write_csv(tmp_path / "p.csv", (*COLUMNS, "person"), named)
    record = audited(capsys, table, tmp_path / "b")
    assert record["disparities"][0]["pairwise"] == globally["disparities"][0]["pairwise"]
    run = load_run(tmp_path / "b")
    assert len(np.unique(run.clusters())) == len({r[1] for r in rows})
    apart = audited(capsys, table, tmp_path / "c", "--identities", "group")
    assert apart["disparities"][0]["pairwise"][0]["se"] > 1.5 * record["disparities"][0]["pairwise"][0]["se"]
    # Other clusters than the baseline's are another question.
    result = call(capsys, "compare", tmp_path / "b", tmp_path / "c")
    assert result.status == 3
    result = call(capsys, "audit", "--scores", table, "--out", tmp_path / "d", "--identities", "global")
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "leave out --identities global" in result.err


def test_one_identity_is_one_person(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(*row(i, 0.4, 0.5, identity="a"), f"person {i}") for i in range(2)]
    table = write_csv(tmp_path / "p.csv", (*COLUMNS, "person"), rows)
    result = call(capsys, "audit", "--scores", table, "--out", tmp_path / "run")
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "must be one person, got 'person 0' and 'person 1'" in result.err
    assert not (tmp_path / "run").exists()


def test_labels_of_several_groups_are_different_people_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = audited(capsys, scores(tmp_path / "s.csv", shared_rows()), tmp_path / "run")
    assert any("--identities global" in warning for warning in record["warnings"])
    assert record["settings"]["identities"] == "group"


def test_the_joint_covariance_errs_as_often_as_it_says() -> None:
    """2,000 draws, people in both groups with correlation .7: independent groups miss a planted zero never,
    and an equal-weight mean far too often; the joint covariance misses both as nominal."""
    rng = np.random.default_rng(11)
    draws, people = 2_000, 15
    effect = rng.normal(0, math.sqrt(0.7), size=(people, draws))
    deltas = [effect + rng.normal(0, math.sqrt(0.3), size=(people, draws)) for _ in range(2)]
    stacked, who = np.concatenate(deltas), np.tile(np.arange(people), 2)
    cells = [cell_estimates(np.zeros_like(d), d, np.arange(people)) for d in deltas]
    rows = [np.arange(people), people + np.arange(people)]
    joint = GroupMeans.stack(cells, SharedPeople.of(np.zeros_like(stacked), stacked, who, rows))
    shares = {name: float((pairwise(groups, level=0.95).p < 0.05).mean())
              for name, groups in (("joint", joint), ("apart", GroupMeans.stack(cells)))}  # fmt: skip
    assert abs(shares["joint"] - 0.05) < 0.015
    assert shares["apart"] < 0.01


def test_pairs_of_pictures_name_people_too(tmp_path: Path) -> None:
    pairs = drawn_pairs(tmp_path)
    table = list(csv.reader(pairs.read_text(encoding="utf-8").splitlines()))
    people = [[*line, line[1][2:]] for line in table[1:]]
    named = write_csv(tmp_path / "named.csv", (*table[0], "person"), people)
    labels = load_pairs(str(named)).labels
    assert len(np.unique(labels.clusters())) == 3
    assert len(np.unique(load_pairs(str(named), identities="group").labels.clusters())) == 6
    assert load_pairs(str(pairs)).labels.person is None
    empty = write_csv(tmp_path / "empty.csv", (*table[0], "person"), [[*people[0][:-1], ""], *people[1:]])
    (lost,) = load_pairs(str(empty)).failures
    assert (lost.reason, "'person' is empty" in lost.detail) == ("missing_label", True)
