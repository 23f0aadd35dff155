"""The report is one page without network or script, whose words stay within what may be said."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from harness.finished import load_run
from harness.report.examples import THUMBNAIL_PX, Pictures, examples
from tests.harness.runs import spread, write_deltas
from tests.harness.test_gate_recognition import write as write_vectors
from tests.harness.test_recognition import PEOPLE, outcomes
from tests.support import ROOT, call, drawn_pairs

HOSTILE = "<img src=x onerror=alert(1)>"
FORBIDDEN = (
    r"\b(un)?bias(ed|es)?\b",
    r"\b(un)?fair(ness)?\b",
    r"\bdiscriminat\w*",
    r"\b(worst|best|better|worse|rank(ed|ing|ings)|most accurate|outperform\w*)\b",
    r"\b(black|white|asian|indian|male|female|\w+n) people\b",
    r"\b(because|caus\w+|due to|leads? to|effect of|impact of)\b",
    r"(?<!not say that there is )\bno difference\b",
    r"\blargest (gap|difference)\b",
    r"\berror rate\b",
    r"\b(men|women)\b",
)


def test_templates_keep_to_the_words_that_may_be_used() -> None:
    paths = [*(ROOT / "harness" / "report").glob("*.j2"), ROOT / "harness" / "report" / "words.py"]
    names = ("tables", "compare", "gate_output", "side_by_side", "model_card", "every_eval_ever")
    names += ("plan_tables", "difference_tables", "reasons")
    paths += [ROOT / "harness" / f"{name}.py" for name in names]
    paths += [ROOT / "harness" / "report" / name for name in ("recognition.py", "recognition_charts.py")]
    paths += [ROOT / "harness" / "recognition_tables.py"]
    assert len(paths) == 14
    for path in paths:
        text = path.read_text(encoding="utf-8").lower()
        for pattern in FORBIDDEN:
            found = re.search(pattern, text)
            assert not found, f"{path.name}: {found and found[0]}"


def test_the_list_of_words_can_fail() -> None:
    sentence = "the model is unfair to black people because the gap is the worst"
    assert sum(bool(re.search(pattern, sentence)) for pattern in FORBIDDEN) == 4


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("altair", "vl_convert", "jinja2"):
        pytest.importorskip(module, reason="the extra 'report' is not installed")
    cells = {}
    for shift, attribute in enumerate(("sunglasses", HOSTILE)):
        for index, group in enumerate(("WM", "BF", "IM", HOSTILE)):
            n = 4 if group == "IM" else 40
            cells[attribute, group] = spread(n, 0.1 * shift - 0.1 * index, 0.05, seed=index)
    cells["sunglasses", "BF"][:3] = np.nan
    return write_deltas(tmp_path_factory.mktemp("report") / "run", cells, per_identity=2)


@pytest.fixture(scope="module")
def html(run: Path) -> str:
    from harness.report.page import write_report

    return write_report(run).read_text(encoding="utf-8")


def test_it_is_one_page_that_asks_for_nothing(html: str) -> None:
    assert "default-src 'none'" in html
    assert "<script" not in html
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', html)
    assert "url(http" not in html


def test_labels_stay_text(html: str) -> None:
    assert "<img src=x" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html


def test_every_cell_is_a_link_to_its_section_with_its_numbers(html: str, run: Path) -> None:
    record = load_run(run).record
    anchors = re.findall(r'<article class="cell" id="(cell-\d+)"', html)
    assert len(anchors) == sum(bool(cell.n_pairs) for cell in record.cells) == 8
    for anchor in anchors:
        # Once in the table, once in the heat map (a field and its text).
        assert html.count(f'"#{anchor}"') >= 2
    assert "37 pairs of 19 identities" in html
    assert "3 (the target found no face)" in html
    assert "fewer than 10 identities" in html
    assert "20 identities" in html


def test_examples_are_the_largest_the_median_and_the_smallest(run: Path) -> None:
    finished = load_run(run)
    found = examples(finished, ("sunglasses", "sunglass", "BF"), Pictures())
    column = finished.transformed[:, 0] - finished.source[:, 0]
    own = column[finished.rows_of("sunglasses", "BF") & np.isfinite(column)]
    assert [item.which for item in found] == ["largest", "median", "smallest"]
    assert [item.delta for item in found] == [own.max(), np.sort(own)[::-1][18], own.min()]
    assert found[0].pictures == ("", "")


def test_thumbnails_are_the_audited_pictures_without_metadata(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = drawn_pairs(tmp_path)
    target = tmp_path / "t.py"
    target.write_text(
        "import numpy as np\nclass T:\n    concepts = ('dark',)\n    def score(self, images):\n"
        "        return np.array([[float(np.asarray(i).mean())] for i in images])\n",
        encoding="utf-8",
    )
    first = tmp_path / "images" / "WM00-1-source.png"
    picture = Image.open(first)
    exif = picture.getexif()
    exif[0x010E] = "a secret"
    picture.save(first, exif=exif)
    picture.close()
    result = call(
        capsys, "audit", pairs, "--target", f"{target}:T", "--out", tmp_path / "run", "--no-progress"
    )
    assert result.status == 0, result.err
    finished = load_run(tmp_path / "run")
    pictures = Pictures.at_hand(finished)
    row = list(finished.texts["pair_id"]).index("WM00-1-glasses")
    uri, _ = pictures.of(finished, row)
    data = __import__("base64").b64decode(uri.removeprefix("data:image/jpeg;base64,"))
    with Image.open(io.BytesIO(data)) as small:
        assert max(small.size) == THUMBNAIL_PX
        assert not small.getexif()
    assert b"secret" not in data
    # Another picture under the old name is not shown as the audited one.
    other = Image.open(tmp_path / "images" / "BF01-1-source.png").copy()
    other.save(first)
    assert Pictures.load(str(pairs)).of(finished, row) == ("", "")
    shutil.rmtree(tmp_path / "images")
    assert Pictures.load(str(pairs)).of(finished, row) == ("", "")


def test_the_command(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    result = call(capsys, "report", tmp_path)
    assert (result.status, "no such record" in result.err) == (2, True)
    assert call(capsys, "report", run, "--pictures", tmp_path / "none.csv").status == 2


@pytest.fixture(scope="module")
def browser() -> Any:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    with api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=0)
        yield started
        started.close()


def serious(page: Any) -> list[str]:
    """What axe-core holds to be a serious or critical fault of a page, as it is shown now."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    found = axe.run(page).response
    assert found["passes"]
    return [
        f"{fault['id']}: {node['html'][:200]}"
        for fault in found["violations"]
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]


