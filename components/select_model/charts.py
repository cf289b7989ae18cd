"""The picture of the choice: quality up, latency across, size as area, Pareto front filled."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tfopt import formatting as wording
from tfopt.charts.bubble_chart import Bubble, BubbleChart, draw_bubbles
from tfopt.measurement.model_measurements import Estimate, ModelMeasurements


@dataclass(frozen=True)
class View:
    """What is drawn.

    Attributes:
        models: Those that were measured whole.
        metric: The main metric.
        front: Names on the Pareto front.
        chosen: The chosen model's name.
        limits: Lines at values of the metric, by what they are called.
    """

    models: Sequence[ModelMeasurements]
    metric: str
    front: Collection[str]
    chosen: str
    limits: dict[str, float]


def scatter(view: View, width: int, height: int, key: str) -> str:
    """Draw it as SVG of a size; ``key`` makes its ids unique on the page."""
    largest = max(abs(value) for value in [*view.limits.values(), *(m.value(view.metric) for m in view.models)])
    plane = BubbleChart(
        bubbles=[_bubble(model, view) for model in view.models],
        title=f"{wording.title(view.metric).capitalize()}, latency and size of {len(view.models)} models",
        description=_description(view),
        across="latency in ms (p50), faster to the left",
        up=f"{wording.title(view.metric)}, better upwards",
        more_is_better=view.models[0].higher_is_better(view.metric),
        share=wording.is_share(view.metric),
        least=0.01 if wording.is_share(view.metric) else 0.1 * largest,
        limits=view.limits,
    )
    return draw_bubbles(plane, width, height, key)


def _bubble(model: ModelMeasurements, view: View) -> Bubble:
    size = wording.data_size(model.value("size"))
    value = wording.amount(view.metric, model.value(view.metric))
    return Bubble(
        name=model.name,
        note=size,
        tooltip=f"{model.name}: {value}, {wording.amount('latency', model.value('latency'))}, {size}",
        across=model.value("latency"),
        up=model.value(view.metric),
        area=model.value("size"),
        kind="chosen" if model.name == view.chosen else "parent" if model.parent is None else "other",
        front=model.name in view.front,
        ranges=(_around("latency", model, model.parent), _around(view.metric, model, model.parent))
        if model.parent
        else None,
    )


def _around(metric: str, model: ModelMeasurements, parent: ModelMeasurements) -> tuple[float, float]:
    """The interval of the difference to the parent, around the parent's value."""
    moved: Estimate = model.change(metric)
    low, high = (parent.value(metric) + end for end in moved.interval)
    return low, high


def _description(view: View) -> str:
    said = "; ".join(
        f"{m.name}: {wording.amount(view.metric, m.value(view.metric))}, "
        f"{wording.amount('latency', m.value('latency'))}, {wording.data_size(m.value('size'))}"
        + (", on the Pareto front" if m.name in view.front else "")
        for m in view.models
    )
    return f"{said}. Chosen: {view.chosen}."
