"""Files that packages carry, found without importing the package: some can't be imported any more."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from targets.base.extras import missing


def package_file(package: str, pattern: str, extra: str, purpose: str) -> Path:
    """The first file that matches ``pattern`` inside an installed package.

    Raises:
        MissingExtraError: the package is not installed, or holds no such file.
    """
    found = importlib.util.find_spec(package)
    folders = (found.submodule_search_locations if found else None) or ()
    files = [file for folder in folders for file in sorted(Path(folder).glob(pattern))]
    if not files:
        raise missing(package, extra, purpose)
    return files[0]
