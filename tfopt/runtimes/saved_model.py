"""The `saved_model` runtime: a signature of a SavedModel in TensorFlow, loaded with only what the signature needs.

A signature with variables or tables runs in a session, as TensorFlow Serving runs every model. One that only calls a
function, such as those of `compile_xla`, is called without a graph: `tf.saved_model.load` and a session would each keep
several copies of its constants. All others are loaded by `tf.saved_model.load` as a whole (ADR 103).
"""

import copy
import itertools
import re
import weakref
from collections.abc import Collection
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.saved_model_proto import (
    DAMAGED,
    INIT,
    asset_files,
    functions_called,
    init_ops,
    read_meta_graph,
)
from tfopt.artifacts.tensor_spec import TensorSpec, plain_integers
from tfopt.data.text_inputs import read_text_inputs, tensor_specs
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.graph_def import node_of, prune_functions, reach
from tfopt.runtimes.runtime import Arrays, Call, Runtime, signature_error

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
NUMBERS = itertools.count()  # of the functions that this process registered
SUFFIX = re.compile(r"_tfopt_\d+")  # of their names


def load(model: Model, *, signature: str, threads: int | None) -> Runtime:
    """Load a signature of a SavedModel."""
    folder = model.saved_model or model.path
    meta_graph = read_meta_graph(folder)
    if signature not in meta_graph.signature_def or signature == INIT:
        raise signature_error(model, signature, set(meta_graph.signature_def) - {INIT})
    if _is_function_call(meta_graph, signature):
        return FunctionRuntime(model, meta_graph, signature, threads)
    tags, has_objects = list(meta_graph.meta_info_def.tags), meta_graph.HasField("object_graph_def")
    if _runs_in_session(meta_graph, signature):
        try:
            return SessionRuntime(model, meta_graph, signature, threads)
        except ComponentError:
            if not has_objects:
                raise
    del meta_graph  # may have all weights
    return SavedModelRuntime(model, tags, signature, threads)


class SavedModelRuntime(Runtime):
    """A signature of a SavedModel that `tf.saved_model.load` loads as a whole."""

    def __init__(self, model: Model, tags: list[str], signature: str, threads: int | None) -> None:
        """Load the model; see `tfopt.runtimes.load`."""
        import tensorflow as tf

        set_threads(threads)
        folder = model.saved_model or model.path
        try:
            self._loaded = tf.saved_model.load(str(folder), tags)
        except Exception as error:
            raise _damaged(model, error) from error
        self._constant = tf.constant
        if signature not in self._loaded.signatures:
            raise signature_error(model, signature, self._loaded.signatures)
        self._call = self._loaded.signatures[signature]
        # TensorFlow stores no order; the order of the inputs differs between processes.
        inputs = self._call.structured_input_signature[1]
        self.inputs = _with_texts(folder, signature, {name: to_tensor_spec(inputs[name]) for name in sorted(inputs)})
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


