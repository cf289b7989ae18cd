"""The report of a profile: findings as sentences, the parts of a step, and the speed of each variation."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lets_plot import (
    aes,
    element_blank,
    geom_point,
    geom_rect,
    geom_segment,
    geom_text,
    geom_vline,
    ggplot,
    labs,
    scale_identity,
    scale_x_continuous,
    scale_y_continuous,
)

from tfopt import formatting
from tfopt.charts.axis import Axis
from tfopt.charts.figure import COLORS, TEXT_SIZE, WIDTHS, draw_safely, page_theme, plain, render
from tfopt.charts.page_templates import report_template
from tfopt.components.profile_training.bottleneck import LOOP_KINDS, StepTimes
from tfopt.reports.training_plan import Bottleneck, Finding, LoopTime, TrainingPlanReport, VariationResult

PARTS = {"wait": "waiting for data", "host": "Python", "device": "the model's operations"}  # by field of `StepParts`
WHO = {
    "plan": "it is in the plan",
    "module": "only the module can set it",
    "environment": "only the environment can set it",
    "examples": "only the examples can set it",
    "batch": "it is not in the plan",
}
ROW = 46  # pixels of a row of the chart
VERDICT_COLORS = {"faster": "accent", "slower": "bad"}
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def render_report(plan: TrainingPlanReport, module: str) -> str:
    """Render a training plan for a module of this name as one HTML file without external resources."""
    filters: dict[str, Callable[..., str]] = {
        "times": formatting.ratio,
        "size": formatting.data_size,
        "ms": format_milliseconds,
    }
    widths = WIDTHS if any(result.speedup for result in plan.trials) else {}
    return report_template(Path(__file__).parent, **filters).render(
        plan=plan,
        module=module,
        step=[(name, key, getattr(plan.step_ms, key)) for key, name in PARTS.items()],
        charts=draw_safely(
            "the chart of speeds",
            lambda: [_draw_speedups(plan, width, f"speedups-{name}") for name, width in widths.items()],
        ),
    )


def format_milliseconds(value: float) -> str:
    """Format a time.

    >>> format_milliseconds(0.04), format_milliseconds(12.34), format_milliseconds(2500)
    ('0.040 ms', '12.3 ms', '2.50 s')
    """
    return f"{value / 1e3:#.3g} s" if value >= 1000 else f"{value:#.3g} ms" if value >= 0.1 else f"{value:.3f} ms"


def write_findings(
    bottleneck: Bottleneck,
    times: StepTimes,
    results: Sequence[VariationResult],
    facts: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> list[Finding]:
    """Return the sentences of the report on a plan of these settings, from the facts of `Worker.build`."""
    findings = [Finding("bottleneck", _sentence(bottleneck.sentence))]
    fastest_first = sorted(results, key=lambda result: -(result.speedup.value if result.speedup else 0))
    findings += [_variation_finding(result, settings) for result in fastest_first]
    findings += [Finding("loop", _loop_finding(loop, results)) for loop in times.loops if loop.line]
    if facts["odd_sizes"] and any("16" in result.name for result in results):
        sizes = ", ".join(facts["odd_sizes"])
        findings.append(Finding("hint", f"16 bits are fastest with multiples of 8; these are not: {sizes}."))
    if not settings:
        findings.append(Finding("hint", "The plan is empty: no setting of train was measured to be faster."))
    return findings


def _variation_finding(result: VariationResult, settings: Mapping[str, Any]) -> Finding:
    speedup = result.speedup
    if not speedup:
        return Finding("failed", _sentence(f"{result.name}: not possible: {(result.error or '').splitlines()[0]}"))
    value, low, high = map(formatting.ratio, (speedup.value, speedup.low, speedup.high))
    if speedup.verdict == "within noise":
        return Finding("within noise", _sentence(f"{result.name}: within noise, {value} ({low} to {high})"))
    text = f"{result.name}: {speedup.verdict}, {value} ({low} to {high})"
    if speedup.verdict == "faster":
        who = WHO[result.where]
        planned = all(settings[name] == value for name, value in result.settings.items() if name in settings)
        if result.where == "plan" and not planned:
            who = "another setting was faster still"
        text += f"; {who}" + (f": {result.note}" if result.note else "")
    return Finding(speedup.verdict, _sentence(text))


def _loop_finding(loop: LoopTime, results: Sequence[VariationResult]) -> str:
    where = "preprocess()" if loop.where == "preprocess" else "the step"
    text = f"Line {loop.line} of the module, in {where}, is {LOOP_KINDS[loop.kind]}: {loop.code}."
    if loop.kind == "python":
        return f"{text} Write it with TensorFlow's operations, on the whole batch."
    if loop.kind == "unrolled":
        return f"{text} {loop.copies} copies, which are independent: stack them into one operation."
    if not loop.independent:
        return f"{text} Each round needs the one before, so it cannot be batched as it is."
    gain = next((result.speedup for result in results if result.name == "maps vectorized" and result.speedup), None)
    if gain and loop.kind == "map_fn":
        ratio = formatting.ratio(gain.value)
        return f"{text} Its rounds are independent; all at once the step is {ratio} as fast."
    return f"{text} Its rounds are independent: run them at once. The gain was not measured."


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


def _draw_speedups(plan: TrainingPlanReport, width: int, key: str) -> str:
    """Draw a row for each variation: its name, its speedup, and the interval on a logarithmic axis around 1."""
    rows = [(result.name, result.speedup) for result in plan.trials if result.speedup]
    effect = 1 + plan.interval["min_effect"]
    ends = [0.8, 1.25, 1 / effect, effect, *(end for _, each in rows for end in (each.low, each.high))]
    axis = Axis(min(ends) / 1.1, max(ends) * 1.1, is_log=True)
    data = {
        "x": [axis(speedup.value) for _, speedup in rows],
        "low": [axis(speedup.low) for _, speedup in rows],
        "high": [axis(speedup.high) for _, speedup in rows],
        "y": [-index - 0.7 for index in range(len(rows))],
        "text_y": [-index - 0.35 for index in range(len(rows))],
        "name": [plain(name) for name, _ in rows],
        "speedup": [formatting.ratio(speedup.value) for _, speedup in rows],
        "color": [COLORS[VERDICT_COLORS.get(speedup.verdict, "soft")] for _, speedup in rows],
    }
    left, right, size = axis(axis.low), axis(axis.high), TEXT_SIZE
    plot = (
        ggplot(data)
        + geom_rect(xmin=axis(1 / effect), xmax=axis(effect), ymin=-len(rows), ymax=0, fill=COLORS["band"], size=0)
        + geom_vline(xintercept=axis(1), color=COLORS["soft"], linetype="dashed", size=0.5)
        + geom_segment(aes("low", "y", xend="high", yend="y", color="color"), size=1.4)
        + geom_point(aes("x", "y", color="color"), size=4)
        + geom_text(aes(y="text_y", label="name"), x=left, hjust=0, size=size, color=COLORS["ink"])
        + geom_text(aes(y="text_y", label="speedup", color="color"), x=right, hjust=1, size=size, fontface="bold")
        + scale_identity("color")
        + axis.scale(scale_x_continuous, 7, [value for value in TICKS if axis.low <= value <= axis.high])
        + scale_y_continuous(limits=[-len(rows), 0], expand=[0, 0], breaks=[])
        + labs(x="speed relative to the training as it is", y="")
        + page_theme(axis_title_y=element_blank())
    )
    ratios = {name: [formatting.ratio(value) for value in (each.value, each.low, each.high)] for name, each in rows}
    tooltips = [f"{name}: {value}, {low} to {high}" for name, (value, low, high) in ratios.items()]
    return render(plot, width, ROW * len(rows) + 52, key, "Speed of each setting", "; ".join(tooltips), tooltips)
