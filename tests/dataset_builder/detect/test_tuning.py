"""Thresholds from people's labels: pooled or per cell, bounds said, what can't be tuned named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dataset_builder.detect.distortion import DistortionModel, load_distortion_model
from dataset_builder.detect.tuning import _tuned
from targets.catalogue import load_target
from tests.coded import coded_face, labels, write_candidates, write_recipe
from tests.support import call, write_csv

EMBEDDER = """
import numpy as np
from tests.coded import read_image

class Angles:
    card = {"name": "angles", "weights": {"none": "0" * 64}}

    def embed(self, images):
        # The face's number, in degrees: a score that a test can work out by hand.
        angles = np.radians([read_image(image)[0][0] for image in images])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)
"""


@pytest.fixture
def dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Distorted glasses have numbers from 60 on, distorted scarves of WM from 30 on; smiles are all clean."""
    sources, edits, number = [], [], 0
    for identity in range(20):
        group = ("WM", "BF")[identity % 2]
        sources.append(coded_face(200 + identity, group, f"{group}-{identity}", labels()))
        for attribute in ("glasses", "scarf", "smile"):
            number += 1
            edits.append(
                (identity, attribute, coded_face(number, group, f"{group}-{identity}", labels(attribute)))
            )
    write_candidates(tmp_path, sources, iter(edits))
    recipe = write_recipe(tmp_path, ["glasses", "scarf", "smile"])
    out = tmp_path / "dataset"
    assert call(capsys, "build", recipe, "--out", out, "--candidates", tmp_path).status == 0
    return out


def tuned(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], by: str
) -> tuple[DistortionModel, str]:
    (tmp_path / "angles.py").write_text(EMBEDDER, encoding="utf-8")
    spec = f"{tmp_path / 'angles.py'}:Angles"
    digest = load_target(spec).card.weights_digest
    assert digest is not None
    DistortionModel(
        target=spec, weights_digest=digest, coefficients=(0.0, 1.0), intercept=0.0, threshold=0.9
    ).save(tmp_path / "model.json")
    rows = []
    for row in pq.read_table(dataset / "candidates").to_pylist():
        number = json.loads(row["provenance"])["number"]
        attribute = row["pair_id"].rsplit("-", 1)[1]
        limit = {"glasses": 40, "scarf": 50, "smile": 999}[attribute]
        rows.append((row["sha256"], "yes" if number >= limit else "no"))
    table = write_csv(tmp_path / "human.csv", ("sha256", "distorted"), rows)
    out = tmp_path / "tuned.json"
    result = call(
        capsys, "detector", "tune", tmp_path / "model.json", dataset, "--labels", table, "--out", out,
        "--by", by, "--no-progress",
    )  # fmt: skip
    assert result.status == 0, result.err
    return load_distortion_model(out), result.out


def test_pooled_by_category(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, text = tuned(dataset, tmp_path, capsys, "category")
    # Accessories: the lowest distorted one is number 40 (glasses).
    assert model.thresholds["glasses"] == model.thresholds["scarf"] == pytest.approx(np.sin(np.radians(40)))
    assert "smile" not in model.thresholds
    assert "accessories: threshold" in text
    assert "recall 1.000 (at least" in text
    assert "0.97 is not shown, which takes 99 without a miss" in text
    assert "can't be tuned" in text.splitlines()[-1]
    assert model.card["tuned_on_human_labels"]["scope"] == "category"
    score = float(np.sin(np.radians(45)))
    assert (model.label(score, "glasses", "WM"), model.label(score, "smile", "WM")) == ("yes", "no")
    assert model.label(float("nan"), "glasses", "WM") == "unknown"


def test_per_cell_as_the_paper(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, text = tuned(dataset, tmp_path, capsys, "cell")
    assert set(model.thresholds) == {"glasses/WM", "glasses/BF", "scarf/WM", "scarf/BF"}
    assert model.thresholds["glasses/WM"] < model.thresholds["scarf/WM"]
    score = float(np.sin(np.radians(45)))
    assert (model.label(score, "glasses", "WM"), model.label(score, "scarf", "WM")) == ("yes", "no")
    named = set(text.splitlines()[-1].split(": ")[1].split(", "))
    assert {"smile/WM", "smile/BF", "glasses/AF", "scarf/IM"} <= named
    assert not {"glasses/WM", "scarf/BF", "pigtails/WM"} & named


def test_recall_and_bounds_by_hand() -> None:
    scores = np.array([0.9, 0.8, 0.7, 0.1, 0.75, 0.2, np.nan])
    found = _tuned("x", scores, [True, True, True, True, False, False, True], 0.75)
    assert (found.distorted, found.clean, found.without_face) == (4, 2, 1)
    # Half-way to the next distorted score below.
    assert found.threshold == pytest.approx(0.4)
    assert found.recall == 0.75
    # The one-sided exact bound: P(X >= 3 | n = 4, p) = 0.05.
    low = found.recall_low
    assert low is not None
    assert 4 * low**3 * (1 - low) + low**4 == pytest.approx(0.05)
    assert found.false_positives == 0.5
    nothing = _tuned("y", np.array([0.3]), [False], 0.97)
    assert nothing.threshold is None
    assert "can't be tuned" in nothing.in_words(0.97)
