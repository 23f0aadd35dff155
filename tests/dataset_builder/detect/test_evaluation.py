"""Detectors beside the truth and beside people: confusion, effect on deltas, choice, the CLIP rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dataset_builder.detect.clip import decided
from dataset_builder.detect.settings import ClipConcepts
from tests.coded import coded_face, labels, write_candidates, write_recipe
from tests.support import call, write_csv

TARGET = """
import numpy as np
from tests.coded import PRESENCE, read_image

class Blocks:
    concepts = (*PRESENCE, "number")

    def __init__(self, blind=0):
        self.blind = blind

    def score(self, images):
        rows = []
        for image in images:
            number, said = read_image(image)[0]
            # A detector that misses everything in some faces.
            hidden = self.blind and number % self.blind == 0
            values = [0.0 if hidden else {"Yes": 1.0, "No": 0.0, "Unknown": 0.5}[said[n]] for n in PRESENCE]
            rows.append([*values, float(number)])
        return np.array(rows)
"""
CLIP = """
method = "clip"
target = "{target}:Blocks"
settings = {{ blind = {blind} }}
{concepts}
"""
IDENTITIES = 16


def detector(folder: Path, name: str, blind: int = 0, concepts: str = "") -> Path:
    from tests.coded import PRESENCE

    target = folder / "blocks.py"
    target.write_text(TARGET, encoding="utf-8")
    rules = concepts or "\n".join(
        f"[concepts.{attribute}]\npositive = ['{attribute}']\nthreshold = 0.5" for attribute in PRESENCE
    )
    path = folder / f"{name}.toml"
    path.write_text(CLIP.format(target=target, blind=blind, concepts=rules), encoding="utf-8")
    return path


@pytest.fixture
def dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Two groups; every fourth edit of BF fails; faces are numbered so that "blind = 4" hides BF's edits."""
    sources, edits = [], []
    for identity in range(IDENTITIES):
        group = ("WM", "BF")[identity % 2]
        number = 8 * identity
        sources.append(coded_face(number + 1, group, f"{group}-{identity}", labels("smile")))
        for place, attribute in enumerate(("glasses", "scarf")):
            fails = group == "BF" and identity % 8 == 1
            after = ("smile",) if fails else ("smile", attribute)
            own = number + (4 if group == "BF" and attribute == "glasses" else 2 + place * 3)
            edits.append((identity, attribute, coded_face(own, group, f"{group}-{identity}", labels(*after))))
    write_candidates(tmp_path, sources, iter(edits))
    out = tmp_path / "dataset"
    recipe = write_recipe(tmp_path, ["glasses", "scarf"])
    result = call(capsys, "build", recipe, "--out", out, "--candidates", tmp_path, "--no-progress")
    assert result.status == 0, result.err
    return out


def verdict(dataset: Path) -> list[tuple[str, bool]]:
    return [(row["pair_id"], row["kept"]) for row in pq.read_table(dataset / "verdicts").to_pylist()]


def test_ground_truth_confuses_nothing(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "detector", "confusion", dataset)
    assert result.status == 0, result.err
    line = next(line for line in result.out.splitlines() if line.startswith("glasses BF"))
    assert "there: yes 6, no 0, unknown 0; absent: yes 0, no 18, unknown 0" in line
    assert "sensitivity 1.000 [0.541, 1.000]" in line
    assert "glasses BF: 6 / 6 / 6" in result.out


