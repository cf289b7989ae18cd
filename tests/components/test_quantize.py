"""Test `quantize`: 8-bit files have the trained ranges, and the zeros and shared weights of the parent."""

from pathlib import Path

import keras
import numpy as np
import pytest

from tests.components.both_forms import outputs_of_both_forms
from tests.components.train_modules import DENSE
from tests.lite_files import kernels, scales
from tests.onnx_files import whole_numbers
from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, KerasModel, TFLiteModel
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.export_onnx.component import export_onnx
from tfopt.components.export_tflite.component import export_tflite
from tfopt.components.quantize.component import quantize
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child
from tfopt.runtimes.onnx import OnnxRuntime


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("quantize")
    (made / "module.py").write_text(DENSE)
    (made / "module2.py").write_text(DENSE.replace("import keras", "import tf_keras as keras"))
    return made


@pytest.fixture(scope="module")
def quantized(folder, digits_model, digits_examples) -> KerasModel:
    target = folder / "quantized"
    return quantize(digits_model, digits_examples, folder / "module.py", target, epochs=2)["quantized"]


@pytest.fixture(scope="module")
def exported(folder, quantized) -> TFLiteModel:
    return export_tflite(quantized.path, folder / "exported", precision="int8")["exported"]


@pytest.fixture(scope="module")
def sparse_and_shared(folder, digits_model, digits_examples) -> KerasModel:
    """A quantized model with 70 % zeros and few shared values, also in a convolution before a batch norm."""
    model = keras_models.load(KerasModel(digits_model))
    for layer in model.layers:
        if type(layer).__name__ in ("Conv2D", "Dense"):
            layer.kernel.assign(coarse(layer.kernel.numpy()))
    keras_models.save(model, folder / "coarse")
    return quantize(folder / "coarse", digits_examples, folder / "module.py", folder / "pcqat", epochs=1)["quantized"]


def coarse(kernel: np.ndarray) -> np.ndarray:
    values = np.round(kernel / np.abs(kernel).max() * 4) / 4 * np.abs(kernel).max()
    return np.where(np.abs(kernel) < np.quantile(np.abs(kernel), 0.7), 0, values).astype("float32")


def accuracy(model, examples: Path) -> float:
    specs = {"image": TensorSpec("float32", (None, 8, 8, 1)), "label": TensorSpec("int64", (None, 1))}
    batch = next(read_batches(Examples(examples).split("eval"), specs, batch_size=397))
    with runtimes.load(model) as loaded:
        digits = next(iter(loaded.run({"image": batch["image"]}).values())).argmax(1)
    return float((digits == batch["label"][:, 0]).mean())


def test_the_exported_file_computes_in_8_bits_throughout_and_needs_no_calibration(exported):
    assert exported.card.facts["ops"]["float"] == {}
    assert exported.card.facts["ranges"] == "trained"
    assert "calibration" not in exported.card.facts
    assert [kernel.dtype for kernel in kernels(exported.tflite)] == [np.int8] * 3


def test_outputs_of_the_exported_file_match_the_quantized_model(exported, digits_examples, folder, quantized):
    outputs = export_tflite(quantized.path, folder / "compared", digits_examples, precision="int8", integer_io=True)
    verified = outputs["exported"].card.facts["verified"]["outputs"]["digit"]
    assert verified["agreement"] >= 0.99
    assert verified["mean_abs_error"] < 2e-3
    assert outputs["exported"].card.facts["ops"]["io"] == {"image": "INT8", "digit": "INT8"}


def test_training_for_8_bits_is_at_least_as_accurate_as_calibrating_afterwards(
    exported, digits_model, digits_examples, folder
):
    after = export_tflite(digits_model, folder / "ptq", digits_examples, precision="int8")["exported"]
    floats = accuracy(KerasModel(digits_model), digits_examples)
    assert accuracy(exported, digits_examples) >= accuracy(after, digits_examples)
    assert accuracy(exported, digits_examples) >= floats - 0.005


