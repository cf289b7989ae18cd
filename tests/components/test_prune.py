import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
import tensorflow as tf

from tests.components.train_modules import DIGITS, TWO_BY_TWO, with_mean, write
from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, KerasModel
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.export_onnx.component import export_onnx
from tfopt.components.export_tflite.component import export_tflite
from tfopt.components.prune.component import prune
from tfopt.components.prune.kernels import find_kernels
from tfopt.components.prune.masked_training import Masks
from tfopt.components.prune.parameters import Pattern
from tfopt.components.train.component import train
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError
from tfopt.keras_models.weight_constraints import is_n_m
from tfopt.training.user_module import UserModule

KERAS_2 = DIGITS.replace("keras", "tf_keras").replace("tf_tf_", "tf_")
TUNED = {"epochs": 6, "batch_size": 64}


# Daily, Keras 2 is pruned below and in the contract of components.
@pytest.fixture(scope="module", params=["keras 3", pytest.param("keras 2", marks=pytest.mark.nightly)])
def parent(request, tmp_path_factory, digits_examples) -> KerasModel:
    """A digits model with preprocessing; its module is in the same folder."""
    folder = tmp_path_factory.mktemp(request.param)
    module = write(folder / "module.py", DIGITS if request.param == "keras 3" else KERAS_2)
    return train(digits_examples, module, folder / "trained", epochs=6, batch_size=64)["trained"]


@pytest.fixture(scope="module")
def pruned(parent, digits_examples) -> KerasModel:
    module = parent.path.parent / "module.py"
    return prune(parent, parent.path.parent / "pruned", digits_examples, module, sparsity=0.6, **TUNED)["pruned"]


def test_fine_tuning_recovers_the_accuracy(pruned, parent, digits_examples):
    raw = keras_models.load(parent)
    Masks(find_kernels(raw, Pattern("magnitude"), []), Pattern("magnitude")).update(0.6)
    images, labels = eval_split(digits_examples)
    without_tuning = (np.asarray(raw(images)).argmax(1) == labels).mean()
    before, with_tuning = (accuracy(model, digits_examples) for model in (parent, pruned))
    assert with_tuning > before - 0.03
    assert with_tuning > without_tuning
    tuned = pruned.metadata["fine_tuned"]
    assert tuned["before"]["val_accuracy"] == pytest.approx(before, abs=1e-6)
    assert tuned["after"]["val_accuracy"] == pytest.approx(with_tuning, abs=1e-6)
    assert tuned["best_epoch"] >= 4  # the masks are final from the middle of six epochs on


def test_zeros_are_exact_in_both_forms_and_the_other_weights_are_trained(pruned, parent):
    model, dense = keras_models.load(pruned), keras_models.load(parent)
    assert zeros(model) == {"conv2d": 43, "digit": 768}  # 60 % of 3x3x1x8 and of 128x10
    moved = kernel(model, "digit") != kernel(dense, "digit")
    assert moved[kernel(model, "digit") != 0].all()
    stored = tf.train.load_checkpoint(str(pruned.path / "Format-Serving" / "variables" / "variables"))
    tensors = [stored.get_tensor(name) for name in stored.get_variable_to_shape_map() if name.startswith("variables")]
    zeros_by_shape = {tensor.shape: int((tensor == 0).sum()) for tensor in tensors}
    assert zeros_by_shape[(3, 3, 1, 8)] == 43
    assert zeros_by_shape[(128, 10)] == 768


@pytest.mark.nightly  # daily: the values of clusters survive the same exports, in test_cluster.py
def test_zeros_survive_the_export_in_the_bytes_of_tflite_and_onnx(pruned, tmp_path):
    from ai_edge_litert import schema_py_generated as schema

    exported = export_tflite(pruned, tmp_path / "lite", precision="float32")["exported"]
    file = schema.ModelT.InitFromPackedBuf(exported.tflite.read_bytes(), 0)
    stored = [bytes(buffer.data) for buffer in file.buffers if buffer.data is not None]
    assert zeros_of([np.frombuffer(data, np.float32) for data in stored if len(data) % 4 == 0]) == {72: 43, 1280: 768}
    onnx_file = export_onnx(pruned, tmp_path / "onnx", precision="float32")["exported"].onnx
    initializers = onnx.load(onnx_file).graph.initializer
    assert zeros_of([onnx.numpy_helper.to_array(item) for item in initializers]) == {72: 43, 1280: 768}


