"""The calibration study in small: what the gate promises holds within its Monte-Carlo error."""

from __future__ import annotations

from tests.benchmarks.gate import (
    acquisition_at_the_margin,
    at_the_margin,
    error_rates_at_the_margin,
    nothing_changed,
    twice_the_margin,
)


def test_false_passes_and_false_fails_are_rare() -> None:
    rows = [
        *at_the_margin(2000, (10, 40)),
        *nothing_changed(1000, (10, 40)),
        *acquisition_at_the_margin(400, (100,)),
    ]
    for row in rows:
        assert float(str(row["rate"])) <= 0.025 + 3 * max(float(str(row["mc_se"])), 0.0035), row
    assert any(float(str(row["rate"])) > 0.015 for row in rows[:4]), "and not by never passing"


def test_twice_the_margin_fails_with_the_planned_power() -> None:
    for row in twice_the_margin(2000, (60,)):
        assert abs(float(str(row["rate"])) - 0.8) < 0.04, row


def test_error_rates_pass_at_the_margin_as_rarely_as_promised() -> None:
    rows = error_rates_at_the_margin(200, (60,))
    for row in rows:
        # 200 draws at .025 have a Monte-Carlo standard error of .011.
        assert float(str(row["rate"])) <= 0.025 + 3 * 0.011, row
    assert float(str(rows[0]["rate"])) > 0, "and not by never passing"
