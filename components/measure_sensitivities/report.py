"""The report of sensitivities: a line for the log, and a page with a picture."""

from pathlib import Path

import lets_plot as lp

from tfopt.charts.axis import create_axis
from tfopt.charts.figure import COLORS, TEXT_SIZE, WIDTHS, draw_safely, page_theme, plain, render
from tfopt.charts.page_templates import report_template
from tfopt.formatting import count, shorten_names
from tfopt.graph.matching.batch_norms import without_scopes
from tfopt.reports.sensitivity_report import LayerSensitivity, SensitivityReport

MOST = 40  # layers in the picture, those with the largest losses
# The series of the picture by part and precision; letters, because colors alone do not tell them apart.
SERIES = {
    ("weights", "int4"): ("4", "accent"),
    ("weights", "int8"): ("8", "baseline"),
    ("inputs", "int8"): ("a", "bad"),
    ("inputs", "int16"): ("s", "goal"),
    ("weights", "float16"): ("f", "other"),
    ("weights", "bfloat16"): ("b", "soft"),
}
SMALLEST = 1e-12  # of a loss in the picture, whose axis is logarithmic


def describe(report: SensitivityReport) -> str:
    """Return one line for the log."""
    measured = sum(len(layer.rounded_weights) + len(layer.rounded_inputs) for layer in report.layers)
    worst = max(report.layers, key=_largest)
    missing = f"; {len(report.not_measured)} not measured" if report.not_measured else ""
    return (
        f"{measured} losses of {len(report.layers)} layers on {report.records} records in {report.seconds:.0f} s"
        f"{missing}; the largest in int4 is that of {without_scopes(worst.layer)}: {_largest(worst):.3g}"
    )


def render_html(report: SensitivityReport) -> str:
    """Return the report as a self-contained HTML document."""
    template = report_template(Path(__file__).parent, count=count, without_scopes=without_scopes, loss=_format)
    return template.render(
        **vars(report),
        columns=[*SERIES, ("inputs", "dynamic")],
        letters={f"{part} {precision}": letter for (part, precision), (letter, _) in SERIES.items()},
        shown=min(MOST, len(report.layers)),
        charts=draw_safely("the picture of the losses", lambda: _draw(report)),
    )


def _format(layer: LayerSensitivity, part: str, precision: str) -> str:
    loss = getattr(layer, f"rounded_{part}").get(precision)
    return "-" if loss is None else f"{loss.divergence:.1e}"


def _largest(layer: LayerSensitivity) -> float:
    losses = [*layer.rounded_weights.values(), *layer.rounded_inputs.values()]
    return max((loss.divergence for loss in losses), default=0.0)


def _draw(report: SensitivityReport) -> list[str]:
    """Draw the losses of each layer by precision, in both widths; the names have the number of weights."""
    largest = sorted(report.layers, key=_largest)[-MOST:]
    layers = [layer for layer in report.layers if layer in largest][::-1]  # from the top in the order of the graph
    points = [
        (max(loss.divergence, SMALLEST), row, *SERIES[part, precision])
        for row, layer in enumerate(layers)
        for part, precision in SERIES
        if (loss := getattr(layer, f"rounded_{part}").get(precision)) is not None
    ]
    values = [value for value, *_ in points]
    axis = create_axis(values, is_log=max(values) > min(values), least=max(values))
    data = {
        "x": [axis(value) for value in values],
        "y": [row for _, row, *_ in points],
        "letter": [letter for *_, letter, _ in points],
        "color": [COLORS[color] for *_, color in points],
    }
    pictures = []
    for width, pixels in WIDTHS.items():
        names = shorten_names([without_scopes(layer.layer) for layer in layers], 34 if width == "wide" else 14)
        labels = [plain(f"{name} ({count(layer.weights)})") for name, layer in zip(names, layers, strict=True)]
        plot = lp.ggplot() + lp.geom_text(
            lp.aes("x", "y", label="letter", color="color"), data=data, size=TEXT_SIZE, fontface="bold"
        )
        plot += lp.scale_identity(["color"]) + axis.scale(lp.scale_x_continuous, pixels // 120)
        plot += lp.scale_y_continuous(breaks=list(range(len(layers))), labels=labels, expand=[0, 0.6])
        plot += lp.labs(x="divergence of the outputs", y="") + page_theme()
        description = "; ".join(
            f"{layer.layer}, {layer.weights} weights: "
            + ", ".join(f"{name} {loss.divergence:.2g}" for name, loss in layer.rounded_weights.items())
            for layer in layers
        )
        height = 60 + 18 * len(layers)
        pictures.append(render(plot, pixels, height, f"losses-{width}", "Loss of each layer by precision", description))
    return pictures
