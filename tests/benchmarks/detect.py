"""What the vision-language detector asks for, in the paper's form and in ours.

``python -m tests.benchmarks.detect`` takes the demo's candidates, or ``--candidates FOLDER``, or drawn ones
where neither is there. A local server answers with the truth, so both forms must reach the same verdicts.
Tokens: text by four characters, pictures by GPT-4o's published rule.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import dataset_builder
from dataset_builder.pipeline import Build
from dataset_builder.store import read_faces
from targets.images import decode
from tests.coded import PAPER, PRESENCE, coded_face, labels, tile_digest, write_candidates, write_recipe
from tests.openai_server import running

DETECT = """
[detect]
audit_sample = 0.0

[detect.attributes]
method = "vlm"
model = "counted"
base_url = "{url}"
form = "{form}"
price_input = 2.5
price_output = 10.0
"""
COUNTS = ("requests", "pictures", "faces", "tokens")


def drawn_candidates(folder: Path, identities: int = 16) -> None:
    """Two identities a group with every attribute applied; some edits fail as the paper's do."""
    chance = random.Random(1)
    groups = list(PAPER.groups)
    sources, edits, number = [], [], 0
    for identity in range(identities):
        group = groups[identity % len(groups)]
        name = f"{group}-{identity}"
        sources.append(coded_face(number, group, name, labels()))
        for attribute in PAPER.attributes:
            number += 1
            after = {attribute} if attribute in PRESENCE and chance.random() < 0.8 else set()
            distorted = "yes" if chance.random() < 0.1 else "no"
            age = {"old": 60.0, "young": 15.0}.get(attribute, 30.0 + 15 * (chance.random() < 0.1))
            face = coded_face(number, group, name, labels(*after), distorted=distorted, age=age)
            edits.append((identity, attribute, face))
        number += 1
    write_candidates(folder, sources, iter(edits))


def write_truth(candidates: Path, path: Path) -> None:
    """Digest of every face's pixels -> the generator's labels, for the server."""
    words = {"yes": "Yes", "no": "No", "unknown": "Unknown"}
    truth = {}
    for name in ("sources.parquet", "candidates.parquet"):
        for face in read_faces(candidates / name):
            if not face.fault:
                tile = decode(face.read(), face.sha256).image
                known = {at: words[face.labels.get(at, "unknown")] for at in PRESENCE}
                truth[tile_digest(tile)] = known
    path.write_text(json.dumps(truth), encoding="utf-8")


def count(candidates: Path, form: str, work: Path) -> tuple[dict[str, Any], dict[str, tuple[bool, str]]]:
    """What one form asks for, and its verdicts."""
    attributes = pq.read_table(candidates / "candidates.parquet", columns=["attribute"]).column(0).unique()
    with running(truth=str(work / "truth.json")) as server:
        recipe = write_recipe(work, attributes.to_pylist(), DETECT.format(url=server.base_url, form=form))
        built = Build(recipe, work / form, None, candidates, show_progress=False).run()
        stats = server.stats()
    stats["tokens"] = sum(stats["tokens"])
    return stats, {item.pair_id: (item.verdict.kept, str(item.verdict.reason)) for item in built.judged}


def main() -> int:
    """Print the table; the status is 1 where ours asks for more than half, or verdicts differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=Path, help="folder with sources.parquet and candidates.parquet")
    given = parser.parse_args().candidates
    shipped = Path(str(next(iter(dataset_builder.__path__)))) / "demo"
    os.environ.setdefault("OPENAI_API_KEY", "none")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        candidates = given or (shipped if (shipped / "candidates.parquet").exists() else work / "drawn")
        if candidates == work / "drawn":
            drawn_candidates(candidates)
        write_truth(candidates, work / "truth.json")
        paper, by_paper = count(candidates, "paper", work)
        ours, by_ours = count(candidates, "ours", work)
    kept = sum(is_kept for is_kept, _ in by_paper.values())
    print(
        f"candidates: {candidates.name}, {len(by_paper)}; kept {kept}; verdicts equal: {by_paper == by_ours}"
    )
    print(f"{'a kept pair':12}{'paper':>10}{'ours':>10}{'ratio':>8}")
    for name in COUNTS:
        ratio = ours[name] / paper[name]
        print(f"{name:12}{paper[name] / kept:10.2f}{ours[name] / kept:10.2f}{ratio:8.2f}")
    fine = by_paper == by_ours and all(2 * ours[name] <= paper[name] for name in COUNTS if name != "faces")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
