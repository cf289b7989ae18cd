"""Test that signatures return what `tf.saved_model.load` returns, and that only what they need is loaded."""

import gc
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.eager.context import context

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.saved_model_proto import read_meta_graph
from tfopt.runtimes.saved_model import FunctionRuntime, SavedModelRuntime, SessionRuntime

WORDS = ["red", "green", "blue"]
TEXTS = np.array([["green", "black"], ["blue", "red"]], object)
NUMBERS = np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32)


def _layers(library, units=5):
    library.utils.set_random_seed(0)
    layers = [library.layers.Dense(units, activation="gelu", name=f"dense_{place}") for place in range(3)]
    return library.Sequential([library.layers.Input((6,)), *layers, library.layers.BatchNormalization()])


def _save(module: tf.Module, folder: Path, spec: tf.TensorSpec, **options) -> None:
    serve = tf.function(module.serve, input_signature=[spec], **options)
    tf.saved_model.save(module, str(folder), signatures=serve)


def write_keras_3(folder: Path) -> None:
    """Export a model of Keras 3."""
    _layers(keras).export(str(folder), verbose=False)


def write_keras_2(folder: Path) -> None:
    """Save a model of Keras 2 after a training step, with its optimizer and its training functions."""
    model = _layers(tf_keras)
    model.compile("adam", "mse")
    model.fit(NUMBERS, NUMBERS[:, :5], verbose=0)
    model.save(str(folder))


def write_keras_3_in_module(folder: Path) -> None:
    """Save a `tf.Module` with a model of Keras 3: its signature reads other variables than the checkpoint has."""
    module = tf.Module()
    module.model = _layers(keras)
    module.serve = lambda x: {"y": module.model(x)}
    _save(module, folder, tf.TensorSpec([None, 6], name="x"))


def write_compiled(folder: Path) -> None:
    """Save a module with variables, whose function is compiled by XLA."""
    module = tf.Module()
    module.weight = tf.Variable(NUMBERS.T)
    module.serve = lambda x: {"y": tf.nn.softmax(tf.math.erf(x @ module.weight))}
    _save(module, folder, tf.TensorSpec([None, 6], name="x"), jit_compile=True)


def write_constants(folder: Path) -> None:
    """Save a module without variables, whose function calls others."""
    module = tf.Module()
    inner = tf.function(lambda x: tf.math.erf(x @ tf.constant(NUMBERS.T)), jit_compile=True)
    branch = tf.function(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: inner(x), lambda: -inner(x)))
    module.serve = lambda x: {"z": inner(x), "a": branch(x), "b": tf.constant(3)}
    _save(module, folder, tf.TensorSpec([None, 6], name="x"))


def write_table(folder: Path) -> None:
    """Save a table that a file of the model fills, and one of constants."""
    (folder.parent / "words.txt").write_text("\n".join(WORDS))
    file = tf.lookup.TextFileInitializer(
        str(folder.parent / "words.txt"), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, -1
    )
    constants = tf.lookup.KeyValueTensorInitializer(WORDS, tf.constant([7, 8, 9], tf.int64))
    module = tf.Module()
    module.tables = [tf.lookup.StaticHashTable(one, -5) for one in (file, constants)]
    module.serve = lambda x: {
        "a": module.tables[0].lookup(x),
        "b": module.tables[1].lookup(x),
        "up": tf.strings.upper(x),
    }
    _save(module, folder, tf.TensorSpec([None, 2], tf.string, name="x"))


def write_mutable_table(folder: Path) -> None:
    """Save the vocabulary that a layer of Keras 2 has learned."""
    lookup = tf_keras.layers.StringLookup()
    lookup.adapt(np.array(WORDS))
    tf_keras.Sequential([tf_keras.layers.Input((2,), dtype="string"), lookup]).save(str(folder))


def write_ragged(folder: Path) -> None:
    """Save a text model that splits texts into words inside."""
    module = tf.Module()
    module.scale = tf.Variable(2, dtype=tf.int64)

    def serve(x):
        words = tf.strings.bytes_split(tf.reshape(x, [-1]))
        return {"y": module.scale * words.row_lengths(), "texts": tf.strings.reduce_join(words, axis=1)}

    module.serve = serve
    _save(module, folder, tf.TensorSpec([2, 2], tf.string, name="x"))


def write_counter(folder: Path) -> None:
    """Save a model that changes a variable at each call."""
    module = tf.Module()
    module.calls, module.unread = tf.Variable(10.0), tf.Variable(tf.ones([1000]))
    module.serve = lambda x: {"y": x * module.calls.assign_add(1.0)}
    _save(module, folder, tf.TensorSpec([None, 6], name="x"))


