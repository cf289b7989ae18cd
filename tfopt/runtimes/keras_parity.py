"""Check that a SavedModel serves the outputs of its Keras model, so that a new export may replace it."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tfopt import keras_models
from tfopt.artifacts import SavedModel
from tfopt.artifacts.tensor_spec import ParsedFeature, RecordSpec, describe_specs, record_input, same_shape
from tfopt.data.batches import parse_features
from tfopt.data.sample_inputs import random_batch
from tfopt.errors import ComponentError
from tfopt.runtimes.keras import input_specs
from tfopt.runtimes.runtime import Runtime

COMPARED_RECORDS = 16
TOLERANCE = 1e-3  # of the largest value: both run the same layers
SIGNATURES = {"serving_default", "serve", "__saved_model_init_op"}  # Keras also exports the first as "serve"


def save_as_served(
    changed: keras_models.KerasObject,
    folder: Path,
    model: SavedModel,
    parent: Runtime,
    keras_model: keras_models.KerasObject,
) -> None:
    """Save a changed Keras model with the signature of its parent: names of outputs, and records if it parses these.

    ``model`` is the parent's artifact, ``parent`` its runtime, and ``keras_model`` its Keras form.

    Raises:
        ComponentError: If the SavedModel has signatures, inputs or outputs that the Keras model does not have, or
            computes something else from its records.
    """
    names, records = output_names(model, parent, keras_model), _parsed_inputs(parent, keras_model)
    if records:
        _check_parsed(model, parent, names)
    keras_models.save(changed, folder, names, records)


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
    received = f"serving_default returns {', '.join(served)}"
    fix = "export the Keras model with its own output names, or give its .keras file alone"
    raise ComponentError(received, f"the outputs of the Keras form: {', '.join(own)}", fix)


def _check_signatures(folder: Path) -> None:
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as Proto

    graphs = Proto.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs
    others = sorted({name for graph in graphs for name in graph.signature_def} - SIGNATURES)
    if others:
        received = f"{folder}: signatures {', '.join(others)} besides serving_default"
        expected = "serving_default only: the Keras form does not contain the others, so they would be lost"
        raise ComponentError(received, expected, "export the model without them, or give its .keras file alone")


def _parsed_inputs(
    parent: Runtime, keras_model: keras_models.KerasObject
) -> tuple[str, Mapping[str, ParsedFeature]] | None:
    """Return the record input whose parsed features are the Keras model's inputs; None if there is none."""
    records = record_input(parent.inputs)
    if records is None:
        return None
    dense = {key: feature for key, feature in records[1].features.items() if feature.kind == "dense"}
    own = input_specs(keras_model)
    fits = all(key in dense and dense[key].dtype == spec.dtype for key, spec in own.items())
    return (records[0], dense) if fits else None


def _check_parsed(model: SavedModel, parent: Runtime, names: list[str]) -> None:
    """Refuse a signature that does more between its records and the Keras model than parsing features."""
    batch = random_batch(parent.inputs, records=COMPARED_RECORDS, seed=0)
    ((name, records),) = batch.items()
    serve, specs = keras_models.serving_function(keras_models.load(model), names)
    spec = parent.inputs[name]
    assert isinstance(spec, RecordSpec)
    dense = parse_features(records, {key: feature for key, feature in spec.features.items() if key in specs})
    own = serve({key: dense[key].reshape([-1, *shape.shape[1:]]) for key, shape in specs.items()})
    for name, expected in parent.run(batch).items():
        error, spread = np.abs(np.asarray(own[name]) - expected).max(), np.ptp(expected)
        if not error <= TOLERANCE * max(spread, np.abs(expected).max()):
            received = f"output {name!r} of the signature and of the Keras form differ by {error:.2g}"
            fix = "include the other operations of the signature in the Keras model, or give its .keras file alone"
            raise ComponentError(received, "a signature that parses records and calls the Keras model on them", fix)


def _check_inputs(parent: Runtime, keras_model: keras_models.KerasObject) -> None:
    if _parsed_inputs(parent, keras_model):
        return
    specs, served = input_specs(keras_model), parent.inputs
    if set(specs) != set(served) or not all(
        own.dtype == served[name].dtype and len(own.shape) == len(served[name].shape) and same_shape(own, served[name])
        for name, own in specs.items()
    ):
        received = f"serving_default takes {describe_specs(parent.inputs)}"
        fix = "export the Keras model with its own inputs, or give its .keras file alone"
        raise ComponentError(received, f"the inputs of the Keras form: {describe_specs(specs)}", fix)
