"""Test `quantize` in mixed bits: those of the recipe, those that the sensitivities choose, and those of the files."""

from dataclasses import replace

import keras
import numpy as np
import onnx
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from keras import layers

from tests.components.exporters import write_split
from tests.components.train_modules import DENSE
from tests.lite_files import WITH_KERNEL
from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, KerasModel, OnnxModel, TFLiteModel
from tfopt.components.export_tflite import litert_converter
from tfopt.components.export_tflite.flatbuffer import OPS, TYPES, describe
from tfopt.components.export_tflite.parameters import TFLiteConversion
from tfopt.components.measure_sensitivities.measurement import Settings as Measurement
from tfopt.components.measure_sensitivities.measurement import measure
from tfopt.components.quantize.component import quantize
from tfopt.components.quantize.fake_quant_training import Trainee
from tfopt.components.quantize.layer_precisions import choose_precisions
from tfopt.components.quantize.parameters import Settings
from tfopt.conversion.mixes.sensitivity_table import SensitivityTable
from tfopt.conversion.onnx import int8, saved_model_export
from tfopt.errors import ComponentError
from tfopt.keras_models.fake_quantization import QuantizedKernel
from tfopt.reports.sensitivity_report import Loss, SensitivityReport
from tfopt.runtimes.onnx import OnnxRuntime
from tfopt.training.fine_tuner import FineTuner
from tfopt.training.user_module import UserModule

FOUR = {"stem": 4, "separable_depthwise": 4, "digit": 4}


def stored_types(content: bytes) -> list[str]:
    """Return the types of the kernels in a LiteRT file, in the order of their ops; check their bytes."""
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    graph, types = file.subgraphs[0], []
    for op in graph.operators:
        if OPS[file.operatorCodes[op.opcodeIndex].builtinCode] in WITH_KERNEL:
            kernel = graph.tensors[op.inputs[1]]
            types.append(TYPES[kernel.type])
            bits = int(types[-1].removeprefix("INT"))
            assert len(file.buffers[kernel.buffer].data) == np.ceil(np.prod(kernel.shape) * bits / 8)
    return types


