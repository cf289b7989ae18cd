"""The onnx runtime: names, batch sizes, dtypes and text, threads, and files that are damaged or ask for too much."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto as Type
from onnx import helper

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.errors import ComponentError
from tfopt.runtimes import TensorSpec


def written(file, nodes, inputs, outputs, constants=()) -> Model:
    """An ONNX file of these nodes; inputs and outputs as name=(element type, shape)."""
    infos = [
        [helper.make_tensor_value_info(name, *given) for name, given in ends.items()] for ends in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "g", *infos, [onnx.numpy_helper.from_array(v, n) for n, v in constants])
    file.parent.mkdir(parents=True, exist_ok=True)
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.foo", 1)], ir_version=10
    )
    file.write_bytes(made.SerializeToString())
    return Model(file)


@pytest.fixture(scope="module")
def two_by_two(tmp_path_factory) -> Model:
    """z = zeta - alpha, a = 2 alpha, with inputs and outputs in no alphabetical order."""
    free = (Type.FLOAT, ["batch", 2])
    return written(
        tmp_path_factory.mktemp("größe 1") / "model.onnx",
        [helper.make_node("Sub", ["zeta", "alpha"], ["z"]), helper.make_node("Add", ["alpha", "alpha"], ["a"])],
        {"zeta": free, "alpha": free},
        {"z": free, "a": free},
    )


def test_inputs_and_outputs_go_by_name_at_any_batch_size(two_by_two):
    runtime = runtimes.load(two_by_two)
    assert runtime.inputs == dict.fromkeys(["alpha", "zeta"], TensorSpec("float32", (None, 2)))
    assert list(runtime.outputs) == ["z", "a"]
    for batch in (1, 5, 5, 1, 3):
        zeta = np.random.default_rng(batch).random((batch, 2), np.float32)
        alpha = zeta[::-1] + 1
        answer = runtime.run({"alpha": alpha, "zeta": zeta})
        np.testing.assert_allclose(answer["z"], zeta - alpha, atol=1e-6)
        np.testing.assert_allclose(answer["a"], alpha * 2, atol=1e-6)


def test_an_answer_is_not_changed_by_the_next_call(two_by_two):
    runtime = runtimes.load(two_by_two)
    ones = np.ones((1, 2), np.float32)
    first = runtime.run({"alpha": ones, "zeta": ones})["a"]
    runtime.run({"alpha": ones * 9, "zeta": ones})
    assert first.tolist() == [[2, 2]]


def test_wrong_inputs_are_refused_with_the_nearest_name(two_by_two):
    runtime = runtimes.load(two_by_two)
    ones = np.ones((1, 2), np.float32)
    for given, received, fix in [
        ({"zeta": ones, "alfa": ones}, "no input 'alpha'", "did you mean alfa?"),
        ({"zeta": ones, "alpha": np.ones((1, 3), np.float32)}, "input 'alpha': float32[1,3]", "reshape"),
        ({"zeta": ones, "alpha": np.ones((1, 2))}, "input 'alpha': float64[1,2]", "convert it to float32"),
        ({"zeta": ones, "alpha": ones, "qqq": ones}, "input 'qqq'", "known: alpha, zeta"),
    ]:
        with pytest.raises(ComponentError) as error:
            runtime.run(given)
        assert error.value.received == received and fix in error.value.fix


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"])
def test_every_number_keeps_its_dtype_and_its_name(tmp_path, dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("Identity", ["x"], ["y"])
    runtime = runtimes.load(written(tmp_path / "m.onnx", [node], {"x": (kind, [None])}, {"y": (kind, [None])}))
    assert runtime.inputs == {"x": TensorSpec(dtype, (None,))} and runtime.outputs == {"y": TensorSpec(dtype, (None,))}
    given = np.array([0, 1, 1], dtype)
    answer = runtime.run({"x": given})["y"]
    assert answer.dtype == dtype and (answer == given).all()


def test_text_goes_in_as_bytes_or_text_and_comes_out_as_bytes(tmp_path):
    text = (Type.STRING, [None, 2])
    concat = helper.make_node("Concat", ["x", "x"], ["y"], axis=1)
    runtime = runtimes.load(written(tmp_path / "m.onnx", [concat], {"x": text}, {"y": (Type.STRING, [None, 4])}))
    wanted = [[b"a", "ß".encode()] * 2]
    for given in ([["a", "ß"]], np.array([["a", "ß"]], object), np.array([[b"a", "ß".encode()]], object)):
        answer = runtime.run({"x": np.array(given)})["y"]
        assert answer.tolist() == wanted and answer.dtype == object
    with pytest.raises(ComponentError, match="input 'x': bytes that are no text") as error:
        runtime.run({"x": np.array([[b"\xff", b"a"]], object)})
    assert "UTF-8" in error.value.expected


def test_a_nan_goes_in_and_comes_out(two_by_two):
    given = {"zeta": np.array([[np.nan, 1]], np.float32), "alpha": np.ones((1, 2), np.float32)}
    np.testing.assert_array_equal(runtimes.load(two_by_two).run(given)["z"], [[np.nan, 0]])


@pytest.mark.parametrize("keep", [0, 1, 20, 0.5, 0.999])
def test_truncated_files_are_refused(two_by_two, tmp_path, keep):
    content = two_by_two.path.read_bytes()
    (tmp_path / "part.onnx").write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(ComponentError) as error:
        runtimes.load(Model(tmp_path / "part.onnx"))
    assert "part.onnx" in error.value.received and "truncated" in error.value.fix


@pytest.mark.parametrize(("op", "domain"), [("Erfc", ""), ("Bar", "com.foo")])
def test_ops_that_onnx_runtime_lacks_are_named(tmp_path, op, domain):
    free = (Type.FLOAT, [None])
    node = helper.make_node(op, ["x"], ["y"], domain=domain)
    model = written(tmp_path / "m.onnx", [node], {"x": free}, {"y": free})
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
