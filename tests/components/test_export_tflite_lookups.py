"""Test export_tflite on lookups in stored tables: their precision, their size, and that they return the same rows."""

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema

from tests.components.exporters import TFLITE, run, write_split
from tests.runtimes.formulas import lite, saved
from tfopt.artifacts import TFLiteModel
from tfopt.components.export_tflite import lookup_tables
from tfopt.components.export_tflite.flatbuffer import op_name

ROWS, COLUMNS = 300, 40
DRAW = np.random.default_rng(0)
TABLE = DRAW.normal(size=(ROWS, COLUMNS)).astype(np.float32)
KERNEL = DRAW.normal(size=(COLUMNS, 3)).astype(np.float32)


def look_up(ids):
    return tf.gather(tf.constant(TABLE), ids)


def classify(ids):
    return {"y": tf.reduce_mean(tf.tanh(look_up(ids) @ KERNEL), 1)}


def ops_and_types(content: bytes) -> tuple[list[str], dict[tuple[int, ...], int]]:
    """Return the ops of a file, and the types of stored matrices by shape."""
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = file.subgraphs[0]
    stored = {
        tuple(map(int, tensor.shape)): tensor.type
        for tensor in graph.tensors
        if file.buffers[tensor.buffer].data is not None and len(tensor.shape) > 1
    }
    return [op_name(file.operatorCodes[op.opcodeIndex]) for op in graph.operators], stored


@pytest.mark.parametrize(
    ("shape", "dtype", "added"),
    [
        ([None], "int32", []),
        ([None], "int64", ["CAST"]),
        ([None, 5], "int32", ["RESHAPE", "RESHAPE"]),
        ([3, None], "int64", ["CAST", "RESHAPE", "RESHAPE"]),
        ([2, 3, 4], "int32", ["RESHAPE", "RESHAPE"]),
        ([None, None], "int32", None),
    ],
)
def test_a_lookup_returns_the_rows_of_the_gather_that_it_replaces(shape, dtype, added, tmp_path):
    model = lite(
        tmp_path / "float.tflite", saved(tmp_path / "model", lambda ids: {"y": look_up(ids)}, ids=(shape, dtype))
    )
    content = model.path.read_bytes()
    assert ops_and_types(content)[0] == ["GATHER"]
    replaced = lookup_tables.replace_gathers(content)
    if added is None:  # the shape of the result would be computed
        assert replaced == content
        return
    assert sorted(ops_and_types(replaced)[0]) == sorted([*added, "EMBEDDING_LOOKUP"])
    (tmp_path / "lookup.tflite").write_bytes(replaced)
    for size in (1, 7):
        ids = DRAW.integers(0, ROWS, [end or size for end in shape]).astype(dtype)
        received = run(TFLiteModel(tmp_path / "lookup.tflite"), {"ids": ids})["y"]
        np.testing.assert_array_equal(received, TABLE[ids])


@pytest.mark.parametrize(
    "function",
    [
        lambda ids: tf.gather(tf.constant(TABLE), ids, axis=1),
        lambda ids: tf.gather(tf.cast(tf.expand_dims(ids, 1), tf.float32) * TABLE[0], ids),
        lambda ids: tf.gather(tf.constant(TABLE[:, 0]), ids),
    ],
    ids=["columns", "computed table", "numbers"],
)
def test_other_gathers_stay(function, tmp_path):
    path = saved(tmp_path / "model", lambda ids: {"y": function(ids)}, ids=([None], "int32"))
    content = lite(tmp_path / "float.tflite", path).path.read_bytes()
    assert lookup_tables.replace_gathers(content) == content


@pytest.mark.parametrize(("recipe", "table"), [([], "INT4"), (["/rows=int8"], "INT8"), (["/rows=float32"], "FLOAT32")])
def test_the_table_of_an_int4_file_has_4_bits_unless_a_recipe_says_otherwise(recipe, table, tmp_path):
    model = saved(tmp_path / "model", classify, ids=([None, 6], "int32"))
    facts = TFLITE.export(model, None, tmp_path / "out", "int4", recipe=recipe)
    content = (tmp_path / "out/Format-Serving/tflite").read_bytes()
    ops, types = ops_and_types(content)
    assert "EMBEDDING_LOOKUP" in ops and types[ROWS, COLUMNS] == getattr(schema.TensorType, table)
    assert facts["verified"]["outputs"]["y"]["correlation"] > (0.98 if table == "INT4" else 0.9995)
    if table == "INT4":  # half a byte for each weight, and a scale and a zero point for each row
        assert len(content) < ROWS * (COLUMNS / 2 + 12) + 5000 < 0.4 * facts["float32_bytes"]


def test_a_table_whose_4_bits_cost_too_much_has_8(tmp_path):
    model = saved(tmp_path / "model", lambda ids: {"y": look_up(ids) @ KERNEL}, ids=([None], "int32"))
    examples = write_split(tmp_path / "examples", {"ids": DRAW.integers(0, ROWS, 200)})
    write_split(examples, {"ids": DRAW.integers(0, ROWS, 256)}, "eval")
    options = {"max_degradation": 0.02, "recipe": ["PartitionedCall=float32"]}
    facts = TFLITE.export(model, examples, tmp_path / "out", "auto", **options)
    assert facts["tried"][0]["degradation"] > 0.02 >= facts["degradation"]
    assert list(facts["raised"].values()) == ["int8"]
    _, types = ops_and_types((tmp_path / "out/Format-Serving/tflite").read_bytes())
    assert types[ROWS, COLUMNS] == schema.TensorType.INT8
