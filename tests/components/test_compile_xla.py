"""Tests of `compile_xla`: marks, signatures, warm-up, cache, and models that XLA cannot compile."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.graph.saved_models import control_flow, two_ends
from tests.runtimes.formulas import saved
from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.artifacts.saved_model_proto import read_meta_graph
from tfopt.components.compile_xla import cache
from tfopt.components.compile_xla.compile import _check_slowdown, _compare_outputs
from tfopt.components.compile_xla.component import compile_xla
from tfopt.components.compile_xla.saved_model import MAY_COMPILE, write_compiled
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child
from tfopt.saved_models.saved_model import read, write
from tfopt.saved_models.unsupported_ops import find_unsupported_ops
from tfopt.serving import warm_up

FRESH = """
import json, sys
import numpy as np, tensorflow as tf
loaded = tf.saved_model.load(sys.argv[1])
serve = loaded.signatures["serving_default"]
marked = [f.signature.name for f in serve.graph.as_graph_def().library.function if f.attr["_XlaMustCompile"].b]
image = np.random.default_rng(0).uniform(0, 16, (5, 8, 8, 1)).astype(np.float32)
print(json.dumps({"marked": len(marked), "digit": serve(image=tf.constant(image))["digit"].numpy().tolist(),
                  "keys": sorted(loaded.signatures)}))
