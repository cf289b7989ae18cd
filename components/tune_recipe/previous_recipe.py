"""Recipe of an earlier run: load it, and select the first recipe to try."""

import json
import logging
from collections.abc import Sequence

from tfopt.artifacts import Recipe as RecipeArtifact
from tfopt.components.tune_recipe import recipes
from tfopt.components.tune_recipe.recipes import Recipe
from tfopt.errors import ComponentError
from tfopt.model_store.warm_start import load_recipe
from tfopt.reports.recipe_report import RecipeReport

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
        _check_parent(report)
    except (ComponentError, ValueError) as error:
        reason = error.received if isinstance(error, ComponentError) else str(error)
        raise ComponentError(
            f"{artifact.uri}: {artifact.file} is damaged or of another version: {reason}",
            "a recipe that this version of tune_recipe wrote",
            "remove it, or leave previous out once, to search again",
        ) from error
    return report


def first_trial(previous: RecipeReport | None, formats: Sequence[str]) -> Recipe | None:
    """Return the winner of the earlier run; None if it was the model itself, was not served, or has another format.

    Raises:
        ComponentError: If it is not a recipe of this version, and was passed by the user, not found in a destination.
    """
    if previous is None:
        return None
    choices = previous.winner.choices if previous.winner else {}
    if choices.get("format") not in formats:
        log.info("the earlier run has no recipe of the requested formats to try first")
        return None
    if previous.served is False:
        log.info("the model selected by the earlier run was not served, so the search starts without its recipe")
        return None
    recipe = Recipe(choices)
    if recipe in recipes.all_recipes(formats):
        return recipe
    if previous.served:
        log.warning("the stored recipe, %s, does not exist in this version; the search starts without it", recipe)
        return None
    raise ComponentError(
        f"previous: a winner of {json.dumps(choices)}",
        "choices of this version",
        "leave previous out once; the next recipe has choices of this version",
    )


def _check_parent(report: RecipeReport) -> None:
    """Raise ValueError unless the decision has the baseline, with its size and another metric."""
    baselines = [model for model in report.decision.models if model.parent]
    if len(baselines) != 1 or "size" not in baselines[0].metrics:
        raise ValueError("the decision has no measured baseline")
