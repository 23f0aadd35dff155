"""Recognition error rates of an audit: thresholds, planted failures, failures to acquire, tables."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness.gallery import RecognitionOptions
from harness.outcomes import CODES, Embedded, Labels, Outcomes
from harness.recognition import recognise
from harness.recognition_record import Recognition, RecognitionCell
from targets.base.errors import InputError
from targets.catalogue import load_target
from tests.benchmarks import recognition as benchmark
from tests.support import call, drawn_pairs

GROUPS, ATTRIBUTES = ("AM", "BF", "WM"), ("beard", "glasses")
PEOPLE, DIMENSIONS = 26, 16
SMALL = {"target_fmr": 0.1, "draws": 200, "permutations": 99}


def outcomes(
    seed: int, planted: tuple[str, str] | None = None, lost: int = 0, alike: float = 0.5
) -> Outcomes:
    """Three groups of 26 people with 2 pictures and 2 edits each; a face is its person plus noise.

    Args:
        seed: of the faces.
        planted: group and attribute whose edited faces are turned away (a fixed orthogonal matrix).
        lost: how many of the edited BF faces with glasses are not found.
        alike: size of what the people of a group share; by chance more in one group than in another.
    """
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(np.random.default_rng(99).normal(size=(DIMENSIONS, DIMENSIONS)))[0]
    rows, source, transformed, reasons = [], [], [], []
    for group in GROUPS:
        shared = alike * rng.normal(size=DIMENSIONS)
        for person in range(PEOPLE):
            centre = shared + rng.normal(size=DIMENSIONS)
            for variation in range(2):
                face = centre + 0.55 * rng.normal(size=DIMENSIONS)
                for attribute in ATTRIBUTES:
                    edited = centre + 0.55 * rng.normal(size=DIMENSIONS)
                    edited = turn @ edited if planted == (group, attribute) else edited
                    gone = lost > 0 and (group, attribute) == ("BF", "glasses")
                    lost -= gone
                    rows.append((f"{group}{person}", str(variation), group, attribute))
                    source.append(face)
                    transformed.append(np.full(DIMENSIONS, np.nan) if gone else edited)
                    reasons.append(CODES["no_face"] if gone else 0)
    columns = [np.array(column, dtype=object) for column in zip(*rows, strict=True)]
    names = np.array(["-".join(row) for row in rows], dtype=object)
    labels = Labels(names, columns[0], columns[1], columns[2], columns[3], names, names)
    nothing, codes = np.zeros((len(rows), 2)), np.zeros((len(rows), 2), dtype=np.int8)
    keys = np.array(["-".join(row[:2]) for row in rows], dtype=object)
    embedded = Embedded(np.array(source), np.array(transformed), np.array(reasons, dtype=np.int8), keys)
    return Outcomes(labels, ("match", "identity"), nothing, nothing, codes, keys, names, embedded=embedded)


def report(found: Outcomes, **options: float) -> Recognition:
    made = recognise(found, "x", ATTRIBUTES, GROUPS, RecognitionOptions(**{**SMALL, **options}))  # type: ignore[arg-type]
    assert made is not None
    return made[0]


def cells(item: Recognition, metric: str, comparison: str) -> dict[tuple[str | None, str], RecognitionCell]:
    return {(c.attribute, c.group): c for c in item.cells if (c.metric, c.comparison) == (metric, comparison)}


def beyond(item: Recognition, metric: str = "fnmr", comparison: str = "other_source") -> set[tuple[str, str]]:
    """Cells whose simultaneous band excludes no change."""
    return {
        (str(name), group)
        for (name, group), cell in cells(item, metric, comparison).items()
        if cell.change and cell.change.band_low is not None and cell.change.band_high is not None
        if cell.change.band_low > 0 or cell.change.band_high < 0
    }


def test_a_planted_recogniser_is_caught_where_it_was_planted() -> None:
    item = report(outcomes(0, planted=("BF", "glasses")))
    assert beyond(item) == {("glasses", "BF")}
    cell = cells(item, "fnmr", "other_source")["glasses", "BF"]
    assert cell.change is not None
    assert cell.change.difference is not None
    assert cell.change.difference > 0.5
    uneven = {entry.attribute: {m.name: m for m in entry.measures} for entry in item.inequity}
    worst, other = (uneven[name]["largest_difference_fnmr"] for name in ("glasses", "beard"))
    assert worst.p == pytest.approx(0.01), "no permutation is as uneven"
    assert other.p is not None
    assert other.p > 0.05


def test_an_unplanted_recogniser_is_not_caught() -> None:
    """Twelve runs at a family-wise 5 %: three or more would happen once in fifty."""
    caught = [report(outcomes(seed), permutations=1, draws=150) for seed in range(1, 13)]
    for metric, comparison in (("fnmr", "other_source"), ("fmr", "same_group")):
        assert sum(bool(beyond(item, metric, comparison)) for item in caught) <= 2


def test_rates_are_shares_of_the_comparisons() -> None:
    found = outcomes(3)
    assert found.embedded is not None
    item = report(found)
    threshold = item.thresholds[0].threshold
    assert threshold is not None
    assert item.thresholds[0].fmr == pytest.approx(0.1, abs=0.001)
    units = found.embedded.source / np.linalg.norm(found.embedded.source, axis=1, keepdims=True)
    edited = found.embedded.transformed / np.linalg.norm(found.embedded.transformed, axis=1, keepdims=True)
    labels = found.labels
    probes = np.flatnonzero((labels.demographic == "BF") & (labels.attribute == "glasses"))
    gallery = np.flatnonzero(labels.attribute == "beard")
    own = labels.identity[probes][:, None] == labels.identity[gallery][None, :]
    other_picture = labels.variation[probes][:, None] != labels.variation[gallery][None, :]
    same = labels.demographic[gallery][None, :] == "BF"
    for metric, kind, wanted in (
        ("fnmr", "other_source", own & other_picture),
        ("fmr", "same_group", ~own & same),
        ("fmr", "cross_group", ~own & ~same),
    ):
        cell = cells(item, metric, kind)["glasses", "BF"]
        for side, vectors in ((cell.before, units), (cell.after, edited)):
            scores = np.round(vectors[probes] @ units[gallery].T, 6)[wanted]
            wrong = scores < threshold if metric == "fnmr" else scores >= threshold
            assert side is not None
            assert side.n == len(scores)
            assert side.errors == pytest.approx(int(wrong.sum()), abs=1), "single precision"
            assert side.complement == pytest.approx(1 - side.errors / side.n)
    both = cells(item, "fmr", "both_edited")["glasses", "BF"]
    assert both.after is not None
    assert both.after.n == (2 * PEOPLE) ** 2 / 2 - 2 * PEOPLE
    assert cells(item, "fnmr", "own_source")["glasses", "BF"].before is None


def test_failures_to_acquire_are_counted_both_ways() -> None:
    item = report(outcomes(4, lost=9))
    cell = cells(item, "fnmr", "other_source")["glasses", "BF"]
    sides = (cell.before, cell.after, cell.before_with_fta, cell.after_with_fta)
    before, after, before_fta, after_fta = (side for side in sides if side is not None)
    assert (before.n, after.n) == (2 * PEOPLE - 9,) * 2, "left out on both sides of the change"
    assert (before_fta.n, after_fta.n) == (2 * PEOPLE,) * 2
    assert after_fta.errors == after.errors + 9
    fta = cells(item, "fta", "acquisition")["glasses", "BF"]
    assert fta.before is not None
    assert fta.after is not None
    assert (fta.before.errors, fta.after.errors, fta.after.n) == (0, 9, 2 * PEOPLE)
    impostor = cells(item, "fmr", "same_group")["glasses", "BF"]
    assert impostor.after is not None
    assert impostor.after_with_fta is not None
    assert impostor.after_with_fta.n == 2 * PEOPLE * 2 * (PEOPLE - 1)
    assert impostor.after_with_fta.errors == impostor.after.errors, "a lost face never matches"
    assert impostor.after.n == (2 * PEOPLE - 9) * 2 * (PEOPLE - 1)


def test_a_target_the_people_cannot_show_is_refused_by_number() -> None:
    item = report(outcomes(5), target_fmr=0.001)
    assert {t.status for t in item.thresholds} == {"not_enough_identities"}
    assert item.thresholds[0].identities == PEOPLE
    assert item.thresholds[0].identities_needed == 246
    assert item.thresholds[0].lowest_target == pytest.approx(30 / (PEOPLE * (PEOPLE - 1) / 2))
    assert item.thresholds[0].threshold is None
    assert item.cells == ()
    assert item.inequity == ()
    assert item.distributions[0].det
    assert item.distributions[0].eer_interpolated is not None
    assert sum(item.distributions[0].impostor) == 3 * 2 * 2 * PEOPLE * (PEOPLE - 1) / 2


def test_a_given_threshold_is_used_and_needs_no_target() -> None:
    item = report(outcomes(6), threshold=0.5)
    assert [(t.scope, t.rule, t.threshold) for t in item.thresholds] == [("all", "given", 0.5)]
    assert len(cells(item, "fnmr", "other_source")) == len(GROUPS) * (1 + len(ATTRIBUTES))


@pytest.mark.parametrize(
    ("options", "words"),
    [({"target_fmr": 0.0}, "--target-fmr must lie"), ({"threshold": 1.2}, "--match-threshold must be")],
)
def test_options_out_of_range(options: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        RecognitionOptions(**options)  # type: ignore[arg-type]


TARGET = """
import numpy as np

