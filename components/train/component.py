"""The door of `train`: what it promises, and what it refuses in the first second."""

from typing import Annotated

from tfopt.artifacts import Examples, KerasModel, PythonModule
from tfopt.component import Between, Input, Output, component


@component(image="tf", cpu=4, memory="8Gi")
def train(
    examples: Input[Examples],
    module: Input[PythonModule],
    trained: Output[KerasModel],
    *,
    label: str = "label",
    epochs: Annotated[int, Between(1, None)] = 20,
    batch_size: Annotated[int, Between(1, None)] = 64,
    patience: Annotated[int, Between(0, None)] = 5,
    seed: int = 0,
) -> None:
    """Train the Keras model of the user's module, and save it with its preprocessing inside.

    The module is one Python file with ``build_model()``, which returns a compiled Keras 3 or ``tf_keras`` model; its
    inputs are named as features of the examples. It may have ``preprocess(features)`` too: given every feature but the
    label as a symbolic Keras tensor, by name, it returns the model's inputs, by name. What it does becomes part of the
    saved model, so that training and serving cannot disagree; the model then takes the raw features.

    The split ``train`` is learnt and ``eval`` validates. The weights of the epoch with the lowest validation loss are
    kept. Beside the model lie ``history.json`` and ``logs/`` for TensorBoard. The same seed, data, versions and machine
    give the same weights.

    Args:
        examples: With the splits ``train`` and ``eval``.
        module: The Python file with ``build_model`` and, if wanted, ``preprocess``.
        trained: The model: its Keras form and its SavedModel, compared with each other on the eval split.
        label: The feature to learn. Every output of the model that has a loss learns it.
        epochs: Train at most so many times over the split.
        batch_size: How many examples a step learns from.
        patience: Stop after this many epochs without a lower validation loss.
        seed: Draws the first weights, the order of the examples, and whatever the module draws.

    Raises:
        ComponentError: When the module raises (its traceback is shown), when its model and the examples do not fit, or
            when the loss stops being a finite number.

    Reference:
        ``docs/adr/0004-preprocessing-is-part-of-the-model.md``.
    """
    from tfopt.training import user_module

    for split in ("train", "eval"):
        examples.split(split)
    user_module.check_syntax(module.path)
    from tfopt.components.train.training import train_module

    train_module(
        examples, module.path, trained, label, epochs=epochs, batch_size=batch_size, patience=patience, seed=seed
    )