class FunctionRuntime(SavedModelRuntime):
    """A signature that only calls a function with its inputs: no graph of it is made, only the function registered."""

    def __init__(self, model: Model, meta_graph: Any, signature: str, threads: int | None) -> None:
        """Register the function of the signature; see `tfopt.runtimes.load`."""
        import tensorflow as tf

        set_threads(threads)
        self._model, self._functions, self._constant = model, _Functions(), tf.constant
        self._select(meta_graph, signature)

    def with_signature(self, signature: str) -> Self:
        """Return a runtime for another signature of the model; both use the functions that they share.

        Raises:
            ComponentError: If there is no such signature that only calls a function.
        """
        meta_graph = read_meta_graph(self._model.saved_model or self._model.path)
        if signature not in meta_graph.signature_def or not _is_function_call(meta_graph, signature):
            raise signature_error(self._model, signature, set(meta_graph.signature_def) - {INIT})
        other = copy.copy(self)
        other._select(meta_graph, signature)
        return other

    def _select(self, meta_graph: Any, signature: str) -> None:
        ends, caller = meta_graph.signature_def[signature], _caller(meta_graph, signature)
        names = {node_of(info.name): name for name, info in ends.inputs.items()}
        self._arguments = [names[node_of(source)] for source in caller.input]
        self._places = {name: int(f"{info.name}:0".split(":")[1]) for name, info in sorted(ends.outputs.items())}
        self._count = len(caller.attr["Tout"].list.type)
        try:
            self._name = self._functions.register(meta_graph.graph_def, caller.attr["f"].func.name)
        except Exception as error:
            raise _damaged(self._model, error) from error
        self.inputs = _with_texts(self._model.saved_model or self._model.path, signature, tensor_specs(ends.inputs))
        self.outputs = tensor_specs(ends.outputs)

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Call the function; errors have its name in the file, which does not depend on what was loaded before."""
        from tensorflow.errors import OpError

        tensors = [self._constant(arrays[name]) for name in self._arguments]
        try:
            results = _eager_context().call_function(self._name, tensors, self._count)
        except OpError as error:
            raise type(error)(error.node_def, error.op, SUFFIX.sub("", error.message)) from error
        return {name: plain_integers(np.asarray(results[place].numpy())) for name, place in self._places.items()}


class SessionRuntime(Runtime):
    """A signature of a SavedModel in a session, with only what the signature needs."""

    def __init__(self, model: Model, meta_graph: Any, signature: str, threads: int | None) -> None:
        """Import the part of the graph, restore and initialize it; see `tfopt.runtimes.load`. It changes the graph.

        Raises:
            ComponentError: If TensorFlow cannot load it, or neither the checkpoint nor the initialization sets all of
                its variables.
        """
        import tensorflow as tf

        set_threads(threads)
        tf.constant(0)  # fixes the number of threads, which a session does not
        folder = model.saved_model or model.path
        options: dict[str, int] = {"allow_soft_placement": True}
        if threads:
            options |= {"intra_op_parallelism_threads": threads, "inter_op_parallelism_threads": 1}
        try:
            read, unread = _keep_called(meta_graph, signature)
            with tf.Graph().as_default() as graph:
                tf.graph_util.import_graph_def(meta_graph.graph_def, name="")
                handles = {name: graph.get_tensor_by_name(f"{name}:0") for name in read | unread}
                is_set = [tf.raw_ops.VarIsInitializedOp(resource=handles[name]) for name in sorted(read)]
                are_set = tf.reduce_all([True, *is_set])  # fetching each takes long
                remove = [tf.raw_ops.DestroyResourceOp(resource=handles[name]) for name in sorted(unread)]
            self._session = tf.compat.v1.Session(graph=graph, config=tf.compat.v1.ConfigProto(**options))
            self._restore(meta_graph, folder)
            self._session.run(remove)  # an optimizer's, for example
            if not self._session.run(are_set):
                raise ValueError("neither its checkpoint nor its initialization sets all variables")
            ends = meta_graph.signature_def[signature]
            sides = (ends.inputs, ends.outputs)
            inputs, outputs = ({name: _typed_tensor(graph, side[name]) for name in sorted(side)} for side in sides)
        except Exception as error:
            raise _damaged(model, error) from error
        self.inputs = _with_texts(folder, signature, {name: to_tensor_spec(inputs[name]) for name in inputs})
        self.outputs = {name: to_tensor_spec(tensor) for name, tensor in outputs.items()}
        self._call = self._session.make_callable(list(outputs.values()), list(inputs.values()))

    def _restore(self, meta_graph: Any, folder: Path) -> None:
        saver, variables = meta_graph.saver_def, folder / "variables"
        if saver.restore_op_name and variables.exists():
            self._session.run(saver.restore_op_name, {saver.filename_tensor_name: str(variables / "variables")})
        files = {item.tensor_info.name: str(folder / "assets" / item.filename) for item in asset_files(meta_graph)}
        remaining = {node.name for node in meta_graph.graph_def.node}
        files = {name: file for name, file in files.items() if node_of(name) in remaining}
        for node in init_ops(meta_graph):
            self._session.run(node, files)

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the signature."""
        results = self._call(*(arrays[name] for name in self.inputs))
        return {name: plain_integers(np.asarray(out)) for name, out in zip(self.outputs, results, strict=True)}

    def close(self) -> None:
        """Close the session, which cancels a call."""
        self._session.close()

    stop = close


