"""Test the models that `quantize` supports, the layers that stay in floats, and the models that it refuses."""

import importlib

import keras
import numpy as np
import pytest
import tf_keras
from keras import layers

from tests.components.train_modules import DENSE
from tests.lite_files import kernels
from tests.onnx_files import whole_numbers
from tfopt import keras_models, runtimes
from tfopt.artifacts import KerasModel
from tfopt.components.export_onnx.component import export_onnx
from tfopt.components.export_tflite.component import export_tflite
from tfopt.components.quantize.component import quantize
from tfopt.components.quantize.fake_quant_training import Trainee
from tfopt.conversion.int8_overflow import needs_reduced_range
from tfopt.errors import ComponentError


@pytest.fixture
def module(tmp_path):
    return {name: module_of(tmp_path, name) for name in ("keras", "tf_keras")}


def module_of(folder, name):
    (folder / f"{name}.py").write_text(DENSE.replace("import keras", f"import {name} as keras"))
    return folder / f"{name}.py"


def trainee_of(model, keep_float=()) -> Trainee:
    return Trainee(model, list(keep_float), {}, zeros=True, clusters=True)


def moved(model):
    """Set distinct weights and statistics, with negative scales."""
    draw = np.random.default_rng(0)
    for weight in model.weights:
        name = weight.name.split("/")[-1].split(":")[0]
        if name in ("beta", "bias", "moving_mean"):
            weight.assign(draw.normal(0, 0.3, weight.shape))
        if name in ("gamma", "moving_variance"):
            low = -2 if name == "gamma" else 0.5
            weight.assign(draw.uniform(low, 2, weight.shape))
    return model


@keras.saving.register_keras_serializable("tests")
class Doubled(layers.Layer):
    def call(self, inputs):
        return 2 * inputs


def model_of_all_kinds():
    """Build a model with each kind of layer: compound, nested and called twice, fixed, custom, operations."""
    keras.utils.set_random_seed(3)
    image, extra = layers.Input((8, 8, 2), name="image"), layers.Input((6,), name="extra")
    flow = layers.Rescaling(1 / 8, -1.0, name="rescaling")(image)
    flow = layers.Conv2D(6, 3, padding="same", use_bias=False, name="first")(flow)
    flow = before = layers.ReLU(6.0, name="clipped")(layers.BatchNormalization(name="folded")(flow))
    flow = layers.SeparableConv2D(6, 3, padding="same", activation="relu", name="separable")(flow)
    flow = layers.Add(name="sum")([flow, before])
    inner = keras.Sequential(
        [layers.Input((8, 8, 6)), layers.Conv2D(6, 1, activation="silu", name="deep")], name="inner"
    )
    flow = inner(inner(flow))
    gate = layers.Dense(6, activation="sigmoid", name="gate")(layers.GlobalAveragePooling2D()(flow))
    flow = flow * layers.Reshape((1, 1, 6))(gate)
    flow = layers.LayerNormalization(name="normal")(layers.Flatten()(layers.MaxPooling2D()(flow)))
    flow = layers.Concatenate()([Doubled(name="own")(flow), layers.Dropout(0.3)(extra)])
    value = layers.Dense(1, name="value")(flow)
    return moved(keras.Model([image, extra], [layers.Dense(4, activation="softmax", name="kind")(flow), value]))


def inputs(records=32):
    draw = np.random.default_rng(1)
    return [draw.uniform(0, 16, (records, 8, 8, 2)).astype("float32"), draw.normal(size=(records, 6)).astype("float32")]


def test_decomposed_layers_change_no_output_without_rounding():
    model, records = model_of_all_kinds(), inputs()
    before = [answer.numpy() for answer in model(records)]
    trainee = trainee_of(model)
    trainee._set_observing(True)
    for old, new in zip(before, trainee.model(records), strict=True):
        np.testing.assert_allclose(new, old, atol=1e-5 * np.ptp(old))
    trainee._set_observing(False)
    for old, new in zip(before, trainee.model(records), strict=True):
        assert 1e-5 < np.abs(new - old).max() / np.ptp(old) < 0.3


