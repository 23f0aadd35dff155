"""RUN/comparisons.parquet: what a recogniser's error rates rest on, so that a gate can pair two runs.

One row a kind of comparison, side and way of counting failures to acquire: labels, and lists of scores
(descending; null for a failure), of the people on both sides of each score, and of every person's pictures.
Impostor scores below every threshold in use are only counted. People are positions in the list of group and
identity that the schema's metadata holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from harness.folder import COMPARISONS_FILE
from harness.kinds import Compared, Kept, Kind
from harness.stats.comparisons import Comparisons, Design
from harness.stats.numerics import Floats, Ints
from targets.base.errors import InputError
from targets.base.files import read_parquet, write_parquet
from targets.base.strict_json import parse_json

_VERSION = "facedelta.comparisons/1"
_TEXTS = ("attribute", "metric", "comparison", "side", "failures", "design")
_CODES = ("first", "second", "left", "right")
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        ("scores", pa.list_(pa.float64())),
        *((name, pa.list_(pa.int32())) for name in _CODES),
    ]
)
# A cosine in single precision may pass 1 by a few of its last digits.
_ROUNDING = 1e-6
_APART, _COUNTED = "apart", "non_match"


def write_comparisons(run: Path, kept: Kept) -> None:
    """Write the file into a run's folder."""
    rows = [row for item in kept.kinds for row in _rows(item)]
    columns = [pa.array([row[name] for row in rows], _SCHEMA.field(name).type) for name in _SCHEMA.names]
    about = {"facedelta": json.dumps({"schema": _VERSION, "people": kept.people}, ensure_ascii=False)}
    table = pa.Table.from_arrays(columns, schema=_SCHEMA.with_metadata(about))
    write_parquet(run / COMPARISONS_FILE, table)


def _rows(item: Kind) -> Iterator[dict[str, Any]]:
    ways = (
        {_APART: item.apart} if item.with_fta is item.apart else {_APART: item.apart, _COUNTED: item.with_fta}
    )
    for failures, compared in ways.items():
        for side, some in (("before", compared.before), ("after", compared.after)):
            if some is not None:
                labels = (item.attribute, item.metric, item.comparison, side, failures, some.design)
                scores = pa.array(some.scores, mask=~np.isfinite(some.scores))
                codes = {name: getattr(some, name).astype(np.int32) for name in _CODES}
                yield {**dict(zip(_TEXTS, labels, strict=True)), "scores": scores, **codes}


def read_comparisons(run: Path) -> Kept | None:
    """Read the file back; None where the run has none.

    Raises:
        InputError: damaged, or another version.
    """
    path = run / COMPARISONS_FILE
    if not path.is_file():
        return None
    try:
        table = read_parquet(path)
        about = parse_json((table.schema.metadata or {})[b"facedelta"])
        people = tuple((str(group), str(identity)) for group, identity in about["people"])
        version = about["schema"]
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} is no readable table of comparisons: {error}") from None
    if version != _VERSION or not table.schema.equals(_SCHEMA):
        raise InputError(f"{path} must be of schema '{_VERSION}', got '{version}'; audit again")
    found: dict[tuple[Any, ...], dict[tuple[str, str], Comparisons]] = {}
    for index in range(len(table)):
        texts = {name: table.column(name)[index].as_py() for name in _TEXTS}
        key = (texts["attribute"], texts["metric"], texts["comparison"])
        lists = {name: table.column(name)[index].values for name in ("scores", *_CODES)}
        whole = None not in lists.values() and not any(lists[name].null_count for name in _CODES)
        if texts["design"] not in get_args(Design) or not whole:
            raise InputError(f"{path}: row {index} must have a design of {get_args(Design)} and five lists")
        some = _comparisons(texts["design"], lists, len(people), path)
        sides, side = found.setdefault(key, {}), (texts["failures"], texts["side"])
        if side in sides:
            raise InputError(f"{path}: row {index} repeats the comparisons {key}, {side}")
        sides[side] = some
    return Kept(people, tuple(_kind(key, sides) for key, sides in found.items()))


def _comparisons(design: Any, lists: dict[str, pa.Array], size: int, path: Path) -> Comparisons:
    scores: Floats = np.asarray(lists["scores"].fill_null(-np.inf).to_numpy(zero_copy_only=False), np.float64)
    codes: dict[str, Ints] = {
        name: lists[name].to_numpy(zero_copy_only=False).astype(np.int64) for name in _CODES
    }
    whole = len(codes["left"]) == len(codes["right"]) == size and len(scores) == len(codes["first"])
    inside = all(((codes[name] >= 0) & (codes[name] < size)).all() for name in ("first", "second"))
    counts = all((codes[name] >= 0).all() for name in ("left", "right"))
    told = scores[scores > -np.inf]
    falling = (scores[1:] <= scores[:-1]).all() and (np.abs(told) <= 1 + _ROUNDING).all()
    if not (whole and inside and counts and falling and len(scores) == len(codes["second"])):
        raise InputError(
            f"{path}: every score needs two people of the list, scores must be finite cosines that descend, "
            "and no person may have fewer than 0 pictures"
        )
    left, right = (codes[name].astype(np.float64) for name in ("left", "right"))
    return Comparisons(design, scores, codes["first"], codes["second"], left, right)


def _kind(key: tuple[Any, ...], sides: dict[tuple[str, str], Comparisons]) -> Kind:
    apart, counted = (
        Compared(sides.get((way, "before")), sides.get((way, "after"))) for way in (_APART, _COUNTED)
    )
    attribute, metric, comparison = key
    both = apart if counted.before is counted.after is None else counted
    return Kind(attribute, metric, comparison, apart, both)
