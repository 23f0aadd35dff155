"""The command line. Exit status: 0 done or passed, 1 the gate failed, 2 bad input, 3 inconclusive."""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dataset_builder.schema.taxonomy import DEFAULT_TAXONOMY, Taxonomy, load_taxonomy
from harness.audit import audit_pictures
from harness.capture import export_pictures
from harness.doctor import examine
from harness.outcomes import Outcomes
from harness.pairs import load_pairs, load_scores
from harness.record import Record, read_record
from harness.run import Options, make_record, write_run
from harness.stats.intervals import Method
from harness.tables import (
    DisparityTable,
    Row,
    chosen_rows,
    count_table,
    disparity_table,
    printed_table,
    to_csv,
    to_latex,
    to_markdown,
)
from targets.base.errors import FacedeltaError, InputError, TooManyFailuresError
from targets.base.text import counted, shortlist
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
app.add_typer(targets_app, name="targets")
app.add_typer(capture_app, name="capture")


class Ci(StrEnum):
    """Methods of intervals."""

    CLUSTER = "cluster"
    T = "t"
    BOOTSTRAP = "bootstrap"


class Format(StrEnum):
    """How a table is written."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    CSV = "csv"
    LATEX = "latex"


PairsArgument = Annotated[
    str, typer.Argument(help="Table of pairs (.csv, .tsv, .jsonl, .parquet), dataset directory or hub id.")
]
EncodingOption = Annotated[str, typer.Option(help="Encoding of text tables; nothing is guessed.")]
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
        Ci, typer.Option(help="Intervals: cluster (CR2 by identity), t (over pairs).")
    ] = Ci.CLUSTER,
    level: Annotated[float, typer.Option(min=0.5, max=0.9999999, help="Confidence level.")] = 0.999,
    taxonomy: Annotated[str | None, typer.Option(help="Expected groups and attributes.")] = None,
    concept: ConceptOption = None,
    cache: Annotated[Path | None, typer.Option(help="Shared folder of cached scores.")] = None,
    max_failures: Annotated[float, typer.Option(min=0, max=1, help="Share that may fail.")] = 0.05,
    references: Annotated[int | None, typer.Option(min=1, help="Other pictures behind 'match'.")] = None,
    keep_identical: Annotated[bool, typer.Option(help="Keep pairs whose pictures are equal.")] = False,
    encoding: EncodingOption = "utf-8",
    progress: ProgressOption = True,
) -> None:
    """Ask a target about both faces of every pair and write what changed, for whom."""
    chosen = load_taxonomy(taxonomy) if taxonomy else None
    options = Options(method=_method(ci), level=level, max_failures=max_failures, taxonomy=chosen)
    if scores is not None:
        if pairs is not None or target is not None:
            raise InputError("--scores FILE takes the place of PAIRS and --target; give one or the other")
        outcomes, origin = load_scores(scores, encoding)
        name = Path(scores).name
        card = TargetCard(name=name, spec=f"scores:{name}", kind="recorded", detection="as in the scores")
        _finish(out, outcomes, card, origin, options, concept or [])
        return
    if pairs is None or target is None:
        raise InputError("give PAIRS and --target, or --scores FILE")
    loaded = load_target(target, _parse_settings(settings))
    try:
        loaded_pairs = load_pairs(pairs, encoding)
        outcomes = audit_pictures(
            loaded_pairs,
            loaded,
            _cache_root(out, cache, loaded),
            references=references,
            keep_identical=keep_identical,
            show_progress=progress,
        )
    finally:
        loaded.close()
    _finish(out, outcomes, loaded.card, loaded_pairs.origin, options, concept or [])
    if not loaded.card.pinned:
        # Without a digest of the weights a later run could silently reuse another model's scores.
        shutil.rmtree(out / "cache", ignore_errors=True)


def _method(ci: Ci) -> Method:
    return ci.value


def _cache_root(out: Path, cache: Path | None, loaded: LoadedTarget) -> Path:
    return cache if cache is not None and loaded.card.pinned else out / "cache"


def _parse_settings(items: Sequence[str] | None) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for item in items or []:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise InputError(f"--set must be key=value, got '{item}'")
        try:
            settings[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            settings[key] = value
    return settings


def _finish(
    out: Path,
    outcomes: Outcomes,
    card: TargetCard,
    origin: Mapping[str, Any],
    options: Options,
    concepts: Sequence[str],
) -> None:
    record = make_record(outcomes, card, dict(origin), options)
    named = _named_concepts(options.taxonomy)
    rows = _rows_or_none(record, concepts, named)
    write_run(out, record, outcomes, rows)
    console = _console()
    if rows:
        _print_table(console, disparity_table(record, rows))
        _print_table(console, count_table(record, rows))
    else:
        console.print(f"{len(record.concepts)} concepts: show some with facedelta table {out} --concept NAME")
    _print_summary(console, record, outcomes, out)
    if record.data.fault_share > options.max_failures:
        raise TooManyFailuresError(
            f"{record.data.fault_share:.1%} of the pairs failed, more than --max-failures "
            f"{options.max_failures:g} allows; the run is kept in {out}, the reasons in failures.parquet"
        )


def _named_concepts(taxonomy: Taxonomy | None) -> dict[str, str]:
    attributes = (taxonomy or load_taxonomy(DEFAULT_TAXONOMY)).attributes
    return {name: attribute.concept for name, attribute in attributes.items() if attribute.concept}


def _rows_or_none(record: Record, wanted: Sequence[str], named: Mapping[str, str]) -> list[Row]:
    if not wanted and len(record.concepts) > 12 and not set(named.values()) & set(record.concepts):
        return []
    return chosen_rows(record, wanted, named)


def _console() -> Console:
    """Tables keep their width in a pipe, where rich would fold them to 80 columns."""
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)


def _print_table(console: Console, table: DisparityTable) -> None:
    shown = Table(title=escape(table.title), title_justify="left", caption_justify="left")
    shown.add_column("attribute", overflow="fold")
    shown.add_column("concept", overflow="fold")
    for group in table.groups:
        shown.add_column(escape(group), justify="right", no_wrap=len(table.groups) <= 10)
    for attribute, concept, texts in table.rows:
        shown.add_row(escape(attribute), escape(concept), *map(escape, texts))
    console.print(shown)
    for note in table.notes:
        console.print(f"  {escape(note)}")


def _print_summary(console: Console, record: Record, outcomes: Outcomes, out: Path) -> None:
    reasons = ", ".join(f"{reason} {count}" for reason, count in outcomes.reason_counts().items())
    console.print(
        f"{counted(record.data.n_pairs, 'pair')}, {counted(len(record.groups), 'group')}, "
        f"{counted(len(record.attributes), 'attribute')}; left out: {reasons or 'none'}"
    )
    if outcomes.references is not None:
        console.print(f"match: reference of {counted(outcomes.references, 'other source picture')}")
    checks = {check.check for check in record.picture_checks}
    if checks:
        console.print(f"picture checks to look at in record.json: {shortlist(sorted(checks), 8)}")
    for warning in record.warnings:
        console.print(f"warning: {escape(warning)}")
    console.print(f"written to {escape(str(out))}")


@app.command()
def table(
    source: Annotated[
        Path, typer.Argument(help="A run's folder, its record.json, or a printed table's CSV.")
    ],
    style: Annotated[Format, typer.Option("--format", help="How to write it.")] = Format.TERMINAL,
    concept: ConceptOption = None,
    counts: Annotated[bool, typer.Option(help="Pairs and identities instead of changes.")] = False,
    taxonomy: Annotated[str, typer.Option(help="Pairs attributes with concepts.")] = DEFAULT_TAXONOMY,
) -> None:
    """Write the disparity table of a run, or one that was printed elsewhere."""
    if source.suffix == ".csv":
        shown = printed_table(source)
        if style is Format.CSV:
            raise InputError(f"{source} is a CSV already; choose terminal, markdown or latex")
    else:
        record = read_record(source)
        if style is Format.CSV:
            sys.stdout.write(to_csv(record))
            return
        rows = chosen_rows(record, concept or [], _named_concepts(load_taxonomy(taxonomy)))
        shown = count_table(record, rows) if counts else disparity_table(record, rows)
    if style is Format.TERMINAL:
        _print_table(_console(), shown)
    else:
        sys.stdout.write(to_markdown(shown) if style is Format.MARKDOWN else to_latex(shown))


@targets_app.command("list")
def targets_list() -> None:
    """List the targets that can be named."""
    for name, reference in sorted(available().items()):
        typer.echo(f"{name:20} {reference}")
    typer.echo(f"{'FILE.py:CLASS':20} your own")


@targets_app.command("check")
def targets_check(
    spec: Annotated[str, typer.Argument(help="NAME[:ARG], FILE.py:CLASS or FILE.toml.")],
    settings: SetOption = None,
) -> None:
    """Run the conformance checks on a target."""
    loaded = load_target(spec, _parse_settings(settings))
    try:
        results = run_checks(loaded)
    finally:
        loaded.close()
    for result in results:
        typer.echo(f"{'FAIL' if result.fault else 'ok':4}  {result.name:20} {result.fault or result.rule}")
    broken = [result.name for result in results if result.fault]
    if broken:
        raise InputError(f"target {spec} breaks {counted(len(broken), 'rule')}: {', '.join(broken)}")


@capture_app.command("export")
def capture_export(
    pairs: PairsArgument,
    out: Annotated[Path, typer.Option(help="New folder for the pictures and manifest.csv.")],
    encoding: EncodingOption = "utf-8",
    progress: ProgressOption = True,
) -> None:
    """Write the pairs' pictures under names that can't be ambiguous, for a capture elsewhere."""
    count, faults = export_pictures(load_pairs(pairs, encoding), out, show_progress=progress)
    for fault in faults:
        typer.echo(f"left out: {fault}", err=True)
    typer.echo(f"{counted(count, 'picture')} and manifest.csv written to {out}")
    if faults:
        raise InputError(f"{counted(len(faults), 'picture')} could not be exported; the others are in {out}")


@app.command()
def doctor() -> None:
    """Say what is installed, what is missing, and what would go wrong."""
    findings = examine()
    for finding in findings:
        typer.echo(f"{finding.state:8}{finding.subject:18}{finding.detail}")
    faults = [finding.subject for finding in findings if finding.state == "fault"]
    if faults:
        raise InputError(f"to mend: {', '.join(faults)}")


def main() -> None:
    """Run the command line; an error raised on purpose is one line and an exit status."""
    try:
        app()
    except FacedeltaError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_status)
