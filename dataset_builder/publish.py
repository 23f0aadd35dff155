"""Publication: a dataset directory with its configs and its card.

``pairs`` holds what the filter kept, ``sources`` and ``candidates`` every picture, ``verdicts`` every
decision, so that what was rejected, by which rule and for whom can be audited too. Pictures keep their
encoded bytes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dataset_builder.card import CONFIGS, card_text
from dataset_builder.filtering import Weighed, filtering_text
from dataset_builder.folder import BUILD_FILE, CARD_FILE
from dataset_builder.funnel import Decided, funnel
from dataset_builder.recipe import Recipe
from dataset_builder.schema.faces import label_in_dataset
from dataset_builder.schema.taxonomy import Taxonomy
from dataset_builder.schema.verdict import Evidence, Verdict
from dataset_builder.store import StoredFace
from targets.base.errors import InputError
from targets.base.files import write_json, write_parquet, write_text
from targets.base.hashing import canonical_json, file_digest
from targets.base.private import redacted

ROWS_PER_SHARD = 1000
_SHARDS = "train-*.parquet"


@dataclass(frozen=True)
class Judged:
    """A candidate pair with its verdict; ``distortion`` is the detector's score, None where it has none."""

    source: StoredFace
    transformed: StoredFace
    evidence: Evidence
    verdict: Verdict
    distortion: float | None

    @property
    def pair_id(self) -> str:
        """Who, which variation and which attribute: unique in a dataset."""
        person = label_in_dataset(self.source.demographic, self.source.identity)
        return f"{person}-{self.source.variation}-{self.transformed.attribute}"

    def decided(self) -> Decided:
        """What the funnel counts."""
        return Decided(
            self.transformed.attribute, self.source.demographic, self.source.identity, self.verdict.reason
        )


def publish(
    out: Path,
    recipe: Recipe,
    taxonomy: Taxonomy,
    sources: Sequence[StoredFace],
    judged: Sequence[Judged],
    detectors: Mapping[str, str],
) -> None:
    """Write the dataset; its card comes last, so that a folder with one is complete.

    Args:
        out: folder; what an earlier publication left in the configs' folders is replaced.
        recipe: what was built.
        taxonomy: its groups and attributes.
        sources: every source face.
        judged: every candidate.
        detectors: role -> digest of the weights that decided.

    Raises:
        InputError: two candidates with one pair id.
    """
    seen: set[str] = set()
    for item in judged:
        if item.pair_id in seen:
            raise InputError(f"pair id {item.pair_id} occurs twice: an identity's variations must differ")
        seen.add(item.pair_id)
    kept = [item for item in judged if item.verdict.kept]
    rows: dict[str, Iterator[dict[str, Any]]] = {
        "pairs": (_pair_row(item, taxonomy) for item in kept),
        "sources": (_face_row(face, taxonomy) for face in sources),
        "candidates": (_candidate_row(item, taxonomy) for item in judged),
        "verdicts": (_verdict_row(item, taxonomy) for item in judged),
    }
    _replace(out, _features(taxonomy), rows)
    attributes = [name for name in taxonomy.attributes if name in recipe.edit.attributes]
    cells = funnel([item.decided() for item in judged], attributes, list(taxonomy.groups))
    write_json(
        out / BUILD_FILE,
        redacted(
            {
                "recipe": recipe.model_dump(mode="json"),
                "taxonomy": taxonomy.digest,
                "detectors": dict(detectors),
            }
        ),
    )
    filtering = filtering_text(
        [Weighed(item.decided(), item.evidence, item.verdict) for item in judged],
        attributes,
        list(taxonomy.groups),
    )
    files = {
        name: sorted(str(path.relative_to(out)) for path in (out / name).glob(_SHARDS)) for name in CONFIGS
    }
    text = card_text(
        recipe,
        taxonomy,
        cells,
        detectors,
        files,
        n_sources=len(sources),
        n_kept=len(kept),
        filtering=filtering,
    )
    write_text(out / CARD_FILE, text)


def _features(taxonomy: Taxonomy) -> dict[str, Any]:
    """The columns of each config; labels are structs with the taxonomy's attributes."""
    from datasets import ClassLabel, Features, Image, List, Value

    text = Value("string")
    group = ClassLabel(names=list(taxonomy.groups))
    attribute = ClassLabel(names=list(taxonomy.attributes))
    labels = dict.fromkeys(taxonomy.attributes, text)
    who = {
        "identity": text,
        "variation": Value("int32"),
        "demographic": group,
        "ethnicity": text,
        "sex": text,
    }
    both_labels = {"source_labels": labels, "transformed_labels": labels}
    ages = {"source_age": Value("float64"), "transformed_age": Value("float64")}
    digests = {"source_sha256": text, "transformed_sha256": text}
    face = {"image": Image(), "sha256": text, "labels": labels, "age": Value("float64"), "distorted": text}
    made = {"provenance": text, "fault": text}
    return {
        "pairs": Features(
            {
                "pair_id": text,
                **who,
                "attribute": attribute,
                "source": Image(),
                "transformed": Image(),
                **digests,
                **both_labels,
                **ages,
                "distortion": Value("float64"),
                "provenance": text,
            }
        ),
        "sources": Features({**who, **face, **made}),
        "candidates": Features(
            {"pair_id": text, **who, "attribute": attribute, "source_sha256": text, **face, **made}
        ),
        "verdicts": Features(
            {
                "pair_id": text,
                **who,
                "attribute": attribute,
                **digests,
                "kept": Value("bool"),
                "reason": text,
                "detail": text,
                "violations": List(text),
                **both_labels,
                **ages,
                "distorted": text,
                "distortion": Value("float64"),
                "complete": Value("bool"),
                "audited": Value("bool"),
                "label_reasons": text,
            }
        ),
    }


