"""The command line. ``harness/exits.py`` says with which status it ends.

What standard output can't take changes no status (``harness/streams.py``). Only a command whose result is
that text ends with 141 if the pipe has closed, and with 2 if the device is full.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from dataset_builder.detect.training import in_words, load_labelled, train
from dataset_builder.folder import WORK_FOLDER
from dataset_builder.schema.taxonomy import load_taxonomy
from harness.analysis import Options, make_record
from harness.audit import Asking, audit_pairs
from harness.build_commands import add_commands as add_build_commands
from harness.capture import export_pictures
from harness.commands import register
from harness.demo import run_demo
from harness.detector_commands import add_commands as add_detector_commands
from harness.doctor import examine
from harness.exits import call as main  # noqa: F401 - for callers in Python
from harness.folder import CACHE, at_work
from harness.gallery import RecognitionOptions
from harness.pairs import Identities, load_pairs, load_scores
from harness.probes import zero_shot_phrases
from harness.recipe_commands import add_commands as add_recipe_commands
from harness.run import check_failures, show_run
from harness.streams import tell, write_out
from harness.table_command import table
from harness.terminal import console
from targets.base.config import validated
from targets.base.errors import InputError
from targets.base.text import counted, message_line, utf8
from targets.cache import forget_unpinned, has_earlier_answers
from targets.card import TargetCard
from targets.catalogue import LoadedTarget, available, load_target
from targets.conformance import run_checks

app = typer.Typer(
    help="How a face-vision model changes its mind when one thing about a face changes, and for whom.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
targets_app = typer.Typer(help="The models that can be asked.", no_args_is_help=True)
capture_app = typer.Typer(help="Scores that are captured elsewhere.", no_args_is_help=True)
recipe_app = typer.Typer(help="The recipes that ship.", no_args_is_help=True)
detector_app = typer.Typer(help="Detectors that decide about candidates.", no_args_is_help=True)
app.add_typer(targets_app, name="targets")
app.add_typer(capture_app, name="capture")
app.add_typer(recipe_app, name="recipe")
app.add_typer(detector_app, name="detector")
add_build_commands(app)
register(app)
app.command()(table)
add_detector_commands(detector_app)
add_recipe_commands(recipe_app)


class Ci(StrEnum):
    """Methods of intervals."""

    CLUSTER = "cluster"
    T = "t"
    BOOTSTRAP = "bootstrap"


class Whose(StrEnum):
    """Whom an identity's label names."""

    GROUP = "group"
    GLOBAL = "global"


class By(StrEnum):
    """Axes beside the demographic groups."""

    ETHNICITY = "ethnicity"
    SEX = "sex"


