"""The R reference: its cells by (attribute, concept, group), and how close ours must come."""

from __future__ import annotations

import json
import math
from typing import Any

from tests.support import shipped


def reference(name: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Cells of one reference file."""
    data = json.loads((shipped("oracle") / "reference" / f"{name}.json").read_text(encoding="utf-8"))
    if "deduplicated" in data:
        return {("sunglasses", "sunglass", "WM"): data["deduplicated"]}
    return {(c["attribute"], c["concept"], c["demographic"]): c for c in data["cells"].values()}


def close(ours: float, theirs: float, relative: float = 1e-9) -> bool:
    """Within the reference's tolerance; p values below 1e-12 have a wider one."""
    if 0 < abs(theirs) < 1e-12:
        relative = 1e-6
    return math.isclose(ours, theirs, rel_tol=relative, abs_tol=1e-15)
