"""State in the destination that warm-starts the next run: the Keras model behind the newest version, and a recipe.

`push_model` stores both. `train` continues from the Keras model, because a pushed model may not be trainable any more.
`tune_recipe` tries the recipe first.
"""

import shutil
from pathlib import Path
from typing import Annotated

from tfopt.artifacts import KerasModel, Recipe, staging
from tfopt.artifacts.folder_lock import lock_folder
from tfopt.artifacts.storage import is_remote
from tfopt.declaration.parameters import Reads
from tfopt.errors import ComponentError

LINK = "trained"
RECIPE = "recipe"


def store_model(destination: str | Path, trained: KerasModel) -> Path:
    """Store a Keras model instead of the previous one; readers see one of them, complete, at every moment.

    Raises:
        OSError: If the folder cannot be written.
    """
    folder = Path(destination).expanduser()
    copy, link = folder / f".{LINK}-{trained.digest[:16]}", folder / LINK
    with lock_folder(folder):  # another push could remove the copy before the link points to it
        staging.remove_abandoned(folder)
        if not copy.exists():
            stage = staging.new_path(folder)
            try:
                staging.link_tree(trained.path, stage)
                stage.rename(copy)
            finally:
                shutil.rmtree(stage, ignore_errors=True)
        new_link = staging.new_path(folder)
        new_link.symlink_to(copy.name)
        new_link.replace(link)
        for old in folder.glob(f".{LINK}-*"):
            if old.name != copy.name:
                shutil.rmtree(old, ignore_errors=True)
    return link


def load_model(destination: str | Path) -> KerasModel | None:
    """Load the stored Keras model of a destination; None if nothing was pushed there with one."""
    path = (Path(destination).expanduser() / LINK).resolve()
    return KerasModel.open(path) if path.is_dir() else None


def store_recipe(destination: str | Path, recipe: Recipe, served: str | None) -> Path:
    """Store the recipe of a search instead of the previous one, and record whether the selected model is served.

    Args:
        destination: The folder of pushed versions.
        recipe: The recipe from `tune_recipe`.
        served: The digest of the model that is the newest version after this run; None if the run pushed nothing.

    Raises:
        OSError: If the folder cannot be written. The previous recipe is then unchanged.
    """
    content = recipe.read()
    folder = Path(destination).expanduser() / RECIPE
    folder.mkdir(parents=True, exist_ok=True)
    staging.remove_abandoned(folder)
    stage = Recipe(staging.new_path(folder))
    try:
        stage.write(content | {"served": served == content["decision"]["selected_digest"]})
        (stage.path / Recipe.file).replace(folder / Recipe.file)
    finally:
        shutil.rmtree(stage.path, ignore_errors=True)
    return folder


def load_recipe(destination: str | Path) -> Recipe | None:
    """Load the stored recipe of a destination; None if no search was pushed from yet."""
    folder = Path(destination).expanduser() / RECIPE
    return Recipe.open(folder) if (folder / Recipe.file).is_file() else None


def local_destination(destination: str, argument: str) -> Path:
    """Return the path of a destination on this machine.

    Args:
        destination: The destination, as passed to `push_model`.
        argument: Names the component and the parameter in the error.

    Raises:
        ComponentError: If it is an address; `push_model` writes to mounted folders only.
    """
    if is_remote(destination):
        raise ComponentError(
            argument,
            "a folder on this machine, mounted if need be",
            "mount the store or volume and pass its path, as to push_model",
        )
    return Path(destination).expanduser()


# The annotation of a pipeline parameter: an address is refused before the first step, not after the longest one.
Destination = Annotated[str, Reads(lambda folder: local_destination(folder, folder), "pushed")]