def test_every_layer_in_floats_has_a_reason():
    assert trainee_of(model_of_all_kinds(), ["gate"]).report()["left"] == {
        "gate": "in keep_float",
        "normal": "LayerNormalization has no 8-bit form here",
        "own": "a custom layer",
    }


def test_inputs_and_outputs_keep_their_names():
    model = trainee_of(model_of_all_kinds()).model
    assert keras_models.input_names(model) == ["image", "extra"]
    assert keras_models.served_names(model) == ["kind", "value"]


def test_no_range_between_a_convolution_its_batch_norm_and_its_clipping():
    names = {layer.name for layer in trainee_of(model_of_all_kinds()).model.layers}
    assert "clipped_range" in names
    assert not {"first_range", "folded_range"} & names


def test_a_batch_norm_with_no_convolution_before_it_stays_in_floats():
    image = layers.Input((4, 4, 3))
    flow = layers.BatchNormalization(name="alone")(layers.MaxPooling2D()(image))
    report = trainee_of(keras.Model(image, layers.Conv2D(2, 1)(flow))).report()
    assert report["left"] == {
        "alone": "this batch norm does not directly follow a convolution that it can be folded into"
    }


def dense_block():
    """Build batch norms after a pool and after a concatenation that other layers read too, as in DenseNet."""
    keras.utils.set_random_seed(4)
    flow = image = layers.Input((8, 8, 3), name="image")
    flow = layers.Conv2D(6, 3, padding="same", activation="relu")(flow)
    for number in range(2):
        new = layers.ReLU()(layers.BatchNormalization(name=f"alone_{number}")(flow))
        flow = layers.Concatenate()([flow, layers.Conv2D(4, 3, padding="same", use_bias=False)(new)])
    flow = layers.BatchNormalization(name="last")(layers.AveragePooling2D(2)(flow))
    return moved(keras.Model(image, layers.Dense(3, name="kind")(layers.Flatten()(flow))))


@pytest.mark.nightly
def test_a_batch_norm_between_8_bit_ops_becomes_an_8_bit_convolution(tmp_path):
    trainee = trainee_of(dense_block())
    images = inputs(64)[0][..., [0, 1, 0]]
    trainee.observe([([images], None)])
    assert trainee.report()["left"] == {}
    keras_models.save(trainee.model, tmp_path / "model")
    with runtimes.load(KerasModel(tmp_path / "model")) as model:
        answer = model.run({"image": images[:32]})["kind"]
    for exporter in (export_tflite, export_onnx):
        exported = exporter(tmp_path / "model", tmp_path / exporter.__name__, precision="int8")["exported"]
        if exporter is export_tflite:
            assert [kernel.dtype for kernel in kernels(exported.tflite)] == [np.int8] * 7
        with runtimes.load(exported) as file:
            made = file.run({"image": images[:32]})["kind"]
        assert np.abs(answer - made).mean() < 0.02 * np.ptp(answer)


def test_ones_before_a_batch_norm_change_no_output_and_are_not_trained():
    model, images = dense_block(), inputs()[0][..., [0, 1, 0]]
    before, trainee = model(images).numpy(), trainee_of(model)
    trainee._set_observing(True)
    np.testing.assert_allclose(trainee.model(images), before, atol=1e-5 * np.ptp(before))
    assert not [weight for weight in trainee.model.trainable_weights if "alone_0_kernel" in weight.path]


def test_outputs_of_the_exported_file_match_the_model_of_all_kinds(tmp_path):
    trainee = trainee_of(model_of_all_kinds())
    trainee.observe([(inputs(64), None)])
    keras_models.save(trainee.model, tmp_path / "model")
    exported = export_tflite(tmp_path / "model", tmp_path / "lite", precision="int8")["exported"]
    assert [kernel.dtype for kernel in kernels(exported.tflite)] == [np.int8] * 8
    batch = dict(zip(("image", "extra"), inputs(), strict=True))
    with runtimes.load(KerasModel(tmp_path / "model")) as model, runtimes.load(exported) as lite:
        for name, answer in model.run(batch).items():
            error = np.abs(answer - lite.run(batch)[name]).mean()
            assert error < 0.02 * np.abs(answer).max()  # a range always contains zero, these outputs may not


