"""A run as a record of Every Eval Ever (evalevalai.com), schema 0.3.0: one JSON object a target.

Every mean change of the planned rows is a result with its interval, and so is every share of pairs that were
lost. The schema wants a direction (``lower_is_better``) of every metric. A mean change has none: its results
say false, and their description says that this is no judgement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.model_card import data_name, shown_cells, without_value
from harness.record import Attrition, Cell, Record
from harness.report import words
from targets.base.errors import InputError

SCHEMA_VERSION = "0.3.0"
_NO_DIRECTION = (
    "Mean over pairs of the transformed face's score minus the source face's, on the target's own scale, for "
    "synthetic faces made as one group. The sign is no judgement; the schema wants a value of "
    "lower_is_better, and false stands for none."
)
_LOST = (
    "Share of pairs that could not be scored for this reason, of synthetic faces made as one group; not a "
    "rate of a population."
)


@dataclass(frozen=True)
class Provenance:
    """What the schema asks for and no record knows.

    Attributes:
        retrieved: when the export is made, in seconds since 1970; a record holds no date.
        organization: who ran the audit.
        model_id: the model's name as DEVELOPER/MODEL, or None for the target's spec.
    """

    retrieved: float
    organization: str = "unknown"
    model_id: str | None = None


def every_eval_ever(record: Record, provenance: Provenance) -> str:
    """The JSON text of a run.

    Raises:
        InputError: no cell of the planned rows has a mean change.
    """
    cells = [cell for cell in shown_cells(record) if cell.delta is not None]
    if not cells:
        raise InputError("no cell of the planned rows has a mean change: there is nothing to export")
    target = record.targets[0]
    model_id = provenance.model_id or target.spec or target.name
    retrieved = f"{provenance.retrieved:.0f}"
    exported = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"facedelta/{model_id.replace('/', '_')}/{retrieved}",
        "retrieved_timestamp": retrieved,
        "source_metadata": {
            "source_name": "facedelta audit",
            "source_type": "evaluation_run",
            "source_organization_name": provenance.organization,
            "evaluator_relationship": "other",
            "additional_details": _notes(record),
        },
        "eval_library": {"name": "facedelta", "version": record.facedelta_version},
        "model_info": {
            "name": target.name,
            "id": model_id,
            "additional_details": {
                # Weights whose digest is known were run here.
                "deployment_type": "self_deployed" if target.weights else "unknown",
                "model_availability": "unknown",
                "spec": target.spec,
                "licence": target.licence,
                "detection": target.detection,
                **{f"sha256 of {name}": digest for name, digest in target.weights.items()},
            },
        },
        "evaluation_results": [*_changes(record, cells), *_losses(record)],
    }
    return json.dumps(exported, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _notes(record: Record) -> dict[str, str]:
    """What to keep in mind, as texts, for the schema has no other place for it."""
    notes = {f"warning {number}": text for number, text in enumerate(record.warnings, 1)}
    if record.no_claim:
        notes["no disparity claim"] = record.no_claim
    notes |= {f"reading {number}": text for number, text in enumerate(words.READING, 1)}
    empty = [without_value(cell) for cell in shown_cells(record) if cell.delta is None]
    return notes | {f"without a value {number}": text for number, text in enumerate(empty, 1)}


def _changes(record: Record, cells: list[Cell]) -> Iterator[dict[str, Any]]:
    for cell in cells:
        uncertainty: dict[str, Any] = {"num_samples": cell.n_pairs}
        if cell.se is not None:
            uncertainty["standard_error"] = {"value": cell.se, "method": record.settings.method}
        if cell.ci is not None:
            uncertainty["confidence_interval"] = {
                "lower": cell.ci.low,
                "upper": cell.ci.high,
                "confidence_level": cell.ci.level,
                "method": cell.ci.method,
            }
        details = {
            "n_pairs": str(cell.n_pairs),
            "n_identities": str(cell.n_identities),
            "status": cell.status,
            "flags": ", ".join(cell.flags) or "none",
            "excluded": json.dumps(cell.excluded, ensure_ascii=False),
            **({} if cell.p_adjusted is None else {"p_adjusted": repr(cell.p_adjusted)}),
        }
        yield {
            "evaluation_result_id": f"mean_change/{cell.attribute}/{cell.concept}/{cell.group}",
            "evaluation_name": f"{cell.attribute} / {cell.concept}, {cell.group}",
            "source_data": _data(record),
            "metric_config": {
                "evaluation_description": _NO_DIRECTION,
                "metric_id": "facedelta.mean_change",
                "metric_name": "Mean change of score",
                "metric_kind": "mean_difference",
                "metric_unit": "score of the target",
                "metric_parameters": {
                    "attribute": cell.attribute,
                    "concept": cell.concept,
                    "group": cell.group,
                },
                "lower_is_better": False,
                "score_type": "continuous",
                "min_score": "-Infinity",
                "max_score": "Infinity",
            },
            "score_details": {"score": cell.delta, "details": details, "uncertainty": uncertainty},
        }


def _losses(record: Record) -> Iterator[dict[str, Any]]:
    for item in record.attrition:
        yield {
            "evaluation_result_id": f"lost/{item.reason}/{item.attribute}/{item.group}",
            "evaluation_name": f"{item.attribute}, {item.group}: pairs lost",
            "source_data": _data(record),
            "metric_config": {
                "evaluation_description": f"{_LOST} Reason: {words.REASONS.get(item.reason, item.reason)}.",
                "metric_id": f"facedelta.lost.{item.reason}",
                "metric_name": "Share of pairs lost",
                "metric_kind": "proportion",
                "metric_unit": "proportion",
                "metric_parameters": {
                    "attribute": item.attribute,
                    "group": item.group,
                    "reason": item.reason,
                },
                "lower_is_better": True,
                "score_type": "continuous",
                "min_score": 0,
                "max_score": 1,
            },
            "score_details": {"score": item.share, "uncertainty": _wilson(item)},
        }


def _wilson(item: Attrition) -> dict[str, Any]:
    return {
        "num_samples": item.n_pairs,
        "confidence_interval": {
            "lower": item.low,
            "upper": item.high,
            "confidence_level": item.level,
            "method": "Wilson, effective sample size by identity",
        },
    }


def _data(record: Record) -> dict[str, Any]:
    data = record.data
    return {
        "dataset_name": data_name(record),
        "source_type": "other",
        "additional_details": {"kind": data.kind, "sha256": data.sha256, "n_pairs": str(data.n_pairs)},
    }
