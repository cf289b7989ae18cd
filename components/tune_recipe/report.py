"""HTML report of a search, with the score of each trial and all measured models relative to the one they start from."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from lets_plot import aes, geom_point, geom_step, ggplot, labs, scale_identity, scale_x_continuous, scale_y_continuous

from tfopt import formatting
from tfopt.charts.axis import create_axis
from tfopt.charts.bubble_chart import Bubble, BubbleChart, draw_both_widths
from tfopt.charts.figure import COLORS, WIDTHS, draw_safely, page_theme, render
from tfopt.charts.page_templates import report_template
from tfopt.components.tune_recipe.earlier_runs import PARENT
from tfopt.reports.recipe_report import EarlierTrial, RecipeReport, RelativeMetrics, TrialReport
from tfopt.value_types import JsonObject


def render_report(report: RecipeReport) -> str:
    """Return ``report.html``: all of ``recipe.json`` except the decision, which has its own report."""
    baseline = report.decision.parent.metrics
    metric = next(iter(baseline))
    trials = sorted(report.trials, key=lambda trial: (not trial.winner, trial.score))
    return report_template(Path(__file__).parent).render(
        report=report,
        trials=[(trial, _cells(trial, metric)) for trial in trials],
        earlier=[(trial, _cells(trial, metric) | _origin_cells(trial, metric)) for trial in report.earlier],
        parent=[formatting.amount(name, baseline.get(name)) for name in (metric, "latency", "size")],
        metric=formatting.title(metric),
        charts={
            "history": draw_safely("the chart of scores", lambda: draw_history(report)),
            "front": draw_safely("the chart of all recipes", lambda: draw_front(report, metric)),
        },
    )


def draw_front(report: RecipeReport, metric: str) -> list[str]:
    """Draw the gain in the main metric over the relative time, with the relative size as area, in two widths."""
    tried: list[TrialReport | EarlierTrial] = [*report.trials, *report.earlier]
    trials = [trial for trial in tried if trial.beside_parent]
    bubbles = [Bubble(PARENT, "", f"{PARENT}: the baseline", across=1.0, up=0.0, area=1.0, kind="baseline")]
    bubbles += [_bubble(trial, metric) for trial in trials]
    description = "; ".join(bubble.tooltip for bubble in bubbles)
    largest = max(abs(bubble.up) for bubble in bubbles)
    chart = BubbleChart(
        bubbles=bubbles,
        title=f"Gain in {formatting.title(metric)}, time and size of {len(trials)} recipes",
        description=description,
        across="relative time, faster to the left",
        up=f"gain in {formatting.title(metric)}, better upwards",
        share=formatting.is_share(metric),
        least=0.01 if formatting.is_share(metric) else largest,
    )
    return draw_both_widths(chart, "front")


def draw_history(report: RecipeReport) -> list[str]:
    """Draw the score of each measured trial and the best score until then, in two widths."""
    measured = [(number, trial) for number, trial in enumerate(report.trials, 1) if trial.beside_parent]
    return [_draw_history(measured, len(report.trials), name) for name in WIDTHS] if measured else []


def _cells(trial: TrialReport | EarlierTrial, metric: str) -> dict[str, str]:
    relative: RelativeMetrics | None = trial.beside_parent
    return {
        "quality": formatting.amount(metric, trial.metrics.get(metric)),
        "latency": formatting.amount("latency", trial.metrics.get("latency")),
        "size": formatting.amount("size", trial.metrics.get("size")),
        "speed": formatting.ratio(relative.speed) if relative else formatting.DASH,
    }


def _origin_cells(trial: EarlierTrial, metric: str) -> JsonObject:
    """Return when and on what an earlier trial was measured; with another baseline or examples only its gain counts."""
    measured = f"measured on {trial.time[:10]}"
    if trial.same_parent and trial.same_examples:
        return {"origin": "earlier", "note": measured}
    difference = "of another training" if not trial.same_parent else "on other examples"
    gain = trial.beside_parent.quality
    quality = f"{formatting.distance(metric, abs(gain))} {'better' if gain > 0 else 'worse'}" if gain else "the same"
    return {
        "origin": f"earlier, {difference}",
        "note": f"{measured}, together with the model of that run",
        "quality": quality,
    }


def _bubble(trial: TrialReport | EarlierTrial, metric: str) -> Bubble:
    relative = trial.beside_parent
    assert relative
    size = f"{100 * relative.size:.0f}% of the size"
    gain = f"{formatting.title(metric)} {formatting.change(metric, relative.quality)}"
    return Bubble(
        name=trial.name,
        note=size,
        tooltip=f"{trial.name}: {gain}, {formatting.ratio(relative.speed)} as fast, {size}",
        across=1 / relative.speed,
        up=relative.quality,
        area=relative.size,
        kind="chosen" if isinstance(trial, TrialReport) and trial.winner else "other",
        front=trial.pareto,
    )


def _draw_history(measured: Sequence[tuple[int, TrialReport]], count: int, width: str) -> str:
    scores = [trial.score for _, trial in measured]
    axis, numbers = create_axis([*scores, 0.0], least=1.0), create_axis([0.5, count + 0.5])
    points = {
        "x": [number for number, _ in measured],
        "y": scores,
        "color": [COLORS["accent" if trial.winner else "other"] for _, trial in measured],
        "fill": [
            COLORS["accent" if trial.winner else "other" if trial.meets_goals else "card"] for _, trial in measured
        ],
    }
    best = {"x": points["x"], "y": list(accumulate(scores, min))}
    plot = ggplot() + geom_step(aes("x", "y"), data=best, color=COLORS["soft"], size=0.5, linetype="dotted")
    plot += geom_point(aes("x", "y", color="color", fill="fill"), data=points, shape=21, size=5, stroke=0.9)
    plot += scale_identity(["color", "fill"])
    whole = [tick for tick in numbers.ticks(8) if tick == int(tick) and 1 <= tick <= count]
    plot += numbers.scale(scale_x_continuous, 8, whole) + axis.scale(scale_y_continuous, 5)
    plot += labs(x="trial", y="score, better downwards") + page_theme()
    tooltips = [f"{number}. {trial.name}: {trial.score:.2f}; {trial.reason}" for number, trial in measured]
    title = f"Score of {len(measured)} measured trials of {count}"
    return render(plot, WIDTHS[width], 260, f"history-{width}", title, "; ".join(tooltips), tooltips)
