"""The report of sensitivities: a line for the log, and a page with a picture."""

from pathlib import Path

from tfopt.charts.axis import create_axis
from tfopt.charts.figure import draw_safely
from tfopt.charts.letter_rows import Letter, draw_letters
from tfopt.charts.page_templates import report_template
from tfopt.formatting import count
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
    letters = [
        Letter(max(loss.divergence, SMALLEST), row, *SERIES[part, precision])
        for row, layer in enumerate(layers)
        for part, precision in SERIES
        if (loss := getattr(layer, f"rounded_{part}").get(precision)) is not None
    ]
    values = [letter.value for letter in letters]
    description = "; ".join(
        f"{layer.layer}, {layer.weights} weights: "
        + ", ".join(f"{name} {loss.divergence:.2g}" for name, loss in layer.rounded_weights.items())
        for layer in layers
    )
    return draw_letters(
        letters,
        [(without_scopes(layer.layer), f"({count(layer.weights)})") for layer in layers],
        create_axis(values, is_log=max(values) > min(values), least=max(values)),
        key="losses",
        title="Loss of each layer by precision",
        across="divergence of the outputs",
        description=description,
    )
