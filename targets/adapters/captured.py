"""``captured:FILE``: scores that a model gave earlier, somewhere else.

Read are:

- the log of an instrumented app (West et al., 2024): a line with the picture's path, then one line of
  ``concept,score`` items each followed by a tab; ``READY``, ``DONE`` and bare whole numbers are noise. A path
  without scores is "no_answer". What was skipped or cut off is counted in a warning;
- a table in a text file without a header, with the names of its columns as setting ``columns``;
- tables (.csv, .tsv, .jsonl, .parquet), long (``image, concept, score``) or wide (``image`` and one column
  a concept). A column ``face_count``, as in TikTok's per-face log, makes a picture with no face "no_face"
  and one with several "no_answer". A column ``model`` must hold one value, or ``model`` is set.

Pictures are matched by the manifest of ``facedelta capture export`` (setting ``manifest``), else by path:
the whole path, or its end, or the base name where that is the only one.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from targets.base.config import Settings, validated
from targets.base.errors import InputError
from targets.base.hashing import file_digest
from targets.base.tables import (
    ObjectArray,
    Table,
    decimal_hint,
    parse_number,
    parse_numbers,
    read_table,
    read_text,
)
from targets.base.text import counted, shortlist, utf8
from targets.card import ScoreRange, TargetCard
from targets.protocol import NO_ANSWER, NO_FACE, FloatArray, NoScores, PictureId, Scores

_IMAGE_COLUMNS = ("image", "file_name", "path", "picture")
_NOISE = {"READY", "DONE"}
SKIPPED = "-"


class CapturedSettings(Settings):
    """Settings of the target.

    Attributes:
        manifest: the manifest.csv of ``facedelta capture export``, where the capture used its pictures.
        encoding: of a text file.
        model: which model's rows to take, where the table holds several.
        score_range: lowest and highest score that the model can give, for a gate.
        columns: names of a text table's columns where it has no header, "-" for one to leave out.
        nan_means: the reason of a picture that was captured without a score: "no_answer" or "no_face".
    """

    manifest: Path | None = None
    encoding: str = "utf-8"
    model: str | None = None
    score_range: ScoreRange | None = None
    columns: tuple[str, ...] = ()
    nan_means: NoScores = NO_ANSWER


class Captured:
    """Recorded answers, by picture path or by pixel hash."""

    def __init__(self, path: Path, settings: CapturedSettings) -> None:
        answers = _read(path, settings)
        self.concepts = answers.concepts
        self.needs_pixels = settings.manifest is not None
        self._answers = answers.by_path
        self._reasons = answers.reasons
        self.remarks = answers.remarks()
        self._by_hash = _by_hash(settings.manifest, answers.by_path, path) if settings.manifest else None
        self._path = path
        self.card = TargetCard(
            name=f"captured {utf8(path.name)}",
            settings={
                **settings.model_dump(mode="json", exclude_none=True),
                **manifest_facts(settings.manifest),
            },
            score_range=settings.score_range,
            code=file_digest(path),
            detection="as in the capture",
            source=utf8(path.name),
            nan_means=settings.nan_means,
        )

    def lookup(self, ids: Sequence[PictureId]) -> Scores:
        """Return the captured scores of n pictures.

        Raises:
            InputError: without a manifest, a base name that several pictures or log entries share.
        """
        found = matched(ids, list(self._answers), self._by_hash, self._path)
        self.no_match = "" if any(found) else self._no_match(ids)
        values = np.full((len(ids), len(self.concepts)), np.nan)
        reasons: list[str | None] = []
        for index, key in enumerate(found):
            if key is not None:
                values[index] = self._answers[key]
            silent = bool(np.isnan(values[index]).all())
            reason = self._reasons.get(key, self.card.nan_means if silent else None) if key else NO_ANSWER
            reasons.append(reason)
        return Scores(values, tuple(reasons))

    def _no_match(self, ids: Sequence[PictureId]) -> str:
        names = f"'{next(iter(self._answers))}' there, '{ids[0].name}' here" if ids else "no picture"
        mend = (
            "was it captured from that manifest's pictures?"
            if self._by_hash is not None
            else "if it was captured from an export, pass --set manifest=FOLDER/manifest.csv"
        )
        return f"{self._path} names none of the {counted(len(ids), 'picture')} of the pairs ({names}); {mend}"


def matched(
    ids: Sequence[PictureId], keys: Sequence[str], by_hash: Mapping[str, str] | None, path: Path
) -> list[str | None]:
    """For each picture the name it has in a capture, or None.

    Args:
        ids: n pictures.
        keys: names in the capture.
        by_hash: pixel hash -> name, where the capture used an export; then only that counts.
        path: of the capture, for messages.

    Raises:
        InputError: without ``by_hash``, a base name that several pictures or entries share.
    """
    if by_hash is not None:
        return [by_hash.get(item.pixel_hash or "") for item in ids]
    entries: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        entries[_base(key)].append(key)
    askers: dict[str, set[str]] = defaultdict(set)
    for item in ids:
        askers[_base(item.name)].add(item.name)
    return [_match_one(item.name, entries[_base(item.name)], askers[_base(item.name)], path) for item in ids]


def _match_one(name: str, entries: list[str], askers: set[str], path: Path) -> str | None:
    if not entries:
        return None
    whole = [key for key in entries if _ends_with(key, name)]
    if len(whole) == 1:
        return whole[0]
    if len(entries) == 1 and len(askers) == 1:
        return entries[0]
    raise InputError(
        f"{path}: base name '{_base(name)}' is ambiguous ({len(askers)} pictures of the pairs, "
        f"{len(entries)} entries of the log: {shortlist(entries, 3)}); capture the pictures that "
        "'facedelta capture export' writes and pass --set manifest=manifest.csv"
    )


def _base(path: str) -> str:
    return PurePosixPath(_written(path)).name


def _written(path: str) -> str:
    """A path as it is compared: with forward slashes, and in one Unicode form."""
    return unicodedata.normalize("NFC", path.replace("\\", "/"))


def _ends_with(key: str, name: str) -> bool:
    longer = PurePosixPath(_written(key)).parts
    shorter = tuple(part for part in PurePosixPath(_written(name)).parts if part != ".")
    return longer[-len(shorter) :] == shorter


class _Answers:
    """Collects answers and refuses two different ones for one picture and concept."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.order: dict[str, int] = {}
        self.scores: dict[str, dict[str, float]] = {}
        self.reasons: dict[str, str] = {}
        self.noise = self.cut = 0
        self.odd: list[str] = []

    def remarks(self) -> tuple[str, ...]:
        """What was met besides scores, one sentence each."""
        silent = sum(not row for row in self.scores.values())
        met = (
            (self.noise, "line of noise", "lines of noise", "skipped"),
            (self.cut, "line cut off", "lines cut off", "last score dropped"),
            (silent, "path without scores", "paths without scores", "no answer"),
        )
        name = self.source.name
        said = [f"{name}: {counted(n, one, many)}, {what}" for n, one, many, what in met if n]
        if self.odd:
            said.append(
                f"{name}: {counted(len(self.odd), 'score')} no finite number ({self.odd[0]}), no answer"
            )
        return tuple(said)

    def add(self, image: str, concept: str, score: float, where: str) -> None:
        self.order.setdefault(concept, len(self.order))
        row = self.scores.setdefault(image, {})
        if concept in row and not (row[concept] == score or (np.isnan(row[concept]) and np.isnan(score))):
            both = f"{row[concept]} and {score}"
            raise InputError(f"{where}: picture '{image}' has two scores for '{concept}', {both}; keep one")
        row[concept] = score

    @property
    def concepts(self) -> tuple[str, ...]:
        return tuple(self.order)

    @property
    def by_path(self) -> dict[str, FloatArray]:
        names = self.concepts
        return {
            image: np.array([row.get(name, np.nan) for name in names], dtype=np.float64)
            for image, row in self.scores.items()
        }


