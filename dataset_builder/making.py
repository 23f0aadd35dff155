"""Pictures made in planned batches, each kept as a shard; a share of the batches, or all of them.

A batch holds whole families: all variations of an identity, all edits of a source. Batches of sources follow
from the recipe, batches of edits from one batch of sources each. So processes and machines that share a
folder can each make some of the batches without waiting for one another, and a batch is the same batch
whoever makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dataset_builder.schema.faces import Editor, EditRequest, SourceGenerator, SourceRequest, label_in_dataset
from dataset_builder.store import Store, StoredFace
from targets.base.errors import InputError
from targets.base.progress import progress

ItemT = TypeVar("ItemT")


@dataclass(frozen=True)
class Share:
    """Every ``of``-th batch of sources, from ``number`` (counted from 1), with the edits of those."""

    number: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        """Check the range.

        Raises:
            InputError: number is not in 1 to ``of``.
        """
        if not 1 <= self.number <= self.of:
            raise InputError(f"a share must be I/N with I from 1 to N, got {self.number}/{self.of}")

    def holds(self, batch: int) -> bool:
        """Whether the batch of that index belongs to it."""
        return batch % self.of == self.number - 1


def read_share(text: str) -> Share:
    """Read "2/4".

    Raises:
        InputError: not two whole numbers, or out of range.
    """
    number, _, of = text.partition("/")
    if not number.isdecimal() or not of.isdecimal():
        raise InputError(f"a share must be I/N, as in 2/4, got '{text}'")
    return Share(int(number), int(of))


@dataclass(frozen=True)
class Making:
    """Makes the pictures of a recipe.

    Attributes:
        generator, editor: what makes them.
        store: where they are kept.
        batch_size: pictures a batch, unless a family is larger.
        show_progress: a bar on a terminal, a line a minute in a log.
    """

    generator: SourceGenerator
    editor: Editor
    store: Store
    batch_size: int
    show_progress: bool = True

    def make(
        self, requests: Sequence[SourceRequest], share: Share = Share()
    ) -> tuple[list[StoredFace], list[StoredFace]]:
        """Make what is missing of a share.

        Returns:
            Its source faces and its transformed faces, in the order of the requests.

        Raises:
            InputError: two identities that pair ids could not tell apart.
        """
        check_labels(requests)
        # What the editor needs is loaded before the first picture is made, too.
        self.editor.settings()
        batches = self._sources(requests, share)
        return [face for batch in batches for face in batch], self._edits(batches, requests)

    def sources(self, requests: Sequence[SourceRequest]) -> list[StoredFace]:
        """Make what is missing of the source faces alone."""
        return [face for batch in self._sources(requests, Share()) for face in batch]

    def _sources(self, requests: Sequence[SourceRequest], share: Share) -> list[list[StoredFace]]:
        planned = batched(requests, self.batch_size, lambda request: (request.demographic, request.identity))
        mine = [batch for number, batch in enumerate(planned) if share.holds(number)]
        settings, batches = self.generator.settings(), []
        with progress("source faces", sum(map(len, mine)), enabled=self.show_progress) as advance:
            for batch in mine:
                inputs = {"settings": settings, "requests": [request.inputs() for request in batch]}
                shard = self.store.shard("generate", inputs)
                if not shard.exists():
                    empty = [""] * len(batch)
                    self.store.write(shard, self.generator.make(batch), empty, empty)
                batches.append(self.store.read(shard))
                advance(len(batch))
        return batches

    def _edits(
        self, sources: Sequence[Sequence[StoredFace]], requests: Sequence[SourceRequest]
    ) -> list[StoredFace]:
        edited = {_variation(one) for one in requests if one.edited}
        planned = [
            batch
            for some in sources
            for batch in batched(self._jobs(some, edited), self.batch_size, lambda job: job[0].sha256)
        ]
        settings, faces = self.editor.settings(), []
        with progress("transformed faces", sum(map(len, planned)), enabled=self.show_progress) as advance:
            for batch in planned:
                shard = self.store.shard(
                    "edit", {"settings": settings, "jobs": [_job(*job) for job in batch]}
                )
                if not shard.exists():
                    made = self.editor.edit([EditRequest(face.face(), name) for face, name in batch])
                    names, digests = [name for _, name in batch], [face.sha256 for face, _ in batch]
                    self.store.write(shard, made, names, digests)
                faces += self.store.read(shard)
                advance(len(batch))
        return faces

    def _jobs(
        self, sources: Sequence[StoredFace], edited: Collection[tuple[str, str, int]]
    ) -> list[tuple[StoredFace, str]]:
        usable = [face for face in sources if not face.fault and _variation(face) in edited]
        return [(face, name) for face in usable for name in self.editor.attributes()]


def check_labels(requests: Sequence[SourceRequest]) -> None:
    """Refuse identities that pair ids could not tell apart, before anything is paid for.

    Raises:
        InputError: naming two.
    """
    people: dict[str, tuple[str, str]] = {}
    for request in requests:
        own = (request.demographic, request.identity)
        other = people.setdefault(label_in_dataset(*own), own)
        if other != own:
            raise InputError(
                f"identities must be told apart with their group before them, '{own[1]}' of {own[0]} and "
                f"'{other[1]}' of {other[0]} can't; rename one"
            )


def _variation(one: SourceRequest | StoredFace) -> tuple[str, str, int]:
    return one.demographic, one.identity, one.variation


def _job(face: StoredFace, attribute: str) -> dict[str, Any]:
    return {
        "sha256": face.sha256,
        "identity": face.identity,
        "variation": face.variation,
        "demographic": face.demographic,
        "attribute": attribute,
    }


def batched(items: Sequence[ItemT], size: int, family: Callable[[ItemT], Hashable]) -> Iterator[list[ItemT]]:
    """Consecutive batches of at most ``size`` that cut no family apart; a larger family is a batch."""
    batch: list[ItemT] = []
    start = 0
    while start < len(items):
        end = start + 1
        while end < len(items) and family(items[end]) == family(items[start]):
            end += 1
        if batch and len(batch) + end - start > size:
            yield batch
            batch = []
        batch += items[start:end]
        start = end
    if batch:
        yield batch
