"""Whatever a file holds, its reader takes it or says in one line what is wrong; nothing else is raised."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from targets.base.errors import FacedeltaError
from targets.base.text import message_line
from tests.fuzz.readers import Reader, readers, small_run

# What faults are made of: brackets, quotation marks, numbers and texts at the ends of what can be written.
TOKENS = [
    b"", b"\0", b'"', b"'", b",", b"\t", b"\n", b"\r", b";", b"[", b"]", b"{", b"}", b":", b"-", b"e", b"\\",
    b"\xff", b"\xef\xbb\xbf", b"\xed\xb2\x80", b"\\ud800", b"\x1b[31m", "\u202e\u2028".encode(),
    b"null", b"true", b"NaN", b"-Infinity", b"1e400", b"-1", b"0", b"1e308", b"1e-320", b"9" * 25, b"1" * 400,
    b"1" * 5000, b'""', b"[[]]", b'{"a":1}', b"[" * 3000, b"2020-01-01", b"0x10", b"a" * 300,
]  # fmt: skip
EDITS = st.lists(
    st.tuples(st.integers(0, 2**20), st.integers(0, 6), st.sampled_from(TOKENS) | st.binary(max_size=4)),
    min_size=1,
    max_size=5,
)


def mutated(content: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """The content with some bytes at some places replaced."""
    for place, taken, put in edits:
        start = place % (len(content) + 1)
        content = content[:start] + put + content[start + taken :]
    return content


def taken(reader: Reader, folder: Path, content: bytes) -> str:
    """What the reader says of a content; empty if it takes it."""
    path = folder / reader.name
    path.write_bytes(content)
    try:
        with warnings.catch_warnings():
            # Pillow warns of what it leaves out of a damaged picture.
            warnings.simplefilter("ignore", UserWarning)
            reader.read(path)
    except FacedeltaError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("run"))


NAMES = (
    "scores.csv", "scores.tsv", "scores.jsonl", "scores.parquet", "pairs.csv", "record", "run's record",
    "run's pairs", "run's comparisons", "policy", "recipe", "taxonomy", "target file", "ONNX card",
    "captured log", "captured table", "manifest", "captured comparisons", "names", "examples", "choice",
    "detector",
    "cached scores", "kept faces", "answer", "PNG picture", "JPEG picture", "GIF picture", "WEBP picture",
    "TIFF picture", "BMP picture",
)  # fmt: skip


def test_every_reader_is_tried(run: Path) -> None:
    assert set(readers(run)) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_raises_nothing_but_our_errors(
    name: str, run: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reader = readers(run)[name]
    assert taken(reader, tmp_path_factory.mktemp("valid"), reader.content) == ""
    folder = tmp_path_factory.mktemp("mutated")

    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(EDITS | st.integers(0, 2**20))
    def try_one(edits: list[tuple[int, int, bytes]] | int) -> None:
        whole = reader.content
        cut = whole[: edits % (len(whole) + 1)] if isinstance(edits, int) else mutated(whole, edits)
        assert len(message_line(taken(reader, folder, cut)).splitlines()) <= 1

    try_one()