def test_shared_weights_are_rounded_with_one_scale_and_others_with_one_for_each_channel():
    flow = image = layers.Input((4, 4, 3))
    flow = layers.Conv2D(8, 3, padding="same", name="shared")(flow)
    model = keras.Model(image, layers.Conv2D(8, 3, name="free")(flow))
    kernel = model.get_layer("shared").kernel
    kernel.assign(np.round(kernel.numpy() * 8) / 8)
    limits = {layer.layer.name: layer.high.numpy() for layer in trainee_of(model)._rewritten.kernels}
    assert len(np.unique(limits["shared"])) == 1
    assert len(np.unique(limits["free"])) == 8


@pytest.mark.nightly  # daily: Keras 3, in test_quantize.py; Keras 2 in the contract
def test_a_sequential_model_of_keras_2_keeps_its_names_zeros_shared_weights_and_accuracy(
    tmp_path, digits_examples, module
):
    model = tf_keras.Sequential(
        [
            tf_keras.Input((8, 8, 1), name="image"),
            tf_keras.layers.Rescaling(1 / 16, name="rescaling"),
            tf_keras.layers.Conv2D(8, 3, use_bias=False, name="conv"),
            tf_keras.layers.BatchNormalization(),
            tf_keras.layers.ReLU(),
            tf_keras.layers.Flatten(),
            tf_keras.layers.Dense(10, activation="softmax", name="digit"),
        ]
    )
    kernel = model.get_layer("digit").kernel.numpy()
    model.get_layer("digit").kernel.assign(np.where(np.abs(kernel) < np.median(np.abs(kernel)), 0, kernel))
    conv = model.get_layer("conv").kernel
    conv.assign(np.round(conv.numpy() * 20) / 20)
    assert 6 < len(np.unique(conv.numpy())) < 18
    before = {name: model.get_layer(name).kernel.numpy() for name in ("conv", "digit")}
    keras_models.save(model, tmp_path / "model")
    options = {"epochs": 2, "learning_rate": 3e-3}
    made = quantize(tmp_path / "model", digits_examples, module["tf_keras"], tmp_path / "out", **options)["quantized"]
    assert made.card.facts["report"]["left"] == {"rescaling": "Rescaling is not quantized by TensorFlow's toolkit"}
    preserved = made.card.facts["report"]["kept"]
    assert (preserved["clusters"], "digit" in preserved["zeros"]) == (["conv"], True)
    assert made.card.facts["fine_tuned"]["after"]["val_accuracy"] > 0.4  # after 44 steps from random weights
    loaded = keras_models.load(made)
    assert (keras_models.input_names(loaded), keras_models.served_names(loaded)) == (["image"], ["digit"])
    trained = {name: loaded.get_layer(f"quant_{name}")._weight_vars[0][0].numpy() for name in before}
    assert not np.array_equal(trained["conv"], before["conv"])
    assert all(len(np.unique(trained["conv"][before["conv"] == value])) == 1 for value in np.unique(before["conv"]))
    np.testing.assert_array_equal(trained["digit"] == 0, before["digit"] == 0)
    lite = export_tflite(made.path, tmp_path / "lite", precision="int8")["exported"]
    assert set(lite.card.facts["ops"]["float"]) <= {"MUL"}  # the rescaling
    first, last = kernels(lite.tflite)
    assert len(np.unique(first)) <= len(np.unique(before["conv"]))
    assert (last == 0).mean() >= 0.5
    onnx = export_onnx(made.path, tmp_path / "onnx", digits_examples, precision="int8")["exported"]
    error = 1e-2 if needs_reduced_range() else 1e-4
    assert onnx.card.facts["verified"]["outputs"]["digit"]["mean_abs_error"] < error
    assert [int8.shape for int8 in whole_numbers(onnx.onnx)] == [(8, 1, 3, 3), (288, 10)]
    assert (whole_numbers(onnx.onnx)[1] == 0).mean() >= 0.5