def test_a_blind_detector_is_found_out_with_what_it_does_to_deltas(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blind = detector(tmp_path, "blind", blind=4)
    target = f"{tmp_path / 'blocks.py'}:Blocks"
    result = call(
        capsys, "detector", "confusion", dataset, "--detector", blind, "--target", target, "--no-progress"
    )
    assert result.status == 0, result.err
    lines = result.out.splitlines()
    cell = next(line for line in lines if line.startswith("glasses BF: there"))
    assert "there: yes 0, no 6, unknown 0" in cell
    assert "glasses WM: there: yes 8, no 0" in result.out
    assert "glasses BF: 6 / 0 / 0" in lines
    assert "glasses WM: 8 / 8 / 8" in lines
    assert (
        next(line for line in lines if line.startswith("glasses BF number"))
        .split(": ")[1]
        .endswith("-> no pair" + "  depends on the detector")
        or "-> no pair" in result.out
    )
    again = call(capsys, "detector", "confusion", dataset, "--detector", detector(tmp_path, "sharp"))
    assert "glasses BF: 6 / 6 / 6" in again.out


def test_the_clip_method_in_a_recipe_keeps_what_the_truth_keeps(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = detector(tmp_path, "sharp").read_text(encoding="utf-8")
    table = "\n[detect.attributes]\n" + settings.replace("[concepts.", "[detect.attributes.concepts.")
    recipe = write_recipe(tmp_path, ["glasses", "scarf"], table)
    out = tmp_path / "clip"
    result = call(capsys, "build", recipe, "--out", out, "--candidates", tmp_path, "--no-progress")
    assert result.status == 0, result.err
    assert verdict(out) == verdict(dataset)
    build = json.loads((out / "build.json").read_text(encoding="utf-8"))
    assert build["detectors"]["attributes"].endswith("blocks.py:Blocks")
    assert "concept scores of" in (out / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("concepts", "words"),
    [
        ("[concepts.glasses]\npositive = ['glases']", "has no concept 'glases' (did you mean 'glasses'?)"),
        ("[concepts.glases]\npositive = ['glasses']", "names 'glases', which is no attribute"),
        ("[concepts.glasses]\npositive = []", "concepts.glasses.positive"),
        ("[concepts.glasses]\npositive = ['glasses']\ntreshold = 1", "unknown key"),
    ],
)
def test_concepts_that_do_not_exist(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], concepts: str, words: str
) -> None:
    bad = detector(tmp_path, "bad", concepts=concepts)
    result = call(capsys, "detector", "confusion", dataset, "--detector", bad)
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert words in result.err


def test_the_rule_over_scores() -> None:
    rule = ClipConcepts(positive=("a",), threshold=0.2, margin=0.05)
    assert [decided(value, rule) for value in (0.3, 0.24, 0.16, 0.1, float("nan"))] == [
        "yes",
        "unknown",
        "unknown",
        "no",
        "unknown",
    ]
    assert decided(0.2, ClipConcepts(positive=("a",), threshold=0.2)) == "yes"


def human(dataset: Path, path: Path) -> Path:
    """People say what is there: of all transformed faces for glasses, of one for scarf."""
    rows: list[tuple[Any, ...]] = []
    for row in pq.read_table(dataset / "candidates").to_pylist():
        rows.append((row["sha256"], "glasses", row["labels"]["glasses"]))
    rows.append((rows[0][0], "scarf", "no"))
    return write_csv(path, ("sha256", "attribute", "label"), rows)


def test_the_best_detector_a_cell_is_chosen_and_used(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blind, sharp = detector(tmp_path, "blind", blind=4), detector(tmp_path, "sharp")
    out = tmp_path / "choice.json"
    arguments = ("--labels", human(dataset, tmp_path / "human.csv"), "--out", out, "--no-progress")
    found = call(capsys, "detector", "choose", dataset, "--detector", blind, "--detector", sharp, *arguments)
    assert found.status == 0, found.err
    data = json.loads(out.read_text(encoding="utf-8"))
    # Where both are right the cheaper one stays; where the first is blind the second takes over.
    assert (data["chosen"]["glasses"]["WM"], data["chosen"]["glasses"]["BF"]) == (0, 1)
    assert "scarf WM" in data["pooled"]
    assert "smile" in data["unlabelled"]
    assert data["chosen"]["smile"] == dict.fromkeys(data["chosen"]["smile"], 0)
    assert "glasses BF, blind.toml: 10 of 16 as people say [0.354, 0.848], unknown 0" in found.out
    assert "glasses BF, sharp.toml: 16 of 16" in found.out
    recipe = write_recipe(
        tmp_path, ["glasses", "scarf"], '\n[detect.attributes]\nmethod = "choice"\nfile = "choice.json"\n'
    )
    built = tmp_path / "chosen"
    result = call(capsys, "build", recipe, "--out", built, "--candidates", tmp_path, "--no-progress")
    assert result.status == 0, result.err
    kept = dict(verdict(built))
    truth = dict(verdict(dataset))
    glasses = [name for name in truth if name.endswith("glasses") and name.startswith("WM")]
    assert [kept[name] for name in glasses] == [truth[name] for name in glasses]


def test_labels_of_other_faces_choose_nothing(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_csv(tmp_path / "h.csv", ("sha256", "attribute", "label"), [("f" * 64, "glasses", "yes")])
    sharp = detector(tmp_path, "sharp")
    out = tmp_path / "choice.json"
    result = call(capsys, "detector", "choose", dataset, "--labels", table, "--detector", sharp, "--out", out)
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "labels no face of" in result.err
