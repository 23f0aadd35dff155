"""What a record says must agree with itself and with its pairs: an edited or mixed-up file is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import numpy.typing as npt

from harness.stats.intervals import Method

if TYPE_CHECKING:
    from harness.record import Cell, Record

_ORDERED = (("low", "high"), ("band_low", "band_high"), ("lee_low", "lee_high"))
_NOT_NEGATIVE = ("se", "df")
_INTERVAL = {"low", "high", "level", "method"}
_METHODS = (*get_args(Method), "equal weights", "satterthwaite", "imbens_manski")
# As a share of the numbers: what adding in another order may change.
_ROUNDING = 1e-9


def faulty_numbers(data: Any, place: str = "") -> Iterator[str]:
    """What no interval or standard error can be, anywhere in a record's JSON."""
    if isinstance(data, Mapping):
        yield from _faults(data, place)
        for name, value in data.items():
            yield from faulty_numbers(value, f"{place}.{name}" if place else str(name))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from faulty_numbers(value, f"{place}.{index}")


def _faults(part: Mapping[str, Any], place: str) -> Iterator[str]:
    for low, high in _ORDERED:
        least, most = part.get(low), part.get(high)
        if isinstance(least, int | float) and isinstance(most, int | float) and _above(least, most):
            yield f"'{place}': {low} {least} is above {high} {most}"
    for name in _NOT_NEGATIVE:
        value = part.get(name)
        if isinstance(value, int | float) and value < 0:
            yield f"'{place}.{name}' must not be negative, got {value}"
    if part.keys() >= _INTERVAL and str(part["method"]).split(",")[0] not in _METHODS:
        yield f"'{place}.method' must be one of {', '.join(_METHODS)}, got '{part['method']}'"


def _above(low: float, high: float) -> bool:
    return low > high and not _same(low, high)


def _same(one: float, other: float, *parts: float) -> bool:
    return abs(one - other) <= _ROUNDING * max(1e-300, *map(abs, (one, other, *parts)))


def contradictions(record: Record) -> Iterator[str]:
    """What one part of a record says against another."""
    known = get_args(Method)
    if record.settings.method not in known:
        yield f"'settings.method' must be one of {', '.join(known)}, got '{record.settings.method}'"
    for name in ("groups", "attributes", "concepts", "rows"):
        yield from _twice(name, getattr(record, name))
    yield from _twice("cells", ((c.target, c.by, c.attribute, c.concept, c.group) for c in record.cells))
    yield from _twice("details", ((d.attribute, d.concept, d.group) for d in record.details))
    yield from _twice("disparities", ((d.target, d.by, d.attribute, d.concept) for d in record.disparities))
    for cell in record.cells:
        where = f"cell {cell.attribute} / {cell.concept}, {cell.group}"
        yield from (f"{where}: {fault}" for fault in _cell_faults(cell, record))
    there = {(cell.by, cell.group, cell.attribute, cell.concept) for cell in record.cells}
    for by, group in sorted({key[:2] for key in there}):
        lacking = [" / ".join(row) for row in record.rows if (by, group, *row) not in there]
        yield from (f"'rows' holds {row}, of which {group} has no cell" for row in lacking[:1])


def _twice(what: str, keys: Iterable[object]) -> Iterator[str]:
    counts = Counter(keys)
    yield from (f"'{what}' holds {key!r} {count} times" for key, count in counts.items() if count > 1)


def _cell_faults(cell: Cell, record: Record) -> Iterator[str]:
    known = {"attribute": record.attributes, "concept": record.concepts}
    if cell.by == "demographic":
        known["group"] = record.groups
    for name, names in known.items():
        if getattr(cell, name) not in names:
            yield f"'{name}s' of the record does not hold '{getattr(cell, name)}'"
    if cell.n_identities > cell.n_pairs or cell.n_pairs > record.data.n_pairs:
        yield f"{cell.n_identities} identities, {cell.n_pairs} pairs of {record.data.n_pairs} can't be"
    means = cell.mean_source, cell.mean_transformed
    if (cell.delta is None) != (None in means) or (cell.delta is not None and not cell.n_pairs):
        yield "delta needs pairs and both means"
    elif cell.delta is not None and not _same(cell.delta, means[1] - means[0], *means):  # type: ignore[operator, arg-type]
        yield f"delta {cell.delta} is not mean_transformed - mean_source"
    if cell.p is not None and cell.p_adjusted is not None and cell.p_adjusted < cell.p * (1 - _ROUNDING):
        yield f"p_adjusted {cell.p_adjusted} is below p {cell.p}"


def miscounted(
    record: Record,
    attribute: npt.NDArray[np.object_],
    group: npt.NDArray[np.object_],
    scored: npt.NDArray[np.bool_],
) -> Iterator[str]:
    """Cells whose number of pairs is not that of the pairs.

    Args:
        record: of the run.
        attribute, group: of n pairs.
        scored: (n, c), which pairs have both scores of the record's concepts.
    """
    column = {concept: index for index, concept in enumerate(record.concepts)}
    counts: dict[tuple[str, str], npt.NDArray[np.intp]] = {}
    for key in dict.fromkeys(zip(attribute, group, strict=True)):
        counts[key] = scored[(attribute == key[0]) & (group == key[1])].sum(axis=0)
    for cell in record.cells:
        if cell.by == "demographic":
            found = counts.get((cell.attribute, cell.group))
            number = 0 if found is None else int(found[column[cell.concept]])
            if number != cell.n_pairs:
                where = f"{cell.attribute} / {cell.concept}, {cell.group}"
                yield f"cell {where} has {cell.n_pairs} pairs in one and {number} in the other"
