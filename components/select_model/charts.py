"""SVG charts of a decision: quality over latency and size, distribution of latency, throughput by batch size."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import lets_plot as lp
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, parquet

from tfopt import formatting
from tfopt.charts.axis import Axis, create_axis
from tfopt.charts.bubble_chart import KINDS, Bubble, BubbleChart, draw_both_widths
from tfopt.charts.figure import COLORS, TEXT_SIZE, WIDTHS, page_theme, plain, render
from tfopt.measurement.model_measurements import ModelMeasurements

Samples = Mapping[str, NDArray[np.float64]]
QUANTILES = {"p50": "latency", "p90": "latency_p90", "p99": "latency_p99"}
ROW, HISTOGRAM, BINS = 66, 26, 120  # pixels of a row of the latency chart, and of the histogram in it; its bins
BASE = 48 / ROW  # height of a histogram's base below the top of its row
FEWEST_SIZES = 3  # batch sizes of a curve
MOST_ROWS = 16  # models in a chart of rows or curves, the most important ones
LETTER, LINE, AXIS = 7.5, 16, 52  # pixels of a letter of a name at the end of its curve, between two names, of the axis


@dataclass(frozen=True)
class ChartData:
    """The models of all charts."""

    models: Sequence[ModelMeasurements]  # models with all drawn metrics, the baseline first
    metric: str
    front: Collection[str]  # names on the Pareto front
    chosen: str
    limits: dict[str, float]  # values of the main metric that get a line, by the goal

    def kind(self, model: ModelMeasurements) -> str:
        """Return the key of a model in `KINDS`."""
        return "chosen" if model.name == self.chosen else "baseline" if model.baseline is None else "other"

    def color(self, model: ModelMeasurements) -> str:
        """Return the color of a model's marks."""
        return COLORS[KINDS[self.kind(model)]]

    @cached_property
    def rows(self) -> list[ModelMeasurements]:
        """List the models of the latency chart, the fastest first."""
        return sorted(self._important(self.models), key=lambda model: model.value("latency"))

    @cached_property
    def curves(self) -> list[ModelMeasurements]:
        """List the models of the throughput chart, the fastest at the largest batch size first."""
        models = [model for model in self.models if len(_rates(model)) >= FEWEST_SIZES]
        return sorted(self._important(models), key=lambda model: -_rates(model)[-1][1])

    def _important(self, models: Sequence[ModelMeasurements]) -> list[ModelMeasurements]:
        ranks = [(self.kind(model) == "other", model.name not in self.front) for model in models]
        order = sorted(range(len(models)), key=lambda index: ranks[index])
        return [models[index] for index in order[:MOST_ROWS]]


def draw_choice(data: ChartData) -> list[str]:
    """Draw quality over latency in both widths."""
    return draw_both_widths(choice_chart(data), "bubbles")


def choice_chart(data: ChartData) -> BubbleChart:
    """Return a chart of quality over latency, with size as the area of a bubble."""
    metric, title = data.metric, formatting.title(data.metric)
    largest = max(abs(model.value(metric)) for model in data.models)
    return BubbleChart(
        bubbles=[_bubble(model, data) for model in data.models],
        title=f"{title.capitalize()}, latency and size of {len(data.models)} models",
        description=_describe_choice(data),
        across="latency in ms (p50), faster to the left",
        up=f"{title}, better upwards",
        more_is_better=data.models[0].higher_is_better(metric),
        share=formatting.is_share(metric),
        least=0.01 if formatting.is_share(metric) else 0.1 * largest,
        limits={formatting.amount(metric, value): value for value in data.limits.values()},
    )


def _bubble(model: ModelMeasurements, data: ChartData) -> Bubble:
    baseline = model.baseline
    return Bubble(
        name=model.name,
        note=formatting.data_size(model.value("size")),
        tooltip=f"{model.name}: {_amounts(model, data.metric)}",
        across=model.value("latency"),
        up=model.value(data.metric),
        area=model.value("size"),
        kind=data.kind(model),
        front=model.name in data.front,
        ranges=(_interval("latency", model, baseline), _interval(data.metric, model, baseline)) if baseline else None,
    )


def _interval(metric: str, model: ModelMeasurements, baseline: ModelMeasurements) -> tuple[float, float]:
    """Return the interval of the difference to the baseline, added to the baseline's value; a share is at most 1."""
    low, high = (baseline.value(metric) + end for end in model.change(metric).interval)
    return (min(low, 1.0), min(high, 1.0)) if formatting.is_share(metric) else (low, high)


def _amounts(model: ModelMeasurements, metric: str) -> str:
    return ", ".join(formatting.amount(name, model.value(name)) for name in (metric, "latency", "size"))


