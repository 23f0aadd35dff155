"""Finished runs made from nothing but deltas, written the way an audit writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dataset_builder.schema.taxonomy import Taxonomy
from harness.analysis import Options, make_record
from harness.outcomes import CODES, Labels, Outcomes
from harness.run import write_run
from targets.card import TargetCard

Cells = Mapping[tuple[str, str], "np.typing.ArrayLike"]
"""(attribute, group) -> one delta a pair; NaN for a pair without scores."""


def spread(n: int, mean: float, sd: float, seed: int = 0) -> np.ndarray:
    """n values with exactly this mean and standard deviation."""
    values = np.random.default_rng(seed).standard_normal(n)
    if n < 2:
        return np.full(n, mean)
    return mean + sd * (values - values.mean()) / values.std(ddof=1)


def write_deltas(
    folder: Path,
    cells: Cells,
    *,
    concept: str = "sunglass",
    per_identity: int = 1,
    level: float = 0.999,
    reason: str = "no_face",
    pictures: str | None = "pixels",
    taxonomy: Taxonomy | None = None,
    source: float = 0.25,
    score_range: tuple[float, float] | None = None,
    weights: str | None = None,
) -> Path:
    """Write a run whose pairs have the given deltas.

    Pair ids say attribute, group and position, so two runs share the pairs of equal position. ``pictures``
    goes into the pixel hashes; None for a run of finished scores. ``source`` is every source score, and
    ``weights`` a digest of the model's.
    """
    rows = [
        (attribute, group, index, float(delta))
        for (attribute, group), deltas in cells.items()
        for index, delta in enumerate(np.asarray(deltas, dtype=np.float64))
    ]
    n = len(rows)
    before = np.full((n, 1), source)
    transformed = before + np.array([[delta] for *_, delta in rows]).reshape(n, 1)
    lost = np.isnan(transformed)

    def text(*values: str) -> np.ndarray:
        return np.array(values, dtype=object)

    def hashes(side: str) -> np.ndarray:
        if pictures is None:
            return np.full(n, None, dtype=object)
        return text(
            *(f"{pictures}-{side}-{attribute}-{group}-{index}" for attribute, group, index, _ in rows)
        )

    outcomes = Outcomes(
        labels=Labels(
            pair_id=text(*(f"{attribute}-{group}-{index:04d}" for attribute, group, index, _ in rows)),
            identity=text(*(f"{group}{index // per_identity:04d}" for _, group, index, _ in rows)),
            variation=text(*("1" for _ in rows)),
            demographic=text(*(group for _, group, _, _ in rows)),
            attribute=text(*(attribute for attribute, _, _, _ in rows)),
            source_name=text(*("" for _ in rows)),
            transformed_name=text(*("" for _ in rows)),
        ),
        concepts=(concept,),
        source=np.where(lost, np.nan, before),
        transformed=transformed,
        codes=np.where(lost, CODES[reason], 0).astype(np.int8),
        source_hash=hashes("source"),
        transformed_hash=hashes("transformed"),
    )
    origin = {"path": "made", "kind": "scores", "sha256": "0" * 64, "rows": n}
    digests = {} if weights is None else {"net": weights}
    card = TargetCard(name="made", spec="made", score_range=score_range, weights=digests)
    record = make_record(outcomes, card, origin, Options(level=level, taxonomy=taxonomy))
    write_run(folder, record, outcomes)
    return folder
