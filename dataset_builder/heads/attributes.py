"""What can be changed about a person, and what a picture therefore shows.

A look is everything an edit may touch. An edit is a change of the look and of nothing else, and labels are
read off the look, never off the name of the edit, so a label says what the scene holds:

* ``sunglasses`` are glasses too, as the paper has it;
* a facemask hides moustache, goatee, smile and lipstick, which count as absent; a beard under it is unknown;
* ``goatee`` comes with a moustache and ``red_lipstick`` with full make-up, because the paper's transition
  matrix asks for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from dataset_builder.heads.identity import Colour, Hair, Makeup, Person, years
from dataset_builder.heads.variation import Variation
from dataset_builder.schema.verdict import Label

PAPER_ATTRIBUTES = (
    "glasses",
    "sunglasses",
    "mustache",
    "heavy_makeup",
    "shoulder_hair",
    "scarf",
    "pigtails",
    "smile",
    "buzz_cut",
    "head_band",
    "thick_beard",
    "blue_hair",
    "facemask",
    "curly_hair",
    "goatee",
    "old",
    "red_lipstick",
    "red_hair",
    "young",
)
CURLY_STYLES = frozenset({"coil", "crop_coil", "afro"})
LONG_STYLES = frozenset({"long", "middle"})

_BLUE: Colour = (0.13, 0.30, 0.80)
_RED: Colour = (0.60, 0.15, 0.06)
_GREY: Colour = (0.70, 0.69, 0.68)
_LIPSTICK: Colour = (0.64, 0.05, 0.09)
_SMILE: Mapping[str, float] = {
    "mouthSmile": 0.8,
    "cheekSquint": 0.45,
    "eyeSquint": 0.12,
    "mouthUpperUp": 0.8,
    "mouthLowerDown": 0.3,
    "jawOpen": 0.06,
}
_OLD_FROM, _YOUNG_BELOW = 60.0, 30.0


@dataclass(frozen=True)
class Look:
    """The part of a head that edits change; ``age`` is an age mix, ``extras`` are things worn."""

    hair: Hair
    facial_hair: frozenset[str]
    makeup: Makeup
    age: float
    actions: Mapping[str, float]
    brow_colour: Colour
    beard_colour: Colour
    dyed: str = ""
    extras: frozenset[str] = frozenset()

    @property
    def years(self) -> float:
        """Nominal age in years."""
        return years(self.age)

    @property
    def smiles(self) -> bool:
        """Whether the mouth is in a smile that shows teeth."""
        return self.actions.get("mouthSmile", 0.0) >= 0.5


def base_look(person: Person, variation: Variation) -> Look:
    """The look of the source face."""
    return Look(
        hair=person.hair,
        facial_hair=person.facial_hair,
        makeup=person.makeup,
        age=person.age,
        actions=variation.actions,
        brow_colour=person.brows.colour,
        beard_colour=person.hair.colour,
    )


def _wear(item: str) -> Callable[[Look], Look]:
    return lambda look: replace(look, extras=look.extras | {item})


def _grow(*kinds: str) -> Callable[[Look], Look]:
    return lambda look: replace(look, facial_hair=look.facial_hair | set(kinds))


def _dye(name: str, colour: Colour) -> Callable[[Look], Look]:
    return lambda look: replace(look, hair=replace(look.hair, colour=colour), dyed=name)


def _style(name: str) -> Callable[[Look], Look]:
    return lambda look: replace(look, hair=replace(look.hair, style=name))


def _made_up(look: Look) -> Look:
    full = replace(
        look.makeup,
        liner=1.0,
        shadow=1.0,
        shadow_colour=(0.52, 0.36, 0.48),
        blush=1.1,
        lips=0.75,
        lip_colour=(0.58, 0.20, 0.30),
    )
    return replace(look, makeup=full)


def _lipstick(look: Look) -> Look:
    full = _made_up(look)
    return replace(full, makeup=replace(full.makeup, lips=1.0, lip_colour=_LIPSTICK, shadow=0.8, blush=0.8))


def _aged(look: Look) -> Look:
    grey = replace(look.hair, colour=_GREY, recession=min(look.hair.recession + 0.15, 0.6))
    return replace(look, age=1.0, hair=grey, brow_colour=(0.50, 0.48, 0.46), beard_colour=(0.62, 0.61, 0.6))


def _curled(look: Look) -> Look:
    short = look.hair.style not in LONG_STYLES | {"bob", "fringe_bob"}
    return replace(look, hair=replace(look.hair, style="coil" if short else look.hair.style, wave=1.0))


EDITS: Mapping[str, Callable[[Look], Look]] = MappingProxyType(
    {
        "glasses": _wear("glasses"),
        "sunglasses": _wear("sunglasses"),
        "facemask": _wear("facemask"),
        "head_band": _wear("head_band"),
        "scarf": _wear("scarf"),
        "mustache": _grow("mustache"),
        "goatee": _grow("goatee", "mustache"),
        "thick_beard": _grow("beard", "mustache"),
        "buzz_cut": lambda look: replace(look, hair=replace(look.hair, style="buzz", wave=0.0)),
        "shoulder_hair": _style("long"),
        "curly_hair": _curled,
        "blue_hair": _dye("blue", _BLUE),
        "red_hair": _dye("red", _RED),
        "red_lipstick": _lipstick,
        "heavy_makeup": _made_up,
        "smile": lambda look: replace(look, actions=_SMILE),
        "old": _aged,
        "young": lambda look: replace(look, age=-0.1),
    }
)


def edited(look: Look, attribute: str) -> Look:
    """The look with one attribute applied; ``attribute`` must be a key of ``EDITS``."""
    if attribute not in EDITS:
        raise ValueError(f"attribute must be one of {', '.join(sorted(EDITS))}, got {attribute!r}")
    return EDITS[attribute](look)


def labels(look: Look) -> dict[str, Label]:
    """The 19 paper attributes of a look: "yes", "no" or "unknown"."""
    hidden = "facemask" in look.extras
    style, makeup = look.hair.style, look.makeup
    shown = {
        "glasses": bool(look.extras & {"glasses", "sunglasses"}),
        "sunglasses": "sunglasses" in look.extras,
        "mustache": "mustache" in look.facial_hair and not hidden,
        "heavy_makeup": makeup.liner >= 0.8 and makeup.shadow >= 0.7,
        "shoulder_hair": style in LONG_STYLES,
        "scarf": "scarf" in look.extras,
        "pigtails": False,
        "smile": look.smiles and not hidden,
        "buzz_cut": style == "buzz",
        "head_band": "head_band" in look.extras,
        "thick_beard": "beard" in look.facial_hair,
        "blue_hair": look.dyed == "blue",
        "facemask": hidden,
        "curly_hair": style in CURLY_STYLES or look.hair.wave >= 0.75,
        "goatee": "goatee" in look.facial_hair and not hidden,
        "old": look.years >= _OLD_FROM,
        "red_lipstick": makeup.lips >= 0.9 and makeup.lip_colour == _LIPSTICK and not hidden,
        "red_hair": look.dyed == "red",
        "young": look.years < _YOUNG_BELOW,
    }
    result: dict[str, Label] = {name: "yes" if shown[name] else "no" for name in PAPER_ATTRIBUTES}
    if hidden and shown["thick_beard"]:
        result["thick_beard"] = "unknown"
    return result