def _replace(out: Path, features: Mapping[str, Any], rows: Mapping[str, Iterator[dict[str, Any]]]) -> None:
    """Write all configs beside the old ones, then put them in their place; meanwhile there is no card."""
    fresh = out / ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        for config, some in rows.items():
            _write(fresh / config, features[config], some)
        (out / CARD_FILE).unlink(missing_ok=True)
        for config in rows:
            _remove_shards(out / config)
            for shard in (fresh / config).iterdir():
                shard.rename(out / config / shard.name)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _remove_shards(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for shard in folder.glob(_SHARDS):
        shard.unlink()


def _write(folder: Path, features: Any, rows: Iterator[dict[str, Any]]) -> None:
    """Write the shards of one config."""
    for number, batch in enumerate(_shards(rows)):
        encoded = [features.encode_example(row) for row in batch]
        table = pa.Table.from_pylist(encoded, schema=features.arrow_schema)
        shard = folder / f"train-{number:05d}.parquet"
        write_parquet(shard, table)
        # The datasets library keeps what it has read under the names that the card lists: other rows need
        # other names.
        shard.rename(shard.with_stem(f"{shard.stem}-{file_digest(shard)[:16]}"))


def _shards(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Batches of rows; one empty batch where there are none, so that a config without rows still loads."""
    batch: list[dict[str, Any]] = []
    number = 0
    for row in rows:
        batch.append(row)
        if len(batch) == ROWS_PER_SHARD:
            yield batch
            number, batch = number + 1, []
    if batch or not number:
        yield batch


def _who(face: StoredFace, taxonomy: Taxonomy) -> dict[str, Any]:
    group = taxonomy.groups[face.demographic]
    return {
        "identity": face.identity,
        "variation": face.variation,
        "demographic": face.demographic,
        "ethnicity": group.ethnicity,
        "sex": group.sex,
    }


def _image(face: StoredFace) -> dict[str, Any] | None:
    return None if face.fault else {"bytes": face.read(), "path": None}


def _labels(labels: Mapping[str, Any], taxonomy: Taxonomy) -> dict[str, str]:
    return {name: labels.get(name, "unknown") for name in taxonomy.attributes}


def _face_row(face: StoredFace, taxonomy: Taxonomy) -> dict[str, Any]:
    return {
        **_who(face, taxonomy),
        "image": _image(face),
        "sha256": face.sha256,
        "labels": _labels(face.labels, taxonomy),
        "age": face.age,
        "distorted": face.distorted,
        "provenance": face.provenance,
        "fault": face.fault,
    }


def _candidate_row(item: Judged, taxonomy: Taxonomy) -> dict[str, Any]:
    return {
        "pair_id": item.pair_id,
        **_face_row(item.transformed, taxonomy),
        "attribute": item.transformed.attribute,
        "source_sha256": item.source.sha256,
    }


def _decision(item: Judged, taxonomy: Taxonomy) -> dict[str, Any]:
    """What pairs and verdicts share: digests, labels and ages as the detectors saw them."""
    evidence = item.evidence
    return {
        "pair_id": item.pair_id,
        **_who(item.source, taxonomy),
        "attribute": item.transformed.attribute,
        "source_sha256": item.source.sha256,
        "transformed_sha256": item.transformed.sha256,
        "source_labels": _labels(evidence.source_labels, taxonomy),
        "transformed_labels": _labels(evidence.transformed_labels, taxonomy),
        "source_age": evidence.source_age,
        "transformed_age": evidence.transformed_age,
        "distortion": item.distortion,
    }


def _pair_row(item: Judged, taxonomy: Taxonomy) -> dict[str, Any]:
    return {
        **_decision(item, taxonomy),
        "source": _image(item.source),
        "transformed": _image(item.transformed),
        "provenance": item.transformed.provenance,
    }


def _verdict_row(item: Judged, taxonomy: Taxonomy) -> dict[str, Any]:
    return {
        **_decision(item, taxonomy),
        "kept": item.verdict.kept,
        "reason": item.verdict.reason or "",
        "detail": item.verdict.detail,
        "violations": [violation.reason for violation in item.verdict.violations],
        "distorted": item.evidence.distorted,
        "complete": item.evidence.complete,
        "audited": item.evidence.audited,
        "label_reasons": canonical_json(item.evidence.label_reasons),
    }
