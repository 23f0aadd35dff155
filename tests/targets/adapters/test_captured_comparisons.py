"""captured-comparisons: match and identity from similarities that a service gave."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from targets.base.errors import InputError
from targets.catalogue import load_target
from targets.conformance import run_checks
from targets.protocol import PictureId
from tests.targets.tools import facedelta, pairs_folder, record_of


def write_table(path: Path, rows: list[tuple[str, str, object]]) -> Path:
    lines = ["first,second,similarity", *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def all_comparisons(identities: int = 3) -> list[tuple[str, str, object]]:
    """As a service would have given them: the same person 90, with glasses 70, less for women."""
    rows: list[tuple[str, str, object]] = []
    for group, loss in (("WM", 0), ("BF", 10)):
        for identity in range(identities):
            one, two = (f"images/{group}{identity}-{variation}" for variation in (1, 2))
            rows += [
                (f"{one}-source.png", f"{one}-glasses.png", 80 - loss),
                (f"{two}-glasses.png", f"{two}-source.png", 80 - loss),
                (f"{one}-source.png", f"{two}-source.png", 90),
                (f"{one}-glasses.png", f"{two}-source.png", 70 - loss),
                (f"{two}-glasses.png", f"{one}-source.png", 70 - loss),
            ]
    return rows


def audited(tmp_path: Path, table: Path, *more: str) -> dict[tuple[str, str], dict]:
    pairs = pairs_folder(tmp_path / "data")
    options = ("--set", "scale=100", "--max-failures", "1", *more)
    target = f"captured-comparisons:{table}"
    done = facedelta("audit", pairs, "--target", target, "--out", "run", *options, cwd=tmp_path)
    assert done.status == 0, done.err
    record = record_of(tmp_path / "run")
    return {(c["concept"], c["group"]): c for c in record["cells"] if c["by"] == "demographic"}


def test_conforms(tmp_path: Path) -> None:
    table = write_table(tmp_path / "pairs.csv", all_comparisons())
    results = run_checks(load_target(f"captured-comparisons:{table}", {"scale": 100}))
    assert [result.fault for result in results] == [None] * len(results)


def test_similarities_become_match_and_identity(tmp_path: Path) -> None:
    cells = audited(tmp_path, write_table(tmp_path / "captured.csv", all_comparisons()))
    assert cells["identity", "WM"]["mean_source"] == 1
    assert cells["identity", "WM"]["mean_transformed"] == pytest.approx(0.8)
    assert cells["identity", "BF"]["delta"] == pytest.approx(-0.3)
    assert cells["match", "WM"]["mean_source"] == pytest.approx(0.9)
    assert cells["match", "BF"]["delta"] == pytest.approx(-0.3)
    assert cells["match", "WM"]["delta"] == pytest.approx(-0.2)


def test_a_comparison_without_a_face_is_counted_and_not_zero(tmp_path: Path) -> None:
    rows = all_comparisons()
    rows[0] = (rows[0][0], rows[0][1], "")
    cells = audited(tmp_path, write_table(tmp_path / "captured.csv", rows))
    assert cells["identity", "WM"]["n_pairs"] == 5
    assert cells["identity", "WM"]["excluded"] == {"no_answer": 1}
    assert cells["identity", "WM"]["mean_transformed"] == pytest.approx(0.8)
    assert cells["match", "WM"]["n_pairs"] == 6


def test_without_a_comparison_of_two_sources_there_is_no_reference(tmp_path: Path) -> None:
    rows = [
        row for row in all_comparisons() if row[:2] != ("images/WM0-1-source.png", "images/WM0-2-source.png")
    ]
    cells = audited(tmp_path, write_table(tmp_path / "captured.csv", rows))
    assert cells["match", "WM"]["excluded"] == {"no_reference": 2}


@pytest.mark.slow
def test_an_export_is_matched_by_its_manifest(tmp_path: Path) -> None:
    pairs = pairs_folder(tmp_path / "data")
    assert facedelta("capture", "export", pairs, "--out", "export", cwd=tmp_path).status == 0
    run = facedelta(
        *("audit", pairs, "--target", f"captured-comparisons:{tmp_path / 'none.csv'}", "--out", "x"),
        *("--set", "scale=1"),
        cwd=tmp_path,
    )
    assert (run.status, "no such file" in run.err) == (2, True)
    import csv

    with (tmp_path / "export/manifest.csv").open() as stream:
        by_pair: dict[str, list[str]] = {}
        for row in csv.DictReader(stream):
            for pair in row["pair_ids"].split():
                by_pair.setdefault(pair, []).append(row["file_name"])
    table = write_table(tmp_path / "captured.csv", [(*names, 0.6) for names in by_pair.values()])
    given = ("--set", "scale=1", "--set", "manifest=export/manifest.csv", "--max-failures", "1")
    done = facedelta(
        "audit", pairs, "--target", f"captured-comparisons:{table}", "--out", "run", *given, cwd=tmp_path
    )
    assert done.status == 0, done.err
    columns = pq.read_table(tmp_path / "run/pairs.parquet").column("transformed:identity")
    assert np.allclose(columns.to_numpy(), 0.6)


@pytest.mark.parametrize(
    ("rows", "settings", "words"),
    [
        ([("a.png", "b.png", 50)], {}, "key 'scale' is missing"),
        ([("a.png", "b.png", 50)], {"scale": 1}, "must be at most scale=1, got 50"),
        ([("a.png", "b.png", "high")], {"scale": 100}, "must be a number or empty"),
        ([("a.png", "b.png", 50), ("b.png", "a.png", 51)], {"scale": 100}, "were compared twice; keep one"),
    ],
)
def test_bad_tables(tmp_path: Path, rows: list, settings: dict, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_target(f"captured-comparisons:{write_table(tmp_path / 't.csv', rows)}", settings)
    assert words in str(caught.value)


def test_the_order_of_the_two_does_not_matter(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv", [("a.png", "b.png", 50)])
    target = load_target(f"captured-comparisons:{table}", {"scale": 100}).target
    a, b, c = (PictureId(f"x/{name}.png", None) for name in "abc")
    assert target.compare([a, b, a], [b, a, c])[:2].tolist() == [0.5, 0.5]
    assert np.isnan(target.compare([a], [c])).all()
    assert target.lookup([a, c]).reasons == (None, "no_answer")
