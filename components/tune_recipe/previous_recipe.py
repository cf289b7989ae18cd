"""The last run's recipe: where it is kept, and what of it is tried first."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from tfopt.artifacts import Recipe as RecipeArtifact
from tfopt.components.tune_recipe import recipes
from tfopt.components.tune_recipe.recipes import Recipe
from tfopt.components.tune_recipe.rehearsal import rehearse
from tfopt.errors import ComponentError, first_line
from tfopt.model_store import warm_start as kept

log = logging.getLogger("tfopt")


def last_recipe(destination: str | None) -> RecipeArtifact | None:
    """What the last run found that pushed to a folder, if there was one.

    Raises:
        ComponentError: When it is no folder of this machine, to which nothing was ever pushed.
    """
    if destination is None:
        return None
    found = kept.load_recipe(kept.local_destination(destination, f"tune_recipe: last={destination}"))
    log.info("the last recipe in %s: %s", destination, found.uri if found else "none yet, so one is searched")
    return found


def read(previous: RecipeArtifact | None) -> dict[str, Any]:
    """The content of an earlier run's recipe; empty when there is none.

    Raises:
        ComponentError: When it is damaged, or of a version that wrote something else.
    """
    if previous is None:
        return {}
    try:
        content = previous.read()
        _choices(content)
        rehearse(content)
        return content
    except Exception as error:
        raise ComponentError(
            f"{previous.uri}: {previous.file} is damaged or of another version: "
            f"{type(error).__name__}: {first_line(error)}",
            "what tune_recipe of this version writes",
            "remove it, or leave previous out once; then a recipe is searched anew",
        ) from error


def tried_first(before: Mapping[str, Any], formats: Sequence[str]) -> Recipe | None:
    """Last time's winner; None when that was the model itself, was not served, or has a format that is not wanted now.

    Raises:
        ComponentError: When it is no recipe of this version and was passed by hand, not found beside the versions.
    """
    choices = _choices(before)
    if choices.get("format") not in formats:
        if before:
            log.info("nothing of the earlier run to try first")
        return None
    if not before.get("served", True):
        log.info("the choice of the earlier run was not served in the end, so a recipe is searched anew")
        return None
    found = Recipe(choices)
    if found in recipes.every(formats):
        return found
    if "served" in before:
        log.warning("the last recipe, %s, is none of this version, so one is searched anew", choices)
        return None
    raise ComponentError(
        f"previous: a winner of {choices}",
        "choices of this version",
        "leave previous out once; the recipe that comes of it is of this version",
    )


def _choices(before: Mapping[str, Any]) -> dict[str, str]:
    """Of last time's winner; empty when that was the model itself, or there was no last time."""
    winner = before.get("winner")
    return dict(winner["choices"]) if winner else {}
