"""Test that models whose calls never end are refused by all formats and components, and leave nothing behind."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.saved_models.test_effects import write_v1
from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.component import components
from tfopt.errors import ComponentError
from tfopt.processes import call_limit

ONE = np.ones((1, 4), np.float32)


@pytest.fixture(autouse=True)
def _short_limit(monkeypatch):
    monkeypatch.setattr(call_limit, "MINIMUM_S", 1.0)
    monkeypatch.setattr(call_limit, "SECONDS_PER_MB", 0.0)


def reduce_without_end(x):
    """Reduce a dataset that repeats for ever."""
    import tensorflow as tf

    total = tf.data.Dataset.range(1).repeat().reduce(np.int64(0), lambda before, item: before + item)
    return x * tf.cast(total, tf.float32)


def loop_without_end(x):
    """Loop until something is true that never is."""
    import tensorflow as tf

    return tf.while_loop(lambda value: tf.reduce_sum(value * 0) < 1, lambda value: [value * 0.5], [x])[0]


def write_saved_model(folder: Path, body) -> Path:
    """Write a SavedModel with an input of four numbers."""
    import tensorflow as tf

    module = tf.Module()
    serve = tf.function(lambda x: {"y": body(x)}, input_signature=[tf.TensorSpec([None, 4], name="x")])
    tf.saved_model.save(module, str(folder), signatures=serve)
    return folder


def write_onnx(file: Path, limit: str = "") -> Path:
    """Write an ONNX model with a Loop, without a bound unless an input is its limit."""
    import onnx
    from onnx import TensorProto as Types
    from onnx import helper

    infos = helper.make_tensor_value_info
    nodes = [helper.make_node("Identity", ["go"], ["goes"]), helper.make_node("Mul", ["v", "v"], ["w"])]
    inner = [infos("i", Types.INT64, []), infos("go", Types.BOOL, []), infos("v", Types.FLOAT, None)]
    body = helper.make_graph(nodes, "body", inner, [infos("goes", Types.BOOL, []), infos("w", Types.FLOAT, None)])
    inputs = [infos("x", Types.FLOAT, ["N", 4]), *([infos(limit, Types.INT64, [])] if limit else [])]
    graph = helper.make_graph(
        [helper.make_node("Loop", [limit, "true", "x"], ["y"], body=body)],
        "graph",
        inputs,
        [infos("y", Types.FLOAT, ["N", 4])],
        [helper.make_tensor("true", Types.BOOL, [], [True])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file)
    return file


def write_tflite(file: Path) -> Path:
    """Convert a loop to LiteRT's WHILE."""
    import tensorflow as tf

    folder = write_saved_model(file.with_suffix(""), loop_without_end)
    file.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(folder)).convert())
    return file


def write_openvino(file: Path) -> Path:
    """Convert an ONNX Loop to OpenVINO."""
    import openvino

    openvino.save_model(openvino.convert_model(str(write_onnx(file.with_suffix(".onnx")))), str(file))
    return file


WRITERS = {
    "reduce": lambda folder: write_saved_model(folder / "model", reduce_without_end),
    "while": lambda folder: write_saved_model(folder / "model", loop_without_end),
    "onnx": lambda folder: write_onnx(folder / "model.onnx"),
    "tflite": lambda folder: write_tflite(folder / "model.tflite"),
    "openvino": lambda folder: write_openvino(folder / "model.xml"),
}


@pytest.mark.parametrize("name", ["reduce", "while", "onnx"])
def test_a_call_without_end_is_refused_once_and_then_at_once(name, tmp_path):
    with runtimes.load(Model(WRITERS[name](tmp_path))) as runtime:
        with pytest.raises(ComponentError, match=r"a call of .* with 1 records: no end after"):
            runtime.run({"x": ONE})
        start = time.monotonic()
        with pytest.raises(ComponentError, match="no end after"):
            runtime.run({"x": ONE})
        assert time.monotonic() - start < 0.8
        start = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - start < 0.25  # it was stopped


def test_a_loop_with_an_end_is_run_to_its_end(tmp_path):
    runtime = runtimes.load(Model(write_onnx(tmp_path / "model.onnx", limit="n")))
    for count in (3, 1000):
        assert runtime.run({"x": ONE, "n": np.array(count)})["y"].tolist() == ONE.tolist()
    with pytest.raises(ComponentError, match="no end after"):
        runtime.run({"x": ONE, "n": np.array(2**62)})


@pytest.mark.parametrize(
    "name",
    [
        *("cast_precision", "compile_xla"),
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("fold_batch_norm", "optimize_graph")),
    ],
)
def test_components_refuse_such_a_model_and_leave_nothing(name, tmp_path):
    body = reduce_without_end if name == "cast_precision" else loop_without_end
    model = write_saved_model(tmp_path / "model", body)
    component = components()[name]
    (output,) = component.outputs
    with pytest.raises(ComponentError, match="no end after"):
        component(model=model, **{output: tmp_path / "output"})
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def initialize_without_end():
    """Return an operation that never ends."""
    import tensorflow as tf

    return tf.group(tf.while_loop(lambda v: v < 1, lambda v: [v * 0.5], [tf.constant(0.5)]))


def test_an_initialization_without_end_is_refused(tmp_path):
    model = Model(write_v1(tmp_path / "model", lambda x: x, initialize_without_end))
    with pytest.raises(ComponentError, match=r"loading .*: no end after"):
        components()["optimize_graph"](model=model, optimized=tmp_path / "output")
    assert not (tmp_path / "output").exists()


ENDING = """
import sys
import numpy as np
from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.errors import ComponentError
from tfopt.processes import call_limit
call_limit.MINIMUM_S = 1
try:
    runtime = runtimes.load(Model(sys.argv[1]))
    runtime.run({name: np.ones((1, 4), np.float32) for name in runtime.inputs})
except ComponentError as error:
    print(error.received)
"""


@pytest.mark.parametrize("name", ["onnx", "tflite", pytest.param("openvino", marks=pytest.mark.nightly)])
def test_the_process_ends_after_such_a_call(name, tmp_path):
    command = [sys.executable, "-c", ENDING, str(WRITERS[name](tmp_path))]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0 and ": no end after" in run.stdout, run.stderr
    assert "terminate" not in run.stderr