@pytest.fixture(scope="module")
def recogniser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of an embedder's run with failures to acquire in one group."""
    for module in ("altair", "vl_convert", "jinja2"):
        pytest.importorskip(module, reason="the extra 'report' is not installed")
    from harness.report.page import write_report

    folder = tmp_path_factory.mktemp("recogniser") / "run"
    write_vectors(folder, outcomes(0, planted=("BF", "glasses"), lost=9))
    write_report(folder)
    return folder


def test_a_recognisers_rates_are_all_there(recogniser: Path) -> None:
    html = (recogniser / "report.html").read_text(encoding="utf-8")
    section = html[html.index('<section id="recognition"') : html.index('<section id="data"')]
    assert "<script" not in html
    (report,) = load_run(recogniser).record.recognition
    both_ways = sum(
        (cell.before, cell.after) != (cell.before_with_fta, cell.after_with_fta) for cell in report.cells
    )
    rates = section[section.index("Every rate with its counts") : section.index("DET curves")]
    assert rates.count("<tr><td>") == len(report.cells) + both_ways
    assert both_ways > 0
    cell = next(
        c for c in report.cells if (c.attribute, c.group, c.comparison) == ("glasses", "BF", "other_source")
    )
    assert cell.after is not None
    assert f"<td>{cell.after.errors} of {cell.after.n}</td><td>{cell.after.n_identities}</td>" in rates
    assert f"<td>9 of {2 * PEOPLE}</td>" in rates, "failures to acquire"
    for words in ("max_over_geomean_fmr", report.rules["enrolment"], report.rules["selector"]):
        assert words.replace("'", "&#39;") in section
    assert section.count("<svg ") == 1 + len(report.distributions), "one DET chart, a histogram a group"