"""


@pytest.fixture(scope="module")
def compiled(digits_model, digits_examples, tmp_path_factory):
    target = tmp_path_factory.mktemp("compiled") / "compiled"
    outputs = compile_xla(
        model=digits_model, compiled=target, examples=digits_examples, batch_sizes=["4", "1"], static=True
    )
    return outputs["compiled"]


def test_a_frozen_model_has_kernels_of_xla_in_a_process_that_has_run_nothing(digits_model, tmp_path):
    write(read(digits_model / "Format-Serving"), tmp_path / "frozen")
    assert run_in_child(unsupported, tmp_path / "frozen", doing="looking") == {}


def unsupported(folder):
    return find_unsupported_ops(read(folder))


@pytest.mark.nightly  # measuring times checks the marks in a fresh process too; this process has only TensorFlow
def test_a_fresh_process_loads_the_marks_and_computes_the_outputs_of_the_parent(compiled, digits_model):
    printed = subprocess.run(
        [sys.executable, "-c", FRESH, str(compiled.saved_model)], check=True, capture_output=True, text=True
    ).stdout
    result = json.loads(printed.splitlines()[-1])
    assert result["marked"] >= 1
    assert result["keys"] == ["serving_default", "serving_default_batch_1", "serving_default_batch_4"]
    image = np.random.default_rng(0).uniform(0, 16, (5, 8, 8, 1)).astype(np.float32)
    expected = runtimes.load(SavedModel(digits_model)).run({"image": image})["digit"]
    np.testing.assert_allclose(result["digit"], expected, atol=1e-5)


def test_operations_are_in_a_function_marked_for_xla(compiled):
    loaded = tf.saved_model.load(str(compiled.saved_model))
    graph = loaded.signatures["serving_default"].graph.as_graph_def()
    (body,) = [function for function in graph.library.function if function.attr["_XlaMustCompile"].b]
    assert "Conv2D" in {node.op for node in body.node_def}
    assert "Conv2D" not in {node.op for node in graph.node}


def test_signatures_are_preserved_and_static_ones_added(compiled, digits_model):
    before, after = (runtimes.load(SavedModel(path)) for path in (digits_model, compiled.path))
    assert (after.inputs, after.outputs) == (before.inputs, before.outputs)
    fixed = runtimes.load(SavedModel(compiled.path), signature="serving_default_batch_4")
    assert fixed.inputs["image"].shape == (4, 8, 8, 1)
    assert fixed.outputs["digit"].shape == (4, 10)
    assert compiled.card.facts["report"]["static_signatures"] == ["serving_default_batch_1", "serving_default_batch_4"]


def test_compile_time_is_reported_separately_from_later_calls(compiled):
    speed = compiled.card.facts["report"]["speed"]
    for size in ("1", "4"):
        compiled_times, parent_times = (speed[name]["batches"][size] for name in ("compiled", "parent"))
        assert compiled_times["compile_s"] > compiled_times["call_s"] > 0
        assert parent_times["call_s"] > 0
    assert speed["compiled"]["load_s"] > 0


def test_warm_up_requests_have_the_format_of_tensorflow_serving(compiled):
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    records = tf.data.TFRecordDataset(str(compiled.saved_model / warm_up.FILE)).as_numpy_iterator()
    requests = [PredictionLog.FromString(record).predict_log.request for record in records]
    arrays = [tf.make_ndarray(request.inputs["image"]) for request in requests]
    assert [array.shape for array in arrays] == [(1, 8, 8, 1), (4, 8, 8, 1)]
    assert {request.model_spec.signature_name for request in requests} == {"serving_default"}
    assert arrays[1].max() == 16  # real digits
    assert compiled.card.facts["report"]["warm_up"] == {"batch_sizes": [1, 4]}


def test_warm_up_requests_are_written_without_the_package_of_tensorflow_serving(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    warm_up.write_requests(tmp_path, [{"x": np.arange(3.0), "text": np.array([b"a", b"b"], object)}])
    (request,) = warm_up.read_requests(tmp_path)
    assert request["x"].tolist() == [0, 1, 2]
    assert request["text"].tolist() == [b"a", b"b"]


def test_a_keras_file_is_compiled(tmp_path):
    import keras

    model = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(3, "tanh")])
    model.save(tmp_path / "model.keras")
    compiled = compile_xla(tmp_path / "model.keras", tmp_path / "compiled")["compiled"]
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    with runtimes.load(compiled) as runtime:
        (outputs,) = runtime.run({"x": x}).values()
    np.testing.assert_allclose(outputs, model(x), atol=1e-5)


def test_while_loops_and_branches_are_compiled(tmp_path):
    control_flow(tmp_path / "model")
    write_compiled(read(tmp_path / "model"), tmp_path / "compiled", [])
    arrays = {"x": np.array([[0.3, -0.7]], np.float32), "n": np.int32(3)}
    expected, received = (
        runtimes.load(SavedModel(tmp_path / folder)).run(arrays)["y"] for folder in ("model", "compiled")
    )
    np.testing.assert_allclose(received, expected, atol=1e-6)


def test_signatures_that_compute_the_same_share_one_program(tmp_path, monkeypatch):
    kernel = np.random.default_rng(0).normal(size=(150, 150)).astype(np.float32)

    def serve(factor, multiply=tf.multiply):
        return tf.function(
            lambda x: {"y": multiply(tf.tanh(x @ tf.constant(kernel)), factor)},
            input_signature=[tf.TensorSpec([None, 150], name="x")],
        )

    signatures = {
        "serving_default": serve(2.0),
        "serve": serve(2.0, lambda x, y: tf.multiply(y, x)),
        "other": serve(3.0),
    }
    tf.saved_model.save(tf.Module(), str(tmp_path / "model"), signatures=signatures)
    sizes, save = [], tf.saved_model.save

    def measured(module, folder, **options):
        save(module, folder, **options)
        sizes.append(Path(folder, "saved_model.pb").stat().st_size)

    monkeypatch.setattr(tf.saved_model, "save", measured)
    write_compiled(read(tmp_path / "model"), tmp_path / "compiled", [])
    assert max(sizes) < kernel.nbytes / 2, "TensorFlow makes several copies of the weights that it gets"
    functions = read_meta_graph(tmp_path / "compiled").graph_def.library.function
    assert sum("Tanh" in {node.op for node in function.node_def} for function in functions) == 2
    x = np.random.default_rng(1).normal(size=(3, 150)).astype(np.float32)
    with runtimes.load(SavedModel(tmp_path / "compiled")) as runtime:
        for key, factor in (("serving_default", 2), ("serve", 2), ("other", 3)):
            received = runtime.with_signature(key).run({"x": x})["y"]
            np.testing.assert_allclose(received, np.tanh(x @ kernel) * factor, atol=1e-5)


def test_static_signatures_with_clusters_are_refused(digits_model, tmp_path):
    with pytest.raises(ComponentError, match="pass mode='whole'"):
        compile_xla(model=digits_model, compiled=tmp_path / "compiled", mode="clusters", static=True)


def test_error_names_each_operation_that_xla_cannot_compile(tmp_path):
    two_ends(tmp_path / "text")
    with pytest.raises(ComponentError) as refusal:
        compile_xla(model=tmp_path / "text", compiled=tmp_path / "compiled")
    assert "LookupTableFindV2: it handles text" in refusal.value.received

    @tf.function(input_signature=[tf.TensorSpec([None], name="x")])
    def serve(x):
        return {"large": tf.gather_nd(x, tf.where(x > 0.5)), "image": tf.io.encode_base64(tf.as_string(x))}

    tf.saved_model.save(tf.Module(), str(tmp_path / "dynamic"), signatures=serve)
    with pytest.raises(ComponentError) as refusal:
        compile_xla(model=tmp_path / "dynamic", compiled=tmp_path / "compiled")
    for reason in (
        "AsString: it handles text",
        "EncodeBase64: it handles text",
        "Where: the size of its output depends",
    ):
        assert reason in refusal.value.received
    assert not (tmp_path / "compiled").exists()


def test_error_of_the_compiler_is_reported_without_its_headings(tmp_path):
    class Failing:
        def verify(self, child, tolerance, **options):
            raise RuntimeError("Graph execution error:\n\nDetected at node a\n<stack traces unavailable>\nno size of b")

    with pytest.raises(ComponentError, match="XLA: no size of b"):
        _compare_outputs(Failing(), tmp_path, 1e-4)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float32", 1e-4), pytest.param("float16", 1e-2, marks=pytest.mark.nightly), ("bfloat16", 5e-2)],
)
def test_the_default_tolerance_is_that_of_the_precision_of_the_parent(tmp_path, dtype, expected):
    serve = lambda x: {"y": tf.cast(tf.math.tanh(tf.cast(x, dtype)), tf.float32)}  # noqa: E731
    saved(tmp_path / "m", serve, x=([None, 3], tf.float32))
    made = compile_xla(model=SavedModel(tmp_path / "m"), compiled=tmp_path / "out", batch_sizes=["2"])["compiled"]
    assert made.metadata["verified"]["tolerance"] == expected


@pytest.mark.parametrize(("slow", "fast"), [(5.1, 4.9), (50.0, 1.0)])
def test_only_a_model_that_is_too_slow_at_every_batch_size_is_refused(slow, fast):
    parent = {1: {"call_s": 0.01, "compile_s": 0.0}, 32: {"call_s": 0.1, "compile_s": 0.0}}
    compiled = {1: {"call_s": slow * 0.01, "compile_s": 9.0}, 32: {"call_s": fast * 0.1, "compile_s": 9.0}}
    _check_slowdown(parent, compiled, 5.0)
    compiled[32]["call_s"] = 0.6
    expected = rf"{slow:.3g} times at batch size 1, 6 times at batch size 32(.|\n)*at most 5 times \(max_slowdown\)"
    with pytest.raises(ComponentError, match=expected):
        _check_slowdown(parent, compiled, 5.0)


def test_a_compiled_model_is_refused_where_xla_is_slow(tmp_path):
    def serve(x):  # XLA computes it as a whole convolution, with zeros
        return {"y": tf.nn.depthwise_conv2d(x, tf.ones([3, 3, 64, 1]), [1, 1, 1, 1], "SAME")}

    model = saved(tmp_path / "model", serve, x=([1, 16, 16, 64], tf.float32))
    with pytest.raises(ComponentError, match="takes longer than the parent's") as error:
        compile_xla(model=model, compiled=tmp_path / "compiled", max_slowdown=2.0)
    assert "leave the model as it is" in error.value.fix and not (tmp_path / "compiled").exists()


def test_batch_size_zero_is_refused(digits_model, tmp_path):
    with pytest.raises(ComponentError, match="whole numbers"):
        compile_xla(model=digits_model, compiled=tmp_path / "compiled", batch_sizes=["0"])


@pytest.mark.parametrize(
    ("serve", "expected"),
    [(lambda x: tf.tanh(x) * 2, "the same results"), (lambda x: tf.reduce_max(x, 1), "instead of nan on NaN")],
    ids=["tanh", "maximum"],
)
def test_results_that_differ_on_special_values_are_reported(tmp_path, serve, expected):
    function = tf.function(lambda x: {"y": serve(x)}, input_signature=[tf.TensorSpec([None, 4], name="x")])
    tf.saved_model.save(tf.Module(), str(tmp_path / "model"), signatures=function)
    made = compile_xla(tmp_path / "model", compiled=tmp_path / "compiled", warm_up=False)
    special = made["compiled"].card.facts["report"]["special_values"]
    assert expected in (special if isinstance(special, str) else special[0])


def write_lstm(folder):
    """Export a masked LSTM and a causal convolution of sequences of any length."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    steps = layers.Input((None, 3), name="steps")
    flow = layers.LSTM(4, return_sequences=True)(layers.Masking()(steps))
    outputs = {"each": layers.Conv1D(2, 2, padding="causal")(steps), "all": layers.LSTM(3)(flow)}
    keras.Model(steps, outputs).export(str(folder), verbose=False)


