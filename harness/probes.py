"""Which concept of a many-concept target names an attribute, and in which words a zero-shot target is asked.

Only names that say the same thing belong together: an attribute without its concept has no row, since a row
of another thing would be a wrong number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from dataset_builder.schema.taxonomy import Taxonomy
from targets.prompts import phrases

# Their singular is another thing: glass is a material, a bang a noise.
_ONLY_PLURAL = frozenset({"glasses", "eyeglasses", "spectacles", "shades", "bangs", "braces"})


def concepts_by_attribute(
    attributes: Iterable[str], concepts: Sequence[str], taxonomy: Taxonomy
) -> dict[str, str]:
    """Attribute -> the concept that names it; attributes without one are left out.

    The taxonomy's own ``concept`` goes first. Else a concept must have the words of the attribute's name or
    title, whatever their case, joints and number; of several synonyms with commas between, one is enough.
    Where two concepts fit equally well, none is taken.
    """
    found = {}
    for attribute in attributes:
        known = taxonomy.attributes.get(attribute)
        if known is not None and known.concept in concepts:
            found[attribute] = str(known.concept)
        elif match := _named(attribute, concepts) or (known and _named(known.title, concepts)):
            found[attribute] = match
    return found


def _named(name: str, concepts: Sequence[str]) -> str | None:
    """The only concept of this name; the nearest way to write it decides."""
    if name in concepts:
        return name
    for written in (_joined, _singular):
        wanted = written(name)
        # Synonyms are a class's list of names; the whole may be one name too.
        fitting = [
            concept
            for concept in concepts
            if wanted and wanted in {written(part) for part in (concept, *concept.split(","))}
        ]
        if fitting:
            return fitting[0] if len(fitting) == 1 else None
    return None


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold().replace("_", " "))


def _joined(text: str) -> str:
    return "".join(_words(text))


def _singular(text: str) -> str:
    """The words in one, the last in the singular, as "head bands" and "headband"."""
    words = _words(text)
    if not words:
        return ""
    *first, last = words
    whole = "".join(words)
    if last in _ONLY_PLURAL or whole in _ONLY_PLURAL:
        return whole
    if last.endswith("ies") and len(last) > 4:
        last = f"{last[:-3]}y"
    elif last.endswith(("sses", "shes", "ches", "xes")):
        last = last[:-2]
    elif last.endswith("s") and not last.endswith(("ss", "us", "is")):
        last = last[:-1]
    return "".join((*first, last))


def zero_shot_phrases(attributes: Iterable[str], taxonomy: Taxonomy) -> Mapping[str, tuple[str, ...]]:
    """Attribute -> phrases for a zero-shot target's templates, of a taxonomy and of attributes beyond it.

    An attribute's own ``clip`` goes first, else what ``targets.prompts`` knows, else its name in words.
    """
    names = tuple(dict.fromkeys((*taxonomy.attributes, *attributes)))
    usual = phrases(names)
    own = {name: item.clip for name, item in taxonomy.attributes.items() if item.clip}
    return {name: own.get(name, usual[name]) for name in names}
