"""Make harness/example/comparisons.csv: ``python -m tests.harness.example_comparisons``.

Similarities from 0 to 100 as a face-comparison service might give them for the pictures of
harness/example/pairs.csv. They are drawn from a seeded generator: no picture and no service is behind them.
For each pair: source with transformed face, and either of them with the identity's other source picture. Some
comparisons of masked faces have no answer.
"""

from __future__ import annotations

import csv
import random

from tests.support import ROOT

FOLDER = ROOT / "harness" / "example"
SEED = 11
SAME, LOSS, NO_ANSWER = 93.0, {"sunglasses": 8.0, "facemask": 20.0}, {"facemask": 0.03}
MORE_LOSS = {("facemask", "BF"): 5.0}
HEADER = ("first", "second", "similarity")


def rows() -> list[tuple[str, str, str]]:
    """All comparisons, each once."""
    draw = random.Random(SEED)
    with (FOLDER / "pairs.csv").open(encoding="utf-8") as stream:
        pairs = list(csv.DictReader(stream))
    person = {pair["identity"]: draw.gauss(0, 2) for pair in pairs}
    other = {
        pair["source"]: next(
            item["source"]
            for item in pairs
            if item["identity"] == pair["identity"] and item["source"] != pair["source"]
        )
        for pair in pairs
    }

    def similarity(identity: str, loss: float, spread: float) -> str:
        return f"{min(99.9, SAME + person[identity] - loss + draw.gauss(0, spread)):.1f}"

    found: dict[frozenset[str], tuple[str, str, str]] = {}
    for pair in pairs:
        source, edited, attribute = pair["source"], pair["transformed"], pair["attribute"]
        loss = LOSS[attribute] + MORE_LOSS.get((attribute, pair["demographic"]), 0.0)
        answered = draw.random() >= NO_ANSWER.get(attribute, 0.0)
        for first, second, less in (
            (source, edited, loss - 3),
            (edited, other[source], loss),
            (source, other[source], 0),
        ):
            value = similarity(pair["identity"], less, 1.5)
            shown = value if answered or (first, second) == (source, other[source]) else ""
            found.setdefault(frozenset((first, second)), (first, second, shown))
    return list(found.values())


def text() -> str:
    """The table as it ships."""
    return "".join(",".join(row) + "\n" for row in (HEADER, *rows()))


if __name__ == "__main__":
    (FOLDER / "comparisons.csv").write_text(text(), encoding="utf-8", newline="\n")