def write_sums(folder, reduce=tf.reduce_sum):
    """Export a model of sequences of any length: a value for each step that depends on earlier ones, and a reduction.

    A sum ignores added steps of zeros, as the steps are multiplied by a kernel without a bias.
    """
    kernel = tf.constant(np.random.default_rng(0).normal(size=(3, 4)), tf.float32)

    def serve(steps):
        flow = tf.tanh(steps @ kernel)
        return {"each": tf.cumsum(flow, 1), "all": reduce(flow, 1)}

    saved(folder, serve, steps=([None, None, 3], tf.float32))


def write_means(folder):
    write_sums(folder, tf.reduce_mean)


def write_two_sequences(folder):
    sequence = [None, None], tf.float32
    saved(folder, lambda steps, others: {"y": steps + others}, steps=sequence, others=sequence)


@pytest.mark.parametrize("write_sequences", [write_sums, pytest.param(write_lstm, marks=pytest.mark.nightly)])
def test_sequences_are_padded_to_buckets_each_compiled_once_and_outputs_cut(write_sequences, tmp_path):
    write_sequences(tmp_path / "model")
    made = compile_xla(tmp_path / "model", compiled=tmp_path / "compiled", sequence_buckets=["8", "4"])["compiled"]
    parent, child = (runtimes.load(SavedModel(path)) for path in (tmp_path / "model", made.path))
    assert parent.outputs == child.outputs and parent.inputs == child.inputs
    times = {}
    for length in (1, 3, 4, 5, 7, 8, 11):
        steps = np.random.default_rng(length).normal(size=(2, length, 3)).astype(np.float32)
        start = time.perf_counter()
        received = child.run({"steps": steps})
        times[length] = time.perf_counter() - start
        expected = parent.run({"steps": steps})
        for name in expected:
            assert expected[name].shape == received[name].shape
            assert np.allclose(expected[name], received[name], atol=1e-5)
    assert max(times[length] for length in (3, 4)) < times[1] / 5
    assert max(times[length] for length in (7, 8)) < times[5] / 5
    facts = made.card.facts["report"]["sequence_buckets"]
    assert facts["lengths"] == [4, 8] and facts["error"] < 1e-4
    lengths = [batch["steps"].shape[1] for batch in warm_up.read_requests(made.saved_model)]
    assert lengths[-2:] == [4, 8]


