"""Without the extra "diffusion" there is nothing to test here but what runs without torch."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = (
    []
    if find_spec("diffusers") and find_spec("torch")
    else [
        "test_build.py",
        "test_checked_first.py",
        "test_paper_recipe.py",
        "test_diffusion.py",
        "test_engine.py",
    ]
)
