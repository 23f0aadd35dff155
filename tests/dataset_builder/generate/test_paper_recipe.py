"""The shipped recipe "paper", copied and built as README says, to a published dataset and its table.

The models are small ones with random weights, and people are few. What the pictures "show" is decided when
they are made: a server that speaks OpenAI's protocol and an age model know them by their pixels.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dataset_builder.schema.taxonomy import Transition, load_taxonomy
from dataset_builder.store import read_faces
from targets.images import decode
from tests.coded import tile_digest
from tests.dataset_builder.tiny import tiny_pipeline
from tests.openai_server import running
from tests.support import Result, call
from tests.targets.adapters.test_open_clip import write_model

pytest.importorskip("openai", reason="the extra 'vlm' is not installed")

PAPER = load_taxonomy("paper")
MODELS = """
import hashlib
import json
import numpy as np
from pathlib import Path

class Embedder:
    card = {"name": "colour", "weights": {"none": "00"}}

    def embed(self, images):
        return np.stack([np.asarray(image, float).mean(axis=(0, 1)) - 100 for image in images])

class Age:
    concepts = ("age",)

    def score(self, images):
        known = json.loads((Path(__file__).parent / "ages.json").read_text())
        return np.array([[known[hashlib.sha256(image.tobytes()).hexdigest()]] for image in images])
"""
# Setting -> value, for a checkpoint, a CPU and a patience that are small.
SMALL = {"checkpoint": '"checkpoint"', "compiled": "false", "steps": "22", "height": "16", "width": "16"}
CANDIDATES = {
    **SMALL,
    "identities": "1",
    "tries": "2",
    "kept": "1",
    "embedder": '"models.py:Embedder"',
    "one_face": "false",
    "age": '"models.py:Age"',
    "poll_seconds": "0.05",
}
TRAINING = {
    **SMALL,
    "identities": "3",
    "tries": "1",
    "kept": "1",
    "clean": "2",
    "one_face": "false",
    "pushed": "40.0",
    "attributes": '["old"]',
}
# Settings that the recipes leave to their defaults -> the line that they are written below.
NEW = {
    "steps": 'method = "diffusion"',
    "height": 'method = "diffusion"',
    "width": 'method = "diffusion"',
    "one_face": 'method = "diffusion"',
    "poll_seconds": 'mode = "batch"',
    "base_url": 'method = "vlm"',
}


def change(path: Path, values: dict[str, str]) -> None:
    """Give settings of a recipe other values."""
    text = path.read_text(encoding="utf-8")
    for name, value in values.items():
        if name in NEW:
            assert NEW[name] in text
            text = text.replace(NEW[name], f"{NEW[name]}\n{name} = {value}")
        else:
            text, count = re.subn(rf"(?m)^{name} = (\[[^\]]*\]|.*)$", f"{name} = {value}", text)
            assert count == 1, name
    path.write_text(text, encoding="utf-8")


def truth_of(faces: Path) -> tuple[dict[str, dict[str, str]], dict[str, float]]:
    """What is said of each picture: labels by the digest of a tile, ages by the hash of the pixels."""
    labels, ages = {}, {}
    shards = [*(faces / ".build").glob("generate/*.parquet"), *(faces / ".build").glob("edit/*.parquet")]
    for face in (face for shard in shards for face in read_faces(shard) if not face.fault):
        digest = tile_digest(decode(face.read(), "face").image)
        row = PAPER.row(face.attribute) if face.attribute else {}
        present = {face.attribute, *(name for name, rule in row.items() if rule is Transition.REQUIRED)}
        labels[digest] = {name: "Yes" if name in present else "No" for name in PAPER.attributes}
        ages[digest] = {"old": 60.0, "young": 10.0}.get(face.attribute, 30.0)
    return labels, ages


def people(dataset: Path, path: Path) -> None:
    """People's labels: of each category one face is distorted, the one that the detector is surest about."""
    categories = [attribute.category for attribute in PAPER.attributes.values()]
    worst: dict[str, tuple[float, str]] = {}
    labels = {}
    for row in pq.read_table(dataset / "verdicts").to_pylist():
        score, category = (row["distortion"], row["transformed_sha256"]), categories[row["attribute"]]
        worst[category] = max(worst.get(category, score), score)
        labels[row["transformed_sha256"]] = "no"
    labels |= dict.fromkeys((sha256 for _, sha256 in worst.values()), "yes")
    lines = [f"{sha256},{label}\n" for sha256, label in labels.items()]
    path.write_text("sha256,distorted\n" + "".join(lines), encoding="utf-8")


