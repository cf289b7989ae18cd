"""Test the report of a decision in headless Chromium: complete, equal to its JSON, legible, one file."""

import html
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.chart_boxes import TEXT_OVERLAPS
from tests.chromium import DARK, browse, measure_pages
from tests.reports import DIGITS, EXAMPLES, TRAINED, Row, make_models, write_reports
from tfopt.artifacts import Decision
from tfopt.components.select_model.component import select_model
from tfopt.components.select_model.tables import confusion_tables, slice_table
from tfopt.measurement.model_measurements import ModelMeasurements
from tfopt.reports.evaluation_report import Estimate, Metric, ModelEvaluation, SliceMetrics

LONG = "quantized aware of pruning, <script>2026</script> & ä, in a folder with a very long name"
CROWD = [
    *DIGITS,
    replace(DIGITS[4], name=LONG, p50=0.0392, size=44_800),
    replace(DIGITS[3], name="tflite float16", p50=0.0571, size=79_000),
    replace(DIGITS[1], name="xla", p50=0.305, accuracy=0.9811),
    replace(DIGITS[5], name="clustered", accuracy=0.9605),
    replace(DIGITS[2], name="openvino", error="cannot load: <op> 'Erf' is not linked in"),
]
CROWD = [replace(row, batches=(1, 2, 4, 8, 16, 32)) for row in CROWD]
CONTRAST = """(page, view) => {
  const canvas = page.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = rgb(view.getComputedStyle(e).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  for (const element of page.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.getClientRects().length) continue;
    const style = view.getComputedStyle(element);
    const ink = light(rgb(element.closest("svg") ? style.fill : style.color)), paper = light(behind(element));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    found.push([ratio, element.textContent.trim().slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0]);
}"""
TABLE = """page => Object.fromEntries([...page.querySelectorAll("#main-table tbody tr")].map(
  row => [row.dataset.model, [...row.cells].map(cell => cell.innerText)]))"""
DETAILS = """page => Object.fromEntries([...page.querySelectorAll("#main-table tbody tr")].map(
  row => [row.dataset.model, row.querySelector("details").textContent]))"""
CONFUSIONS = """page => Object.fromEntries([...page.querySelectorAll("[data-confusion]")].map(details => [
  details.dataset.confusion, [details.open, [...details.querySelectorAll("tbody tr")].map(
    row => [...row.querySelectorAll("td")].map(cell => Number(cell.textContent))),
    details.querySelector("p").textContent]]))"""
WIDE = """(page, view) => [page.documentElement.scrollWidth, [...page.body.querySelectorAll("*")].filter(
  e => !e.closest(".scroll, svg, thead") && e.getBoundingClientRect().right > view.innerWidth + 0.5).map(
  e => e.tagName + " " + e.className)]"""
PICTURES = """page => [...page.querySelectorAll("svg.wide")].map(svg => ({
  role: svg.getAttribute("role"),
  named: svg.getAttribute("aria-labelledby").split(" ").map(id => page.getElementById(id).textContent),
  circles: [...svg.querySelectorAll("circle")].map(c => [c.textContent.split(":")[0], c.getAttribute("fill"),
    ...["cx", "cy", "r"].map(name => Number(c.getAttribute(name)))]),
  areas: svg.querySelectorAll("path[fill-opacity]").length,
  dashed: [...svg.querySelectorAll("line")].filter(l => l.getAttribute("stroke") === "var(--goal)").length,
  bars: [...svg.querySelectorAll("g:has(> line) > line")].filter(
    l => ["var(--other)", "var(--accent)"].includes(l.getAttribute("stroke"))).length}))"""
WIDTHS = (320, 390, 768, 1200)
SCRIPTS = {
    "overlaps": TEXT_OVERLAPS,
    "contrast": CONTRAST,
    "table": TABLE,
    "details": DETAILS,
    "wide": WIDE,
    "pictures": PICTURES,
    "title": "page => page.title",
    "is_headline_green": """(page, view) => view.getComputedStyle(
      page.querySelector("h1 span") || page.body).color !== view.getComputedStyle(page.body).color""",
    "header": "page => page.querySelector('header').innerText",
    "main": "page => page.querySelector('main').innerText",
    "paper": "(page, view) => view.getComputedStyle(page.body).backgroundColor",
    "confusions": CONFUSIONS,
    "names": "page => [...page.querySelectorAll('.model')].map(e => e.textContent)",
    "row_headers": "page => [...page.querySelectorAll('table')].every(t => t.querySelector('th[scope=row]'))",
}


