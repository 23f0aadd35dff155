"""The distortion detector and the detectors' part in a build, on drawn candidates with known truth."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dataset_builder.detect.distortion import load_distortion_model, threshold_for_recall
from dataset_builder.schema.faces import Face
from dataset_builder.store import faces_table
from targets.base.errors import InputError
from targets.base.files import write_parquet
from targets.drawn_pictures import drawn_faces
from tests.dataset_builder.test_pipeline import assert_one_line, recipe
from tests.support import call

GROUPS = ("AM", "BF", "WM")
NAMES = ("glasses", "old")

EMBEDDER = """
import numpy as np
from targets.protocol import Scores

class Blocks:
    card = {"name": "blocks", "weights": {"none": "%s"}}

    def embed(self, images):
        rows = [np.asarray(image.resize((8, 8)), dtype=float).ravel() / 255 for image in images]
        dark = [np.asarray(image)[150, 150].max() == 1 for image in images]
        return Scores(np.array(rows), tuple("no_face" if d else None for d in dark))
"""


def encoded(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def face(group: str, identity: int, image: Image.Image, **more: Any) -> Face:
    labels = dict.fromkeys(("glasses", "smile"), "no")
    fields: dict[str, Any] = {"labels": labels, "age": 30.0, "distorted": "no", "provenance": {"drawn": True}}
    return Face(f"{group}-{identity}", 0, group, encoded(image), **{**fields, **more})


def drawn_candidates(folder: Path, identities: int = 9) -> Path:
    """Every third transformed face has a bright bar across it and counts as distorted."""
    sources: list[Face] = []
    transformed: list[Face] = []
    attributes: list[str] = []
    number = 0
    for group in GROUPS:
        for identity in range(identities):
            base = drawn_faces(5)[identity % 5].copy()
            base.putpixel((identity, GROUPS.index(group)), (7, identity, 9))
            sources.append(face(group, identity, base))
            for name in NAMES:
                number += 1
                image = base.copy()
                image.paste((20, 20, 30), (50, 60, 110, 66 + 2 * NAMES.index(name)))
                distorted = number % 3 == 0
                if distorted:
                    image.paste((255, 255, 60), (10, 70 + number % 5, 150, 140))
                more: dict[str, Any] = {"distorted": "yes" if distorted else "no"}
                if name == "old":
                    more["age"] = 60.0
                else:
                    more["labels"] = {"glasses": "yes", "smile": "no"}
                transformed.append(face(group, identity, image, **more))
                attributes.append(name)
    by_source = [source.sha256 for source in sources for _ in NAMES]
    empty = [""] * len(sources)
    write_parquet(folder / "sources.parquet", faces_table(sources, empty, empty))
    write_parquet(folder / "candidates.parquet", faces_table(transformed, attributes, by_source))
    return folder


def verdicts_of(dataset: Path) -> dict[str, dict[str, Any]]:
    return {row["pair_id"]: row for row in pq.read_table(dataset / "verdicts").to_pylist()}


def test_trained_saved_and_used_in_a_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    candidates = drawn_candidates(tmp_path / "drawn")
    path = recipe(tmp_path / "recipe")
    path.write_text(path.read_text(encoding="utf-8") + '\n[filter]\nunknown = "accept"\n', encoding="utf-8")
    truth = tmp_path / "truth"
    result = call(capsys, "build", path, "--out", truth, "--candidates", candidates)
    assert result.status == 0, result.err
    target = tmp_path / "blocks.py"
    target.write_text(EMBEDDER % "00", encoding="utf-8")
    model = tmp_path / "recipe" / "detector.json"
    trained = call(capsys, "detector", "train", truth, "--target", f"{target}:Blocks", "--out", model)
    assert trained.status == 0, trained.err
    card = load_distortion_model(model).card
    assert card["held_out"]["recall"]["rate"] == 1.0
    assert card["held_out"]["recall"]["n"] == card["trained_on"]["test"]["distorted"]
    assert set(card["held_out"]["false_positives_by_group"]) == set(GROUPS)
    found = card["held_out"]
    by_group = [rate["hits"] for rate in found["recall_by_group"].values()]
    assert sum(by_group) == found["recall"]["hits"]
    assert found["auc"] == 1.0
    points = [(point["recall"], point["false_positives"]) for point in found["roc"]]
    assert (points == sorted(points), points[-1], (1.0, 0.0) in points) == (True, (1.0, 1.0), True)
    thresholds = [point["threshold"] for point in found["roc"]]
    assert thresholds == sorted(thresholds, reverse=True)
    assert "recall, BF: 1.000" in trained.out
    assert "area under the ROC: 1.000" in trained.out
    assert sum(part["distorted"] for part in card["trained_on"].values()) == 18
    assert json.loads(model.read_text(encoding="utf-8"))["coefficients"]

    text = path.read_text(encoding="utf-8") + '\n[detect]\ndistortion = "detector.json"\n'
    path.write_text(text, encoding="utf-8")
    detected = tmp_path / "detected"
    result = call(capsys, "build", path, "--out", detected, "--candidates", candidates)
    assert result.status == 0, result.err
    expected, found = verdicts_of(truth), verdicts_of(detected)
    agreement = [expected[name]["reason"] == found[name]["reason"] for name in expected]
    assert np.mean(agreement) > 0.95
    assert all(row["distortion"] is not None for row in found.values())
    build = json.loads((detected / "build.json").read_text(encoding="utf-8"))
    assert list(build["detectors"]) == ["distortion"]

    # The detector's own weights under audit: the run says that nothing may be claimed.
    more = ("--target", f"{target}:Blocks", "--out", tmp_path / "run")
    audited = call(capsys, "audit", detected, *more)
    assert audited.status == 0, audited.err
    assert "the same weights filtered the dataset (distortion detector)" in audited.out

    target.write_text(EMBEDDER % "11", encoding="utf-8")
    result = call(capsys, "build", path, "--out", tmp_path / "other", "--candidates", candidates)
    assert_one_line(result, "train it again")
    read_otherwise = (EMBEDDER % "00").replace("}}", '}, "settings": {"mean": 0.5}}')
    target.write_text(read_otherwise, encoding="utf-8")
    result = call(capsys, "build", path, "--out", tmp_path / "other", "--candidates", candidates)
    assert_one_line(result, "when it read pictures in another way")


def test_a_face_that_can_not_be_found_is_unknown_not_clean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn_candidates(tmp_path / "drawn", identities=3)
    model = {
        "target": f"{tmp_path / 'blocks.py'}:Blocks",
        "weights_digest": "",
        "coefficients": [0.0] * 192,
        "intercept": -1.0,
        "threshold": 0.0,
    }
    (tmp_path / "blocks.py").write_text(
        (EMBEDDER % "00").replace('"no_face" if d else None', '"no_face"'),
        encoding="utf-8",
    )
    from targets.catalogue import load_target

    model["weights_digest"] = load_target(str(model["target"])).card.weights_digest
    path = recipe(tmp_path / "recipe")
    (path.parent / "d.json").write_text(json.dumps(model), encoding="utf-8")
    path.write_text(
        path.read_text(encoding="utf-8") + '\n[detect]\ndistortion = "d.json"\n', encoding="utf-8"
    )
    out = tmp_path / "out"
    assert call(capsys, "build", path, "--out", out, "--candidates", tmp_path / "drawn").status == 0
    rows = verdicts_of(out).values()
    assert {row["distorted"] for row in rows} == {"unknown"}
    assert {row["reason"] for row in rows} == {"unknown"}
    assert {row["distortion"] for row in rows} == {None}


def test_the_selection_of_pairs_is_checked_against_all_candidates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The filter drops distorted faces, which are brighter: kept and all candidates must both be reported."""
    candidates = drawn_candidates(tmp_path / "drawn")
    path = recipe(tmp_path / "recipe")
    path.write_text(path.read_text(encoding="utf-8") + '\n[filter]\nunknown = "accept"\n', encoding="utf-8")
    dataset = tmp_path / "dataset"
    assert call(capsys, "build", path, "--out", dataset, "--candidates", candidates).status == 0
    target = tmp_path / "mean.py"
    target.write_text(
        "import numpy as np\nclass Mean:\n    concepts = ('mean',)\n    def score(self, images):\n"
        "        return np.array([[np.asarray(image).mean() / 255] for image in images])\n",
        encoding="utf-8",
    )
    result = call(capsys, "audit", dataset, "--target", f"{target}:Mean", "--out", tmp_path / "run")
    assert result.status == 0, result.err
    record = json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))
    verdicts = verdicts_of(dataset)
    checks = {(c["attribute"], c["a"], c["b"]): c for c in record["selection"]}
    assert len(checks) == 2 * 3
    check = checks["glasses", "AM", "BF"]
    for side, group in (("keep_a", "AM"), ("keep_b", "BF")):
        own = [
            row["kept"]
            for name, row in verdicts.items()
            if name.startswith(group) and name.endswith("glasses")
        ]
        assert check[side] == pytest.approx(np.mean(own))
    kept_by_group = {c["group"]: c["delta"] for c in record["cells"] if c["attribute"] == "glasses"}
    assert check["kept"] == pytest.approx(kept_by_group["BF"] - kept_by_group["AM"])
    assert check["candidates"] != pytest.approx(check["kept"], abs=1e-6)
    assert check["lee_low"] <= check["kept"] <= check["lee_high"]
    plain = call(
        capsys, "audit", dataset, "--target", f"{target}:Mean", "--out", tmp_path / "b", "--no-candidates"
    )
    assert plain.status == 0
    assert json.loads((tmp_path / "b" / "record.json").read_text(encoding="utf-8"))["selection"] == []