PairsArgument = Annotated[
    str, typer.Argument(help="Table of pairs (.csv, .tsv, .jsonl, .parquet), dataset directory or hub id.")
]
EncodingOption = Annotated[str, typer.Option(help="Encoding of text tables; nothing is guessed.")]
ConfigOption = Annotated[str | None, typer.Option(help="Of a dataset: its config with the pairs.")]
SplitOption = Annotated[str | None, typer.Option(help="Of a dataset: the split to read.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="A setting of the target: key=value.")]
ConceptOption = Annotated[list[str] | None, typer.Option("--concept", help="A concept the tables show.")]
ProgressOption = Annotated[bool, typer.Option(help="Show how far the run is.")]


@app.command()
def audit(
    out: Annotated[Path, typer.Option(help="Folder of the run; a killed run goes on there.")],
    pairs: Annotated[str | None, PairsArgument.__metadata__[0]] = None,
    target: Annotated[str | None, typer.Option(help="NAME[:ARG], FILE.py:CLASS or FILE.toml.")] = None,
    scores: Annotated[str | None, typer.Option(help="Table of finished scores, instead of PAIRS.")] = None,
    settings: SetOption = None,
    ci: Annotated[
        Ci, typer.Option(help="Intervals: cluster (CR2 by identity), t (over pairs), bootstrap.")
    ] = Ci.CLUSTER,
    level: Annotated[
        float | None,
        typer.Option(
            min=0.5,
            max=0.9999999,
            help="Confidence level; else 0.999, and 0.95 for a recogniser's error rates and a search.",
        ),
    ] = None,
    by: Annotated[list[By] | None, typer.Option(help="Also by ethnicity or sex, equal weights.")] = None,
    taxonomy: Annotated[str | None, typer.Option(help="Expected groups and attributes.")] = None,
    concept: ConceptOption = None,
    margin: Annotated[float | None, typer.Option(help="Smallest change that matters.")] = None,
    discover: Annotated[bool, typer.Option(help="Search all concepts; needs --margin.")] = False,
    half_width: Annotated[float | None, typer.Option(help="Say what identities this takes.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap and of the search's split.")] = 0,
    cache: Annotated[Path | None, typer.Option(help="Shared folder of cached scores.")] = None,
    max_failures: Annotated[float, typer.Option(min=0, max=1, help="Share that may fail.")] = 0.05,
    references: Annotated[int | None, typer.Option(min=1, help="Other pictures behind 'match'.")] = None,
    keep_identical: Annotated[bool, typer.Option(help="Keep pairs whose pictures are equal.")] = False,
    target_fmr: Annotated[float, typer.Option(help="Of a recogniser: FMR that sets its threshold.")] = 0.001,
    match_threshold: Annotated[
        float | None, typer.Option(help="Of a recogniser: this cosine instead, e.g. its vendor's.")
    ] = None,
    candidates: Annotated[
        bool, typer.Option(help="Of a dataset, also ask about rejected candidates: what did the filter do?")
    ] = True,
    score_range: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="With --scores: what the scores can be; a gate needs it."),
    ] = None,
    identities: Annotated[
        Whose | None,
        typer.Option(
            help="group: an identity belongs to its group; global: one label is one person in all groups. "
            "A column 'person' says it too."
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with a killed run of a target whose weights have no digest."),
    ] = False,
    encoding: EncodingOption = "utf-8",
    config: ConfigOption = None,
    split: SplitOption = None,
    progress: ProgressOption = True,
) -> None:
    """Ask a target about both faces of every pair and write what changed, for whom."""
    # What a target does to the working directory changes nothing.
    said, out, cache = out, out.absolute(), None if cache is None else cache.absolute()
    rates = RecognitionOptions(target_fmr=target_fmr, threshold=match_threshold)
    options = Options(
        method=ci.value,
        level=0.999 if level is None else level,
        by=tuple(dict.fromkeys(["demographic", *(axis.value for axis in by or [])])),
        concepts=tuple(concept or ()),
        max_failures=max_failures,
        taxonomy=load_taxonomy(taxonomy) if taxonomy else None,
        margin=margin,
        half_width=half_width,
        discover=discover,
        search_level=0.95 if level is None else level,
        seed=seed,
        recognition=rates if level is None else rates.at_level(level),
    )
    if scores is not None and (pairs is not None or target is not None):
        raise InputError("--scores FILE takes the place of PAIRS and --target; give one or the other")
    if scores is None and (pairs is None or target is None):
        raise InputError("give PAIRS and --target, or --scores FILE")
    if scores is None and score_range is not None:
        raise InputError("--score-range belongs to --scores; a target says it in its card")
    whose: Identities | None = None if identities is None else identities.value
    with at_work(out):
        if scores is not None:
            outcomes, origin = load_scores(scores, encoding, whose)
            name = utf8(Path(scores).name)
            about = {"name": name, "spec": f"scores:{name}", "kind": "recorded", "score_range": score_range}
            card = validated(TargetCard, {**about, "detection": "as in the scores"}, "--score-range")
            record = make_record(outcomes, card, origin, options)
        elif pairs is not None and target is not None:
            data = load_pairs(pairs, encoding, whose, config, split)
            words = zero_shot_phrases(data.labels.attribute, options.groups_of)
            loaded = load_target(target, _parse_settings(settings), words)
            asking = Asking(_cache_root(out, cache, loaded), references, keep_identical, progress, resume)
            if not resume and has_earlier_answers(asking.cache_root, loaded.card, loaded.hidden):
                typer.echo(_NOT_USED, err=True)
            outcomes, record = audit_pairs(data, loaded, options, asking, candidates=candidates)
        show_run(console(), record, outcomes, out, said)
        # Without a digest of the weights a later run could silently reuse another model's scores.
        forget_unpinned(out / CACHE)
    check_failures(record, outcomes, said)


_NOT_USED = (
    "answers of a run that did not end are left alone: the target's weights have no digest, and it may be "
    "another by now; with --resume a few are asked again, and the others used if those are the same"
)


def _cache_root(out: Path, cache: Path | None, loaded: LoadedTarget) -> Path:
    return cache if cache is not None and loaded.card.pinned else out / CACHE


def _parse_settings(items: Sequence[str] | None) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for item in items or []:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise InputError(f"--set must be key=value, got '{item}'")
        try:
            settings[key] = tomllib.loads(f"value = {value}")["value"]
        except (ValueError, RecursionError):
            settings[key] = value
    return settings


@targets_app.command("list")
def targets_list() -> None:
    """List the targets that can be named."""
    for name, reference in sorted(available().items()):
        write_out(f"{name:20} {reference}\n")
    write_out(f"{'FILE.py:CLASS':20} your own\n")


@targets_app.command("check")
def targets_check(
    spec: Annotated[str, typer.Argument(help="NAME[:ARG], FILE.py:CLASS or FILE.toml.")],
    settings: SetOption = None,
) -> None:
    """Run the conformance checks on a target."""
    loaded = load_target(spec, _parse_settings(settings))
    try:
        results = run_checks(loaded, closing=True)
    finally:
        loaded.close()
    for result in results:
        words = message_line(result.fault or result.unseen or result.rule)
        state = "FAIL" if result.fault else "-" if result.unseen else "ok"
        tell(f"{state:4}  {result.name:20} {words}")
    broken = [result.name for result in results if result.fault]
    if broken:
        raise InputError(f"target {spec} breaks {counted(len(broken), 'rule')}: {', '.join(broken)}")


@capture_app.command("export")
def capture_export(
    pairs: PairsArgument,
    out: Annotated[Path, typer.Option(help="New folder for the pictures and manifest.csv.")],
    candidates: Annotated[
        bool, typer.Option(help="Of a dataset, also rejected candidates: what does the filter do?")
    ] = True,
    encoding: EncodingOption = "utf-8",
    config: ConfigOption = None,
    split: SplitOption = None,
    progress: ProgressOption = True,
) -> None:
    """Write the pairs' pictures under names that can't be ambiguous, for a capture elsewhere."""
    loaded = load_pairs(pairs, encoding, config=config, split=split)
    done = export_pictures(loaded, out, candidates=candidates, show_progress=progress)
    for fault in done.faults:
        tell(f"left out: {message_line(fault)}", err=True)
    more = f", {done.rejected:,} of them of rejected candidates only," if done.rejected else ""
    tell(f"{counted(done.pictures, 'picture')}{more} and manifest.csv written to {out}")
    if done.faults:
        count = counted(len(done.faults), "picture")
        raise InputError(f"{count} could not be exported; the others are in {out}")


@detector_app.command("train")
def detector_train(
    dataset: Annotated[Path, typer.Argument(help="A built dataset whose generator knows its distortions.")],
    out: Annotated[Path, typer.Option(help="JSON file of the trained detector.")],
    target: Annotated[str, typer.Option(help="Spec of an embedder.")] = "sface",
    settings: SetOption = None,
    recall: Annotated[float, typer.Option(min=0.01, max=1, help="Share it must find.")] = 0.97,
    cost: Annotated[float, typer.Option(min=1e-6, help="Penalty C of the linear SVM.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the split of identities.")] = 0,
    progress: ProgressOption = True,
) -> None:
    """Train a distortion detector, tune it for recall, and say how well it does on other identities."""
    dataset, out = dataset.absolute(), out.absolute()
    model = train(
        load_labelled(dataset),
        target,
        _parse_settings(settings),
        dataset / WORK_FOLDER / "scores",
        recall=recall,
        cost=cost,
        seed=seed,
        show_progress=progress,
    )
    model.save(out)
    for line in in_words(model.card["held_out"]):
        tell(line)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the dataset and the runs.")] = Path("facedelta-demo"),
    limit: Annotated[int | None, typer.Option(min=1, help="Most identities, over all groups.")] = None,
    progress: ProgressOption = True,
) -> None:
    """Show everything on rendered heads: filter, publish, audit two models. No GPU, no hub, two minutes."""
    run_demo(out, console(), limit=limit, show_progress=progress)


@app.command()
def doctor() -> None:
    """Say what is installed, what is missing, and what would go wrong."""
    findings = examine()
    for finding in findings:
        tell(f"{finding.state:8}{finding.subject:18}{finding.detail}")
    faults = [finding.subject for finding in findings if finding.state == "fault"]
    if faults:
        raise InputError(f"to mend: {', '.join(faults)}")
