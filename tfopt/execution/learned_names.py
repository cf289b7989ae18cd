"""Comparison of the names that models learned with those of the examples, before a component uses both."""

from collections.abc import Mapping
from typing import Any

from tfopt.artifacts import Examples, Model
from tfopt.data.learned_names import check_names
from tfopt.storage.remote_files import is_remote

LABEL = "label"  # the parameter of components that use labels


def check_learned_names(inputs: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
    """Raise ComponentError if examples number classes or packed columns otherwise than one of the models learned.

    Models of a list are not compared: components have a row for each of them, with its error.
    """
    examples = next((value for value in inputs.values() if isinstance(value, Examples)), None)
    models = {name: value for name, value in inputs.items() if isinstance(value, Model) and not is_remote(value.uri)}
    if examples is None or is_remote(examples.uri) or not any(model.card.learned for model in models.values()):
        return
    from tfopt.data.feature_schema import read_manifest  # NumPy, which compiling a pipeline must not import

    manifest = read_manifest(examples.path)
    for name, model in models.items():
        check_names(model.card, manifest, parameters.get(LABEL), f"{name} {model.uri}")
