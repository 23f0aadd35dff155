"""Concepts in words: what a vision-language model is asked about each, and in which sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from targets.base.errors import InputError
from targets.base.extras import require

TemplateSet = Literal["face", "simple", "imagenet"]
ConceptSetting = tuple[str, ...] | dict[str, str | tuple[str, ...]]

FACE_TEMPLATES = (
    "a photo of the face of {}.",
    "a close-up photo of {}.",
    "a portrait of {}.",
)
FACE_PHRASES: Mapping[str, tuple[str, ...]] = {
    "facemask": ("a person wearing a face mask", "a person whose mouth and nose are covered by a mask"),
    "glasses": ("a person wearing glasses", "a person with eyeglasses"),
    "head_band": ("a person wearing a headband",),
    "scarf": ("a person wearing a scarf", "a person with a scarf around the neck"),
    "sunglasses": ("a person wearing sunglasses", "a person with dark sunglasses"),
    "blue_hair": ("a person with blue hair",),
    "red_hair": ("a person with red hair",),
    "buzz_cut": ("a person with a buzz cut", "a person with very short hair"),
    "curly_hair": ("a person with curly hair",),
    "pigtails": ("a person with pigtails",),
    "shoulder_hair": ("a person with shoulder-length hair", "a person with long hair"),
    "goatee": ("a person with a goatee",),
    "mustache": ("a person with a mustache",),
    "thick_beard": ("a person with a thick beard", "a person with a full beard"),
    "heavy_makeup": ("a person with heavy makeup",),
    "red_lipstick": ("a person wearing red lipstick", "a person with red lips"),
    "old": ("an old person", "an elderly person"),
    "young": ("a young person",),
    "smile": ("a smiling person", "a person who smiles"),
}


def phrases(concepts: ConceptSetting | None) -> dict[str, tuple[str, ...]]:
    """What is asked for each concept.

    Args:
        concepts: names, or name -> phrase or phrases; None for the face set. A name without phrases takes
            those of the face set, else its own words ("no_hat" becomes "no hat").

    Raises:
        InputError: no concept, an empty name or phrase, or a name that is listed twice.
    """
    if concepts is None:
        return dict(FACE_PHRASES)
    if not concepts:
        raise InputError("concepts must hold at least one name, got an empty list")
    names = list(concepts)
    for name in names:
        if not name.strip():
            raise InputError("every concept must be a non-empty text, got an empty one")
        if names.count(name) > 1:
            raise InputError(f"concept '{name}' is listed twice; keep one")
    if not isinstance(concepts, Mapping):
        return {name: FACE_PHRASES.get(name, (name.replace("_", " "),)) for name in names}
    found = {name: (value,) if isinstance(value, str) else tuple(value) for name, value in concepts.items()}
    for name, texts in found.items():
        if not texts or not all(text.strip() for text in texts):
            raise InputError(f"concept '{name}' needs at least one phrase, and no empty one")
    return found


def sentences(texts: Sequence[str], templates: TemplateSet | tuple[str, ...]) -> list[str]:
    """Every phrase in every template.

    Args:
        texts: phrases of one concept.
        templates: "face", open_clip's "simple" (7) or "imagenet" (80), or sentences with one ``{}`` each.

    Raises:
        InputError: no template, or one without exactly one ``{}``.
    """
    if templates in ("simple", "imagenet"):
        open_clip = require("open_clip", "clip", "the usual prompt templates")
        known = (
            open_clip.SIMPLE_IMAGENET_TEMPLATES
            if templates == "simple"
            else open_clip.OPENAI_IMAGENET_TEMPLATES
        )
        return [template(text) for text in texts for template in known]
    chosen = FACE_TEMPLATES if templates == "face" else templates
    if not chosen:
        raise InputError("templates must hold at least one sentence")
    for template in chosen:
        if template.count("{}") != 1:
            raise InputError(f"a template must hold exactly one {{}}, got '{template}'")
    return [template.replace("{}", text) for text in texts for template in chosen]
