"""Pictures of a recogniser's scores: DET curves and histograms, from the data in the record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from harness.recognition_record import DetPoint, Distribution, Recognition
from harness.report.charts import altair

TICKS = (0.0001, 0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99)
SIZE = 300
_COLOURS = ("#4c78a8", "#b35806", "#2ca089", "#d0507a", "#8c6bb1", "#9a8c1c", "#2f8fbf", "#c9622b", "#6b8e23")
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])


def det_chart(report: Recognition) -> Any | None:
    """DET curves of source faces on normal-deviate axes (Martin et al. 1997), a dot at the threshold.

    Args:
        report: of a recogniser.

    Returns:
        The chart, or None where no group has a threshold at which both kinds of comparison err.
    """
    curves = {entry.group: curve(entry) for entry in report.distributions}
    drawn = {group: points for group, points in curves.items() if points}
    if not drawn:
        return None
    alt = altair()
    rows = [
        {"group": group, "fmr": _deviate(point.fmr), "fnmr": _deviate(point.fnmr), "order": index}
        for group, points in drawn.items()
        for index, point in enumerate(points)
    ]
    groups = list(drawn)
    group = alt.Color(
        "group:N",
        sort=groups,
        scale=alt.Scale(domain=groups, range=[_COLOURS[i % len(_COLOURS)] for i in range(len(groups))]),
        legend=alt.Legend(title=None, orient="bottom", columns=5, symbolStrokeWidth=2),
    )
    dash = alt.StrokeDash(
        "group:N",
        sort=groups,
        scale=alt.Scale(domain=groups, range=[_DASHES[i % len(_DASHES)] for i in range(len(groups))]),
        legend=None,
    )
    axes = {
        name: alt.Axis(
            values=[_deviate(tick) for tick in TICKS],
            labelExpr=_LABELS,
            title=title,
            grid=True,
            gridColor="#8885",
        )
        for name, title in (("fmr", "FMR, same group"), ("fnmr", "FNMR"))
    }
    scales = {name: alt.Scale(domain=_domain([row[name] for row in rows])) for name in ("fmr", "fnmr")}
    x = alt.X("fmr:Q", axis=axes["fmr"], scale=scales["fmr"])
    y = alt.Y("fnmr:Q", axis=axes["fnmr"], scale=scales["fnmr"])
    base = alt.Chart(alt.Data(values=rows))
    chart = base.mark_line(strokeWidth=2, clip=True).encode(
        x=x, y=y, color=group, strokeDash=dash, order="order:Q"
    )
    dots = [row for name, points in drawn.items() for row in _at_threshold(report, name, points)]
    if dots:
        marks = alt.Chart(alt.Data(values=dots)).mark_point(filled=True, size=60, opacity=1, clip=True)
        chart += marks.encode(x=x, y=y, color=group)
    return chart.properties(width=SIZE, height=SIZE)


def curve(entry: Distribution) -> list[DetPoint]:
    """The points that lie on normal-deviate axes: at 0 and 1 the deviate is infinite."""
    return [point for point in entry.det if 0 < point.fmr < 1 and 0 < point.fnmr < 1]


def _deviate(share: float) -> float:
    return round(float(special.ndtri(share)), 6)


_CASES = [f"abs(datum.value - ({_deviate(tick)})) < 1e-4 ? '{100 * tick:g} %'" for tick in TICKS]
_LABELS = " : ".join([*_CASES, "''"])


def _domain(values: Sequence[Any]) -> list[float]:
    """From the tick below the data to the tick above."""
    ticks = [_deviate(tick) for tick in TICKS]
    below = [tick for tick in ticks if tick <= min(values)]
    above = [tick for tick in ticks if tick >= max(values)]
    return [below[-1] if below else min(values), above[0] if above else max(values)]


def _at_threshold(report: Recognition, group: str, points: Sequence[DetPoint]) -> list[dict[str, Any]]:
    """The point of a curve nearest to the global threshold, in score."""
    threshold = report.thresholds[0].threshold
    if threshold is None:
        return []
    nearest = min(points, key=lambda point: abs(point.threshold - threshold))
    lowest, highest = (pick(point.threshold for point in points) for pick in (min, max))
    if not lowest <= threshold <= highest:
        return []
    return [{"group": group, "fmr": _deviate(nearest.fmr), "fnmr": _deviate(nearest.fnmr)}]


def histogram_chart(report: Recognition, entry: Distribution) -> Any | None:
    """Shares of genuine and impostor comparisons by score, a line at the threshold; None without any.

    Args:
        report: of a recogniser.
        entry: scores of one group, or of all.
    """
    width = entry.edges[1] - entry.edges[0]
    rows: list[dict[str, Any]] = []
    for kind, counts in (("genuine", entry.genuine), ("impostor, same group", entry.impostor)):
        total = sum(counts)
        rows += [
            {"kind": kind, "low": edge, "high": edge + width, "share": count / total, "none": 0}
            for edge, count in zip(entry.edges, counts, strict=True)
            if count
        ]
    if not rows:
        return None
    alt = altair()
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    low = math.floor(10 * min(row["low"] for row in rows)) / 10
    high = math.ceil(10 * max(row["high"] for row in rows)) / 10
    x_axis = alt.Axis(title="score (cosine)", tickCount=5, format=".1f")
    y_axis = alt.Axis(title="share", grid=True, gridColor="#8885", tickCount=4, format=".0%")
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_rect(opacity=0.75)
        .encode(
            x=alt.X("low:Q", axis=x_axis, scale=alt.Scale(domain=[low, high], nice=False)),
            x2="high:Q",
            y=alt.Y("share:Q", axis=y_axis),
            y2="none:Q",
            color=alt.Color(
                "kind:N",
                sort=kinds,
                scale=alt.Scale(domain=["genuine", "impostor, same group"], range=["#2f8fbf", "#b35806"]),
                legend=alt.Legend(title=None, orient="bottom"),
            ),
        )
    )
    threshold = report.thresholds[0].threshold
    if threshold is not None and low <= threshold <= high:
        line = alt.Chart(alt.Data(values=[{"at": float(np.round(threshold, 6))}]))
        chart += line.mark_rule(strokeDash=[4, 3], color="#888", strokeWidth=2).encode(x="at:Q")
    return chart.properties(width=SIZE, height=150)
