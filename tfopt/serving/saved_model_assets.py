"""Files of a SavedModel's folder that stay valid for every graph with the same signatures."""

from pathlib import Path

from tfopt.artifacts import Model
from tfopt.runtimes import environment
from tfopt.serving import warm_up
from tfopt.storage.staging import link_tree

ASSETS = (environment.FILE, warm_up.FILE)  # not the XLA cache, which belongs to one graph


def copy_assets(model: Model, saved_model: Path) -> None:
    """Copy a model's environment variables and warm-up requests to a SavedModel made from it, unless it has its own."""
    for file in ASSETS:
        source = model.saved_model / file if model.saved_model else None
        if source and source.is_file() and not (saved_model / file).exists():
            link_tree(source, saved_model / file)
