"""What a SavedModel's folder says to whoever serves it, and what holds for any graph with the same signatures."""

from pathlib import Path

from tfopt.artifacts import Model
from tfopt.artifacts.staging import link_tree
from tfopt.runtimes import environment
from tfopt.serving import warm_up

KEPT = (environment.FILE, warm_up.FILE)  # not what XLA compiled: that is of one graph


def carry(model: Model, saved_model: Path) -> None:
    """Hand a model's variables and warm-up requests on to the SavedModel that was written in its place."""
    for file in KEPT:
        known = model.saved_model / file if model.saved_model else None
        if known and known.is_file() and not (saved_model / file).exists():
            link_tree(known, saved_model / file)
