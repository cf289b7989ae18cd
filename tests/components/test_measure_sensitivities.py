"""Tests of `measure_sensitivities`: the losses, the time budget, resumption, refusals, and layers of other formats."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from onnx import save

from tests.components.exporters import write_split
from tests.runtimes.formulas import saved
from tfopt.artifacts import Examples, SavedModel, Sensitivities
from tfopt.components.export_tflite import layer_quantization, litert_converter
from tfopt.components.export_tflite.component import export_tflite
from tfopt.components.export_tflite.export import export
from tfopt.components.export_tflite.parameters import TFLiteConversion
from tfopt.components.measure_sensitivities import measurement
from tfopt.components.measure_sensitivities.component import measure_sensitivities
from tfopt.components.measure_sensitivities.measurement import Settings, measure
from tfopt.components.measure_sensitivities.report import render_html
from tfopt.conversion.mixes.sensitivity_table import SensitivityTable
from tfopt.conversion.onnx.int8 import QuantizableFile
from tfopt.conversion.onnx.saved_model_export import convert_saved_model
from tfopt.errors import ComponentError

DRAW = np.random.default_rng(0)
FIRST, SECOND = (DRAW.normal(size=size).astype(np.float32) for size in ((12, 16), (16, 5)))
FIRST[:, 3] *= 20  # one scale for all channels would ruin the others
SETTINGS = Settings(None, 256, "train", 0, 60.0, None)


def softmax(values):
    shifted = np.exp(values - values.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def answers(x, first=FIRST, second=SECOND, read=lambda values: values):
    return softmax(read(np.maximum(x @ first, 0)) @ second / 16)


def int8(kernel):
    scale = np.abs(kernel).max(axis=0) / 127
    return np.rint(kernel / scale) * scale


def in_256_levels(values):
    step = values.max() / 255  # after a ReLU
    return np.rint(values / step) * step


def divergence(p, q):
    return float(np.mean(np.sum(p * np.log(p / q), axis=1)))


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(1).normal(size=(80, 12)).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    def serve(x):
        return {"y": tf.nn.softmax(tf.nn.relu(x @ tf.constant(FIRST)) @ tf.constant(SECOND) / 16)}

    return SavedModel(saved(tmp_path_factory.mktemp("model"), serve, x=([None, 12], tf.float32)))


@pytest.fixture(scope="module")
def examples(tmp_path_factory, rows):
    folder, labels = tmp_path_factory.mktemp("examples"), answers(rows).argmax(axis=1)[:, None]
    write_split(folder, {"x": rows, "label": labels})
    return Examples(write_split(folder, {"x": rows, "label": labels}, "eval"))


@pytest.fixture(scope="module")
def report(model, examples):
    return measure(model, examples, SETTINGS)


def test_losses_are_those_of_one_rounded_tensor(report, rows):
    first, second = report.layers
    assert (first.weights, second.weights, report.records) == (FIRST.size, SECOND.size, 80)
    exact = answers(rows)
    assert first.rounded_weights["int8"].divergence == pytest.approx(
        divergence(exact, answers(rows, first=int8(FIRST))), rel=0.01
    )
    rounded = answers(rows, read=in_256_levels)
    assert second.rounded_inputs["int8"].divergence == pytest.approx(divergence(exact, rounded), rel=0.01)
    labels = exact.argmax(axis=1), np.arange(len(rows))
    increase = np.mean(np.log(exact[labels[::-1]]) - np.log(rounded[labels[::-1]]))
    assert second.rounded_inputs["int8"].task == pytest.approx(increase, abs=1e-6)
    assert second.rounded_inputs["dynamic"].divergence < second.rounded_inputs["int8"].divergence
    for layer in report.layers:
        losses = [layer.rounded_weights[kind].divergence for kind in ("int4", "int8", "float16")]
        assert losses == sorted(losses, reverse=True)
        assert layer.rounded_inputs["int16"].divergence < 0.01 * layer.rounded_inputs["int8"].divergence
    assert report.mixes[0].predicted == report.mixes[0].degradation == 0
    assert report.mixes[-1].predicted == pytest.approx(
        sum(each.rounded_weights["int4"].divergence for each in report.layers)
    )
    assert not report.not_measured and report.task == "cross-entropy"


def test_a_measurement_continues_where_it_was_interrupted(model, examples, report, tmp_path, monkeypatch):
    settings = Settings(None, 256, "train", 0, 60.0, str(tmp_path / "checkpoints"))
    real, calls = measurement._measure_loss, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(measurement, "_measure_loss", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure(model, examples, settings)
    resumed = measure(model, examples, settings)
    assert resumed.reused == 3 and len(calls) == 4 + 14 - 3
    assert (resumed.layers, resumed.mixes) == (report.layers, report.mixes)
    table = tmp_path / "out"
    again = measure_sensitivities(
        model=model, examples=examples, sensitivities=table, checkpoints=str(tmp_path / "checkpoints")
    )["sensitivities"]
    assert again.load().reused == 14 and list((tmp_path / "checkpoints").iterdir()) == []


def test_what_the_minutes_do_not_suffice_for_is_reported(model, examples):
    short = measure(model, examples, Settings(None, 256, "train", 0, 0.0, None))
    assert len(short.not_measured) == 14 and set(short.not_measured.values()) == {"no time was left"}
    assert short.mixes == [] and not any(layer.rounded_weights for layer in short.layers)
    assert SensitivityTable(short).predict_sum(0.01) is None
    render_html(short)


def test_the_component_writes_a_report_with_a_picture(model, examples, tmp_path, report):
    made = measure_sensitivities(model=model, examples=examples, sensitivities=tmp_path / "out")["sensitivities"]
    assert made.load().layers == report.layers
    page = (made.path / "report.html").read_text()
    assert page.count("<svg") == 2 and all(layer.layer.split("/")[-1] in page for layer in report.layers)


def test_refusals_name_what_to_change(model, examples, tmp_path, report):
    with pytest.raises(ComponentError, match="no such feature"):
        measure(model, examples, Settings("digit", 256, "train", 0, 60.0, None))
    plain = saved(tmp_path / "plain", lambda x: {"y": tf.nn.relu(x)}, x=([None, 12], tf.float32))
    with pytest.raises(ComponentError, match="has float weights"):
        measure(SavedModel(plain), examples, SETTINGS)
    table = tmp_path / "table"
    Sensitivities(table).write(report)
    with pytest.raises(ComponentError, match="sensitivities without max_degradation"):
        export_tflite(model=model, examples=examples, sensitivities=table, exported=tmp_path / "a", precision="int8")


def test_the_search_begins_at_the_predicted_mix(model, examples, report, tmp_path):
    facts = {}
    for name, table in (("without", None), ("with", SensitivityTable(report))):
        (tmp_path / name).mkdir()
        parameters = TFLiteConversion(precision="auto", max_degradation=0.02)
        facts[name] = export(model, examples, tmp_path / name, parameters, sensitivities=table)
    assert facts["with"]["sensitivities"]["layers"] == 2
    assert facts["with"]["degradation"] <= 0.02 and len(facts["with"]["tried"]) <= len(facts["without"]["tried"])
    sizes = [(tmp_path / name / "Format-Serving/tflite").stat().st_size for name in ("without", "with")]
    assert sizes[1] <= sizes[0]
    other = SensitivityTable(replace(report, layers=[replace(layer, peak=2 * layer.peak) for layer in report.layers]))
    (tmp_path / "other").mkdir()
    with pytest.raises(ComponentError, match="none of the kernels"):
        export(model, examples, tmp_path / "other", parameters, sensitivities=other)


def test_kernels_are_found_in_files_of_both_formats(tmp_path):
    """Layouts differ by format, and batch norms are folded by each converter."""
    draw = np.random.default_rng(3)
    kernels = [draw.normal(size=size).astype(np.float32) for size in ((3, 3, 2, 8), (3, 3, 8, 1), (1, 1, 8, 4), (4, 3))]
    gain = draw.uniform(0.5, 2, 8).astype(np.float32)

    def serve(x):
        flow = tf.nn.relu(tf.nn.conv2d(x, kernels[0], 1, "SAME") * gain + gain)
        flow = tf.nn.relu(tf.nn.depthwise_conv2d(flow, kernels[1], [1, 1, 1, 1], "SAME"))
        return {"y": tf.reduce_mean(tf.nn.conv2d(flow, kernels[2], 1, "SAME"), [1, 2]) @ kernels[3]}

    folder = saved(tmp_path / "model", serve, x=([None, 6, 6, 2], tf.float32))
    images = draw.normal(size=(40, 72)).astype(np.float32)
    examples = Examples(write_split(tmp_path / "examples", {"x": images}))
    table = SensitivityTable(measure(SavedModel(folder), examples, SETTINGS))
    content = litert_converter.convert_float(folder, TFLiteConversion())
    kernels_of = {"tflite": [layer.kernel for layer, _ in layer_quantization._layers(content) if layer.kernel]}
    save(convert_saved_model(folder, 18), tmp_path / "float.onnx")
    feed = [{"x": image.reshape(1, 6, 6, 2)} for image in images[:20]]
    quantizable = QuantizableFile(tmp_path / "float.onnx", tmp_path, feed)
    kernels_of["onnx"] = [layer.kernel for layer in quantizable.layers if layer.kernel]
    for name, described in kernels_of.items():
        losses = {table.loss(kernel, "int4", "int8") for kernel in described}
        assert len(described) == len(losses) == 4 and None not in losses, name
