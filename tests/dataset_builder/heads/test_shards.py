"""What is written is read back, byte for byte."""

from pathlib import Path

from dataset_builder.generate.shards import (
    Candidate,
    read_candidates,
    read_faces,
    sha256,
    write_candidates,
    write_faces,
)
from dataset_builder.schema.faces import Face

FACE = Face("AM-0001", 1, "AM", b"\x00\xffpicture", {"glasses": "no"}, 31.5, False, {"seed": 1, "x": [0.25]})


def test_faces_and_candidates_survive_a_file(tmp_path: Path) -> None:
    write_faces(tmp_path / "s.parquet", [FACE])
    assert list(read_faces(tmp_path / "s.parquet")) == [FACE]
    candidate = Candidate(FACE, "glasses", sha256(b"source"))
    write_candidates(tmp_path / "c.parquet", [candidate])
    assert list(read_candidates(tmp_path / "c.parquet")) == [candidate]


def test_the_same_faces_give_the_same_file(tmp_path: Path) -> None:
    for name in "ab":
        write_faces(tmp_path / name, [FACE])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_sha256_of_the_empty_picture() -> None:
    assert sha256(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
