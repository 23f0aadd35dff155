"""Reference numbers of package cimat (Fogliato, Patil & Perona 2023) on a generated set.

cimat needs numpy 1, so it lives in an environment of its own. From the root of the checkout:

    python -m venv /tmp/cimat && /tmp/cimat/bin/pip install cimat==0.1.2 "numpy<2"
    /tmp/cimat/bin/python tests/harness/stats/cimat_reference.py tests/harness/stats/data/cimat.json
"""

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PEOPLE, DIMENSIONS = 60, 6
THRESHOLDS = (0.5, 0.7, 0.8)
TARGETS = (0.05, 0.1, 0.2)
DRAWS = 4000
LEVEL = 0.95


def embeddings() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return 1 to 4 pictures of each of 60 people, some of whom look alike; shape (n, 6) and (n,)."""
    rng = np.random.default_rng(7)
    people = np.repeat(np.arange(PEOPLE), np.arange(PEOPLE) % 4 + 1)
    centre = rng.normal(size=(PEOPLE, DIMENSIONS))
    centre[: PEOPLE // 4, 0] += 3.0
    return centre[people] + 0.6 * rng.normal(size=(len(people), DIMENSIONS)), people


def reference() -> dict[str, object]:
    from cimat import MTData, UncertaintyEstimator

    vectors, people = embeddings()
    pictures: dict[int, dict[int, NDArray[np.float64]]] = {}
    for row, person in enumerate(people.tolist()):
        pictures.setdefault(person, {})[row] = vectors[row]
    data = MTData(pictures)
    data.generate_similarity_scores()
    estimator = UncertaintyEstimator(scores=data.similarity_scores)
    np.random.seed(0)
    estimator.run_bootstrap(B=DRAWS)
    fixed = {}
    for threshold in THRESHOLDS:
        fnmr, fmr, _ = estimator.compute_binerror_metrics(threshold)
        plug_in = estimator.compute_variance(threshold, "plugin")
        low_high = estimator.get_binerror_ci(threshold, *plug_in, alpha=1 - LEVEL)
        fixed[str(threshold)] = {
            "fnmr": fnmr,
            "fmr": fmr,
            "plug_in_variance": {"fnmr": plug_in[0], "fmr": plug_in[1]},
            "bootstrap_variance": dict(zip(("fnmr", "fmr"), estimator.compute_variance(threshold, "boot"))),  # noqa: B905
            "interval": {"fnmr": low_high[0], "fmr": low_high[1]},
        }
    ends, _ = estimator.get_roc_ci(target_fpr=list(TARGETS), alpha=1 - LEVEL)
    return {
        "cimat": "0.1.2",
        "draws": DRAWS,
        "level": LEVEL,
        "fixed_threshold": fixed,
        "tmr_at_fmr": {str(t): [ends[0][i], ends[1][i]] for i, t in enumerate(TARGETS)},
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(reference(), indent=1) + "\n")
