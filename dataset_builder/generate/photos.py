"""Source faces that exist already: a table of pictures, or the sources of another dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from dataset_builder.generate.one_face import OneFace
from dataset_builder.read import read_config
from dataset_builder.schema.faces import Face, SourceRequest
from targets.base.errors import InputError
from targets.base.files import read_named
from targets.base.strict_json import parse_json
from targets.base.tables import read_table
from targets.base.text import nearest
from targets.images import UnreadableError, decode

GENERATOR = "photos/2"
COLUMNS = ("picture", "identity", "demographic")
Key = tuple[str, str, int]  # group, identity, variation
MOST_VARIATIONS = 2**31 - 1  # the dataset's column has 32 bits
NO_FILE, UNREADABLE = "no_such_file", "unreadable"


@dataclass(frozen=True)
class Photo:
    """A picture and whom it shows; ``name`` is the path as the table has it, or the dataset's digest."""

    identity: str
    variation: int
    demographic: str
    name: str
    read: Callable[[], bytes]
    provenance: str = ""


class Photos:
    """A source generator over pictures that are at hand; their bytes are kept as they are.

    Attributes:
        path: table or dataset.
        groups: codes of the taxonomy.
        seconds_per_picture: nothing is made.
        device: what that is an estimate of.
    """

    device = "CPU"
    seconds_per_picture = 0.0

    def __init__(self, path: Path, groups: Collection[str], one_face: OneFace | None = None) -> None:
        self.path, self.groups, self.one_face = path, groups, one_face

    def check(self) -> None:
        """Find out whether the table can be read and the face finder is there.

        Raises:
            InputError: as ``requests``; or the extra "face" is not installed.
        """
        self.requests()
        if self.one_face is not None:
            self.one_face.settings()

    def settings(self) -> dict[str, Any]:
        """Everything besides the request that the bytes depend on."""
        return {"generator": GENERATOR, "faces": self.one_face.settings() if self.one_face else None}

    def detectors(self) -> dict[str, str]:
        """No model chooses among the pictures."""
        return {}

    def requests(self) -> list[SourceRequest]:
        """One a picture, an identity's pictures together; ``prompt`` is the digest of its bytes.

        Raises:
            InputError: no such table or dataset, a column is missing, a cell is empty, a group that the
                taxonomy doesn't have, one variation or one picture twice.
        """
        requests = [
            SourceRequest(identity, number, group, 0, digest_of(photo.read))
            for (group, identity, number), photo in self._all.items()
        ]
        seen: dict[str, Photo] = {}
        for request, photo in zip(requests, self._all.values(), strict=True):
            twin = seen.setdefault(request.prompt or photo.name, photo)
            if twin is not photo:
                raise InputError(
                    f"{self.path}: '{photo.name}' and '{twin.name}' hold the same picture; list it once"
                )
        return requests

    def make(self, requests: Sequence[SourceRequest]) -> list[Face]:
        """Read the pictures; one that is missing or unreadable has a fault."""
        return [
            self._face(self._all[one.demographic, one.identity, one.variation], one.prompt)
            for one in requests
        ]

    def _face(self, photo: Photo, digest: str) -> Face:
        picture, fault = self._opened(photo)
        return Face(
            identity=photo.identity,
            variation=photo.variation,
            demographic=photo.demographic,
            picture=b"" if fault else picture,
            labels={},
            age=None,
            distorted="unknown",
            # Not its name: the same picture under another one is the same.
            provenance={"generator": GENERATOR, "sha256": digest, **_source_of(photo)},
            fault=fault,
        )

    def _opened(self, photo: Photo) -> tuple[bytes, str]:
        try:
            picture = photo.read()
            image = decode(picture, photo.name).image
        except FileNotFoundError:
            return b"", NO_FILE
        except (OSError, ValueError, UnreadableError):
            return b"", UNREADABLE
        return picture, self.one_face.fault(image) if self.one_face else ""

    @cached_property
    def _all(self) -> dict[Key, Photo]:
        found = self._from_dataset() if self.path.is_dir() else self._from_table()
        photos: dict[Key, Photo] = {}
        for where, photo in found:
            key = (photo.demographic, photo.identity, photo.variation)
            if not photo.identity.strip() or not photo.name.strip():
                raise InputError(
                    f"{where}: a picture must have an identity and a file, got {photo.identity!r}"
                )
            if photo.demographic not in self.groups:
                hint = nearest(photo.demographic, self.groups)
                raise InputError(f"{where}: the taxonomy has no group '{photo.demographic}'{hint}")
            if key in photos:
                raise InputError(
                    f"{where}: variation {photo.variation} of '{photo.identity}' ({photo.demographic}) is "
                    "there already; number an identity's pictures in a column 'variation'"
                )
            photos[key] = photo
        if not photos:
            raise InputError(f"{self.path} must list at least one picture, and lists none")
        order: dict[tuple[str, str], None] = dict.fromkeys((key[0], key[1]) for key in photos)
        place = {family: number for number, family in enumerate(order)}
        return dict(sorted(photos.items(), key=lambda item: (place[item[0][:2]], item[0][2])))

    def _from_table(self) -> list[tuple[str, Photo]]:
        table = read_table(self.path)
        table.require(COLUMNS, "a table of photos")
        numbers = table.text("variation") if "variation" in table.columns else ["0"] * len(table)
        rows = zip(
            *([str(cell).strip() for cell in table.text(name)] for name in COLUMNS), numbers, strict=True
        )
        return [
            (
                table.row(index),
                Photo(
                    identity,
                    _whole(number, table.row(index)),
                    group,
                    name,
                    partial(read_named, self.path.parent, name),
                ),
            )
            for index, (name, identity, group, number) in enumerate(rows)
        ]

    def _from_dataset(self) -> list[tuple[str, Photo]]:
        data = read_config(str(self.path), "sources")
        if data is None:
            raise InputError(f"{self.path} must be a table of photos or a dataset with a config 'sources'")
        data.require(("image", "identity", "demographic", "variation"))
        refs = data.refs("image", "sha256")
        made = data.text("provenance") if "provenance" in data.columns else [""] * len(data)
        faults = data.text("fault") if "fault" in data.columns else [""] * len(data)
        rows = zip(*(data.text(name) for name in ("identity", "demographic")), strict=True)
        return [
            (
                f"{self.path}, source {index}",
                Photo(
                    identity,
                    int(data.columns["variation"][index]),
                    group,
                    refs[index].name,
                    refs[index].read,
                    made[index],
                ),
            )
            for index, (identity, group) in enumerate(rows)
            if not faults[index]
        ]


def _source_of(photo: Photo) -> dict[str, Any]:
    """How a dataset's picture was made; what it can't show goes for pictures made from it too."""
    return {"source": parse_json(photo.provenance)} if photo.provenance else {}


def _whole(text: str, where: str) -> int:
    if not text.isdecimal() or int(text) > MOST_VARIATIONS:
        raise InputError(
            f"{where}: variation must be a whole number from 0 to {MOST_VARIATIONS}, got '{text}'"
        )
    return int(text)


def digest_of(read: Callable[[], bytes]) -> str:
    """SHA-256 of a picture's bytes; empty where there are none to read."""
    try:
        return hashlib.sha256(read()).hexdigest()
    except (OSError, ValueError):  # a path with a NUL is a ValueError
        return ""
