"""SVG charts of a decision: quality over latency and size, distribution of latency, throughput by batch size."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, parquet

from tfopt import formatting
from tfopt.artifacts.benchmark_report import SaturationRange
from tfopt.charts.axes import LETTER, Axis, add_element, create_axis, create_svg, shorten, tick_label, to_text
from tfopt.charts.bubble_chart import Bubble, BubbleChart, draw_bubbles
from tfopt.measurement.model_measurements import ModelMeasurements

Samples = Mapping[str, NDArray[np.float64]]
QUANTILES = {"p50": "latency", "p90": "latency_p90", "p99": "latency_p99"}
ROW, HISTOGRAM, BINS = 66, 26, 120  # pixels of a row of the latency chart, and of the histogram in it; its bins
FEWEST_SIZES = 3  # batch sizes of a curve
MOST_CURVES = 12  # with more, only the important ones are drawn
NAME, LINE = 24, 16  # letters of a name at the end of its curve; pixels between two names


@dataclass(frozen=True)
class ChartData:
    """The models of all charts.

    Attributes:
        models: Models with all drawn metrics, the baseline first.
        metric: The main metric.
        front: Names on the Pareto front.
        chosen: Name of the selected model.
        limits: Values of the main metric that get a line, by the label of the line.
    """

    models: Sequence[ModelMeasurements]
    metric: str
    front: Collection[str]
    chosen: str
    limits: dict[str, float]

    def kind(self, model: ModelMeasurements) -> str:
        """Return the CSS class that selects the color of a model."""
        return "chosen" if model.name == self.chosen else "parent" if model.parent is None else "other"

    def curves(self) -> list[ModelMeasurements]:
        """List the models of the throughput chart, the fastest at the largest batch size first."""
        models = [model for model in self.models if len(_rates(model)) >= FEWEST_SIZES]
        if len(models) > MOST_CURVES:
            important = {*self.front, self.chosen}
            models = [model for model in models if model.parent is None or model.name in important]
        return sorted(models, key=lambda model: -_rates(model)[-1][1])


def draw_choice(data: ChartData, width: int, height: int, key: str) -> str:
    """Draw quality over latency, with size as the area of a bubble; ``key`` makes the SVG's ids unique."""
    metric, title = data.metric, formatting.title(data.metric)
    largest = max(abs(value) for value in [*data.limits.values(), *(model.value(metric) for model in data.models)])
    chart = BubbleChart(
        bubbles=[_bubble(model, data) for model in data.models],
        title=f"{title.capitalize()}, latency and size of {len(data.models)} models",
        description=_describe_choice(data),
        across="latency in ms (p50), faster to the left",
        up=f"{title}, better upwards",
        more_is_better=data.models[0].higher_is_better(metric),
        share=formatting.is_share(metric),
        least=0.01 if formatting.is_share(metric) else 0.1 * largest,
        limits=data.limits,
    )
    return draw_bubbles(chart, width, height, key)


def _bubble(model: ModelMeasurements, data: ChartData) -> Bubble:
    parent = model.parent
    return Bubble(
        name=model.name,
        note=formatting.data_size(model.value("size")),
        tooltip=f"{model.name}: {_amounts(model, data.metric)}",
        across=model.value("latency"),
        up=model.value(data.metric),
        area=model.value("size"),
        kind=data.kind(model),
        front=model.name in data.front,
        ranges=(_interval("latency", model, parent), _interval(data.metric, model, parent)) if parent else None,
    )


def _interval(metric: str, model: ModelMeasurements, parent: ModelMeasurements) -> tuple[float, float]:
    """Return the interval of the difference to the parent, added to the parent's value."""
    low, high = (parent.value(metric) + end for end in model.change(metric).interval)
    return low, high


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


