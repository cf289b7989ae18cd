"""Test the settings of `train`: precision, XLA, order of sums, accumulated gradients, class weights."""

import dataclasses
import json
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.components.train_modules import DIGITS, LINEAR, SMALL, with_mean, write
from tests.conftest import write_examples
from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.train import auto_settings
from tfopt.components.train.auto_settings import time_choices
from tfopt.components.train.class_weights import compute_class_weights
from tfopt.components.train.component import train
from tfopt.components.train.parameters import Settings
from tfopt.data.batches import read_batches
from tfopt.data.feature_schema import feature_specs, first_record
from tfopt.errors import ComponentError
from tfopt.training.compute.precision import fast_precisions, set_jit_compile, unaligned_layers
from tfopt.training.determinism import reproducible
from tfopt.training.model_assembly import assemble
from tfopt.training.training_setup import TrainingSetup, prepare_training
from tfopt.training.user_module import UserModule


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        (SMALL, "mixed_bfloat16"),
        pytest.param(DIGITS, "mixed_bfloat16", marks=pytest.mark.nightly),
        pytest.param(DIGITS, "mixed_float16", marks=pytest.mark.nightly),
        pytest.param(DIGITS.replace("keras", "tf_keras"), "mixed_bfloat16", marks=pytest.mark.nightly),
    ],
    ids=["bfloat16", "bfloat16 convolutions", "float16", "keras 2"],
)
def test_training_in_16_bits_saves_float32_and_is_as_accurate(tmp_path, digits_examples, text, precision):
    module = write(tmp_path / "m.py", text)
    trained = train(digits_examples, module, tmp_path / "out", epochs=4, batch_size=32, precision=precision)["trained"]
    model = keras_models.load(trained)
    assert {layer.compute_dtype for layer in model.layers} == {"float32"}
    assert [layer.name for layer in model.layers][:2] == ["image", "scale"]
    assert {weight.dtype if isinstance(weight.dtype, str) else weight.dtype.name for weight in model.weights} == {
        "float32"
    }
    assert trained.metadata["precision"] == precision
    assert trained.metadata["metrics"]["val_accuracy"] == pytest.approx(accuracy(trained, digits_examples), abs=1e-6)
    assert trained.metadata["metrics"]["val_accuracy"] > 0.9
    history = json.loads((trained.path / "history.json").read_text())
    best = history["epochs"][history["best_epoch"] - 1]
    assert best["val_loss"] != trained.metadata["metrics"]["val_loss"]  # it was measured in 16 bits
    assert best["val_loss"] == pytest.approx(trained.metadata["metrics"]["val_loss"], rel=0.1)


def test_only_the_layers_of_the_model_compute_in_16_bits_and_float16_scales_the_loss(tmp_path, digits_examples):
    parts = assembled(tmp_path, DIGITS, digits_examples, "mixed_float16")
    assert {layer.compute_dtype for layer in parts.model.layers[1:]} == {"float16"}
    assert {layer.compute_dtype for layer in parts.preprocessing.layers[1:]} == {"float32"}
    assert {weight.dtype for weight in parts.model.trainable_weights} == {"float32"}
    assert type(parts.model.optimizer).__name__ == "LossScaleOptimizer"
    assert keras.mixed_precision.global_policy().name == "float32"


def test_a_module_with_a_policy_of_its_own_is_not_overruled(tmp_path, digits_examples):
    text = DIGITS.replace(
        "    image = ", "    keras.mixed_precision.set_global_policy('mixed_bfloat16')\n    image = ", 1
    )
    with pytest.raises(ComponentError, match="sets the policy mixed_bfloat16"):
        train(digits_examples, write(tmp_path / "m.py", text), tmp_path / "out", precision="mixed_float16")


def test_sizes_that_are_slow_on_matrix_units_are_named(tmp_path, digits_examples):
    assert unaligned_layers(assembled(tmp_path, DIGITS, digits_examples).model) == []
    assert unaligned_layers(assembled(tmp_path, DIGITS.replace("Conv2D(8", "Conv2D(6"), digits_examples).model) == [
        "conv2d 6"
    ]


@pytest.fixture(scope="module")
def plain(tmp_path_factory, digits_examples):
    """A linear model after one epoch of ten batches."""
    folder = tmp_path_factory.mktemp("plain")
    return train(digits_examples, write(folder / "m.py", LINEAR), folder / "out", epochs=1, batch_size=140)["trained"]


def test_xla_gives_equal_weights_and_the_history_has_the_compile_time(tmp_path, digits_examples, plain):
    module = write(tmp_path / "m.py", LINEAR)
    parameters = {"epochs": 1, "batch_size": 140, "jit_compile": "on", "deterministic": False}
    compiled = train(digits_examples, module, tmp_path / "out", **parameters)["trained"]
    np.testing.assert_allclose(kernel(compiled), kernel(plain), atol=1e-4)
    histories = [json.loads((trained.path / "history.json").read_text()) for trained in (plain, compiled)]
    assert "compile_s" not in histories[0]
    assert histories[1]["compile_s"] > 0
    assert compiled.metadata["jit_compile"] == "on"