def _read(path: Path, settings: CapturedSettings) -> _Answers:
    if not path.is_file():
        raise InputError(f"target captured: no such file: {path}")
    if path.suffix.lower() in {".csv", ".tsv", ".jsonl", ".ndjson", ".parquet"}:
        answers = _read_table(read_table(path, settings.encoding), settings)
    else:
        answers = _read_plain(path, read_text(path, settings.encoding), settings)
    if not answers.concepts:
        raise InputError(f"{path} holds no scores")
    return answers


def _read_plain(path: Path, text: str, settings: CapturedSettings) -> _Answers:
    if settings.columns:
        return _read_table(_headless(path, text, settings.columns), settings)
    if _is_headless(text):
        count = next(line for line in text.split("\n") if "\t" in line).count("\t") + 1
        raise InputError(
            f"{path} is a table of {count} columns without a header: name them in order, '{SKIPPED}' for one "
            """to leave out, as in --set 'columns=["image", "face_count", "age", "boy_prob"]'"""
        )
    return _read_log(path, text)


def _read_log(path: Path, text: str) -> _Answers:
    answers = _Answers(path)
    lines = [line.rstrip("\r ") for line in text.split("\n")]
    # Where lines end in a tab, one that does not was cut off, and its last number may lack digits.
    tabbed = any(line.endswith("\t") for line in lines)
    image: str | None = None
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if not stripped:
            continue
        if stripped in _NOISE or stripped.lstrip("-").isdigit():
            answers.noise += 1
            continue
        if "\t" not in line:
            image = stripped
            answers.scores.setdefault(image, {})
            continue
        if image is None:
            raise InputError(f"{path} line {number}: scores without a picture's path on the line before")
        items = [part.strip() for part in line.split("\t")]
        if tabbed and items[-1]:
            answers.cut += 1
            items.pop()
        _read_items(answers, image, items, f"{path} line {number}")
        image = None
    return answers


