"""Measure in headless Chromium that each page fits narrow and wide screens, and each label belongs to its bubble."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chart_boxes import LABEL_PROBLEMS, TEXT_OVERLAPS
from tests.chromium import measure_pages
from tests.components.test_compare_backbones import TRAINING, create_candidates, inspection
from tests.components.test_compare_backbones_modules import with_settings
from tests.components.test_profile_training import plan_report
from tests.components.test_select_model_report import report
from tests.components.test_select_model_report_labels import CASES
from tests.components.test_tune_recipe_earlier_trials import EXACT, FAST, WORSE, run
from tfopt.components.check_drift.report import render_report as render_drift
from tfopt.components.compare_backbones.choice import select_backbone
from tfopt.components.compare_backbones.compare import build_report
from tfopt.components.compare_backbones.report import render_html as render_comparison
from tfopt.components.inspect_model.report import render_html as render_inspection
from tfopt.components.profile_training.report import render_report as render_plan
from tfopt.components.prune.channels.latency_report import render_html as render_latency
from tfopt.components.prune.channels.latency_table import GroupLatency, LatencyTable
from tfopt.components.replay.report import render_report as render_replay
from tfopt.components.tune_recipe.report import render_report as render_search
from tfopt.reports.drift_report import Change, ComparedSample, DriftReport
from tfopt.reports.evaluation_report import Difference, Estimate
from tfopt.reports.inspection_report import Advice, BatchNormCount, NodeCost, UnalignedKernel, UnfoldableBatchNorm
from tfopt.reports.replay_report import (
    GoalResult,
    LatencyWindow,
    Look,
    ReplayedLatency,
    ReplayedTraffic,
    ReplayReport,
    SliceDisagreement,
)
from tfopt.reports.serving_report import ServedModel

WIDE = """(page, view) => [page.documentElement.scrollWidth - view.innerWidth,
  ...[...page.body.querySelectorAll("*")].filter(e => !e.closest(".scroll, svg, thead, pre")
    && e.getBoundingClientRect().right > view.innerWidth + 0.5).map(e => e.tagName + " " + e.className)]"""
# Lines of text over other lines, outside of pictures; a table that scrolls shows its left part only.
TEXTS = """(page, view) => {
  const lines = [], found = [];
  const walker = page.createTreeWalker(page.body, view.NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.textContent.trim() || node.parentElement.closest("svg, .scroll, pre, style")) continue;
    if (!node.parentElement.checkVisibility()) continue;  // in a closed details element
    let isHidden = false;  // for screen readers only
    for (let e = node.parentElement; e !== page.body; e = e.parentElement) isHidden ||= e.offsetWidth <= 1;
    if (isHidden) continue;
    const range = page.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) if (box.width > 1) lines.push([node, box]);
  }
  lines.forEach(([one, a], index) => lines.slice(index + 1).forEach(([other, b]) => {
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (one !== other && across > 1 && down > 3)
      found.push(one.textContent.trim().slice(0, 40) + " over " + other.textContent.trim().slice(0, 40));
  }));
  return found;
}"""
# The names in the Pareto chart that is displayed at this width.
NAMES = """(page, view) => [...page.querySelectorAll("svg.bubbles")].filter(
  svg => view.getComputedStyle(svg).display !== "none").map(svg => svg.querySelectorAll(".name").length)"""
SCRIPTS = {
    "wide": WIDE,
    "texts": TEXTS,
    "charts": TEXT_OVERLAPS,
    "labels": LABEL_PROBLEMS,
    "names": NAMES,
    "words": "page => page.body.innerText.split(/\\s+/).length",
}


def write_decision(case: str, folder: Path) -> Path:
    return report(CASES[case], folder)


def write_search(trials: int, folder: Path) -> Path:
    """Write the page of a search with measured recipes, earlier ones and one that failed."""
    measured = {
        f"pruned {10 * number}% + clustered 32, tflite int8": replace(
            (FAST, EXACT, WORSE)[number % 3], speed=1 + 7 * number / trials, quality=-0.001 * (number % 5)
        )
        for number in range(trials - 1)
    }
    earlier = run(None, {"folded, openvino int8": replace(FAST, speed=9.0)})
    searched = run(earlier, measured | {"compiled with XLA": None})
    scored = [replace(trial, score=-0.5 * number) for number, trial in enumerate(searched.trials)]
    return _written(folder, render_search(replace(searched, trials=scored)))


def write_inspection(count: int, folder: Path) -> Path:
    """Write the page of a model whose nodes have the long names of exported functions."""
    nodes = [f"StatefulPartitionedCall/block_{number}/a_layer_with_a_long_name/convolution" for number in range(count)]
    command = (
        "tfopt export_tflite --model a_folder/with/a/long/path --examples examples --exported out --precision int8"
    )
    facts = replace(
        inspection(2_300_000, 600_000_000),
        ops={f"OperationWithALongName{number}": number + 1 for number in range(count)},
        busiest=[NodeCost(node, "DepthwiseConv2dNative", 10**7, 10**6, [None, 112, 112, 96]) for node in nodes],
        channels=[UnalignedKernel(node, "Conv2D", 3, 45) for node in nodes],
        batch_norms=BatchNormCount(count, 1, [UnfoldableBatchNorm(node, f"follows {node!r}") for node in nodes]),
        advice=[Advice(command, "convolutions are 95% of the operations; 1.6x to 3.5x on other models")] * 4,
    )
    return _written(folder, render_inspection(facts))


def write_plan(_: int, folder: Path) -> Path:
    return _written(folder, render_plan(plan_report(), "a_module_with_a_long_name.py"))


def write_comparison(_: int, folder: Path) -> Path:
    candidates, resolved = create_candidates(folder), with_settings(formats=("saved_model", "tflite", "onnx"))
    choice = select_backbone(candidates, resolved, TRAINING)
    machine = {"cpu": {"model": "a CPU with a long name @ 2.10GHz"}}
    return _written(folder, render_comparison(build_report(resolved, candidates, TRAINING, choice, machine, folder)))


def write_replay(_: int, folder: Path) -> Path:
    row = ServedModel("trained, pruned 80%", "", "tflite", "plain", "LiteRT", True, "", None, None)
    texts = ["disagreement max 1%", "disagreement[city=Llanfairpwllgwyngyll] max 3%", "p99 max_regression 10%"]
    latency = Estimate(12.0, 10.0, 15.0), Estimate(2600.0, 2100.0, 3000.0), Difference(2588.0, 2000.0, 2990.0)
    report = ReplayReport(
        blessed=False,
        reason="disagreement is 3.10%, perhaps 9.00%; the goal asks for at most 1.00%",
        model=row,
        served=replace(row, name="version 8"),
        traffic=ReplayedTraffic("JSON lines", 4000, 4000, 0, 12.0, "as recorded, 333 requests per second"),
        goals=[GoalResult(text, text.startswith("p"), "is 3.10%; the goal asks for 1.00%") for text in texts],
        level=0.95,
        looks=[Look(64 << n, 2 << n, 0.01, 0.5 / (n + 1)) for n in range(6)],
        ended="after 2,048 of 4,000 records: a goal is missed",
        slices=[SliceDisagreement("city", "Llanfairpwllgwyngyll", 900, 28, 0.01, 0.2)],
        latency=dict.fromkeys(("p50", "p90", "p99"), ReplayedLatency(*latency)),
        windows=[LatencyWindow(0.6 * n, 200, 12 + n, 14 * (1 + n**2)) for n in range(20)],
        delay_p99_ms=0.4,
        notes=["this machine was too busy to send requests in time: 1% were 0.4 ms late or more"],
    )
    return _written(folder, render_replay(report))


def write_drift(_: int, folder: Path) -> Path:
    subjects = [f"a_feature_with_a_long_name_{number}[{number}]" for number in range(30)]
    kinds = ["saturation", "unknown", "class", "distribution", "disagreement"]
    limits = [0.01, 0.1, None] * 10
    changes = [
        Change(name, kinds[n % 5], 0.01, 0.3, 0.29, 0.29 - n / 200, 0.31 + n / 200, limit, n < 3, "such as a")
        for n, (name, limit) in enumerate(zip(subjects, limits, strict=True))
    ]
    samples = ComparedSample("examples, split 'train'", 2000, 2000), ComparedSample("JSON lines", 1500, 1500)
    reason = f"{subjects[0]}: values at the ends of the 8-bit range, 30.00% instead of 1.00%"
    names = ("a model with a long name, int8", "", "trained")
    report = DriftReport("recalibrate", [reason] * 3, *names, *samples, 0.95, changes, ["a note"])
    return _written(folder, render_drift(report))


def write_latency(_: int, folder: Path) -> Path:
    latencies = {72: 1.01, 48: 0.93, 16: 0.9}
    groups = [
        GroupLatency(f"a_block_with_a_long_name_{number}_project, another_layer", 96, latencies if number else {}, 32)
        for number in range(50)
    ]
    table = LatencyTable("tflite", 1, 12.5, 600.0, 7, groups, ratio=0.59, target=0.6)
    return _written(folder, render_latency(table, "a_model_with_a_long_name"))


def _written(folder: Path, text: str) -> Path:
    (folder / "report.html").write_text(text, encoding="utf-8")
    return folder / "report.html"


DECISIONS = {f"decision {case}": case for case in CASES}
PAGES: dict[str, Callable[[Path], Path]] = {
    **{name: lambda folder, case=case: write_decision(case, folder) for name, case in DECISIONS.items()},
    "search": lambda folder: write_search(7, folder),
    "inspection": lambda folder: write_inspection(21, folder),
    "plan": lambda folder: write_plan(0, folder),
    "comparison": lambda folder: write_comparison(0, folder),
    "replay": lambda folder: write_replay(0, folder),
    "drift": lambda folder: write_drift(0, folder),
    "latency": lambda folder: write_latency(0, folder),
}


BAD = '<body style="margin:0"><p style="margin:0">below</p><p style="margin:-12px 0 0;width:500px">above</p>'


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> dict[str, dict[int, dict]]:
    """Measure all pages, and a bad one, in a light Chromium: in a dark one, the colors change, and not the layout."""
    folder = tmp_path_factory.mktemp("pages")
    pages = {}
    for name, write in [*PAGES.items(), ("bad", lambda folder: _written(folder, f"<!doctype html>{BAD}"))]:
        (folder / name).mkdir()
        pages[name] = write(folder / name)
    results = measure_pages(list(pages.values()), SCRIPTS, [400, 800, 1280])
    return {name: results[page] for name, page in pages.items()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_its_width_and_no_text_covers_another(measured, name):
    for width, values in measured[name].items():
        assert values["words"] > 60, width
        assert values["wide"] == [0], width
        assert values["texts"] == values["charts"] == values["labels"] == [], width
        assert not values["console"], width
        if name in DECISIONS:
            rows = len(CASES[DECISIONS[name]])
            assert values["names"] == [rows] if rows <= 12 else values["names"][0] >= 3, width


def test_the_measurement_finds_text_over_text_and_wide_elements(measured):
    assert measured["bad"][400]["texts"] == ["below over above"]
    assert measured["bad"][400]["wide"][0] == 100