@pytest.mark.filterwarnings("ignore:no GPU was found", "ignore:a prompt may have 77 tokens")
def test_the_recipe_of_the_paper(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")

    def done(*arguments: object) -> Result:
        result = call(capsys, *arguments)
        assert result.status == 0, result.err
        return result

    # The documented steps, with the models' names changed in the copy.
    done("recipe", "copy", "paper", "my-paper")
    tiny_pipeline().save_pretrained("my-paper/checkpoint")
    write_model(Path("my-paper/clip"))
    Path("my-paper/models.py").write_text(MODELS, encoding="utf-8")
    change(Path("my-paper/paper_distortion.toml"), TRAINING)
    change(Path("my-paper/paper.toml"), CANDIDATES)
    sega = 'method = "sega"'
    text = Path("my-paper/paper.toml").read_text(encoding="utf-8")
    Path("my-paper/paper.toml").write_text(text.replace(sega, f"{sega}\none_face = false"), encoding="utf-8")

    done("build", "my-paper/paper_distortion.toml", "--out", "training-faces")
    sources = pq.read_table("training-faces/sources").to_pylist()
    candidates = pq.read_table("training-faces/candidates").to_pylist()
    assert Counter(row["distorted"] for row in sources) == {"unknown": 24, "no": 48}
    assert Counter(row["distorted"] for row in candidates) == {"yes": 24}
    clean = {row["sha256"] for row in sources if row["distorted"] == "no"}
    assert len(clean) == 48
    assert not clean & {row["source_sha256"] for row in candidates}
    target = ("--target", "open-clip:local-dir:my-paper/clip")
    out = ("--out", "my-paper/paper_distortion.json")
    done("detector", "train", "training-faces", *target, *out)
    counts = json.loads(Path("my-paper/paper_distortion.json").read_text())["card"]["trained_on"]
    assert sum(part["clean"] for part in counts.values()) == 48

    build = ("build", "my-paper/paper.toml", "--out", "faces", "--limit", 6)
    done(*build, "--share", "1/1")
    said, ages = truth_of(Path("faces"))
    Path("truth.json").write_text(json.dumps(said), encoding="utf-8")
    Path("my-paper/ages.json").write_text(json.dumps(ages), encoding="utf-8")
    with running(truth=str(tmp_path / "truth.json")) as server:
        change(Path("my-paper/paper.toml"), {"base_url": f'"{server.base_url}"'})
        assert "transformed faces 114" in done(*build, "--dry-run").out
        done(*build)
        # Random weights tell distorted faces from clean ones poorly; people look at all of them.
        people(Path("faces"), Path("people.csv"))
        labels = ("--labels", "people.csv")
        done("detector", "tune", "my-paper/paper_distortion.json", "faces", *labels, *out)
        done(*build)
        assert server.stats()["batches"] >= 1
    verdicts = pq.read_table("faces/verdicts").to_pylist()
    assert len(verdicts) == 6 * 19
    # One face a category is distorted by people's word, and scores between it and the next are found, too.
    reasons = Counter(row["reason"] for row in verdicts)
    assert set(reasons) == {"", "distorted"}
    assert reasons["distorted"] <= 8

    write_model(Path("audited"), seed=1)
    done("audit", "faces", "--target", "open-clip:local-dir:audited", "--out", "run")
    table = done("table", "run", "--concept", "smile", "--format", "markdown").out.replace("\\", "")
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")]
    assert [row for row in rows if row in PAPER.attributes] == list(PAPER.attributes)
