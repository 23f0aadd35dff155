"""The best of several detectors for each attribute and group, by how they agree with people (paper v3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from dataset_builder.detect.attributes import attribute_detector
from dataset_builder.detect.labels import FaceLabels, FacePair, GoesOn, PairLabeller, PairLabels
from dataset_builder.detect.settings import Attributes, Choice, Clip, GroundTruth, Vlm
from dataset_builder.detect.vlm_examples import label_of
from dataset_builder.schema.taxonomy import Taxonomy
from dataset_builder.schema.verdict import Label
from harness.stats.proportions import clopper_pearson
from targets.base.config import Settings, validated
from targets.base.errors import InputError
from targets.base.files import read_regular, write_json
from targets.base.strict_json import parse_json
from targets.base.tables import read_table

LEVEL = 0.95
# (sha256 of the picture, attribute) -> what people say
HumanLabels = Mapping[tuple[str, str], Label]


class Agreement(Settings):
    """How one detector agrees with people about one attribute and group.

    Attributes:
        detector: its place in the list.
        n, agree, unknown: faces people labelled; where the detector says the same; where it can't tell.
        low, high: exact (Clopper-Pearson) 95 % interval of agree / n.
    """

    detector: int
    attribute: str
    group: str
    n: int
    agree: int
    unknown: int
    low: float
    high: float


class ChoiceFile(Settings):
    """What ``detector choose`` writes.

    Attributes:
        detectors: settings of each, cheapest first.
        chosen: attribute -> group -> place of the detector.
        agreement: the tables behind the choice.
        pooled: "attribute group" of cells with too few labels of their own, decided by the attribute's
            labels of all groups.
        unlabelled: attributes without a human label, left to the first detector.
        min_labels: labels a cell needs to be decided by itself.
    """

    detectors: tuple[Attributes, ...] = Field(min_length=1)
    chosen: dict[str, dict[str, int]]
    agreement: tuple[Agreement, ...]
    pooled: tuple[str, ...]
    unlabelled: tuple[str, ...]
    min_labels: int

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        write_json(path, self.model_dump(mode="json"))

    def in_use(self) -> list[Vlm | Clip | GroundTruth | Choice]:
        """Settings of the detectors that are chosen for something, cheapest first."""
        return [self.detectors[place] for place in self._places()]

    def _places(self) -> list[int]:
        return sorted({place for groups in self.chosen.values() for place in groups.values()})

    def labeller(
        self, taxonomy: Taxonomy, folder: Path, work: Path, *, show_progress: bool
    ) -> ChosenDetectors:
        """The detectors at work; paths in their settings start from ``folder`` where something is there."""
        detectors: dict[int, PairLabeller] = {}
        for place in self._places():
            found = attribute_detector(
                self.detectors[place], taxonomy, folder, work, show_progress=show_progress
            )
            if found is None:
                raise InputError("a choice is between detectors that look at faces, not ground truth")
            detectors[place] = found
        return ChosenDetectors(detectors, self.chosen)


def load_choice(path: Path) -> ChoiceFile:
    """Read a choice.

    Raises:
        InputError: missing file, not JSON, or no choice.
    """
    try:
        data = parse_json(read_regular(path).decode())
    except FileNotFoundError:
        raise InputError(f"no such choice of detectors: {path}") from None
    except ValueError as error:
        raise InputError(f"{path} must be JSON: {error}") from None
    return validated(ChoiceFile, data, str(path))


@dataclass(frozen=True)
class ChosenDetectors:
    """Asks each detector about the groups it is best for, and takes its word on those attributes."""

    detectors: Mapping[int, PairLabeller]
    chosen: Mapping[str, Mapping[str, int]]

    def label_pairs(self, pairs: Sequence[FacePair], goes_on: GoesOn) -> list[PairLabels]:
        """One answer a pair, in order.

        A transformed face is spared only where the detector chosen for its attribute spares it; that one is
        asked first.
        """
        answers: dict[tuple[int, int], PairLabels] = {}
        spared: set[int] = set()
        for leading in (True, False):
            for place, detector in self.detectors.items():
                rows = [
                    row
                    for row, pair in enumerate(pairs)
                    if place in self._places(pair) and (self._leader(pair) == place) is leading
                ]
                allowed = (lambda _, __: True) if not leading else _renumbered(goes_on, rows)
                asked = [row for row in rows if row not in spared]
                found = detector.label_pairs([pairs[row] for row in asked], allowed)
                for row, labels in zip(asked, found, strict=True):
                    answers[row, place] = labels
                    if labels.transformed is None:
                        spared.add(row)
        return [self._merged(row, pair, answers) for row, pair in enumerate(pairs)]

    def _places(self, pair: FacePair) -> set[int]:
        return {groups[pair.group] for groups in self.chosen.values() if pair.group in groups}

    def _leader(self, pair: FacePair) -> int:
        own = self.chosen.get(pair.attribute, {}).get(pair.group)
        return own if own is not None else min(self._places(pair), default=-1)

    def _merged(self, row: int, pair: FacePair, answers: Mapping[tuple[int, int], PairLabels]) -> PairLabels:
        leader = answers[row, self._leader(pair)]
        sides: list[FaceLabels | None] = []
        for side in ("source", "transformed"):
            labels: dict[str, Label] = {}
            reasons: dict[str, str] = {}
            for name, groups in self.chosen.items():
                answer = answers.get((row, groups.get(pair.group, -1)))
                face: FaceLabels | None = getattr(answer, side, None)
                labels[name] = face.labels.get(name, "unknown") if face else "unknown"
                if face and name in face.reasons:
                    reasons[name] = face.reasons[name]
            sides.append(FaceLabels(labels, reasons))
        source, transformed = sides
        assert source is not None  # noqa: S101
        return PairLabels(source, transformed if leader.transformed is not None else None)

    def used(self) -> dict[str, str]:
        """Role -> what was asked, one role a detector."""
        return {
            f"attributes {place}": next(iter(detector.used().values()))
            for place, detector in self.detectors.items()
        }

    def summary(self) -> list[str]:
        """What the work took, detector by detector."""
        return [line for detector in self.detectors.values() for line in detector.summary()]


def _renumbered(goes_on: GoesOn, rows: Sequence[int]) -> GoesOn:
    return lambda number, source: goes_on(rows[number], source)


def read_human_labels(path: Path, *, attribute: str | None = None) -> dict[tuple[str, str], Label]:
    """Labels by people, from a table with the columns sha256, attribute and label.

    With ``attribute`` given, the label is in a column of that name instead, about that one only. Of several
    people's labels of one face the majority counts; a tie is no label.

    Raises:
        InputError: missing file or column, or a label that is none.
    """
    table = read_table(path)
    names = ("sha256", "attribute", "label") if attribute is None else ("sha256", attribute)
    table.require(names, "a table of human labels")
    subjects = table.text("attribute") if attribute is None else [attribute] * len(table)
    columns = table.text("sha256"), subjects, table.text(names[-1])
    votes: dict[tuple[str, str], list[Label]] = {}
    for row, (sha256, subject, text) in enumerate(zip(*columns, strict=True)):
        votes.setdefault((sha256, subject), []).append(label_of(text, table.row(row)))
    decided: dict[tuple[str, str], Label] = {}
    for key, given in votes.items():
        yes, no = given.count("yes"), given.count("no")
        if yes != no:
            decided[key] = "yes" if yes > no else "no"
    return decided


def choose(
    settings: Sequence[Vlm | Clip],
    labelled: Sequence[Sequence[PairLabels]],
    pairs: Sequence[FacePair],
    human: HumanLabels,
    attributes: Sequence[str],
    groups: Sequence[str],
    *,
    min_labels: int = 10,
) -> ChoiceFile:
    """Choose the detector that agrees most often; unknown is no agreement, and of equals the first wins.

    Args:
        settings: d detectors, cheapest first.
        labelled: what each of them says about all pairs.
        pairs: n pairs with at least one face that people labelled.
        human: what people say.
        attributes, groups: the cells to decide.
        min_labels: labels a cell needs to be decided by itself; others are pooled over the groups.
    """
    counts = _counts(labelled, pairs, human)
    agreement: list[Agreement] = []
    chosen: dict[str, dict[str, int]] = {}
    pooled: list[str] = []
    unlabelled: list[str] = []
    for name in attributes:
        whole = [_sum(counts, place, name, groups) for place in range(len(settings))]
        chosen[name] = {}
        if not whole[0][0]:
            unlabelled.append(name)
        for group in groups:
            own = [counts.get((place, name, group), (0, 0, 0)) for place in range(len(settings))]
            agreement += [
                _agreement(place, name, group, found) for place, found in enumerate(own) if found[0]
            ]
            if own[0][0] < min_labels:
                pooled.append(f"{name} {group}")
            deciding = own if own[0][0] >= min_labels else whole
            chosen[name][group] = max(range(len(settings)), key=lambda place: (deciding[place][1], -place))
    return ChoiceFile(
        detectors=tuple(settings),
        chosen=chosen,
        agreement=tuple(agreement),
        pooled=tuple(cell for cell in pooled if cell.split()[0] not in unlabelled),
        unlabelled=tuple(unlabelled),
        min_labels=min_labels,
    )


_Count = tuple[int, int, int]


def _counts(
    labelled: Sequence[Sequence[PairLabels]], pairs: Sequence[FacePair], human: HumanLabels
) -> dict[tuple[int, str, str], _Count]:
    """(detector, attribute, group) -> faces with a human label, agreements, unknowns; a face counts once."""
    counts: dict[tuple[int, str, str], _Count] = {}
    by_face: dict[str, dict[str, Label]] = {}
    for (sha256, attribute), label in human.items():
        by_face.setdefault(sha256, {})[attribute] = label
    for place, answers in enumerate(labelled):
        faces: dict[str, tuple[str, FaceLabels]] = {}
        for pair, answer in zip(pairs, answers, strict=True):
            faces[pair.source.name] = pair.group, answer.source
            if answer.transformed is not None:
                faces[pair.transformed.name] = pair.group, answer.transformed
        for name, (group, face) in faces.items():
            for attribute, wanted in by_face.get(name, {}).items():
                label = face.labels.get(attribute, "unknown")
                n, agree, unknown = counts.get((place, attribute, group), (0, 0, 0))
                counts[place, attribute, group] = (
                    n + 1,
                    agree + (label == wanted),
                    unknown + (label == "unknown"),
                )
    return counts


def _sum(
    counts: Mapping[tuple[int, str, str], _Count], place: int, attribute: str, groups: Sequence[str]
) -> _Count:
    found = [counts.get((place, attribute, group), (0, 0, 0)) for group in groups]
    return sum(c[0] for c in found), sum(c[1] for c in found), sum(c[2] for c in found)


def _agreement(place: int, attribute: str, group: str, count: _Count) -> Agreement:
    n, agree, unknown = count
    low, high = clopper_pearson(agree, n, LEVEL)
    fields: dict[str, Any] = {"n": n, "agree": agree, "unknown": unknown, "low": low, "high": high}
    return Agreement(detector=place, attribute=attribute, group=group, **fields)