@pytest.mark.parametrize(
    ("write", "parameters", "message"),
    [
        (write_means, {}, "padding sequences of length .* changes output 'all'"),
        (write_two_sequences, {}, "2 inputs have an open second axis: others, steps"),
        (write_sums, {"sequence_buckets": ["0"]}, "sequence_buckets: '0'"),
        (write_sums, {"mode": "clusters"}, "only the input of one program is padded"),
    ],
    ids=["means", "two inputs", "zero", "clusters"],
)
def test_models_that_padding_changes_are_refused(tmp_path, write, parameters, message):
    write(tmp_path / "model")
    with pytest.raises(ComponentError, match=message):
        compile_xla(tmp_path / "model", compiled=tmp_path / "compiled", **{"sequence_buckets": ["4"], **parameters})


# The tests below start more servers of processes than may run at once; those above share one.


@pytest.fixture(scope="module")
def clustered(tmp_path_factory):
    """Compile a model with text in clusters, and store the compiled programs."""
    folder = tmp_path_factory.mktemp("clustered") / "a folder"  # TensorFlow's flags end at a space
    folder.mkdir()
    kernel = tf.constant(np.random.default_rng(0).normal(size=(8, 8)), tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([None, 8], name="x")])
    def serve(x):
        flow = tf.nn.relu(tf.sin(x @ kernel) * 1.5 + tf.tanh(x))
        return {"scores": tf.nn.softmax(flow @ kernel), "largest": tf.as_string(tf.argmax(flow, 1))}

    tf.saved_model.save(tf.Module(), str(folder / "model"), signatures=serve)
    outputs = compile_xla(
        model=folder / "model", compiled=folder / "compiled", mode="clusters", cache=True, warm_up=False
    )
    return folder / "model", outputs["compiled"]


