"""Test that operators of a SavedModel that reach outside of it are listed, not run, and refused unless trusted."""

import numpy as np
import pytest
import tensorflow as tf

from tfopt import keras_models, runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.saved_model_proto import read_meta_graph
from tfopt.components.fold_batch_norm.component import fold_batch_norm
from tfopt.components.inspect_model.component import inspect_model
from tfopt.components.optimize_graph.component import optimize_graph
from tfopt.errors import ComponentError
from tfopt.saved_models.effects import find_effects

v1 = tf.compat.v1


def write_v1(folder, body, main_op=lambda: None):
    """Write a SavedModel of TensorFlow 1 with a variable, whose output ``body`` computes from its input."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3], "x")
        y = tf.identity(body(x * v1.get_variable("scale", initializer=[1.0, 2.0, 3.0], use_resource=True)), "y")
        run = main_op()
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(folder))
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        assets = v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS) or None
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, main_op=run, assets_collection=assets
        )
        builder.save()
    return folder


def write_v2(folder, body):
    """Write a SavedModel of TensorFlow 2 with a variable."""
    module = tf.Module()
    module.scale = tf.Variable([1.0, 2.0, 3.0])
    serve = tf.function(lambda x: {"y": body(x * module.scale)}, input_signature=[tf.TensorSpec([None, 3], name="x")])
    tf.saved_model.save(module, str(folder), signatures=serve)
    return folder


def after(effect, x):
    with tf.control_dependencies([effect]):
        return tf.identity(x)


def sized(text, x):
    """Return x in a shape that shape inference computes from a text."""
    return tf.reshape(x, tf.stack([-1, tf.strings.length(text) * 0 + 3]))


def graph_of(body):
    """Return a graph that ``body`` adds operators to."""
    with tf.Graph().as_default() as graph:
        body()
    return graph.as_graph_def()


def added_by_graph(file, x):
    """Return x and a number that a serialized graph computes, which writes a file."""

    def write():
        with tf.control_dependencies([tf.io.write_file(file, "text")]):
            tf.identity(tf.raw_ops.TensorDataset(components=[tf.constant(1.0)], output_shapes=[[]]), "set")

    graph = graph_of(write)
    graph.node.add(name="dataset", op="_Retval", input=["set"]).attr["T"].type = tf.variant.as_datatype_enum
    graph.node[-1].attr["index"].i = 0
    dataset = tf.raw_ops.DatasetFromGraph(graph_def=tf.constant(graph.SerializeToString()))
    number = tf.raw_ops.DatasetToSingleElement(dataset=dataset, output_types=[tf.float32], output_shapes=[[]])
    return x + number[0]


def effects_at(folder):
    """Return the effects by name: the operator, what it does, and the body of a model."""
    file = str(folder / "written")
    secret = folder / "secret"
    secret.write_text("text")
    return {
        "write": ("WriteFile", "writes files", lambda x: after(tf.io.write_file(file, "text"), x)),
        "read": ("ReadFile", "reads files", lambda x: sized(tf.io.read_file(str(secret)), x)),
        "match": ("MatchingFiles", "reads files", lambda x: sized(tf.io.matching_files(str(secret))[0], x)),
        "save": (
            "SaveV2",
            "writes files",
            lambda x: after(
                tf.raw_ops.SaveV2(prefix=file, tensor_names=["a"], shape_and_slices=[""], tensors=[tf.constant(1.0)]), x
            ),
        ),
        "restore": (
            "RestoreV2",
            "reads files",
            lambda x: (
                x + tf.raw_ops.RestoreV2(prefix=file, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32])[0]
            ),
        ),
        "print": (
            "PrintV2",
            "writes files",
            lambda x: after(tf.raw_ops.PrintV2(input="text", output_stream=f"file://{file}"), x),
        ),
        "python": (
            "PyFunc",
            "runs Python",
            lambda x: tf.ensure_shape(tf.raw_ops.PyFunc(input=[x], token="t", Tout=[tf.float32])[0], [None, 3]),
        ),
        "eager": (
            "EagerPyFunc",
            "runs Python",
            lambda x: tf.ensure_shape(tf.py_function(lambda x: x, [x], tf.float32), [None, 3]),
        ),
        "summary": (
            "CreateSummaryFileWriter",
            "writes files",
            lambda x: after(
                tf.raw_ops.CreateSummaryFileWriter(
                    writer=tf.raw_ops.SummaryWriter(), logdir=file, max_queue=1, flush_millis=1, filename_suffix="s"
                ),
                x,
            ),
        ),
        "graph": ("DatasetFromGraph", "runs a graph in a text", lambda x: added_by_graph(file, x)),
    }


NAMES = ["write", "read", "match", "save", "restore", "print", "python", "eager", "summary", "graph"]


def _fed_at_one_output(graph, written):
    """The signature feeds an output of a node, and returns another one."""

    def node():
        read = tf.strings.to_number(tf.io.read_file(str(written), name="hidden"), name="hidden_number")
        tf.raw_ops.IdentityN(input=[tf.zeros([1, 3], name="hidden_zeros"), read], name="hidden_pair")

    graph.graph_def.node.extend(graph_of(node).node)
    graph.signature_def["serving_default"].inputs["x"].name = "hidden_pair:0"
    graph.signature_def["serving_default"].outputs["y"].name = "hidden_pair:1"


def _in_a_gradient(graph, written):
    """A function computes a gradient, for which the library names another function."""
    types = tf.TensorSpec([None, 3])

    @tf.function(input_signature=[types])
    def double(x):
        return x * 2.0

    @tf.function(input_signature=[types, types])
    def hidden(x, dy):
        return after(tf.io.write_file(str(written), "text"), dy)

    functions = [one.get_concrete_function().function_def for one in (double, hidden)]
    graph.graph_def.library.function.extend(functions)
    names = [one.signature.name for one in functions]
    graph.graph_def.library.gradient.add(function_name=names[0], gradient_func=names[1])
    node = graph.graph_def.node.add(name="gradient", op="SymbolicGradient", input=["x", "x"])
    node.attr["f"].func.name = names[0]
    graph.signature_def["serving_default"].outputs["y"].name = "gradient:0"


def _asset_of_a_signature(graph, written):
    """A signature fills a table from a name that only the initialization replaces by that of an asset."""

    def node():
        table = tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64)
        tf.raw_ops.InitializeTableFromTextFileV2(
            table_handle=table, filename=tf.constant(str(written), name="words"), key_index=-2, value_index=-1
        )

    graph.graph_def.node.extend(graph_of(node).node)
    graph.graph_def.node.add(name="hidden", op="Identity", input=["y", "^InitializeTableFromTextFileV2"])
    graph.asset_file_def.add(filename="words").tensor_info.name = "words:0"
    graph.signature_def["serving_default"].outputs["y"].name = "hidden:0"


@pytest.mark.parametrize("hide", [_fed_at_one_output, _in_a_gradient, _asset_of_a_signature])
def test_an_operator_that_a_signature_reaches_in_another_way_is_found(tmp_path, hide):
    graph = read_meta_graph(write_v1(tmp_path / "model", lambda x: x))
    assert find_effects(graph) == []
    hide(graph, tmp_path / "written")
    assert [one.effect for one in find_effects(graph)] == ["writes files" if hide is _in_a_gradient else "reads files"]


def test_of_two_graphs_with_the_same_tags_none_is_loaded(tmp_path):
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as Proto

    models = [write_v1(tmp_path / name, lambda x: x) for name in ("first", "second")]
    protos = [Proto.FromString((model / "saved_model.pb").read_bytes()) for model in models]
    protos[0].meta_graphs[0].meta_info_def.tags[:] = ["serve", "serve"]  # TensorFlow compares sets
    protos[0].meta_graphs.extend(protos[1].meta_graphs)
    (models[0] / "saved_model.pb").write_bytes(protos[0].SerializeToString())
    for run in (runtimes.load, lambda model: inspect_model(model, tmp_path / "inspection")):
        with pytest.raises(ComponentError, match="two of them with the same tags"):
            run(Model(models[0]))


@pytest.mark.parametrize("write", [write_v1, write_v2])
@pytest.mark.parametrize("name", NAMES)
def test_an_operator_with_effects_is_listed_and_refused(tmp_path, name, write):
    op, effect, body = effects_at(tmp_path)[name]
    model = write(tmp_path / "model", body)
    assert not (tmp_path / "written").exists()
    report = inspect_model(model, tmp_path / "inspection")["inspection"].read()
    assert [(one["op"], one["effect"]) for one in report["outside"]] == [(op, effect)]
    assert report["parameters"]["count"] == 3
    for run in (
        lambda: fold_batch_norm(model, tmp_path / "folded"),
        lambda: optimize_graph(model, tmp_path / "optimized"),
        lambda: runtimes.load(Model(model)),
    ):
        with pytest.raises(ComponentError, match=rf"(?s)\({op} {effect}\).*--trust-model-code"):
            run()
    assert not (tmp_path / "written").exists()


def test_an_initialization_with_effects_is_not_run_unless_trusted(tmp_path):
    written = tmp_path / "written"
    model = write_v1(tmp_path / "model", lambda x: x, lambda: tf.group(tf.io.write_file(str(written), "text")))
    report = inspect_model(model, tmp_path / "inspection")["inspection"].read()
    assert [(one["op"], one["effect"]) for one in report["outside"]] == [("WriteFile", "writes files")]
    with pytest.raises(ComponentError, match="WriteFile writes files"):
        runtimes.load(Model(model))
    assert not written.exists()
    fold_batch_norm(model, tmp_path / "folded", trust_model_code=True)
    assert written.exists()


def test_an_operator_that_the_saver_runs_is_refused_also_by_inspect_model(tmp_path):
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as Proto

    written = tmp_path / "written"
    model = write_v1(tmp_path / "model", lambda x: x)
    proto = Proto.FromString((model / "saved_model.pb").read_bytes())
    graph = proto.meta_graphs[0]
    with tf.Graph().as_default() as other:
        tf.io.write_file(str(written), "text", name="hostile")
    graph.graph_def.node.extend(other.as_graph_def().node)
    restore = next(node for node in graph.graph_def.node if node.name == graph.saver_def.restore_op_name)
    restore.input.append("^hostile")
    (model / "saved_model.pb").write_bytes(proto.SerializeToString())
    for run in (lambda: runtimes.load(Model(model)), lambda: inspect_model(model, tmp_path / "inspection")):
        with pytest.raises(ComponentError, match=r"hostile \(WriteFile writes files\)"):
            run()
    assert not written.exists()


@pytest.mark.parametrize("version", [1, 2])
def test_a_table_of_an_asset_is_allowed_and_of_another_file_is_not(tmp_path, version):
    words = tmp_path / "words"
    words.write_text("red\nblue\n")

    def lookup(file):
        parts = (tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER)
        return tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(file, *parts), -1)

    def body(x):
        table = lookup(str(words))
        return x + tf.cast(table.lookup(tf.constant("blue")), tf.float32)

    if version == 1:
        model = write_v1(tmp_path / "model", body, v1.tables_initializer)
    else:
        module = tf.Module()
        module.table = lookup(str(words))
        serve = tf.function(
            lambda x: {"y": x + tf.cast(module.table.lookup(tf.constant("blue")), tf.float32)},
            input_signature=[tf.TensorSpec([None, 3], name="x")],
        )
        tf.saved_model.save(module, str(tmp_path / "model"), signatures=serve)
        model = tmp_path / "model"
    graph = read_meta_graph(model)
    with runtimes.load(Model(model)) as runtime:
        assert runtime.run({"x": np.zeros((1, 3), np.float32)})["y"].min() == 1
    folded = fold_batch_norm(model, tmp_path / "folded")["folded"]
    assert not inspect_model(folded.path, tmp_path / "inspection")["inspection"].read().get("outside")
    for node in graph.object_graph_def.nodes:
        if node.WhichOneof("kind") == "asset":
            node.constant.operation = "words"
    assert [one.effect for one in find_effects(graph)] == ["reads files"] * (version - 1)
    del graph.asset_file_def[:]
    graph.collection_def.pop("saved_model_assets", None)
    assert [one.effect for one in find_effects(graph)] == ["reads files"]


def test_a_saved_model_of_keras_2_and_a_frozen_graph_with_effects_are_refused(tmp_path):
    import tf_keras

    written = str(tmp_path / "written")

    class Writes(tf_keras.layers.Layer):
        def call(self, x):
            return after(tf.io.write_file(written, "text"), x)

    inputs = tf_keras.Input((3,), name="x")
    tf_keras.Model(inputs, Writes()(inputs)).save(tmp_path / "model", save_format="tf")
    (tmp_path / "written").unlink(missing_ok=True)
    with pytest.raises(ComponentError, match="WriteFile writes files"):
        keras_models.load(Model(tmp_path / "model"))
    with tf.Graph().as_default() as graph:
        after(tf.io.write_file(written, "text"), v1.placeholder(tf.float32, [None, 3], "x"))
    (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with pytest.raises(ComponentError, match="WriteFile writes files"):
        optimize_graph(tmp_path / "graph.pb", tmp_path / "out", inputs=["x"], outputs=["Identity"])
    assert not (tmp_path / "written").exists()