def test_models_that_xla_cannot_compile_are_refused(tmp_path, digits_examples, monkeypatch):
    module = write(tmp_path / "m.py", LINEAR)
    with pytest.raises(ComponentError, match="deterministic"):
        train(digits_examples, module, tmp_path / "out", jit_compile="on")
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    with pytest.raises(ComponentError, match="tf_xla_cpu_global_jit"):
        train(digits_examples, module, tmp_path / "out", jit_compile="clusters", epochs=1)
    text = keras.Input((), dtype="string", name="text")
    numbers = keras.layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot", name="words")(text)
    model = keras.Model(text, keras.layers.Dense(1)(numbers))
    model.compile("sgd", "mse")
    with pytest.raises(ComponentError, match="cannot compile: words"):
        set_jit_compile(model, "on")


def test_auto_times_each_choice_in_turns(tmp_path, digits_examples):
    settings = dataclasses.replace(SETTINGS, precision="float32", jit_compile="auto", deterministic=False)
    durations, failed = time_choices(str(digits_examples), str(write(tmp_path / "m.py", LINEAR)), settings)
    assert list(durations) == [("float32", "off"), ("float32", "on")]
    assert all(0 < seconds < 1 for each in durations.values() for seconds in each)
    assert not failed
    durations, _ = time_choices(
        str(digits_examples), str(tmp_path / "m.py"), dataclasses.replace(settings, deterministic=True)
    )
    assert list(durations) == [("float32", "off")]


def test_the_log_of_auto_reports_that_a_deterministic_training_does_not_try_xla(monkeypatch, caplog):
    times = {True: {("float32", "off"): [1.0]}, False: {("float32", "off"): [0.9], ("float32", "on"): [0.4]}}
    call = lambda function, path, module, settings, **_: (times[settings.deterministic], {})  # noqa: E731
    monkeypatch.setattr(auto_settings, "run_in_child", call)
    for deterministic in (True, False):
        caplog.clear()
        settings = dataclasses.replace(SETTINGS, jit_compile="auto", deterministic=deterministic)
        with caplog.at_level("INFO"):
            auto_settings.choose_auto_settings(settings, Examples(Path("examples")), Path("m.py"))
        cost = "--no-deterministic: 400 ms (2.5x as fast) with precision=float32 jit_compile=on"
        assert ("XLA is not tried" in caplog.text) == (cost in caplog.text) == deterministic


@pytest.mark.nightly
def test_auto_trains_with_the_selected_settings(tmp_path, digits_examples):
    module = write(tmp_path / "m.py", DIGITS)
    chosen = {"precision": "auto", "jit_compile": "auto", "deterministic": False}
    trained = train(digits_examples, module, tmp_path / "out", epochs=2, **chosen)["trained"]
    assert trained.metadata["precision"] in fast_precisions()
    assert trained.metadata["jit_compile"] in ("on", "off")


def test_auto_with_checkpoints_is_refused(tmp_path, digits_examples):
    module = write(tmp_path / "m.py", LINEAR)
    with pytest.raises(ComponentError, match="train once with auto"):
        train(digits_examples, module, tmp_path / "out", precision="auto", checkpoints=str(tmp_path / "kept"))


def test_four_batches_of_35_accumulated_are_one_of_140(tmp_path, digits_examples, plain):
    module = write(tmp_path / "m.py", LINEAR)
    parameters = {"epochs": 1, "batch_size": 35, "gradient_accumulation": 4}
    four = train(digits_examples, module, tmp_path / "4", **parameters)["trained"]
    np.testing.assert_allclose(kernel(four), kernel(plain), atol=1e-5)  # batches of 35 alone differ by 0.01
    with pytest.raises(ComponentError, match="Keras 3 optimizer"):
        keras_2 = write(tmp_path / "2.py", LINEAR.replace("keras", "tf_keras"))
        train(digits_examples, keras_2, tmp_path / "out", gradient_accumulation=4)


def test_balanced_classes_count_alike_and_an_ignored_class_is_not_trained(tmp_path, digits_examples):
    files, label = Examples(digits_examples).split("train"), {"label": TensorSpec("int64", (None, 1))}
    counts = np.bincount(next(read_batches(files, label, batch_size=1400))["label"].ravel())
    parts = assembled(tmp_path, LINEAR, digits_examples)
    weights = compute_class_weights("balanced", TrainingSetup({"train": files}, label, "label", parts))
    assert [weights[number] * count for number, count in enumerate(counts)] == pytest.approx([140] * 10)
    module = write(tmp_path / "m.py", LINEAR)
    ignoring = train(digits_examples, module, tmp_path / "out", epochs=2, class_weights="7=1e-6")["trained"]
    assert 7 not in keras_models.load(ignoring).predict(images(digits_examples), verbose=0).argmax(1)


