"""What larger batches give: examples a second, model by model."""

from collections.abc import Collection, Sequence
from xml.etree import ElementTree as ET

from tfopt import formatting as wording
from tfopt.charts.axes import LETTER, Axis, add_element, create_axis, create_svg, shorten, tick_label, to_text
from tfopt.measurement.model_measurements import ModelMeasurements

FEWEST = 3  # sizes: two make no curve
MOST = 12  # curves: of more, those that matter
NAME, LINE = 24, 16  # letters of a name at the end of its curve, and pixels from one to the next


def swept(models: Sequence[ModelMeasurements], matter: Collection[str]) -> list[ModelMeasurements]:
    """Those that were measured at enough batch sizes, the fastest at the largest first.

    Args:
        models: That were measured whole.
        matter: The names of those that are kept of too many.
    """
    found = [model for model in models if len(model.speed["throughput"]) >= FEWEST]
    shown = [model for model in found if model.parent is None or model.name in matter] if len(found) > MOST else found
    return sorted(shown, key=lambda model: -_rates(model)[-1][1])


def sweep(models: Sequence[ModelMeasurements], chosen: str, width: int, key: str) -> str:
    """Draw a curve for each model that `swept` gives, with a ring where it is saturated."""
    beside = width > 500  # else there is room for names below only
    height = max(300, LINE * len(models) + 90) + (0 if beside else LINE * len(models) + 8)
    said = "; ".join(f"{model.name}: {_figures(model)}" for model in models)
    svg = create_svg(width, height, key, f"Examples a second of {len(models)} models by batch size", said)
    points = [point for model in models for point in _rates(model)]
    bottom = max(300, LINE * len(models) + 90) - 44
    right = width - (LETTER * NAME if beside else 4)
    across = create_axis([size for size, _ in points], 62, right, logarithmic=True)
    up = create_axis([rate for _, rate in points], bottom, 6, logarithmic=True)
    _grid(svg, across, up, sorted({size for size, _ in points}))
    names = _apart([up(_rates(model)[-1][1]) for model in models], bottom)
    for index, (model, place) in enumerate(zip(models, names, strict=True)):
        kind = "chosen" if model.name == chosen else "parent" if model.parent is None else "other"
        group = add_element(svg, "g", class_=kind)
        add_element(group, "title", f"{model.name}: {_figures(model)}")
        x, y = _curve(group, model, kind, across, up)
        if beside:
            add_element(group, "line", class_="leader", x1=x + 4, y1=y, x2=x + 14, y2=place)
            add_element(group, "text", shorten(model.name, NAME - 4), class_="name", x=x + 18, y=place + 4)
        else:
            text = add_element(group, "text", x=10, y=bottom + 44 + LINE * (index + 1))
            add_element(text, "tspan", shorten(model.name, NAME), class_="name")
            add_element(text, "tspan", wording.amount("throughput", _rates(model)[-1][1]), class_="size", dx=8)
    return to_text(svg)


def _curve(group: ET.Element, model: ModelMeasurements, kind: str, across: Axis, up: Axis) -> tuple[float, float]:
    """Draw it, and return where it ends."""
    saturation, rates = model.speed["saturation"], _rates(model)
    places = [(across(size), up(rate)) for size, rate in rates]
    add_element(group, "path", class_=f"curve {kind}", d="M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in places))
    for (size, _), (x, y) in zip(rates, places, strict=True):
        ring = size == saturation["low"] < saturation["largest"]
        add_element(group, "circle", class_=f"{'ring' if ring else 'dot'} {kind}", cx=x, cy=y, r=5 if ring else 2)
    return places[-1]


def _grid(svg: ET.Element, across: Axis, up: Axis, sizes: Sequence[int]) -> None:
    for rate in up.ticks(40):
        add_element(svg, "line", class_="grid", x1=across.start, y1=up(rate), x2=across.end, y2=up(rate))
        add_element(svg, "text", tick_label(rate), class_="tick", x=across.start - 6, y=up(rate) + 4, text_anchor="end")
    add_element(svg, "text", "examples a second", class_="axis", x=across.start + 4, y=up.end + 12)
    last = 0.0
    for size in sizes:
        if across(size) - last > 30:
            last = across(size)
            add_element(svg, "text", tick_label(size), class_="tick", x=last, y=up.start + 18, text_anchor="middle")
    middle = (across.start + across.end) / 2
    add_element(svg, "text", "examples in a call", class_="axis", x=middle, y=up.start + 38, text_anchor="middle")


def _apart(places: Sequence[float], bottom: float) -> list[float]:
    """Where names go that want these places, in their order, none of them nearer than a line to the next.

    >>> _apart([10, 12, 90, 99], bottom=100)
    [10, 26, 84, 100]
    """
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + LINE) if found else place)
    return [min(place, bottom - LINE * (len(found) - 1 - index)) for index, place in enumerate(found)]


def _rates(model: ModelMeasurements) -> list[tuple[int, float]]:
    return sorted((int(size), rate) for size, rate in model.speed["throughput"].items())


def _figures(model: ModelMeasurements) -> str:
    rates = ", ".join(f"{wording.amount('throughput', rate)} at {size}" for size, rate in _rates(model))
    return f"{model.speed['saturation']['summary']}; {rates}"