def test_the_quantized_model_has_the_signature_of_its_parent(quantized, digits_model):
    with runtimes.load(quantized) as child, runtimes.load(KerasModel(digits_model)) as parent:
        assert (child.inputs, list(child.outputs)) == (parent.inputs, list(parent.outputs))


def test_both_forms_agree_in_a_process_without_the_component(quantized):
    """The process has TensorFlow and Keras only; the model's layers are imported when it is loaded."""
    keras_form, served, imported = run_in_child(outputs_of_both_forms, str(quantized.path), doing="loading both forms")
    np.testing.assert_allclose(keras_form, served, atol=1e-6)
    assert not [name for name in imported if name.startswith("tfopt.components.quantize.")]


def test_the_float_model_is_the_teacher(quantized, digits_model):
    teacher = quantized.card.teacher
    assert (teacher.digest, quantized.card.facts["teacher"]["alpha"]) == (KerasModel(digits_model).digest, 0.7)


def test_the_scales_of_the_file_are_the_trained_ranges(quantized, exported, folder):
    model = keras_models.load(quantized)
    layer = next(layer for layer in model.layers if layer.name.startswith("re_lu") and layer.name.endswith("_range"))
    layer.high.assign(2 * layer.high)
    keras_models.save(model, folder / "wider")
    wider = export_tflite(folder / "wider", folder / "wider_lite", precision="int8")["exported"]
    before, after = scales(exported.tflite)["CONV_2D"][0], scales(wider.tflite)["CONV_2D"][0]
    assert after == pytest.approx(2 * before)


def test_ranges_are_those_of_the_data(quantized):
    model = keras_models.load(quantized)
    assert float(model.get_layer("image_range").low.numpy()) == 0
    assert float(model.get_layer("image_range").high.numpy()) == pytest.approx(16, rel=0.02)


def test_zeros_stay_zero_and_shared_weights_stay_shared_in_the_model_and_in_the_file(sparse_and_shared, folder):
    assert sparse_and_shared.card.facts["report"]["kept"] == {
        "zeros": ["conv2d", "digit_linear"],
        "clusters": ["conv2d", "digit_linear"],
    }
    before = [
        layer.kernel.numpy() for layer in keras_models.load(KerasModel(folder / "coarse")).layers if is_dense(layer)
    ]
    after = [layer.kernel.numpy() for layer in keras_models.load(sparse_and_shared).layers if is_dense(layer)]
    assert not all(np.array_equal(old, new) for old, new in zip(before, after, strict=True))
    lite = export_tflite(sparse_and_shared.path, folder / "pcqat_lite", precision="int8")["exported"]
    stored = [kernel for place, kernel in enumerate(kernels(lite.tflite)) if place != 1]
    for old, new, small in zip(before, after, stored, strict=True):
        assert len(np.unique(new)) <= len(np.unique(old)) <= 9
        assert len(np.unique(small)) <= 9
        np.testing.assert_array_equal(new == 0, old == 0)
        assert (small == 0).mean() >= (old == 0).mean() >= 0.69


def test_the_onnx_file_has_the_trained_ranges_and_the_levels_with_their_zeros_and_shared_weights(
    quantized, sparse_and_shared, digits_examples, folder
):
    """Export without examples, so that no range is calibrated."""
    plain = export_onnx(quantized.path, folder / "onnx", precision="int8")["exported"]
    assert plain.card.facts["ranges"] == "trained"
    assert "calibration" not in plain.card.facts
    assert plain.card.facts["ops"]["QuantizeLinear"] >= 5
    assert [kernel.dtype for kernel in whole_numbers(plain.onnx)] == [np.int8] * 3
    batch = {"image": next(images(digits_examples))}
    with OnnxRuntime(plain, unfused=True) as file, runtimes.load(quantized) as model:
        difference = np.abs(file.run(batch)["digit"] - model.run(batch)["digit"])
    assert difference.mean() < 1e-4  # ties between two levels are rounded differently
    made = export_onnx(sparse_and_shared.path, folder / "pcqat_onnx", digits_examples, precision="int8")["exported"]
    conv, _, dense = whole_numbers(made.onnx)
    assert len(np.unique(dense)) <= 9
    assert (conv == 0).mean() >= 0.69 and (dense == 0).mean() >= 0.69
    assert all(len(np.unique(channel)) <= 9 for channel in conv)


