"""``facedelta recipe list|show|copy``: the recipes that ship."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dataset_builder.shipped import copy_recipe, shipped_recipe, shipped_recipes
from harness.streams import tell, write_out

NameArgument = Annotated[str, typer.Argument(help="A shipped recipe's name.")]


def add_commands(app: typer.Typer) -> None:
    """Add the commands to ``facedelta recipe``."""
    app.command("list")(list_command)
    app.command("show")(show_command)
    app.command("copy")(copy_command)


def list_command() -> None:
    """List the shipped recipes."""
    for name, title in shipped_recipes().items():
        tell(f"{name:20} {title}")


def show_command(name: NameArgument) -> None:
    """Print a shipped recipe."""
    write_out(shipped_recipe(name).read_text(encoding="utf-8"))


def copy_command(
    name: NameArgument,
    folder: Annotated[Path, typer.Argument(help="Folder for the copy and the files that it needs.")],
) -> None:
    """Copy a shipped recipe, with the files that it needs, to change it."""
    for path in copy_recipe(name, folder):
        tell(f"written to {path}")
