"""From a recipe's ``[detect.attributes]`` to the detector that labels faces; loaded when first needed."""

from __future__ import annotations

from pathlib import Path

from dataset_builder.beside import settings_beside, spec_beside
from dataset_builder.detect.labels import EachFace, PairLabeller
from dataset_builder.detect.order import CHEAP_FIRST, PAPER_FIRST, RuleOrder
from dataset_builder.detect.settings import Choice, Clip, GroundTruth, Vlm, check_attributes
from dataset_builder.filter import FilterSettings
from dataset_builder.schema.taxonomy import Taxonomy
from targets.base.errors import InputError

# Of an answer, about: an attribute's name, and each face's value.
TOKENS_A_NAME, TOKENS_A_VALUE = 5, 4
ANSWERS_FOLDER, SCORES_FOLDER = "answers", "scores"


def attribute_detector(
    settings: GroundTruth | Clip | Vlm | Choice,
    taxonomy: Taxonomy,
    folder: Path,
    work: Path,
    *,
    budget: float | None = None,
    show_progress: bool = True,
) -> PairLabeller | None:
    """The detector the settings describe; None where the generator's own knowledge decides.

    Args:
        settings: of the detector.
        taxonomy: its attributes of kind "presence" are looked at.
        folder: that relative paths in the settings start from.
        work: folder for kept answers and cached scores.
        budget: dollars, in place of the settings'.
        show_progress: a bar on a terminal, a line a minute in a log.

    Raises:
        InputError: settings that don't fit the taxonomy or the target, a budget nobody can keep.
        MissingExtraError: a package is not installed.
    """
    if budget is not None:
        settings = _with_budget(settings, budget)
    titles = presence(taxonomy)
    if isinstance(settings, Vlm):
        from dataset_builder.detect.vlm import VlmDetector

        check_attributes(settings.phrases, titles, "phrases")
        detector = VlmDetector(settings, titles, folder, work / ANSWERS_FOLDER, show_progress=show_progress)
        return detector if settings.form == "paper" else EachFace(detector, detector.used())
    if isinstance(settings, Clip):
        from dataset_builder.detect.clip import ConceptDetector

        check_attributes(settings.concepts, titles, "concepts")
        rule = ConceptDetector(_beside(settings, folder), work / SCORES_FOLDER, show_progress=show_progress)
        return EachFace(rule, {"attributes": rule.digest})
    if isinstance(settings, Choice):
        from dataset_builder.detect.choice import load_choice

        path = folder / settings.file
        return load_choice(path).labeller(taxonomy, path.parent, work, show_progress=show_progress)
    return None


def check_server(settings: GroundTruth | Clip | Vlm | Choice, folder: Path) -> None:
    """Find out whether the servers that a detector asks are there and take the key; nothing is bought.

    Raises:
        MissingExtraError: the extra "vlm" is not installed.
        InputError: no key, a refused key, an unknown model, or nobody at the address.
    """
    if isinstance(settings, Choice):
        from dataset_builder.detect.choice import load_choice

        for chosen in load_choice(folder / settings.file).in_use():
            check_server(chosen, folder)
    elif isinstance(settings, Vlm):
        from targets.openai_client import Server

        server = Server(settings.endpoint(), "the vision-language detector")
        try:
            server.check()
        finally:
            server.close()


def rule_order(
    settings: GroundTruth | Clip | Vlm | Choice,
    taxonomy: Taxonomy,
    strictness: FilterSettings,
    audit_sample: float,
) -> RuleOrder:
    """Which rules come before the detector: fewer in the paper's form."""
    first = PAPER_FIRST if isinstance(settings, Vlm) and settings.form == "paper" else CHEAP_FIRST
    return RuleOrder(taxonomy, strictness, first, audit_sample)


def planned_cost(
    settings: GroundTruth | Clip | Vlm | Choice, taxonomy: Taxonomy, sources: int, transformed: int
) -> float | None:
    """About how many dollars a build costs if no cheap rule spares a question; None without prices."""
    if not isinstance(settings, Vlm) or settings.price_input is None or settings.price_output is None:
        return None
    from dataset_builder.detect.vlm_prompt import Question

    titles = presence(taxonomy)
    together = 2 if settings.form == "paper" else settings.faces_per_picture
    questions = len(titles) if settings.form == "single" else 1
    requests = transformed if settings.form == "paper" else -(-(sources + transformed) // together)
    asked = dict(list(titles.items())[: len(titles) // questions])
    tokens_in = Question(asked, settings.side).estimate(together)
    tokens_out = len(asked) * (TOKENS_A_NAME + TOKENS_A_VALUE * together)
    price = settings.price_input * tokens_in + settings.price_output * tokens_out
    discount = settings.batch_discount if settings.mode == "batch" else 1.0
    return requests * questions * price * discount / 1e6


def presence(taxonomy: Taxonomy) -> dict[str, str]:
    """Attribute -> title, for those that are there or not; age has a rule of its own."""
    return {name: item.title for name, item in taxonomy.attributes.items() if item.kind == "presence"}


def _beside(settings: Clip, folder: Path) -> Clip:
    """The settings with the target's paths from the folder that names them."""
    target, own = spec_beside(settings.target, folder), settings_beside(settings.settings, folder)
    return settings.model_copy(update={"target": target, "settings": own})


def _with_budget(settings: GroundTruth | Clip | Vlm | Choice, budget: float) -> Vlm:
    if not isinstance(settings, Vlm):
        raise InputError(f"a budget is for the method 'vlm'; '{settings.method}' costs nothing")
    if settings.price_input is None or settings.price_output is None:
        raise InputError("a budget needs price_input and price_output, dollars a million tokens")
    return settings.model_copy(update={"budget": budget})
