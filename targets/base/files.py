"""Files that are either there whole or not at all: written beside, flushed, then renamed."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
import unicodedata
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from targets.base.errors import InputError
from targets.base.text import excerpt

CACHE_DIGITS = 16
CACHED = "[0-9a-f]" * CACHE_DIGITS
"""Glob of folders of cached scores, which may lie among other files of their user."""
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.tmp")


def _temporary(path: Path) -> Path:
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, "a file must be named, and this is a folder", str(path))
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that replaces it when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    if path.exists() and not path.is_file():
        # Renaming over it would put a file in the place of a device or pipe.
        raise OSError(errno.EINVAL, "must be a regular file, and is a folder, device or pipe", str(path))
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


MOST_PICTURE_BYTES = 256 << 20
"""50 megapixels of three bytes take 150 MB."""


def read_picture(path: Path) -> bytes:
    """The bytes of a picture's file, which may have 256 MB: a file with holes costs no disk, but memory.

    Raises:
        OSError, ValueError: larger, or as for ``read_regular``.
    """
    return read_regular(path, MOST_PICTURE_BYTES)


def read_regular(path: Path, most: int | None = None) -> bytes:
    """The bytes of a regular file, or of a link to one, that has at most ``most``.

    Raises:
        OSError: no such file, no permission, or a folder, pipe, socket or device, on which a reader could
            wait for ever.
        ValueError: a name that no file can have.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as stream:
        facts = os.fstat(stream.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if most is not None and facts.st_size > most:
            raise OSError(errno.EFBIG, f"larger than {most >> 20} MB")
        return stream.read()


def read_named(folder: Path, name: str) -> bytes:
    """The bytes of a picture as a table names it.

    A file system may hold the name in another Unicode form (é as one sign or as two), and a cell may have
    spaces around it.

    Raises:
        OSError, ValueError: as for ``read_regular``.
    """
    try:
        return read_picture(folder / name)
    except FileNotFoundError:
        forms = (
            unicodedata.normalize(form, text) for text in (name, name.strip()) for form in ("NFC", "NFD")
        )
        for other in dict.fromkeys(forms):
            if other and other != name and (folder / other).is_file():
                return read_picture(folder / other)
        raise


def remove_leftovers(folder: Path, names: Container[str] | None = None) -> None:
    """Remove what killed writers left in ``folder``; nobody else may be writing there.

    Args:
        folder: looked at without the folders in it.
        names: of the files that were to be written; None for any.
    """
    for path in folder.glob(".*.tmp"):
        found = _TEMPORARY.fullmatch(path.name)
        if found and (names is None or found["name"] in names):
            path.unlink(missing_ok=True)


def write_first(path: Path, text: str) -> None:
    """Write ``text`` whole, unless somebody else has written the file by then: the first one stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    temporary.write_text(text, encoding="utf-8")
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 with Unix line ends."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON (a NaN or an infinity raises ValueError), indented, with a final line end."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_parquet(path: Path, columns: Sequence[str] | None = None, *, advice: str = "") -> pa.Table:
    """Read one parquet file, or some of its columns, and check every cell: texts are UTF-8.

    Args:
        path: the file.
        columns: names; None for all.
        advice: how to mend it, as the message's end.

    Raises:
        InputError: no such file, damaged, without such a column, or with one name twice.
    """
    try:
        with path.open("rb") as stream:
            there = Counter(pq.read_schema(stream).names)
            if lacking := [name for name in columns or () if name not in there]:
                raise InputError(f"{path} has no column '{lacking[0]}'{advice}")
            if repeated := [name for name, count in there.items() if count > 1]:
                raise InputError(f"{path}: column names must differ, '{repeated[0]}' occurs twice{advice}")
            table = pq.read_table(stream, columns=None if columns is None else list(columns))
        table.validate(full=True)
    except FileNotFoundError:
        raise InputError(f"no such file: {path}") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable parquet file: {excerpt(error)}{advice}") from None
    return table


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write one parquet file, zstd-compressed."""
    # A stream, because pyarrow takes some paths for addresses, and none that are not UTF-8.
    with atomic(path) as temporary, temporary.open("wb") as stream:
        pq.write_table(table, stream, compression="zstd")
