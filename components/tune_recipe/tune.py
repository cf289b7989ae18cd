"""From a model to a recipe: last time's if it still serves, else a search; then the last round and its choice."""

import datetime
import shlex
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfopt.artifacts import Examples, Model
from tfopt.artifacts.staging import link_tree
from tfopt.components.tune_recipe.recipes import Recipe
from tfopt.components.tune_recipe.search import Search, Trial
from tfopt.components.tune_recipe.trial_measurement import Judge, Question
from tfopt.components.tune_recipe.trial_models import Kitchen
from tfopt.errors import ComponentError


@dataclass(frozen=True)
class Budget:
    """How much is tried: the component's parameters."""

    formats: tuple[str, ...]
    trials: int
    minutes: float
    records: int
    finalists: int


def tune(
    model: Model,
    examples: Examples,
    last: Recipe | None,
    question: Question,
    budget: Budget,
    tuned: Path,
    folder: Path,
) -> dict[str, Any]:
    """Search below ``folder``, put the chosen model into ``tuned``, and return the content of ``recipe.json``.

    What earlier runs measured is not in it yet; ``last`` is last time's winner, which is tried first.

    Raises:
        ComponentError: See `tune_recipe`.
    """
    work = folder / ".work"  # beside the outputs, so that the winner is linked, and gone with them when interrupted
    work.mkdir()
    kitchen = Kitchen(model, examples, question.output, work, time.monotonic() + 60 * budget.minutes)
    judge = Judge(model, examples, question)
    search = Search(kitchen, judge, budget.formats, budget.trials, budget.minutes, budget.records, question.seed)
    reused, stopped = search.reuse_or_run(last)
    finalists = _finalists(search.trials, budget.finalists)
    place = _last_round(judge, search.trials, finalists, work / "last round")
    decision = judge.decide([trial.model for trial in finalists if trial.model], place)
    winner = next((t for t in finalists if t.model and t.model.digest == decision["selected_digest"]), None)
    link_tree(place / "selected", tuned)
    shutil.copyfile(place / "decision" / "report.html", folder / "decision.html")
    shutil.rmtree(work)
    return {
        "reason": _reason(winner, decision, reused=reused, tried=len(search.trials)),
        "winner": _winner(winner) if winner else None,
        "blessed": decision["blessed"],
        "reused": reused,
        "stopped": stopped,
        "goals": [goal.text for goal in question.goals],
        "objective": question.objective,
        "formats": list(budget.formats),
        "seed": question.seed,
        "examples": examples.digest,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "minutes": (time.monotonic() - search.began) / 60,
        "trials": _rows(search.trials, finalists, winner),
        "decision": decision,
    }


def _finalists(trials: Sequence[Trial], most: int) -> list[Trial]:
    """The best that win; the best measured one when none does, for the last round to say so.

    Raises:
        ComponentError: When nothing was measured.
    """
    measured = [trial for trial in trials if trial.judged and not trial.judged.measured.error]
    if not measured:
        said = "; ".join(f"{trial.recipe}: {trial.reason}" for trial in trials[:5])
        raise ComponentError(
            f"none of {len(trials)} recipes could be measured: {said}",
            "a recipe that can",
            "loosen the goals on size, allow more formats, or see what the first of them says",
        )
    ranked = sorted(measured, key=lambda trial: (not trial.wins, trial.score))
    best = [trial for trial in ranked if trial.wins] or ranked[:1]
    unlike = {trial.model.digest: trial for trial in reversed(best) if trial.model}  # two recipes, one file
    return [trial for trial in best if trial in unlike.values()][:most]


def _last_round(judge: Judge, trials: Sequence[Trial], finalists: Sequence[Trial], place: Path) -> Path:
    """Measure the finalists again, beside each other; where only one was ever measured, luck chose nothing."""
    (first, *_), measured = finalists, [trial for trial in trials if trial.judged]
    if measured == [first] and first.reports:
        return first.reports
    judge.judge([trial.model for trial in finalists if trial.model], place)
    return place


def _reason(winner: Trial | None, decision: dict[str, Any], *, reused: bool, tried: int) -> str:
    best = f"the best of {tried} recipes" if tried > 1 else "the only recipe that was tried"
    how = "last time's recipe again" if reused else best
    said = decision["reason"].removeprefix(f"{decision['selected']}: ")  # the recipe's name says more
    if winner is None:
        return f"the model itself stays: {said}"
    return f"{winner.recipe} ({how}): {said}"


def _winner(trial: Trial) -> dict[str, Any]:
    return {"name": str(trial.recipe), "choices": trial.recipe.choices, **_steps(trial.recipe)}


def _steps(recipe: Recipe) -> dict[str, Any]:
    steps = recipe.steps
    places = ["model/", *(f"{number} {step.component}/".replace(" ", "-") for number, step in enumerate(steps, 1))]
    commands = []
    for step, given, made in zip(steps, places, places[1:], strict=False):
        words = ["tfopt", step.component, "--model", given, "--examples", "examples/", f"--{step.output}", made]
        for name, value in step.parameters.items():
            dashed = name.replace("_", "-")
            words += [f"--{'' if value else 'no-'}{dashed}"] if isinstance(value, bool) else [f"--{dashed}", str(value)]
        commands.append(shlex.join(words))
    return {
        "steps": [{"component": step.component, "parameters": step.parameters} for step in steps],
        "commands": commands,
    }


def _rows(trials: Sequence[Trial], finalists: Sequence[Trial], winner: Trial | None) -> list[dict[str, Any]]:
    return [
        {
            "name": str(trial.recipe),
            "choices": trial.recipe.choices,
            "state": trial.state,
            "reason": trial.reason,
            "seconds": round(trial.seconds, 2),
            "meets_goals": bool(trial.judged and not trial.judged.failures),
            "proven_better": bool(trial.judged and trial.judged.proven),
            "finalist": trial in finalists,
            "winner": trial is winner,
            "score": trial.score,
            "beside_parent": trial.judged.beside_parent if trial.judged else None,
            "metrics": {name: found.value for name, found in trial.judged.measured.metrics.items()}
            if trial.judged
            else {},
        }
        for trial in trials
    ]
