"""Test the exports of einsums to ONNX and OpenVINO: products of matrices, in float and in 8 bits."""

import keras
import numpy as np
import onnx
import pytest
import tensorflow as tf

from tests.components.exporters import ONNX, OPENVINO, run, write_split
from tests.runtimes.formulas import saved
from tfopt import keras_models
from tfopt.artifacts import SavedModel

DRAW = np.random.default_rng(0)
TOKENS = 16
PROJECTIONS = 4  # of an attention layer: query, key, value, output


def kernel(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


EINSUMS = {  # by equation: the operands of x, with 3 x 4 x 6 values in each record, and operations of the ONNX file
    "abcd,de->abce": (lambda x: (x, kernel(6, 5)), {"MatMul": 1}),
    "abcd,def->abcef": (lambda x: (x, kernel(6, 5, 2)), {"MatMul": 1, "Reshape": 1}),
    "abcd,cde->abe": (lambda x: (x, kernel(4, 6, 5)), {"MatMul": 1, "Reshape": 1}),
    "...d,de->...e": (lambda x: (x, kernel(6, 5)), {"MatMul": 1}),
    "ed,abcd->abce": (lambda x: (kernel(5, 6), x), {"MatMul": 1}),
    "abcd,aecd->acbe": (lambda x: (x, 2 * x), {"MatMul": 1, "Transpose": 2, "Mul": 1}),
    "abcd,abed->abce": (lambda x: (x, tf.abs(x)), {"MatMul": 1, "Transpose": 1, "Abs": 1}),
}


@pytest.mark.parametrize(
    ("equation", "exporter"),
    [
        *((equation, ONNX) for equation in EINSUMS),
        ("abcd,aecd->acbe", OPENVINO),  # the products are made before the conversion to either
        *(pytest.param(one, OPENVINO, marks=pytest.mark.nightly) for one in EINSUMS if one != "abcd,aecd->acbe"),
    ],
    ids=str,
)
def test_an_einsum_is_exported_as_a_product(equation, exporter, tmp_path):
    operands, operations = EINSUMS[equation]
    model = saved(
        tmp_path / "model", lambda x: {"y": tf.einsum(equation, *operands(x))}, x=([None, 3, 4, 6], tf.float32)
    )
    facts = exporter.export(model, None, tmp_path / "out")
    if exporter is ONNX:
        assert facts["ops"] == operations
    for count in (1, 5):
        rows = {"x": DRAW.normal(size=(count, 3, 4, 6)).astype(np.float32)}
        received = run(exporter.artifact(tmp_path / "out"), rows)["y"]
        np.testing.assert_allclose(received, run(SavedModel(model), rows)["y"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tokens", [7, None])
@pytest.mark.parametrize("heads", [1, 2])
def test_einsums_behind_each_other_keep_their_sizes(heads, tokens, tmp_path):
    """As behind an attention: the transpose of a single head is a reshape, as the next einsum is."""

    def mix(shares, values):
        attended = tf.einsum("acbe,aecd->abcd", shares, values)
        return {"y": tf.einsum("abcd,cde->abe", attended, kernel(heads, 3, 5))}

    shapes = {"shares": [None, heads, tokens, tokens], "values": [None, tokens, heads, 3]}
    model = saved(tmp_path / "model", mix, **{name: (shape, tf.float32) for name, shape in shapes.items()})
    ONNX.export(model, None, tmp_path / "out")
    rows = {
        "shares": DRAW.normal(size=(2, heads, 7, 7)).astype(np.float32),
        "values": DRAW.normal(size=(2, 7, heads, 3)).astype(np.float32),
    }
    received = run(ONNX.artifact(tmp_path / "out"), rows)["y"]
    np.testing.assert_allclose(received, run(SavedModel(model), rows)["y"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("equation", ["ab,ab->a", "ab,cd->abcd"])
def test_other_einsums_are_exported_as_before(equation, tmp_path):
    shapes = [
        [{"a": 3, "b": 3, "c": 4, "d": 2}[label] for label in part] for part in equation.split("->")[0].split(",")
    ]
    rows = {name: DRAW.normal(size=shape).astype(np.float32) for name, shape in zip("xy", shapes, strict=True)}

    def compute(x, y):
        return {"z": tf.einsum(equation, x, y)}

    model = saved(tmp_path / "model", compute, x=(shapes[0], tf.float32), y=(shapes[1], tf.float32))
    for exporter in (ONNX, OPENVINO):
        exporter.export(model, None, tmp_path / exporter.format)
        received = run(exporter.artifact(tmp_path / exporter.format), rows)["z"]
        np.testing.assert_allclose(received, np.einsum(equation, *rows.values()), rtol=1e-4)


def test_integers_and_older_opsets_are_exported(tmp_path):
    weights = np.arange(12, dtype=np.int32).reshape(4, 3)
    model = saved(tmp_path / "model", lambda x: {"y": tf.einsum("ab,bc->ac", x, weights)}, x=([None, 4], tf.int32))
    ONNX.export(model, None, tmp_path / "out")
    rows = {"x": np.arange(8, dtype=np.int32).reshape(2, 4)}
    assert (run(ONNX.artifact(tmp_path / "out"), rows)["y"] == rows["x"] @ weights).all()
    floats = saved(tmp_path / "f", lambda x: {"y": tf.einsum("ab,bc->ac", x, weights * 1.0)}, x=([None, 4], tf.float32))
    assert ONNX.export(floats, None, tmp_path / "old", opset=13)["ops"] == {"MatMul": 1}


@pytest.fixture(
    scope="module",
    params=[(3, 4), (1, 16), *(pytest.param(one, marks=pytest.mark.nightly) for one in ((2, 8), (2, 2)))],
    ids=str,
)
def attention(request, tmp_path_factory):
    """Save a model with attention, whose heads have this number and size, and write examples."""
    folder = tmp_path_factory.mktemp("attention")
    keras.utils.set_random_seed(2)
    words = keras.Input((TOKENS, 12), name="words")
    values = words + keras.layers.MultiHeadAttention(*request.param)(words, words)
    values = keras.layers.Dense(5)(keras.layers.GlobalAveragePooling1D()(keras.layers.LayerNormalization()(values)))
    model = keras.Model(words, values)
    for weights in model.weights:
        if len(weights.shape) > 1:  # columns of different sizes, whose scales must stay with them
            weights.assign(weights * np.geomspace(0.5, 2, weights.shape[-1]))
    keras_models.save(model, folder / "model")
    rows = np.random.default_rng(1).normal(size=(60, TOKENS * 12)).astype(np.float32)
    return folder / "model", write_split(folder / "examples", {"words": rows})


@pytest.mark.parametrize(("exporter", "precision"), [(ONNX, "dynamic"), (ONNX, "int8"), (OPENVINO, "int8")], ids=str)
def test_the_projections_of_attention_are_in_8_bits(attention, exporter, precision, tmp_path):
    model, examples = attention
    facts = exporter.export(model, examples, tmp_path / "out", precision)
    if exporter is OPENVINO:
        names = [name for name in facts["layers_in_8_bits"] if name.endswith("/MatMul")]
        assert len(names) == PROJECTIONS and "Einsum" not in facts["ops"]
    elif precision == "dynamic":
        assert facts["ops"]["MatMulInteger"] == PROJECTIONS + 1
    else:
        graph = onnx.load(tmp_path / "out/Format-Serving/model.onnx").graph
        kernels = [
            tensor.data_type for tensor in graph.initializer if len(tensor.dims) == 2 and np.prod(tensor.dims) > 8
        ]
        assert kernels == [onnx.TensorProto.INT8] * (PROJECTIONS + 1)
        assert any("query" in node.name for node in graph.node)
    assert not {"Shape", "Gather", "Concat"} & facts["ops"].keys()
    (parity,) = facts["verified"]["outputs"].values()
    assert parity["correlation"] > 0.99


@pytest.mark.parametrize(
    ("batch", "heads"),
    [
        *((None, (2, 8)), (1, (4, 3)), (1, (2, 8))),
        *(
            pytest.param(batch, heads, marks=pytest.mark.nightly)
            for batch, heads in ((None, (4, 3)), (None, (2, 2)), (None, (4, 16)), (1, (2, 2)), (1, (4, 16)))
        ),
    ],
    ids=str,
)
def test_scales_of_columns_in_openvino_stay_with_them(batch, heads, tmp_path):
    """Also with as many tokens as columns: OpenVINO moves scales behind a Reshape, along an axis found by its size."""
    weights = kernel(12, *heads) * np.geomspace(0.05, 5, heads[0] * heads[1]).reshape(heads).astype(np.float32)

    def project(words):
        return {
            "y": tf.reshape(tf.nn.relu(tf.einsum("abc,cde->abde", words, weights)), [-1, TOKENS * heads[0] * heads[1]])
        }

    saved(tmp_path / "model", project, words=([batch, TOKENS, 12], tf.float32))
    rows = {"words": DRAW.normal(size=(40, TOKENS * 12)).astype(np.float32)}
    facts = OPENVINO.export(tmp_path / "model", write_split(tmp_path / "examples", rows), tmp_path / "out", "int8")
    assert len(facts["layers_in_8_bits"]) == 1
    assert facts["verified"]["outputs"]["y"]["noise"] < 0.05
