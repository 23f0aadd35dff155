"""Charts of a report as static SVG: drawn by altair, rendered by vl-convert, without a browser or a network.

Text takes its colour from the page's style sheet, so one picture serves a light and a dark page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.record import Cell
from harness.tables import two_digits
from targets.base.extras import require
from targets.base.text import without_control_characters

_DIVERGING = ("#2166ac", "#f7f7f7", "#b35806")
CONFIG = {
    "background": None,
    "padding": {"left": 24, "top": 5, "right": 5, "bottom": 5},
    "view": {"stroke": None},
    "font": "sans-serif",
    "axis": {"domain": False, "ticks": False, "labelFontSize": 12, "labelLimit": 150, "grid": False},
    "legend": {"labelFontSize": 11, "titleFontSize": 11},
}


def heat_map(cells: Sequence[Cell], links: Mapping[int, str], title: str) -> str:
    """Mean changes by row and group; colours are symmetric about 0, a cell links to its section.

    Args:
        cells: with a delta each, all on one scale.
        links: position in ``cells`` -> where a click goes.
        title: what a screen reader says.
    """
    alt = altair()
    deltas = [cell.delta for cell in cells if cell.delta is not None]
    largest = max(map(abs, deltas)) or 1.0
    data = [
        {
            "row": f"{cell.attribute} / {cell.concept}",
            "group": cell.group,
            "change": delta,
            "text": two_digits(_unless_noise(delta, largest)),
            "strong": abs(delta) > 0.88 * largest,
            "href": links[index],
        }
        for index, (cell, delta) in enumerate(zip(cells, deltas, strict=True))
    ]
    groups = list(dict.fromkeys(cell.group for cell in cells))
    rows = list(dict.fromkeys(item["row"] for item in data))
    base = alt.Chart(alt.Data(values=data)).encode(
        x=alt.X("group:N", sort=groups, title=None, axis=alt.Axis(orient="top", labelAngle=0, labelLimit=50)),
        y=alt.Y("row:N", sort=rows, title=None),
        href="href:N",
    )
    scale = alt.Scale(domain=[-largest, 0, largest], range=list(_DIVERGING))
    color = alt.Color("change:Q", scale=scale, title="change", legend=alt.Legend(gradientLength=80))
    ink = alt.condition("datum.strong", alt.value("white"), alt.value("#111"))
    chart = base.mark_rect(stroke="#888", strokeWidth=0.5).encode(color=color)
    chart += base.mark_text(fontSize=11).encode(text="text:N", color=ink)
    return svg(chart.properties(width=54 * len(groups), height=26 * len(rows)), title)


def _unless_noise(value: float, largest: float) -> float:
    """A value that is 0 beside the largest of the map has no digits worth the room."""
    return value if abs(value) > 1e-9 * largest else 0.0


def forest_plot(cells: Sequence[Cell], title: str) -> str:
    """Mean change and interval of every group, in the groups' own order, with a line at 0.

    Args:
        cells: of one attribute and concept, with a delta each.
        title: what a screen reader says.
    """
    alt = altair()
    data = [
        {
            "group": cell.group,
            "change": cell.delta,
            "low": cell.ci.low if cell.ci else cell.delta,
            "high": cell.ci.high if cell.ci else cell.delta,
        }
        for cell in cells
    ]
    groups = [cell.group for cell in cells]
    base = alt.Chart(alt.Data(values=data)).encode(y=alt.Y("group:N", sort=groups, title=None))
    axis = alt.Axis(grid=True, gridColor="#8885", tickCount=5, format="~g")
    line = alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(strokeDash=[4, 3], color="#888")
    chart = line.encode(x=alt.X("zero:Q", axis=axis, title=None))
    chart += base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    chart += base.mark_point(filled=True, size=55, opacity=1).encode(x="change:Q")
    return svg(chart.properties(width=230, height=20 * len(groups)), title)


def altair() -> Any:
    """The library, or an error that names the extra."""
    return require("altair", "report", "a report's chart")


def svg(chart: Any, title: str) -> str:
    """A chart as SVG for a page, with the title for screen readers."""
    renderer = require("vl_convert", "report", "a report's chart")
    text = str(renderer.vegalite_to_svg(specification(chart, CONFIG)))
    # A unique prefix: several charts in one page may not share the ids of their gradients.
    prefix = re.sub(r"\W+", "-", title.encode().hex()[-24:])
    text = text.replace('id="', f'id="{prefix}-').replace("url(#", f"url(#{prefix}-")
    # The renderer takes a link within the page for one to its collection of data sets.
    text = re.sub(r'href="[^"#]*#', 'href="#', text)
    # Vega's roles nest graphics-symbols that browsers don't know; the table has the same numbers.
    text = re.sub(r' (role|aria-roledescription|aria-label|aria-hidden)="[^"]*"', "", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{_attribute(title)}" ', 1)


def specification(chart: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """A chart for the renderer, which control characters in a text end with the whole process."""
    return {**_shown(chart.to_dict()), "config": config}


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    return without_control_characters(value) if isinstance(value, str) else value


def _attribute(text: str) -> str:
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(sign, entity)
    return text