def test_clusters_compile_all_operations_that_xla_supports(clustered):
    model, compiled = clustered
    report = compiled.card.facts["report"]
    assert (report["mode"], report["warm_up"]) == ("clusters", "not requested")
    assert not (compiled.saved_model / "assets.extra" / "tf_serving_warmup_requests").exists()
    assert report["not_compiled"]["AsString"].startswith("it handles text")
    assert report["may_be_compiled"] >= 7
    marked = {node.op for node in read(compiled.saved_model).graph.node if MAY_COMPILE in node.attr}
    assert {"MatMul", "Sin", "Tanh", "Softmax"} <= marked
    assert "AsString" not in marked
    before, after = (runtimes.load(SavedModel(path)) for path in (model, compiled.path))
    batch = {"x": np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)}
    expected, received = before.run(batch), after.run(batch)
    np.testing.assert_allclose(received["scores"], expected["scores"], atol=1e-6)
    assert received["largest"].tolist() == expected["largest"].tolist()


def test_cache_is_stored_and_read_in_a_fresh_process(clustered):
    _, compiled = clustered
    stored = compiled.card.facts["report"]["cache"]
    files = list((compiled.saved_model / cache.FOLDER).iterdir())
    assert stored["programs"] == len(files) >= 1
    assert stored["bytes"] == sum(file.stat().st_size for file in files)
    assert f"PATH_OF_THE_MODEL/{cache.FOLDER}" in stored["TF_XLA_FLAGS"]
    assert stored["processor"]
    assert stored["from_cache"]["batches"]["1"]["call_s"] > 0


def test_model_without_compilable_operations_is_refused(tmp_path):
    serve = tf.function(lambda x: {"y": tf.as_string(x)}, input_signature=[tf.TensorSpec([None], name="x")])
    tf.saved_model.save(tf.Module(), str(tmp_path / "model"), signatures=serve)
    with pytest.raises(ComponentError, match="compiles nothing of this model"):
        compile_xla(model=tmp_path / "model", compiled=tmp_path / "compiled", mode="clusters", warm_up=False)
