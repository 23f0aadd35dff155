"""The statistics are a floor: they load nothing heavy and nothing else of ours."""

import json
import pkgutil
import subprocess
import sys

import harness.stats

FORBIDDEN = {"torch", "datasets", "PIL", "pandas", "statsmodels", "pyarrow", "pydantic", "targets"}
MODULES = sorted(f"harness.stats.{module.name}" for module in pkgutil.iter_modules(harness.stats.__path__))


def loaded_by(statement: str) -> set[str]:
    probe = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    return set(json.loads(out))


def test_the_statistics_load_nothing_heavy():
    loaded = loaded_by("import " + ", ".join(MODULES))
    assert {name.partition(".")[0] for name in loaded} & FORBIDDEN == set()
    assert {name for name in loaded if name.startswith("harness.")} == {"harness.stats", *MODULES}


def test_the_probe_can_fail():
    assert "pandas" in loaded_by("import pandas")
