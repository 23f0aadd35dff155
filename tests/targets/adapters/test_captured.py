"""Captured outputs: every format that logs come in, matched to the pictures or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from targets.base.errors import InputError
from targets.catalogue import load_target
from targets.protocol import PictureId, Scores
from tests.support import call, drawn_pairs, shipped


def look_up(path: Path, *names: str, **settings: object) -> Scores:
    loaded = load_target(f"captured:{path}", settings)
    return loaded.target.lookup([PictureId(name, None) for name in names])  # type: ignore[union-attr]


def log(folder: Path, text: str, name: str = "app.log") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_log_of_an_instrumented_app(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        "READY\n12\n/storage/emulated/0/DCIM/a.jpg\neyeglasses,0.25\tface,0.5\thair_long,1e-3\t\n"
        "/storage/emulated/0/DCIM/b.jpg\nface,0.75 \teyeglasses,0.125 \thair_long,0 \t\nDONE\n-1\n",
    )
    loaded = load_target(f"captured:{path}")
    assert loaded.card.concepts == ("eyeglasses", "face", "hair_long")
    scores = look_up(path, "images/b.jpg", "images/a.jpg", "images/c.jpg")
    assert scores.values[:2].tolist() == [[0.125, 0.75, 0.0], [0.25, 0.5, 0.001]]
    assert scores.reasons == (None, None, "no_answer")
    assert np.isnan(scores.values[2]).all()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("face,0.5\t\n", "line 1: scores without a picture's path"),
        ("a.jpg\nface,high\t\n", "line 2: an item must be concept,score, got 'face,high'"),
        ("a.jpg\nface\tx,1\t\n", "got 'face'"),
        ("a.jpg\nface,0,42\t\n", "got 'face,0,42'; write a decimal point: 0.42"),
        ("a.jpg\nface,0.5\t\na.jpg\nface,0.6\t\n", "two scores for 'face', 0.5 and 0.6"),
        ("READY\nDONE\n", "holds no scores"),
    ],
)
def test_a_log_that_can_not_be_trusted_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        look_up(log(tmp_path, text), "a.jpg")
    assert words in str(caught.value)


def test_long_and_wide_tables_give_the_same(tmp_path: Path) -> None:
    long = log(
        tmp_path, "image,concept,score\na.png,face,0.5\na.png,beard,0.25\nb.png,face,0.75\n", "long.csv"
    )
    wide = log(tmp_path, "file_name,face,beard\na.png,0.5,0.25\nb.png,0.75,\n", "wide.csv")
    lines = log(
        tmp_path,
        '{"path": "a.png", "face": 0.5, "beard": 0.25}\n{"path": "b.png", "face": 0.75}\n',
        "l.jsonl",
    )
    packed = tmp_path / "p.parquet"
    pq.write_table(
        pa.table({"image": ["a.png", "b.png"], "face": [0.5, 0.75], "beard": [0.25, None]}), packed
    )
    for path in (long, wide, lines, packed):
        scores = look_up(path, "a.png", "b.png")
        assert scores.values[0].tolist() == [0.5, 0.25]
        assert scores.values[1, 0] == 0.75
        assert np.isnan(scores.values[1, 1])
        assert scores.reasons == (None, None)


def test_faces_counted_per_picture(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        "image\tage\tboy_prob\tface_count\na.jpg\t31\t0.9\t1\nb.jpg\t\t\t0\nc.jpg\t20\t0.1\t2\n",
        "tiktok.tsv",
    )
    assert load_target(f"captured:{path}").card.concepts == ("age", "boy_prob")
    scores = look_up(path, "a.jpg", "b.jpg", "c.jpg")
    assert scores.reasons == (None, "no_face", "no_answer")
    assert scores.values[0].tolist() == [31.0, 0.9]


def test_base_names_are_matched_only_where_they_are_the_only_ones(tmp_path: Path) -> None:
    path = log(tmp_path, "/sd/DCIM/one/x.jpg\nface,0.1\t\n/sd/DCIM/two/x.jpg\nface,0.2\t\n")
    assert look_up(path, "two/x.jpg", "one/x.jpg").values[:, 0].tolist() == [0.2, 0.1]
    with pytest.raises(InputError, match=r"base name 'x\.jpg' is ambiguous.*facedelta capture export"):
        look_up(path, "three/x.jpg")
    single = log(tmp_path, "/sd/DCIM/x.jpg\nface,0.1\t\n", "single.log")
    assert look_up(single, "images/x.jpg").values[0, 0] == 0.1
    with pytest.raises(InputError, match="ambiguous"):
        look_up(single, "one/x.jpg", "two/x.jpg")
    windows = log(tmp_path, "C:\\DCIM\\x.jpg\nface,0.3\t\n", "windows.log")
    assert look_up(windows, "images/x.jpg").values[0, 0] == 0.3


def test_several_models_in_one_table_must_be_told_apart() -> None:
    path = shipped("corpus") / "tables" / "scores_two_models_one_cache.jsonl"
    with pytest.raises(InputError, match="holds 3 models: choose one with --set model=NAME"):
        look_up(path, "src_0.png")
    assert look_up(path, "src_0.png", model="model-b@r1").values.tolist() == [[0.9]]
    with pytest.raises(InputError, match="holds no model 'model-c'"):
        look_up(path, "src_0.png", model="model-c")


def test_json_values_that_are_no_numbers_are_no_scores() -> None:
    path = shipped("corpus") / "tables" / "scores_nan_infinity.jsonl"
    names = ["src_0.png", *(f"trn_{index}.png" for index in range(6))]
    values = look_up(path, *names).values[:, 0]
    assert values[0] == 0.5
    assert not np.isfinite(values[1:]).any()


def test_an_unreadable_manifest_match_is_an_error(tmp_path: Path) -> None:
    path = log(tmp_path, "/sd/x.jpg\nface,0.1\t\n")
    manifest = log(tmp_path, "file_name,pixel_hash,pair_ids\n0123456789abcdef.png,ff,p1\n", "manifest.csv")
    with pytest.raises(InputError, match="no entry has a file name of"):
        look_up(path, "x.jpg", manifest=str(manifest))


APP_LOG = (
    "READY\n3\n/sd/DCIM/a.png\nREADY\n17\nface,0.75 \tsunglass,0.25 \t\n/sd/DCIM/b.png\n"
    "/sd/DCIM/c.png\nface,0.5 \tsunglass,0.1\n/sd/DCIM/d.png\r\nface,0.125\tsunglass,1\t\r\nDONE\n"
)


def test_junk_lines_are_counted_and_a_path_without_scores_is_no_answer(tmp_path: Path) -> None:
    path = log(tmp_path, APP_LOG)
    target = load_target(f"captured:{path}").target
    assert getattr(target, "remarks", ()) == (
        f"{path.name}: 5 lines of noise, skipped",
        f"{path.name}: 1 line cut off, last score dropped",
        f"{path.name}: 1 path without scores, no answer",
    )
    scores = look_up(path, "a.png", "b.png", "c.png", "d.png")
    assert scores.reasons == (None, "no_answer", None, None)
    assert scores.values[[0, 3]].tolist() == [[0.75, 0.25], [0.125, 1.0]]
    # The last number of a line that was cut off may lack digits.
    assert scores.values[2, 0] == 0.5
    assert np.isnan(scores.values[2, 1])


def test_a_captured_picture_without_scores_may_show_no_face(tmp_path: Path) -> None:
    path = log(tmp_path, APP_LOG)
    loaded = load_target(f"captured:{path}", {"nan_means": "no_face"})
    ids = [PictureId(name, None) for name in ("a.png", "b.png", "elsewhere.png")]
    assert loaded.target.lookup(ids).reasons == (None, "no_face", "no_answer")  # type: ignore[union-attr]


def test_a_table_without_a_header(tmp_path: Path) -> None:
    text = "/sd/a.jpg\t1\t0\t31\t0.9\tx\n/sd/b.jpg\t0\t0\t0\t0\tx\n/sd/c.jpg\t2\t1\t20\t0.1\tx\n"
    path = log(tmp_path, text, "results.txt")
    with pytest.raises(InputError, match="a table of 6 columns without a header: name them in order"):
        load_target(f"captured:{path}")
    columns = ["image", "face_count", "-", "age", "boy_prob", "-"]
    loaded = load_target(f"captured:{path}", {"columns": columns})
    assert loaded.card.concepts == ("age", "boy_prob")
    scores = loaded.target.lookup([PictureId(name, None) for name in ("a.jpg", "b.jpg", "c.jpg")])  # type: ignore[union-attr]
    assert scores.reasons == (None, "no_face", "no_answer")
    assert scores.values[0].tolist() == [31.0, 0.9]
    with pytest.raises(InputError, match="every row must have the 2 cells"):
        load_target(f"captured:{path}", {"columns": ["image", "age"]})


def test_names_that_match_nothing_suggest_the_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path, "/sd/0123456789abcdef.png\nface,0.5\t\n")
    target = f"captured:{path}"
    done = call(capsys, "audit", drawn_pairs(tmp_path), "--target", target, "--out", tmp_path / "run")
    assert done.status == 2
    assert "names none of the 24 pictures of the pairs" in done.err
    assert "--set manifest=" in done.err


def test_scores_of_a_table_that_are_no_numbers_are_told(tmp_path: Path) -> None:
    path = log(tmp_path, 'image,face\na.jpg,"0,42"\nb.jpg,0.5\nc.jpg,\n', "t.csv")
    remarks = load_target(f"captured:{path}").target.remarks  # type: ignore[union-attr]
    assert remarks[-1] == (
        "t.csv: 1 score no finite number ('0,42' in t.csv row 2; write a decimal point: 0.42), no answer"
    )


def test_a_path_in_another_unicode_form_is_the_same_path(tmp_path: Path) -> None:
    path = log(tmp_path, "image,face\nx/caf\u00e9.jpg,0.25\ny/cafe\u0301.jpg,0.5\n", "t.csv")
    assert look_up(path, "x/cafe\u0301.jpg", "y/caf\u00e9.jpg").values.ravel().tolist() == [0.25, 0.5]
