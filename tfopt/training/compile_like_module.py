"""The loss, optimizer and metrics that the user's module compiles, given to a model that is there already."""

from collections.abc import Mapping
from typing import Any

from tfopt.artifacts import Examples
from tfopt.data.feature_schema import stored_features
from tfopt.errors import ComponentError, first_line
from tfopt.keras_models import io as keras_models
from tfopt.runtimes.saved_model import spec_of
from tfopt.training.dataset import Source
from tfopt.training.split_datasets import read_sources
from tfopt.training.targets import check_label
from tfopt.training.user_module import UserModule

SPLITS = ("train", "eval")
HELD = "held"  # the examples of train that are not learnt, where some are held out


def compile_like(model: Any, user: UserModule, learning_rate: float | None) -> None:
    """Compile a model as the module compiles its own; its weights stay as they are.

    Args:
        model: Loaded, with its preprocessing inside.
        user: Its ``build_model()`` is called, and only what it gave to ``compile`` is used.
        learning_rate: In place of the optimizer's own, which a schedule may have brought to nothing.

    Raises:
        ComponentError: When the module's model is of the other Keras, was never compiled, or does not fit this one.
    """
    built = user.call("build_model")
    asked = getattr(built, "_compile_config", None)
    if keras_models.is_keras_2(built) != keras_models.is_keras_2(model):
        versions = ["Keras 2" if keras_models.is_keras_2(one) else "Keras 3" for one in (built, model)]
        raise ComponentError(
            f"module {user.path}: a {versions[0]} model",
            f"{versions[1]}, as the model to fine-tune",
            "give the module that it was trained with",
        )
    if asked is None:
        raise ComponentError(
            f"module {user.path}: build_model() returned a model that is not compiled",
            "a compiled Keras model, whose loss and optimizer the fine-tuning takes",
            'call model.compile("adam", loss="…", metrics=[…]) before you return it',
        )
    config = {key: value for key, value in asked.config.items() if key != "steps_per_execution"}
    optimizer = keras_models.library(model).optimizers.get(config.pop("optimizer"))
    if learning_rate is not None:
        optimizer = type(optimizer).from_config({**optimizer.get_config(), "learning_rate": learning_rate})
    try:
        model.compile(optimizer, **config)
    except Exception as error:
        raise ComponentError(
            f"module {user.path}: its loss and metrics do not fit {model.name}: {first_line(error)}",
            "the module that the model was trained with",
            "give that one, or name the model's outputs as the module does",
        ) from error


def sources_of(model: Any, examples: Examples, label: str, *, held_out: bool = False) -> dict[str, Source]:
    """Return how a compiled model reads the splits ``train`` and ``eval``.

    Args:
        model: Compiled.
        examples: What is learnt from.
        label: The feature to learn.
        held_out: Whether every tenth example of ``train`` is not learnt, but kept under `HELD`.

    Raises:
        ComponentError: When a split is missing or damaged, or the model and the examples do not fit.
    """
    files = {split: examples.split(split) for split in SPLITS}
    stored = stored_features(files["train"])
    check_label(label, stored, str(examples.path))
    inputs = {name: spec_of(spec) for name, spec in keras_models.serving_function(model)[1].items()}
    sources = read_sources(files, model, None, inputs, stored, label)
    if held_out:
        sources["train"], sources[HELD] = sources["train"].set_apart()
    return sources


def scores(model: Any, sources: Mapping[str, Source]) -> dict[str, float]:
    """Return the loss and metrics of a compiled model on the split ``eval``, named as `learn` names them."""
    found = model.evaluate(sources["eval"].in_order(), return_dict=True, verbose=0)
    return {f"val_{name}": float(value) for name, value in found.items()}
