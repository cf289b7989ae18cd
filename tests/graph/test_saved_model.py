"""Tests of reading and writing SavedModels and GraphDefs as frozen models."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.graph import saved_models
from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.components.optimize_graph.component import optimize_graph
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Frozen
from tfopt.keras_models.model_code import trusted_code
from tfopt.processes.subprocess_call import run_in_child
from tfopt.saved_models.graph_file import read_graph, write_graph
from tfopt.saved_models.saved_model import read, write

INPUTS = {
    "two_ends": {
        "serving_default": {
            "zebra": np.random.default_rng(1).normal(size=(3, 5, 3)).astype(np.float32),
            "animal": np.array(["dog", "fish", "bird"], object),
        },
        "embed": {"row": np.random.default_rng(2).normal(size=(2, 3)).astype(np.float32)},
    },
    "control_flow": {
        "serving_default": {"x": np.array([[0.3, -0.7]], np.float32), "n": np.int32(3)},
    },
    "estimator": {
        "serving_default": {"x": np.random.default_rng(3).normal(size=(6, 4)).astype(np.float32)},
        "words": {"word": np.array(["two", "three", "one"], object)},
    },
}
KINDS = pytest.mark.parametrize("kind", INPUTS)


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> dict[str, Path]:
    """Export each kind of SavedModel, and delete the vocabulary files that they were made from."""
    folders = {}
    for kind in (*INPUTS, "counter", "mutable_table"):
        folder = tmp_path_factory.mktemp(kind)
        getattr(saved_models, kind)(folder / "model")
        for file in folder.glob("*.txt"):
            file.unlink()
        folders[kind] = folder / "model"
    return folders


@pytest.fixture(scope="module")
def frozen(exported) -> dict[str, Frozen]:
    return {kind: read(exported[kind]) for kind in INPUTS}


@pytest.fixture(scope="module")
def written(frozen, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("written")
    for kind, model in frozen.items():
        write(model, folder / kind)
    return {kind: folder / kind for kind in frozen}


@KINDS
def test_outputs_of_every_signature_are_unchanged(kind, exported, written):
    for key, arrays in INPUTS[kind].items():
        before, after = (runtimes.load(SavedModel(one[kind]), signature=key) for one in (exported, written))
        for name, expected in before.run(arrays).items():
            received = after.run(arrays)[name]
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(received, expected, rtol=2e-6, atol=1e-6)
            else:
                assert received.tolist() == expected.tolist()


@KINDS
def test_names_dtypes_and_shapes_are_preserved(kind, exported, written):
    for key in INPUTS[kind]:
        before, after = (runtimes.load(SavedModel(one[kind]), signature=key) for one in (exported, written))
        assert (after.inputs, after.outputs) == (before.inputs, before.outputs)


@KINDS
def test_written_model_is_read_unchanged(kind, frozen, written, tmp_path):
    again = read(written[kind])
    assert {key: (dict(one.inputs), list(one.outputs)) for key, one in again.signatures.items()} == {
        key: (dict(one.inputs), list(one.outputs)) for key, one in frozen[kind].signatures.items()
    }
    assert len(again.graph.node) <= len(frozen[kind].graph.node) + len(again.outputs)


def test_signature_on_disk_equals_that_of_the_parent(exported, written):
    def on_disk(folder):
        from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as Proto

        signatures = Proto.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs[0].signature_def
        return {
            key: [
                {name: (info.dtype, str(info.tensor_shape)) for name, info in side.items()}
                for side in (one.inputs, one.outputs)
            ]
            for key, one in signatures.items()
            if not key.startswith("__")
        }

    for kind in INPUTS:
        assert on_disk(written[kind]) == on_disk(exported[kind])


def test_signatures_share_their_constants(frozen):
    import tensorflow as tf

    shapes = [
        tf.make_ndarray(node.attr["value"].tensor).shape for node in frozen["two_ends"].graph.node if node.op == "Const"
    ]
    assert shapes.count((3, 4)) == 1


def test_variables_calls_and_custom_gradients_are_removed(frozen):
    for model in frozen.values():
        nodes = [*model.graph.node, *(node for one in model.graph.library.function for node in one.node_def)]
        assert not {node.op for node in nodes} & {
            "VarHandleOp",
            "VariableV2",
            "ReadVariableOp",
            "StatefulPartitionedCall",
        }
        assert not any("_gradient_op_type" in node.attr for node in nodes)


def test_while_and_if_keep_their_functions(frozen):
    model = frozen["control_flow"]
    ops = {node.op for node in model.graph.node}
    assert ops & {"While", "StatelessWhile"}
    assert ops & {"If", "StatelessIf"}
    assert len(model.graph.library.function) == 4
    assert not ops & {"Switch", "Merge", "Enter"}


def test_written_model_serves_in_a_new_process_without_its_source_files(written, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(written["two_ends"], moved)
    assert run_in_child(saved_models.number_of_an_animal, moved, "bird", doing="serving") == [2.0]
    assert [file.name for file in (moved / "assets").iterdir()] == ["vocabulary.txt"]


def test_tables_of_the_same_name_are_separate_in_one_process(exported, written, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(written["two_ends"], other)
    (other / "assets" / "vocabulary.txt").write_text("bird\ncat\n")
    loaded = [runtimes.load(SavedModel(folder)) for folder in (written["two_ends"], other)]
    arrays = {"zebra": np.zeros((1, 1, 3), np.float32), "animal": np.array(["bird"], object)}
    assert [float(model.run(arrays)["number"][0]) for model in loaded] == [2.0, 0.0]


def test_writing_is_deterministic(exported, tmp_path):
    files = []
    for name in ("one", "two"):
        write(read(exported["two_ends"]), tmp_path / name)
        files.append((tmp_path / name / "saved_model.pb").read_bytes())
    assert files[0] == files[1]


def test_unused_input_stays_and_equal_outputs_are_separate(tmp_path):
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32, name="used"), tf.TensorSpec([2], name="unused")])
    def serve(used, unused):
        return {"same": used, "again": used, "double": 2.0 * used, "triple": 3.0 * used}

    tf.saved_model.save(tf.Module(), str(tmp_path / "model"), signatures=serve)
    write(read(tmp_path / "model"), tmp_path / "written")
    loaded = runtimes.load(SavedModel(tmp_path / "written"))
    assert list(loaded.inputs) == ["unused", "used"]
    answer = loaded.run({"used": np.array([1, 2], np.float32), "unused": np.zeros(2, np.float32)})
    assert answer["same"].tolist() == answer["again"].tolist() == [1, 2]
    assert (answer["double"].tolist(), answer["triple"].tolist()) == ([2, 4], [3, 6])


def test_written_model_converts_to_tflite(digits_model, tmp_path):
    from tfopt.components.export_tflite.component import export_tflite

    write(read(digits_model / "Format-Serving"), tmp_path / "model")
    lite = export_tflite(model=tmp_path / "model", exported=tmp_path / "lite")["exported"]
    assert lite.metadata["verified"]["run"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [("counter", "changes its variables while it serves.*Assign"), ("mutable_table", "MutableHashTable")],
)
def test_mutable_state_is_refused_by_name(kind, message, exported):
    with pytest.raises(ComponentError, match=message):
        read(exported[kind])


def test_folder_without_a_model_or_with_a_truncated_one_is_refused(tmp_path, exported):
    with pytest.raises(ComponentError, match=r"saved_model\.pb"):
        read(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes((exported["counter"] / "saved_model.pb").read_bytes()[:-20])
    with pytest.raises(ComponentError, match="export it again"):
        read(tmp_path)


def test_missing_asset_is_refused_when_written(frozen, tmp_path):
    model = frozen["two_ends"]
    lost = replace(model, assets={tensor: tmp_path / "lost.txt" for tensor in model.assets})
    with pytest.raises(ComponentError, match=r"lost\.txt"):
        write(lost, tmp_path / "written")


def test_graph_def_is_written_and_read_by_names_of_inputs_and_outputs(exported, tmp_path, digits_model):
    model = read(digits_model / "Format-Serving")
    signature = model.signatures["serving_default"]
    write_graph(model, tmp_path / "digits.pb")
    feeds = [end.tensor for end in signature.inputs.values()]
    fetches = [end.node for end in signature.outputs.values()]
    again = read_graph(tmp_path / "digits.pb", feeds, fetches)
    write(again, tmp_path / "model")
    parent, child = (runtimes.load(SavedModel(path)) for path in (digits_model, tmp_path / "model"))
    image = np.random.default_rng(0).uniform(0, 16, (4, 8, 8, 1)).astype(np.float32)
    (expected,), (received,) = (one.run({next(iter(one.inputs)): image}).values() for one in (parent, child))
    np.testing.assert_allclose(received, expected, atol=1e-6)


def test_outputs_with_equal_short_names_get_distinct_names(tmp_path):
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        a, b = (tf.compat.v1.placeholder(tf.float32, [2], name=name) for name in "ab")
        tf.identity_n([2.0 * a, 3.0 * b], name="n")
        tf.add(a, b, name="scope/n")
    (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    write(read_graph(tmp_path / "graph.pb", ["a", "b"], ["n", "n:1", "scope/n"]), tmp_path / "model")
    answer = runtimes.load(SavedModel(tmp_path / "model")).run({name: np.ones(2, np.float32) for name in "ab"})
    assert {name: array.tolist() for name, array in answer.items()} == {"n": [2, 2], "n_1": [3, 3], "scope_n": [2, 2]}


def test_graph_with_tables_or_wrong_names_is_refused(tmp_path, frozen):
    with pytest.raises(ComponentError, match="lookup tables"):
        write_graph(frozen["two_ends"], tmp_path / "graph.pb")
    write_graph(frozen["control_flow"], tmp_path / "graph.pb")
    with pytest.raises(ComponentError, match="no tensor nowhere"):
        read_graph(tmp_path / "graph.pb", ["nowhere"], ["serving_default_y"])
    (tmp_path / "graph.pb").write_bytes(b"no graph")
    with pytest.raises(ComponentError, match="GraphDef"):
        read_graph(tmp_path / "graph.pb", ["x"], ["y"])


def write_v1(folder, build, change=lambda graph: None):
    """Write a SavedModel of TensorFlow 1 with an input x of rank 2, and change its graph afterwards."""
    import tensorflow as tf
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as Proto

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        tf.compat.v1.saved_model.simple_save(session, str(folder), {"x": x}, {"y": build(x)})
    proto = Proto.FromString((folder / "saved_model.pb").read_bytes())
    change(proto.meta_graphs[0].graph_def)
    (folder / "saved_model.pb").write_bytes(proto.SerializeToString())


def from_queue(x):
    """Add a record of a queue to x."""
    import tensorflow as tf

    queue = tf.queue.FIFOQueue(3, [tf.float32], shapes=[[4]])
    return x + queue.dequeue()


def python_call(x):
    """Call Python code."""
    import tensorflow as tf

    return tf.reshape(tf.numpy_function(lambda values: 2 * values, [x], tf.float32), [-1, 4])


def normalized(x):
    """Return a batch norm of images."""
    import tensorflow as tf

    return tf.reshape(
        tf.compat.v1.nn.fused_batch_norm(x[:, None, None], *[tf.ones(4)] * 4, is_training=False)[0], [-1, 4]
    )


def remove(graph):
    """Replace the batch norm by the operation that it had before TensorFlow removed that."""
    for node in graph.node:
        if node.op.startswith("FusedBatchNorm"):
            kind, data = node.attr["T"].type, list(node.input)
            node.attr.clear()
            node.op, node.attr["T"].type = "BatchNormWithGlobalNormalization", kind
            node.attr["variance_epsilon"].f, node.attr["scale_after_normalization"].b = 1e-3, True
            node.input[:] = [data[0], data[3], data[4], data[2], data[1]]


def remove_without_successor(graph):
    """Replace the batch norm by an operation that TensorFlow removed without a successor."""
    node = next(node for node in graph.node if node.op.startswith("FusedBatchNorm"))
    size = graph.node.add(name="size", op="Const")
    size.attr["dtype"].type, size.attr["value"].tensor.dtype = 9, 9  # int64
    size.attr["value"].tensor.int64_val.extend([2, 2])
    size.attr["value"].tensor.tensor_shape.dim.add(size=2)
    kind, data = node.attr["T"].type, node.input[0]
    node.attr.clear()
    node.op, node.attr["T"].type = "RandomCrop", kind
    node.input[:] = [data, "size"]


@pytest.mark.parametrize("producer", [8, None])
def test_saved_model_with_removed_operations_is_optimized(producer, tmp_path):
    def change(graph):
        remove(graph)
        graph.versions.producer = producer or graph.versions.producer

    write_v1(tmp_path / "old", normalized, change)
    write_v1(tmp_path / "new", normalized)
    made = optimize_graph(tmp_path / "old", tmp_path / "made")["optimized"]
    assert not {"BatchNormWithGlobalNormalization", "FusedBatchNormV3"} & {
        node.op for node in read(made.path / "Format-Serving").graph.node
    }
    x = {"x": np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)}
    expected, received = (runtimes.load(SavedModel(path)).run(x)["y"] for path in (tmp_path / "new", made.path))
    np.testing.assert_allclose(received, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "change", "received", "fix"),
    [
        (from_queue, lambda graph: None, r"state outside its graph: .*FIFOQueueV2\).*QueueDequeueV2", "without these"),
        (python_call, lambda graph: None, r"Python code, which is not in the file: PyFunc \(PyFunc\)", "without these"),
        (normalized, remove_without_successor, "Op RandomCrop .*removed in version 8", "frozen graph, .pb"),
    ],
    ids=["queue", "Python code", "removed operation"],
)
def test_operations_that_cannot_be_frozen_are_named(tmp_path, build, change, received, fix):
    write_v1(tmp_path / "model", build, change)
    with trusted_code(True), pytest.raises(ComponentError) as refusal:
        read(tmp_path / "model", state=True)
    assert re.search(received, refusal.value.received)
    assert fix in refusal.value.fix
    assert "truncated" not in refusal.value.fix


def test_a_parent_that_fails_is_named_instead_of_its_child(tmp_path):
    write_v1(tmp_path / "model", python_call)
    paths = [tmp_path / name for name in ("model", "folded")]
    with trusted_code(True), pytest.raises(ComponentError) as refusal:  # the function is unknown to another process
        run_in_child(saved_models.fold, *paths, doing="folding")
    assert refusal.value.received.startswith("the model fails on random inputs")
    assert "PyFunc" in refusal.value.received
