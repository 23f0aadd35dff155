"""Let atheris look for inputs of our readers that end in anything but our own errors.

    python -m tests.fuzz.coverage_guided FOLDER [READER ...] [-max_total_time=600 ...]

FOLDER is for the run's files. Each input begins with a byte that says whose it is. What libFuzzer prints ends
with the traceback; the input lies in ``crash-*``.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["targets", "dataset_builder", "harness", "tests.fuzz"]):
    from targets.base.errors import FacedeltaError
    from tests.fuzz.readers import readers, small_run


def main() -> None:
    """Write the corpus of valid files and start."""
    folder = Path(sys.argv[1])
    corpus, work = folder / "corpus", folder / "work"
    for place in (corpus, work):
        place.mkdir(parents=True, exist_ok=True)
    wanted = [word for word in sys.argv[2:] if not word.startswith("-")]
    found = [
        (name, item) for name, item in readers(small_run(folder)).items() if not wanted or name in wanted
    ]
    for number, (name, item) in enumerate(found):
        (corpus / f"{number}").write_bytes(bytes([number]) + item.content)
        (work / name).mkdir(exist_ok=True)

    def try_one(data: bytes) -> None:
        name, item = found[data[0] % len(found) if data else 0]
        path = work / name / item.name
        path.write_bytes(data[1:])
        with suppress(FacedeltaError):
            item.read(path)

    options = [word for word in sys.argv[2:] if word.startswith("-")]
    atheris.Setup([sys.argv[0], str(corpus), f"-artifact_prefix={folder}/", "-timeout=60", *options], try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