def values_of(chart: Any) -> list[dict[str, Any]]:
    """The data of a chart's first layer."""
    spec = chart.to_dict()
    values: list[dict[str, Any]] = spec.get("layer", [spec])[0]["data"]["values"]
    return values


def test_curves_and_histograms_are_drawn_from_the_records_data(recogniser: Path) -> None:
    """Numbers of the specification, with scipy's normal quantiles; and files that can be opened."""
    from harness.report.recognition_charts import det_chart, histogram_chart

    (report,) = load_run(recogniser).record.recognition
    rows = values_of(det_chart(report))
    for entry in report.distributions:
        wanted = [(point.fmr, point.fnmr) for point in entry.det if 0 < point.fmr < 1 and 0 < point.fnmr < 1]
        drawn = [(row["fmr"], row["fnmr"]) for row in rows if row["group"] == entry.group]
        assert np.array(drawn) == pytest.approx(stats.norm.ppf(wanted), abs=1e-6)
        bars = values_of(histogram_chart(report, entry))
        for kind, counts in (("genuine", entry.genuine), ("impostor, same group", entry.impostor)):
            shares = {row["low"]: row["share"] for row in bars if row["kind"] == kind}
            assert sum(shares.values()) == pytest.approx(1)
            fullest = int(np.argmax(counts))
            assert shares[entry.edges[fullest]] == pytest.approx(counts[fullest] / sum(counts))
    for name in ("det", "score_histograms"):
        with Image.open(recogniser / "figures" / f"{name}.png") as picture:
            assert min(picture.size) > 300
        assert (recogniser / "figures" / f"{name}.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.slow
def test_a_recognisers_page_in_a_real_browser(scheme: str, browser: Any, recogniser: Path) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    context.set_default_timeout(0)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto((recogniser / "report.html").as_uri())
    page.evaluate("document.querySelectorAll('#recognition details').forEach(item => { item.open = true })")
    width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width[0] <= width[1] == 390
    assert page.locator("#recognition .drawn svg").count() > 1
    ticks = page.locator("#recognition .drawn svg").first.locator("text").all_text_contents()
    assert any(text.endswith(" %") for text in ticks), "shares on the axes, not deviates"
    assert said == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_what_is_there_to_find(scheme: str, browser: Any) -> None:
    page = browser.new_page(color_scheme=scheme)
    pale = "<p style='color:#bbb;background:#ccc'>pale</p>"
    page.set_content(f"<html lang=en><title>t</title><main><h1>t</h1>{pale}</main></html>")
    assert [fault.split(":")[0] for fault in serious(page)] == ["color-contrast"]
    page.close()


@pytest.fixture(scope="module", params=["hostile labels", "the demo's"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, run: Path) -> Path:
    from harness.report.page import write_report

    if request.param == "hostile labels":
        return write_report(run)
    copy = tmp_path_factory.mktemp("demo") / "sface"
    shutil.copytree(ROOT / "results" / "demo" / "sface", copy)
    return write_report(copy)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.slow
def test_in_a_real_browser(scheme: str, browser: Any, report: Path) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    context.set_default_timeout(0)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    address = report.as_uri()
    page.goto(address)
    width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width[0] <= width[1] == 390
    assert page.locator("article.cell:visible").count() == 0
    page.locator("#changes td a").first.click()
    assert page.locator("article.cell:visible").count() == 1
    page.locator("#map svg a").last.click()
    assert page.locator("article.cell:visible").count() == 1
    assert page.evaluate("document.querySelectorAll('img[src=x]').length") == 0
    # With a cell's section and the failures open, so that they are looked at too.
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    assert serious(page) == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    page.emulate_media(media="print")
    printed = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert printed == "rgb(255, 255, 255)", "paper is white, whatever the screen was"
    assert not page.locator("#cells").is_visible()
    assert page.locator("#tables").is_visible()
    assert page.pdf().startswith(b"%PDF")
    assert said == []
    assert {url.split("#")[0] for url in asked if not url.startswith("data:")} == {address}
    context.close()