def zeros_of(arrays: list[np.ndarray]) -> dict[int, int]:
    """Count the zeros in kernels of 3x3x1x8 and 128x10, by number of weights."""
    return {array.size: int((array == 0).sum()) for array in arrays if array.size in (72, 1280)}


def test_the_result_is_a_plain_model_of_the_same_layers_and_signature(pruned, parent):
    model, dense = keras_models.load(pruned), keras_models.load(parent)
    assert keras_models.is_keras_2(model) == keras_models.is_keras_2(dense)
    assert [(type(layer), layer.name) for layer in model.layers] == [(type(i), i.name) for i in dense.layers]
    assert [weight.shape for weight in model.weights] == [weight.shape for weight in dense.weights]
    served, before = runtimes.load(pruned), runtimes.load(parent)
    assert (served.inputs, served.outputs) == (before.inputs, before.outputs)


def test_the_report_has_zeros_bytes_and_speedups_of_each_layer(pruned):
    report = KerasModel.open(pruned.path).card.facts["report"]
    conv, dense = report["layers"]
    assert (conv["layer"], dense["layer"]) == ("conv2d", "digit")
    assert dense["sparsity"] == pytest.approx(0.6)
    assert dense["bytes"] == 5120
    assert dense["gzipped"] < 0.6 * dense["gzipped_before"]
    assert dense["speed"]["xnnpack"] == "no: it has sparse 1x1 convolutions only"
    assert dense["speed"]["tensorrt"].startswith("no: it needs 2 zeros in every 4")
    assert report["speed"] == "zeros make the compressed file smaller, and no runtime faster"
    assert report["sparsity"] == pytest.approx(811 / 1352)


# Of the other library, test_prune_masks.py compares the masks of these patterns with those of the toolkit.
@pytest.mark.parametrize("parent", ["keras 3", pytest.param("keras 2", marks=pytest.mark.nightly)], indirect=True)
def test_two_of_four_weights_are_zero_along_the_input_channels_and_tensorrt_supports_it(
    parent, digits_examples, tmp_path, caplog
):
    module = parent.path.parent / "module.py"
    with caplog.at_level(logging.INFO, "tfopt"):
        out = prune(parent, tmp_path / "out", digits_examples, module, pattern="n_m", epochs=1, batch_size=32)["pruned"]
    model = keras_models.load(out)
    assert is_n_m(kernel(model, "digit"), 2, 4, 0)
    assert zeros(model) == {"conv2d": 0, "digit": 640}
    conv, dense = out.metadata["report"]["layers"]
    assert conv["left"] == "1 input channels are not divisible by 4, of 2:4"
    assert dense["speed"]["tensorrt"].startswith("yes: in float16 or int8")
    assert "digit    50.0% zeros" in caplog.text
    assert "xnnpack, 1 of 1 pruned kernels: no: it has sparse 1x1 convolutions only" in caplog.text
    assert "tensorrt, 1 of 1 pruned kernels: yes: in float16 or int8" in caplog.text
    assert accuracy(out, digits_examples) > 0.93


@pytest.mark.parametrize("parent", ["keras 3", pytest.param("keras 2", marks=pytest.mark.nightly)], indirect=True)
def test_blocks_are_pruned_entirely_and_a_learning_rate_of_zero_does_not_change_remaining_weights(
    parent, digits_examples, tmp_path
):
    """Check that the learning rate replaces that of the module's optimizer."""
    module = parent.path.parent / "module.py"
    options = {"pattern": "block", "block": "4x2", "schedule": "constant", "learning_rate": 0.0}
    out = prune(parent, tmp_path / "out", digits_examples, module, **options, epochs=1, batch_size=128)["pruned"]
    tuned, before = (kernel(keras_models.load(model), "digit") for model in (out, parent))
    tiles = (tuned != 0).reshape(32, 4, 5, 2).sum((1, 3))
    assert set(np.unique(tiles)) == {0, 8}
    assert (tiles == 0).sum() == 80
    np.testing.assert_array_equal(tuned[tuned != 0], before[tuned != 0])