def draw_latency(data: ChartData, samples: Samples, width: int, key: str) -> str:
    """Draw a row for each model: median, a line to p99, and the histogram of its recorded calls."""
    rows = sorted(data.models, key=lambda model: model.value("latency"))
    height = ROW * len(rows) + 52
    batch_size = rows[0].small_batch
    description = "; ".join(f"{model.name}: {_quantiles(model, QUANTILES)}" for model in rows)
    svg = create_svg(width, height, key, f"Latency of {len(rows)} models, batch size {batch_size}", description)
    axis = _latency_axis(rows, samples, width)
    bottom = height - 44
    for value in axis.ticks(56):
        add_element(svg, "line", class_="grid", x1=axis(value), y1=4, x2=axis(value), y2=bottom)
        add_element(svg, "text", tick_label(value), class_="tick", x=axis(value), y=bottom + 18, text_anchor="middle")
    label = f"latency in ms, batch size {batch_size}"
    add_element(svg, "text", label, class_="axis", x=width / 2, y=bottom + 38, text_anchor="middle")
    for index, model in enumerate(rows):
        _add_latency_row(svg, model, samples.get(model.name), axis, index * ROW + 4, data.kind(model))
    return to_text(svg)


def _add_latency_row(
    svg: ET.Element, model: ModelMeasurements, calls: NDArray[np.float64] | None, axis: Axis, top: float, kind: str
) -> None:
    group = add_element(svg, "g")
    add_element(group, "title", f"{model.name}: {_quantiles(model, QUANTILES)}")
    text = add_element(group, "text", class_=f"label {kind}", x=axis.start, y=top + 13)
    letters, names = (40, [*QUANTILES]) if axis.end > 500 else (17, ["p50", "p99"])
    add_element(text, "tspan", shorten(model.name, letters), class_="name")
    add_element(text, "tspan", _quantiles(model, names), class_="size", dx=8)
    base = top + 22 + HISTOGRAM
    if calls is not None and len(calls):
        add_element(group, "path", class_=f"hill {kind}", d=_histogram_path(calls, axis, base))
    p50, p99 = (axis(model.value(name)) for name in ("latency", "latency_p99"))
    add_element(group, "line", class_=f"range {kind}", x1=p50, y1=base + 4, x2=p99, y2=base + 4)
    add_element(group, "line", class_=f"median {kind}", x1=p50, y1=base - HISTOGRAM, x2=p50, y2=base + 8)
    add_element(group, "line", class_=f"end {kind}", x1=p99, y1=base, x2=p99, y2=base + 8)


def _latency_axis(rows: Sequence[ModelMeasurements], samples: Samples, width: int) -> Axis:
    """Return an axis from the fastest calls to the p99 of the slowest model; the few slower calls are cut off."""
    ends = [model.value(name) for model in rows for name in ("latency", "latency_p99")]
    ends += [float(np.quantile(calls, 0.005)) for calls in samples.values() if len(calls)]
    return create_axis(ends, 10, width - 26, logarithmic=max(ends) > 3 * min(ends))


def _histogram_path(calls: NDArray[np.float64], axis: Axis, base: float) -> str:
    """Return the outline of a histogram whose bins are equally wide on the axis."""
    scale = np.geomspace if axis.logarithmic else np.linspace
    counts, edges = np.histogram(calls, bins=scale(axis.low, axis.high, BINS + 1))
    tops = base - HISTOGRAM * counts / max(1, counts.max())
    points = [f"{axis(edges[0]):.1f},{base:.1f}"]
    for top, left, right in zip(tops, edges[:-1], edges[1:], strict=True):
        points += [f"{axis(left):.1f},{top:.1f}", f"{axis(right):.1f},{top:.1f}"]
    return f"M{' L'.join([*points, f'{axis(edges[-1]):.1f},{base:.1f}'])} Z"


def _quantiles(model: ModelMeasurements, names: Iterable[str]) -> str:
    return ", ".join(f"{name} {formatting.amount('latency', model.value(QUANTILES[name]))}" for name in names)


