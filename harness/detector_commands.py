"""``facedelta detector confusion|choose|tune``: detectors beside the truth and beside people."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dataset_builder.detect.attributes import attribute_detector, presence
from dataset_builder.detect.choice import ChoiceFile, choose, read_human_labels
from dataset_builder.detect.distortion import load_distortion_model
from dataset_builder.detect.evaluation import (
    Candidate,
    Confusion,
    Effect,
    confusion,
    effects,
    kept_counts,
    load_candidates,
    relabelled,
    verdicts,
)
from dataset_builder.detect.labels import FacePair, PairLabeller
from dataset_builder.detect.settings import Clip, Vlm, load_detector
from dataset_builder.detect.tuning import judged_faces, tune, untunable
from dataset_builder.folder import WORK_FOLDER
from dataset_builder.published import read_build
from dataset_builder.schema.taxonomy import Taxonomy
from harness.streams import tell
from targets.base.errors import InputError
from targets.catalogue import load_target

DatasetArgument = Annotated[Path, typer.Argument(help="A built dataset.")]
TaxonomyOption = Annotated[
    str | None, typer.Option(help="Its taxonomy, where the recipe's own is not at hand.")
]
ProgressOption = Annotated[bool, typer.Option(help="Show how far it is.")]


class TuneBy(StrEnum):
    """What shares a threshold."""

    CATEGORY = "category"
    CELL = "cell"


def add_commands(app: typer.Typer) -> None:
    """Add the commands to ``facedelta detector``."""
    app.command("confusion")(confusion_command)
    app.command("choose")(choose_command)
    app.command("tune")(tune_command)


def confusion_command(
    dataset: DatasetArgument,
    detector: Annotated[
        Path | None, typer.Option(help="TOML file of another attribute detector to ask first.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Target whose deltas on both kept sets are compared.")
    ] = None,
    taxonomy: TaxonomyOption = None,
    progress: ProgressOption = True,
) -> None:
    """Set a detector's labels beside the generator's knowledge, and say what its errors do to deltas."""
    dataset = dataset.absolute()
    recipe, known = read_build(dataset, taxonomy)
    candidates = load_candidates(dataset)
    if detector is not None:
        candidates = relabelled(candidates, _labeller(detector, known, dataset, progress=progress))
    groups = list(known.groups)
    for cell in confusion(candidates, list(presence(known)), groups):
        tell(_confusion_line(cell))
    kept = verdicts(candidates, known, recipe)
    tell("\nkept under the truth / under the detector / under both:")
    for count in kept_counts(candidates, kept):
        tell(f"{count.attribute} {count.group}: {count.truth} / {count.detector} / {count.both}")
    if target is None:
        return
    loaded = load_target(target)
    cache = dataset / WORK_FOLDER / "scores"
    try:
        found = effects(candidates, kept, loaded, cache, show_progress=progress)
    finally:
        loaded.close()
    tell(f"\nmean change of {loaded.card.name}, truth -> detector, 99.9 % intervals by identity:")
    for effect in found:
        tell(_effect_line(effect))


def _labeller(path: Path, taxonomy: Taxonomy, dataset: Path, *, progress: bool) -> PairLabeller:
    found = attribute_detector(
        load_detector(path), taxonomy, path.parent, dataset / WORK_FOLDER, show_progress=progress
    )
    if found is None:
        raise InputError(f"{path}: ground truth is what detectors are compared with; name another method")
    return found


def _confusion_line(cell: Confusion) -> str:
    shares = []
    for name, rate in (("sensitivity", cell.sensitivity), ("specificity", cell.specificity)):
        if rate is not None:
            shares.append(f"{name} {rate[0]:.3f} [{rate[1]:.3f}, {rate[2]:.3f}]")
    there = f"there: yes {cell.yes_yes}, no {cell.yes_no}, unknown {cell.yes_unknown}"
    absent = f"absent: yes {cell.no_yes}, no {cell.no_no}, unknown {cell.no_unknown}"
    return f"{cell.attribute} {cell.group}: {there}; {absent}; {', '.join(shares)}"


def _effect_line(effect: Effect) -> str:
    sides = []
    for delta, interval in (
        (effect.truth, effect.truth_interval),
        (effect.detector, effect.detector_interval),
    ):
        text = "no pair" if delta is None else f"{delta:.4g}"
        sides.append(f"{text} [{interval[0]:.4g}, {interval[1]:.4g}]" if interval else text)
    mark = "  depends on the detector" if effect.changed else ""
    return f"{effect.attribute} {effect.group} {effect.concept}: {' -> '.join(sides)}{mark}"


def choose_command(
    dataset: DatasetArgument,
    labels: Annotated[Path, typer.Option(help="Table of human labels: sha256, attribute, label.")],
    detector: Annotated[list[Path], typer.Option(help="TOML file of a detector; the cheapest first.")],
    out: Annotated[Path, typer.Option(help="JSON file of the choice, for method = 'choice'.")],
    min_labels: Annotated[int, typer.Option(min=1, help="Labels a cell needs to decide by itself.")] = 10,
    taxonomy: TaxonomyOption = None,
    progress: ProgressOption = True,
) -> None:
    """Choose the detector that agrees best with people, for each attribute and group."""
    _, known = read_build(dataset, taxonomy)
    human = read_human_labels(labels)
    judged = {sha256 for sha256, _ in human}
    candidates = [
        item
        for item in load_candidates(dataset, need_truth=False)
        if {item.source.name, item.transformed.name} & judged
    ]
    if not candidates:
        raise InputError(f"{labels} labels no face of {dataset}")
    pairs = [_pair(item) for item in candidates]
    settings = [_looks(path) for path in detector]
    labelled = [
        _labeller(path, known, dataset, progress=progress).label_pairs(pairs, lambda _, __: True)
        for path in detector
    ]
    found = choose(
        settings, labelled, pairs, human, list(presence(known)), list(known.groups), min_labels=min_labels
    )
    found.save(out)
    for line in _choice_lines(found, [path.name for path in detector]):
        tell(line)


def _pair(item: Candidate) -> FacePair:
    return FacePair(item.attribute, item.group, item.source, item.transformed)


def _looks(path: Path) -> Vlm | Clip:
    settings = load_detector(path)
    if not isinstance(settings, Vlm | Clip):
        raise InputError(f"{path}: a choice is between methods 'vlm' and 'clip', got '{settings.method}'")
    return settings


def _choice_lines(found: ChoiceFile, names: list[str]) -> list[str]:
    lines = [
        f"{item.attribute} {item.group}, {names[item.detector]}: {item.agree} of {item.n} as people say "
        f"[{item.low:.3f}, {item.high:.3f}], unknown {item.unknown}"
        for item in found.agreement
    ]
    lines += [
        f"chosen for {attribute}: {', '.join(f'{group} {names[place]}' for group, place in groups.items())}"
        for attribute, groups in found.chosen.items()
    ]
    if found.pooled:
        lines.append(
            f"fewer than {found.min_labels} labels, decided over all groups: {', '.join(found.pooled)}"
        )
    if found.unlabelled:
        lines.append(f"no label at all, left to {names[0]}: {', '.join(found.unlabelled)}")
    return lines


def tune_command(
    model: Annotated[Path, typer.Argument(help="JSON file of a trained distortion detector.")],
    dataset: DatasetArgument,
    labels: Annotated[Path, typer.Option(help="Table of human labels: sha256, distorted.")],
    out: Annotated[Path, typer.Option(help="JSON file of the tuned detector.")],
    by: Annotated[TuneBy, typer.Option(help="category: pooled. cell: attribute and group, as the paper.")] = (
        TuneBy.CATEGORY
    ),
    recall: Annotated[float, typer.Option(min=0.01, max=0.999, help="Share it must find.")] = 0.97,
    taxonomy: TaxonomyOption = None,
    progress: ProgressOption = True,
) -> None:
    """Tune a distortion detector's thresholds on people's labels, and say what those can show."""
    _, known = read_build(dataset, taxonomy)
    tuned, table = tune(
        load_distortion_model(model),
        judged_faces(dataset, labels),
        known,
        dataset / WORK_FOLDER / "scores",
        scope=by.value,
        recall=recall,
        show_progress=progress,
    )
    tuned.save(out)
    for item in table:
        if item.threshold is not None:
            tell(item.in_words(recall))
    if untunable(table):
        tell(untunable(table))
