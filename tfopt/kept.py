"""The Keras model behind the newest version, kept whole in ``trained`` beside the versions: the next training's start.

`push_model` keeps it and `train` takes it. What was pushed may be in a format that nothing can be learnt from.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tfopt import partial
from tfopt.artifacts import KerasModel
from tfopt.execution import link_tree

LINK = "trained"


def keep(destination: str | Path, trained: KerasModel) -> Path:
    """Keep a model in the place of the one before; at every moment there is a whole one.

    Raises:
        OSError: When the folder cannot be written.
    """
    folder = Path(destination).expanduser()
    place, link = folder / f".{LINK}-{trained.digest[:16]}", folder / LINK
    with _alone(folder):
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


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait for other pushes on this machine: one must not remove what the next is about to lead to."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
