"""How the time of a call is distributed, model by model, on one axis."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, parquet

from tfopt import formatting as wording
from tfopt.charts.axes import Axis, add_element, create_axis, create_svg, shorten, tick_label, to_text
from tfopt.measurement.model_measurements import ModelMeasurements

Samples = Mapping[str, NDArray[np.float64]]
ROW, HILL, BINS = 66, 26, 120  # pixels of a row, and of the hill in it; bins of the histogram


def read_samples(file: Path, batch_size: str) -> dict[str, NDArray[np.float64]]:
    """Every recorded call of each model at a batch size, in milliseconds; nothing when there is no file."""
    if not file.is_file():
        return {}
    table = parquet.read_table(file, columns=["model", "nanoseconds"], filters=[("batch_size", "==", int(batch_size))])
    names = table["model"].cast(pa.string())
    return {
        name: table["nanoseconds"].filter(compute.equal(names, name)).to_numpy() / 1e6
        for name in compute.unique(names).to_pylist()
    }


def spread(models: Sequence[ModelMeasurements], samples: Samples, chosen: str, width: int, key: str) -> str:
    """Draw a row for each model: the hill of its calls where they were kept, p50 to p99, and the median."""
    rows = sorted(models, key=lambda model: model.value("latency"))
    height = ROW * len(rows) + 52
    title = f"Time of a call of {len(rows)} models, batch size {rows[0].small_batch}"
    svg = create_svg(
        width, height, key, title, "; ".join(f"{model.name}: {_figures(model, _QUANTILES)}" for model in rows)
    )
    axis = _axis(rows, samples, width)
    bottom = height - 44
    for value in axis.ticks(56):
        add_element(svg, "line", class_="grid", x1=axis(value), y1=4, x2=axis(value), y2=bottom)
        add_element(svg, "text", tick_label(value), class_="tick", x=axis(value), y=bottom + 18, text_anchor="middle")
    said = f"time of a call in ms, batch size {rows[0].small_batch}"
    add_element(svg, "text", said, class_="axis", x=width / 2, y=bottom + 38, text_anchor="middle")
    for index, model in enumerate(rows):
        kind = "chosen" if model.name == chosen else "parent" if model.parent is None else "other"
        _row(svg, model, samples.get(model.name), axis, index * ROW + 4, kind)
    return to_text(svg)


def _row(
    svg: ET.Element, model: ModelMeasurements, calls: NDArray[np.float64] | None, axis: Axis, top: float, kind: str
) -> None:
    group = add_element(svg, "g")
    add_element(group, "title", f"{model.name}: {_figures(model, _QUANTILES)}")
    text = add_element(group, "text", class_=f"label {kind}", x=axis.start, y=top + 13)
    most, names = (40, [*_QUANTILES]) if axis.end > 500 else (17, ["p50", "p99"])
    add_element(text, "tspan", shorten(model.name, most), class_="name")
    add_element(text, "tspan", _figures(model, names), class_="size", dx=8)
    base = top + 22 + HILL
    if calls is not None and len(calls):
        add_element(group, "path", class_=f"hill {kind}", d=_hill(calls, axis, base))
    p50, p99 = (axis(model.value(name)) for name in ("latency", "latency_p99"))
    add_element(group, "line", class_=f"range {kind}", x1=p50, y1=base + 4, x2=p99, y2=base + 4)
    add_element(group, "line", class_=f"median {kind}", x1=p50, y1=base - HILL, x2=p50, y2=base + 8)
    add_element(group, "line", class_=f"end {kind}", x1=p99, y1=base, x2=p99, y2=base + 8)


def _axis(rows: Sequence[ModelMeasurements], samples: Samples, width: int) -> Axis:
    """From the fastest calls to the p99 of the slowest model; the few calls beyond are in the table only."""
    ends = [model.value(name) for model in rows for name in ("latency", "latency_p99")]
    ends += [float(np.quantile(calls, 0.005)) for calls in samples.values() if len(calls)]
    return create_axis(ends, 10, width - 26, logarithmic=max(ends) > 3 * min(ends))


def _hill(calls: NDArray[np.float64], axis: Axis, base: float) -> str:
    """The outline of a histogram whose bins are equally wide on the axis."""
    scale = np.geomspace if axis.logarithmic else np.linspace
    counts, edges = np.histogram(calls, bins=scale(axis.low, axis.high, BINS + 1))
    tops = base - HILL * counts / max(1, counts.max())
    points = [f"{axis(edges[0]):.1f},{base:.1f}"]
    for top, left, right in zip(tops, edges[:-1], edges[1:], strict=True):
        points += [f"{axis(left):.1f},{top:.1f}", f"{axis(right):.1f},{top:.1f}"]
    return f"M{' L'.join([*points, f'{axis(edges[-1]):.1f},{base:.1f}'])} Z"


def _figures(model: ModelMeasurements, names: Iterable[str]) -> str:
    return ", ".join(f"{name} {wording.amount('latency', model.value(_QUANTILES[name]))}" for name in names)


_QUANTILES = {"p50": "latency", "p90": "latency_p90", "p99": "latency_p99"}