def test_storage_of_examples_and_number_of_reader_threads_change_no_batch_and_no_weight(
    tmp_path, digits_examples, plain
):
    variants = {
        "auto": {},
        "disk": {"cache": "disk"},
        "off": {"cache": "off", "threads": 1},
        "little memory": {"memory_mb": 1, "cache": "memory"},
        "drawn from few": {"shuffle_buffer": 10},
    }
    module = write(tmp_path / "m.py", LINEAR)
    settings = {"label": "label", "seed": 0, "precision": "module", "jit_compile": "off"}
    epochs = {}
    with reproducible(0):
        source = prepare_training(UserModule(module), Examples(digits_examples), **settings).read_sources()["train"]
        for name, parameters in variants.items():
            (tmp_path / name).mkdir()
            options = {"settings": dataclasses.replace(SETTINGS, **parameters), "folder": tmp_path / name}
            batches = dataclasses.replace(source, **options).shuffled(64, seed=0)
            epochs[name] = [[image.tobytes() for image, _ in batches.as_numpy_iterator()] for _ in range(2)]
    assert epochs["auto"][0] != epochs["auto"][1]
    assert epochs["disk"] == epochs["off"] == epochs["little memory"] == epochs["auto"]
    assert epochs["drawn from few"] != epochs["auto"]
    off = train(digits_examples, module, tmp_path / "trained", epochs=1, batch_size=140, **variants["off"])["trained"]
    np.testing.assert_array_equal(kernel(off), kernel(plain))


def test_classes_that_cannot_be_weighed_are_refused(tmp_path, digits_examples):
    module = write(tmp_path / "m.py", LINEAR)
    with pytest.raises(ComponentError, match="no example of class 10"):
        train(digits_examples, module, tmp_path / "out", class_weights="10=2")
    with pytest.raises(ComponentError, match="CLASS=WEIGHT"):
        train(digits_examples, module, tmp_path / "out", class_weights="1=-2")
    one_label = write(tmp_path / "f.py", LINEAR)
    with pytest.raises(ComponentError, match="one class number"):
        train(with_mean(tmp_path), one_label, tmp_path / "out", label="mean", class_weights="balanced")


@pytest.mark.parametrize("dtype", [pytest.param(np.int64, marks=pytest.mark.nightly), np.float32])
def test_one_hot_classes_are_trained_and_weighed_as_integers_are(tmp_path, digits_examples, dtype):
    stored = {"image": TensorSpec("float32", (None, 64)), "label": TensorSpec("int64", (None, 1))}
    digits = next(read_batches(Examples(digits_examples).split("train"), stored, batch_size=300))
    one_hot = np.eye(10, dtype=dtype)[digits["label"].ravel()]
    features = {"image": digits["image"], "label": digits["label"], "classes": one_hot}
    for split in ("train", "eval"):
        write_examples(tmp_path / "examples" / f"Split-{split}" / "a_tfrecord", features)
    kernels = []
    for label, loss in (("label", "sparse_categorical_crossentropy"), ("classes", "categorical_crossentropy")):
        module = write(tmp_path / f"{label}.py", LINEAR.replace("sparse_categorical_crossentropy", loss))
        options = {"epochs": 1, "label": label, "class_weights": "balanced"}
        kernels.append(kernel(train(tmp_path / "examples", module, tmp_path / f"out {label}", **options)["trained"]))
    np.testing.assert_allclose(*kernels, atol=1e-5)


SETTINGS = Settings(epochs=1, batch_size=32, patience=1)


def assembled(folder, text, examples, precision="module"):
    """Assemble the module's model for the digits."""
    artifact = Examples(examples)
    with reproducible(0):
        user = UserModule(write(folder / "assembled.py", text))
        return assemble(user, feature_specs(first_record(artifact.split("train"))), artifact, "label", precision)


def accuracy(trained, examples) -> float:
    served = runtimes.load(trained)
    specs = {**served.inputs, "label": TensorSpec("int64", (None,))}
    batch = next(read_batches(Examples(examples).split("eval"), specs, batch_size=400))
    label = batch.pop("label").ravel()
    return float((served.run(batch)["digit"].argmax(1) == label).mean())


def images(examples):
    specs = {"image": TensorSpec("float32", (None, 8, 8, 1))}
    return next(read_batches(Examples(examples).split("eval"), specs, batch_size=400))["image"]


def kernel(trained):
    return keras_models.load(trained).get_weights()[0]