class _Functions:
    """Functions of a model that TensorFlow has registered under names of their own, until nothing uses them."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        weakref.finalize(self, _unregister, self._names).atexit = False

    def register(self, graph: Any, name: str) -> bytes:
        """Register a function and those that it calls, once each, and return its name. It changes their definitions."""
        functions = {function.signature.name: function for function in graph.library.function}
        reached = reach([name], lambda one: functions_called(functions[one].node_def) & set(functions))
        added = sorted(reached - set(self._names))
        for one in added:
            self._names[one] = f"{one}_tfopt_{next(NUMBERS)}"
        for function in (functions[one] for one in added):
            function.signature.name = self._names[function.signature.name]
            function.attr.pop("_input_shapes", None)  # `tf.saved_model.load` removes it, too
            for node in function.node_def:
                node.op = self._names.get(node.op, node.op)
                for value in node.attr.values():
                    for called in [value.func] if value.HasField("func") else value.list.func:
                        called.name = self._names.get(called.name, called.name)
            _eager_context().add_function_def(function)
        return self._names[name].encode()


def _unregister(names: dict[str, str]) -> None:
    for name in names.values():
        _eager_context().remove_function(name)


def _eager_context() -> Any:
    from tensorflow.python.eager.context import context  # no public name

    return context()


def _caller(meta_graph: Any, signature: str) -> Any:
    """Return the call that computes all outputs of a signature, if it has only inputs of the signature; else None."""
    ends = meta_graph.signature_def[signature]
    if not _has_plain_tensors(ends):
        return None
    fed = {node_of(info.name) for info in ends.inputs.values()}
    names = {node_of(info.name) for info in ends.outputs.values()}
    callers = [node for node in meta_graph.graph_def.node if node.name in names]
    is_call = len(callers) == len(names) == 1 and callers[0].op in CALLS and set(callers[0].input) <= fed
    return callers[0] if is_call else None


def _is_function_call(meta_graph: Any, signature: str) -> bool:
    """Return True for a signature that only calls a function, in which no resource can have a name."""
    from tensorflow.python.framework import op_def_registry  # no public name

    caller, graph = _caller(meta_graph, signature), meta_graph.graph_def
    bodies = {function.signature.name: function.node_def for function in graph.library.function}
    if caller is None or caller.attr["f"].func.name not in bodies:
        return False
    called = reach([caller.attr["f"].func.name], lambda name: functions_called(bodies[name]) & set(bodies))
    ops = {node.op for name in called for node in bodies[name]} - set(bodies)
    definitions = [op_def_registry.get(op) for op in ops]
    return all(one is not None and all(attr.name != "shared_name" for attr in one.attr) for one in definitions)


def _runs_in_session(meta_graph: Any, signature: str) -> bool:
    """Return False where a session may differ from `tf.saved_model.load`, or needs more than the file has."""
    ends = meta_graph.signature_def[signature]
    fed = {info.name for info in ends.inputs.values()}
    saver = meta_graph.saver_def
    return (
        _has_plain_tensors(ends)
        and not any(info.name in fed for info in ends.outputs.values())
        and (not saver.restore_op_name or saver.version == saver.V2)
        and not any(item.registered_saver for item in meta_graph.object_graph_def.nodes)
        and not any(
            node.op == "VarHandleOp" for function in meta_graph.graph_def.library.function for node in function.node_def
        )
    )


def _has_plain_tensors(ends: Any) -> bool:
    return all(info.WhichOneof("encoding") == "name" for info in (*ends.inputs.values(), *ends.outputs.values()))


def _keep_called(meta_graph: Any, signature: str) -> tuple[set[str], set[str]]:
    """Leave only what a signature, the restoration and the initialization reach in the graph.

    Return the names of the variables that the signature reaches, and of the others.
    """
    graph, ends, saver = meta_graph.graph_def, meta_graph.signature_def[signature], meta_graph.saver_def
    by_name = {node.name: node for node in graph.node}

    def following(name: str) -> Collection[str]:
        together = by_name[name].attr["_class"].list.s if "_class" in by_name[name].attr else ()
        return [node_of(source) for source in by_name[name].input] + [
            other for other in (mark.decode().removeprefix("loc:@") for mark in together) if other in by_name
        ]

    called = reach([node_of(info.name) for info in (*ends.inputs.values(), *ends.outputs.values())], following)
    loading = [name for name in (saver.restore_op_name, saver.filename_tensor_name, *init_ops(meta_graph)) if name]
    remaining = called | reach(map(node_of, loading), following)
    variables = {node.name for node in graph.node if node.op == "VarHandleOp" and node.name in remaining}
    for index in reversed([index for index, node in enumerate(graph.node) if node.name not in remaining]):
        del graph.node[index]
    if not graph.library.gradient:
        prune_functions(graph)
    return variables & called, variables - called


def _with_texts(folder: Path, signature: str, inputs: dict[str, TensorSpec]) -> dict[str, TensorSpec]:
    """Return the inputs, with what is known of those that are text."""
    has_text = any(spec.dtype == "string" for spec in inputs.values())
    return inputs | read_text_inputs(folder, signature) if has_text else inputs


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
