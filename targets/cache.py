"""Scores kept on disk, one row a distinct picture, under everything that could change them."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from targets.base.config import not_json
from targets.base.errors import InputError, TargetError
from targets.base.files import CACHE_DIGITS, CACHED, read_parquet, write_json, write_parquet
from targets.base.hashing import settings_digest
from targets.base.strict_json import parse_json
from targets.base.text import excerpt
from targets.card import TargetCard
from targets.code import program_digest
from targets.protocol import FloatArray, NoScores

FLUSH_INTERVAL_S = 5.0
KEY_FILE, IN_FORCE_FILE = "key.json", "in_force.json"
RUN = "run"
_SCHEMA = pa.schema(
    [("pixel_hash", pa.string()), ("reason", pa.string()), ("values", pa.list_(pa.float64()))]
)


@dataclass
class ScoreCache:
    """Answers by pixel hash, in memory and as parquet shards in ``directory``.

    Shards are written whole or not at all, and always hold whole batches, so that a run that was killed
    goes on with the very batches it would have made undisturbed. ``width`` is the number of concepts; 0 for
    vectors, whose length shows when they are used.
    """

    directory: Path
    rows: dict[str, tuple[str | None, FloatArray]] = field(default_factory=dict)
    earlier: dict[str, tuple[str | None, FloatArray]] = field(default_factory=dict)
    in_force: dict[str, Any] = field(default_factory=dict)
    width: int = 0
    _unsaved: list[str] = field(default_factory=list)
    _saved_at: float = field(default_factory=time.monotonic)

    @classmethod
    def open(
        cls,
        root: Path,
        card: TargetCard,
        in_force: dict[str, Any] | None = None,
        *,
        run: str = "",
        hidden: str = "",
        resume: bool = False,
    ) -> ScoreCache:
        """Open the cache of one target under ``root``; another model, setting or concept list is another.

        Args:
            root: folder of all caches.
            card: of the target. Without digests of its weights nobody knows whether it is the same in another
                run, and the cache is this run's alone.
            in_force: what the target finds out while it is asked: filled here from an earlier run, kept
                before the first scores that depend on it.
            run: which run this is.
            hidden: digest of settings that the card doesn't tell, or empty.
            resume: whether a target without digests may go on with an earlier run: what that knew is in
                ``earlier`` until ``adopt``.
        """
        key = _key_of(card, hidden)
        cache = cls._at(root, key if card.pinned else {**key, RUN: run}, {} if in_force is None else in_force)
        if resume and not cache.rows and not card.pinned:
            found = [
                cls(path, in_force=cache.in_force, width=cache.width)._loaded()
                for path in _earlier(root, key)
            ]
            last = max(found, key=lambda one: len(one.rows), default=cache)
            cache.earlier = last.rows
            last._recall()
        return cache

    @classmethod
    def _at(cls, root: Path, key: dict[str, Any], in_force: dict[str, Any]) -> ScoreCache:
        cache = cls(root / settings_digest(key)[:CACHE_DIGITS], in_force=in_force, width=len(key["concepts"]))
        if cache.directory.is_dir():
            cache._recall()
            return cache._loaded()
        write_json(cache.directory / KEY_FILE, key)
        return cache

    def _loaded(self) -> ScoreCache:
        for shard in sorted(self.directory.glob("*.parquet")):
            self._load(shard)
        return self

    def adopt(self) -> None:
        """Use the answers of the earlier run."""
        for pixel_hash, (reason, values) in self.earlier.items():
            self.add(pixel_hash, reason, values)
        self.earlier = {}
        self.save(at_once=True)

    def _recall(self) -> None:
        path = self.directory / IN_FORCE_FILE
        try:
            self.in_force |= dict(parse_json(path.read_text(encoding="utf-8")) if path.exists() else {})
        except (ValueError, TypeError) as error:
            raise InputError(f"{path} can't be read ({error}); delete that folder") from None

    def _load(self, shard: Path) -> None:
        table = read_parquet(shard, _SCHEMA.names, advice="; delete that file of cached scores")
        try:
            columns = [column.to_pylist() for column in table.cast(_SCHEMA).columns]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"{shard} is no file of cached scores ({excerpt(error)}); delete it") from None
        for pixel_hash, reason, values in zip(*columns, strict=True):
            row = np.array([np.nan if value is None else value for value in values or ()], dtype=np.float64)
            known = reason is None or reason.partition(":")[0] in get_args(NoScores)
            if pixel_hash is None or not known or len(row) != (self.width or max(len(row), 1)):
                raise InputError(
                    f"{shard}: cached scores must have a picture, a known reason and "
                    f"{self.width or 'some'} numbers a row; delete that file"
                )
            self.rows.setdefault(pixel_hash, (reason, row))

    def add(self, pixel_hash: str, reason: str | None, values: FloatArray) -> None:
        """Keep one answer; it reaches the disk with the next ``save``."""
        self.rows[pixel_hash] = (reason, values)
        self._unsaved.append(pixel_hash)

    def save(self, *, at_once: bool = False) -> None:
        """Write what is new, if the last write is long enough ago or ``at_once``."""
        if not self._unsaved or not (at_once or time.monotonic() - self._saved_at >= FLUSH_INTERVAL_S):
            return
        if self.in_force:
            for place, fault in not_json(self.in_force):
                raise TargetError(f"what a target keeps in in_force must be JSON, '{place}' is {fault}")
            write_json(self.directory / IN_FORCE_FILE, self.in_force)
        answers = [self.rows[name] for name in self._unsaved]
        values = np.concatenate([row for _, row in answers])
        ends = np.cumsum([0, *(len(row) for _, row in answers)], dtype=np.int32)
        table = pa.table(
            [
                self._unsaved,
                [reason for reason, _ in answers],
                pa.ListArray.from_arrays(ends, pa.array(values, mask=np.isnan(values))),
            ],
            schema=_SCHEMA,
        )
        write_parquet(self.directory / f"{secrets.token_hex(8)}.parquet", table)
        self._unsaved.clear()
        self._saved_at = time.monotonic()


def _key_of(card: TargetCard, hidden: str) -> dict[str, Any]:
    return {
        **({"hidden": hidden} if hidden else {}),
        "name": card.name,
        "kind": card.kind,
        "weights": card.weights,
        "code": card.code,
        "versions": card.versions,
        "settings": card.settings,
        "concepts": list(card.concepts),
        "program": program_digest(),
        "nan_means": card.nan_means,
    }


def _keys(root: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every cache under ``root`` with its key."""
    for path in root.glob(f"{CACHED}/{KEY_FILE}"):
        try:
            key = parse_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(key, dict):
            yield path.parent, key


def _earlier(root: Path, key: dict[str, Any]) -> list[Path]:
    """Caches of other runs of a target without digests."""
    wanted = settings_digest(key)
    return sorted(
        path
        for path, found in _keys(root)
        if RUN in found and settings_digest({n: v for n, v in found.items() if n != RUN}) == wanted
    )


def has_earlier_answers(root: Path, card: TargetCard, hidden: str = "") -> bool:
    """Whether an earlier run of a target without digests left answers that ``resume`` could use."""
    return not card.pinned and any(
        any(path.glob("*.parquet")) for path in _earlier(root, _key_of(card, hidden))
    )


def forget_unpinned(root: Path) -> None:
    """Remove the caches under ``root`` of targets without digests of their weights.

    A later run could otherwise take the scores of another model for its own.
    """
    for path, key in list(_keys(root)):
        if not key.get("weights"):
            shutil.rmtree(path)
    with suppress(OSError):
        root.rmdir()
