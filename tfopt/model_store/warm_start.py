"""State in the destination that warm-starts the next run: the Keras model behind the newest version, and a recipe.

`push_model` stores both. `train` continues from the Keras model, because a pushed model may not be trainable any more.
`tune_recipe` tries the recipe first. In an object store, which has no links, the file ``trained.json`` names the model.
"""

import contextlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

from tfopt.artifacts import KerasModel, Recipe
from tfopt.declaration.parameters import Location, Reads
from tfopt.errors import ComponentError
from tfopt.reports import report_schema
from tfopt.storage import remote_files, staging
from tfopt.storage.folder_lock import lock_folder

LINK = "trained"
POINTER = "trained.json"
RECIPE = "recipe"


def store_model(destination: str | Path, trained: KerasModel, *, is_locked: bool = False) -> str:
    """Store a Keras model instead of the previous one, and return the path or address that leads to it.

    Readers see one of them, complete, at every moment. Pass ``is_locked`` if this process holds the lock of the folder.

    Raises:
        OSError: If the folder cannot be written.
        ComponentError: If the object store cannot be written.
    """
    if remote_files.is_remote(str(destination)):
        return _upload_model(str(destination), trained)
    folder = remote_files.local_path(destination)
    copy, link = folder / f".{_copy_name(trained)}", folder / LINK
    # Without a lock another push could remove the copy before the link points to it.
    with contextlib.nullcontext() if is_locked else lock_folder(folder):
        if not copy.exists() or KerasModel(copy).digest != trained.digest:
            shutil.rmtree(copy, ignore_errors=True)  # of somebody who put it there
            with staging.staged_folder(folder) as stage:
                # Not with hard links: what is written into the folder of the run later would change what was pushed.
                staging.copy_tree(trained.path, stage if trained.path.is_dir() else stage / trained.path.name)
                staging.sync_tree(stage)
                stage.rename(copy)
        staging.replace_link(link, copy.name)  # without links the next training starts from initial weights
        for old in folder.glob(f".{LINK}-*"):
            if old.name != copy.name:
                shutil.rmtree(old, ignore_errors=True)
    return str(link)


def load_model(destination: str | Path) -> KerasModel | None:
    """Load the stored Keras model of a destination; None if nothing was pushed there with one.

    Raises:
        ComponentError: If somebody has replaced the link to it by one that leads out of the destination, or the model.
    """
    if remote_files.is_remote(str(destination)):
        name, _ = _read_pointer(str(destination))
        return KerasModel.open(remote_files.local_copy(remote_files.join(str(destination), name))) if name else None
    link = remote_files.local_path(destination) / LINK
    path = link.resolve()
    if not path.is_dir():
        return None
    if path.parent != link.parent.resolve():
        fix = "remove the link: training then starts from initial weights, and the next push writes it again"
        received = f"{link} leads to {path}"
        raise ComponentError(received, "the link of push_model, which leads to a folder next to it", fix)
    model = KerasModel.open(path)
    if path.name != f".{_copy_name(model)}":
        fix = f"remove {path}, and push again; until then training starts from initial weights"
        raise ComponentError(f"{path}: a model with the digest {model.digest[:16]}", "the model that was pushed", fix)
    return model


def forget_model(destination: str, digest: str) -> bool:
    """Remove the reference to a stored Keras model; return False if another one is stored.

    The next training then starts from initial weights. The files remain until another model is stored.
    """
    name = f"{LINK}-{digest[:16]}"
    if remote_files.is_remote(destination):
        is_stored = _read_pointer(destination)[0] == name
        if is_stored:
            remote_files.remove(remote_files.join(destination, POINTER))
        return is_stored
    link = remote_files.local_path(destination) / LINK
    is_stored = link.is_symlink() and link.readlink().name == f".{name}"
    if is_stored:
        link.unlink()
    return is_stored


def store_recipe(destination: str | Path, recipe: Recipe, served: str | None) -> str:
    """Store the recipe of a search instead of the previous one, and return its path or address.

    It records whether the selected model is served: ``served`` is the digest of the newest version after this run, None
    if the run pushed nothing. See `store_model` for errors; the previous recipe is then unchanged.
    """
    content = recipe.read()
    content |= {"served": served == content["decision"]["selected_digest"]}
    address = remote_files.join(str(destination), RECIPE)
    with tempfile.TemporaryDirectory(prefix="tfopt-") as local:
        Recipe(local).write(content)
        remote_files.write_file(f"{address}/{Recipe.file}", Path(local, Recipe.file).read_bytes())
    return address


def load_recipe(destination: str | Path) -> Recipe | None:
    """Load the stored recipe of a destination; None if no search was pushed from yet."""
    address = remote_files.join(str(destination), RECIPE)
    if remote_files.read_file(f"{address}/{Recipe.file}") is None:
        return None
    return Recipe.open(remote_files.local_path(remote_files.local_copy(address)))


def _copy_name(trained: KerasModel) -> str:
    return f"{LINK}-{trained.digest[:16]}"


def _read_pointer(destination: str) -> tuple[str | None, str | None]:
    """Return the names of the model that is stored in an object store, and of the one before it."""
    pointer = remote_files.join(destination, POINTER)
    content = remote_files.read_file(pointer)
    names = report_schema.decode(content, pointer) if content else {}
    return names.get("model"), names.get("previous")


def _upload_model(destination: str, trained: KerasModel) -> str:
    """Upload a model, then point to it; the previous model stays for readers that know the previous pointer."""
    pointer, name = remote_files.join(destination, POINTER), _copy_name(trained)
    previous, oldest = _read_pointer(destination)
    if previous == name:
        return pointer
    remote_files.upload(trained.path, remote_files.join(destination, name))
    text = json.dumps({"model": name, "previous": previous}) + "\n"
    remote_files.write_file(pointer, text.encode())
    if oldest and oldest not in (name, previous):
        remote_files.remove(remote_files.join(destination, oldest))
    return pointer


# The annotation of a pipeline parameter: an unknown scheme is refused before the first step, not after the longest one.
Destination = Annotated[str, Reads(remote_files.check_scheme, "pushed"), Location()]
