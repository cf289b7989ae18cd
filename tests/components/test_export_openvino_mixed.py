"""Test export_openvino with precision=auto: the kind of each layer, the search for a mix, and what is refused."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.components.exporters import OPENVINO, run, write_split
from tests.runtimes.formulas import saved
from tfopt.artifacts import Examples, OpenVINOModel, SavedModel
from tfopt.components.export_openvino import int8_graph, openvino_graph, quantization
from tfopt.components.export_openvino.component import export_openvino
from tfopt.components.export_openvino.mixed_file import MixedFile
from tfopt.components.export_openvino.parameters import OpenVINOConversion
from tfopt.components.measure_sensitivities.component import measure_sensitivities
from tfopt.conversion.mixes import fastest_mix
from tfopt.conversion.mixes.sensitivity_table import SensitivityTable
from tfopt.errors import ComponentError
from tfopt.runtimes.openvino_import import openvino as ov
from tfopt.runtimes.openvino_import import without_telemetry

with without_telemetry():
    from nncf.openvino.statistics.aggregator import OVStatisticsAggregator

DRAW = np.random.default_rng(0)
TABLE, KERNEL = DRAW.normal(size=(40, 64)).astype(np.float32), DRAW.normal(size=(1, 3, 64, 64)).astype(np.float32)
FIRST, LAST = DRAW.normal(size=(64, 96)).astype(np.float32), DRAW.normal(size=(96, 32)).astype(np.float32)
WORDS = np.random.default_rng(1).integers(0, 40, (60, 12)).astype(np.int32)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """Save a lookup, a convolution and two products."""

    def serve(words):
        rows = tf.gather(tf.constant(TABLE), words)[:, None]
        features = tf.nn.relu(tf.nn.conv2d(rows, tf.constant(KERNEL), 1, "SAME", name="convolve"))
        hidden = tf.nn.relu(tf.matmul(tf.reduce_mean(features, [1, 2]), tf.constant(FIRST), name="first"))
        return {"y": tf.matmul(hidden, tf.constant(LAST), name="last")}

    return saved(tmp_path_factory.mktemp("model") / "model", serve, words=([None, 12], tf.int32))


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> Path:
    folder = write_split(tmp_path_factory.mktemp("examples"), {"words": WORDS})
    return write_split(folder, {"words": np.random.default_rng(2).integers(0, 40, (100, 12)).astype(np.int32)}, "eval")


@pytest.fixture(scope="module")
def table(model, examples, tmp_path_factory):
    """Measure what each layer loses."""
    folder = tmp_path_factory.mktemp("table") / "table"
    measured = measure_sensitivities(model=str(model), examples=str(examples), sensitivities=str(folder), minutes=2)
    return measured["sensitivities"]


@pytest.fixture(scope="module")
def form(model) -> quantization.Quantization:
    feed = [{"words": row[None]} for row in WORDS[:20]]
    graph = openvino_graph.convert(model)
    int8_graph.prepare(graph)
    return quantization.quantize(graph, feed, OpenVINOConversion(calibration="min_max"), lambda form: 0.1)[0]


def stored(graph) -> dict[int, str]:
    """Return the type of the stored weights by their number."""
    constants = [op for op in graph.get_ops() if op.get_type_name() == "Constant"]
    sizes = {array.size for array in (TABLE, KERNEL, FIRST, LAST)}
    types = {int(np.prod(op.get_output_shape(0))): op.get_element_type().get_type_name() for op in constants}
    return {size: name for size, name in types.items() if size in sizes}


def test_each_layer_has_its_kind(form):
    mixed = MixedFile(form.source, form.feed, form.leave_in_float)
    layers = {layer.weights: layer for layer in mixed.layers}
    table, convolution, first, last = (layers[array.size] for array in (TABLE, KERNEL, FIRST, LAST))
    assert table.kinds == ["int4", "dynamic", "float16", "float32"] and table.inputs == []
    assert convolution.kinds == ["int8", "dynamic", "float16", "float32"]
    assert first.kinds == last.kinds == ["int4", "int8", "dynamic", "float16", "float32"]
    kinds = [("int4", "int8", "dynamic", "float16"), ("dynamic", "float16", "int4", "int8"), ("float32",) * 4]
    names = {"int4": "i4", "int8": "i8", "dynamic": "i8", "float16": "f16", "float32": "f32"}
    for chosen in kinds:
        by_layer = dict(zip((table.output, convolution.output, first.output, last.output), chosen, strict=True))
        graph = mixed.quantize(by_layer)
        sizes = [array.size for array in (TABLE, KERNEL, FIRST, LAST)]
        assert stored(graph) == {size: names[kind] for size, kind in zip(sizes, chosen, strict=True)}
        assert openvino_graph.int8_layers(graph) == [name for name, kind in by_layer.items() if kind == "int8"]
        exact, received = (ov.Core().compile_model(one, "CPU")([WORDS])[0] for one in (form.source, graph))
        noise = np.square(received - exact).sum() / np.square(exact).sum()
        assert noise < (0.05 if "int4" in chosen else 1e-9)
    assert stored(form.source) == dict.fromkeys(sizes, "f32")  # the float model is not changed


def test_the_lowest_kind_is_that_of_all_layers_as_far_as_they_have_it(form):
    mixed = MixedFile(form.source, form.feed, form.leave_in_float)
    sizes = [array.size for array in (TABLE, KERNEL, FIRST, LAST)]
    assert stored(mixed.quantize({})) == dict(zip(sizes, ["i4", "i8", "i4", "i4"], strict=True))
    assert set(stored(mixed.quantize({}, "float16")).values()) == {"f16"}
    in_8_bits = mixed.quantize({}, "int8")
    assert len(openvino_graph.int8_layers(in_8_bits)) == 3 and set(stored(in_8_bits).values()) == {"i8"}
    counted = [mixed.count_bytes(mixed.quantize({}, kind)) for kind in ("int4", "int8", "float16", "float32")]
    assert counted == sorted(counted) and counted[3] > 1.7 * counted[2]
    noise = mixed.measure_noise(mixed.quantize({}, "int8"))
    outputs = [layer.output for layer in mixed.layers]
    assert {0 < noise[name] < 1e-2 for name in outputs} == {True}
    exact = mixed.measure_noise(form.source)
    assert set(exact) == set(noise) and max(exact.values()) == 0


def test_all_mixes_have_the_ranges_of_one_pass_over_the_records(model, monkeypatch):
    passes, collect = [], OVStatisticsAggregator.collect_statistics
    monkeypatch.setattr(
        OVStatisticsAggregator, "collect_statistics", lambda *arguments: (passes.append(1), collect(*arguments))
    )
    feed = [{"words": row[None]} for row in WORDS[:20]]
    parameters = OpenVINOConversion(calibration="min_max", bias_correction="fast")
    graph = openvino_graph.convert(model)
    int8_graph.prepare(graph)
    form, _ = quantization.quantize(graph, feed, parameters, lambda form: 0.1)
    number = len(passes)
    layers = openvino_graph.int8_layers(form.quantized)
    mixed = form.leave_in_float(layers[:1])
    assert len(passes) == number and openvino_graph.int8_layers(mixed) == layers[1:]
    assert form.leave_in_float(()) is form.quantized


@pytest.mark.parametrize("counts", [(1,), pytest.param((2, 3), marks=pytest.mark.nightly)], ids=str)
def test_mixes_with_collected_statistics_are_those_of_new_ones(counts, tmp_path):
    """Of a tensor that several layers read, NNCF collects ranges and means, or one of both, by the layers in float."""
    draw = np.random.default_rng(0)
    first, second, third = (draw.normal(size=(3, 3, *size)).astype(np.float32) / 3 for size in ((2, 8), (8, 8), (8, 8)))
    biases = draw.normal(size=(4, 8)).astype(np.float32)

    def serve(x):
        hidden = tf.nn.relu(tf.nn.conv2d(x, first, 1, "SAME") + biases[0])
        left, right = (tf.nn.conv2d(hidden, kernel, 1, "SAME") for kernel in (second, third))
        return {"y": tf.nn.conv2d(left + biases[1], second, 1, "SAME") + biases[2], "z": right + biases[3]}

    graph = openvino_graph.convert(saved(tmp_path / "model", serve, x=([None, 8, 8, 2], tf.float32)))
    int8_graph.prepare(graph)
    feed = [{"x": rows[None]} for rows in draw.normal(size=(12, 8, 8, 2)).astype(np.float32)]
    parameters = OpenVINOConversion(calibration="min_max", bias_correction="fast")
    form, _ = quantization.quantize(graph, feed, parameters, lambda form: 0.1)
    layers = openvino_graph.int8_layers(form.quantized)
    assert len(layers) == 4
    for count in counts:  # of layers in float
        for names in combinations(layers, count):
            new = replace(form, statistics=quantization._Statistics())
            graphs = form.leave_in_float(names), new.leave_in_float(names)
            first, second = (
                [op.get_data() for op in one.get_ordered_ops() if op.get_type_name() == "Constant"] for one in graphs
            )
            assert len(first) == len(second) and all(map(np.array_equal, first, second)), names


def sum_of_products(folder: Path, names: list[str]) -> Path:
    """Save a sum of products; those named torn have one huge row, for a zero, so that 8 bits lose the other rows."""
    kernels = {name: DRAW.normal(size=(64, 32)).astype(np.float32) for name in names}
    for name in names:
        kernels[name][0] *= {"torn": 3_000, "rough": 20}.get(name, 1)

    def serve(x):
        return {"y": tf.add_n([tf.matmul(x * (i + 1.0), kernels[name], name=name) for i, name in enumerate(names)])}

    return saved(folder, serve, x=([None, 64], tf.float32))


@pytest.fixture(scope="module")
def vectors(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    for split, count in (("train", 40), ("eval", 200)):
        rows = DRAW.normal(size=(count, 64)).astype(np.float32) * np.array([0] + [1] * 63, np.float32)
        write_split(folder, {"x": rows}, split)
    return folder


def test_each_layer_of_a_mix_has_the_fewest_bits_that_keep_the_answers(vectors, tmp_path):
    source = sum_of_products(tmp_path / "model", ["d", "e", "f", "rough", "torn"])
    facts = OPENVINO.export(source, vectors, tmp_path / "out", "auto", max_degradation=0.25)
    assert 1 - facts["verified"]["outputs"]["y"]["agreement"] == pytest.approx(facts["degradation"], abs=1e-9)
    assert facts["degradation"] <= 0.25 and facts["degradation_note"].startswith("the first of")
    raised = {word: kind for name, kind in facts["raised"].items() for word in ("torn", "rough") if word in name}
    assert raised["torn"] == "float16" and len(facts["raised"]) <= 3
    size = sum(path.stat().st_size for path in (tmp_path / "out/Format-Serving").iterdir())
    assert size == facts["tried"][-1]["bytes"] or size in [form["bytes"] for form in facts["tried"]]


def test_a_mix_for_latency_meets_the_limit(model, examples, tmp_path, monkeypatch):
    monkeypatch.setattr(fastest_mix, "TIMED_S", 0.01)
    facts = OPENVINO.export(model, examples, tmp_path / "out", "auto", max_degradation=0.1, minimize="latency")
    timed = facts["latency"]["milliseconds"]
    assert {"int4", "int8", "dynamic", "float16", "float32"} <= timed.keys() and min(timed.values()) > 0
    assert facts["latency"]["used"] in timed and facts["degradation"] <= 0.1
    received = run(OpenVINOModel(tmp_path / "out"), {"words": WORDS})["y"]
    expected = run(SavedModel(model), {"words": WORDS})["y"]
    assert (received.argmax(1) == expected.argmax(1)).mean() > 0.8


def test_the_search_ranks_layers_by_measured_sensitivities(model, examples, table, tmp_path):
    facts = {}
    for name, sensitivities in (("without", None), ("with", SensitivityTable(table.load()))):
        settings = {"max_degradation": 0.02, "calibration": "min_max"}
        (tmp_path / name).mkdir()
        parameters = OPENVINO.parameters(precision="auto", calibration_count=50, **settings)
        from tfopt.components.export_openvino.export import export

        facts[name] = export(SavedModel(model), Examples(examples), tmp_path / name, parameters, sensitivities)
    assert facts["with"]["degradation"] <= 0.02 and "sensitivities" not in facts["without"]
    assert facts["with"]["sensitivities"]["layers"] >= 3


def test_contradicting_arguments_are_refused_before_any_work(model, examples, table, tmp_path):
    for arguments, received in [
        ({"precision": "auto"}, "precision='auto' without max_degradation"),
        ({"precision": "auto", "max_degradation": 0.1, "examples": None}, "precision='auto' without examples"),
        ({"precision": "int8", "minimize": "latency"}, "minimize='latency' with precision='int8'"),
        (
            {"precision": "int8", "max_degradation": 0.1, "sensitivities": str(table.path)},
            "sensitivities with precision='int8'",
        ),
    ]:
        settings = {"examples": str(examples)} | arguments
        with pytest.raises(ComponentError) as error:
            export_openvino(str(model), str(tmp_path / "out"), **settings)
        assert received in error.value.received, arguments
    assert not (tmp_path / "out").exists()
