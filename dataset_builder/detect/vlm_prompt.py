"""The question to a vision-language model: one picture of one to eight faces side by side, one JSON answer.

The paper shows source and transformed face in one picture and asks about all attributes at once (appendix C).
Ours shows several faces from anywhere, each of them once. Few-shot examples come before, as earlier turns.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from dataset_builder.schema.verdict import Label
from targets.images import decode
from targets.scoring import PictureRef

PROMPT_VERSION = 1
# English text has four to five; JSON fewer.
CHARACTERS_PER_TOKEN = 3
TURN_TOKENS = 16
_PLACES = {2: "Left and right", 3: "Left, middle and right"}


@dataclass(frozen=True)
class Example:
    """A face with known labels, shown before the question."""

    picture: PictureRef
    labels: Mapping[str, Label]


@dataclass(frozen=True)
class Question:
    """What is asked about the faces of one picture.

    Attributes:
        phrases: attribute -> how it is written in the question.
        side: of each face's square in pixels; larger faces are scaled down to it.
        examples: shown first.
    """

    phrases: Mapping[str, str]
    side: int
    examples: tuple[Example, ...] = ()

    def described(self) -> dict[str, Any]:
        """Everything an answer depends on besides the faces, JSON-able."""
        examples = [
            {"sha256": hashlib.sha256(item.picture.read()).hexdigest(), "labels": dict(item.labels)}
            for item in self.examples
        ]
        return {"phrases": dict(self.phrases), "side": self.side, "examples": examples}

    def messages(self, faces: Sequence[PictureRef]) -> list[dict[str, Any]]:
        """The conversation about these faces, in the Chat Completions format."""
        turns: list[dict[str, Any]] = [{"role": "system", "content": _instruction(self.phrases)}]
        for example in self.examples:
            turns.append(_shown([example.picture], self.side))
            turns.append({"role": "assistant", "content": _answer(example.labels, self.phrases)})
        turns.append(_shown(faces, self.side))
        return turns

    def estimate(self, faces: int) -> int:
        """About how many tokens a question about so many faces has, rather too many than too few."""
        answers = sum(len(_answer(example.labels, self.phrases)) for example in self.examples)
        characters = len(_instruction(self.phrases)) + len(str(self.schema(faces))) + answers
        pictures = picture_tokens(self.side * faces, self.side)
        pictures += len(self.examples) * picture_tokens(self.side, self.side)
        return characters // CHARACTERS_PER_TOKEN + pictures + TURN_TOKENS * (2 * len(self.examples) + 2)

    def schema(self, faces: int) -> dict[str, Any]:
        """The strict JSON schema of an answer about that many faces."""
        value = {"type": "string", "enum": ["Yes", "No", "Unknown"]}
        column = {"type": "array", "items": value, "minItems": faces, "maxItems": faces}
        schema = {
            "type": "object",
            "properties": dict.fromkeys(self.phrases, column),
            "required": list(self.phrases),
            "additionalProperties": False,
        }
        return {
            "type": "json_schema",
            "json_schema": {"name": "attributes", "strict": True, "schema": schema},
        }


def _instruction(phrases: Mapping[str, str]) -> str:
    listed = "\n".join(f"- {name}: {phrase}" for name, phrase in phrases.items())
    return (
        "You label synthetic faces; no real person is shown. For each face in the picture, from left to "
        "right, say whether each attribute is visible. Answer with one JSON object: attribute -> list with "
        'one of "Yes", "No" and "Unknown" for each face, in order. Use "Unknown" only where it can\'t be '
        f"seen.\n{listed}"
    )


def _answer(labels: Mapping[str, Label], phrases: Mapping[str, str]) -> str:
    shown = ", ".join(f'"{name}": ["{labels.get(name, "unknown").title()}"]' for name in phrases)
    return "{" + shown + "}"


def _shown(faces: Sequence[PictureRef], side: int) -> dict[str, Any]:
    count = len(faces)
    places = _PLACES.get(count, f"{count} faces from left to right") if count > 1 else "One face"
    return {
        "role": "user",
        "content": [
            {"type": "text", "text": f"{places}."},
            {"type": "image_url", "image_url": {"url": data_url(side_by_side(faces, side))}},
        ],
    }


def side_by_side(faces: Sequence[PictureRef], side: int) -> Image.Image:
    """One picture of all faces from left to right on white, each fitted into its own square.

    Raises:
        UnreadableError: a face that can't be decoded.
    """
    images = [decode(face.read(), face.name[:16]).image for face in faces]
    side = min(side, max(max(image.size) for image in images))
    strip = Image.new("RGB", (side * len(images), side), "white")
    for place, image in enumerate(images):
        fitted = image.copy()
        fitted.thumbnail((side, side), Image.Resampling.LANCZOS)
        left, top = (side - fitted.width) // 2, (side - fitted.height) // 2
        strip.paste(fitted, (place * side + left, top))
    return strip


def data_url(image: Image.Image) -> str:
    """A picture as a PNG data URL, without metadata."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def picture_tokens(width: int, height: int) -> int:
    """Tokens of a picture by the rule published for GPT-4o at high detail (85 + 170 a 512 px tile).

    Other models count otherwise; this is only for estimates before anything was asked.
    """
    shrink = min(1.0, 2048 / max(width, height))
    width, height = int(width * shrink), int(height * shrink)
    shrink = min(1.0, 768 / min(width, height))
    width, height = int(width * shrink), int(height * shrink)
    return 85 + 170 * (-(-width // 512)) * (-(-height // 512))
