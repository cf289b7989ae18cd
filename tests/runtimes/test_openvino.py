"""Test the openvino runtime: names, dtypes, float32 on every CPU, threads, telemetry and damaged files."""

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.runtimes import formulas
from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError
from tfopt.runtimes.openvino_import import openvino as ov

ops = ov.opset13


@pytest.fixture(scope="module")
def two_by_two(tmp_path_factory) -> Model:
    return formulas.crossed_openvino(tmp_path_factory.mktemp("größe 1"))


def test_a_tensor_with_several_names_is_returned_under_each(tmp_path):
    def twice(x):
        double = ops.add(x, x)
        return {"p": double, "q": double, "r": x}

    runtime = runtimes.load(formulas.openvino(tmp_path, {"x": ("float32", [-1])}, twice))
    answer = runtime.run({"x": np.array([1, 2], np.float32)})
    assert {name: array.tolist() for name, array in answer.items()} == {"p": [2, 4], "q": [2, 4], "r": [1, 2]}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"])
def test_numeric_dtypes_are_passed_through(tmp_path, dtype):
    runtime = runtimes.load(formulas.openvino(tmp_path, {"x": (dtype, [-1])}, lambda x: {"y": ops.concat([x, x], 0)}))
    assert runtime.inputs == {"x": TensorSpec(dtype, (None,))} and runtime.outputs == {"y": TensorSpec(dtype, (None,))}
    values = np.array([0, 1, 1], dtype)
    answer = runtime.run({"x": values})["y"]
    assert answer.dtype == dtype and (answer == np.tile(values, 2)).all()


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_integers_above_32_bits_are_rejected(tmp_path, value):
    model = formulas.openvino(tmp_path, {"x": ("int64", [-1])}, lambda x: {"y": ops.add(x, ops.constant(np.int64(0)))})
    runtime = runtimes.load(model)
    edges = np.array([2**31 - 1, -(2**31)])
    assert (runtime.run({"x": edges})["y"] == edges).all()
    with pytest.raises(ComponentError, match="32 bits") as error:
        runtime.run({"x": np.array([value, 1])})
    assert str(value) in error.value.received and "ONNX" in error.value.fix


def test_text_is_rejected(tmp_path):
    parameter = ops.parameter([-1], ov.Type.string, name="word")
    (tmp_path / "m").mkdir()
    ov.save_model(ov.Model([ops.result(parameter)], [parameter]), tmp_path / "m/model.xml")
    (tmp_path / "m/model.bin").touch()
    with pytest.raises(ComponentError, match="is text") as error:
        runtimes.load(Model(tmp_path / "m"))
    assert "numbers" in error.value.expected and "ONNX" in error.value.fix


def test_float32_is_not_computed_in_bfloat16(tmp_path):
    kernel = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    model = formulas.openvino(
        tmp_path, {"x": ("float32", [-1, 64])}, lambda x: {"y": ops.matmul(x, ops.constant(kernel), False, False)}
    )
    runtime = runtimes.load(model)
    x = np.random.default_rng(1).normal(size=(4, 64)).astype(np.float32)
    np.testing.assert_allclose(runtime.run({"x": x})["y"], x @ kernel, atol=1e-4)  # bfloat16: 1e-1
    assert runtime._compiled.get_property("INFERENCE_PRECISION_HINT") == ov.Type.f32


@pytest.mark.parametrize("part", ["model.xml", "model.bin"])
@pytest.mark.parametrize("keep", [0, 0.5, 0.9])
def test_truncated_files_are_rejected(tmp_path, part, keep):
    kernel = ops.constant(np.ones((1, 2), np.float32))
    whole = formulas.openvino(tmp_path / "whole", {"x": ("float32", [-1, 2])}, lambda x: {"y": ops.add(x, kernel)})
    for name in ("model.xml", "model.bin"):
        content = (whole.path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: int(keep * len(content))] if name == part else content)
    with pytest.raises(ComponentError) as error:
        runtimes.load(Model(tmp_path))
    assert "model.xml" in error.value.received and "truncated" in error.value.fix
    assert "Exception from" not in error.value.received


def test_threads_are_set_per_model(two_by_two):
    ones = np.ones((2, 2), np.float32)
    for threads in (1, 2, None):
        runtime = runtimes.load(two_by_two, threads=threads)
        assert runtime.run({"zeta": ones, "alpha": ones})["a"].tolist() == [[2, 2]] * 2
        assert runtime._compiled.get_property("NUM_STREAMS") == 1
        usable = len(os.sched_getaffinity(0))
        assert runtime._compiled.get_property("INFERENCE_NUM_THREADS") == min(threads or usable, usable)


def test_close_releases_the_model(two_by_two):
    with runtimes.load(two_by_two) as runtime:
        assert runtime._compiled
    assert not hasattr(runtime, "_compiled") and not hasattr(runtime, "_request")


def test_telemetry_is_not_imported_unless_the_user_did():
    code = "import sys; from tfopt.runtimes.openvino_import import openvino; print('openvino_telemetry' in sys.modules)"
    for first, is_imported in (("", "False"), ("import openvino_telemetry\n", "True")):
        process = subprocess.run([sys.executable, "-c", first + code], check=True, capture_output=True, text=True)
        assert process.stdout.split() == [is_imported]
