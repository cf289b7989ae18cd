"""From a choice to a version with all that goes beside the model, and what is said of it."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from tfopt.artifacts import Decision, Examples, KerasModel, Model, Recipe
from tfopt.components.push_model.choice import Choice
from tfopt.components.push_model.versions import Versions, check_folder, check_link, understood
from tfopt.model_store import run_history as past
from tfopt.model_store import warm_start as keeping
from tfopt.runtimes import environment
from tfopt.serving.layouts import resolve_layout, write_version
from tfopt.serving.triton_config import Scheduling, written_config


def push(
    choice: Choice,
    asked: Model,
    destination: str,
    layout: str,
    keep: int | None,
    examples: Examples | None,
    requests: int,
    scheduling: Scheduling,
) -> dict[str, Any]:
    """Push what was chosen, if anything was, and return the content of ``pushed.json``.

    Raises:
        ComponentError: See `push_model`.
    """
    model = choice.model
    versions = Versions(destination, resolve_layout(model or asked, layout))
    if model is None:
        return versions.unpushed(choice.reason) | _about(asked, choice)
    beside: dict[str, Any] = {}

    def fill(stage: Path) -> None:
        beside.update(write_version(model, versions.layout, stage, examples, requests))

    def beside_it() -> AbstractContextManager[None]:
        said = {"tfopt_digest": model.digest, "tfopt_reason": choice.reason}
        return (
            written_config(model, versions.folder, scheduling, said) if versions.layout == "triton" else nullcontext()
        )

    facts = versions.push(model, keep, fill, beside_it)
    if choice.fallback:
        facts["reason"] = choice.reason if facts["reason"] == "blessed" else f"{facts['reason']}: {choice.reason}"
    return facts | _about(model, choice) | beside


def kept(decision: Decision, facts: dict[str, Any]) -> str:
    """Keep the numbers of this run beside the versions, and return where.

    Raises:
        ComponentError: When the folder cannot be written.
    """
    folder = Path(facts["destination"])
    with understood(folder):
        return str(past.write_run(folder, decision, facts))


def check_places(destination: str, *, history: bool, trained: bool, recipe: bool) -> None:
    """Refuse, before a version is shown, a destination where what is kept beside it would find its place taken.

    Raises:
        ComponentError: When somebody keeps something there.
    """
    folder = Path(destination).expanduser()
    if history:
        check_folder(folder / past.FOLDER)
    if trained:
        check_link(folder / keeping.LINK)
    if recipe:
        check_folder(folder / keeping.RECIPE)


def keep_start(trained: KerasModel, facts: dict[str, Any]) -> str:
    """Keep what the next run may start from beside the versions, and return where.

    Raises:
        ComponentError: When the folder cannot be written.
    """
    folder = Path(facts["destination"])
    with understood(folder):
        return str(keeping.store_model(folder, trained))


def keep_recipe(recipe: Recipe, facts: dict[str, Any]) -> str:
    """Keep what the next run tries first beside the versions, and return where.

    Raises:
        ComponentError: When the folder cannot be written.
    """
    folder = Path(facts["destination"])
    with understood(folder):
        return str(keeping.store_recipe(folder, recipe, facts["digest"] if facts["path"] else None))


def _about(model: Model, choice: Choice) -> dict[str, Any]:
    return {
        "model": model.name,
        "digest": model.digest,
        "environment": environment.read_variables(model),
        "fallback": choice.fallback,
        "blessing": choice.reason,
    }
