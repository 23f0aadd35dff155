"""The gate on a recogniser's error rates: paired over people, and no pass from what is not comparable."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from harness.analysis import Options, make_record
from harness.comparison_file import COMPARISONS_FILE, read_comparisons
from harness.gallery import RecognitionOptions
from harness.gate import GateResult, gate
from harness.outcomes import CODES, Outcomes
from harness.record import read_record
from harness.run import write_run
from targets.base.errors import InputError
from targets.card import TargetCard
from tests.harness.runs import spread, write_deltas
from tests.harness.test_gate import policy, with_failures
from tests.harness.test_recognition import PEOPLE, outcomes
from tests.support import call

RULE: dict[str, Any] = {"attribute": "glasses", "concept": "", "group": "BF", "margin": 0.2}


def write(folder: Path, found: Outcomes, **options: Any) -> Path:
    """Write the run of an embedder with these vectors."""
    chosen = RecognitionOptions(**{"target_fmr": 0.1, "draws": 300, "permutations": 1, **options})
    origin = {"path": "made", "kind": "table", "sha256": "0" * 64, "rows": len(found.labels)}
    card = TargetCard(name="x", spec="x", kind="embedding")
    write_run(folder, make_record(found, card, origin, Options(recognition=chosen)), found)
    return folder


def jittered(found: Outcomes, size: float) -> Outcomes:
    """Vectors of a slightly other version of the model."""
    rng = np.random.default_rng(1)
    assert found.embedded is not None
    sides = (found.embedded.source, found.embedded.transformed)
    moved = [side + size * rng.normal(size=side.shape) for side in sides]
    return replace(found, embedded=replace(found.embedded, source=moved[0], transformed=moved[1]))


def held(new: Path, base: Path, folder: Path, **rule: Any) -> GateResult:
    return gate(new, base, policy(folder, {**RULE, **rule}, min_pairs=2))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("base") / "run", outcomes(0))


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("new") / "run", outcomes(0, planted=("BF", "glasses")))


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [
        ({"metric": "fnmr", "harmful": "higher"}, "fail"),
        ({"metric": "fnmr", "harmful": "lower"}, "pass"),
        ({"metric": "tmr", "harmful": "lower"}, "fail"),
        ({"metric": "tmr", "harmful": "higher"}, "pass"),
        ({"metric": "fnmr", "harmful": "higher", "comparison": "own_source"}, "fail"),
        ({"metric": "fnmr", "harmful": "higher", "side": "change"}, "fail"),
        ({"metric": "fnmr", "harmful": "both", "side": "before"}, "pass"),
        ({"metric": "fnmr", "harmful": "both", "attribute": "beard"}, "pass"),
        ({"metric": "difference", "of": "fnmr", "group": ["WM", "BF"], "harmful": "both"}, "fail"),
        ({"metric": "difference", "of": "tmr", "group": ["WM", "BF"], "harmful": "lower"}, "fail"),
        (
            {"metric": "difference", "of": "fnmr", "group": ["AM", "WM"], "harmful": "both", "margin": 0.3},
            "pass",
        ),
        ({"metric": "fmr", "harmful": "higher"}, "inconclusive"),
        ({"metric": "fmr", "harmful": "higher", "margin": 0.3}, "pass"),
        ({"metric": "fmr", "harmful": "higher", "comparison": "cross_group", "margin": 0.3}, "pass"),
    ],
)
def test_a_planted_recogniser_fails_where_it_was_planted(
    rule: dict[str, Any], outcome: str, base: Path, planted: Path, tmp_path: Path
) -> None:
    result = held(planted, base, tmp_path, **rule)
    assert result.outcome == outcome, result.checks[0].summary


def test_the_same_model_passes_and_its_bounds_are_those_of_no_event(base: Path, tmp_path: Path) -> None:
    (check,) = held(base, base, tmp_path, metric="fnmr", harmful="higher").checks
    assert (check.outcome, check.change.change) == ("pass", 0)
    # Nobody changed: the exact one-sided bound of no event in so many people.
    assert check.change.high == pytest.approx(1 - 0.025 ** (1 / PEOPLE))
    (check,) = held(base, base, tmp_path, metric="fnmr", harmful="higher", margin=0.05).checks
    assert check.outcome == "inconclusive"
    assert check.identities_needed == 72  # the smallest G with .95^G < .025


def test_rates_are_the_records_and_the_change_is_paired(base: Path, tmp_path: Path) -> None:
    found = jittered(outcomes(0), 0.1)
    new = write(tmp_path / "new", found)
    other = write(tmp_path / "other", outcomes(1))
    (check,) = held(new, base, tmp_path, metric="fnmr", harmful="both", attribute="beard").checks
    rates = [
        next(
            cell.after.rate
            for cell in read_record(run).recognition[0].cells
            if (cell.attribute, cell.group, cell.metric, cell.comparison)
            == ("beard", "BF", "fnmr", "other_source")
        )
        for run in (base, new)
    ]
    assert check.change.change == pytest.approx(rates[1] - rates[0])
    (apart,) = held(other, base, tmp_path, metric="fmr", harmful="both").checks
    (paired,) = held(new, base, tmp_path, metric="fmr", harmful="both").checks
    assert paired.change.high - paired.change.low < 0.7 * (apart.change.high - apart.change.low)


def test_failures_to_acquire_are_counted_both_ways(base: Path, tmp_path: Path) -> None:
    new = write(tmp_path / "new", outcomes(0, lost=26))
    (check,) = held(new, base, tmp_path, metric="fnmr", harmful="higher").checks
    assert check.outcome == "inconclusive", "nothing among faces that were found, half as non-matches"
    assert abs(check.change.change) < 0.1
    assert check.change.high > 0.5
    (check,) = held(new, base, tmp_path, metric="fnmr", harmful="higher", group="WM").checks
    assert check.outcome == "pass"


def test_a_difference_of_failures_to_acquire(tmp_path: Path) -> None:
    before = {("glasses", group): with_failures(200, 0) for group in ("WM", "BF")}
    base = write_deltas(tmp_path / "a", before)
    rule = {"metric": "difference", "of": "fta", "group": ["WM", "BF"], "harmful": "both", "margin": 0.05}
    one = write_deltas(tmp_path / "b", {**before, ("glasses", "BF"): with_failures(200, 60)})
    (check,) = held(one, base, tmp_path, **rule).checks
    assert check.outcome == "fail", check.summary
    assert check.change.change == pytest.approx(0.3)
    (check,) = held(base, base, tmp_path, **rule).checks
    assert check.outcome == "pass"
    # Two independent exact bounds of no event in 200, added up by squares.
    assert check.change.high == pytest.approx(np.sqrt(2) * (1 - 0.025 ** (1 / 200)))


def test_a_difference_of_failures_says_how_many_identities_would_decide(tmp_path: Path) -> None:
    before = {("glasses", group): with_failures(100, 0) for group in ("WM", "BF")}
    base = write_deltas(tmp_path / "a", before)
    new = write_deltas(
        tmp_path / "b", {("glasses", "WM"): with_failures(100, 4), ("glasses", "BF"): with_failures(100, 10)}
    )
    rule = {"metric": "difference", "of": "fta", "group": ["WM", "BF"], "harmful": "higher", "margin": 0.1}
    (check,) = held(new, base, tmp_path, **rule).checks
    se = np.sqrt((0.04 * 0.96 + 0.1 * 0.9) / 99)
    z = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    assert check.outcome == "inconclusive"
    assert check.change.se == pytest.approx(se)
    for more, unseen in (({}, 1.0), ({"unseen_breaks": "ignore"}, 0.0)):
        (check,) = held(new, base, tmp_path, **rule, **more).checks
        share = [unseen * (1 - 0.025 ** (2 / n)) for n in range(1, 1000)]
        bounds = [(1 - u) * z * se * np.sqrt(200 / n) + 2 * u for n, u in enumerate(share, 1)]
        assert check.identities_needed == next(n for n, bound in enumerate(bounds, 1) if bound <= 0.1)


def test_bounds_are_no_narrower_than_the_standard_error_given(
    base: Path, planted: Path, tmp_path: Path
) -> None:
    for metric in ("fnmr", "fmr"):
        (check,) = held(planted, base, tmp_path, metric=metric, harmful="higher").checks
        change = check.change
        assert change.se > 0
        half = stats.t.ppf(0.975, change.df) * change.se
        assert change.high - change.change >= min(half, 1 - change.change) - 1e-12
        assert change.change - change.low >= min(half, 1 + change.change) - 1e-12


@pytest.mark.parametrize(
    ("damage", "outcome", "words"),
    [
        (
            lambda run: (run / COMPARISONS_FILE).unlink(),
            "not comparable",
            "the new run has no comparisons.parquet",
        ),
        (
            lambda run: another_runs_comparisons(run),
            "not comparable",
            "the new run's comparisons.parquet is not the one of its record",
        ),
        (lambda run: write(run, outcomes(0), threshold=0.5), "not comparable", "set by other rules"),
        (
            lambda run: write(run, outcomes(0), target_fmr=0.11),
            "not comparable",
            "at FMR 0.11 in the new run",
        ),
        (
            lambda run: write(run, kept_pairs(outcomes(0), 308)),
            "not comparable",
            "4 pairs only in the baseline",
        ),
        (
            lambda run: write_deltas(run, {("glasses", "BF"): spread(40, 0, 0.1)}),
            "not comparable",
            "concept lists differ",
        ),
    ],
)
def test_what_cannot_be_compared_never_passes(
    damage: Any, outcome: str, words: str, base: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    shutil.copytree(base, new)
    damage(new)
    result = held(new, base, tmp_path, metric="fnmr", harmful="higher")
    assert (result.outcome, result.exit_status) == (outcome, 3)
    assert words in result.summary


def another_runs_comparisons(run: Path) -> None:
    """A run with a planted change that holds the comparisons of the baseline, which would show none."""
    own = (run / COMPARISONS_FILE).read_bytes()
    write(run, outcomes(0, planted=("BF", "beard")))
    assert (run / COMPARISONS_FILE).read_bytes() != own
    (run / COMPARISONS_FILE).write_bytes(own)


@pytest.mark.parametrize(
    ("column", "change", "words"),
    [
        ("scores", lambda values: [[np.inf] * len(row) for row in values], "scores must be finite"),
        ("scores", lambda values: [[1.1] * len(row) for row in values], "must be finite cosines"),
        ("scores", lambda values: [None] * len(values), "five lists"),
        ("left", lambda values: [[-1] * len(row) for row in values], "fewer than 0 pictures"),
        ("design", lambda values: ["x"] * len(values), "must have a design of"),
    ],
)
def test_damaged_comparisons_are_one_clear_line(
    column: str, change: Any, words: str, base: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    shutil.copytree(base, new)
    table = pq.read_table(new / COMPARISONS_FILE)
    place = table.schema.get_field_index(column)
    values = pa.array(change(table.column(column).to_pylist()), table.schema.field(column).type)
    pq.write_table(table.set_column(place, table.schema.field(column), values), new / COMPARISONS_FILE)
    with pytest.raises(InputError, match=words):
        held(new, base, tmp_path, metric="fnmr", harmful="higher")
    twice = pa.concat_tables([table, table]).replace_schema_metadata(table.schema.metadata)
    pq.write_table(twice, new / COMPARISONS_FILE)
    with pytest.raises(InputError, match="repeats the comparisons"):
        held(new, base, tmp_path, metric="fnmr", harmful="higher")


def kept_pairs(found: Outcomes, n: int) -> Outcomes:
    """The first n pairs only."""
    labels = replace(
        found.labels, **{name: value[:n] for name, value in vars(found.labels).items() if value is not None}
    )
    assert found.embedded is not None
    embedded = replace(
        found.embedded,
        **{name: value[:n] for name, value in vars(found.embedded).items() if value is not None},
    )
    arrays = ("source", "transformed", "codes", "source_hash", "transformed_hash")
    return replace(
        found, labels=labels, embedded=embedded, **{name: getattr(found, name)[:n] for name in arrays}
    )


def test_a_refused_threshold_is_inconclusive(tmp_path: Path) -> None:
    run = write(tmp_path / "run", outcomes(0), target_fmr=0.001)
    result = held(run, run, tmp_path, metric="fmr", harmful="higher")
    assert (result.outcome, result.exit_status) == ("inconclusive", 3)
    assert "the baseline has no threshold: refused: FMR 0.001 needs 246 identities a group" in result.summary
    assert all(check.change.n_pairs and check.change.n_identities for check in result.checks)


def test_pairs_lost_to_a_fault_do_not_pass(base: Path, tmp_path: Path) -> None:
    found = outcomes(0)
    rows = np.flatnonzero((found.labels.demographic == "WM") & (found.labels.attribute == "beard"))[:6]
    assert found.embedded is not None
    found.embedded.reasons[rows], found.codes[rows] = CODES["unreadable"], CODES["unreadable"]
    new = write(tmp_path / "new", found)
    (check,) = held(
        new, base, tmp_path, metric="fnmr", harmful="higher", group="WM", attribute="beard"
    ).checks
    assert check.outcome == "inconclusive"
    assert "6 of 52 pairs" in check.reason


def test_a_replaced_baseline_has_the_comparisons_too(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "baseline"
    shutil.copytree(base, place)
    new = write(tmp_path / "new", jittered(outcomes(0), 0.001))
    rules = policy(tmp_path, {**RULE, "metric": "fnmr", "harmful": "higher"}, min_pairs=2)
    result = call(capsys, "gate", new, "--baseline", place, "--policy", rules, "--update-baseline")
    assert result.status == 0, result.out
    assert (place / COMPARISONS_FILE).read_bytes() == (new / COMPARISONS_FILE).read_bytes()


def test_the_file_keeps_every_comparison(tmp_path: Path) -> None:
    found = outcomes(0, lost=5)
    run = write(tmp_path / "run", found)
    read, made = read_comparisons(run), found.compared
    assert read is not None
    assert made is not None
    assert read.people == made.people
    for ours, theirs in zip(read.kinds, made.kinds, strict=True):
        assert (ours.attribute, ours.metric, ours.comparison) == (
            theirs.attribute,
            theirs.metric,
            theirs.comparison,
        )
        for way in ("apart", "with_fta"):
            for side in ("before", "after"):
                one, two = (getattr(getattr(kind, way), side) for kind in (ours, theirs))
                assert (one is None) == (two is None)
                for name in ("scores", "first", "second", "left", "right") if one else ():
                    assert np.array_equal(getattr(one, name), getattr(two, name))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_bytes(b"PAR1"), "not a readable parquet file"),
        (
            lambda path: pq.write_table(pq.read_table(path).replace_schema_metadata({}), path),
            "no readable table",
        ),
        (lambda path: pq.write_table(pq.read_table(path).drop_columns("scores"), path), "must be of schema"),
    ],
)
def test_a_damaged_file_is_bad_input(damage: Any, words: str, base: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    shutil.copytree(base, new)
    damage(new / COMPARISONS_FILE)
    with pytest.raises(InputError, match=words):
        held(new, base, tmp_path, metric="fnmr", harmful="higher")


def test_exact_bounds_are_the_binomials() -> None:
    """The smallest share under which so few changed people are seen with probability alpha."""
    high = 1 - 0.025 ** (1 / PEOPLE)
    assert stats.binom.cdf(0, PEOPLE, high) == pytest.approx(0.025)


def doubled(found: Outcomes, *, shared: bool) -> Outcomes:
    """The people of AM are those of BF as well, with the same faces."""
    assert found.embedded is not None
    labels = found.labels
    am, bf = (np.flatnonzero(labels.demographic == group) for group in ("AM", "BF"))
    for side in (found.embedded.source, found.embedded.transformed):
        side[bf] = side[am]
    person = np.array([name[2:] if name[:2] != "WM" else name for name in labels.identity], dtype=object)
    return replace(found, labels=replace(labels, person=person if shared else None))


def test_a_difference_between_groups_of_the_same_people_is_resampled_together(tmp_path: Path) -> None:
    rule = {"metric": "difference", "of": "fnmr", "group": ["AM", "BF"], "harmful": "both"}
    errors = []
    for shared in (True, False):
        folder = tmp_path / str(shared)
        old = write(folder / "old", doubled(outcomes(0), shared=shared))
        new = write(folder / "new", doubled(jittered(outcomes(0), 0.8), shared=shared))
        (check,) = held(new, old, folder, **rule).checks
        assert check.change.change == pytest.approx(0)
        errors.append(check.change.se)
    # Every resample takes a person's faces in both groups or in neither, and they are the same faces.
    assert errors[0] == pytest.approx(0)
    assert errors[1] > 0.01
