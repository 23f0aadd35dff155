"""The versioned result of an audit: strict JSON, every number whole, every undefined value a status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Never

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from targets.base.errors import InputError
from targets.base.files import write_json
from targets.card import TargetCard

SCHEMA_VERSION: Literal["facedelta.audit/1"] = "facedelta.audit/1"
RECORD_FILE = "record.json"

Status = Literal["ok", "zero_variance", "undefined"]
Probability = Annotated[FiniteFloat, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Interval(_Part):
    """A confidence interval; ``level`` in (0, 1), ``method`` as in ``--ci``."""

    low: FiniteFloat
    high: FiniteFloat
    level: Probability
    method: str


class Cell(_Part):
    """Mean change of one concept for one attribute and group.

    Attributes:
        target: spec of the target.
        by: axis of the groups ("demographic", "ethnicity", "sex").
        attribute, concept, group: what was changed, what was asked, for whom.
        n_pairs, n_identities: pairs with two scores, and identities among them.
        mean_source, mean_transformed, delta: means over those pairs; delta is transformed minus source.
        se, df: standard error and its degrees of freedom.
        ci: interval of delta.
        p, p_adjusted: of delta = 0, unadjusted and adjusted within ``family``.
        family: id of the family of tests, listed in the record.
        status: "ok", "zero_variance" or "undefined"; a value that is undefined is null.
        flags: cautions that every table shows.
        excluded: reason -> pairs left out.
    """

    target: str
    by: str
    attribute: str
    concept: str
    group: str
    n_pairs: Count
    n_identities: Count
    mean_source: FiniteFloat | None
    mean_transformed: FiniteFloat | None
    delta: FiniteFloat | None
    se: FiniteFloat | None
    df: FiniteFloat | None
    ci: Interval | None
    p: Probability | None
    p_adjusted: Probability | None
    family: str | None
    status: Status
    flags: tuple[str, ...]
    excluded: dict[str, Count]


class Family(_Part):
    """A family of tests: ``m`` tests planned, adjusted together by ``method``."""

    id: str
    m: Count
    method: str


class PictureCheck(_Part):
    """Pairs of one group that a check of the pictures concerns."""

    check: str
    group: str
    n_pairs: Count


class Data(_Part):
    """Where the pairs come from.

    Attributes:
        path: as given.
        kind: "table", "dataset" or "scores".
        sha256: of the table's bytes, or of the dataset's labels and picture digests.
        rows: rows read.
        n_pairs: pairs with labels.
        n_pictures: distinct pictures.
        fault_share: share of rows and pairs lost to faults.
    """

    path: str
    kind: str
    sha256: str
    rows: Count
    n_pairs: Count
    n_pictures: Count
    fault_share: Probability


class AuditSettings(_Part):
    """The settings that shape the numbers."""

    method: str
    level: Probability
    by: tuple[str, ...]
    references: int | None
    taxonomy: str | None
    taxonomy_digest: str | None
    max_failures: Probability


class Record(_Part):
    """All that an audit found."""

    schema_version: Literal["facedelta.audit/1"] = Field(default=SCHEMA_VERSION, alias="schema")
    facedelta_version: str
    data: Data
    settings: AuditSettings
    targets: tuple[TargetCard, ...]
    groups: tuple[str, ...]
    attributes: tuple[str, ...]
    concepts: tuple[str, ...]
    cells: tuple[Cell, ...]
    families: tuple[Family, ...] = ()
    disparities: tuple[dict[str, Any], ...] = ()
    recognition: tuple[dict[str, Any], ...] = ()
    attrition: tuple[dict[str, Any], ...] = ()
    picture_checks: tuple[PictureCheck, ...] = ()
    warnings: tuple[str, ...] = ()

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def write_record(record: Record, run: Path) -> None:
    """Write RUN/record.json, whole or not at all."""
    write_json(run / RECORD_FILE, record.model_dump(mode="json", by_alias=True))


def read_record(path: Path) -> Record:
    """Read a record.

    Args:
        path: a run's folder or its record.json.

    Raises:
        InputError: missing, truncated, with NaN, of another schema version, or not a record.
    """
    file = path / RECORD_FILE if path.is_dir() else path
    try:
        data = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except FileNotFoundError:
        raise InputError(f"no such record: {file}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file} must be UTF-8: {error}") from None
    except ValueError as error:
        raise InputError(f"{file} is not strict JSON (truncated, or NaN): {error}") from None
    version = data.get("schema") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise InputError(f"{file}: schema must be '{SCHEMA_VERSION}', got {version!r}")
    try:
        return Record.model_validate(data)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise InputError(f"{file} is not a valid record: '{place}': {fault['msg']}") from None


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a record."""
    return Record.model_json_schema(by_alias=True, mode="serialization")
