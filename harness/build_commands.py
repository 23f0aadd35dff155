"""Commands that make pairs: ``build`` and ``contact-sheet``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dataset_builder.contact_sheet import write_contact_sheet
from dataset_builder.folder import WORK_FOLDER
from dataset_builder.making import read_share
from dataset_builder.pipeline import Build
from dataset_builder.recipe import find_recipe
from harness.demo import print_built
from harness.streams import tell
from harness.terminal import console
from targets.base.errors import InputError
from targets.base.text import counted


def add_commands(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("build")(build_command)
    app.command("contact-sheet")(contact_sheet_command)


def build_command(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe's name, or a .toml file.")],
    out: Annotated[Path, typer.Option(help="Folder of the dataset; a killed build goes on there.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Most identities, over all groups.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Only say what would be done.")] = False,
    tune: Annotated[
        bool, typer.Option("--tune", help="Only try settings of edits: a contact sheet an attribute.")
    ] = False,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that make pictures, each on a GPU of its own.")
    ] = 1,
    share: Annotated[
        str | None,
        typer.Option(help="I/N: only make this share of the pictures, for machines with a common folder."),
    ] = None,
    candidates: Annotated[
        Path | None, typer.Option(help="Folder with sources.parquet and candidates.parquet made earlier.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Dollars the attribute detector may spend, in all.")
    ] = None,
    progress: Annotated[bool, typer.Option(help="Show how far the run is.")] = True,
) -> None:
    """Make counterfactual pairs: generate, edit, detect, filter, publish."""
    # A target that a recipe names may change the working directory.
    path, out = find_recipe(recipe).absolute(), out.absolute()
    candidates = None if candidates is None else candidates.absolute()
    job = Build(path, out, limit, candidates, show_progress=progress, budget=budget, processes=processes)
    if sum([dry_run, tune, share is not None]) > 1:
        raise InputError("--dry-run, --tune and --share exclude each other; give one of them")
    if share is not None and processes > 1:
        raise InputError("--share is one process's part; start one a process in place of --processes")
    if candidates is not None and (tune or share or processes > 1):
        raise InputError("--candidates brings the pictures: --tune, --share and --processes make none then")
    if dry_run:
        _show_plan(job)
    elif tune:
        from dataset_builder.edit.sweep import tune as tune_edits

        job.check_making()
        sheets = tune_edits(path, out, out / WORK_FOLDER, show_progress=progress)
        tell(f"{counted(len(sheets), 'contact sheet')} written to {sheets[0].parent}")
    elif share is not None:
        job.check_making()
        sources, transformed = job.make(read_share(share))
        tell(
            f"share {share}: {counted(len(sources), 'source face')} and "
            f"{counted(len(transformed), 'transformed face')}; build without --share when all shares are made"
        )
    else:
        print_built(console(), job.run())


def _show_plan(job: Build) -> None:
    """Print what a build will do, and end as it would if something is missing."""
    for line in job.plan().lines():
        tell(line)
    faults = list(job.faults())
    for fault in faults[1:]:
        tell(f"also missing      {fault}")
    if faults:
        raise faults[0]


def contact_sheet_command(
    dataset: Annotated[Path, typer.Argument(help="A built dataset.")],
    out: Annotated[Path, typer.Option(help="Picture to write: .jpg or .png.")],
    identity: Annotated[int, typer.Option(min=0, help="Which identity of each group.")] = 0,
) -> None:
    """Draw one identity a group with every attribute; distorted faces have a red frame."""
    write_contact_sheet(dataset, out, identity=identity)
