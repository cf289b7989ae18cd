"""Measure in headless Chromium that every label of the Pareto chart belongs to its bubble."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.chart_boxes import LABEL_PROBLEMS
from tests.chromium import measure_pages
from tests.components.test_select_model_report import CROWD
from tests.components.test_select_model_report_many import MANY
from tests.reports import DIGITS
from tfopt.charts import figure
from tfopt.charts.bubble_chart import Bubble, BubbleChart, draw_bubbles
from tfopt.components.select_model.charts import _interval

# Six variants of nearly the same speed, accuracy and size: their bubbles cover each other.
ALIKE = [
    replace(
        DIGITS[4], name=f"int8 variant {n}", p50=0.0389 + n * 6e-4, accuracy=0.977 + 4e-4 * (n % 3), size=45_000 + n
    )
    for n in range(6)
]
EQUAL = replace(DIGITS[4], accuracy=0.981, delta=(0.0, -0.0031, 0.0031))
CASES = {
    "3": [*DIGITS[:2], DIGITS[4]],
    "9": CROWD[:9],
    "21": [*MANY, *(replace(DIGITS[4], name=f"clustered {n}", p50=0.05 + n / 100, size=44_000 - n) for n in range(4))],
    "6 alike": [DIGITS[0], *ALIKE],
    "1 equal": [DIGITS[0], EQUAL],
    "4 equal": [DIGITS[0], *(replace(EQUAL, name=f"tflite {n}", p50=0.03 * n, size=25_000 * n) for n in range(1, 5))],
    "20 at one point": [DIGITS[0], *(replace(EQUAL, name=f"candidate {n}") for n in range(20))],
}


def test_the_measurement_finds_wrong_labels(tmp_path):
    """The labels of a chart are moved by hand."""
    bubbles = [
        Bubble(name, "1 kB", f"{name}: 1 ms", time, 0.5 + time / 100, 1.0) for name, time in (("a", 1), ("b", 2))
    ]
    picture = draw_bubbles(BubbleChart(bubbles, "t", "d", "x", "y"), 760, 400, "bubbles-wide")
    styles = Path(figure.__file__).with_name("figures.css").read_text()
    (x1, y1), (x2, y2) = (
        map(float, ends) for ends in re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*"name"', picture)
    )
    start, first, second = picture.split("<g><g><text")
    there, back = (f'<g><g transform="translate({sign * (x2 - x1)} {sign * (y2 - y1)})"><text' for sign in (1, -1))
    swapped = f"{start}{there}{first}{back}{second}"
    covered = f"{start}{there}{first}<g><g><text{second}"
    pages = [tmp_path / f"{number}.html" for number in range(3)]
    for page, svg in zip(pages, (picture, swapped, covered), strict=True):
        page.write_text(f'<meta charset="utf-8"><style>{styles}</style>{svg}')
    measured = measure_pages(pages, {"found": LABEL_PROBLEMS}, [1200])
    problems = [measured[page][1200]["found"] for page in pages]
    assert problems[0] == []
    assert any("closer to" in text or "line of" in text for text in problems[1])
    assert any(" over " in text for text in problems[2])


def test_names_are_drawn_as_they_are_and_ids_are_reproducible():
    name = '<a href="https://a.b">\\(x^2\\)</a>'
    chart = BubbleChart([Bubble(name, "1 kB", f"{name}: 1 ms", 1.0, 0.5, 1.0)], "t", "d", "x", "y")
    picture = draw_bubbles(chart, 760, 400, "bubbles-wide")
    assert picture == draw_bubbles(chart, 760, 400, "bubbles-wide")
    assert "<a" not in picture
    assert "&lt;a href=" in picture.split('class="name"')[1][:60]
    assert "\\(x^2\\)" in picture.split("<title>")[1]


def test_colors_and_fonts_are_those_of_the_page():
    chart = BubbleChart(
        [Bubble("a", "1 kB", "a: 1 ms", 1.0, 0.5, 1.0, "chosen")], "t", "d", "x", "y", limits={"0.4": 0.4}
    )
    picture = draw_bubbles(chart, 760, 400, "bubbles-wide")
    assert not re.search(r"#[0-9a-f]{6}|font-family|<style|user-select", picture)
    assert {"var(--accent)", "var(--goal)", "var(--line)"} <= set(re.findall(r"var\(--\w+\)", picture))


def test_the_interval_of_a_share_ends_at_100_percent():
    change = SimpleNamespace(interval=(-0.01, 0.05))
    model = SimpleNamespace(value=lambda _: 0.98, change=lambda _: change)
    assert _interval("accuracy", model, model) == (0.97, 1.0)
    assert _interval("mean_squared_error", model, model) == pytest.approx((0.97, 1.03))
