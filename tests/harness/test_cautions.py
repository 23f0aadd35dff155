"""What a dataset's pictures can't show stands in every audit of it, whatever the target and the path."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from dataset_builder.generate.photos import Photos
from dataset_builder.schema.faces import is_rendered
from dataset_builder.schema.taxonomy import load_taxonomy
from tests.support import ROOT, call, drawn_pairs

CAUTION = "say nothing about how a model treats people"
TARGET = """
class Grey:
    concepts = ("grey",)

    def score(self, images):
        return [[image.convert("L").getpixel((60, 60)) / 255] for image in images]
"""


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built dataset of two rendered identities, and a target beside it."""
    folder = tmp_path_factory.mktemp("heads")
    (folder / "grey.py").write_text(TARGET, encoding="utf-8")
    return folder


def test_every_audit_of_rendered_heads_says_so(heads: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = ROOT / "dataset_builder" / "demo"
    dataset, run = heads / "dataset", heads / "run"
    build = ("build", "demo", "--candidates", shipped, "--out", dataset, "--limit", 2, "--no-progress")
    assert call(capsys, *build).status == 0
    audit = ("audit", dataset, "--target", f"{heads / 'grey.py'}:Grey", "--out", run, "--no-progress")
    result = call(capsys, *audit)
    assert result.status == 0
    assert f"{CAUTION}\n" in result.out.split("warning: ")[-1]
    record = json.loads((run / "record.json").read_text(encoding="utf-8"))
    assert len(record["data"]["cautions"]) == 1
    assert call(capsys, "report", run).status == 0
    for file in ("report.html", "tables/deltas.md", "tables/deltas.tex"):
        assert CAUTION in " ".join((run / file).read_text(encoding="utf-8").split())
    for style in ("terminal", "markdown", "latex", "html", "model-card"):
        assert CAUTION in " ".join(call(capsys, "table", run, "--format", style).out.split())
    assert CAUTION in call(capsys, "table", run, "--differences").out
    # Pictures that are made from them are no better.
    photos = Photos(dataset, load_taxonomy("paper").groups)
    (face, *_) = photos.make(photos.requests()[:1])
    assert is_rendered(json.dumps(face.provenance))


@pytest.mark.parametrize(("share", "words"), [(0, None), (2, "2 of 12 pairs show"), (12, "the faces are")])
def test_a_table_says_what_its_column_provenance_says(
    heads: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], share: int, words: str | None
) -> None:
    table = drawn_pairs(tmp_path)
    with table.open(encoding="utf-8", newline="") as stream:
        head, *rows = csv.reader(stream)
    made = ['{"source": {"generator": "rendered-heads/2"}}'] * share + ['{"generator": "photos"}'] * len(rows)
    with table.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([[*head, "provenance"], *map(lambda r, p: [*r, p], rows, made)])
    run = tmp_path / "run"
    assert call(capsys, "audit", table, "--target", f"{heads / 'grey.py'}:Grey", "--out", run).status == 0
    cautions = json.loads((run / "record.json").read_text(encoding="utf-8"))["data"]["cautions"]
    assert [text.split(" rendered")[0] for text in cautions] == ([words] if words else [])
