"""Measurements of earlier runs that are comparable with those of this run, and the Pareto front of both.

Every model is measured together with the baseline of its run, so runs are compared by the gain in quality, the speedup
and the relative size. If the baselines have different formats, or sizes that differ by more than `SIZE_TOLERANCE`, they
are different models. A baseline with other content but the same size was trained again.
"""

from collections.abc import Iterator
from dataclasses import replace

from tfopt.measurement.pareto import non_dominated
from tfopt.model_store.run_history import is_comparable
from tfopt.reports.decision_report import DecisionReport
from tfopt.reports.recipe_report import EarlierTrial, RecipeReport, RelativeMetrics

SIZE_TOLERANCE = 0.01  # training again changes the size of a model only by names in its graph
PARENT = "the model itself"


def add_earlier_trials(report: RecipeReport, previous: RecipeReport | None) -> RecipeReport:
    """Return the report with the comparable measurements of earlier runs, and the Pareto front of all.

    ``earlier`` gets the newest measurement of each recipe that this run did not measure, ``left_out`` the reason if the
    earlier run is not comparable, and each row ``pareto``.
    """
    earlier = list(_measured_trials(previous)) if previous else []
    left_out = _find_difference(previous.decision, report.decision) if previous and earlier else ""
    measured = {trial.name for trial in report.trials if trial.beside_parent}
    baseline = report.decision.parent.digest
    earlier = [
        replace(trial, same_parent=trial.parent == baseline, same_examples=trial.examples == report.examples)
        for trial in earlier
        if not left_out and trial.name not in measured
    ]
    merits = {PARENT: (0.0, 1.0, -1.0)}
    merits |= {trial.name: _merits(trial.beside_parent) for trial in report.trials if trial.beside_parent}
    merits |= {trial.name: _merits(trial.beside_parent) for trial in earlier}
    front = non_dominated(merits)
    return replace(
        report,
        trials=[replace(t, pareto=t.beside_parent is not None and t.name in front) for t in report.trials],
        earlier=[replace(trial, pareto=trial.name in front) for trial in earlier],
        left_out=left_out,
    )


def _measured_trials(previous: RecipeReport) -> Iterator[EarlierTrial]:
    """Yield the measurements of an earlier run, and those that it carried over itself."""
    baseline = previous.decision.parent.digest
    for trial in previous.trials:
        if trial.beside_parent:
            yield EarlierTrial(
                trial.name,
                trial.choices,
                trial.seconds,
                trial.beside_parent,
                trial.metrics,
                previous.time,
                baseline,
                previous.examples,
                same_parent=False,
                same_examples=False,
                pareto=False,
            )
    yield from previous.earlier


def _find_difference(then: DecisionReport, now: DecisionReport) -> str:
    """Return why the measurements of two runs are not comparable; empty if they are."""
    before, after = then.parent, now.parent
    metric = next(iter(after.metrics))
    if metric not in before.metrics or not is_comparable(then.conditions, now.conditions, metric):
        return "task, label or split were others"
    if not is_comparable(then.conditions, now.conditions, "latency"):
        return "CPU, threads or batch sizes were others"
    sizes = before.metrics["size"], after.metrics["size"]
    same_size = abs(sizes[1] - sizes[0]) <= SIZE_TOLERANCE * sizes[0]
    if before.digest != after.digest and not (before.format == after.format and same_size):
        return "the model was another one, by its format or size"
    return ""


def _merits(metrics: RelativeMetrics) -> tuple[float, float, float]:
    return metrics.quality, metrics.speed, -metrics.size
