"""Test that what a component that rewrites a graph proposes as a fix makes the model possible."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.components.exporters import EXPORTERS
from tests.conftest import write_examples
from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.component import find
from tfopt.components.compile_xla.compile import _write_model
from tfopt.components.compile_xla.parameters import Settings
from tfopt.components.compile_xla.sequence_buckets import sequence_input
from tfopt.components.convert_tensorrt.onnx_network import check_signature
from tfopt.components.inspect_model.component import inspect_model
from tfopt.conversion.core_model import convert_model
from tfopt.errors import ComponentError
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


@pytest.mark.parametrize("name", CASES)
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


@pytest.mark.parametrize("format", ["onnx", "openvino"])
def test_formats_that_convert_tensorrt_proposes_need_no_gpu(format, tmp_path):
    exporter = next(one for one in EXPORTERS if one.format == format)
    exporter.export(save(tmp_path / "model"), None, tmp_path / "made")
    with runtimes.load(exporter.artifact(tmp_path / "made")) as runtime:
        (received,) = runtime.run({"x": INPUTS}).values()
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


@pytest.mark.parametrize("format", ["onnx", "openvino"])
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
    convert_model(export, model, None, tmp_path / "made", exporter.parameters(precision="float32"))
    with runtimes.load(exporter.artifact(tmp_path / "made")) as runtime:
        (received,) = runtime.run({"x": INPUTS}).values()
    np.testing.assert_allclose(received, product(INPUTS), rtol=1e-4, atol=1e-5)
