"""Every reader of outside data as a function of one file, with a small valid file to begin from.

``tests/test_readers.py`` tries a few dozen mutations of each, ``coverage_guided.py`` as many as time allows.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from dataset_builder.detect.choice import load_choice
from dataset_builder.detect.distortion import load_distortion_model
from dataset_builder.detect.vlm_answers import parse_reply
from dataset_builder.detect.vlm_examples import load_examples
from dataset_builder.generate.names import read_names
from dataset_builder.recipe import find_recipe, load_recipe
from dataset_builder.schema.taxonomy import load_taxonomy
from dataset_builder.store import FACE_SCHEMA, read_faces
from harness.cli import app
from harness.comparison_file import read_comparisons, write_comparisons
from harness.finished import load_run
from harness.kinds import Compared, Kept, Kind
from harness.pairs import load_pairs, load_scores
from harness.policy import load_policy
from harness.record import read_record
from harness.stats.comparisons import Comparisons
from targets.adapters import captured, captured_comparisons
from targets.adapters.onnx import OnnxCard
from targets.base.config import read_toml, validated
from targets.cache import ScoreCache
from targets.card import TargetCard
from targets.catalogue import TargetFile
from targets.drawn_pictures import drawn_faces
from targets.images import decode
from targets.openai_client import exchange_of, parsed
from targets.protocol import PictureId
from targets.yes_no import probability, said

GROUPS = ("WM", "BF")


@dataclass(frozen=True)
class Reader:
    """What reads a file, the name the file must have, and a valid content."""

    read: Callable[[Path], object]
    name: str
    content: bytes


def scores_csv() -> str:
    rows = [
        f"p{row},{group}{row % 3},{row},{group},glasses,smile,0.{row}5,0.{row % 4}"
        for row, group in enumerate(GROUPS * 4)
    ]
    head = "pair_id,identity,variation,demographic,attribute,concept,source_score,transformed_score"
    return "\n".join([head, *rows, ""])


def columns_of(text: str) -> dict[str, list[str]]:
    head, *rows = (line.split(",") for line in text.splitlines())
    return dict(zip(head, map(list, zip(*rows, strict=True)), strict=True))


def jsonl(text: str) -> bytes:
    columns = columns_of(text)
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return "\n".join(
        json.dumps({n: float(v) if n.endswith("_score") else v for n, v in row.items()}) for row in rows
    ).encode()


def parquet(table: pa.Table) -> bytes:
    buffer = BytesIO()
    pq.write_table(table, buffer, compression="none")
    return buffer.getvalue()


PAIRS = """pair_id,identity,variation,demographic,attribute,source,transformed
p0,i0,1,WM,glasses,a.png,b.png
"""
CAPTURED = "READY\na/one.png\nsmile,0.25\tage,31.5\t\n7\na/two.png\nsmile,0.5\tage,22\t\nDONE\n"
MANIFEST = "file_name,pixel_hash\none.png,00ff\ntwo.png,11ff\n"
COMPARED = "first,second,similarity\none.png,two.png,87.5\none.png,three.png,\n"
POLICY = """[policy]
alpha = 0.025
[[rule]]
metric = "difference"
attribute = "glasses"
concept = "smile"
group = ["WM", "BF"]
harmful = "both"
margin = 0.05
"""
TAXONOMY = """name = "two"
[groups.WM]
title = "white man"
ethnicity = "white"
sex = "male"
[attributes.glasses]
title = "glasses"
category = "eyewear"
[attributes.glasses.transition]
glasses = 1
"""
CARD = """name = "M"
[input]
size = [64, 64]
[output]
concepts = ["smile"]
"""
DETECTOR: dict[str, Any] = {
    "target": "sface", "target_settings": {}, "weights_digest": "ab", "reading_digest": "cd",
    "coefficients": [0.5, -0.25], "intercept": 0.1, "threshold": 0.0, "card": {},
}  # fmt: skip
CHOICE: dict[str, Any] = {
    "detectors": [{"method": "ground-truth"}], "chosen": {"glasses": {"WM": 0}},
    "agreement": [], "pooled": [], "unlabelled": [], "min_labels": 5,
}  # fmt: skip
CHAT = {
    "choices": [{
        "finish_reason": "stop",
        "message": {"content": '{"glasses": ["yes"], "smile": ["no"]}'},
        "logprobs": {"content": [{"token": "Yes", "logprob": -0.1, "top_logprobs": [
            {"token": "No", "logprob": -2.5}]}]},
    }],
    "usage": {"prompt_tokens": 10, "completion_tokens": 2},
}  # fmt: skip


def picture(kind: str, **options: Any) -> bytes:
    buffer = BytesIO()
    drawn_faces(1, 24)[0].save(buffer, kind, **options)
    return buffer.getvalue()


def answer(path: Path) -> None:
    """A reply of a server, as the target and as the builder's detector read it."""
    reply = exchange_of(parsed(path.read_text(encoding="utf-8", errors="replace"))).reply
    if reply is not None:
        parse_reply(reply, ("glasses", "smile"), 1)
        said(reply.content)
        probability(reply.logprobs, reply.content)


def log(path: Path, manifest: Path | None = None) -> None:
    settings = {} if manifest is None else {"manifest": manifest}
    target = captured.load(str(path), settings)
    target.lookup([PictureId("a/one.png", "00ff"), PictureId("three.png", None)])


def manifest(path: Path) -> None:
    whole = path.with_name("log.txt")
    whole.write_text(CAPTURED, encoding="utf-8")
    log(whole, path)


