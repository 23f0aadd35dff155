"""Without the extra "diffusion" there is nothing to test here but what runs without torch."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = (
    []
    if find_spec("diffusers") and find_spec("torch")
    else ["test_sega.py", "test_guidance.py", "test_unet.py", "test_semantic.py", "test_instruct.py"]
)
