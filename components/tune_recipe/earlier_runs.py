"""Earlier runs of a search: the recipe to try first, and measurements that are comparable with those of this run.

Every model is measured together with the baseline of its run, so runs are compared by the gain in quality, the speedup
and the relative size. If the baselines have different formats, or sizes that differ by more than `SIZE_TOLERANCE`, they
are different models. A baseline with other content but the same size was trained again.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tfopt.artifacts import Recipe as RecipeArtifact
from tfopt.components.tune_recipe import recipes
from tfopt.components.tune_recipe.recipes import Recipe
from tfopt.errors import ComponentError
from tfopt.measurement.pareto import non_dominated
from tfopt.model_store.run_history import is_comparable
from tfopt.model_store.warm_start import load_recipe
from tfopt.reports.decision_report import DecisionReport
from tfopt.reports.recipe_report import EarlierTrial, RecipeReport, RelativeMetrics

SIZE_TOLERANCE = 0.01  # training again changes the size of a model only by names in its graph
PARENT = "the model itself"
MEASURED = ("name", "choices", "seconds", "beside_parent", "metrics")  # what a later run takes from a trial

log = logging.getLogger(__name__)


def find_previous(destination: str | None) -> RecipeArtifact | None:
    """Return the recipe that is stored in a destination; None if there is none."""
    if destination is None:
        return None
    stored = load_recipe(destination)
    log.info("stored recipe in %s: %s", destination, stored.uri if stored else "none yet, so a new search starts")
    return stored


def read_previous(artifact: RecipeArtifact | None) -> RecipeReport | None:
    """Read the recipe of an earlier run; None if there is none.

    Raises:
        ComponentError: If it is damaged, or has another version.
    """
    if artifact is None:
        return None
    try:
        report = artifact.load()
        baselines = [model for model in report.decision.models if model.parent]
        if len(baselines) != 1 or "size" not in baselines[0].metrics:
            raise ValueError("the decision has no measured baseline")
    except (ComponentError, ValueError) as error:
        reason = error.received if isinstance(error, ComponentError) else str(error)
        received = f"{artifact.uri}: {artifact.file} is damaged or of another version: {reason}"
        expected = "a recipe that this version of tune_recipe wrote"
        raise ComponentError(received, expected, "remove it, or leave previous out once, to search again") from error
    return report


def first_trial(previous: RecipeReport | None, formats: Sequence[str], fine_tuning: bool = False) -> Recipe | None:
    """Return the winner of the earlier run; None if it was the model itself, was not served, or has another format.

    Raises:
        ComponentError: If it is not a recipe of this version, and was passed by the user, not found in a destination.
    """
    if previous is None:
        return None
    choices = previous.winner.choices if previous.winner else {}
    recipe = Recipe(choices)
    if recipe.format not in formats:
        log.info("the earlier run has no recipe of the requested formats to try first")
        return None
    if previous.served is False:
        log.info("the model selected by the earlier run was not served, so the search starts without its recipe")
        return None
    if recipe.is_trained and not fine_tuning:
        log.info("the earlier run has a recipe with fine-tuning, which is off now")
        return None
    if recipe in recipes.all_recipes(formats, fine_tuning):
        return recipe
    if previous.served:
        log.warning("the stored recipe, %s, does not exist in this version; the search starts without it", recipe)
        return None
    fix = "leave previous out once; the next recipe has choices of this version"
    raise ComponentError(f"previous: a winner of {json.dumps(choices)}", "choices of this version", fix)


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
            facts = {name: getattr(trial, name) for name in MEASURED}
            facts |= {"time": previous.time, "parent": baseline, "examples": previous.examples}
            yield EarlierTrial(**facts, same_parent=False, same_examples=False, pareto=False)
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
