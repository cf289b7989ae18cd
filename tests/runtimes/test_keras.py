"""Test the keras runtime: Keras 3 and Keras 2 files in inference mode."""

import numpy as np
import pytest

from tests.runtimes import formulas
from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child


def two_by_two(keras):
    """Build a model of two inputs and two outputs whose dropout and batch norm differ in training."""
    zeta, alpha = keras.Input((4,), name="zeta"), keras.Input((4,), name="alpha")
    mixed = keras.layers.Dropout(0.9)(keras.layers.BatchNormalization()(zeta))
    left = keras.layers.Dense(3, name="left")(keras.layers.Concatenate()([mixed, alpha]))
    right = keras.layers.Dense(2, name="right")(alpha)
    return keras.Model([zeta, alpha], [right, left])


@pytest.mark.parametrize(("library", "suffix"), [("keras", ".keras"), ("tf_keras", ".keras"), ("tf_keras", ".h5")])
def test_inputs_and_outputs_have_names_in_inference_mode(tmp_path, library, suffix):
    keras = pytest.importorskip(library)
    model = two_by_two(keras)
    model.layers[1].set_weights(
        [
            np.random.default_rng(index).random(shape.shape) + 0.5
            for index, shape in enumerate(model.layers[1].get_weights())
        ]
    )
    model.save(tmp_path / f"größe 1{suffix}")
    runtime = runtimes.load(Model(tmp_path / f"größe 1{suffix}"))
    assert {name: str(spec) for name, spec in runtime.inputs.items()} == {
        "zeta": "float32[?,4]",
        "alpha": "float32[?,4]",
    }
    for batch in (1, 3):
        arrays = {name: np.random.default_rng(batch).random((batch, 4), np.float32) for name in ("alpha", "zeta")}
        right, left = model([arrays["zeta"], arrays["alpha"]], training=False)
        answer = runtime.run(arrays)
        assert sorted(answer) == ["left", "right"]
        np.testing.assert_allclose(answer["left"], left, atol=1e-6)
        np.testing.assert_allclose(answer["right"], right, atol=1e-6)


def test_wrong_inputs_are_rejected(digits_model):
    runtime = runtimes.load(Model(digits_model / "Format-Keras/model.keras"))
    for arrays, received in [
        ({"imagee": np.ones((1, 8, 8, 1), np.float32)}, "no input 'image'"),
        ({"image": np.ones((1, 8, 8), np.float32)}, "input 'image': float32[1,8,8]"),
        ({"image": np.ones((1, 8, 8, 1), np.uint8)}, "input 'image': uint8[1,8,8,1]"),
    ]:
        with pytest.raises(ComponentError) as error:
            runtime.run(arrays)
        assert error.value.received == received


@pytest.mark.parametrize("keep", [0, 100, 0.9])
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_truncated_files_are_rejected(digits_model, tmp_path, suffix, keep):
    from tfopt import keras_models

    whole = tmp_path / f"whole{suffix}"
    keras_models.load(Model(digits_model)).save(whole)
    content = whole.read_bytes()
    part = tmp_path / f"part{suffix}"
    part.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(ComponentError) as error:
        runtimes.load(Model(part))
    assert str(part) in error.value.received and "truncated" in error.value.fix


def test_threads_are_set_in_a_new_process(digits_model):
    file = digits_model / "Format-Keras/model.keras"
    assert run_in_child(formulas.threads_after_loading, file, 1, doing="loading") == 1