def _read_items(answers: _Answers, image: str, items: Iterable[str], where: str) -> None:
    for item in filter(None, items):
        concept, comma, score = item.rpartition(",")
        value, fault = parse_number(score)
        # "smile,0,42" would be a concept "smile,0" with the score 42.
        comma_inside = re.search(r",\s*[+-]?\d+$", concept)
        if not comma or not concept or comma_inside or (fault and fault != "absent"):
            hint = decimal_hint(item[comma_inside.start() + 1 :]) if comma_inside else ""
            raise InputError(f"{where}: an item must be concept,score, got '{item}'{hint}")
        answers.add(image, concept.strip(), value, where)


def _headless(path: Path, text: str, columns: Sequence[str]) -> Table:
    """A table without a header; its columns are named by the setting."""
    rows = [line.rstrip("\r").split("\t") for line in text.split("\n") if line.strip()]
    rows = [row for row in rows if len(row) > 1 or row[0].strip() not in _NOISE]
    for row in rows:
        if len(row) != len(columns):
            raise InputError(
                f"{path}: every row must have the {len(columns)} cells that the setting columns names, got "
                f"{len(row)} in '{' | '.join(row)}'"
            )
    cells = {
        name: np.array([row[index].strip() for row in rows], dtype=object)
        for index, name in enumerate(columns)
        if name != SKIPPED
    }
    return Table(path.with_suffix(".tsv"), cells, first_row=1)


def _is_headless(text: str) -> bool:
    """Whether the first line with a tab holds bare cells: a path among them, and no concept,score item."""
    first = next((line for line in text.split("\n") if "\t" in line), "")
    return bool(first) and not any("," in cell for cell in first.split("\t"))


