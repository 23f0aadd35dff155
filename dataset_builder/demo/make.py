"""Makes the shipped candidates from ``recipes/demo_seeds.toml``: sources.parquet and candidates.parquet.

    python -m dataset_builder.demo.make FOLDER --processes 2

It takes one to two hours on two cores. On one machine it ends with the same bytes every time; on another,
some pictures may differ in the last bits of some pixels.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dataset_builder.edit.render import RenderedEdits
from dataset_builder.generate.render import RenderedHeads
from dataset_builder.generate.shards import Candidate, sha256, write_candidates, write_faces
from dataset_builder.heads.renderer import RenderSettings
from dataset_builder.schema.faces import Face

SEEDS = Path(__file__).parents[1] / "recipes/demo_seeds.toml"


@dataclass(frozen=True)
class DemoPlan:
    """Seeds of each group, variations of each identity, attributes, share of distorted candidates."""

    seeds: Mapping[str, Sequence[int]]
    variations: int
    attributes: Sequence[str]
    distorted: float
    settings: RenderSettings = field(default_factory=RenderSettings)


def read_plan(path: Path = SEEDS) -> DemoPlan:
    """The plan in a TOML file with the tables ``seeds`` and ``settings``."""
    table = tomllib.loads(path.read_text())
    settings = RenderSettings(**table.pop("settings"))
    return DemoPlan(settings=settings, **table)


def candidates(plan: DemoPlan, sources: Sequence[Face], processes: int = 1) -> Iterator[Candidate]:
    """Every source with every attribute, attribute by attribute."""
    editor = RenderedEdits(distorted=plan.distorted, processes=processes)
    for attribute in plan.attributes:
        for source, face in zip(sources, editor.edit(sources, attribute), strict=True):
            yield Candidate(face, attribute, sha256(source.picture))


def make_demo(plan: DemoPlan, folder: Path, processes: int = 1) -> None:
    """Render a plan and write its two files into a folder."""
    generator = RenderedHeads(plan.seeds, plan.variations, plan.settings, processes)
    sources = list(generator.faces())
    folder.mkdir(parents=True, exist_ok=True)
    write_faces(folder / "sources.parquet", sources)
    write_candidates(folder / "candidates.parquet", candidates(plan, sources, processes))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Render the candidates that ship with the package.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--plan", type=Path, default=SEEDS)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    make_demo(read_plan(arguments.plan), arguments.folder, arguments.processes)


if __name__ == "__main__":
    main()
