"""What the adapters' tests share: tiny models with fixed seeds, and the command line in its own process."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from targets.catalogue import load_target
from targets.conformance import run_checks
from targets.drawn_pictures import drawn_faces
from targets.scoring import PictureRef, score_pictures

ROOT = Path(__file__).resolve().parent.parent.parent


def conforms(spec: str, settings: Mapping[str, object] | None = None) -> None:
    """Run the whole suite on a target and fail with what it found."""
    results = run_checks(load_target(spec, settings), closing=True)
    faults = [f"{result.name}: {result.fault}" for result in results if result.fault]
    assert not faults


def scores_of(spec: str, settings: Mapping[str, object] | None = None, count: int = 3) -> np.ndarray:
    """What a target says about the first drawn faces."""
    loaded = load_target(spec, settings)
    ask = loaded.target.embed if loaded.card.kind == "embedding" else loaded.target.score
    answer = ask(drawn_faces(count))
    loaded.close()
    return getattr(answer, "values", answer)


def audited(
    cache: Path, spec: str, settings: Mapping[str, object] | None = None, count: int = 3
) -> np.ndarray:
    """What an audit with this cache says about the first drawn faces, whoever was asked before."""
    loaded = load_target(spec, settings)
    refs = []
    for number, face in enumerate(drawn_faces(count)):
        stream = io.BytesIO()
        face.save(stream, "PNG")
        refs.append(PictureRef(f"face {number}", stream.getvalue))
    seen = score_pictures(loaded, refs, cache, show_progress=False)
    loaded.close()
    return np.array([item.values for item in seen.values()])


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    status: int
    out: str
    err: str


def facedelta(*arguments: object, cwd: Path, env: Mapping[str, str] | None = None) -> Ended:
    """Run the command line in a process of its own, in ``cwd``."""
    done = subprocess.run(
        [sys.executable, "-c", "from harness.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def pairs_folder(folder: Path, identities: int = 3) -> Path:
    """A table of pairs with drawn pictures: two groups, two variations, attribute "glasses"."""
    (folder / "images").mkdir(parents=True)
    lines = ["pair_id,identity,variation,demographic,attribute,source,transformed"]
    number = 0
    for group in ("WM", "BF"):
        for identity in range(identities):
            for variation in (1, 2):
                number += 1
                stem = f"{group}{identity}-{variation}"
                source = drawn_faces(5)[number % 5].copy()
                source.putpixel((number, 80), (number, 0, 0))
                edited = source.copy()
                edited.paste((10, 10, 10), (50, 60, 110, 66))
                source.save(folder / f"images/{stem}-source.png")
                edited.save(folder / f"images/{stem}-glasses.png")
                names = f"images/{stem}-source.png,images/{stem}-glasses.png"
                lines.append(f"{stem}-glasses,{group}{identity},{variation},{group},glasses,{names}")
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "pairs.csv"


def record_of(run: Path) -> dict:
    """The record of a run."""
    return json.loads((run / "record.json").read_text(encoding="utf-8"))
