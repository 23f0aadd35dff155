"""Which concept a row of a many-concept target is about: its own or none, never another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dataset_builder.schema.taxonomy import load_taxonomy
from targets.prompts import FACE_PHRASES
from tests.support import call, write_csv

COLUMNS = ("pair_id", "identity", "demographic", "attribute", "concept", "source_score", "transformed_score")
OTHERS = [f"thing {number}" for number in range(13)]


def audited(tmp_path: Path, capsys: pytest.CaptureFixture[str], attribute: str, *concepts: str) -> Path:
    names = [*OTHERS, *concepts]
    rows = [
        (i, i, "WM", attribute, name, 0.1, 0.1 + (k + 1) / 50 + i / 1000)
        for i in range(4)
        for k, name in enumerate(names)
    ]
    run = tmp_path / "run"
    result = call(capsys, "audit", "--scores", write_csv(tmp_path / "s.csv", COLUMNS, rows), "--out", run)
    assert result.status == 0, result.err
    (run / "shown.txt").write_text(result.out, encoding="utf-8")
    return run


def rows_of(run: Path) -> list[list[str]]:
    rows: list[list[str]] = json.loads((run / "record.json").read_text(encoding="utf-8"))["rows"]
    return rows


@pytest.mark.parametrize(
    ("attribute", "concepts", "expected"),
    [
        ("sunglasses", ["sunglasses", "dark glasses"], "sunglasses"),
        ("sunglasses", ["sunglass", "sunglasses"], "sunglass"),  # as the paper's taxonomy says
        ("sunglasses", ["sunglasses, dark glasses, shades"], "sunglasses, dark glasses, shades"),
        ("head_band", ["headband"], "headband"),
        ("head_band", ["Head Bands"], "Head Bands"),
        ("shoulder_hair", ["shoulder length hair"], "shoulder length hair"),  # the title's words
        ("face mask", ["facemask", "oxygen mask"], "facemask"),
        ("berries", ["berry"], "berry"),
        ("Scarf", ["scarf"], "scarf"),
        # Never the wrong one.
        ("glasses", ["glass", "sunglasses", "beer glass"], None),
        ("facemask", ["mask", "ski mask", "oxygen mask"], None),
        ("old", ["bold", "gold", "older"], None),
        ("hat", ["hats", "Hat!"], "Hat!"),
        ("hat", ["hats", "HATS"], None),  # two that fit equally well
        ("帽子", ["帽子", "マスク"], "帽子"),
        ("!", ["?"], None),
    ],
)
def test_an_attribute_has_the_concept_that_names_it(
    attribute: str,
    concepts: list[str],
    expected: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = audited(tmp_path, capsys, attribute, *concepts)
    assert rows_of(run) == ([[attribute, expected]] if expected else [])


def test_without_a_concept_the_strongest_cells_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """thing 12 changes most, by construction."""
    run = audited(tmp_path, capsys, "monocle")
    shown = (run / "shown.txt").read_text(encoding="utf-8")
    assert "no row for monocle" in shown
    assert "--concept NAME" in shown
    assert "--discover --margin M" in shown
    assert call(capsys, "report", run).status == 0
    texts = [
        shown,
        (run / "tables" / "deltas.md").read_text(encoding="utf-8"),
        (run / "report.html").read_text(encoding="utf-8"),
        call(capsys, "table", run).out,
    ]
    for text in texts:
        assert all(name in text for name in ("thing 12", "thing 11", "thing 10"))
        assert "thing 9" not in text


def test_the_papers_words_are_those_of_the_target_by_itself() -> None:
    taxonomy = load_taxonomy("paper")
    assert {name: item.clip for name, item in taxonomy.attributes.items()} == dict(FACE_PHRASES)


def test_words_for_a_target_leave_the_taxonomy_the_same(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = 'name = "paper"\nextends = "paper"\n'
    path.write_text(text, encoding="utf-8")
    paper = load_taxonomy("paper")
    assert load_taxonomy(str(path)).digest == paper.digest
    glasses = '[attributes.glasses]\ntitle = "Glasses"\ncategory = "accessories"\nconcept = "eyeglasses"\n'
    sega = '[[attributes.glasses.sega]]\nprompt = "glasses, wearing glasses"\nguidance_scale = 9.0\n'
    path.write_text(
        f'{text}{glasses}clip = ["spectacles"]\ntransition = {{}}\n{sega}threshold = 0.99\n', encoding="utf-8"
    )
    mine = load_taxonomy(str(path))
    assert mine.attributes["glasses"].clip == ("spectacles",)
    assert mine.digest == paper.digest
