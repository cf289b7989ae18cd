"""The `saved_model` runtime: a signature of a SavedModel in TensorFlow.

A frozen model, as `tfopt.saved_models.saved_model.write` makes it, runs in a session, as TensorFlow Serving runs every
model: `tf.saved_model.load` copies its constants several times, and takes six times as long.
"""

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.saved_model_proto import DAMAGED, asset_files, read_meta_graph
from tfopt.artifacts.tensor_spec import TensorSpec, plain_integers
from tfopt.data.text_inputs import read_text_inputs
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.runtimes.runtime import Arrays, Call, Runtime, signature_error

INITIALIZER = "saved_model_main_op"  # the collection that names the initialization op


def load(model: Model, *, signature: str, threads: int | None) -> Runtime:
    """Load a signature of a SavedModel."""
    folder = model.saved_model or model.path
    meta_graph = read_meta_graph(folder)
    if _is_frozen(meta_graph) and not (folder / "variables").exists():
        return FrozenSavedModelRuntime(model, meta_graph, signature, threads)
    tags = list(meta_graph.meta_info_def.tags)
    del meta_graph  # may have all weights
    return SavedModelRuntime(model, tags, signature, threads)


class SavedModelRuntime(Runtime):
    """A signature of a SavedModel."""

    def __init__(self, model: Model, tags: list[str], signature: str, threads: int | None) -> None:
        """Load the model; see `tfopt.runtimes.load`."""
        import tensorflow as tf

        set_threads(threads)
        folder = model.saved_model or model.path
        try:
            self._loaded = tf.saved_model.load(str(folder), tags)
        except Exception as error:
            raise _damaged(model, error) from error
        self._model = model
        self._constant = tf.constant
        self._select(signature)

    def with_signature(self, signature: str) -> Self:
        """Return a runtime for another signature of the loaded model, which both use."""
        other = copy.copy(self)
        other._select(signature)
        return other

    def _select(self, signature: str) -> None:
        model = self._model
        if signature not in self._loaded.signatures:
            raise signature_error(model, signature, self._loaded.signatures)
        self._call = self._loaded.signatures[signature]
        # TensorFlow stores no order; the order of the inputs differs between processes.
        inputs = self._call.structured_input_signature[1]
        self.inputs = {name: to_tensor_spec(spec) for name, spec in sorted(inputs.items())}
        if model.saved_model and any(spec.dtype == "string" for spec in self.inputs.values()):
            self.inputs |= read_text_inputs(model.saved_model, signature)
        self.outputs = {name: to_tensor_spec(spec) for name, spec in sorted(self._call.structured_outputs.items())}

    def run_within_limit(self, call: Call, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Return the result of a call that `stop` can cancel."""
        from tensorflow.python.eager.cancellation import CancellationManager  # no public name

        self._cancellation = CancellationManager()  # a call that fails cancels it
        return super().run_within_limit(self._cancellation.get_cancelable_function(call), arrays)

    def stop(self) -> None:
        """Cancel a call."""
        self._cancellation.start_cancel()

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the signature."""
        results = self._call(**{name: self._constant(arrays[name]) for name in self.inputs})
        return {name: plain_integers(np.asarray(results[name].numpy())) for name in self.outputs}


class FrozenSavedModelRuntime(Runtime):
    """A signature of a frozen SavedModel, in a session."""

    def __init__(self, model: Model, meta_graph: Any, signature: str, threads: int | None) -> None:
        """Import the graph into a session and run its initialization; see `tfopt.runtimes.load`."""
        import tensorflow as tf

        set_threads(threads)
        tf.constant(0)  # fixes the number of threads, which a session does not
        folder = model.saved_model or model.path
        options: dict[str, int] = {"allow_soft_placement": True}
        if threads:
            options |= {"intra_op_parallelism_threads": threads, "inter_op_parallelism_threads": 1}
        try:
            with tf.Graph().as_default() as graph:
                tf.graph_util.import_graph_def(meta_graph.graph_def, name="")
            self._session = tf.compat.v1.Session(graph=graph, config=tf.compat.v1.ConfigProto(**options))
            files = {item.tensor_info.name: str(folder / "assets" / item.filename) for item in asset_files(meta_graph)}
            for node in meta_graph.collection_def[INITIALIZER].node_list.value:
                self._session.run(node, files)
        except Exception as error:
            raise _damaged(model, error) from error
        if signature not in meta_graph.signature_def:
            raise signature_error(model, signature, meta_graph.signature_def)
        ends = meta_graph.signature_def[signature]
        try:
            sides = (ends.inputs, ends.outputs)
            inputs, outputs = ({name: _typed_tensor(graph, side[name]) for name in sorted(side)} for side in sides)
        except (KeyError, ValueError) as error:
            raise _damaged(model, error) from error
        self.inputs = {name: to_tensor_spec(tensor) for name, tensor in inputs.items()}
        if any(spec.dtype == "string" for spec in self.inputs.values()):
            self.inputs |= read_text_inputs(folder, signature)
        self.outputs = {name: to_tensor_spec(tensor) for name, tensor in outputs.items()}
        self._call = self._session.make_callable(list(outputs.values()), list(inputs.values()))

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the signature."""
        results = self._call(*(arrays[name] for name in self.inputs))
        return {name: plain_integers(np.asarray(out)) for name, out in zip(self.outputs, results, strict=True)}

    def close(self) -> None:
        """Close the session, which cancels a call."""
        self._session.close()

    stop = close


def _is_frozen(graph: Any) -> bool:
    """Return True for a graph without objects, variables to restore, collections of TensorFlow 1, and other tensors."""
    return (
        list(graph.meta_info_def.tags) == ["serve"]
        and not graph.HasField("object_graph_def")
        and not graph.HasField("saver_def")
        and set(graph.collection_def) <= {INITIALIZER}
        and all(
            info.WhichOneof("encoding") == "name"
            for signature in graph.signature_def.values()
            for info in (*signature.inputs.values(), *signature.outputs.values())
        )
    )


def _typed_tensor(graph: Any, info: Any) -> Any:
    """Return a tensor of a graph with the shape in the signature, which may know more than shape inference."""
    import tensorflow as tf

    tensor = graph.get_tensor_by_name(info.name)
    if info.HasField("tensor_shape"):
        tensor.set_shape(tf.TensorShape(info.tensor_shape))
    return tensor


def _damaged(model: Model, error: Exception) -> ComponentError:
    return ComponentError(f"{model.saved_model}: {first_line(error)}", "a SavedModel that TensorFlow can load", DAMAGED)


def to_tensor_spec(spec: Any) -> TensorSpec:
    """Convert a ``tf.TensorSpec``, or the type of a tensor of a graph."""
    if spec.shape.rank is None:
        return TensorSpec(spec.dtype.name, (None,), ranked=False)
    return TensorSpec(spec.dtype.name, tuple(spec.shape))


def set_threads(threads: int | None) -> None:
    """Set TensorFlow's thread count, which must happen before its first use in the process.

    Raises:
        ComponentError: If TensorFlow already runs with another count.
    """
    if not threads:
        return
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    except RuntimeError as error:
        if tf.config.threading.get_intra_op_parallelism_threads() != threads:
            fix = "load the model with this thread count first, in a fresh process"
            raise ComponentError(f"threads={threads}", "a process in which TensorFlow has not run yet", fix) from error
