"""A recogniser's pictures as files of their own: DET curves and score histograms, as SVG and PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.folder import FIGURES, remove_results
from harness.recognition_record import Recognition
from harness.record import Record
from harness.report.charts import CONFIG, altair, specification
from harness.report.recognition_charts import det_chart, histogram_chart
from targets.base.extras import require
from targets.base.files import atomic, write_text

SCALE = 2
_STANDALONE = {**CONFIG, "background": "white", "padding": 12, "title": {"fontSize": 12, "anchor": "start"}}


def write_figures(record: Record, run: Path) -> list[Path]:
    """Write RUN/figures of a recogniser's run; of another run nothing.

    Args:
        record: of the run.
        run: its folder.

    Returns:
        The files.

    Raises:
        MissingExtraError: the extra "report" is not installed.
    """
    folder = run / FIGURES
    remove_results(run, FIGURES)
    written = []
    for item in record.recognition:
        for name, chart in (("det", det_chart(item)), ("score_histograms", _histograms(item))):
            if chart is not None:
                written += _write(folder / name, chart)
    return written


def _histograms(item: Recognition) -> Any | None:
    charts = [
        chart.properties(title=entry.group)
        for entry in item.distributions
        if (chart := histogram_chart(item, entry)) is not None
    ]
    return altair().concat(*charts, columns=3) if charts else None


def _write(stem: Path, chart: Any) -> list[Path]:
    renderer = require("vl_convert", "report", "a figure")
    spec = specification(chart, _STANDALONE)
    vector, raster = stem.with_suffix(".svg"), stem.with_suffix(".png")
    write_text(vector, str(renderer.vegalite_to_svg(spec)))
    with atomic(raster) as temporary:
        temporary.write_bytes(renderer.vegalite_to_png(spec, scale=SCALE))
    return [vector, raster]
