"""Digests of code, which can change a score as weights can."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from targets.base.hashing import file_digest, folder_digests, settings_digest


def code_digest(path: Path) -> str:
    """SHA-256 of a Python file and of all files in its folder that it imports, directly or not."""
    own, waiting, found = path.resolve().parent, [path.resolve()], set[Path]()
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _imported(file, own)
    if len(found) == 1:
        return file_digest(path)
    return settings_digest({file.relative_to(own).as_posix(): file_digest(file) for file in sorted(found)})


def _imported(file: Path, root: Path) -> Iterator[Path]:
    """Files under ``root`` that a file imports by name, wherever in it."""
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError:
        # Nobody has run it, or the target would not have loaded.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_of(root, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = file.parents[node.level - 1] if node.level else root
            for alias in node.names:
                if base.is_relative_to(root):
                    yield from _files_of(base, f"{node.module or ''}.{alias.name}".strip("."))


def _files_of(base: Path, name: str) -> Iterator[Path]:
    """The files of a dotted name: of each package on the way, and of the module."""
    path = base
    for part in name.split("."):
        path = path / part
        yield from (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())


def package_digest(module: str) -> str | None:
    """SHA-256 of an imported module's whole package; None where it has no files (it is compiled in)."""
    top = getattr(sys.modules[module.partition(".")[0]], "__file__", None)
    if top is None:
        return None
    file = Path(top)
    if file.name != "__init__.py":
        return file_digest(file)
    return settings_digest(folder_digests(file.parent, "**/*.py"))


@cache
def program_digest() -> str:
    """SHA-256 of this package: another version may read a picture, or a model's answer, in another way."""
    return settings_digest(folder_digests(Path(__file__).parent, "**/*.py"))
