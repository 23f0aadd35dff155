"""The taxonomy: which groups, which attributes, and what adding one attribute may do to the others.

A taxonomy is a TOML file. ``extends = "paper"`` starts from another one; ``[groups.X]`` and
``[attributes.X]`` then add or replace whole entries and ``drop = [...]`` removes some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from targets.base.config import Settings, read_toml, validated
from targets.base.errors import InputError
from targets.base.hashing import settings_digest
from targets.base.text import alike, control_character, nearest, shortlist

DEFAULT_TAXONOMY = "paper"


class Transition(IntEnum):
    """What one attribute must do when another one is applied (paper, appendix B)."""

    REQUIRED = 1
    FORBIDDEN = 0
    UNCHANGED = -1
    IGNORED = -2


def _transition(value: Any) -> Any:
    return Transition(value) if value in list(Transition) and not isinstance(value, bool) else value


# A plain integer in TOML and JSON, an enum member in Python.
TransitionCode = Annotated[Transition, BeforeValidator(_transition), PlainSerializer(int)]
Sex = Literal["male", "female"]


class Group(Settings):
    """A demographic group, as prompted or rendered: nominal, never a statement about people.

    Attributes:
        title: how tables may write it out.
        ethnicity: the ethnicity half of the group.
        sex: "male" or "female".
    """

    title: str
    ethnicity: str
    sex: Sex


class SegaConcept(Settings):
    """One edit concept of semantic guidance (Brack et al. 2023), with its settings.

    Attributes:
        prompt: what to steer towards, or away from if ``reversed``.
        guidance_scale: strength of the guidance.
        threshold: quantile of the latent's elements left alone, in [0, 1).
        warmup_steps: denoising steps before the edit begins.
        cooldown_steps: step after which it ends, or None for the last.
        weight: of this concept among several.
        momentum_scale: share of the momentum added to the guidance, in [0, 1].
        reversed: steer away instead.
        sex: the groups these settings are for; None for all.
    """

    prompt: str
    guidance_scale: float
    threshold: float = Field(ge=0, lt=1)
    warmup_steps: int = Field(default=10, ge=0)
    cooldown_steps: int | None = None
    weight: float = 1.0
    momentum_scale: float = Field(default=0.1, ge=0, le=1)
    reversed: bool = False
    sex: Sex | None = None


class Attribute(Settings):
    """Something about a face that is applied to it.

    Attributes:
        title: how tables write it.
        category: the group of attributes it belongs to (paper, section 4.1).
        kind: "presence", or "older" and "younger" for the two that a change of age decides.
        concept: the concept of a many-concept target that the paper's Table 3 pairs it with.
        clip: phrases for it that a zero-shot target puts into its templates, as "a person wearing glasses".
        transition: attribute -> what it must do; what is not listed must stay as it was. None where the
            taxonomy serves only to label a finished table; ``build`` needs it.
        sega: edit concepts; empty where the attribute can't be made by semantic guidance.
    """

    title: str
    category: str
    kind: Literal["presence", "older", "younger"] = "presence"
    concept: str | None = None
    clip: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    transition: dict[str, TransitionCode] | None = None
    sega: tuple[SegaConcept, ...] = ()

    def sega_for(self, sex: Sex) -> tuple[SegaConcept, ...]:
        """The edit concepts for groups of one sex."""
        return tuple(concept for concept in self.sega if concept.sex in (None, sex))


class Taxonomy(Settings):
    """Groups and attributes, in the order tables show them.

    Attributes:
        name: what records call it.
        groups: code -> group.
        attributes: name -> attribute.
        age_gap_years: a pair's faces may differ by less than this; an age attribute needs at least this.
        sega_momentum_beta: decay of the momentum in semantic guidance.
    """

    name: str
    groups: dict[str, Group]
    attributes: dict[str, Attribute]
    age_gap_years: float = 10.0
    sega_momentum_beta: float = 0.6

    @property
    def digest(self) -> str:
        """SHA-256 over everything in it but ``clip``, which is among a target's settings; 64 hex digits."""
        return settings_digest(self.model_dump(mode="json", exclude={"attributes": {"__all__": {"clip"}}}))

    def row(self, attribute: str) -> dict[str, Transition]:
        """What every attribute must do when ``attribute`` is applied, itself included.

        Raises:
            InputError: the taxonomy gives no transitions for it.
        """
        listed = self.attributes[attribute].transition
        if listed is None:
            raise InputError(
                f"taxonomy '{self.name}': attribute '{attribute}' has no 'transition', which a build needs; "
                "an empty table means that nothing else may change"
            )
        row = {name: listed.get(name, Transition.UNCHANGED) for name in self.attributes}
        row[attribute] = Transition.REQUIRED
        return row

    def groups_by(self, axis: Literal["ethnicity", "sex"]) -> dict[str, tuple[str, ...]]:
        """Coarse group -> the groups in it, in order of appearance."""
        coarse: dict[str, list[str]] = {}
        for code, group in self.groups.items():
            coarse.setdefault(getattr(group, axis), []).append(code)
        return {name: tuple(codes) for name, codes in coarse.items()}