def test_initial_ranges_of_keras_2_are_those_of_the_float_model():
    from tfopt.components.quantize.tfmot import ToolkitTrainee

    flow = image = tf_keras.Input((5,), name="image")
    flow = tf_keras.layers.Dense(7, "relu", name="hidden")(flow)
    model = moved(tf_keras.Model(image, tf_keras.layers.Dense(3, activation="softmax", name="kind")(flow)))
    records = np.random.default_rng(0).normal(0, 20, (40, 5)).astype("float32")
    hidden = tf_keras.Model(image, flow).predict(records, verbose=0)
    trainee = ToolkitTrainee(model, [], {}, zeros=True, clusters=True)
    trainee.observe([(records, None)])
    values = {weight.name: float(weight.numpy()) for weight in trainee.model.weights if weight.shape.rank == 0}
    assert values["quant_hidden/post_activation_max:0"] == pytest.approx(hidden.max())
    assert values["quant_hidden_input_range/output_min:0"] == pytest.approx(records.min())


def test_a_nested_model_of_keras_2_is_refused_by_name(tmp_path, digits_examples, module):
    inner = tf_keras.Sequential([tf_keras.layers.Input((8, 8, 1)), tf_keras.layers.Flatten()], name="inner")
    image = tf_keras.Input((8, 8, 1), name="image")
    model = tf_keras.Model(image, tf_keras.layers.Dense(10, activation="softmax")(inner(image)))
    model.save(tmp_path / "model.keras")
    with pytest.raises(ComponentError, match="nested models \\(inner\\)"):
        quantize(tmp_path / "model.keras", digits_examples, module["tf_keras"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_a_model_with_nothing_to_quantize_is_refused_with_the_reasons(library, tmp_path, digits_examples, module):
    package = importlib.import_module(library)
    image = package.Input((8, 8, 1), name="image")
    flow = package.layers.SimpleRNN(10, name="recurrent")(package.layers.Reshape((8, 8))(image))
    package.Model(image, package.layers.Softmax()(flow)).save(tmp_path / "model.keras")
    with pytest.raises(ComponentError, match="nothing to quantize \\(recurrent: SimpleRNN"):
        quantize(tmp_path / "model.keras", digits_examples, module[library], tmp_path / "out")


def test_quantizing_twice_is_refused_without_a_model_card(tmp_path, digits_examples, module):
    image = layers.Input((8, 8, 1), name="image")
    trainee = trainee_of(keras.Model(image, layers.Dense(10)(layers.Flatten()(image))))
    keras_models.save(trainee.model, tmp_path / "model")
    for file in (tmp_path / "model", tmp_path / "model" / "Format-Keras" / "model.keras"):
        with pytest.raises(ComponentError, match="quantized already"):
            quantize(file, digits_examples, module["keras"], tmp_path / "out")


def test_an_unknown_layer_name_is_refused_with_the_nearest_name(digits_model, digits_examples, module, tmp_path):
    with pytest.raises(ComponentError, match="did you mean conv2d"):
        quantize(digits_model, digits_examples, module["keras"], tmp_path / "out", keep_float=["conv2"])


def test_a_model_without_keras_form_and_a_run_without_examples_are_refused(
    digits_model, digits_examples, module, tmp_path
):
    with pytest.raises(ComponentError, match="no Keras form"):
        quantize(digits_model / "Format-Serving", digits_examples, module["keras"], tmp_path / "out")
    with pytest.raises(ComponentError, match="examples"):
        quantize(model=digits_model, module=module["keras"], quantized=tmp_path / "out")


def test_a_subclassed_model_is_refused(tmp_path, digits_examples, module):
    @keras.saving.register_keras_serializable("tests")
    class Own(keras.Model):
        def call(self, inputs):
            return super().call(inputs)

    image = keras.Input((8, 8, 1), name="image")
    model = Own(image, layers.Dense(10, activation="softmax")(layers.Flatten()(image)))
    model.save(tmp_path / "model.keras")
    with pytest.raises(ComponentError, match="a subclassed model"):
        quantize(tmp_path / "model.keras", digits_examples, module["keras"], tmp_path / "out")
