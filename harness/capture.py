"""Pictures for a capture elsewhere: named by their pixels, so that no log can be ambiguous."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from harness.pairs import Pairs
from targets.base.errors import InputError
from targets.base.files import atomic, write_text
from targets.base.progress import progress
from targets.executors.local import ordered_map
from targets.images import Picture, UnreadableError, decode
from targets.scoring import PictureRef

NAME_DIGITS = 16
MANIFEST = "manifest.csv"


def export_pictures(pairs: Pairs, out: Path, *, show_progress: bool = True) -> tuple[int, list[str]]:
    """Write every distinct picture of the pairs as PNG, and the manifest.

    The PNG holds the decoded pixels, upright and in sRGB, so that another decoder sees what an audit
    here sees.

    Args:
        pairs: n pairs.
        out: folder; must be empty or new.
        show_progress: a bar on a terminal, a line a minute in a log.

    Returns:
        The number of pictures written, and one message for each that can't be read.

    Raises:
        InputError: the folder already holds something, or two pictures share their first 16 digits.
    """
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out} must be an empty or new folder")
    used_by: dict[str, list[str]] = {}
    refs: dict[str, PictureRef] = {}
    for refs_of_side in (pairs.source, pairs.transformed):
        for pair_id, ref in zip(pairs.labels.pair_id, refs_of_side, strict=True):
            refs.setdefault(ref.name, ref)
            used_by.setdefault(ref.name, []).append(str(pair_id))
    rows: dict[str, tuple[str, list[str]]] = {}
    faults: list[str] = []
    with progress("exporting pictures", len(refs), enabled=show_progress) as advance:
        for ref, picture in zip(refs.values(), ordered_map(_decoded, refs.values()), strict=True):
            advance()
            if isinstance(picture, str):
                faults.append(picture)
            else:
                _keep(picture, out, rows, used_by[ref.name])
    write_text(out / MANIFEST, _manifest(rows))
    return len(rows), faults


def _decoded(ref: PictureRef) -> Picture | str:
    try:
        return decode(ref.read(), ref.name)
    except FileNotFoundError:
        return f"{ref.name}: no such picture"
    except UnreadableError as error:
        return str(error)


def _keep(picture: Picture, out: Path, rows: dict[str, tuple[str, list[str]]], pair_ids: list[str]) -> None:
    name = f"{picture.pixel_hash[:NAME_DIGITS]}.png"
    if name in rows and rows[name][0] != picture.pixel_hash:
        raise InputError(f"two pictures share the first {NAME_DIGITS} digits of their hash: {name}")
    if name not in rows:
        with atomic(out / name) as temporary:
            picture.image.save(temporary, format="PNG")
    rows.setdefault(name, (picture.pixel_hash, []))[1].extend(pair_ids)


def _manifest(rows: dict[str, tuple[str, list[str]]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["file_name", "pixel_hash", "pair_ids"])
    for name, (pixel_hash, pair_ids) in sorted(rows.items()):
        writer.writerow([name, pixel_hash, " ".join(dict.fromkeys(pair_ids))])
    return stream.getvalue()
