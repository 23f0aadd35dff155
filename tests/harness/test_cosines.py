"""Cosines of vectors of any finite length, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dataset_builder.detect.distortion import decision_values
from dataset_builder.generate.diffusion import most_alike
from harness.stats.comparisons import unit_vectors
from harness.stats.vectors import row_cosines, unit_rows
from tests.support import PAIR_COLUMNS, call, drawn_pairs, write_csv

# An embedder whose vectors have any length: ten pixels' colours times a number.
EMBEDDER = """
import numpy as np

class Vectors:
    def embed(self, images):
        rows = np.stack([np.asarray(image, dtype=float)[::16, ::16].ravel() - 99.5 for image in images])
        return rows * {factor}
"""


def audited(folder: Path, capsys: pytest.CaptureFixture[str], factor: str) -> dict:
    folder.mkdir()
    target = folder / "vectors.py"
    target.write_text(EMBEDDER.format(factor=factor), encoding="utf-8")
    result = call(
        capsys, "audit", drawn_pairs(folder), "--target", f"{target}:Vectors", "--out", folder / "run",
        "--match-threshold", "0.9", "--no-progress",
    )  # fmt: skip
    assert result.status == 0, result.err
    return json.loads((folder / "run" / "record.json").read_text(encoding="utf-8"))


def test_the_length_of_vectors_does_not_move_a_cosine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = audited(tmp_path / "plain", capsys, "1")
    deltas = [cell["delta"] for cell in plain["cells"]]
    assert all(delta is not None for delta in deltas)
    for factor in ("1e200", "1e-200", "1e300"):
        other = audited(tmp_path / factor, capsys, factor)
        assert [cell["delta"] for cell in other["cells"]] == pytest.approx(deltas, rel=1e-9), factor
        rates = [run["recognition"][0]["cells"] for run in (plain, other)]
        assert rates[0]
        assert rates[0] == rates[1], factor


def test_a_vector_of_zeros_is_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "zeros.py"
    zeros = EMBEDDER.format(factor="np.array([[0.0]] + [[1.0]] * (len(images) - 1))")
    target.write_text(
        zeros.replace("class Vectors:", "class Vectors:\n    batch_size = 24"), encoding="utf-8"
    )
    arguments = ("audit", drawn_pairs(tmp_path), "--target", f"{target}:Vectors", "--out", tmp_path / "run")
    assert call(capsys, *arguments, "--max-failures", "1").status == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))
    lost = [cell["excluded"] for cell in record["cells"] if cell["concept"] == "identity"]
    assert sum(cell.get("no_answer", 0) for cell in lost) == 1
    assert not any("non_finite" in cell for cell in lost)


@pytest.mark.parametrize("factor", [1e200, 1e-200, 5e307, 1e-310])
def test_every_place_that_takes_a_norm(factor: float) -> None:
    vectors = np.array([[3.0, 4.0], [4.0, 3.0], [3.0, 4.1]])
    np.testing.assert_allclose(row_cosines(vectors[:1] / 4 * factor, vectors[1:2] / 4 * factor), 24 / 25)
    np.testing.assert_allclose(unit_vectors(vectors / 4 * factor)[0], [0.6, 0.8], rtol=1e-6)
    assert most_alike(vectors / 5 * factor, 2) == most_alike(vectors, 2)
    found = decision_values(vectors / 5 * factor, np.array([1.0, -1.0]), 0.5)
    assert found[0] == pytest.approx(0.6 - 0.8 + 0.5)


def test_what_has_no_direction_is_nan() -> None:
    rows = np.array([[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], [0.0, 2.0]])
    assert np.isnan(unit_rows(rows)).all(axis=1).tolist() == [True, True, True, False]


COMPARED = ("first", "second", "similarity")


@pytest.mark.parametrize(
    ("scale", "value", "status"),
    [("1", "1.0000001192", 0), ("100", "100.00001", 0), ("1", "1.00001", 2), ("1", "1.0000021", 2)],
)
def test_rounding_above_the_scale_is_cut_off(
    scale: str, value: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = drawn_pairs(tmp_path, identities=2)
    names = sorted(path.name for path in (tmp_path / "images").iterdir())
    rows = [(a, b, value) for a in names for b in names if a < b]
    table = write_csv(tmp_path / "compared.csv", COMPARED, rows)
    result = call(
        capsys, "audit", pairs, "--target", f"captured-comparisons:{table}", "--set", f"scale={scale}",
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert result.status == status, result.err
    if status:
        assert value in result.err
    else:
        record = json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))
        assert {cell["mean_transformed"] for cell in record["cells"]} == {1.0}


def test_pictures_of_one_colour_are_no_fault_of_the_embedder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "vectors.py"
    target.write_text(EMBEDDER.format(factor="1"), encoding="utf-8")
    for number in range(4):
        Image.new("RGB", (64, 64), (number, 9, 9)).save(tmp_path / f"{number}.png")
    rows = [
        ("a", "p", 1, "WM", "glasses", "0.png", "1.png"),
        ("b", "p", 2, "WM", "glasses", "2.png", "3.png"),
    ]
    pairs = write_csv(tmp_path / "pairs.csv", PAIR_COLUMNS, rows)
    result = call(capsys, "audit", pairs, "--target", f"{target}:Vectors", "--out", tmp_path / "run")
    assert result.status == 2
    assert "every pixel has the same colour" in result.err
    assert len(result.err.splitlines()) == 1


def test_vectors_of_two_lengths_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "vectors.py"
    odd = EMBEDDER.format(factor="1").replace("return rows * 1", "return rows[:, : 2 + len(images)]")
    target.write_text(odd.replace("class Vectors:", "class Vectors:\n    batch_size = 5"), encoding="utf-8")
    result = call(
        capsys, "audit", drawn_pairs(tmp_path), "--target", f"{target}:Vectors", "--out", tmp_path / "run"
    )
    assert result.status == 2
    assert "vectors must have one length" in result.err