class TaxonomyFile(Settings):
    """The content of a taxonomy's TOML file, before ``extends`` is followed."""

    name: str
    extends: str | None = None
    drop: tuple[str, ...] = ()
    groups: dict[str, Group] = Field(default_factory=dict)
    attributes: dict[str, Attribute] = Field(default_factory=dict)
    age_gap_years: float | None = Field(default=None, gt=0)
    sega_momentum_beta: float | None = Field(default=None, ge=0, lt=1)


def load_taxonomy(name: str) -> Taxonomy:
    """Load a taxonomy that ships ("paper") or a TOML file.

    Raises:
        InputError: unknown name, unknown key, a name dropped or referred to that does not exist.
    """
    return _load(name, Path(), ())


def _load(name: str, folder: Path, seen: tuple[str, ...]) -> Taxonomy:
    path = _find(name, folder)
    if str(path) in seen:
        raise InputError(f"taxonomy {path} extends itself")
    file = validated(TaxonomyFile, read_toml(path), str(path))
    base = _load(file.extends, path.parent, (*seen, str(path))) if file.extends else None
    return _merged(file, base, str(path))


def _find(name: str, folder: Path) -> Path:
    if name.endswith(".toml"):
        return folder / name
    shipped = Path(str(files("dataset_builder") / "taxonomies"))
    known = sorted(path.stem for path in shipped.glob("*.toml"))
    if name not in known:
        raise InputError(
            f"unknown taxonomy '{name}'{nearest(name, known)}; shipped: {shortlist(known)}, "
            "or give a file ending in .toml"
        )
    return shipped / f"{name}.toml"


def _merged(file: TaxonomyFile, base: Taxonomy | None, where: str) -> Taxonomy:
    groups = {**(base.groups if base else {}), **file.groups}
    attributes = {**(base.attributes if base else {}), **file.attributes}
    everything = {**groups, **attributes}
    for name in file.drop:
        if name not in everything:
            raise InputError(f"{where}: drop names '{name}', which does not exist{nearest(name, everything)}")
        groups.pop(name, None)
        attributes.pop(name, None)
    for what, names in (("group", groups), ("attribute", attributes)):
        _check_names(names, what, where)
    _check_transitions(attributes, everything, where)
    if not groups or not attributes:
        raise InputError(f"{where}: a taxonomy needs at least one group and one attribute")
    age_gap, beta = file.age_gap_years, file.sega_momentum_beta
    return Taxonomy(
        name=file.name,
        groups=groups,
        attributes=attributes,
        age_gap_years=age_gap if age_gap is not None else base.age_gap_years if base else 10.0,
        sega_momentum_beta=beta if beta is not None else base.sega_momentum_beta if base else 0.6,
    )


def _check_names(names: Iterable[str], what: str, where: str) -> None:
    """Tables lose the spaces around labels, and what looks alike must be one name."""
    for name in names:
        if name != name.strip() or not name or control_character(name):
            raise InputError(f"{where}: {what} {name!a} must have no outer spaces and no control characters")
    for same in alike(names):
        raise InputError(
            f"{where}: {what}s {' and '.join(map(ascii, same))} differ only in case, spaces, Unicode form or "
            "invisible characters; keep one"
        )


def _check_transitions(attributes: Mapping[str, Attribute], known: Mapping[str, object], where: str) -> None:
    for name, attribute in attributes.items():
        for other, code in (attribute.transition or {}).items():
            if other not in known:
                raise InputError(
                    f"{where}: attributes.{name}.transition names '{other}', which does not exist"
                    f"{nearest(other, known)}"
                )
            if other == name and code != Transition.REQUIRED:
                raise InputError(f"{where}: attributes.{name}.transition must require '{name}' itself")