class Eye:
    card = {"name": "eye", "weights": {"none": "0"}}

    def embed(self, images):
        small = [np.asarray(image.resize((4, 4)), dtype=float).ravel() for image in images]
        return np.array(small) - 128
"""


def test_the_command_writes_and_shows_error_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = drawn_pairs(tmp_path, identities=9)
    (tmp_path / "eye.py").write_text(TARGET, encoding="utf-8")
    run = tmp_path / "run"
    more = ("--target", f"{tmp_path / 'eye.py'}:Eye", "--out", run)
    refused = call(capsys, "audit", table, *more)
    assert refused.status == 0, refused.err
    assert "refused: FMR 0.001 needs 246 identities a group, the smallest group has 9" in refused.out
    assert call(capsys, "audit", table, *more, "--match-threshold", 0.5).status == 0
    record = json.loads((run / "record.json").read_text(encoding="utf-8"))
    (item,) = record["recognition"]
    assert item["thresholds"][0]["threshold"] == 0.5
    shown = call(capsys, "table", run, "--recognition").out
    for words in ("Thresholds", "FNMR, other pictures", "FMR, same group", "max_over_geomean_fmr"):
        assert words in shown
    assert shown.index("max_over_geomean_fmr") < shown.index("max_over_min_fmr")
    text = call(capsys, "table", run, "--recognition", "--format", "csv").out
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["fta"] for row in rows} == {"apart", "non_match"}
    assert text == (run / "tables" / "recognition.csv").read_text(encoding="utf-8")
    for name in ("det.csv", "score_histograms.csv", "recognition.md"):
        assert (run / "tables" / name).stat().st_size > 100


def complete_table(folder: Path, pairs: Path) -> list[list[str]]:
    """Every two pictures of a run with the cosine that the drawn recogniser gives them."""
    spec = f"{folder / 'eye.py'}:Eye"
    target: Any = load_target(spec).target
    with pairs.open(encoding="utf-8") as stream:
        names = sorted({row[side] for row in csv.DictReader(stream) for side in ("source", "transformed")})
    images = []
    for name in names:
        with Image.open(folder / name) as opened:
            images.append(opened.convert("RGB"))
    vectors = target.embed(images)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = unit @ unit.T
    return [
        [names[one], names[two], f"{100 * cosine[one, two]:.9f}"]
        for one in range(len(names))
        for two in range(one + 1, len(names))
    ]


def write_comparisons(path: Path, rows: Sequence[Sequence[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["first", "second", "similarity"], *rows])
    return path


def recognition_of(run: Path) -> dict[str, Any]:
    (item,) = json.loads((run / "record.json").read_text(encoding="utf-8"))["recognition"]
    return dict(item)


def test_a_complete_table_of_comparisons_gives_the_rates_of_its_vectors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = drawn_pairs(tmp_path, identities=9)
    (tmp_path / "eye.py").write_text(TARGET, encoding="utf-8")
    rows = complete_table(tmp_path, pairs)
    table = write_comparisons(tmp_path / "all.csv", rows)
    threshold = ("--match-threshold", 0.5)
    eye, captured = tmp_path / "eye", tmp_path / "captured"
    assert (
        call(
            capsys, "audit", pairs, "--target", f"{tmp_path / 'eye.py'}:Eye", "--out", eye, *threshold
        ).status
        == 0
    )
    more = ("--set", "scale=100", "--target", f"captured-comparisons:{table}", *threshold)
    result = call(capsys, "audit", pairs, "--out", captured, *more)
    assert result.status == 0, result.err
    one, other = recognition_of(eye), recognition_of(captured)
    for name in ("thresholds", "cells", "inequity", "distributions"):
        assert one[name] == other[name], name
    assert any(cell["metric"] == "fmr" and cell["before"]["errors"] for cell in other["cells"])
    assert "captured similarity divided by the scale" in other["rules"]["template"]

    # Without what only "both_edited" needs, that kind of comparison is left out and the rest stays.
    edited = [row for row in rows if "source" not in row[0] and "source" not in row[1]]
    assert 0 < len(edited) < len(rows)
    fewer = write_comparisons(tmp_path / "fewer.csv", [row for row in rows if row not in edited])
    more = ("--set", "scale=100", "--target", f"captured-comparisons:{fewer}", *threshold)
    assert call(capsys, "audit", pairs, "--out", tmp_path / "fewer", *more).status == 0
    kept = [cell for cell in one["cells"] if cell["comparison"] != "both_edited"]
    assert recognition_of(tmp_path / "fewer")["cells"] == kept

    # One comparison that is needed and not there: no rates, and the reason.
    gap = next(row for row in rows if "source" in row[0] and "source" in row[1])
    hole = write_comparisons(tmp_path / "hole.csv", [row for row in rows if row is not gap])
    more = ("--set", "scale=100", "--target", f"captured-comparisons:{hole}", *threshold)
    result = call(capsys, "audit", pairs, "--out", tmp_path / "hole", *more)
    record = json.loads((tmp_path / "hole" / "record.json").read_text(encoding="utf-8"))
    assert record["recognition"] == []
    assert any("1 of" in text and "comparisons are missing" in text for text in record["warnings"])


def test_an_empty_similarity_is_a_non_match(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = drawn_pairs(tmp_path, identities=9)
    (tmp_path / "eye.py").write_text(TARGET, encoding="utf-8")
    rows = complete_table(tmp_path, pairs)
    more = ("--set", "scale=100", "--match-threshold", -0.9)

    def genuine_errors(name: str) -> int:
        out = tmp_path / f"{name}-run"
        target = f"captured-comparisons:{tmp_path / f'{name}.csv'}"
        assert call(capsys, "audit", pairs, "--out", out, "--target", target, *more).status == 0
        cells = recognition_of(out)["cells"]
        return sum(
            c["after"]["errors"] for c in cells if (c["metric"], c["comparison"]) == ("fnmr", "own_source")
        )

    write_comparisons(tmp_path / "whole.csv", rows)
    own = next(row for row in rows if row[0].replace("glasses", "source") == row[1])
    write_comparisons(tmp_path / "empty.csv", [[*row[:2], ""] if row is own else row for row in rows])
    assert genuine_errors("empty") == genuine_errors("whole") + 1


def test_a_similarity_that_rounds_to_the_threshold_is_a_match_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = drawn_pairs(tmp_path, identities=4)
    (tmp_path / "eye.py").write_text(TARGET, encoding="utf-8")
    # .4999997 is .5 in six decimals, .4999994 is not.
    for similarity, matches in ((49.99997, True), (49.99994, False)):
        table = [
            [*row[:2], 90 if row[0].split("-")[0] == row[1].split("-")[0] else similarity]
            for row in complete_table(tmp_path, pairs)
        ]
        target = f"captured-comparisons:{write_comparisons(tmp_path / 'flat.csv', table)}"
        out = tmp_path / str(similarity)
        more = ("--set", "scale=100", "--match-threshold", 0.5)
        assert call(capsys, "audit", pairs, "--target", target, "--out", out, *more).status == 0
        rates = [
            rate
            for cell in recognition_of(out)["cells"]
            for rate in (cell["before"], cell["after"])
            if cell["metric"] == "fmr" and rate is not None
        ]
        assert len(rates) > 6
        assert all(rate["errors"] == (rate["n"] if matches else 0) for rate in rates)


def test_an_embedder_that_saw_no_picture_has_an_answer_for_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = drawn_pairs(tmp_path)
    (tmp_path / "eye.py").write_text(TARGET, encoding="utf-8")
    for picture in (tmp_path / "images").iterdir():
        picture.write_bytes(b"no picture")
    target, out = f"{tmp_path / 'eye.py'}:Eye", tmp_path / "run"
    result = call(capsys, "audit", pairs, "--target", target, "--out", out, "--max-failures", 1)
    assert result.status == 0, result.err
    record = json.loads((out / "record.json").read_text(encoding="utf-8"))
    assert {cell["status"] for cell in record["cells"]} == {"undefined"}


def test_other_runs_have_no_error_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.harness.test_audit_scores import row, scores

    table = scores(tmp_path / "s.csv", [row(1, 0.1, 0.2), row(2, 0.1, 0.4), row(3, 0.2, 0.4)])
    assert call(capsys, "audit", "--scores", table, "--out", tmp_path / "run").status == 0
    assert json.loads((tmp_path / "run" / "record.json").read_text())["recognition"] == []
    assert "no recognition error rates" in call(capsys, "table", tmp_path / "run", "--recognition").err


def test_intervals_keep_their_level_and_naive_ones_do_not() -> None:
    """Reduced; the whole is `python -m tests.benchmarks.recognition`."""
    rates = benchmark.coverage(80, 40, resamples=200)
    # 80 draws at .05 have a Monte-Carlo standard error of .024.
    for name in ("fnmr", "fmr", "change"):
        assert rates[name] <= 0.05 + 4 * 0.024, name
    assert rates["naive fmr"] > 0.15


def test_groups_that_are_alike_are_seldom_called_uneven() -> None:
    """Forty runs at 5 %: seven or more would happen once in a hundred."""
    names = ("max_over_geomean_fnmr", "max_over_min_fnmr", "largest_difference_fnmr", "gini_fnmr")
    called = dict.fromkeys(names, 0)
    for seed in range(40):
        # At .3 nearly everybody matches, so that some groups have no false non-match and ratios are infinite.
        item = report(outcomes(seed, alike=0.0), threshold=(0.3, 0.6)[seed % 2], draws=2, permutations=99)
        found = {m.name: m for entry in item.inequity if entry.attribute == "glasses" for m in entry.measures}
        for name in names:
            called[name] += (found[name].p or 1.0) <= 0.05
    assert max(called.values()) <= 6, called


def test_measures_of_fmr_stand_without_a_test_and_ratios_are_tested() -> None:
    item = report(outcomes(0))
    for entry in item.inequity:
        for measure in entry.measures:
            of_fnmr = measure.name.endswith("_fnmr")
            assert ("no permutation null" in measure.reasons.get("p", "")) != of_fnmr
            assert (measure.p is not None) == (of_fnmr and measure.status in ("ok", "infinite_min_is_zero"))
        assert [(one.a, one.b) for one in entry.fmr_ratios] == [("AM", "BF"), ("AM", "WM"), ("BF", "WM")]
        rates = {
            group: cell.after or cell.before
            for (name, group), cell in cells(item, "fmr", "same_group").items()
            if name == entry.attribute
        }
        raw = sorted(one.p for one in entry.fmr_ratios if one.p is not None)
        for one in entry.fmr_ratios:
            wanted = [rate.rate for group in (one.a, one.b) if (rate := rates[group]) is not None]
            assert one.ratio == pytest.approx((wanted[1] or 0) / (wanted[0] or 1))
            assert one.low is not None
            assert one.high is not None
            assert one.low < one.ratio < one.high
            assert one.p is not None
            holm = max(min(1, (3 - i) * p) for i, p in enumerate(raw) if p <= one.p)
            assert one.p_adjusted == pytest.approx(holm)


def test_a_group_that_looks_alike_is_found() -> None:
    found = outcomes(2, alike=0.0)
    assert found.embedded is not None
    own = found.labels.demographic == "WM"
    for side in (found.embedded.source, found.embedded.transformed):
        side[own, 0] += 2.5
    (sources, *_) = report(found).inequity
    called = {(one.a, one.b) for one in sources.fmr_ratios if (one.p_adjusted or 1.0) <= 0.05}
    assert called == {("AM", "WM"), ("BF", "WM")}


@pytest.mark.parametrize("design", list(benchmark.RATIO_DESIGNS)[1:4:2])
def test_ratios_of_fmr_err_as_seldom_as_they_say(design: str) -> None:
    """Groups with centres of their own; reduced, the whole is `python -m tests.benchmarks.recognition`."""
    for kind, share in benchmark.ratio_size(60, design, resamples=100).items():
        # 60 draws at .05 have a Monte-Carlo standard error of .028.
        assert share <= 0.05 + 3 * 0.028, kind


def test_nobody_is_an_impostor_of_themself() -> None:
    """The same people in two groups: no comparison across groups, and no test of ratios."""
    found = outcomes(4)
    human = np.array([name[2:] for name in found.labels.identity], dtype=object)
    shared, apart = report(replace(found, labels=replace(found.labels, person=human))), report(found)
    assert cells(apart, "fmr", "cross_group")
    assert not cells(shared, "fmr", "cross_group")
    assert "nobody is an impostor of themself" in shared.rules["cross_group"]
    for entry in shared.inequity:
        assert entry.fmr_ratios == ()
        assert "people are in several groups" in entry.fmr_ratios_reason
    for place, one in cells(shared, "fmr", "same_group").items():
        other = cells(apart, "fmr", "same_group")[place]
        assert (one.before and one.before.rate) == (other.before and other.before.rate)
