"""Test that the work of recurrent layers is counted, in all steps of the loop."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from tfopt.artifacts import Model
from tfopt.cli.main import main
from tfopt.components.inspect_model.component import inspect_model

STEPS, WIDTH, UNITS, OUTPUTS = 12, 16, 32, 4
# products of a step: of its input and of the state, with the kernels of all gates
GATES = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}


def inspected(keras, layer, folder, steps=STEPS):
    x = keras.Input((steps, WIDTH), name="x")
    keras.Model(x, keras.layers.Dense(OUTPUTS)(layer(x))).save(folder / "model.keras")
    return inspect_model(Model(folder / "model.keras"), folder / "inspection")["inspection"].read()


@pytest.mark.parametrize(
    ("kind", "library"),
    [
        *(("GRU", "keras"), ("SimpleRNN", "keras")),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in (("LSTM", "keras"), *((kind, "tf_keras") for kind in GATES))
        ),
    ],
)
def test_the_products_of_all_steps_are_counted(kind, library, tmp_path):
    keras = pytest.importorskip(library)
    flops = inspected(keras, getattr(keras.layers, kind)(UNITS), tmp_path)["flops"]
    step = 2 * (WIDTH + UNITS) * GATES[kind] * UNITS
    assert flops["by_op"]["MatMul"] == STEPS * step + 2 * UNITS * OUTPUTS
    assert not {"While", "StatelessWhile", "PartitionedCall", "MatMul"} & flops["not_counted"].keys()


@pytest.mark.parametrize("library", [pytest.param("keras", marks=pytest.mark.nightly), "tf_keras"])
@pytest.mark.parametrize("kind", ["GRU", pytest.param("LSTM", marks=pytest.mark.nightly)])
def test_the_products_of_unrolled_steps_are_counted(kind, library, tmp_path):
    keras = pytest.importorskip(library)
    flops = inspected(keras, getattr(keras.layers, kind)(UNITS, unroll=True), tmp_path, steps=4)["flops"]
    steps = 2 * (4 * WIDTH + 3 * UNITS) * GATES[kind] * UNITS  # the first state is zeros, its product a constant
    assert flops["by_op"]["MatMul"] == steps + 2 * UNITS * OUTPUTS
    assert flops["not_counted"] == {}


@pytest.mark.parametrize(
    ("kind", "unroll"),
    [
        ("GRU", False),
        pytest.param("LSTM", False, marks=pytest.mark.nightly),
        pytest.param("GRU", True, marks=pytest.mark.nightly),
    ],
)
def test_layers_behind_the_steps_of_keras_2_are_counted(kind, unroll, tmp_path):
    keras = pytest.importorskip("tf_keras")
    layer = getattr(keras.layers, kind)(UNITS, return_sequences=True, unroll=unroll)
    flops = inspected(keras, layer, tmp_path, steps=4)["flops"]
    step = 2 * (WIDTH + UNITS) * GATES[kind] * UNITS
    first = 2 * UNITS * GATES[kind] * UNITS if unroll else 0  # from a state of zeros: a constant
    assert flops["by_op"]["MatMul"] == 4 * (step + 2 * UNITS * OUTPUTS) - first
    assert not {"MatMul", "BiasAdd"} & flops["not_counted"].keys()


def test_layers_that_read_the_last_state_are_counted(tmp_path):
    import keras

    def attend(x):
        steps, state, _ = keras.layers.LSTM(UNITS, return_sequences=True, return_state=True)(x)
        query = keras.layers.Reshape((1, UNITS))(state)
        return keras.layers.Flatten()(keras.layers.AdditiveAttention()([query, steps]))

    flops = inspected(keras, attend, tmp_path)["flops"]
    assert flops["by_op"]["MatMul"] == STEPS * 2 * (WIDTH + UNITS) * 4 * UNITS + 2 * UNITS * OUTPUTS
    assert flops["by_op"]["BatchMatMulV2"] == 2 * STEPS * UNITS and flops["not_counted"] == {}


def test_a_layer_that_is_distributed_over_time_is_counted_for_each_step(tmp_path):
    keras = pytest.importorskip("tf_keras")
    layers = keras.layers
    distributed = layers.TimeDistributed(layers.LSTM(UNITS))  # with a batch size of 4 times the model's
    outside = layers.SimpleRNN(UNITS)
    flops = inspected(keras, lambda x: outside(distributed(layers.Reshape((4, 3, WIDTH))(x))), tmp_path)["flops"]
    inner, outer = 4 * 3 * 2 * (WIDTH + UNITS) * 4 * UNITS, 4 * 2 * (UNITS + UNITS) * UNITS
    assert flops["by_op"]["MatMul"] == inner + outer + 2 * UNITS * OUTPUTS
    assert flops["not_counted"] == {}


def test_both_directions_are_counted(tmp_path):
    import keras

    layer = keras.layers.Bidirectional(keras.layers.LSTM(UNITS))
    flops = inspected(keras, layer, tmp_path)["flops"]
    step = 2 * (WIDTH + UNITS) * 4 * UNITS
    assert flops["by_op"]["MatMul"] == 2 * STEPS * step + 2 * 2 * UNITS * OUTPUTS


def test_the_products_of_a_loop_are_the_busiest_nodes(tmp_path):
    import keras

    report = inspected(keras, keras.layers.LSTM(UNITS), tmp_path)
    assert report["busiest"][0]["op"] == "MatMul" and "/while/" in report["busiest"][0]["node"]
    assert report["busiest"][0]["flops"] == STEPS * 2 * UNITS * 4 * UNITS


def test_loops_and_their_work_are_reported(tmp_path):
    import keras

    report = inspected(keras, keras.layers.LSTM(UNITS), tmp_path)
    step = 2 * (WIDTH + UNITS) * 4 * UNITS
    assert report["loops"] == 1
    outside = report["flops"]["total"] - report["flops"]["in_loops"]
    assert report["flops"]["in_loops"] > STEPS * step and 2 * UNITS * OUTPUTS < outside < 3 * UNITS * OUTPUTS
    assert "(1 found)" in (tmp_path / "inspection" / "inspection.txt").read_text()


def conv(layers, units, count=1, **arguments):
    """Return convolutions, and an LSTM after them."""

    def build(x):
        for _ in range(count):
            x = layers.Conv1D(96, 5, activation="relu")(x)
        return layers.LSTM(units, **arguments)(x)

    return build


NETWORKS = {
    "lstm": lambda layers: layers.LSTM(160),
    "gru": lambda layers: layers.GRU(192),
    "bidirectional": lambda layers: layers.Bidirectional(layers.LSTM(112)),
    "unrolled": lambda layers: layers.LSTM(160, unroll=True),
    "convolution": lambda layers: conv(layers, 160),
    "convolutions": lambda layers: conv(layers, 8, count=4),
}


@pytest.mark.parametrize("name", ["unrolled", "convolution"])
def test_channels_that_cannot_be_removed_are_not_advised_to_be(name, tmp_path):
    import keras

    report = inspected(keras, NETWORKS[name](keras.layers), tmp_path)
    assert report["flops"].get("prunable", 0) < report["flops"]["total"] / 2
    assert not any(advice["command"].startswith("tfopt prune") for advice in report["advice"])


# advice on these networks; the channels of a convolution before a loop, or of unrolled steps, cannot be removed
ADVISED = {"lstm": {"export_openvino", "export_tflite"}, "convolutions": {"prune", "export_openvino", "export_tflite"}}
ADVISED["unrolled"] = {"export_tflite"}
BOTH_FORMS = [
    (name, library, form) for name in NETWORKS for library in ("keras", "tf_keras") for form in ("keras", "served")
]


# Daily, an advised command runs in test_inspect_model_advice.py, and test_export_tflite_recurrent.py and
# test_recurrent_models.py convert such layers.
@pytest.mark.nightly
@pytest.mark.parametrize(("name", "library", "form"), BOTH_FORMS)
def test_each_advised_command_runs_on_recurrent_models(name, library, form, tmp_path, monkeypatch):
    """The advised files are made, and channels are advised to be removed only where some can be."""
    from tfopt.components.prepare_examples.component import prepare_examples

    keras = pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    x = keras.Input((24, WIDTH), name="x")
    model = keras.Model(x, keras.layers.Dense(OUTPUTS, activation="softmax")(NETWORKS[name](keras.layers)(x)))
    path = Path("model.keras" if form == "keras" else "served")
    model.save(path) if form == "keras" else model.export(str(path))
    draw = np.random.default_rng(0)
    np.savez("data.npz", x=draw.normal(size=(64, 24, WIDTH)).astype("float32"), label=draw.integers(0, OUTPUTS, 64))
    prepare_examples(data="data.npz", examples="EXAMPLES")
    report = inspect_model(Model(path.absolute()), tmp_path / "inspection")["inspection"].load()
    commands = [shlex.split(advice.command)[1:] for advice in report.advice]
    expected = ADVISED.get(name, ADVISED["lstm"]) - ({"prune"} if form == "served" else set())
    assert {command[0] for command in commands} == expected
    for command in commands:
        words = ["label" if word == "LABEL" else word for word in command]
        if "--module" in words:  # the fine-tuning afterwards
            place = words.index("--module")
            words = [*words[:place], *words[place + 2 :]]
        assert not main(words)
