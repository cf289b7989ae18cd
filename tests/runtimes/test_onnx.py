"""The onnx runtime: dtypes and text, threads, and files that are damaged or ask for too much."""

import numpy as np
import pytest
from onnx import TensorProto as Type
from onnx import helper

from tests.runtimes import formulas
from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError


@pytest.fixture(scope="module")
def two_by_two(tmp_path_factory) -> Model:
    return formulas.crossed_onnx(tmp_path_factory.mktemp("größe 1"))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"])
def test_numeric_dtypes_are_passed_through(tmp_path, dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("Identity", ["x"], ["y"])
    runtime = runtimes.load(formulas.onnx(tmp_path / "m.onnx", [node], {"x": (kind, [None])}, {"y": (kind, [None])}))
    assert runtime.inputs == {"x": TensorSpec(dtype, (None,))} and runtime.outputs == {"y": TensorSpec(dtype, (None,))}
    values = np.array([0, 1, 1], dtype)
    answer = runtime.run({"x": values})["y"]
    assert answer.dtype == dtype and (answer == values).all()


def test_text_inputs_are_bytes_or_text_and_outputs_are_bytes(tmp_path):
    text = (Type.STRING, [None, 2])
    concat = helper.make_node("Concat", ["x", "x"], ["y"], axis=1)
    runtime = runtimes.load(formulas.onnx(tmp_path / "m.onnx", [concat], {"x": text}, {"y": (Type.STRING, [None, 4])}))
    expected = [[b"a", "ß".encode()] * 2]
    for values in ([["a", "ß"]], np.array([["a", "ß"]], object), np.array([[b"a", "ß".encode()]], object)):
        answer = runtime.run({"x": np.array(values)})["y"]
        assert answer.tolist() == expected and answer.dtype == object
    with pytest.raises(ComponentError, match="input 'x': bytes that are not text") as error:
        runtime.run({"x": np.array([[b"\xff", b"a"]], object)})
    assert "UTF-8" in error.value.expected


@pytest.mark.parametrize("keep", [0, 1, 20, 0.5, 0.999])
def test_truncated_files_are_rejected(two_by_two, tmp_path, keep):
    content = two_by_two.path.read_bytes()
    (tmp_path / "part.onnx").write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(ComponentError) as error:
        runtimes.load(Model(tmp_path / "part.onnx"))
    assert "part.onnx" in error.value.received and "truncated" in error.value.fix


@pytest.mark.parametrize(("op", "domain"), [("Erfc", ""), ("Bar", "com.foo")])
def test_ops_that_onnx_runtime_lacks_are_named(tmp_path, op, domain):
    free = (Type.FLOAT, [None])
    node = helper.make_node(op, ["x"], ["y"], domain=domain)
    model = formulas.onnx(tmp_path / "m.onnx", [node], {"x": free}, {"y": free})
    with pytest.raises(ComponentError, match=rf"op [\w.:]*{op}, which ONNX Runtime does not have"):
        runtimes.load(model)


def test_threads_are_each_models_own(two_by_two):
    ones = np.ones((2, 2), np.float32)
    for threads in (1, 2, None):
        runtime = runtimes.load(two_by_two, threads=threads)
        assert runtime.run({"zeta": ones, "alpha": ones})["a"].tolist() == [[2, 2]] * 2
        assert runtime._session.get_session_options().intra_op_num_threads == (threads or 0)


def test_a_closed_runtime_holds_nothing(two_by_two):
    with runtimes.load(two_by_two) as runtime:
        assert runtime._session
    assert not hasattr(runtime, "_session")
