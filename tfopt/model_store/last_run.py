"""What the next run begins with, kept beside the versions: the trained model behind the newest one, and a recipe.

`push_model` keeps them. `train` takes ``trained``, since from what was pushed nothing may be learnt any more;
`tune_recipe` takes ``recipe``, which it searched last time.
"""

import shutil
from pathlib import Path
from typing import Annotated

from tfopt.artifacts import KerasModel, Recipe
from tfopt.artifacts import staging as partial
from tfopt.artifacts.folder_lock import alone
from tfopt.artifacts.staging import link_tree
from tfopt.artifacts.storage import is_remote
from tfopt.declaration.parameters import Reads
from tfopt.errors import ComponentError

LINK = "trained"
RECIPE = "recipe"


def keep(destination: str | Path, trained: KerasModel) -> Path:
    """Keep a model in the place of the one before; at every moment there is a whole one.

    Raises:
        OSError: When the folder cannot be written.
    """
    folder = Path(destination).expanduser()
    place, link = folder / f".{LINK}-{trained.digest[:16]}", folder / LINK
    with alone(folder):  # one push must not remove what the next is about to lead to
        partial.clear(folder)
        if not place.exists():
            stage = partial.name(folder)
            try:
                link_tree(trained.path, stage)
                stage.rename(place)
            finally:
                shutil.rmtree(stage, ignore_errors=True)
        new = partial.name(folder)
        new.symlink_to(place.name)
        new.replace(link)
        for old in folder.glob(f".{LINK}-*"):
            if old.name != place.name:
                shutil.rmtree(old, ignore_errors=True)
    return link


def kept(destination: str | Path) -> KerasModel | None:
    """The model that is kept in a folder of versions; None where nothing was pushed yet."""
    place = (Path(destination).expanduser() / LINK).resolve()
    return KerasModel.open(place) if place.is_dir() else None


def keep_recipe(destination: str | Path, recipe: Recipe, served: str | None) -> Path:
    """Keep what a search found in the place of what was kept before, and whether its choice is what is served.

    Args:
        destination: The folder of the versions.
        recipe: What `tune_recipe` found.
        served: The digest of the model that is the newest version after this run; None when it pushed nothing.

    Raises:
        OSError: When the folder cannot be written. What was kept before is then still there.
    """
    content = recipe.read()
    place = Path(destination).expanduser() / RECIPE
    place.mkdir(parents=True, exist_ok=True)
    partial.clear(place)
    stage = Recipe(partial.name(place))
    try:
        stage.write(content | {"served": served == content["decision"]["selected_digest"]})
        (stage.path / Recipe.file).replace(place / Recipe.file)
    finally:
        shutil.rmtree(stage.path, ignore_errors=True)
    return place


def kept_recipe(destination: str | Path) -> Recipe | None:
    """The recipe that is kept in a folder of versions; None where no search was pushed from yet."""
    place = Path(destination).expanduser() / RECIPE
    return Recipe.open(place) if (place / Recipe.file).is_file() else None


def mounted(destination: str, asked: str) -> Path:
    """The folder of the versions, for those who look there for what is kept.

    Args:
        destination: As `push_model` is given it.
        asked: Which parameter of which component it is, for the error.

    Raises:
        ComponentError: When it is an address, to which nothing is ever pushed.
    """
    if is_remote(destination):
        raise ComponentError(
            asked,
            "a folder on this machine, mounted if need be",
            "mount the store or volume and pass its path, as to push_model",
        )
    return Path(destination).expanduser()


# How a pipeline declares the folder, so that an address is refused before the first step and not after the longest.
Destination = Annotated[str, Reads(lambda folder: mounted(folder, folder), "pushed")]