@pytest.mark.parametrize("pattern", ["magnitude", "channel"])
def test_a_teacher_is_learned_from_instead_of_the_labels(pattern, parent, digits_examples, tmp_path):
    """Train on a teacher that gives each digit the next class."""
    teacher = keras_models.load(parent)
    teacher.get_layer("digit").set_weights([np.roll(w, 1, -1) for w in teacher.get_layer("digit").get_weights()])
    keras_models.save(teacher, tmp_path / "teacher")
    guidance = {"teacher": tmp_path / "teacher", "alpha": 1.0, "temperature": 1.0}
    options = guidance | {"pattern": pattern, "sparsity": 0.3, "multiple": 1, "schedule": "constant"}
    tuned = {"epochs": 1, "batch_size": 8, "learning_rate": 0.01}  # the labels of ``eval`` would choose the first epoch
    module = parent.path.parent / "module.py"
    out = prune(parent, tmp_path / "out", digits_examples, module, **options, **tuned)["pruned"]
    images, labels = eval_split(digits_examples)
    classes = np.asarray(keras_models.load(out)(images)).argmax(1)
    assert (classes == (labels + 1) % 10).mean() > 0.8
    assert out.card.teacher.digest == KerasModel(tmp_path / "teacher").digest
    assert out.card.name.endswith(" with a teacher")  # `shrink` has the same network without one
    with pytest.raises(ComponentError, match="a teacher without a module"):
        prune(parent, tmp_path / "raw", digits_examples, **options)


def test_without_a_module_the_model_card_has_the_differences(digits_model, digits_examples, tmp_path):
    out = prune(digits_model, tmp_path / "out", digits_examples, sparsity=0.7)["pruned"]
    dense, model = keras_models.load(KerasModel(digits_model)), keras_models.load(out)
    same = kernel(model, "digit") != 0
    np.testing.assert_array_equal(kernel(model, "digit")[same], kernel(dense, "digit")[same])
    for mine, other in zip(model.weights, dense.weights, strict=True):
        if mine.path.rpartition("/")[2] != "kernel":
            np.testing.assert_array_equal(mine.numpy(), other.numpy())
    depthwise = next(layer for layer in model.layers if "Depthwise" in type(layer).__name__)
    assert depthwise.kernel.numpy().all()
    card = KerasModel.open(out.path).card.facts
    assert card["name"] == "pruned 70%"
    assert card["fine_tuned"]["reason"].startswith("no module")
    assert card["verified"]["inputs"] == "examples, split 'eval'"
    assert 0.3 < card["verified"]["outputs"]["digit"]["agreement"] < 1
    assert not (out.path / "history.json").exists()


@pytest.mark.parametrize("library", ["keras", pytest.param("tf_keras", marks=pytest.mark.nightly)])
def test_two_inputs_and_two_outputs_named_in_the_loss(tmp_path, library):
    """Check that the toolkit's wrappers do not change the names of the outputs."""
    text = TWO_BY_TWO.replace("INPUTS", "{'mean': mean, 'image': image}").replace(
        "WEIGHTS", "{'main': 1, 'early': 0.3}"
    )
    loss = "{'main': 'sparse_categorical_crossentropy', 'early': 'sparse_categorical_crossentropy'}"
    text = text.replace("OUTPUTS", "[main, early]").replace("LOSS", loss).replace("keras", library)
    examples, module = with_mean(tmp_path), write(tmp_path / "module.py", text)
    keras_models.save(UserModule(module).call("build_model"), tmp_path / "model")
    out = prune(tmp_path / "model", tmp_path / "out", examples, module, sparsity=0.5, epochs=1, batch_size=128)[
        "pruned"
    ]
    assert sorted(zeros(keras_models.load(out)).values()) == [160, 325, 1040]  # half of 32x10, 65x10 and 65x32
    assert set(runtimes.load(out).outputs) == {"main", "early"}
    assert set(out.metadata["fine_tuned"]["after"]) >= {"val_loss"}


def accuracy(model: KerasModel, examples: Path) -> float:
    images, labels = eval_split(examples)
    return float((runtimes.load(model).run({"image": images})["digit"].argmax(1) == labels).mean())


def eval_split(examples: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the images and labels of the split ``eval``."""
    specs = {"image": TensorSpec("float32", (None, 8, 8, 1)), "label": TensorSpec("int64", (None, 1))}
    batch = next(read_batches(Examples(examples).split("eval"), specs, batch_size=400))
    return batch["image"], batch["label"].ravel()


def kernel(model, name: str) -> np.ndarray:
    return model.get_layer(name).kernel.numpy()


def zeros(model) -> dict[str, int]:
    layers = [layer for layer in model.layers if type(layer).__name__ in ("Conv2D", "Dense")]
    return {layer.name: int((layer.kernel.numpy() == 0).sum()) for layer in layers}