def compared(path: Path) -> None:
    target = captured_comparisons.load(str(path), {"scale": 100.0})
    one, two = PictureId("one.png", None), PictureId("two.png", None)
    target.lookup([one, two])
    target.table([one, two])


def damaged(run: Path, path: Path) -> Path:
    """The run's folder, beside it, with ``path`` in place of the file of that name."""
    copy = path.parent / "run"
    shutil.copytree(run, copy, dirs_exist_ok=True)
    shutil.copy(path, copy)
    return copy


def cached(path: Path) -> None:
    card = TargetCard(name="x", weights={"a": "b"}, concepts=("smile",))
    folder = ScoreCache.open(path.parent / "cache", card).directory
    shutil.copy(path, folder / path.name)
    ScoreCache.open(path.parent / "cache", card)


def shard() -> pa.Table:
    return pa.table({"pixel_hash": ["ab", "cd"], "reason": [None, "no_face"], "values": [[0.5], [None]]})


def faces() -> pa.Table:
    row = {
        "identity": "i", "variation": 1, "demographic": "WM", "attribute": "glasses", "source_sha256": "",
        "sha256": "ab", "picture": b"x", "labels": '{"glasses":"yes"}', "age": 30.0, "distorted": "no",
        "provenance": "{}", "fault": "",
    }  # fmt: skip
    return pa.Table.from_pylist([row], schema=FACE_SCHEMA)


def comparisons(folder: Path) -> bytes:
    codes = np.array([0, 1]), np.array([1, 2]), np.array([1, 1, 1]), np.array([1, 1, 0])
    some = Comparisons("between", np.array([0.75, -np.inf]), *codes)
    both = Compared(some, some)
    kind = Kind("glasses", "fmr", "same_group", both, both)
    write_comparisons(folder, Kept((("WM", "a"), ("WM", "b"), ("BF", "c")), (kind,)))
    return (folder / "comparisons.parquet").read_bytes()


def small_run(folder: Path) -> Path:
    """A run of finished scores."""
    (folder / "scores.csv").write_text(scores_csv(), encoding="utf-8")
    arguments = ["audit", "--scores", str(folder / "scores.csv"), "--out", str(folder / "whole")]
    app(arguments, standalone_mode=False)
    return folder / "whole"


def readers(run: Path) -> Mapping[str, Reader]:
    """All readers by name; ``run`` is one of ``small_run``."""
    text = scores_csv()
    table = pa.table(columns_of(text))
    recipe = find_recipe("demo").read_bytes()
    found = {
        "scores.csv": (lambda path: load_scores(str(path)), "s.csv", text.encode()),
        "scores.tsv": (lambda path: load_scores(str(path)), "s.tsv", text.replace(",", "\t").encode()),
        "scores.jsonl": (lambda path: load_scores(str(path)), "s.jsonl", jsonl(text)),
        "scores.parquet": (lambda path: load_scores(str(path)), "s.parquet", parquet(table)),
        "pairs.csv": (lambda path: load_pairs(str(path)), "p.csv", PAIRS.encode()),
        "record": (read_record, "record.json", (run / "record.json").read_bytes()),
        "run's record": (lambda path: load_run(damaged(run, path)), "record.json",
                         (run / "record.json").read_bytes()),
        "run's pairs": (lambda path: load_run(damaged(run, path)), "pairs.parquet",
                        (run / "pairs.parquet").read_bytes()),
        "run's comparisons": (lambda path: read_comparisons(path.parent), "comparisons.parquet",
                              comparisons(run)),
        "policy": (load_policy, "policy.toml", POLICY.encode()),
        "recipe": (load_recipe, "recipe.toml", recipe),
        "taxonomy": (lambda path: load_taxonomy(str(path)), "t.toml", TAXONOMY.encode()),
        "target file": (lambda path: validated(TargetFile, read_toml(path), "t"), "t.toml",
                        b'[target]\nspec = "sface"\n[target.settings]\nfaces = "largest"\n'),
        "ONNX card": (lambda path: validated(OnnxCard, read_toml(path), "card"), "m.toml", CARD.encode()),
        "captured log": (log, "log.txt", CAPTURED.encode()),
        "captured table": (log, "log.csv", b"image,smile,face_count\na/one.png,0.5,1\na/two.png,0.25,0\n"),
        "manifest": (manifest, "manifest.csv", MANIFEST.encode()),
        "captured comparisons": (compared, "c.csv", COMPARED.encode()),
        "names": (lambda path: read_names(path, GROUPS), "names.csv", b"name,group\nA B,WM\nC D,BF\n"),
        "examples": (lambda path: load_examples(path.parent), "labels.csv",
                     b"picture,attribute,label\na.png,glasses,yes\n"),
        "choice": (load_choice, "choice.json", json.dumps(CHOICE).encode()),
        "detector": (load_distortion_model, "d.json", json.dumps(DETECTOR).encode()),
        "cached scores": (cached, "0a.parquet", parquet(shard())),
        "kept faces": (read_faces, "f.parquet", parquet(faces())),
        "answer": (answer, "a.json", json.dumps(CHAT).encode()),
        **{
            f"{kind} picture": (lambda path: decode(path.read_bytes(), path.name), f"p.{kind}", content)
            for kind, content in {
                "PNG": picture("PNG"), "JPEG": picture("JPEG", exif=Image.Exif()), "GIF": picture("GIF"),
                "WEBP": picture("WEBP"), "TIFF": picture("TIFF"), "BMP": picture("BMP"),
            }.items()
        },
    }  # fmt: skip
    return {name: Reader(*parts) for name, parts in found.items()}