# Decisions whose pages are checked as a whole: rows and parameters.
SPECIAL: dict[str, tuple[list[Row], dict[str, Any]]] = {
    "all the same": ([TRAINED, Row("same", "saved_model", accuracy=0.981, p50=0.412, size=186_400)], {}),
    "one that failed": ([TRAINED, replace(DIGITS[4], error="it crashed")], {}),
    "not blessed": (DIGITS[:2], {"goals": ["accuracy threshold 0.999"]}),
    "disturbed": ([TRAINED, *(replace(row, speedup=(9.6, 4.9, 12.8, "unstable")) for row in DIGITS[1:])], {}),
    "no goals": (DIGITS, {"goals": [], "objective": "size", "confidence": "point"}),
}


def report(rows: list[Row], folder: Path, *, samples: bool = True, slices: bool = True, **parameters) -> Path:
    models = make_models(rows, folder / "models")
    evaluation, benchmark = write_reports(rows, models, folder, samples=samples, slices=slices)
    folders = (folder / name for name in ("selected", "decision with ä", "blessing"))
    goals = {"goals": ["accuracy max_degradation 0.01"]} | parameters
    outputs = select_model(models[0], models[1:], evaluation, benchmark, *folders, **goals)
    return outputs["decision"].path / "report.html"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def page(folder) -> Path:
    return report(DIGITS, folder / "page")


@pytest.fixture(scope="module")
def crowd(folder) -> Path:
    return report(CROWD, folder / "crowd")


@pytest.fixture(scope="module")
def pages(page, crowd, folder) -> dict[str, Path]:
    """Write all other reports that are measured, and a page with a message in its console."""
    pages = {"page": page, "crowd": crowd, "loud": folder / "loud.html"}
    pages["loud"].write_text("<!doctype html><script>console.error('loud')</script><header></header><main></main>")
    for name, (rows, parameters) in SPECIAL.items():
        pages[name] = report(rows, folder / name, samples=False, slices=False, **parameters)
    pages["regression"] = report(DIGITS[:2], folder / "regression", goals=["accuracy max_regression 1%"])
    rows = [TRAINED, replace(DIGITS[4], speedup=None)]
    pages["not compared"] = report(rows, folder / "not compared", objective="size")
    return pages


@pytest.fixture(scope="module")
def inspect(pages) -> Callable[..., dict[str, Any]]:
    """Return a function that returns the results of all scripts in a page at a width of `WIDTHS`."""
    light = measure_pages(list(pages.values()), SCRIPTS, WIDTHS)
    dark = measure_pages([pages["crowd"]], SCRIPTS, WIDTHS, dark=True)
    return lambda page, width=1200, is_dark=False: (dark if is_dark else light)[page][width]


def test_the_console_is_empty(inspect, crowd, pages):
    assert inspect(crowd)["console"] == []
    assert inspect(pages["loud"])["console"]


def test_the_report_is_one_file_without_external_resources(crowd):
    text = crowd.read_text()
    assert sorted(file.name for file in crowd.parent.iterdir()) == ["decision.json", "report.html"]
    assert "http" not in text.replace('<meta http-equiv="Content-Security-Policy"', "")
    assert not re.search(r"<script|@import|url\((?!#)|<link rel=(?!\"icon\" href=\"data:,\")", text)
    assert len(text) < 300_000


def test_the_header_states_the_selected_model_and_the_reason(inspect, page):
    lines = inspect(page)["header"].split("\n")
    assert inspect(page)["title"].startswith("tflite int8: blessed")
    assert "tflite int8 was selected" in lines[:3]
    assert inspect(page)["header"].count("10.6\N{MULTIPLICATION SIGN} as fast") == 2
    assert "Blessed: it may be pushed" in lines


def test_each_row_leads_to_the_commands_that_show_the_graph(crowd):
    text = crowd.read_text()
    models = Decision(crowd.parent).read()["models"]
    names = re.findall(r'<a class="model" href="#graph-(\d+)"[^>]*>(.*?)</a>', text)
    assert [(int(number), html.unescape(name)) for number, name in names] == [
        (number, model["name"]) for number, model in enumerate(models, 1)
    ]
    blocks = re.findall(r'<div class="origin" id="graph-\d+">(.*?)</div>\s*</div>|id="graph-\d+">', text, re.S)
    commands = dict(zip([model["name"] for model in models], blocks, strict=True))
    assert "\nnetron folded/Format-Serving/saved_model.pb\n" in commands["folded"].replace("<pre>", "\n")
    assert "model-explorer folded/Format-Serving/saved_model.pb" in commands["folded"]
    copied = "cp tflite_int8/Format-Serving/tflite model.tflite\nmodel-explorer model.tflite\n"
    assert copied in commands["tflite int8"]  # Model Explorer reads the suffix
    assert all("netron " in block for block in blocks)