def images(examples: Path):
    specs = {"image": TensorSpec("float32", (None, 8, 8, 1))}
    return (batch["image"] for batch in read_batches(Examples(examples).split("eval"), specs, batch_size=397))


@pytest.mark.parametrize("options", [{"precision": "float32"}, {"precision": "float16"}, {"reduce_range": "on"}])
def test_export_onnx_refuses_to_discard_the_trained_ranges(quantized, digits_examples, tmp_path, options):
    with pytest.raises(ComponentError, match="8-bit ranges were trained"):
        export_onnx(quantized.path, tmp_path / "out", digits_examples, **{"precision": "int8", **options})


def is_dense(layer) -> bool:
    inner = getattr(layer, "layer", layer)
    return type(inner).__name__ in ("Conv2D", "Dense")


def quantize_dense(folder: Path, digits_examples: Path, name: str, **more: object) -> KerasModel:
    """Quantize dense layers without keeping zeros."""
    image = keras.Input((8, 8, 1), name="image")
    flow = keras.layers.Flatten()(keras.layers.Rescaling(1 / 16)(image))
    flow = keras.layers.Dense(8, "relu", name="hidden")(keras.layers.Dense(16, "tanh", name="first")(flow))
    model = keras.Model(image, keras.layers.Dense(10, activation="softmax", name="digit")(flow))
    for layer in ("hidden", "digit"):
        kernel = model.get_layer(layer).kernel
        kernel.assign(coarse(kernel.numpy()))
    parent = folder / f"coarse {name}"
    keras_models.save(model, parent)
    options = {"epochs": 1, "keep_zeros": False, "keep_clusters": False, "keep_float": ["first"], **more}
    return quantize(parent, digits_examples, folder / "module.py", folder / name, **options)["quantized"]


@pytest.fixture(scope="module")
def plain_dense(folder, digits_examples) -> KerasModel:
    return quantize_dense(folder, digits_examples, "plain")


@pytest.mark.nightly  # daily: test_second_round.py
def test_a_model_that_misses_a_goal_has_a_second_round(folder, digits_examples):
    recovered = quantize_dense(folder, digits_examples, "recovered", recover=1, goals=["accuracy threshold 1.0"])
    recovery = recovered.card.facts["fine_tuned"]["recovery"]
    assert recovery["missed"].startswith("accuracy is ")
    assert (recovery["records"], recovery["epochs"], recovery["kept"]) == (140, 1, "second")
    assert recovery["second"]["accuracy"] > recovery["first"]["accuracy"]


def test_without_keep_zeros_the_zeros_are_lost_and_layers_in_keep_float_stay_in_floats(plain_dense):
    report = plain_dense.card.facts["report"]
    sparsities = {kernel["layer"]: kernel["sparsity"] for kernel in report["kernels"]}
    assert sparsities.keys() == {"hidden_linear", "digit_linear"}
    assert max(sparsities.values()) < 0.01
    assert report["left"]["first"] == "in keep_float"


@pytest.mark.parametrize("precision", ["float32", "float16", "dynamic", "int16x8"])
def test_export_tflite_refuses_to_discard_the_trained_ranges(quantized, digits_examples, tmp_path, precision):
    with pytest.raises(ComponentError, match="8-bit ranges were trained"):
        export_tflite(quantized.path, tmp_path / "out", digits_examples, precision=precision)
