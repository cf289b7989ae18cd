"""Check that a SavedModel serves the outputs of its Keras model, so that a new export may replace it."""

import re
from pathlib import Path

from tfopt import keras_models
from tfopt.artifacts import SavedModel
from tfopt.artifacts.tensor_spec import TensorSpec, describe_specs, same_shape
from tfopt.errors import ComponentError
from tfopt.runtimes import Runtime
from tfopt.runtimes.saved_model import to_tensor_spec

SIGNATURES = {"serving_default", "serve", "__saved_model_init_op"}  # Keras also exports the first as "serve"


def output_names(model: SavedModel, parent: Runtime, keras_model: keras_models.KerasObject) -> list[str]:
    """Return the names under which the Keras model's outputs are served, in their order.

    Raises:
        ComponentError: If the SavedModel has signatures, inputs or outputs that the Keras model does not have.
    """
    own = keras_models.served_names(keras_model)
    if model.saved_model is None:
        return own
    _check_signatures(model.saved_model)
    _check_inputs(parent, keras_model)
    served = list(parent.outputs)
    if len(served) == len(own) == 1 or set(served) == set(own):
        return served if len(own) == 1 else own
    numbers = {name: int(name[7:]) for name in served if re.fullmatch(r"output_\d+", name)}
    if sorted(numbers.values()) == list(range(len(own))) and len(numbers) == len(served):
        return sorted(served, key=numbers.__getitem__)  # Keras 3 exports numbered outputs
    raise ComponentError(
        f"serving_default returns {', '.join(served)}",
        f"the outputs of the Keras form: {', '.join(own)}",
        "export the Keras model with its own output names, or give its .keras file alone",
    )


def _check_signatures(folder: Path) -> None:
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as Proto

    graphs = Proto.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs
    others = sorted({name for graph in graphs for name in graph.signature_def} - SIGNATURES)
    if others:
        raise ComponentError(
            f"{folder}: signatures {', '.join(others)} besides serving_default",
            "serving_default only: the Keras form does not contain the others, so they would be lost",
            "export the model without them, or give its .keras file alone",
        )


def _check_inputs(parent: Runtime, keras_model: keras_models.KerasObject) -> None:
    specs = {name: to_tensor_spec(spec) for name, spec in keras_models.serving_function(keras_model)[1].items()}
    same = set(specs) == set(parent.inputs)
    if not same or not all(_equal(spec, parent.inputs[name]) for name, spec in specs.items()):
        raise ComponentError(
            f"serving_default takes {describe_specs(parent.inputs)}",
            f"the inputs of the Keras form: {describe_specs(specs)}",
            "export the Keras model with its own inputs, or give its .keras file alone",
        )


def _equal(own: TensorSpec, served: TensorSpec) -> bool:
    return own.dtype == served.dtype and len(own.shape) == len(served.shape) and same_shape(own, served)