def test_the_table_equals_the_json(inspect, page):
    table = inspect(page)["table"]
    for row in Decision(page.parent).read()["models"]:
        name, accuracy, change, latency, _, size, why = table[row["name"]]
        metrics = row["metrics"]
        assert row["name"] in name
        assert ("Pareto front" in name) is row["pareto"]
        assert accuracy == f"{100 * metrics['accuracy']:.1f}%"  # its interval has a width of 1.7 points
        for text, number in zip(re.findall(r"[\d.]+(?= ms)", latency), ("latency", "latency_p99"), strict=True):
            assert float(text) == pytest.approx(metrics[number], rel=0.005)
        for text, number in zip(re.findall(r"[\d.]+(?= kB)", size), ("size", "size_gzipped"), strict=True):
            assert float(text) * 1000 == pytest.approx(metrics[number], rel=0.005)
        assert (why.startswith("Selected"), why.startswith("Rejected")) == (row["chosen"], not row["passed"])
        assert (change == "\N{EN DASH}") is row["parent"]
    assert table["tflite int8"][2] == "-0.4 points\n-0.85 to +0.05".replace("-", "\N{MINUS SIGN}")
    assert table["tflite int8"][4] == "10.6x\nfaster\n10.3x to 10.9x".replace("x", "\N{MULTIPLICATION SIGN}")
    assert "unstable: the middle half of the rounds spreads over 14%" in table["folded"][3]
    assert "loses 2.10 points of accuracy; the goal allows 1.00 points" in inspect(page)["details"]["pruned 90%"]
    assert table["pruned 90%"][6].split("\n")[:2] == ["Rejected", "misses accuracy by 2.10 points"]
    assert table["tflite int8"][6].split("\n")[1] == "10.6x, 76% smaller".replace("x", "\N{MULTIPLICATION SIGN}")


def test_the_charts_show_every_model_the_front_and_a_description(inspect, page):
    choice, latency = inspect(page)["pictures"]
    assert choice["role"] == latency["role"] == "img"
    assert (len(choice["circles"]), choice["bars"], choice["dashed"], latency["areas"]) == (6, 10, 1, 6)
    filled = {name for name, fill, *_ in choice["circles"] if fill != "var(--card)"}
    assert filled == {"tflite float32", "tflite dynamic", "tflite int8"}
    assert "Dashed lines are goals: accuracy max_degradation 0.01 (97.10%)." in inspect(page)["main"]
    assert "tflite int8: 97.70%, 0.0389 ms, 45.1 kB, on the Pareto front" in choice["named"][1]
    assert "trained: p50 0.412 ms, p90 0.449 ms, p99 0.577 ms" in latency["named"][1]


def test_the_throughput_chart_needs_three_batch_sizes(inspect, page, crowd):
    assert "Throughput by batch size" not in inspect(page)["main"]
    *_, throughput = inspect(crowd)["pictures"]
    assert "Throughput by batch size" in inspect(crowd)["main"]
    rings = [name for name, fill, *_ in throughput["circles"] if fill == "var(--card)"]
    assert len(set(rings)) == len(rings) == len(CROWD) - 1  # one failed
    assert len(throughput["circles"]) == 6 * len(rings)
    assert "trained: saturated from 4 or 8 on; 2,427/s at 1, 2,725/s at 2, 2,904/s at 4" in throughput["named"][1]


def test_bubbles_are_drawn_at_their_values(inspect, page):
    """Compare a third bubble with the axes that two bubbles define."""
    bubbles = {name: numbers for name, _, *numbers in inspect(page)["pictures"][0]["circles"]}
    numbers = {row.name: (math.log(row.p50), row.accuracy, row.size) for row in DIGITS}
    for axis in (0, 1):
        a, b, c = (bubbles[name][axis] for name in ("trained", "tflite int8", "pruned 90%"))
        u, v, w = (numbers[name][axis] for name in ("trained", "tflite int8", "pruned 90%"))
        assert (c - a) / (b - a) == pytest.approx((w - u) / (v - u), abs=0.01)
    assert bubbles["tflite int8"][0] < bubbles["trained"][0]
    assert bubbles["trained"][1] < bubbles["pruned 90%"][1]
    areas = [bubbles[name][2] ** 2 / numbers[name][2] for name in ("trained", "tflite int8")]
    assert areas[0] == pytest.approx(areas[1], rel=0.05)


@pytest.mark.parametrize("width", WIDTHS)
def test_texts_in_charts_do_not_overlap_and_are_not_cut_off(inspect, page, crowd, width):
    assert inspect(crowd, width)["overlaps"] == []
    if width in (390, 1200):
        assert inspect(page, width)["overlaps"] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_the_report_has_no_horizontal_scrolling(inspect, crowd, width):
    assert inspect(crowd, width)["wide"] == [width, []]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_has_the_contrast_that_wcag_requires(inspect, crowd, dark):
    ratios = inspect(crowd, is_dark=dark)["contrast"]
    assert len(ratios) > 200
    assert [entry for entry in ratios if entry[0] < 4.5] == []