@pytest.fixture(scope="module")
def model():
    """Convolutions with batch norms whose factors differ by channel, a separable one, and a dense layer."""
    keras.utils.set_random_seed(0)
    flow = image = layers.Input((8, 8, 2), name="image")
    flow = layers.Conv2D(8, 3, use_bias=False, name="stem")(flow)
    flow = before = layers.ReLU()(layers.BatchNormalization(name="first")(flow))
    flow = layers.Conv2D(8, 3, padding="same", use_bias=False, name="deep")(flow)
    flow = layers.Add()([layers.BatchNormalization(name="second")(flow), before])
    flow = layers.SeparableConv2D(6, 3, name="separable", activation="relu")(flow)
    made = keras.Model(image, layers.Dense(3, activation="softmax", name="digit")(layers.Flatten()(flow)))
    draw = np.random.default_rng(1)
    for name in ("first", "second"):
        norm = made.get_layer(name)
        for weight in (norm.gamma, norm.moving_variance):
            weight.assign(draw.uniform(0.2, 2, weight.shape))
    return made


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(2).uniform(0, 1, (64, 8, 8, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def trained(model, images, tmp_path_factory) -> KerasModel:
    """The model with rounded weights in 4 and 8 bits and learned scales that cut the largest off, as after training."""
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    trainee = Trainee(copy, [], FOUR, zeros=True, clusters=True, learned=True)
    for layer in trainee._rewritten.kernels:
        layer.high.assign(0.8 * layer.high)
    trainee.observe([(images, None)])
    assert trainee.report()["summary"] == "5 kernels and 7 activations in 8 bits, 3 of these kernels in 4 bits"
    folder = tmp_path_factory.mktemp("mixed")
    trainee.finish()
    keras_models.save(trainee.model, folder)
    return KerasModel(folder)


@pytest.fixture(scope="module")
def report(model, images, tmp_path_factory) -> SensitivityReport:
    folder = tmp_path_factory.mktemp("float")
    keras_models.save(model, folder / "model")
    for split in ("train", "eval"):
        write_split(folder / "examples", {"image": images.reshape(len(images), -1)}, split)
    return measure(
        KerasModel(folder / "model"), Examples(folder / "examples"), Measurement(None, 64, "train", 0, 60.0, None)
    )


def test_the_litert_file_has_the_kernels_in_the_bits_of_the_layers_and_the_outputs_of_the_trained_model(
    trained, images, tmp_path
):
    content = litert_converter.convert(trained.saved_model, TFLiteConversion(precision="int8"), None)
    (tmp_path / "made.tflite").write_bytes(content)
    assert stored_types(content) == ["INT4", "INT8", "INT4", "INT8", "INT4"]
    assert describe(content)["float"] == {}
    with runtimes.load(trained) as model, runtimes.load(TFLiteModel(tmp_path / "made.tflite")) as file:
        expected, made = (each.run({"image": images})["digit"] for each in (model, file))
    assert np.abs(made - expected).mean() < 5e-3
    assert (made.argmax(1) == expected.argmax(1)).mean() >= 0.95


def test_the_onnx_file_has_the_kernels_in_the_bits_of_the_layers_and_computes_all_in_8_bits(trained, images, tmp_path):
    onnx.save(saved_model_export.convert_saved_model(trained.saved_model, 18), tmp_path / "float.onnx")
    facts = int8.quantize_trained(tmp_path / "float.onnx", tmp_path / "model.onnx", in_four=True)
    assert facts["opset"] == 21 and len(facts["kernels_in_4_bits"]) == 3
    graph = onnx.load(tmp_path / "model.onnx").graph
    four = [item for item in graph.initializer if item.data_type == onnx.TensorProto.INT4]
    assert sorted(tuple(item.dims) for item in four) == [(8, 1, 3, 3), (8, 2, 3, 3), (96, 3)]
    assert all(len(item.raw_data or item.int32_data) <= (np.prod(item.dims) + 1) // 2 for item in four)
    assert sum(item.data_type == onnx.TensorProto.INT8 and len(item.dims) > 1 for item in graph.initializer) == 2
    with runtimes.load(trained) as model, OnnxRuntime(OnnxModel(tmp_path / "model.onnx"), unfused=True) as file:
        expected, made = (each.run({"image": images})["digit"] for each in (model, file))
    assert np.abs(made - expected).mean() < 1e-3
    int8.quantize_trained(tmp_path / "float.onnx", tmp_path / "eight.onnx")
    eight = onnx.load(tmp_path / "eight.onnx")
    assert eight.opset_import[0].version == 18
    assert {item.data_type for item in eight.graph.initializer if len(item.dims) > 1} == {onnx.TensorProto.INT8}


def test_every_layer_is_found_in_the_sensitivities_and_those_that_lose_least_have_4_bits(model, report):
    losses = {"stem": 9.0, "deep": 1.0, "separable_depthwise": 5.0, "separable_linear": 0.1, "digit": 8.0}
    counts = {"stem": 144, "deep": 576, "separable_depthwise": 72, "separable_linear": 48, "digit": 288}
    names = {count: name for name, count in counts.items()}
    changed = [
        replace(layer, rounded_weights={"int4": Loss(losses[names[layer.weights]]), "int8": Loss(0.0)})
        for layer in report.layers
    ]
    table = SensitivityTable(replace(report, layers=changed))
    in_float, bits, facts = choose_precisions(model, Settings(weight_bits=5.9), table)
    assert (in_float, bits, facts["not_measured"]) == ([], {"deep": 4, "separable_linear": 4}, [])
    assert facts["weight_bits"] == pytest.approx(8 - 4 * (576 + 48) / 1128)
    # the dense layer is larger than the pointwise kernel that was chosen before, and alone enough
    _, bits, _ = choose_precisions(model, Settings(weight_bits=7.0, recipe=("deep=int8",)), table)
    assert bits == {"deep": 8, "digit_linear": 4}
    _, bits, _ = choose_precisions(model, Settings(weight_bits=6.1, recipe=("deep=int8", "separable=int4")), table)
    assert bits == {"deep": 8, "separable": 4, "digit_linear": 4, "stem": 4}
    with pytest.raises(ComponentError, match=r"6\.04 if every measured layer has 4 bits"):
        choose_precisions(model, Settings(weight_bits=5.0, recipe=("deep=int8",)), table)


def test_a_recipe_names_layers_and_the_last_match_applies(model):
    settings = Settings(recipe=("*=int4", "deep=int8", "digit=float32"), keep_float=("stem",))
    in_float, bits, _ = choose_precisions(model, settings, None)
    assert in_float == ["digit"]
    assert (bits["stem"], bits["deep"], bits["separable"]) == (4, 8, 4)
    with pytest.raises(ComponentError, match=r"(?s)recipe: 'dep'.*did you mean deep"):
        choose_precisions(model, Settings(recipe=("dep=int4",)), None)


def test_learned_scales_have_the_gradient_of_lsq_and_are_trained():
    """Compare with equation 3 of Esser et al., and the factor of their section 2.2."""
    layer = QuantizedKernel(layers.Dense(2), bits=4, learned=True)
    layer.build((None, 6))
    kernel = layer.kernel.numpy()
    layer.high.assign(limit := 0.6 * np.abs(kernel).max())
    step, weights = limit / 7, np.random.default_rng(3).normal(size=kernel.shape)
    with tf.GradientTape() as tape:
        tape.watch([layer.high.value, layer.kernel.value])
        loss = tf.reduce_sum(layer(np.eye(6, dtype=np.float32), training=True) * weights)
    by_high, by_kernel = tape.gradient(loss, [layer.high.value, layer.kernel.value])
    levels = kernel / step
    inside = np.abs(levels) < 7
    expected = np.where(inside, np.rint(levels) - levels, np.sign(levels) * 7)
    np.testing.assert_allclose(by_high, (expected * weights).sum() / 7 / np.sqrt(7 * kernel.size), rtol=1e-4)
    np.testing.assert_allclose(by_kernel, np.where(inside, weights, 0), rtol=1e-5)
    assert 0 < inside.sum() < kernel.size
    assert sorted(weight.path.split("/")[-1] for weight in layer.trainable_weights) == ["bias", "high", "kernel"]


def test_a_loss_without_a_form_for_a_teacher_is_trained_on_labels_unless_a_teacher_is_given(
    digits_model, digits_examples, tmp_path
):
    module = tmp_path / "module.py"
    module.write_text(DENSE.replace('"sparse_categorical_crossentropy"', "lambda labels, outputs: labels - outputs"))
    parent, settings = KerasModel(digits_model), Settings()
    model, user = keras_models.load(parent), UserModule(module)
    tuner = FineTuner(model, parent, user, Examples(digits_examples), tmp_path, settings, 0)
    with tuner.distillation(parent, model, settings, is_required=False) as taught:
        assert taught == {}
    with (
        pytest.raises(ComponentError, match="a teacher, and output 'digit' with the loss"),
        tuner.distillation(parent, model, settings),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "received"),
    [
        ({"recipe": ["digit=int2"]}, "recipe 'digit=int2'"),
        ({"recipe": ["int4"]}, "recipe 'int4'"),
        ({"weight_bits": 5.0}, "weight_bits=5 without sensitivities"),
        ({"alpha": 0.0, "teacher": "self"}, "a teacher and alpha=0"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, received, digits_model, digits_examples, tmp_path):
    (tmp_path / "module.py").write_text(DENSE)
    options |= {"teacher": digits_model} if "teacher" in options else {}
    with pytest.raises(ComponentError, match=received):
        quantize(digits_model, digits_examples, tmp_path / "module.py", tmp_path / "out", **options)
