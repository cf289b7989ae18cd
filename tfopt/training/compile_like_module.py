"""Compile a loaded model with the loss, optimizer and metrics of the user's module, and evaluate it."""

from collections.abc import Mapping
from typing import Any

from tfopt import keras_models
from tfopt.artifacts import Examples
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.training.datasets.dataset import Source
from tfopt.training.model_assembly import Assembly, check_compiled
from tfopt.training.training_setup import TrainingSetup, find_files
from tfopt.training.user_module import UserModule

SPLITS = ("train", "eval")
HELD_OUT = "held"  # the examples of `train` that are held out


def compile_like(model: Any, user: UserModule, learning_rate: float | None) -> None:
    """Compile a loaded model with the arguments of ``compile`` in the module's ``build_model()``; keep its weights.

    A learning rate replaces the optimizer's own, which a schedule may have reduced to almost zero.

    Raises:
        ComponentError: If the module's model uses the other Keras, is not compiled, or does not fit this model.
    """
    built = user.call("build_model")
    fix = "pass the module that the model was trained with"
    check_same_keras(f"module {user.path}", built, model, "as the model to fine-tune", fix)
    check_compiled(built, user)
    config = {key: value for key, value in built._compile_config.config.items() if key != "steps_per_execution"}
    optimizer = keras_models.library(model).optimizers.get(config.pop("optimizer"))
    if learning_rate is not None:
        optimizer = type(optimizer).from_config({**optimizer.get_config(), "learning_rate": learning_rate})
    try:
        model.compile(optimizer, **config)
    except Exception as error:
        raise ComponentError(
            f"module {user.path}: its loss and metrics do not fit {model.name}: {first_line(error)}",
            "the module that the model was trained with",
            "pass that one, or name the model's outputs as the module does",
        ) from error


def check_same_keras(name: str, model: Any, other: Any, expected: str, fix: str) -> None:
    """Raise ComponentError if one of two models is a Keras 2 model and the other a Keras 3 model."""
    versions = ["Keras 2" if keras_models.is_keras_2(each) else "Keras 3" for each in (model, other)]
    if versions[0] != versions[1]:
        raise ComponentError(f"{name}: a {versions[0]} model", f"{versions[1]}, {expected}", fix)


def read_splits(model: Any, examples: Examples, label: str, *, held_out: bool = False) -> dict[str, Source]:
    """Return the sources that a compiled model reads the splits ``train`` and ``eval`` from.

    With ``held_out``, every tenth example of ``train`` is in the source `HELD_OUT` instead.

    Raises:
        ComponentError: If a split is missing or damaged, or the model and the examples do not fit.
    """
    files, stored = find_files(examples, SPLITS, label)
    sources = TrainingSetup(files, stored, label, Assembly(model, None, model)).read_sources()
    if held_out:
        sources["train"], sources[HELD_OUT] = sources["train"].hold_out()
    return sources


def evaluate_model(model: Any, sources: Mapping[str, Source]) -> dict[str, float]:
    """Return the loss and metrics of a compiled model on ``eval``, named ``val_…`` as in the history of `fit_model`."""
    return {f"val_{name}": value for name, value in evaluate_source(model, sources["eval"]).items()}


def evaluate_source(model: Any, source: Source) -> dict[str, float]:
    """Return the loss and metrics of a compiled model on a source."""
    metrics = model.evaluate(source.in_order(), return_dict=True, verbose=0)
    return {name: float(value) for name, value in metrics.items()}
