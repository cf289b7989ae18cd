"""The Keras model behind the newest version, kept whole in ``trained`` beside the versions: the next training's start.

`push_model` keeps it and `train` takes it. What was pushed may be in a format that nothing can be learnt from.
"""

import shutil
import uuid
from pathlib import Path

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
    if not place.exists():
        stage = folder / f".{uuid.uuid4().hex}"
        try:
            link_tree(trained.path, stage)
            stage.rename(place)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    new = folder / f".{uuid.uuid4().hex}"
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
