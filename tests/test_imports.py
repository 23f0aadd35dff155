"""Light modules stay light, imports go one way, and nothing of ours loads by itself."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.support import command

LIGHT = [
    "harness.stats",
    "harness.stats.intervals",
    "harness.gate",
    "harness.record",
    "dataset_builder.schema",
    "dataset_builder.schema.taxonomy",
    "targets.base",
    "targets.base.config",
    "targets.base.errors",
    "targets.base.extras",
    "targets.base.files",
    "targets.base.hashing",
    "targets.base.progress",
    "targets.base.tables",
    "targets.base.text",
]
HEAVY = ("torch", "datasets", "PIL", "cv2", "onnxruntime", "transformers")
SLOW = (*HEAVY, "numpy")


def loaded_by(statement: str, looked_for: tuple[str, ...] = HEAVY) -> set[str]:
    code = f"import sys\n{statement}\nprint(*(name for name in {looked_for!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_load_nothing_heavy(module: str) -> None:
    assert loaded_by(f"import {module}") == set()


def test_the_probe_can_fail() -> None:
    assert loaded_by("import targets.images") == {"PIL"}


def test_a_decoding_process_starts_with_the_decoder_alone() -> None:
    assert loaded_by("import targets.executors.worker", SLOW) == {"PIL"}


def test_the_command_line_loads_no_model_library() -> None:
    assert loaded_by("import harness.cli") <= {"PIL"}


def test_the_console_script_ignores_a_harness_folder_of_the_user(tmp_path: Path) -> None:
    for name in ("harness", "targets", "dataset_builder"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(
            "raise RuntimeError('the wrong package')", encoding="utf-8"
        )
    result = command("targets", "list", cwd=tmp_path)
    assert result.status == 0, result.err
    assert "sface" in result.out


def test_nothing_registers_itself_with_pytest() -> None:
    groups = {entry.group for entry in distribution("facedelta").entry_points}
    assert groups == {"console_scripts"}
