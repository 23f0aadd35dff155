"""Which seeds to use: those whose heads a face recogniser tells apart.

Random heads of one group resemble each other to a recogniser more than people do. Choosing among many makes
identities that mean something, without pushing any single head towards caricature.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataset_builder.heads.identity import GROUPS, sample_person
from dataset_builder.heads.picture import HeadRequest, make_all
from dataset_builder.heads.proportions import looks_human
from dataset_builder.heads.renderer import RenderSettings
from harness.stats.vectors import unit_rows

Embeddings = NDArray[np.float64]
Embed = Callable[[Sequence[bytes]], Embeddings]

# Small, quick pictures: enough for a recogniser, which looks at about 112 pixels.
_SETTINGS = RenderSettings(size=192, samples=6, quality=85)
_VARIATIONS = 2


@dataclass(frozen=True)
class Choice:
    """Chosen positions or seeds, and mean cosines of the pictures of the chosen identities."""

    chosen: tuple[int, ...]
    same: float
    different: float


def choose(embeddings: Embeddings, count: int, usable: float = 0.6) -> Choice:
    """``count`` identities whose largest similarities are small, chosen greedily.

    ``embeddings`` has shape (identities, variations, d); a row of NaN (no face found) rules its identity
    out, as does a mean cosine between its own variations below ``usable``.
    """
    vectors = unit_rows(embeddings)
    same = _same(vectors)
    candidates = np.nonzero(same >= usable)[0]
    if len(candidates) < count:
        raise ValueError(f"need {count} usable identities, got {len(candidates)} of {len(vectors)}")
    similarity = np.einsum("ivd,jwd->ij", vectors[candidates], vectors[candidates]) / vectors.shape[1] ** 2
    np.fill_diagonal(similarity, 0.0)
    best = min(
        (_grow(similarity, start, count) for start in range(len(candidates))), key=_mean_of(similarity)
    )
    best = _exchange(similarity, best)
    chosen = tuple(int(candidates[k]) for k in best)
    return Choice(chosen, float(same[list(chosen)].mean()), _mean_of(similarity)(best))


def _same(vectors: Embeddings) -> NDArray[np.float64]:
    """Mean cosine between different variations of each identity (n,); NaN stays NaN."""
    count = vectors.shape[1]
    if count == 1:
        return np.where(np.isnan(vectors).any(axis=(1, 2)), np.nan, 1.0)
    total = np.linalg.norm(vectors.sum(1), axis=1) ** 2
    return np.asarray((total - count) / (count * (count - 1)))


def _grow(similarity: Embeddings, start: int, count: int) -> list[int]:
    """Add, one at a time, the identity least like those already chosen."""
    chosen, total = [start], similarity[start].copy()
    while len(chosen) < count:
        blocked = total.copy()
        blocked[chosen] = np.inf
        nearest = int(np.argmin(blocked))
        chosen.append(nearest)
        total += similarity[nearest]
    return chosen


def _exchange(similarity: Embeddings, chosen: list[int]) -> list[int]:
    """Swap single identities for better ones until no swap helps."""
    current = list(chosen)
    while True:
        total = similarity[current].sum(0)
        gain, swap = 1e-12, None
        for position, old in enumerate(current):
            change = total[old] - (total - similarity[old])
            change[current] = -np.inf
            new = int(np.argmax(change))
            if change[new] > gain:
                gain, swap = float(change[new]), (position, new)
        if swap is None:
            return current
        current[swap[0]] = swap[1]


def _mean_of(similarity: Embeddings) -> Callable[[Sequence[int]], float]:
    def mean(chosen: Sequence[int]) -> float:
        block = similarity[np.ix_(chosen, chosen)]
        return float(block.sum() / (len(chosen) * (len(chosen) - 1)))

    return mean


def choose_seeds(group: str, seeds: Sequence[int], embed: Embed, count: int, processes: int = 1) -> Choice:
    """The chosen seeds of one group; ``embed`` gives a vector for each encoded picture, NaN without a face.

    Heads without human proportions are not considered.
    """
    human = [seed for seed in seeds if looks_human(sample_person(group, seed))]
    requests = [HeadRequest(group, s, v, settings=_SETTINGS) for s in human for v in range(_VARIATIONS)]
    pictures = [made.picture for made in make_all(requests, processes)]
    vectors = np.asarray(embed(pictures), dtype=np.float64).reshape(len(human), _VARIATIONS, -1)
    choice = choose(vectors, count)
    return Choice(tuple(human[k] for k in choice.chosen), choice.same, choice.different)


def main() -> None:
    """Command line: prints one line of TOML a group."""
    parser = argparse.ArgumentParser(description="Choose the seeds of rendered heads.")
    parser.add_argument("--embed", required=True, metavar="MODULE:FUNCTION")
    parser.add_argument("--candidates", type=int, default=125)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    module, _, function = arguments.embed.partition(":")
    embed: Embed = getattr(importlib.import_module(module), function)
    for group in GROUPS:
        seeds = range(1, arguments.candidates + 1)
        choice = choose_seeds(group, seeds, embed, arguments.count, arguments.processes)
        note = f"# same {choice.same:.3f}, different {choice.different:.3f}"
        sys.stdout.write(f"{group} = {list(choice.chosen)}  {note}\n")


if __name__ == "__main__":
    main()
