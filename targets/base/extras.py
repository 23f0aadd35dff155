"""Optional packages: imported when first needed, and named with the command that installs them."""

from __future__ import annotations

import importlib
from types import ModuleType

from targets.base.errors import MissingExtraError


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import ``module``, which belongs to the extra ``extra``.

    Raises:
        MissingExtraError: the module is not installed; the message holds the exact install command.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise missing(module, extra, purpose) from None


def missing(module: str, extra: str, purpose: str) -> MissingExtraError:
    """Return the error for a package of ``extra`` that isn't there."""
    return MissingExtraError(
        f"{purpose} needs the package '{module}', which is not installed: pip install 'facedelta[{extra}]'"
    )
