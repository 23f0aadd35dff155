"""The dataset card: what the pictures are, how they were filtered, what they can't show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from dataset_builder.funnel import FunnelCell
from dataset_builder.recipe import Recipe
from dataset_builder.schema.taxonomy import Taxonomy
from dataset_builder.schema.verdict import REASONS
from targets.base.text import without_control_characters

CONFIGS = ("pairs", "sources", "candidates", "verdicts")

_REASON_WORDS = {
    "unreadable": "a picture can't be read or has one colour only",
    "identical": "the edit changed no pixel",
    "distorted": "the transformed face is distorted",
    "age_moved": "the age moved too far, or not far enough where that is the edit",
    "source_has_attribute": "the source face has the attribute already",
    "attribute_absent": "the attribute is not there after the edit",
    "other_changed": "another attribute changed",
    "unknown": "a detector could not tell",
}


def card_text(
    recipe: Recipe,
    taxonomy: Taxonomy,
    cells: Sequence[FunnelCell],
    detectors: Mapping[str, str],
    files: Mapping[str, Sequence[str]],
    *,
    n_sources: int,
    n_kept: int,
    filtering: Sequence[str] = (),
) -> str:
    """The card as Markdown with its YAML header.

    Args:
        recipe: what was built.
        taxonomy: its groups and attributes.
        cells: the funnel.
        detectors: role -> digest of the weights that decided.
        files: config -> its parquet files.
        n_sources, n_kept: source faces, kept pairs.
        filtering: lines about attrition, the audit sample and what no detector could tell.
    """
    n_candidates = sum(cell.candidates for cell in cells)
    lines = [
        _header(recipe, files),
        f"# {recipe.title}",
        "",
        *(f"{note}\n" for note in recipe.notes),
        f"{n_kept:,} counterfactual pairs, filtered from {n_candidates:,} candidates over {n_sources:,}",
        "source faces. A pair is a source face, and the same face with one attribute added.",
        "",
        *_intended_use(),
        *_configs(),
        *_filter(recipe, detectors),
        *_funnel(cells, taxonomy),
        *filtering,
    ]
    return without_control_characters("\n".join(lines))


def _header(recipe: Recipe, files: Mapping[str, Sequence[str]]) -> str:
    from huggingface_hub import DatasetCardData

    configs = [
        {
            "config_name": name,
            "data_files": list(files[name]),
            **({"default": True} if name == "pairs" else {}),
        }
        for name in CONFIGS
    ]
    data = DatasetCardData(
        license=recipe.licence,
        pretty_name=recipe.title,
        tags=["counterfactual", "faces", "synthetic", "fairness", "facedelta"],
        configs=configs,
    )
    return f"---\n{data.to_yaml()}\n---\n"


def _intended_use() -> list[str]:
    return [
        "## Use and limits",
        "",
        "For finding out how a face-vision model's scores change when one thing about a face changes, for",
        "faces prompted or rendered as each group. The groups are settings of the generator, not statements",
        "about people. The faces are synthetic: no error rate of a population can be read from them, and",
        "nobody may be identified, classified or scored with them. The pairs are not for training.",
        "",
    ]


def _configs() -> list[str]:
    return [
        "| config | one row is |",
        "|---|---|",
        "| `pairs` | a kept pair: both pictures, labels, ages, provenance |",
        "| `sources` | a source face, once |",
        "| `candidates` | a transformed face, kept or not, with its source's digest |",
        "| `verdicts` | the filter's decision on a candidate, with every rule that did not hold |",
        "",
    ]


def _filter(recipe: Recipe, detectors: Mapping[str, str]) -> list[str]:
    age = recipe.detect.age_detector
    decided = {
        "distortion": recipe.detect.distortion or "the generator's own knowledge",
        "age": age.target if age else "the generator's own knowledge",
        "attributes": _attribute_detector(recipe),
    }
    lines = [
        "## Filter",
        "",
        f"Specificity `{recipe.filter.specificity}`, unknown labels: `{recipe.filter.unknown}`. Decided by:",
        "",
    ]
    for role, by in decided.items():
        digest = f" (weights {detectors[role][:16]})" if role in detectors else ""
        lines.append(f"- {role}: {by}{digest}")
    return [*lines, ""]


def _attribute_detector(recipe: Recipe) -> str:
    settings = recipe.detect.attributes
    if settings.method == "vlm":
        return f"the vision-language model {settings.model}, form `{settings.form}`"
    if settings.method == "clip":
        return f"concept scores of {settings.target}"
    if settings.method == "choice":
        return f"the best of several detectors an attribute and group ({settings.file})"
    return "the generator's own knowledge"


def _funnel(cells: Sequence[FunnelCell], taxonomy: Taxonomy) -> list[str]:
    attributes = list(dict.fromkeys(cell.attribute for cell in cells))
    groups = list(taxonomy.groups)
    by_cell = {(cell.attribute, cell.demographic): cell for cell in cells}
    lines = [
        "## Funnel",
        "",
        "Kept of candidates, with the 99.9 % Wilson interval of the kept share on the effective sample size",
        "by identity. Where all or none are kept, the number of identities stands in for that size.",
        "",
        f"| attribute | {' | '.join(groups)} |",
        f"|---|{'---:|' * len(groups)}",
    ]
    for attribute in attributes:
        texts = [_cell_text(by_cell[attribute, group]) for group in groups]
        lines.append(f"| {attribute} | {' | '.join(texts)} |")
    return [*lines, "", *_rejections(cells, groups)]


def _cell_text(cell: FunnelCell) -> str:
    if cell.share is None or cell.low is None or cell.high is None:
        return "no candidate"
    return f"{cell.kept} of {cell.candidates} [{cell.low:.2f}, {cell.high:.2f}]"


def _rejections(cells: Sequence[FunnelCell], groups: Sequence[str]) -> list[str]:
    counts: Counter[tuple[str, str]] = Counter()
    for cell in cells:
        for reason, count in cell.rejected.items():
            counts[reason, cell.demographic] += count
    lines = [
        "Rejected, by the first rule that did not hold (`verdicts` lists them all):",
        "",
        f"| rule | {' | '.join(groups)} |",
        f"|---|{'---:|' * len(groups)}",
    ]
    for reason in REASONS:
        texts = [str(counts[reason, group]) for group in groups]
        lines.append(f"| {_REASON_WORDS[reason]} | {' | '.join(texts)} |")
    return [*lines, ""]