def _describe_choice(data: ChartData) -> str:
    texts = (
        f"{model.name}: {_amounts(model, data.metric)}{', on the Pareto front' if model.name in data.front else ''}"
        for model in data.models
    )
    return f"{'; '.join(texts)}. Selected: {data.chosen}."


def read_samples(file: Path, batch_size: str) -> dict[str, NDArray[np.float64]]:
    """Read the time of every recorded call at a batch size in milliseconds, by model; empty if there is no file."""
    if not file.is_file():
        return {}
    table = parquet.read_table(file, columns=["model", "nanoseconds"], filters=[("batch_size", "==", int(batch_size))])
    names = table["model"].cast(pa.string())
    return {
        name: table["nanoseconds"].filter(compute.equal(names, name)).to_numpy() / 1e6
        for name in compute.unique(names).to_pylist()
    }


def draw_latencies(data: ChartData, samples: Path) -> list[str]:
    """Draw the distribution of latency in both widths, with the histograms of recorded calls if there is a file."""
    calls = read_samples(samples, data.models[0].small_batch)
    return [draw_latency(data, calls, width, f"spread-{name}") for name, width in WIDTHS.items()]


def draw_latency(data: ChartData, samples: Samples, width: int, key: str) -> str:
    """Draw a row for each model: median, a line to p99, and the histogram of its recorded calls."""
    rows = data.rows
    batch_size = rows[0].small_batch
    axis = _latency_axis(rows, samples)
    letters, names = (40, [*QUANTILES]) if width > 500 else (17, ["p50", "p99"])
    plot = lp.ggplot()
    for index, model in enumerate(rows):
        color = data.color(model)
        calls = samples.get(model.name)
        if calls is not None and len(calls):
            plot += _histogram(calls, axis, -index - BASE, color)
        plot += _quantile_lines(model, axis, -index - BASE, color)
    texts = {
        "y": [-index - 13 / ROW for index in range(len(rows))],
        "name": [plain(formatting.shorten(model.name, letters)) for model in rows],
        "color": [data.color(model) for model in rows],
        "quantiles": [_quantiles(model, names) for model in rows],
    }
    left, right = axis(axis.low), axis(axis.high)
    plot += lp.geom_text(
        lp.aes(y="y", label="name", color="color"), data=texts, x=left, hjust=0, fontface="bold", size=TEXT_SIZE
    )
    plot += lp.geom_text(
        lp.aes(y="y", label="quantiles"), data=texts, x=right, hjust=1, size=TEXT_SIZE, color=COLORS["soft"]
    )
    plot += lp.scale_identity("color") + axis.scale(lp.scale_x_continuous, width // 75)
    plot += lp.scale_y_continuous(limits=[-len(rows), 0], expand=[0, 0], breaks=[])
    plot += lp.labs(x=f"latency in ms, batch size {batch_size}", y="") + page_theme(axis_title_y=lp.element_blank())
    title = f"Latency of {len(rows)} models, batch size {batch_size}"
    description = "; ".join(f"{model.name}: {_quantiles(model, QUANTILES)}" for model in rows)
    return render(plot, width, ROW * len(rows) + 52, key, title, description)


def _latency_axis(rows: Sequence[ModelMeasurements], samples: Samples) -> Axis:
    """Return an axis from the fastest calls to the p99 of the slowest model; the few slower calls are cut off."""
    ends = [model.value(name) for model in rows for name in ("latency", "latency_p99")]
    ends += [float(np.quantile(calls, 0.005)) for calls in samples.values() if len(calls)]
    return create_axis(ends, is_log=max(ends) > 3 * min(ends))


def _histogram(calls: NDArray[np.float64], axis: Axis, base: float, color: str) -> Any:
    scale = np.geomspace if axis.is_log else np.linspace
    counts, edges = np.histogram(calls, bins=scale(axis.low, axis.high, BINS + 1))
    tops = base + HISTOGRAM / ROW * counts / max(1, counts.max())
    ends = [axis(edge) for pair in itertools.pairwise(edges) for edge in pair]
    heights = [float(top) for top in tops for _ in range(2)]
    outline = {"x": [ends[0], *ends, ends[-1]], "y": [base, *heights, base]}
    return lp.geom_polygon(lp.aes("x", "y"), data=outline, fill=color, alpha=0.35, size=0)


def _quantile_lines(model: ModelMeasurements, axis: Axis, base: float, color: str) -> Any:
    """Return a high line at the median, a low one at p99, and a line between them, below the histogram."""
    p50, p99 = (axis(model.value(name)) for name in ("latency", "latency_p99"))
    ends = {
        "x": [p50, p50, p99],
        "xend": [p99, p50, p99],
        "y": [base - 4 / ROW, base + HISTOGRAM / ROW, base],
        "yend": [base - 4 / ROW, base - 8 / ROW, base - 8 / ROW],
    }
    return lp.geom_segment(lp.aes("x", "y", xend="xend", yend="yend"), data=ends, color=color, size=0.9)


def _quantiles(model: ModelMeasurements, names: Iterable[str]) -> str:
    return ", ".join(f"{name} {formatting.amount('latency', model.value(QUANTILES[name]))}" for name in names)


def draw_throughputs(data: ChartData) -> list[str]:
    """Draw the throughput curves in both widths, if a model has one."""
    return [draw_throughput(data, width, f"sweep-{name}") for name, width in WIDTHS.items() if data.curves]


def draw_throughput(data: ChartData, width: int, key: str) -> str:
    """Draw a throughput curve for each model of `ChartData.curves`, with a ring at the size where it saturates."""
    models = data.curves
    letters = 24 if width > 500 else 14
    points = [point for model in models for point in _rates(model)]
    sizes = sorted({size for size, _ in points})
    up = create_axis([rate for _, rate in points], is_log=True)
    across = create_axis(sizes, is_log=True)
    # the names are at the right of the curves
    across = replace(
        across, high=across.high * (sizes[-1] / sizes[0]) ** (LETTER * letters / (width - 70 - LETTER * letters))
    )
    plot = lp.ggplot()
    for model in models:
        plot += _curve(model, data.color(model), across, up)
    height = max(300, LINE * len(models) + 90)
    unit = (up(up.high) - up(up.low)) / (height - AXIS)  # of the vertical axis, per pixel
    ends = [up(_rates(model)[-1][1]) for model in models]
    names = {
        "x": [across(sizes[-1])] * len(models),
        "y": ends,
        "name_x": [across(1.1 * sizes[-1])] * len(models),
        "name_y": [-unit * place for place in _spread_out([-end / unit for end in ends], -up(up.low) / unit - LINE)],
        "label": [plain(formatting.shorten(model.name, letters)) for model in models],
        "color": [data.color(model) for model in models],
    }
    mapping = lp.aes("x", "y", xend="name_x", yend="name_y", color="color")
    plot += lp.geom_segment(mapping, data=names, size=0.4)
    mapping = lp.aes("name_x", "name_y", label="label", color="color")
    plot += lp.geom_text(mapping, data=names, hjust=0, size=TEXT_SIZE, fontface="bold", nudge_x=3, nudge_unit="px")
    plot += lp.scale_identity(["color", "fill", "size"])
    plot += across.scale(lp.scale_x_continuous, len(sizes), sizes) + up.scale(lp.scale_y_continuous, 7)
    plot += lp.labs(x="batch size", y="examples per second") + page_theme()
    title = f"Throughput of {len(models)} models by batch size"
    description = "; ".join(f"{model.name}: {_describe_curve(model)}" for model in models)
    tooltips = [f"{model.name}: {text}" for model in models for text in _rate_texts(model)]
    return render(plot, width, height, key, title, description, tooltips)


def _curve(model: ModelMeasurements, color: str, across: Axis, up: Axis) -> Any:
    saturation, rates = model.benchmark.saturation if model.benchmark else None, _rates(model)
    rings = [saturation is not None and size == saturation.low < saturation.largest for size, _ in rates]
    points = {
        "x": [across(size) for size, _ in rates],
        "y": [up(rate) for _, rate in rates],
        "size": [4.5 if is_ring else 1.8 for is_ring in rings],
        "fill": [COLORS["card"] if is_ring else color for is_ring in rings],
    }
    circles = lp.geom_point(lp.aes("x", "y", size="size", fill="fill"), data=points, shape=21, color=color, stroke=1.5)
    return lp.geom_line(lp.aes("x", "y"), data=points, color=color, size=0.8) + circles


def _spread_out(places: Sequence[float], bottom: float) -> list[float]:
    """Move names, in their order, until each is at least a line below the one before and above the bottom.

    >>> _spread_out([10, 12, 90, 99], bottom=100)
    [10, 26, 84, 100]
    """
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + LINE) if moved else place)
    return [min(place, bottom - LINE * (len(moved) - 1 - index)) for index, place in enumerate(moved)]


def _rates(model: ModelMeasurements) -> list[tuple[int, float]]:
    return sorted((int(size), rate) for size, rate in model.benchmark.throughput.items()) if model.benchmark else []


def _rate_texts(model: ModelMeasurements) -> list[str]:
    return [f"{formatting.amount('throughput', rate)} at {size}" for size, rate in _rates(model)]


def _describe_curve(model: ModelMeasurements) -> str:
    saturation = model.benchmark.saturation if model.benchmark else None
    return "; ".join([*([saturation.summary] if saturation else []), ", ".join(_rate_texts(model))])
