"""The calibration study in small: what the gate promises holds within its Monte-Carlo error."""

from __future__ import annotations

import pytest

from tests.benchmarks.gate import (
    acquisition_at_the_margin,
    at_the_margin,
    error_rates_at_the_margin,
    lost_pairs,
    nothing_changed,
    people_who_match_everyone,
    power,
)


@pytest.mark.slow
def test_false_passes_and_false_fails_are_rare() -> None:
    rows = [
        *at_the_margin(400, (10, 100)),
        *lost_pairs(100, (100,)),
        *nothing_changed(400, (10,)),
        *acquisition_at_the_margin(200, (100,)),
        *people_who_match_everyone(40, (20,)),
        *error_rates_at_the_margin(40, (60,)),
    ]
    for row in rows:
        draws = 40 if "fnmr" in str(row["what"]) or "fmr" in str(row["what"]) else 100
        error = (0.025 * 0.975 / draws) ** 0.5
        assert float(str(row["rate"])) <= 0.025 + 3 * error, row
    without = [float(str(row["without"])) for row in rows if row["without"]]
    assert max(without) > 0.2, "without the room for unseen breaks the gate does err"
    assert any(float(str(row["rate"])) > 0 for row in rows[:20]), (
        "and it does not avoid errors by never passing"
    )


@pytest.mark.slow
def test_the_planned_number_of_identities_decides() -> None:
    for row in power(1000, (60,)):
        assert abs(float(str(row["rate"])) - 0.8) < 0.06, row