def draw_throughput(data: ChartData, width: int, key: str) -> str:
    """Draw a throughput curve for each model of `ChartData.curves`, with a ring at the size where it saturates."""
    models = data.curves()
    names_at_curves = width > 500  # a narrow chart has room for names only below
    rows = LINE * len(models)
    height = max(300, rows + 90) + (0 if names_at_curves else rows + 8)
    description = "; ".join(f"{model.name}: {_describe_curve(model)}" for model in models)
    svg = create_svg(width, height, key, f"Throughput of {len(models)} models by batch size", description)
    points = [point for model in models for point in _rates(model)]
    bottom = max(300, rows + 90) - 44
    right = width - (LETTER * NAME if names_at_curves else 4)
    across = create_axis([size for size, _ in points], 62, right, logarithmic=True)
    up = create_axis([rate for _, rate in points], bottom, 6, logarithmic=True)
    _add_grid(svg, across, up, sorted({size for size, _ in points}))
    heights = _spread_out([up(_rates(model)[-1][1]) for model in models], bottom)
    for index, (model, name_y) in enumerate(zip(models, heights, strict=True)):
        group = add_element(svg, "g", class_=data.kind(model))
        add_element(group, "title", f"{model.name}: {_describe_curve(model)}")
        x, y = _add_curve(group, model, data.kind(model), across, up)
        if names_at_curves:
            add_element(group, "line", class_="leader", x1=x + 4, y1=y, x2=x + 14, y2=name_y)
            add_element(group, "text", shorten(model.name, NAME - 4), class_="name", x=x + 18, y=name_y + 4)
        else:
            text = add_element(group, "text", x=10, y=bottom + 44 + LINE * (index + 1))
            add_element(text, "tspan", shorten(model.name, NAME), class_="name")
            add_element(text, "tspan", formatting.amount("throughput", _rates(model)[-1][1]), class_="size", dx=8)
    return to_text(svg)


def _add_curve(group: ET.Element, model: ModelMeasurements, kind: str, across: Axis, up: Axis) -> tuple[float, float]:
    """Draw the curve of a model, and return its last point."""
    saturation, rates = _saturation(model), _rates(model)
    points = [(across(size), up(rate)) for size, rate in rates]
    add_element(group, "path", class_=f"curve {kind}", d="M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in points))
    for (size, _), (x, y) in zip(rates, points, strict=True):
        ring = saturation is not None and size == saturation.low < saturation.largest
        add_element(group, "circle", class_=f"{'ring' if ring else 'dot'} {kind}", cx=x, cy=y, r=5 if ring else 2)
    return points[-1]


def _add_grid(svg: ET.Element, across: Axis, up: Axis, sizes: Sequence[int]) -> None:
    for rate in up.ticks(40):
        add_element(svg, "line", class_="grid", x1=across.start, y1=up(rate), x2=across.end, y2=up(rate))
        add_element(svg, "text", tick_label(rate), class_="tick", x=across.start - 6, y=up(rate) + 4, text_anchor="end")
    add_element(svg, "text", "examples per second", class_="axis", x=across.start + 4, y=up.end + 12)
    previous = 0.0
    for size in sizes:
        if across(size) - previous > 30:
            previous = across(size)
            add_element(svg, "text", tick_label(size), class_="tick", x=previous, y=up.start + 18, text_anchor="middle")
    middle = (across.start + across.end) / 2
    add_element(svg, "text", "batch size", class_="axis", x=middle, y=up.start + 38, text_anchor="middle")


def _spread_out(heights: Sequence[float], bottom: float) -> list[float]:
    """Move names, in their order, until each is at least a line below the one before and above the bottom.

    >>> _spread_out([10, 12, 90, 99], bottom=100)
    [10, 26, 84, 100]
    """
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + LINE) if moved else height)
    return [min(height, bottom - LINE * (len(moved) - 1 - index)) for index, height in enumerate(moved)]


def _rates(model: ModelMeasurements) -> list[tuple[int, float]]:
    return sorted((int(size), rate) for size, rate in model.benchmark.throughput.items()) if model.benchmark else []


def _saturation(model: ModelMeasurements) -> SaturationRange | None:
    return model.benchmark.saturation if model.benchmark else None


def _describe_curve(model: ModelMeasurements) -> str:
    saturation = _saturation(model)
    rates = ", ".join(f"{formatting.amount('throughput', rate)} at {size}" for size, rate in _rates(model))
    return f"{saturation.summary}; {rates}" if saturation else rates
