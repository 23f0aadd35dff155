"""What a vision-language model's reply says about each face: yes, no, or unknown with its reason.

A reply is one JSON object, attribute -> one value a face from left to right. Refusals depend on the face, so
nothing that is not a clear yes or no ever counts as a no.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dataset_builder.schema.verdict import Label
from targets.openai_client import Reply, Trouble

Reason = Literal[
    Trouble,
    "refusal",
    "length",
    "empty",
    "prose",
    "invalid_json",
    "missing",
    "wrong_name",
    "wrong_length",
    "invalid_value",
    "conflict",
    "not_sure",
]
# A second question may be answered better; a refusal, a filter or an honest "unknown" stands.
WORTH_ASKING_AGAIN = frozenset(
    {
        "length",
        "empty",
        "prose",
        "invalid_json",
        "missing",
        "wrong_name",
        "wrong_length",
        "invalid_value",
        "conflict",
    }
)

_WORDS: Mapping[object, Label] = {
    "yes": "yes",
    "y": "yes",
    "true": "yes",
    "present": "yes",
    "no": "no",
    "n": "no",
    "false": "no",
    "absent": "no",
}
_NOT_SURE = frozenset({"unknown", "unclear", "unsure", "not sure", "uncertain", "cannot tell", "can't tell"})
_FENCE = re.compile(r"\A\s*```[\w-]*\s*\n?(?P<body>.*?)\s*```\s*\Z", re.DOTALL)
_REFUSAL = re.compile(
    r"\b(sorry|apologi[sz]e|can(?:no|')t|can not|unable to|won't|not able to|not comfortable)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class FaceAnswer:
    """What a reply says about one face.

    Attributes:
        labels: every attribute asked for -> yes, no or unknown.
        reasons: attribute -> why, for those that are unknown.
    """

    labels: Mapping[str, Label]
    reasons: Mapping[str, Reason]

    def filled(self, other: FaceAnswer) -> FaceAnswer:
        """This answer, with what it leaves unknown taken from a later one where that knows."""
        labels, reasons = dict(self.labels), dict(self.reasons)
        for name in self.reasons:
            if other.labels[name] != "unknown":
                labels[name] = other.labels[name]
                del reasons[name]
        return FaceAnswer(labels, reasons)

    @property
    def worth_asking_again(self) -> bool:
        """Whether another reply could tell more."""
        return any(reason in WORTH_ASKING_AGAIN for reason in self.reasons.values())


def unanswered(attributes: Sequence[str], reason: Reason) -> FaceAnswer:
    """A face about which nothing is known."""
    return FaceAnswer(dict.fromkeys(attributes, "unknown"), dict.fromkeys(attributes, reason))


def parse_reply(reply: Reply, attributes: Sequence[str], faces: int) -> list[FaceAnswer]:
    """Read a reply; total: whatever a server sends, every face and attribute gets a label.

    Args:
        reply: what came.
        attributes: asked for.
        faces: how many the picture showed, at least 1. With one face a bare value stands for a list of one.

    Returns:
        One answer a face, from left to right.
    """
    found = _object(reply)
    if isinstance(found, str):
        return [unanswered(attributes, found)] * faces
    values, strangers = _by_name(found, attributes)
    missing: Reason = "wrong_name" if strangers else "missing"
    columns = {name: _column(values.get(name, []), faces, missing) for name in attributes}
    return [
        FaceAnswer(
            {name: column[face][0] for name, column in columns.items()},
            {name: reason for name, column in columns.items() if (reason := column[face][1]) is not None},
        )
        for face in range(faces)
    ]


def _object(reply: Reply) -> list[tuple[str, Any]] | Reason:
    """The pairs of the reply's JSON object, repeated keys included, or why there is none."""
    if reply.refusal:
        return "refusal"
    if reply.finish_reason in ("content_filter", "length"):
        return "content_filter" if reply.finish_reason == "content_filter" else "length"
    text = (reply.content or "").strip()
    if not text:
        return "empty"
    fenced = _FENCE.match(text)
    text = fenced["body"].strip() if fenced else text
    if not text.startswith(("{", "[", '"')):
        return "refusal" if _REFUSAL.search(text) else "prose"
    try:
        found = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return "invalid_json"
    return found.pairs if isinstance(found, _Pairs) else "invalid_json"


class _Pairs:
    """A JSON object that keeps repeated keys, which a dict would drop silently."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def _by_name(
    pairs: Sequence[tuple[str, Any]], attributes: Sequence[str]
) -> tuple[dict[str, list[Any]], list[str]]:
    """Attribute -> all values given for it (more than one for repeated keys), and unknown names."""
    known = {_folded(name): name for name in attributes}
    values: dict[str, list[Any]] = {}
    strangers = []
    for key, value in pairs:
        name = known.get(_folded(key))
        if name is None:
            strangers.append(key)
        else:
            values.setdefault(name, []).append(value)
    return values, strangers


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())


def _column(values: Sequence[Any], faces: int, missing: Reason) -> list[tuple[Label, Reason | None]]:
    """One attribute of all faces: label and reason."""
    if not values:
        return [("unknown", missing)] * faces
    readings = [_reading(value, faces) for value in values]
    return [
        column[0] if len(set(column)) == 1 else ("unknown", "conflict")
        for column in zip(*readings, strict=True)
    ]


def _reading(value: Any, faces: int) -> list[tuple[Label, Reason | None]]:
    items = value if isinstance(value, list) else [value]
    if len(items) != faces:
        return [("unknown", "wrong_length")] * faces
    return [_label(item) for item in items]


def _label(value: Any) -> tuple[Label, Reason | None]:
    if isinstance(value, bool):
        return ("yes" if value else "no"), None
    if isinstance(value, str):
        word = value.strip().strip(".").casefold()
        if word in _WORDS:
            return _WORDS[word], None
        if word in _NOT_SURE:
            return "unknown", "not_sure"
    return "unknown", "invalid_value"
