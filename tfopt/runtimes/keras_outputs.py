"""Whether a SavedModel serves what its Keras form computes, so that one made anew from the latter may replace it."""

import re
from pathlib import Path

from tfopt.artifacts import SavedModel
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError
from tfopt.keras_models import io as keras_models
from tfopt.runtimes import Runtime
from tfopt.runtimes.saved_model import spec_of

KNOWN = {"serving_default", "serve", "__saved_model_init_op"}  # Keras exports the first under the second name as well


def output_names(model: SavedModel, parent: Runtime, keras_model: keras_models.KerasObject) -> list[str]:
    """Return what is served as the Keras model's outputs, in their order.

    Raises:
        ComponentError: When the SavedModel has other signatures, inputs or outputs than the Keras form accounts for.
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
        return sorted(served, key=numbers.__getitem__)  # Keras 3 exports outputs by number
    raise ComponentError(
        f"serving_default returns {', '.join(served)}",
        f"the outputs of the Keras form: {', '.join(own)}",
        "export the Keras model with its own output names, or give its .keras file alone",
    )


def _check_signatures(folder: Path) -> None:
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as Proto

    graphs = Proto.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs
    others = sorted({name for graph in graphs for name in graph.signature_def} - KNOWN)
    if others:
        raise ComponentError(
            f"{folder}: signatures {', '.join(others)} beside serving_default",
            "serving_default alone: the Keras form says nothing of the others, and they would be lost",
            "export the model without them, or give its .keras file alone",
        )


def _check_inputs(parent: Runtime, keras_model: keras_models.KerasObject) -> None:
    specs = {name: spec_of(spec) for name, spec in keras_models.serving_function(keras_model)[1].items()}
    same = set(specs) == set(parent.inputs)
    if not same or not all(_agree(spec, parent.inputs[name]) for name, spec in specs.items()):
        raise ComponentError(
            f"serving_default takes {_words(parent.inputs)}",
            f"the inputs of the Keras form: {_words(specs)}",
            "export the Keras model with its own inputs, or give its .keras file alone",
        )


def _agree(own: TensorSpec, served: TensorSpec) -> bool:
    pairs = zip(own.shape[1:], served.shape[1:], strict=False)
    sizes = len(own.shape) == len(served.shape) and all(a == b or None in (a, b) for a, b in pairs)
    return own.dtype == served.dtype and sizes


def _words(specs: dict[str, TensorSpec]) -> str:
    return ", ".join(f"{name}: {spec}" for name, spec in specs.items())
