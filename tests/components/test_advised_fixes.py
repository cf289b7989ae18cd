"""Test that what a component that rewrites a graph proposes as a fix makes the model possible."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.components.exporters import EXPORTERS, run
from tests.conftest import write_examples
from tfopt import runtimes
from tfopt.artifacts import KerasModel, SavedModel
from tfopt.component import find
from tfopt.components.compile_xla.compile import _write_model
from tfopt.components.compile_xla.component import compile_xla
from tfopt.components.compile_xla.parameters import Settings
from tfopt.components.compile_xla.sequence_buckets import sequence_input
from tfopt.components.convert_tensorrt.onnx_network import check_signature
from tfopt.components.export_onnx.parameters import OnnxConversion
from tfopt.components.inspect_model.component import inspect_model
from tfopt.components.optimize_graph.component import optimize_graph
from tfopt.conversion.core_model import convert_model
from tfopt.conversion.verification import check_whole_inputs
from tfopt.errors import ComponentError, ExamplesError
from tfopt.saved_models.saved_model import read

WEIGHTS = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
INPUTS = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)


def product(x):
    """Compute a layer that every component can rewrite."""
    return tf.nn.relu(x @ WEIGHTS)


def text(x):
    """Compute something that is not for XLA."""
    return tf.strings.length(tf.strings.as_string(x))


def save(folder: Path, function=product, shape=(None, 4), dtype=tf.float32, **others) -> Path:
    """Save a function of ``x`` as the default signature, and others by name."""
    module = tf.Module()

    def signature(one):
        named = tf.TensorSpec(shape, dtype, "x")
        return tf.function(lambda x: {"y": one(x)}, input_signature=[named], autograph=False)

    module.functions = {name: signature(one) for name, one in {"serving_default": function, **others}.items()}
    tf.saved_model.save(module, str(folder), signatures=module.functions)
    return folder


@dataclass(frozen=True)
class Case:
    """Parameters that a component refuses, and those of the proposed fix."""

    component: str
    refused: Mapping[str, Any]
    fix: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-5


CASES = {
    "a cast within no tolerance": Case(
        "cast_precision", {"tolerance": 1e-6}, "pass a larger tolerance", {"tolerance": 0.05}, 0.05
    ),
    "a misspelled operation": Case(
        "cast_precision", {"keep": ["Matmull"]}, "did you mean MatMul", {"keep": ["Relu"]}, 0.05
    ),
    "names of a frozen graph": Case("optimize_graph", {"inputs": ["x"], "outputs": ["y"]}, "leave them out"),
    "no pass": Case(
        "optimize_graph",
        {"passes": ["without:strip_unused"]},
        'pass passes=["inference"]',
        {"passes": ["inference"]},
    ),
    "a misspelled pass": Case(
        "optimize_graph", {"passes": ["inferenc"]}, "did you mean inference", {"passes": ["inference"]}
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        *("a cast within no tolerance", "names of a frozen graph", "a misspelled pass"),
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("a misspelled operation", "no pass")),
    ],
)
def test_the_fix_of_refused_parameters_helps(name, tmp_path):
    case = CASES[name]
    model = save(tmp_path / "model")
    component = find(case.component)
    (output,) = component.outputs
    with pytest.raises(ComponentError) as error:
        component(model=model, **{output: tmp_path / "refused"}, **case.refused)
    assert case.fix in error.value.fix
    made = component(model=model, **{output: tmp_path / "made"}, **case.fixed)[output]
    with runtimes.load(SavedModel(made.path)) as runtime:
        received = runtime.run({"x": INPUTS})["y"]
    expected = product(INPUTS)
    np.testing.assert_allclose(received, expected, atol=case.tolerance * np.ptp(expected))


@pytest.mark.parametrize(
    "component",
    ["cast_precision", pytest.param("quantize_graph", marks=pytest.mark.nightly)],  # starts a process
)
def test_a_model_without_anything_to_rewrite_is_to_stay_as_it_is(component, tmp_path):
    model, examples = save(tmp_path / "model", tf.identity), tmp_path / "examples"
    for split in ("train", "eval"):
        write_examples(examples / f"Split-{split}" / "data.gz", {"x": INPUTS})
    (output,) = find(component).outputs
    with pytest.raises(ComponentError, match="nothing to") as error:
        find(component)(model=model, examples=examples, **{output: tmp_path / "refused"})
    assert error.value.fix == "leave the model as it is"


def test_weights_that_are_not_finite_are_in_the_report_of_inspect_model(tmp_path):
    weights = WEIGHTS.copy()
    weights[0, 0] = np.nan
    report = inspect_model(model=save(tmp_path / "model", lambda x: x @ weights), inspection=tmp_path / "report")
    assert report["inspection"].load().non_finite


def test_xla_compiles_the_other_operations_and_signatures(tmp_path):
    frozen = read(save(tmp_path / "model", text, product=product))
    with pytest.raises(ComponentError, match="XLA cannot compile: AsString") as error:
        _write_model(frozen, tmp_path / "refused", Settings(), "product")
    assert error.value.fix.startswith("pass mode='clusters', which compiles the others, or export the model without ")
    clusters = _write_model(frozen, tmp_path / "clusters", Settings(mode="clusters"), "product")
    assert clusters["may_be_compiled"]
    _write_model(read(save(tmp_path / "alone")), tmp_path / "made", Settings(), "serving_default")
    for folder, key in (("clusters", "product"), ("made", "serving_default")):
        with runtimes.load(SavedModel(tmp_path / folder), signature=key) as runtime:
            np.testing.assert_allclose(runtime.run({"x": INPUTS})["y"], product(INPUTS), rtol=1e-4, atol=1e-5)


def test_rounding_of_served_models_needs_a_tolerance(tmp_path):
    """TensorFlow folds the constants of a written graph, and no pass that can be left out."""
    scale = tf.Variable(np.random.default_rng(2).normal(size=4).astype(np.float32))
    kernel = tf.Variable(np.random.default_rng(3).normal(size=(3, 3, 4, 4)).astype(np.float32))
    module = tf.Module()
    module.variables_of = [scale, kernel]

    @tf.function(input_signature=[tf.TensorSpec((None, 8, 8, 4), tf.float32, "x")])
    def serve(x):
        return {"y": tf.reduce_mean(tf.nn.conv2d(x, kernel, 1, "SAME") * scale, (1, 2)) @ WEIGHTS}

    tf.saved_model.save(module, str(tmp_path / "model"), signatures=serve)
    with pytest.raises(ComponentError, match="of the written model differs by") as error:
        optimize_graph(tmp_path / "model", tmp_path / "refused", tolerance=0)
    assert error.value.fix == "pass a larger tolerance"
    optimized = optimize_graph(tmp_path / "model", tmp_path / "made", tolerance=1e-6)["optimized"]
    inputs = np.random.default_rng(4).normal(size=(5, 8, 8, 4)).astype(np.float32)
    with runtimes.load(optimized) as runtime:
        np.testing.assert_allclose(runtime.run({"x": inputs})["y"], serve(inputs)["y"], atol=1e-5)


def doubled(x, times=2):
    """Append a batch to itself in a loop, whose steps have other sizes."""
    shapes = [tf.TensorShape([]), tf.TensorShape([None, 4])]
    step = lambda i, rows: (i + 1, tf.concat([rows, rows], 0))  # noqa: E731
    return tf.while_loop(lambda i, rows: i < times, step, [tf.constant(0), x], shape_invariants=shapes)[1]


def listed(x, **size):
    """Write the rows of a batch to a list."""
    rows = tf.TensorArray(tf.float32, **size)
    step = lambda i, rows: (i + 1, rows.write(i, 2 * x[i]))  # noqa: E731
    return tf.while_loop(lambda i, rows: i < tf.shape(x)[0], step, [tf.constant(0), rows])[1].stack()


@pytest.mark.parametrize(
    ("function", "received", "fixed"),
    [
        pytest.param(
            doubled,
            "XLA: Input and output shapes of loop body do not match",
            lambda x: tf.tile(x, [4, 1]),
            marks=pytest.mark.nightly,
        ),
        (
            lambda x: listed(x, size=0, dynamic_size=True),
            "TensorListSetItem: its list grows",
            lambda x: listed(x, size=tf.shape(x)[0]),
        ),
    ],
    ids=["doubled", "listed"],
)
def test_what_changes_its_size_is_compiled_in_clusters_or_with_fixed_sizes(function, received, fixed, tmp_path):
    settings = {"batch_sizes": ["4"], "warm_up": False}
    with pytest.raises(ComponentError, match=received) as error:
        compile_xla(save(tmp_path / "model", function), tmp_path / "refused", **settings)
    assert error.value.fix.startswith("pass mode='clusters'")
    clusters = compile_xla(tmp_path / "model", tmp_path / "clusters", mode="clusters", **settings)["compiled"]
    whole = compile_xla(save(tmp_path / "fixed", fixed), tmp_path / "whole", **settings)["compiled"]
    for compiled in (clusters, whole):
        with runtimes.load(compiled) as runtime:
            np.testing.assert_allclose(runtime.run({"x": INPUTS})["y"], function(tf.constant(INPUTS)), rtol=1e-6)


def test_operations_of_a_model_that_xla_cannot_compile_are_listed_by_inspect_model(tmp_path):
    model = save(tmp_path / "model", tf.strings.as_string)
    with pytest.raises(ComponentError, match="compiles nothing of this model") as error:
        compile_xla(model, tmp_path / "refused", mode="clusters", warm_up=False)
    assert error.value.fix.endswith("inspect_model lists its operations")
    report = inspect_model(model=model, inspection=tmp_path / "report")["inspection"].load()
    assert "AsString" in report.ops


@pytest.mark.nightly  # compiles each length
@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_masked_steps_may_be_padded(library, tmp_path):
    keras = pytest.importorskip(library)
    layers = keras.layers

    def save_network(name, mask):
        keras.utils.set_random_seed(0)
        tokens = keras.Input((None,), dtype="int32", name="tokens")
        flow = layers.Embedding(20, 6, embeddings_initializer="normal", mask_zero=mask)(tokens)
        keras.Model(tokens, layers.Dense(3)(layers.LSTM(5)(flow))).save(tmp_path / name)
        return KerasModel(tmp_path / name)

    settings = {"sequence_buckets": ["8"], "batch_sizes": ["1"], "warm_up": False}
    with pytest.raises(ComponentError, match="padding sequences of length") as error:
        compile_xla(save_network("plain.keras", mask=False), tmp_path / "refused", **settings)
    assert error.value.fix.startswith("mask the steps (Masking, or mask_zero of an Embedding)")
    compiled = compile_xla(save_network("masked.keras", mask=True), tmp_path / "made", **settings)["compiled"]
    assert compiled.card.facts["report"]["sequence_buckets"]["error"] < 1e-5


@pytest.mark.parametrize(
    ("parameters", "fixed"),
    [
        ({"batch_sizes": ("0",)}, {"batch_sizes": ("1", "32")}),
        ({"sequence_buckets": ("8",), "mode": "clusters"}, {"sequence_buckets": ("8",), "mode": "whole"}),
        ({"static": True, "mode": "clusters"}, {"static": True, "mode": "whole"}),
        ({"static": True, "mode": "clusters"}, {"static": False, "mode": "clusters"}),
    ],
)
def test_parameters_of_xla_as_proposed_are_allowed(parameters, fixed):
    with pytest.raises(ComponentError) as error:
        Settings(**parameters).check()
    proposed = {"batch_sizes": "pass batch_sizes 1 32", "mode": "mode='whole'"}
    assert proposed["mode" if "mode" in parameters else "batch_sizes"] in error.value.fix
    Settings(**fixed).check()


def test_sequences_get_buckets_in_a_model_with_an_open_axis(tmp_path):
    closed = read(save(tmp_path / "closed")).signatures["serving_default"]
    with pytest.raises(ComponentError) as error:
        sequence_input(closed)
    assert error.value.fix.endswith("or export the model with the sequence axis open")
    opened = read(save(tmp_path / "opened", tf.identity, (None, None))).signatures["serving_default"]
    assert sequence_input(opened) == "x"


@pytest.mark.parametrize(
    ("parameters", "fix", "fixed"),
    [
        ({"usual_batch": 64}, "pass a larger largest_batch", {"usual_batch": 64, "largest_batch": 64}),
        ({"calibration_cache": "cache"}, "leave it out", {}),
        ({"calibrator": "entropy"}, "leave calibrator out", {}),
        ({"precision": "int8"}, "pass examples=PATH, or precision='fp16'", {"precision": "fp16"}),
    ],
)
def test_parameters_of_tensorrt_as_proposed_are_refused_only_without_a_gpu(
    parameters, fix, fixed, tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", "")
    model = save(tmp_path / "model")
    for values, proposed in ((parameters, fix), (fixed, "or use export_onnx or export_openvino")):
        with pytest.raises(ComponentError) as error:
            find("convert_tensorrt")(model=model, converted=tmp_path / "converted", **values)
        assert proposed in error.value.fix


@pytest.mark.nightly  # daily: both exports in test_exporters.py, on machines without a GPU
@pytest.mark.parametrize("format", ["onnx", "openvino"])
def test_formats_that_convert_tensorrt_proposes_need_no_gpu(format, tmp_path):
    exporter = next(one for one in EXPORTERS if one.format == format)
    exporter.call_isolated(exporter.export, save(tmp_path / "model"), None, tmp_path / "made")
    (received,) = exporter.call_isolated(run, exporter.artifact(tmp_path / "made"), {"x": INPUTS}).values()
    np.testing.assert_allclose(received, product(INPUTS), rtol=1e-4, atol=1e-5)


def test_tensorrt_takes_a_model_that_casts_inside(tmp_path):
    model = SavedModel(save(tmp_path / "model", tf.identity, dtype=tf.float64))
    with runtimes.load(model) as parent, pytest.raises(ComponentError, match="float64") as error:
        check_signature(parent, "model")
    assert error.value.fix == "export the model with float32 or int32 there, and cast inside it"

    def inside(x):
        return tf.cast(tf.cast(x, tf.float64) + 1, tf.float32)

    with runtimes.load(SavedModel(save(tmp_path / "fixed", inside))) as fixed:
        check_signature(fixed, "fixed")


def test_a_limited_degradation_is_met_with_another_limit_or_precision(tmp_path):
    exporter = next(one for one in EXPORTERS if one.format == "tflite")
    model = save(tmp_path / "model")
    inputs = np.random.default_rng(5).normal(size=(40, 4)).astype(np.float32)
    for split in ("train", "eval"):
        write_examples(tmp_path / "examples" / f"Split-{split}" / "data.gz", {"x": inputs})
    with pytest.raises(ComponentError, match=r"degradation .* with 0 of 1 layers left in float") as error:
        exporter.export(model, tmp_path / "examples", tmp_path / "refused", "int8", max_degradation=0.0)
    assert error.value.fix == "allow more, or choose a higher precision"
    for precision, limit in (("int8", 0.5), ("int16x8", 0.0)):
        folder = tmp_path / precision
        exporter.export(model, tmp_path / "examples", folder, precision, max_degradation=limit)
        with runtimes.load(exporter.artifact(folder)) as runtime:
            received = np.concatenate([runtime.run({"x": row[None]})["y"] for row in inputs])
        assert np.abs(received - product(inputs)).max() < 0.05 * np.ptp(product(inputs))


def test_seeded_random_operations_are_compared(tmp_path):
    uniform = lambda x, seed: x + tf.raw_ops.RandomUniform(shape=tf.shape(x), dtype=x.dtype, seed=seed)  # noqa: E731
    with pytest.raises(ComponentError, match="every output differs from run to run") as error:
        optimize_graph(save(tmp_path / "model", lambda x: uniform(x, 0)), tmp_path / "refused")
    assert error.value.fix == "seed its random operations"
    seeded = save(tmp_path / "seeded", lambda x: uniform(x, 3))
    optimized = optimize_graph(seeded, tmp_path / "made")["optimized"]
    assert optimized.card.facts["verified"]["outputs"]["serving_default/y"]["max_abs_error"] == 0


@pytest.mark.parametrize(
    ("spec", "convert", "compute"),
    [
        (tf.SparseTensorSpec([None, 4], tf.float32), tf.sparse.from_dense, tf.sparse.sparse_dense_matmul),
        pytest.param(
            tf.RaggedTensorSpec([None, None], tf.float32),
            lambda x: tf.RaggedTensor.from_tensor(x, padding=0.0),
            lambda x, weights: tf.reduce_sum(x, 1, keepdims=True) * weights[:1],
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["sparse", "ragged"],
)
def test_sparse_and_ragged_inputs_are_made_from_dense_ones(spec, convert, compute, tmp_path):
    for split in ("train", "eval"):
        write_examples(tmp_path / "examples" / f"Split-{split}" / "data.gz", {"x": INPUTS})
    serve = tf.function(lambda x: {"y": compute(x, WEIGHTS)}, input_signature=[spec], autograph=False)
    tf.saved_model.save(tf.Module(), str(tmp_path / "model"), signatures=serve)
    with pytest.raises(ComponentError, match=r"are the parts of one (sparse|ragged) tensor") as error:
        optimize_graph(tmp_path / "model", tmp_path / "refused", tmp_path / "examples")
    assert "a dense input that makes it" in error.value.fix
    for number, exporter in enumerate(EXPORTERS):  # before the conversion, which has other errors
        for examples in (None, tmp_path / "examples"):
            with pytest.raises(
                ExamplesError, match=r"are the parts of one (sparse|ragged) tensor, which no example co"
            ):
                exporter.export(tmp_path / "model", examples, tmp_path / f"exported {number} {examples is None}")
    dense = save(tmp_path / "dense", lambda x: compute(convert(x), WEIGHTS))
    optimized = optimize_graph(dense, tmp_path / "made", tmp_path / "examples")["optimized"]
    with runtimes.load(optimized) as runtime:
        received = runtime.run({"x": INPUTS})["y"]
    np.testing.assert_allclose(received, compute(convert(tf.constant(INPUTS)), WEIGHTS), rtol=1e-5)


def test_two_vectors_are_no_ragged_tensor_if_the_model_runs_on_them(tmp_path):
    specs = [tf.TensorSpec([None], tf.int64, name) for name in ("x", "x_1")]
    serve = tf.function(lambda x, x_1: {"y": x + x_1}, input_signature=specs, autograph=False)
    tf.saved_model.save(tf.Module(), str(tmp_path), signatures=serve)
    with runtimes.load(SavedModel(tmp_path)) as runtime:
        check_whole_inputs(runtime, None, OnnxConversion())


def grouped(x, kernel, groups: int):
    """Convolve each group of channels."""
    parts = zip(tf.split(x, groups, -1), tf.split(kernel, groups, -1), strict=True)
    return tf.concat([tf.nn.conv3d(part, own, [1] * 5, "SAME") for part, own in parts], -1)


def test_litert_takes_a_convolution_for_each_group_of_a_grouped_one(tmp_path):
    kernel = np.random.default_rng(2).normal(size=(2, 2, 2, 1, 4)).astype(np.float32)
    exporter = next(one for one in EXPORTERS if one.format == "tflite")
    shape = (None, 4, 4, 4, 2)
    model = save(tmp_path / "model", lambda x: tf.nn.conv3d(x, kernel, [1] * 5, "SAME"), shape)
    with pytest.raises(ComponentError, match=r"does not load the file: .*CONV_3D") as error:
        exporter.export(model, None, tmp_path / "refused")
    assert error.value.fix == "express CONV_3D with other ops in the model, such as one for each group"
    exporter.export(save(tmp_path / "fixed", lambda x: grouped(x, kernel, 2), shape), None, tmp_path / "made")
    values = np.random.default_rng(3).normal(size=(3, *shape[1:])).astype(np.float32)
    with runtimes.load(exporter.artifact(tmp_path / "made")) as runtime:
        (received,) = runtime.run({"x": values}).values()
    np.testing.assert_allclose(received, grouped(values, kernel, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("format", ["onnx", pytest.param("openvino", marks=pytest.mark.nightly)])  # the same code
def test_formats_without_variables_take_a_signature_that_counts_nothing(format, tmp_path):
    module = tf.Module()
    module.counter = tf.Variable(0.0)
    named = [tf.TensorSpec((None, 4), tf.float32, "x")]
    module.count = tf.function(lambda x: {"y": x + module.counter.assign_add(1)}, input_signature=named)
    module.product = tf.function(lambda x: {"y": product(x)}, input_signature=named)
    signatures = {"serving_default": module.count, "product": module.product}
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=signatures)
    exporter = next(one for one in EXPORTERS if one.format == format)
    with pytest.raises(ComponentError, match="changes its state while it serves") as error:
        exporter.export(tmp_path / "model", None, tmp_path / "refused")
    assert "or a signature that does not reach them" in error.value.fix
    export = import_module(f"tfopt.components.export_{format}.export").export
    model = SavedModel(tmp_path / "model")
    model.signature = "product"
    (tmp_path / "made").mkdir()
    parameters = exporter.parameters(precision="float32")
    exporter.call_isolated(convert_model, export, model, None, tmp_path / "made", parameters)
    (received,) = exporter.call_isolated(run, exporter.artifact(tmp_path / "made"), {"x": INPUTS}).values()
    np.testing.assert_allclose(received, product(INPUTS), rtol=1e-4, atol=1e-5)
