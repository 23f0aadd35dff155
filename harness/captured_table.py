"""Captured comparisons as a table of similarities: what error rates need where there are no vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from harness.outcomes import CODES, OK, CodeArray, Embedded, FloatArray
from targets.base.tables import ObjectArray
from targets.protocol import PictureId

Table = Callable[[Sequence[PictureId]], FloatArray]
ACQUIRED = (OK, CODES["no_answer"])


def tabulated(
    source: Sequence[PictureId],
    transformed: Sequence[PictureId],
    found: tuple[FloatArray, FloatArray],
    reasons: CodeArray,
    table: Table,
    captured: int,
) -> tuple[Embedded | None, str]:
    """Number the pictures and put their similarities into a table.

    Args:
        source, transformed: pictures of n pairs.
        found: for each side (n,) NaN where a picture occurs in no comparison.
        reasons: (n,) codes that hold for the whole pair.
        table: gives the (m, m) similarities of m pictures, NaN where two were not compared.
        captured: how many comparisons there are; far too few are told without a table.

    Returns:
        The numbers in place of vectors, with the table; or None and what is missing, in words.
    """
    usable = np.isin(reasons, ACQUIRED)
    keys = [[item.pixel_hash or item.name for item in side] for side in (source, transformed)]
    number: dict[str, int] = {}
    pictures: list[PictureId] = []
    for side, items in zip(keys, (source, transformed), strict=True):
        for key, item in zip(side, items, strict=True):
            if key not in number:
                number[key] = len(pictures)
                pictures.append(item)
    codes = [
        np.where(np.isnan(known), np.nan, [float(number[key]) for key in side])
        for side, known in zip(keys, found, strict=True)
    ]
    gallery, probes = (np.unique(side[usable & ~np.isnan(side)]).astype(int) for side in codes)
    needed = len(gallery) * (len(gallery) - 1) // 2 + len(np.setdiff1d(probes, gallery)) * len(gallery)
    if not needed:
        return None, ""
    if captured < needed:
        return None, _missing(needed - captured, needed, "at least ")
    scores = table(pictures)
    holes = np.isnan(scores)
    among, against = holes[np.ix_(gallery, gallery)].sum() // 2, holes[np.ix_(probes, gallery)].sum()
    if among or against:
        return None, _missing(int(among + against), needed)
    named: ObjectArray = np.array(keys[0], dtype=object)
    return Embedded(codes[0][:, None], codes[1][:, None], reasons, named, scores), ""


def _missing(count: int, needed: int, least: str = "") -> str:
    return (
        "no error rates: they need every source picture compared with every other source picture and with "
        f"every transformed one; {least}{count:,} of {needed:,} comparisons are missing"
    )
