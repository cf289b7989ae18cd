"""Load a Keras model whose weights a component changes, and save and compare the result."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, KerasModel
from tfopt.artifacts.model_card import Verification
from tfopt.errors import ComponentError
from tfopt.keras_models.quantization_aware import check_not_quantized
from tfopt.measurement.parity import measure_parity
from tfopt.runtimes.keras_parity import save_as_served
from tfopt.training.determinism import reproducible, set_seeds
from tfopt.training.user_module import UserModule


@contextlib.contextmanager
def loaded_reproducibly(model: KerasModel, module: Path | None, seed: int) -> Iterator[tuple[Any, UserModule | None]]:
    """Load a model and the user's module; while the block runs, training is reproducible.

    Raises:
        ComponentError: If the model was quantized, has weights that are not finite, or cannot be loaded.
    """
    check_not_quantized(model)
    with reproducible(seed):
        user = UserModule(module) if module else None  # first: it registers the user's own layers
        set_seeds(seed)
        keras_model = keras_models.load(model)
        keras_models.check_weights(keras_model)
        yield keras_model, user


def save_and_compare(
    changed: Any, target: Path, model: KerasModel, keras_model: Any, examples: Examples | None, *, fix: str
) -> Verification:
    """Save a changed Keras model as its baseline is served, and return the parity facts for its model card.

    Without examples, they are compared on random inputs. ``keras_model`` is the baseline's Keras form, and ``fix`` what
    to do if the outputs no longer depend on the inputs.

    Raises:
        ComponentError: If the baseline serves what the Keras model does not have, or the outputs of the changed model
            no longer depend on its inputs.
    """
    with runtimes.load(model) as baseline:
        save_as_served(changed, target, model, baseline, keras_model)
        return measure_parity(baseline, KerasModel(target), examples, fix=fix)


def wrap_layers(model: Any, wrap: Callable[[Any], Any], *, verb: str, untrained: str) -> Any:
    """Return a Keras 2 model with wrappers of TensorFlow's toolkit around its layers. Both models share their weights.

    ``wrap`` returns the wrapper of a layer, nested layers included, or the layer itself. The error message says what
    the toolkit does (``verb``), and what the component does without it (``untrained``).

    Raises:
        ComponentError: If it contains a subclassed model, whose layers cannot be replaced.
    """
    from tf_keras import Model, Sequential, models  # Keras 2 only

    def replace(layer: Any) -> Any:
        if isinstance(layer, Model):
            if not layer._is_graph_network and not isinstance(layer, Sequential):
                expected = f"Sequential and Functional models, which TensorFlow's toolkit can {verb}"
                fix = f"make it with the functional API or in Keras 3, or leave the module out to {untrained}"
                raise ComponentError(f"model {layer.name}: a subclassed Keras 2 model", expected, fix)
            return models.clone_model(layer, clone_function=replace)
        wrapper = wrap(layer)
        wrapper._name = layer.name  # losses and metrics may be named by outputs
        return wrapper

    return replace(model)