def test_dark_mode_has_a_dark_background(inspect, crowd, tmp_path):
    assert min(map(int, re.findall(r"\d+", inspect(crowd)["paper"]))) > 230
    assert max(map(int, re.findall(r"\d+", inspect(crowd, is_dark=True)["paper"]))) < 40
    shot = tmp_path / "dark.png"
    browse(f"--screenshot={shot}", "--window-size=1200,3000", DARK, crowd.as_uri())
    assert Image.open(shot).convert("L").resize((1, 1)).getpixel((0, 0)) < 60


def test_names_of_models_are_escaped(inspect, crowd):
    assert LONG in inspect(crowd)["names"]
    assert "cannot load: <op> 'Erf'" in inspect(crowd)["details"]["openvino"]


def test_slices_parity_lineage_environment_and_commands_are_there(inspect, page):
    for expected in (
        "label = 9", "Parity with the baseline", "export_tflite precision=int8",
        "Verified: 64 records, largest difference 1.2e-06", "Intel(R) Xeon(R)", "1,000 evaluated of 1,002 read",
        "Bayesian bootstrap, 400 replicates, 95% for all 1 candidates together, seed 0",
        "the best epoch of trained was selected on the same examples",
        "tfopt select_model --baseline trained/ --candidates folded/ tflite_float32/",
        "--goals 'accuracy max_degradation 0.01' --objective latency --confidence interval --layout auto --watch",
        "--benchmark benchmark/ --examples examples/ --split eval --batch-sizes 1 32 --threads 1 --seconds 6.0 "
        "--rounds 60 --seed 0 --min-effect 0.03",
    ):  # fmt: skip
        assert expected in inspect(page)["main"]
    assert inspect(page)["row_headers"]


def test_the_confusion_matrix_of_the_selected_model_is_open(inspect, page):
    confusions = inspect(page)["confusions"]
    assert [name for name, (is_open, _, _) in confusions.items() if is_open] == [
        Decision(page.parent).read()["selected"]
    ]
    assert len(confusions) == len(DIGITS)
    _, counts, caption = confusions["pruned 90%"]
    assert (counts[3][3], counts[3][8], sum(map(sum, counts))) == (60, 40, EXAMPLES)
    assert caption == "Most frequent errors: 40 times 3 was classified as 8."


def evaluated(name: str, **facts) -> ModelEvaluation:
    """Return the row of a model with these facts."""
    empty = {"metrics": {}, "delta": {}, "parity": {}, "confusion": [], "roc": [], "slices": []}
    return ModelEvaluation(name, name, "tflite", None, [], **empty | facts)


def test_only_the_most_frequent_errors_of_many_classes_are_listed():
    counts = np.diag([5] * 30)
    counts[7, 9] = 4
    model = ModelMeasurements("a", "a", "tflite", evaluated("a", confusion=counts.tolist()), None, None)
    (table,) = confusion_tables([model], [f"kind {number}" for number in range(30)], "a")
    assert (table["rows"], table["mistakes"]) == ([], ["4 times kind 7 was classified as kind 9"])


def test_the_slices_with_the_largest_losses_are_shown_of_many():
    metric = {"mae": Metric(1.0, 1.0, 1.0, higher_is_better=False)}

    def measured(name, parent):
        slices = [
            SliceMetrics("city", number, 9, metric, {"mae": Estimate(number - 50.0, -99.0, 99.0)} if parent else {})
            for number in range(100)
        ]
        row = evaluated(name, metrics=metric, slices=slices)
        return ModelMeasurements(name, name, "tflite", row, None, parent)

    parent = measured("a", None)
    table = slice_table([parent, measured("b", parent)], "mae")
    shown = [*range(99, 50, -1), *range(11)]  # losses first, then the original order
    assert [row["name"] for row in table["rows"]] == [f"city = {number}" for number in shown]
    assert table["hidden"] == 40


def test_a_goal_on_earlier_runs_has_no_line_in_the_chart(inspect, pages):
    assert inspect(pages["regression"])["pictures"][0]["dashed"] == 0


def test_the_tiles_do_not_label_a_candidate_as_baseline(inspect, pages):
    header = inspect(pages["not compared"])["header"]
    assert "the baseline" not in header and "not compared" in header


@pytest.mark.parametrize("name", SPECIAL)
def test_the_report_is_complete_for_special_decisions(inspect, pages, name):
    result = inspect(pages[name], 390)
    assert (result["console"], result["overlaps"], result["wide"]) == ([], [], [390, []])
    assert inspect(pages[name], 1200)["wide"] == [1200, []]
    decision = Decision(pages[name].parent).read()
    assert (": not blessed" in result["title"]) is not decision["blessed"]
    assert result["is_headline_green"] is decision["blessed"]
    assert ("Not blessed: it must not be pushed" in result["header"]) is not decision["blessed"]
    assert ("trained stays" in result["header"]) is (decision["selected"] == "trained")
