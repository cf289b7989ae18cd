"""Tests of reading frozen GraphDefs: operations of old producers, inputs inside of the graph, names, constants."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tests.graph.table import ops
from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.components.optimize_graph.component import optimize_graph
from tfopt.errors import ComponentError
from tfopt.graph.session import evaluate
from tfopt.saved_models import saved_model
from tfopt.saved_models.graph_file import read_graph

DRAW = np.random.default_rng(0)


def _graph(build, producer=8):
    """Return a GraphDef of an old producer; `build` adds its nodes with `_old`."""
    with tf.Graph().as_default() as made:
        removed = build() or []
    graph_def = made.as_graph_def()
    graph_def.versions.producer = producer
    for name, op, inputs, changed in removed:
        node = graph_def.node.add(name=name, op=op, input=inputs)
        for key, value in changed.items():
            node.attr[key].CopyFrom(value)
    return graph_def


def _file(graph_def, folder):
    (folder / "graph.pb").write_bytes(graph_def.SerializeToString())
    return folder / "graph.pb"


def _attr(**values):
    fields = {bool: "b", int: "i", float: "f", tf.DType: "type"}
    value = lambda one: {fields[type(one)]: one.as_datatype_enum if isinstance(one, tf.DType) else one}  # noqa: E731
    return {name: tf.compat.v1.AttrValue(**value(one)) for name, one in values.items()}


def _input(*shape, dtype=tf.float32, name="x"):
    return tf.compat.v1.placeholder(dtype, shape, name=name)


def _weights(*shape, dtype=tf.float32):
    return tf.constant(DRAW.normal(size=shape), dtype)


def _norm(data, scaled, dtype=tf.float32):
    for name in ("mean", "variance", "beta", "gamma"):
        tf.constant(DRAW.uniform(0.5, 2, 4), dtype, name=name)
    attr = _attr(T=dtype, variance_epsilon=0.01, scale_after_normalization=scaled)
    return [("norm", "BatchNormWithGlobalNormalization", [data.op.name, "mean", "variance", "beta", "gamma"], attr)]


def _conv(scaled):
    return _norm(tf.nn.conv2d(_input(None, 5, 5, 3), _weights(3, 3, 3, 4), 1, "SAME"), scaled)


def _depthwise(scaled):
    return _norm(tf.nn.depthwise_conv2d(_input(None, 5, 5, 2), _weights(3, 3, 2, 2), [1, 1, 1, 1], "SAME"), scaled)


def _dense(scaled):
    product = tf.reshape(tf.matmul(_input(None, 3), _weights(3, 4)), [-1, 1, 1, 4])
    return _norm(product, scaled)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize(
    ("build", "op"), [(_conv, "Conv2D"), (_depthwise, "DepthwiseConv2dNative"), (_dense, "MatMul")]
)
def test_batch_norm_of_old_graphs_is_folded_and_served(build, op, scaled, tmp_path):
    graph_def = _graph(lambda: build(scaled))
    result = optimize_graph(_file(graph_def, tmp_path), tmp_path / "made", inputs=["x"], outputs=["norm"])["optimized"]
    served = runtimes.load(SavedModel(result.path))
    x = DRAW.normal(size=[size or 3 for size in served.inputs["x"].shape]).astype("float32")
    np.testing.assert_allclose(served.run({"x": x})["norm"], evaluate(graph_def, ["norm:0"], {"x:0": x})[0], atol=1e-5)
    left = ops(saved_model.read(result.path / "Format-Serving").graph)
    assert left[op] == 1
    assert not {"FusedBatchNormV3", "Mul", "Sub"} & set(left), left


def _matrix(op, dtype=tf.float32, size=3, **attr):
    return lambda: _input(None, size, size, dtype=dtype) is None or [("y", op, ["x"], _attr(T=dtype, **attr))]


def _second(op, shape, dtype=tf.float32, **attr):
    def build():
        _input(None, 3, 3, dtype=dtype)
        tf.constant(DRAW.normal(size=shape), dtype, name="z")
        return [("y", op, ["x", "z"], _attr(T=dtype, **attr))]

    return build


def _fft(op):
    return lambda: _input(None, 2, 2, 3, dtype=tf.complex64) is None or [("y", op, ["x"], {})]


def _contrast():
    _input(None, 4, 4, 3, dtype=tf.uint8)
    for name, value in (("factor", 3.0), ("low", 10.0), ("high", 200.0)):
        tf.constant(value, name=name)
    return [("y", "AdjustContrast", ["x", "factor", "low", "high"], _attr(T=tf.uint8))]


def _top_k():
    _input(None, 5)
    return [("y", "TopK", ["x"], _attr(T=tf.float32, k=2, sorted=True))]


def _double():
    return _norm(_input(None, 2, 2, 4, dtype=tf.float64), True, tf.float64)


REMOVED = {
    "BatchMatrixInverse": _matrix("BatchMatrixInverse", adjoint=True),
    "BatchMatrixDeterminant": _matrix("BatchMatrixDeterminant"),
    "BatchMatrixDiagPart": _matrix("BatchMatrixDiagPart"),
    "BatchMatrixDiag": _matrix("BatchMatrixDiag"),
    "BatchMatrixSolve": lambda: _second("BatchMatrixSolve", (2, 3, 3))(),
    "BatchMatrixTriangularSolve": lambda: _second("BatchMatrixTriangularSolve", (2, 3, 3), lower=True)(),
    "BatchMatrixSetDiag": lambda: _second("BatchMatrixSetDiag", (2, 3))(),
    "BatchSelfAdjointEigV2": _matrix("BatchSelfAdjointEigV2", compute_v=False),
    "BatchSvd": _matrix("BatchSvd", compute_uv=False),
    "BatchFFT": _fft("BatchFFT"),
    "BatchIFFT2D": _fft("BatchIFFT2D"),
    "BatchFFT3D": _fft("BatchFFT3D"),
    "AdjustContrast": _contrast,
    "TopK": _top_k,
    "BatchNormWithGlobalNormalization of doubles": _double,
}


NO_KERNEL = {  # TensorFlow does not run the old operation any more
    "BatchFFT": np.fft.fft,
    "BatchIFFT2D": np.fft.ifft2,
    "BatchFFT3D": lambda x: np.fft.fftn(x, axes=(1, 2, 3)),
    "TopK": lambda x: -np.sort(-x)[:, :2],
}


@pytest.mark.parametrize("name", REMOVED)
def test_removed_operation_becomes_its_successor(name, tmp_path):
    graph_def = _graph(REMOVED[name], producer=1)
    end = graph_def.node[-1].name
    saved_model.write(read_graph(_file(graph_def, tmp_path), ["x"], [end]), tmp_path / "made")
    served = runtimes.load(SavedModel(tmp_path / "made"))
    shape = [2, *served.inputs["x"].shape[1:]]
    x = (DRAW.normal(size=shape) * 9 + 1j * DRAW.normal(size=shape) * ("complex" in served.inputs["x"].dtype)) + 3
    x = (x if "complex" in served.inputs["x"].dtype else np.abs(x.real)).astype(served.inputs["x"].dtype)
    served_y = served.run({"x": x})[end]
    reference = NO_KERNEL.get(name, lambda x: evaluate(graph_def, [f"{end}:0"], {"x:0": x})[0])
    np.testing.assert_allclose(served_y, reference(x), rtol=2e-5, atol=1e-5)


CUTS = {  # inputs, an output, and the inputs of the signature with their shapes
    "inner node": (["active"], "end", {"active": (None, 4)}),
    "its tensor": (["active:0"], "end", {"active": (None, 4)}),
    "outputs of one node": (["halves:1", "halves"], "end", {"halves": (None, 2), "halves_1": (None, 2)}),
    "node in a scope": (["scope/hidden"], "end", {"hidden": (None, 4)}),
    "own shape": (["active=5x4"], "end", {"active": (5, 4)}),
    "placeholder with default": (["default"], "shifted", {"default": (None,)}),
    "output that is an input": (["active"], "active", {"active": (None, 4)}),
    "input that no output needs": (["active", "x"], "end", {"active": (None, 4), "x": (None, 3)}),
    "constant": (["active", "MatMul/b"], "end", {"active": (None, 4), "b": (3, 4)}),
}


@pytest.fixture(scope="module")
def tower(tmp_path_factory):
    """A graph with inner nodes of several outputs, and a placeholder with a default."""

    def build():
        kernel = tf.constant(DRAW.normal(size=(3, 4)), tf.float32, name="MatMul/b")
        hidden = tf.matmul(_input(None, 3), kernel, name="scope/hidden")
        halves = tf.split(tf.nn.relu(hidden, name="active"), 2, axis=1, name="halves")
        tf.identity(halves[0] * 2.0 - halves[1], name="end")
        tf.add(tf.compat.v1.placeholder_with_default(tf.constant([1.0]), [None], "default"), 1.0, name="shifted")
        tf.reduce_sum(tf.constant(DRAW.normal(size=(4, 4)), tf.float32) ** 2.0, name="constant")

    return _file(_graph(build, producer=2000), tmp_path_factory.mktemp("tower"))


@pytest.mark.parametrize("case", CUTS)
def test_graph_is_cut_at_inputs_inside_of_it(case, tower, tmp_path):
    inputs, output, shapes = CUTS[case]
    made = optimize_graph(tower, tmp_path / "made", inputs=inputs, outputs=[output])["optimized"]
    served = runtimes.load(SavedModel(made.path))
    assert {name: spec.shape for name, spec in served.inputs.items()} == shapes
    batch = {name: DRAW.normal(size=[size or 5 for size in shape]).astype("float32") for name, shape in shapes.items()}
    tensors = {"halves_1": "halves:1", "hidden": "scope/hidden:0", "b": "MatMul/b:0"}
    feeds = {tensors.get(name, f"{name}:0"): value for name, value in batch.items()}
    graph_def = tf.compat.v1.GraphDef.FromString(tower.read_bytes())
    np.testing.assert_allclose(served.run(batch)[output], evaluate(graph_def, [f"{output}:0"], feeds)[0], atol=1e-5)


def test_graph_of_constants_becomes_one_constant_that_is_served(tower, tmp_path):
    made = optimize_graph(tower, tmp_path / "made", outputs=["constant"])["optimized"]
    assert set(ops(saved_model.read(made.path / "Format-Serving").graph)) <= {"Const", "Identity"}
    expected = evaluate(tf.compat.v1.GraphDef.FromString(tower.read_bytes()), ["constant:0"])[0]
    np.testing.assert_allclose(runtimes.load(SavedModel(made.path)).run({})["constant"], expected, rtol=1e-6)


REFUSED = {
    "near match": (["activ"], "end", "no tensor activ", "did you mean active"),
    "no such output of a node": (["active:3"], "end", "no tensor active:3", "Relu active has 1 outputs: name active:0"),
    "output after the last": (["halves:2"], "end", "no tensor halves:2", "name halves:0 to halves:1"),
    "control input": (["^active"], "end", "'\\^active'", "write x, x:0"),
    "nothing near": (["zzzzz"], "end", "no tensor zzzzz", "name one of x, "),
    "twice": (["active", "active:0"], "end", "'active:0' twice", "leave one"),
    "shape that does not fit": (["active=?x5"], "end", "'active=\\?x5'", "change it"),
    "placeholder that is not an input": (["default"], "end", "depend on x", "add .'x'."),
    "no inputs": ([], "end", "names of its inputs", "inputs=.'x'."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_names_are_refused(case, tower):
    inputs, output, received, fix = REFUSED[case]
    with pytest.raises(ComponentError, match=received) as refusal:
        read_graph(tower, inputs, [output])
    assert re.search(fix, refusal.value.fix), refusal.value.fix


def test_removed_operation_without_a_successor_is_refused_unless_it_is_cut_off(tmp_path):
    def build():
        _input(5, 5, 3)
        tf.constant([2, 2], tf.int64, name="size")
        return [("crop", "RandomCrop", ["x", "size"], _attr(T=tf.float32)), ("y", "Neg", ["crop"], _attr(T=tf.float32))]

    file = _file(_graph(build, producer=7), tmp_path)
    with pytest.raises(ComponentError, match="removed in version 8"):
        read_graph(file, ["x"], ["y"])
    assert read_graph(file, ["crop"], ["y"]).signatures["serving_default"].inputs["crop"].shape is not None


FLOAT8, INT4 = tf.dtypes.experimental.float8_e4m3fn, tf.dtypes.experimental.int4
TYPES = {  # dtype, shape and operation of an input, and the shape of the signature
    "complex": (tf.complex64, [None, 4], lambda x: tf.signal.fft(x) * (2 + 1j), (None, 4)),
    "text": (tf.string, [None], lambda x: tf.strings.join([x, "a"]), (None,)),
    "text of numbers": (tf.string, [None], lambda x: tf.strings.to_number(x) * 2.0, (None,)),
    "an image": (tf.string, [], lambda x: tf.cast(tf.io.decode_png(x, channels=3), tf.float32) * 2.0, ()),
    "images of bytes": (tf.string, [None], lambda x: tf.io.decode_raw(x, tf.uint8), (None,)),
    "quantized": (
        tf.quint8,
        [None, 4],
        lambda x: tf.raw_ops.Dequantize(input=x, min_range=0.0, max_range=6.0) * 2.0,
        (None, 4),
    ),
    "quantized, and returned": (tf.qint8, [None, 4], tf.identity, (None, 4)),
    "quantized to 32 bits": (tf.qint32, [None, 4], lambda x: tf.bitcast(x, tf.int32) * 2, (None, 4)),
    "integers of 4 bits": (INT4, [None, 4], lambda x: tf.cast(x, tf.int8) * 2 + 1, (None, 4)),
    "integers of 4 bits, returned": (tf.dtypes.experimental.uint4, [None, 4], tf.identity, (None, 4)),
    "floats of 8 bits": (FLOAT8, [None, 4], lambda x: tf.cast(x, tf.float32) * 2.0 + 1.0, (None, 4)),
    "floats of 8 bits, returned": (FLOAT8, [None, 4], tf.identity, (None, 4)),
    "floats of 8 bits with a short fraction": (
        tf.dtypes.experimental.float8_e5m2,
        [None, 4],
        lambda x: tf.cast(x, tf.float32) * 2.0 + 1.0,
        (None, 4),
    ),
    "unknown rank": (tf.float32, None, lambda x: tf.nn.relu(x * 2.0), (None,)),
    "unknown rank of a matrix": (tf.float32, None, lambda x: tf.raw_ops.MatMul(a=x, b=tf.ones([3, 4])), (None, 3)),
    "unknown rank of images": (
        tf.float32,
        None,
        lambda x: tf.nn.conv2d(x, tf.ones([3, 3, 3, 4]), 1, "SAME"),
        (None, None, None, 3),
    ),
}


TYPES_AT_NIGHT = {  # the others of their kinds are compared each day
    *("text of numbers", "images of bytes", "quantized, and returned", "quantized to 32 bits"),
    *("integers of 4 bits, returned", "floats of 8 bits, returned", "floats of 8 bits with a short fraction"),
    "unknown rank of a matrix",
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.nightly] if case in TYPES_AT_NIGHT else []) for case in TYPES]
)
def test_inputs_of_every_type_and_of_unknown_rank_are_compared(case, tmp_path):
    dtype, shape, operation, expected = TYPES[case]
    graph_def = _graph(lambda: tf.identity(operation(tf.compat.v1.placeholder(dtype, shape, "x")), "y") is None, 2000)
    made = optimize_graph(_file(graph_def, tmp_path), tmp_path / "made", inputs=["x"], outputs=["y"])["optimized"]
    spec = runtimes.load(SavedModel(made.path)).inputs["x"]
    assert (spec.dtype, spec.shape) == (dtype.name, expected)
    assert made.metadata["verified"]["outputs"]


def test_difference_in_the_imaginary_part_is_an_error():
    from tfopt.measurement.parity import _parity

    one = np.array([1 + 1j, 2 + 2j], np.complex64)
    assert _parity("y", [(one, one)]).max_abs_error == 0
    assert _parity("y", [(one, one.conj())]).max_abs_error == 4


def _array(version):
    """Build the rows minus the second row, with a TensorArray of an old version."""

    def build():
        _input(3, 4)
        for name, value in (("size", 3), ("one", 1)):
            tf.constant(value, name=name)
        tf.constant(0.0, name="flow")
        handle, arrays = "array", f"TensorArray{version}"
        unpacked = [("unpack", "TensorArrayUnpack", [handle, "x", "flow"], _attr(T=tf.float32))]
        packed = [("pack", "TensorArrayPack", [handle, "unpack"], _attr(dtype=tf.float32))]
        if version:
            tf.range(3, name="rows")
            inputs = [handle, "rows"]
            unpacked = [("unpack", f"TensorArrayScatter{version}", [*inputs, "x", "flow"], _attr(T=tf.float32))]
            packed = [("pack", f"TensorArrayGather{version}", [*inputs, "unpack"], _attr(dtype=tf.float32))]
        return [
            (handle, arrays, ["size"], _attr(dtype=tf.float32, clear_after_read=False)),
            *unpacked,
            ("row", f"TensorArrayRead{version}", [handle, "one", "unpack"], _attr(dtype=tf.float32)),
            *packed,
            ("y", "Sub", ["pack", "row"], _attr(T=tf.float32)),
        ]

    return build


def _loop():
    ones = tf.ones([4], tf.float64)
    step = lambda i, x: (i + 1, tf.negative(x, name="norm") + tf.reduce_sum(ones))  # noqa: E731
    _, result = tf.while_loop(lambda i, x: i < 3, step, [0, _input(None, 1, 1, 4, dtype=tf.float64)])
    tf.identity(result, name="y")


def _loop_norm(graph_def):
    """Return the batch norm that takes the place of the Neg in the loop."""
    neg = next(node for node in graph_def.node if node.op == "Neg")
    enter = next(node for node in graph_def.node if node.op == "Enter" and node.attr["is_constant"].b)
    attr = _attr(T=tf.float64, variance_epsilon=0.5, scale_after_normalization=True)
    return tf.compat.v1.NodeDef(
        name=neg.name, op="BatchNormWithGlobalNormalization", input=[*neg.input, *[enter.name] * 4], attr=attr
    )


def test_batch_norm_in_a_loop_of_version_1_is_replaced(tmp_path):
    tf.compat.v1.disable_control_flow_v2()
    try:
        graph_def = _graph(_loop)
    finally:
        tf.compat.v1.enable_control_flow_v2()
    next(node for node in graph_def.node if node.op == "Neg").CopyFrom(_loop_norm(graph_def))
    saved_model.write(read_graph(_file(graph_def, tmp_path), ["x"], ["y"]), tmp_path / "made")
    x = DRAW.normal(size=(2, 1, 1, 4))
    served = runtimes.load(SavedModel(tmp_path / "made")).run({"x": x})["y"]
    np.testing.assert_allclose(served, evaluate(graph_def, ["y:0"], {"x:0": x})[0], rtol=1e-6)


@pytest.mark.parametrize("version", ["", "V2"])
def test_old_tensor_arrays_become_new_ones(version, tmp_path):
    saved_model.write(read_graph(_file(_graph(_array(version)), tmp_path), ["x"], ["y"]), tmp_path / "made")
    x = DRAW.normal(size=(3, 4)).astype("float32")
    np.testing.assert_allclose(runtimes.load(SavedModel(tmp_path / "made")).run({"x": x})["y"], x - x[1], atol=1e-6)
