"""Tests of the laws together on a transformer block as Keras 3 exports it: operations at run time, and exports."""

import os
from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from keras import layers

from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.components.export_onnx.component import export_onnx
from tfopt.components.export_openvino.component import export_openvino
from tfopt.components.export_tflite.component import export_tflite
from tfopt.components.optimize_graph.component import optimize_graph
from tfopt.graph import mutable_graph
from tfopt.graph.law_order import ORDER
from tfopt.graph.law_runner import optimize
from tfopt.graph.report import Report
from tfopt.graph.shape_inference import shapes_of
from tfopt.saved_models.saved_model import read

WIDTH, LENGTH = 16, 6


def block(flow):
    attended = layers.MultiHeadAttention(2, WIDTH // 2)(flow, flow)
    flow = layers.LayerNormalization()(flow + attended)
    wide = layers.Dense(4 * WIDTH)(flow)
    wide = layers.Activation(lambda values: keras.activations.gelu(values, approximate=False))(wide)
    return layers.LayerNormalization()(flow + layers.Dense(WIDTH)(wide))


def write_encoder(folder):
    draw = np.random.default_rng(0)
    keras.utils.set_random_seed(0)
    ids = layers.Input((LENGTH,), dtype="int32", name="ids")
    flow = layers.Embedding(10, WIDTH, mask_zero=True)(ids)
    flow = block(layers.LayerNormalization()(flow))
    model = keras.Model(ids, layers.Dense(3)(layers.GlobalAveragePooling1D()(flow)))
    for weight in model.weights:
        if weight.path.endswith(("bias", "beta", "gamma")):
            weight.assign(1 + draw.normal(0, 0.3, weight.shape))
    model.export(str(folder), verbose=False)


@pytest.fixture(scope="module")
def optimized(tmp_path_factory):
    folder = tmp_path_factory.mktemp("transformers")
    write_encoder(folder / "plain")
    made = optimize_graph(folder / "plain", folder / "optimized")["optimized"]
    return folder / "plain", SavedModel(made.path)


def run_time_operations(folder):
    """Count the operations that TensorFlow runs."""
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        loaded = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(folder))
        signature = loaded.signature_def["serving_default"]
        (fed,), (fetched,) = signature.inputs.values(), signature.outputs.values()
        options, metadata = tf.compat.v1.RunOptions(output_partition_graphs=True), tf.compat.v1.RunMetadata()
        session.run(fetched.name, {fed.name: np.ones((2, LENGTH), np.int32)}, options, metadata)
    return Counter(node.op for graph in metadata.partition_graphs for node in graph.node)


def test_laws_that_change_nothing_infer_the_shapes_once(optimized, monkeypatch):
    model, inferred = read(optimized[1].saved_model), []
    monkeypatch.setattr(mutable_graph, "shapes_of", lambda graph: inferred.append(graph) or shapes_of(graph))
    assert all(optimize(model, [name], Report()) is model for name in ORDER)
    assert len(inferred) == 1
    assert model.shapes == shapes_of(model.graph)


def test_no_pass_is_undone_and_every_law_of_transformers_is_applied(optimized):
    report = optimized[1].card.facts["report"]
    assert report["taken_back"] == {}
    fired = {law: entry["times"] for law, entry in report["fired"].items()}
    assert fired["fuse_layer_norms"] == 3  # both signatures are one
    assert fired["fold_reshape_sizes"] == 4
    assert report["batch_norms_left"] == {}
    assert fired["fuse_gelus"] == fired["push_factors_before_products"] == 1


def test_the_written_model_has_public_operations_only(optimized):
    ops = Counter(node.op for node in read(optimized[1].saved_model).graph.node)
    assert not [op for op in ops if op.startswith("_")]
    assert ops["BatchMatMulV2"] == ops["Neg"] == ops["Erfc"] == ops["SquaredDifference"] == 0
    assert ops["MatMul"] == 6 + 1  # four projections and two layers; the head


def test_tensorflow_computes_bias_gelu_and_residual_sums_in_the_products(optimized):
    assert os.environ["TF_ENABLE_ONEDNN_OPTS"] == "1"
    plain, optimized = map(run_time_operations, (optimized[0], optimized[1].saved_model))
    fused = sum(count for op, count in optimized.items() if "FusedMatMul" in op)
    assert fused == 6 + 1
    assert optimized["BiasAdd"] == optimized["Erf"] == optimized["Erfc"] == 0
    assert plain["Erfc"] == 1
    assert sum(optimized.values()) < 0.6 * sum(plain.values())


def test_layer_normalization_of_keras_2_is_computed_from_its_rows(tmp_path):
    tf_keras.utils.set_random_seed(0)
    flow = entry = tf_keras.Input((LENGTH, WIDTH), name="x")
    for _ in range(2):
        flow = tf_keras.layers.LayerNormalization(gamma_initializer="uniform", beta_initializer="uniform")(flow)
        flow = tf_keras.layers.Dense(WIDTH)(flow)
    tf_keras.Model(entry, flow).export(str(tmp_path / "plain"))
    made = SavedModel(optimize_graph(tmp_path / "plain", tmp_path / "optimized")["optimized"].path)
    report = made.card.facts["report"]
    assert report["fired"]["cancel_reshapes_around_norms"]["times"] == 2  # both signatures are one
    assert report["taken_back"] == report["batch_norms_left"] == {}
    ops = Counter(node.op for node in read(made.saved_model).graph.node)
    assert ops["FusedBatchNormV3"] == ops["Fill"] == ops["Shape"] == 0
    assert ops["Reshape"] == 2  # before the first product, and after the last one


def test_litert_finds_each_gelu(optimized, tmp_path):
    (lite,) = export_tflite(optimized[1].path, tmp_path / "lite").values()
    assert lite.card.facts["verified"]
    interpreter = tf.lite.Interpreter(model_path=str(lite.path / "Format-Serving" / "tflite"))
    assert Counter(one["op_name"] for one in interpreter._get_ops_details())["GELU"] == 1


def test_onnx_and_openvino_agree_with_the_optimized_model(optimized, tmp_path):
    ids = {"ids": np.random.default_rng(0).integers(0, 10, (4, LENGTH)).astype(np.int32)}
    with runtimes.load(SavedModel(optimized[0])) as runtime:
        expected = next(iter(runtime.run(ids).values()))
    for export in (export_onnx, export_openvino):
        (exported,) = export(optimized[1].path, tmp_path / export.__name__).values()
        with runtimes.load(exported) as runtime:
            received = next(iter(runtime.run(ids).values()))
        np.testing.assert_allclose(received, expected, atol=1e-5 * np.abs(expected).max())