def write_named_table(folder: Path) -> None:
    """Save a function that creates a table with a name and counts its calls there."""
    module = tf.Module()

    def serve(x):
        table = tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.float32, shared_name="calls")
        key = tf.constant([0], tf.int64)
        calls = tf.raw_ops.LookupTableFindV2(table_handle=table, keys=key, default_value=0.0) + 1.0
        tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=key, values=calls)
        return {"y": x * calls}

    module.serve = serve
    _save(module, folder, tf.TensorSpec([None, 6], name="x"))


def write_tensorflow_1(folder: Path) -> None:
    """Save a graph of TensorFlow 1 with a variable, and a table that its initialization fills."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 6], "x")
        weight = tf.compat.v1.get_variable("w", initializer=NUMBERS.T, use_resource=True)
        tf.compat.v1.get_variable("unread", initializer=NUMBERS, use_resource=True)
        keys = tf.constant([0, 1], tf.int64)
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.constant([5.0, 6.0])), 0.0)
        y = tf.tanh(x @ weight) * table.lookup(tf.constant([1, 0], tf.int64))
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()])
        tf.compat.v1.saved_model.simple_save(
            session, str(folder), {"x": x}, {"y": y}, legacy_init_op=tf.compat.v1.tables_initializer()
        )


FORMS = {
    write_keras_3: SessionRuntime,
    write_keras_2: SessionRuntime,
    write_keras_3_in_module: SavedModelRuntime,
    write_compiled: SessionRuntime,
    write_constants: FunctionRuntime,
    write_table: SessionRuntime,
    write_mutable_table: SessionRuntime,
    write_ragged: SessionRuntime,
    write_counter: SessionRuntime,
    write_named_table: SessionRuntime,
    write_tensorflow_1: SessionRuntime,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    written: dict[str, Path] = {}

    def write(writer) -> Path:
        name = writer.__name__
        if name not in written:
            written[name] = tmp_path_factory.mktemp(name) / "model"
            writer(written[name])
            for asset in written[name].parent.glob("*.txt"):
                asset.unlink()  # the model has its own copy
        return written[name]

    return write


@pytest.mark.parametrize(("writer", "kind"), FORMS.items(), ids=[writer.__name__ for writer in FORMS])
def test_outputs_equal_those_of_tensorflows_loader_bit_by_bit(folder, writer, kind):
    path = folder(writer)
    whole = SavedModelRuntime(Model(path), ["serve"], "serving_default", None)  # uses `tf.saved_model.load`
    ((name, spec),) = whole.inputs.items()
    inputs = {name: TEXTS if spec.dtype == "string" else NUMBERS}
    with runtimes.load(Model(path)) as runtime:
        assert type(runtime) is kind
        assert (runtime.inputs, runtime.outputs) == (whole.inputs, whole.outputs)
        for _ in range(2):  # variables may change
            expected, received = whole.call(inputs), runtime.run(inputs)
            assert list(received) == list(expected)
            for output, array in expected.items():
                np.testing.assert_array_equal(received[output], array, strict=True)


def test_functions_and_variables_that_the_signature_does_not_need_are_not_loaded(folder):
    path = folder(write_keras_2)
    meta_graph = read_meta_graph(path)
    with runtimes.load(Model(path)) as runtime:
        graph = runtime._session.graph
        functions = graph.as_graph_def().library.function
        assert len(functions) == 3 < 20 < len(meta_graph.graph_def.library.function), "serving, and restoration"
        handles = [op.outputs[0] for op in graph.get_operations() if op.type == "VarHandleOp"]
        with graph.as_default():
            is_set = runtime._session.run([tf.raw_ops.VarIsInitializedOp(resource=handle) for handle in handles])
    assert sum(is_set) == 10 and len(is_set) > 20, "Adam has two variables for each weight"


def test_a_function_is_registered_once_for_all_signatures_and_as_long_as_one_is_used(tmp_path):
    module = tf.Module()
    inner = tf.function(lambda x: x @ tf.constant(NUMBERS.T), input_signature=[tf.TensorSpec([None, 6])])
    signatures = {
        key: tf.function(lambda x, by=by: {"y": by * inner(x)}, input_signature=[tf.TensorSpec([None, 6], name="x")])
        for key, by in (("serving_default", 1.0), ("doubled", 2.0))
    }
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=signatures)
    runtime = runtimes.load(Model(tmp_path / "model"))
    assert isinstance(runtime, FunctionRuntime)
    other = runtime.with_signature("doubled")
    registered = dict(runtime._functions._names)
    assert len(registered) == 5, "two signatures, each with a wrapper, and one function of both"
    np.testing.assert_array_equal(other.run({"x": NUMBERS})["y"], 2 * runtime.run({"x": NUMBERS})["y"])
    del runtime
    assert all(map(context().has_function, registered.values())) and other.run({"x": NUMBERS})
    del other
    gc.collect()
    assert not any(map(context().has_function, registered.values()))
