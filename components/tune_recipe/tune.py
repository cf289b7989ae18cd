"""Run a search: try the earlier recipe, search, measure the finalists, select a model, and write the report."""

import datetime
import logging
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfopt.artifacts import Examples, Model, PythonModule
from tfopt.artifacts import Recipe as RecipeArtifact
from tfopt.components.tune_recipe.earlier_runs import add_earlier_trials
from tfopt.components.tune_recipe.journal import write_journal
from tfopt.components.tune_recipe.parameters import SearchSettings
from tfopt.components.tune_recipe.recipes import Recipe, Step
from tfopt.components.tune_recipe.report import render_report
from tfopt.components.tune_recipe.search import Search, Trial
from tfopt.components.tune_recipe.trial_models import TRAINING, ModelBuilder, TrialMeasurer, training_arguments
from tfopt.errors import ComponentError
from tfopt.reports.decision_report import DecisionReport
from tfopt.reports.recipe_report import RecipeReport, RecipeStep, TrialReport, WinningRecipe
from tfopt.storage.staging import link_tree


def tune(
    model: Model,
    examples: Examples,
    first: Recipe | None,
    previous: RecipeReport | None,
    settings: SearchSettings,
    tuned: Path,
    recipe: RecipeArtifact,
    module: PythonModule | None,
) -> RecipeReport:
    """Search, write the selected model to ``tuned`` and the files of the recipe, and return the report."""
    work = recipe.path / ".work"  # on the file system of the outputs, so that the winner can be linked
    work.mkdir()
    deadline = time.monotonic() + 60 * settings.minutes
    builder = ModelBuilder(model, examples, settings.output, work, settings, module, deadline)
    measurer = TrialMeasurer(model, examples, settings, module)
    search = Search(builder, measurer, settings)
    reused, stopped = search.reuse_or_run(first)
    finalists = select_finalists(search.trials, settings.finalists)
    reports = _measure_finalists(measurer, search.trials, finalists, work / "last round")
    decision = measurer.select([trial.model for trial in finalists if trial.model], reports)
    winner = next((t for t in finalists if t.model and t.model.digest == decision.selected_digest), None)
    link_tree(reports / "selected", tuned)
    shutil.copyfile(reports / "decision" / "report.html", recipe.path / "decision.html")
    shutil.rmtree(work)
    winning_recipe = None
    if winner:
        steps = winner.recipe.steps
        report_steps = [RecipeStep(step.component, step.parameters) for step in steps]
        winning_recipe = WinningRecipe(
            str(winner.recipe), winner.recipe.choices, report_steps, _commands(steps, settings)
        )
    report = RecipeReport(
        reason=_reason(winner, decision, reused=reused, count=len(search.trials)),
        winner=winning_recipe,
        blessed=decision.blessed,
        reused=reused,
        stopped=stopped,
        goals=[goal.text for goal in measurer.goals],
        objective=settings.objective,
        formats=list(settings.formats),
        seed=settings.seed,
        examples=examples.digest,
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        minutes=search.minutes,
        trials=[_trial_report(trial, trial in finalists, trial is winner) for trial in search.trials],
        decision=decision,
        earlier=[],
        left_out="",
    )
    report = add_earlier_trials(report, previous)
    recipe.write(report)
    (recipe.path / recipe.page).write_text(render_report(report), encoding="utf-8")
    write_journal(report, recipe.path / "optuna-journal.log")
    logging.getLogger(__name__).info("%s", report.reason)
    return report


def select_finalists(trials: Sequence[Trial], count: int) -> list[Trial]:
    """Return the best trials that win; if none does, the best measured one, so that the last round reports it.

    Raises:
        ComponentError: If no trial was measured.
    """
    measured = [trial for trial in trials if trial.measurement and not trial.measurement.measured.error]
    if not measured:
        reasons = "; ".join(f"{trial.recipe}: {trial.reason}" for trial in trials[:5])
        received = f"none of {len(trials)} recipes could be measured: {reasons}"
        fix = "relax the goals on size, allow more formats, or read the error of the first one"
        raise ComponentError(received, "at least one recipe that can be measured", fix)
    ranked = sorted(measured, key=lambda trial: (not trial.wins, trial.score))
    best = [trial for trial in ranked if trial.wins] or ranked[:1]
    distinct = {trial.model.digest: trial for trial in reversed(best) if trial.model}  # two recipes may give one file
    return [trial for trial in best if trial in distinct.values()][:count]


def _measure_finalists(
    measurer: TrialMeasurer, trials: Sequence[Trial], finalists: Sequence[Trial], folder: Path
) -> Path:
    """Measure the finalists together, and return the folder of the reports; a single trial is not measured again."""
    (first, *_), measured = finalists, [trial for trial in trials if trial.measurement]
    if measured == [first] and first.reports:
        return first.reports
    # Their quality was measured on the same records as that of all trials, and they are the best of these.
    measurer.measure([trial.model for trial in finalists if trial.model], folder, tried=len(measured))
    return folder


def _reason(winner: Trial | None, decision: DecisionReport, *, reused: bool, count: int) -> str:
    best = f"the best of {count} recipes" if count > 1 else "the only recipe that was tried"
    origin = "the recipe of the earlier run" if reused else best
    reason = decision.reason.removeprefix(f"{decision.selected}: ")  # the recipe's name is more specific
    return f"{winner.recipe} ({origin}): {reason}" if winner else f"the model itself stays: {reason}"


def _commands(steps: Sequence[Step], settings: SearchSettings) -> list[str]:
    """Return the command of each step, each reading the folder that the previous one wrote."""
    folders = ["model/", *(f"{number} {step.component}/".replace(" ", "-") for number, step in enumerate(steps, 1))]
    commands = []
    for step, source, target in zip(steps, folders, folders[1:], strict=False):
        arguments: dict[str, object] = {"model": source, "examples": "examples/"}
        if "weight_bits" in step.parameters:
            measured = {**arguments, "sensitivities": "sensitivities/"}
            commands.append(_command("measure_sensitivities", measured))
            arguments = measured
        if step.component in TRAINING:
            arguments |= training_arguments(step, settings, "module.py", "model/")
        commands.append(_command(step.component, arguments | {step.output: target} | step.parameters))
    return commands


def _command(component: str, arguments: Mapping[str, object]) -> str:
    words = ["tfopt", component]
    for name, value in arguments.items():
        option = name.replace("_", "-")
        words += [f"--{'' if value else 'no-'}{option}"] if isinstance(value, bool) else [f"--{option}", str(value)]
    return shlex.join(words)


def _trial_report(trial: Trial, finalist: bool, winner: bool) -> TrialReport:
    measurement = trial.measurement
    return TrialReport(
        name=str(trial.recipe),
        choices=trial.recipe.choices,
        state=trial.state,
        reason=trial.reason,
        seconds=round(trial.seconds, 2),
        meets_goals=bool(measurement and not measurement.failures),
        proven_better=bool(measurement and measurement.is_better),
        finalist=finalist,
        winner=winner,
        score=trial.score,
        beside_parent=measurement.relative_metrics if measurement else None,
        metrics={name: metric.value for name, metric in measurement.measured.metrics.items()} if measurement else {},
        pareto=False,  # set by add_earlier_trials
    )
