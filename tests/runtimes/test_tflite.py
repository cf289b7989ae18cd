"""Test the tflite runtime: memory, quantization, signatures and damaged files."""

import numpy as np
import pytest
import tensorflow as tf

from tests.runtimes import formulas
from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError


@pytest.fixture(scope="module")
def two_by_two(tmp_path_factory) -> Model:
    return formulas.crossed_lite(tmp_path_factory.mktemp("größe 1"))


def test_memory_is_reallocated_only_if_a_shape_changes(digits_model, tmp_path):
    model = formulas.lite(tmp_path / "a.tflite", digits_model / "Format-Serving")
    runtime = runtimes.load(model)
    image = np.random.default_rng(0).random((32, 8, 8, 1), np.float32)
    whole = runtime.run({"image": image})["digit"]
    single = [runtime.run({"image": image[row : row + 1]})["digit"] for row in range(32)]
    np.testing.assert_allclose(np.concatenate(single), whole, atol=1e-6)
    runtime._interpreter.allocate_tensors = None  # any further allocation would now fail
    runtime.run({"image": image[:1]})
    with pytest.raises(TypeError):
        runtime.run({"image": image[:2]})


@pytest.mark.parametrize("dtype", [tf.int8, tf.uint8, tf.int16])
def test_quantized_inputs_are_rounded_and_clipped(tmp_path, dtype):
    model = formulas.saved(tmp_path / "model", lambda x: {"y": tf.nn.relu6(x)}, x=([None, 1], tf.float32))
    ops = tf.lite.OpsSet.TFLITE_BUILTINS_INT8
    if dtype == tf.int16:
        ops = tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
    file = formulas.lite(
        tmp_path / "a.tflite",
        model,
        optimizations=[tf.lite.Optimize.DEFAULT],
        representative_dataset=lambda: ({"x": np.array([[value]], np.float32)} for value in (0.0, 6.0)),
        target_spec=tf.lite.TargetSpec(supported_ops=[ops]),
        inference_input_type=dtype,
        inference_output_type=dtype,
    )
    runtime = runtimes.load(file)
    assert runtime.inputs == {"x": TensorSpec("float32", (None, 1))} and runtime.outputs == {
        "y": TensorSpec("float32", (None, 1))
    }
    (detail,) = runtime._interpreter.get_input_details()
    assert detail["dtype"] == dtype.as_numpy_dtype
    step = detail["quantization"][0]
    values = np.array([0, 1.4 * step, 1.6 * step, 3, 6, 100, -100], np.float32)[:, None]
    expected = np.array([0, step, 2 * step, 3, 6, 6, 0])
    np.testing.assert_allclose(runtime.run({"x": values})["y"].ravel(), expected, atol=0.51 * step + 1e-6)
    near = runtime.run({"x": values[1:3]})["y"].ravel()
    np.testing.assert_allclose(near, expected[1:3], atol=0.01 * step)  # truncation would give 1 and 1
    with pytest.raises(ComponentError, match="NaN"):
        runtime.run({"x": np.array([[np.nan]], np.float32)})


def test_each_of_several_signatures_can_be_run(tmp_path):
    module = tf.Module()
    spec = [tf.TensorSpec([None, 2], tf.float32, name="x")]
    module.plus = tf.function(lambda x: {"y": x + 1}, input_signature=spec)
    module.times = tf.function(lambda x: {"y": x * 5}, input_signature=spec)
    for first, second in (("serving_default", "other"), ("other", "serving_default")):
        folder = tmp_path / first
        tf.saved_model.save(module, str(folder), signatures={first: module.plus, second: module.times})
        file = formulas.lite(tmp_path / f"{first}.tflite", folder)
        for name, expected in ((first, 3), (second, 10)):
            runtime = runtimes.load(file, signature=name)
            for batch in (1, 4):
                assert (runtime.run({"x": np.full((batch, 2), 2, np.float32)})["y"] == expected).all()
    with pytest.raises(ComponentError) as error:
        runtimes.load(file, signature="otter")
    assert "no signature 'otter'" in error.value.received and error.value.fix == "did you mean other?"


def test_without_signatures_tensor_names_are_used(two_by_two, tmp_path):
    runtime = runtimes.load(formulas.without_signatures(tmp_path / "b.tflite", two_by_two))
    assert set(runtime.inputs) == {"serving_default_alpha:0", "serving_default_zeta:0"}
    ones = np.ones((3, 2), np.float32)
    answers = runtime.run({"serving_default_alpha:0": ones, "serving_default_zeta:0": ones * 5})
    assert sorted(answer[0, 0] for answer in answers.values()) == [2, 4]


@pytest.mark.parametrize("keep", [0, 1, 20, 0.5, 0.999])
def test_truncated_files_are_rejected(two_by_two, tmp_path, keep):
    content = two_by_two.path.read_bytes()
    (tmp_path / "part.tflite").write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(ComponentError) as error:
        runtimes.load(Model(tmp_path / "part.tflite"))
    assert "part.tflite" in error.value.received and "truncated" in error.value.fix
