"""Peak memory of steps, in copies of the model: how often its weights are in memory at once."""

import pytest

from tfopt.processes.memory import peak_memory
from tfopt.processes.subprocess_call import calls_in_this_process, run_in_child

SIDE = 3072  # of the kernel, 38 MB


def write_model(folder):
    """Export a product with a large kernel under two signatures, as Keras does for each model."""
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((SIDE,), name="x"), keras.layers.Dense(SIDE, "tanh"), keras.layers.Dense(4)])
    model.export(str(folder), verbose=False)


def run_step(name, folder):
    """Return the peak memory of a step on top of the imports, divided by the size of the weights."""
    import onnxruntime  # noqa: F401
    import tensorflow as tf
    import tf2onnx  # noqa: F401

    from tfopt import components

    step = getattr(components, name)
    tf.constant(0)
    before = peak_memory()
    with calls_in_this_process():
        step(folder / "model", folder / name)
    return (peak_memory() - before) / (4 * SIDE**2)


@pytest.mark.nightly  # reads and writes hundreds of megabytes
@pytest.mark.parametrize(("name", "copies"), [("compile_xla", 34), ("export_onnx", 17)])
def test_weights_are_in_memory_a_limited_number_of_times(tmp_path, name, copies):
    run_in_child(write_model, tmp_path / "model", doing="writing the model")
    measured = run_in_child(run_step, name, tmp_path, doing=name)
    print(f"{name}: {measured:.1f} copies")
    assert measured < copies