def _read_table(table: Table, settings: CapturedSettings) -> _Answers:
    image_column = next((name for name in _IMAGE_COLUMNS if name in table.columns), None)
    if image_column is None:
        raise InputError(
            f"{table.path}: a captured table needs a column 'image' (or {', '.join(_IMAGE_COLUMNS[1:])}); "
            f"found {shortlist(list(table.columns), 8)}"
        )
    rows = _rows_of_model(table, settings.model)
    images = table.text(image_column)
    answers = _Answers(table.path)
    _read_face_counts(table, images, rows, answers)
    if {"concept", "score"} <= set(table.columns):
        columns: list[tuple[str | None, ObjectArray]] = [(None, table.columns["score"])]
    else:
        skip = {image_column, "model", "face_count"}
        columns = [(name, column) for name, column in table.columns.items() if name not in skip]
    concepts = table.text("concept") if columns[0][0] is None else None
    is_text = table.path.suffix.lower() in {".csv", ".tsv"}
    for name, column in columns:
        numbers, faults = parse_numbers(column, text_is_number=is_text)
        odd = [index for index in rows if faults.get(index, "absent") != "absent"]
        answers.odd += [f"{column[i]!r} in {table.row(i)}{decimal_hint(column[i])}" for i in odd]
        for index in rows:
            concept = name if name is not None else str(concepts[index]) if concepts is not None else ""
            answers.add(images[index], concept, float(numbers[index]), table.row(index))
    return answers


def _rows_of_model(table: Table, wanted: str | None) -> list[int]:
    if "model" not in table.columns:
        return list(range(len(table)))
    models: ObjectArray = table.text("model")
    names = list(dict.fromkeys(models))
    if wanted is None and len(names) > 1:
        raise InputError(
            f"{table.path} holds {len(names)} models: choose one with --set model=NAME ({shortlist(names)})"
        )
    if wanted is not None and wanted not in names:
        raise InputError(f"{table.path} holds no model '{wanted}', only {shortlist(names)}")
    return [index for index, model in enumerate(models) if wanted in (None, model)]


def _read_face_counts(table: Table, images: ObjectArray, rows: list[int], answers: _Answers) -> None:
    if "face_count" not in table.columns:
        return
    for index in rows:
        count, fault = parse_number(table.columns["face_count"][index])
        if fault or count != 1:
            answers.reasons[images[index]] = NO_FACE if count == 0 else NO_ANSWER


def manifest_facts(manifest: Path | None) -> dict[str, str]:
    """For a card: the digest of a manifest, which says what picture an entry is about."""
    return {} if manifest is None else {"manifest_sha256": file_digest(manifest)}


def names_by_hash(manifest: Path, keys: Iterable[str], path: Path) -> dict[str, list[str]]:
    """Pixel hash -> names in a capture, by the manifest of the export it was made from.

    Raises:
        InputError: the manifest lacks a column, or names none of the capture's pictures.
    """
    table = read_table(manifest)
    table.require(("file_name", "pixel_hash"), "a capture manifest")
    hashes = dict(zip(table.text("file_name"), table.text("pixel_hash"), strict=True))
    found: dict[str, list[str]] = {}
    for key in keys:
        pixel_hash = hashes.get(_base(key))
        if pixel_hash is not None:
            found.setdefault(pixel_hash, []).append(key)
    if not found:
        raise InputError(f"{path}: no entry has a file name of {manifest}; was it captured from that export?")
    return found


def _by_hash(manifest: Path, answers: Mapping[str, FloatArray], path: Path) -> dict[str, str]:
    found = names_by_hash(manifest, answers, path)
    for keys in found.values():
        for key in keys[1:]:
            if not np.array_equal(answers[keys[0]], answers[key], equal_nan=True):
                raise InputError(f"{path}: '{_base(key)}' was captured twice with different scores; keep one")
    return {pixel_hash: keys[0] for pixel_hash, keys in found.items()}


def load(argument: str | None, settings: Mapping[str, Any]) -> Captured:
    """Load ``captured:FILE``.

    Raises:
        InputError: no file, unreadable file, conflicting scores, unknown setting.
    """
    if argument is None:
        raise InputError("name the captured file: captured:FILE")
    return Captured(Path(argument), validated(CapturedSettings, settings, "target captured"))
