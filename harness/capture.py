"""Pictures for a capture elsewhere: named by their pixels, so that no log can be ambiguous."""

from __future__ import annotations

import csv
import io
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from harness.pairs import Pairs
from targets.base.errors import InputError
from targets.base.files import atomic, write_text
from targets.base.progress import progress
from targets.images import Picture
from targets.opening import Fault, decode_ahead
from targets.scoring import PictureRef

NAME_DIGITS = 16
MANIFEST = "manifest.csv"
KEPT, REJECTED = "kept pairs", "rejected candidates only"


@dataclass(frozen=True)
class Exported:
    """What an export wrote.

    Attributes:
        pictures: how many.
        rejected: how many of them show rejected candidates only.
        faults: one message for each picture of a kept pair that can't be read.
    """

    pictures: int
    rejected: int
    faults: tuple[str, ...]


def export_pictures(
    pairs: Pairs, out: Path, *, candidates: bool = True, show_progress: bool = True
) -> Exported:
    """Write every distinct picture of the pairs as PNG, and the manifest.

    Of a built dataset the pictures of rejected candidates are written too, for without their scores nobody
    can tell what the filter does to a difference. A rejected candidate that can't be read needs no picture.

    The PNG holds the decoded pixels, upright and in sRGB, so that another decoder sees what an audit
    here sees.

    Args:
        pairs: n pairs.
        out: folder; must be empty or new.
        candidates: whether to write rejected candidates too, where the dataset holds them.
        show_progress: a bar on a terminal, a line a minute in a log.

    Raises:
        InputError: the folder already holds something, or two pictures share their first 16 digits.
    """
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out} must be an empty or new folder")
    wanted = [pairs, *([pairs.candidates] if candidates and pairs.candidates else [])]
    kept = {ref.name for side in (pairs.source, pairs.transformed) for ref in side}
    used_by: dict[str, list[str]] = {}
    refs: dict[str, PictureRef] = {}
    for part in wanted:
        for refs_of_side in (part.source, part.transformed):
            for pair_id, ref in zip(part.labels.pair_id, refs_of_side, strict=True):
                refs.setdefault(ref.name, ref)
                used_by.setdefault(ref.name, []).append(str(pair_id))
    rows: dict[str, _Row] = {}
    faults: list[str] = []
    with progress("exporting pictures", len(refs), enabled=show_progress) as advance:
        for ref, picture in zip(refs.values(), decode_ahead(_picture_or_detail, refs.values()), strict=True):
            advance()
            if not isinstance(picture, str):
                _keep(picture, out, rows, used_by[ref.name], kept=ref.name in kept)
            elif ref.name in kept:
                faults.append(picture)
    write_text(out / MANIFEST, _manifest(rows))
    return Exported(len(rows), sum(not row.kept for row in rows.values()), tuple(faults))


@dataclass
class _Row:
    """A line of the manifest."""

    pixel_hash: str
    kept: bool
    pair_ids: list[str] = field(default_factory=list)


def _picture_or_detail(_: str, picture: Picture | Fault) -> Picture | str:
    return picture if isinstance(picture, Picture) else picture[1]


def _keep(picture: Picture, out: Path, rows: dict[str, _Row], pair_ids: list[str], *, kept: bool) -> None:
    name = f"{picture.pixel_hash[:NAME_DIGITS]}.png"
    if name in rows and rows[name].pixel_hash != picture.pixel_hash:
        raise InputError(f"two pictures share the first {NAME_DIGITS} digits of their hash: {name}")
    if name not in rows:
        with atomic(out / name) as temporary:
            picture.image.save(temporary, format="PNG")
    row = rows.setdefault(name, _Row(picture.pixel_hash, kept))
    row.kept |= kept
    row.pair_ids.extend(pair_ids)


def _manifest(rows: dict[str, _Row]) -> str:
    """The manifest as CSV; pair ids stand with spaces between, quoted as in a shell where they hold some."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["file_name", "pixel_hash", "pair_ids", "used_by"])
    for name, row in sorted(rows.items()):
        used_by = KEPT if row.kept else REJECTED
        writer.writerow([name, row.pixel_hash, shlex.join(dict.fromkeys(row.pair_ids)), used_by])
    return stream.getvalue()