def scores(*values: float) -> np.ndarray:
    return np.array(values)


@pytest.mark.parametrize(
    ("recall", "threshold"), [(1.0, 0.1), (0.8, 0.1), (0.75, 0.25), (0.5, 0.4), (0.25, 0.8)]
)
def test_thresholds_by_hand(recall: float, threshold: float) -> None:
    """Found down to .9: 1, .5: 2, .3: 3, .1: 4 of the four distorted; half-way to the next score below."""
    values = scores(0.9, 0.5, 0.3, 0.1, 0.7, 0.2, np.nan)
    truth: Sequence[bool] = [True, True, True, True, False, False, True]
    assert threshold_for_recall(values, truth, recall) == pytest.approx(threshold)


def test_nothing_to_tune_or_to_train_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="without a distorted picture"):
        threshold_for_recall(scores(0.1, 0.2), [False, False], 0.97)
    result = call(capsys, "detector", "train", tmp_path / "none", "--out", tmp_path / "d.json")
    assert_one_line(result, "is no built dataset")
    assert not (tmp_path / "d.json").exists()
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="must be JSON"):
        load_distortion_model(tmp_path / "bad.json")


def test_a_dataset_that_is_built_anew_is_read_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two datasets under one folder name, one process: no cache may answer for the other."""
    target = tmp_path / "mean.py"
    target.write_text(
        "import numpy as np\nclass Mean:\n    concepts = ('mean',)\n    def score(self, images):\n"
        "        return np.array([[np.asarray(image).mean() / 255] for image in images])\n",
        encoding="utf-8",
    )
    path = recipe(tmp_path / "recipe")
    path.write_text(path.read_text(encoding="utf-8") + '\n[filter]\nunknown = "accept"\n', encoding="utf-8")
    counts = []
    for identities in (3, 6):
        candidates = drawn_candidates(tmp_path / f"drawn{identities}", identities)
        out, run = tmp_path / "dataset", tmp_path / f"run{identities}"
        assert call(capsys, "build", path, "--out", out, "--candidates", candidates).status == 0
        assert call(capsys, "audit", out, "--target", f"{target}:Mean", "--out", run).status == 0
        record = json.loads((run / "record.json").read_text(encoding="utf-8"))
        kept = sum(row["kept"] for row in verdicts_of(out).values())
        counts.append((record["data"]["n_pairs"], kept))
    assert counts[0][0] == counts[0][1] < counts[1][0] == counts[1][1]
