"""HTML report of a search."""

from pathlib import Path

from tfopt import formatting
from tfopt.charts.figure import draw_safely
from tfopt.charts.page_templates import report_template
from tfopt.components.tune_recipe import charts
from tfopt.reports.recipe_report import EarlierTrial, RecipeReport, RelativeMetrics, TrialReport
from tfopt.value_types import JsonObject


def render(report: RecipeReport) -> str:
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
            "history": draw_safely("the chart of scores", lambda: charts.draw_history(report)),
            "front": draw_safely("the chart of all recipes", lambda: charts.draw_front(report, metric)),
        },
    )


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
