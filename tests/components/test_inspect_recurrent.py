"""Test that the work of recurrent layers is counted, in all steps of the loop."""

import pytest

from tfopt.artifacts import Model
from tfopt.components.inspect_model.component import inspect_model

STEPS, WIDTH, UNITS, OUTPUTS = 12, 16, 32, 4
# products of a step: of its input and of the state, with the kernels of all gates
GATES = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}


def inspected(keras, layer, folder, steps=STEPS):
    x = keras.Input((steps, WIDTH), name="x")
    keras.Model(x, keras.layers.Dense(OUTPUTS)(layer(x))).save(folder / "model.keras")
    return inspect_model(Model(folder / "model.keras"), folder / "inspection")["inspection"].read()


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
@pytest.mark.parametrize("kind", GATES)
def test_the_products_of_all_steps_are_counted(kind, library, tmp_path):
    keras = pytest.importorskip(library)
    flops = inspected(keras, getattr(keras.layers, kind)(UNITS), tmp_path)["flops"]
    step = 2 * (WIDTH + UNITS) * GATES[kind] * UNITS
    assert flops["by_op"]["MatMul"] == STEPS * step + 2 * UNITS * OUTPUTS
    assert not {"While", "StatelessWhile", "PartitionedCall", "MatMul"} & flops["not_counted"].keys()


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
