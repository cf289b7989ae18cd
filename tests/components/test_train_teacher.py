"""Test distillation: loss and steps against the formula, and combinations with the other features of `train`."""

import json
import logging
import re

import numpy as np
import pytest
import tensorflow as tf

from tests.components.train_modules import STOPS, write
from tests.conftest import write_examples
from tfopt import keras_models
from tfopt.artifacts import KerasModel
from tfopt.components.train.component import train
from tfopt.errors import ComponentError
from tfopt.training.compute.distribution import EXAMPLE

COUNT, T, ALPHA, RATE = 60, 3.0, 0.6, 0.5
TAUGHT = {"temperature": T, "alpha": ALPHA, "epochs": 1, "batch_size": COUNT}
LINEAR = """
import keras
from keras import layers

def build_model():
    image = layers.Input((4,), name="image")
    model = keras.Model(image, layers.Dense(SIZE, "ACTIVATION", name="student", kernel_initializer=START)(image))
    model.compile(keras.optimizers.SGD(0.5), loss=LOSS)
    return model
"""
START = "keras.initializers.Constant([[0.3, -0.2, 0.1], [0.0, 0.4, -0.1], [0.2, 0.2, -0.3], [-0.5, 0.1, 0.0]])"
KERNEL = np.array([[0.3, -0.2, 0.1], [0.0, 0.4, -0.1], [0.2, 0.2, -0.3], [-0.5, 0.1, 0.0]])
SPARSE = "keras.losses.SparseCategoricalCrossentropy(from_logits={})"
NOT_TAUGHT = "keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=2)"


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    image = draw.normal(size=(COUNT, 4)).astype(np.float32)
    label, value = draw.integers(0, 3, COUNT), draw.normal(size=(COUNT, 3)).astype(np.float32)
    return {"image": image, "label": label, "yes": label % 2, "value": value}


@pytest.fixture(scope="module")
def examples(tmp_path_factory, data):
    """Three shards of different lengths that are read in turns, one of them empty and one compressed."""
    folder = tmp_path_factory.mktemp("taught") / "examples"
    for name, rows in {
        "train/a": slice(0, 11),
        "train/b.gz": slice(11, COUNT),
        "train/c": slice(0),
        "eval/a": slice(30),
    }.items():
        write_examples(folder / f"Split-{name}", {key: column[rows] for key, column in data.items()})
    return folder


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    """Linear teachers by kind, with a different bias for each class; `WISE` is their kernel."""
    import keras

    image, folder = keras.Input((4,), name="image"), tmp_path_factory.mktemp("teachers")
    dense = keras.layers.Dense(3, name="wise")
    logits = dense(image)
    dense.set_weights([WISE, BIAS])
    one = keras.layers.Dense(1, name="wise_one")
    single = one(image)
    one.set_weights([WISE[:, :1], BIAS[:1]])
    outputs = {
        "logits": logits,
        "softmax": keras.layers.Softmax(name="chances")(logits),
        "sigmoid": keras.layers.Activation("sigmoid", name="chance")(single),
        "two": {"late": logits, "early": keras.layers.Rescaling(-2.0)(logits)},
        "nan": keras.layers.Rescaling(1e38, name="broken")(keras.layers.Rescaling(1e38)(logits)),
    }
    for name, output in outputs.items():
        keras_models.save(keras.Model(image, output), folder / name)
    return folder


WISE = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32) * 2
BIAS = np.array([1.0, -1.0, 0.5], np.float32)


@pytest.fixture(scope="module")
def taught(tmp_path_factory, examples, teachers):
    """The student after one step with the teacher ``softmax``."""
    folder = tmp_path_factory.mktemp("student")
    student = write(folder / "m.py", module())
    return train(examples, student, folder / "out", teacher=teachers / "softmax", **TAUGHT)["trained"]


NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(
    ("library", "teacher", "activation"),
    [
        ("keras", "softmax", "softmax"),
        ("tf_keras", "logits", "linear"),
        pytest.param("tf_keras", "softmax", "softmax", marks=NIGHTLY),
        pytest.param("keras", "logits", "linear", marks=NIGHTLY),
    ],
)
def test_a_step_and_its_loss_match_the_formula(
    tmp_path, data, examples, teachers, taught, library, teacher, activation
):
    trained = taught
    if (library, teacher) != ("keras", "softmax"):
        text = module(activation=activation, loss=SPARSE.format(activation == "linear"))
        student = write(tmp_path / "m.py", text.replace("keras", library))
        trained = train(examples, student, tmp_path / "out", teacher=teachers / teacher, **TAUGHT)["trained"]
    assert trained.metadata["teacher"]["answers"] == {"student": "logits" if teacher == "logits" else "probabilities"}
    image, truth = data["image"], np.eye(3)[data["label"]]
    student_logits, teacher_logits = image @ KERNEL, image @ WISE + BIAS
    cross_entropy = -np.log(softmax(student_logits))[np.arange(COUNT), data["label"]]
    teacher_soft, student_soft = softmax(teacher_logits / T), softmax(student_logits / T)
    divergence = (teacher_soft * (np.log(teacher_soft) - np.log(student_soft))).sum(1)
    expected = (1 - ALPHA) * cross_entropy.mean() + ALPHA * T**2 * divergence.mean()
    slope = (1 - ALPHA) * (softmax(student_logits) - truth) + ALPHA * T * (student_soft - teacher_soft)
    assert last_metric(trained, "loss") == pytest.approx(expected, rel=1e-4)
    assert_weights(trained, KERNEL - RATE * image.T @ slope / COUNT, -RATE * slope.mean(0))
    assert last_metric(trained, "val_loss") == pytest.approx(
        -np.log(softmax(answers(trained, image[:30]))[np.arange(30), data["label"][:30]]).mean(), rel=1e-4
    )


def test_values_are_trained_with_the_modules_own_loss(tmp_path, data, examples, teachers):
    student = write(tmp_path / "m.py", module(activation="linear", loss="'mse'"))
    parameters = {**TAUGHT, "label": "value", "teacher": teachers / "logits"}
    trained = train(examples, student, tmp_path / "out", **{**parameters, "temperature": 50.0})["trained"]
    image = data["image"]
    off = image @ KERNEL - (1 - ALPHA) * data["value"] - ALPHA * (image @ WISE + BIAS)
    assert_weights(trained, KERNEL - RATE * 2 / 3 * image.T @ off / COUNT, -RATE * 2 / 3 * off.mean(0))


@pytest.mark.parametrize("library", [pytest.param("keras", marks=NIGHTLY), "tf_keras"])
def test_probabilities_regularizers_and_class_weights(tmp_path, data, examples, teachers, library):
    """Test that alpha does not scale the regularizer, and that class weights apply to labels and teacher outputs."""
    text = module(size=1, activation="sigmoid", loss="'binary_crossentropy'")
    text = text.replace(START, "'ones', kernel_regularizer=keras.regularizers.L2(0.01)")
    student = write(tmp_path / "m.py", text.replace("keras", library))
    parameters = {**TAUGHT, "label": "yes", "class_weights": "1=2.5", "teacher": teachers / "sigmoid"}
    trained = train(examples, student, tmp_path / "out", **parameters)["trained"]
    image, yes = data["image"], data["yes"]
    weight, z, teacher_logit = np.where(yes == 1, 2.5, 1.0), image.sum(1), image @ WISE[:, 0] + BIAS[0]
    p, q = sigmoid(teacher_logit / T), sigmoid(z / T)
    divergence = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    hard = -np.log(np.where(yes == 1, sigmoid(z), sigmoid(-z)))
    expected = (weight * ((1 - ALPHA) * hard + ALPHA * T**2 * divergence)).mean() + 0.01 * 4
    slope = weight * ((1 - ALPHA) * (sigmoid(z) - yes) + ALPHA * T * (q - p))
    assert last_metric(trained, "loss") == pytest.approx(expected, rel=1e-4)
    assert_weights(trained, (1 - RATE * (image.T @ slope / COUNT + 0.02))[:, None], [-RATE * slope.mean()])


@pytest.mark.parametrize("library", ["keras", pytest.param("tf_keras", marks=NIGHTLY)])
def test_each_output_is_distilled_from_the_one_of_its_name_and_an_output_without_loss_is_not(
    tmp_path, data, examples, teachers, library
):
    outputs = (
        "{name: layers.Dense(3, kernel_initializer=START, name=name)(image) for name in ('early', 'free', 'late')}"
    )
    text = module(loss="{'late': 'mse', 'early': 'mse'}, loss_weights={'late': 0.5, 'early': 2.0}")
    dense = next(line for line in text.splitlines() if "Dense" in line)
    text = text.replace(dense, f"    model = keras.Model(image, {outputs.replace('START', START)})")
    parameters = {**TAUGHT, "label": "value", "teacher": teachers / "two"}
    student = write(tmp_path / "m.py", text.replace("keras", library))
    trained = train(examples, student, tmp_path / "out", **parameters)["trained"]
    image, model = data["image"], keras_models.load(trained)
    for name, part, factor in (("late", 0.5, 1.0), ("early", 2.0, -2.0)):
        off = image @ KERNEL - (1 - ALPHA) * data["value"] - ALPHA * factor * (image @ WISE + BIAS)
        expected = KERNEL - RATE * part * 2 / 3 * image.T @ off / COUNT
        np.testing.assert_allclose(model.get_layer(name).get_weights()[0], expected, atol=1e-4)
    np.testing.assert_allclose(model.get_layer("free").get_weights()[0], KERNEL, atol=1e-6)


@pytest.mark.parametrize("form", ["batches of 7", pytest.param("tflite", marks=NIGHTLY)])
def test_a_teacher_of_another_format_or_with_a_fixed_batch_has_the_same_outputs(
    tmp_path, examples, teachers, taught, form
):
    from tfopt.components.export_tflite.component import export_tflite

    student = write(tmp_path / "m.py", module())
    if form == "tflite":
        other = export_tflite(teachers / "softmax", tmp_path / "lite", precision="float32")["exported"]
    else:
        other = fixed(teachers / "softmax", tmp_path / "seven")
    same = train(examples, student, tmp_path / "out", teacher=other, **TAUGHT)["trained"]
    kernels = [keras_models.load(model).get_weights()[0] for model in (taught, same)]
    np.testing.assert_allclose(kernels[1], kernels[0], atol=1e-5)


def test_with_alpha_0_the_teacher_has_no_effect_and_the_card_records_it(tmp_path, data, examples, teachers):
    student = write(tmp_path / "m.py", module())
    teacher = KerasModel.open(teachers / "softmax")
    parameters = {"epochs": 1, "batch_size": COUNT, "teacher": teacher, "alpha": 0.0}
    without_effect = train(examples, student, tmp_path / "alpha 0", **parameters)["trained"]
    image = data["image"]
    slope = softmax(image @ KERNEL) - np.eye(3)[data["label"]]  # of the loss on labels only
    assert_weights(without_effect, KERNEL - RATE * image.T @ slope / COUNT, -RATE * slope.mean(0))
    card = KerasModel.open(without_effect.path).card.facts
    assert card["teacher"] == {
        **{"name": "softmax", "format": "saved_model", "digest": teacher.digest, "temperature": 4.0, "alpha": 0.0},
        "answers": {"student": "probabilities"},
    }
    assert (card["parent"], card["lineage"]) == (None, [])


@pytest.mark.parametrize(
    ("more", "near"),
    [
        ({"batch_size": COUNT // 4, "gradient_accumulation": 4}, 1e-5),
        pytest.param({"jit_compile": "on", "deterministic": False}, 1e-5, marks=NIGHTLY),
        pytest.param({"precision": "mixed_bfloat16"}, 0.02, marks=NIGHTLY),
    ],
    ids=["accumulated", "XLA", "16 bits"],
)
def test_accumulated_batches_equal_one_batch_and_xla_and_16_bits_are_close(
    tmp_path, examples, teachers, taught, more, near
):
    student = write(tmp_path / "m.py", module())
    parameters = {**TAUGHT, "teacher": teachers / "softmax", **more}
    other = train(examples, student, tmp_path / "out", **parameters)["trained"]
    kernels = [keras_models.load(model).get_weights()[0] for model in (taught, other)]
    assert np.abs(kernels[1] - kernels[0]).max() < near
    assert np.abs(kernels[0] - KERNEL).max() > 0.05


PREPARED = """
def preprocess(features):
    return {"image": features["image"] * 1.0}
"""


HIDDEN = "layers.Dropout(0.1)(layers.BatchNormalization(momentum=0.9)(layers.Dense(4, 'tanh')(image)))"


@pytest.mark.nightly  # daily without a teacher: test_train_checkpoints.py
@pytest.mark.parametrize(
    ("library", "rematerialize"),
    [("keras", True), ("keras", False), ("tf_keras", False)],
)
def test_a_distillation_interrupted_within_an_epoch_resumes_to_the_same_weights_with_the_same_teacher_only(
    tmp_path, examples, teachers, library, rematerialize, caplog
):
    stop = tmp_path / "stop"
    text = module().replace("\ndef build", (PREPARED + STOPS).replace("FILE", repr(str(stop))) + "\ndef build")
    text = text.replace("keras.Model(image", "Stops(image").replace("SGD(0.5)", "Adam(0.05)")
    text = text.replace(")(image))\n", f")({HIDDEN}))\n")
    student = write(tmp_path / "m.py", text.replace("keras", library))
    parameters = {"teacher": teachers / "softmax", "epochs": 4, "batch_size": 16, "temperature": T}
    parameters["rematerialize"] = rematerialize
    with_checkpoints = {**parameters, "checkpoints": str(tmp_path / "checkpoints"), "checkpoint_s": 0}
    stop.write_text("")
    with pytest.raises(ComponentError, match="stopped here"):
        train(examples, student, tmp_path / "out", **with_checkpoints)
    stop.write_text("at the beginning")
    with caplog.at_level(logging.INFO, "tfopt"), pytest.raises(ComponentError, match="stopped at the beginning"):
        train(examples, student, tmp_path / "other", **{**with_checkpoints, "teacher": teachers / "logits"})
    stop.unlink()
    assert "belongs to another training and is not used: other teacher" in caplog.text
    assert "resuming" not in caplog.text
    with caplog.at_level(logging.INFO, "tfopt"):
        resumed = train(examples, student, tmp_path / "out", **with_checkpoints)["trained"]
    assert "resuming after epoch 3, batch 3" in caplog.text
    parameters["checkpoints"] = str(tmp_path / "others")  # with checkpoints, dropout in Keras 2 draws other numbers
    whole = train(examples, student, tmp_path / "whole", **parameters)["trained"]
    for one, same in zip(keras_models.load(resumed).weights, keras_models.load(whole).weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), same.numpy())


REFUSED = {
    "fewer classes": ("softmax", {"size": 4, "start": "'zeros'"},
        r"teacher: chances: float32\[\?,3\]", r"\[4\] numbers"),
    "no output of that name": ("two", {}, "teacher: outputs early: .*late: ", "one named student"),
    "no number": ("nan", {}, "output 'student' is NaN or infinite for record 0", "finite outputs"),
    "a loss of its own": ("softmax", {"loss": "lambda y, p: keras.ops.mean(p)"},
        "the loss <lambda>", "with a known soft form"),
    "a class that is left out": ("logits", {"loss": NOT_TAUGHT}, "and its ignore_class", "with a known soft form"),
}  # fmt: skip


@pytest.mark.parametrize(("teacher", "changes", "received", "expected"), REFUSED.values(), ids=REFUSED)
def test_teachers_that_do_not_fit_are_refused(tmp_path, examples, teachers, teacher, changes, received, expected):
    student = write(tmp_path / "m.py", module(**changes))
    with pytest.raises(ComponentError, match=received) as refusal:
        train(examples, student, tmp_path / "out", teacher=teachers / teacher, **TAUGHT)
    assert re.search(expected, refusal.value.expected)
    assert not (tmp_path / "out").exists()


def test_students_that_cannot_be_distilled_are_refused(tmp_path, examples, teachers, monkeypatch):
    student = write(tmp_path / "m.py", module())
    monkeypatch.setenv("TF_CONFIG", EXAMPLE)
    with pytest.raises(ComponentError, match="distribution=multi_worker with a teacher"):
        train(examples, student, tmp_path / "out", teacher=teachers / "softmax", distribution="multi_worker")
    with pytest.raises(ComponentError, match=r"alpha=0.5 without a teacher"):
        train(examples, student, tmp_path / "out", alpha=0.5)
    with pytest.raises(ComponentError, match="1 to 100"):
        train(examples, student, tmp_path / "out", teacher=teachers / "softmax", temperature=0.5)
    own = "class Own(keras.Model):\n    def train_step(self, data):\n        return {}\n\ndef build"
    stepping = module().replace("def build", own).replace("keras.Model(image", "Own(image")
    with pytest.raises(ComponentError, match=r"Own of .* with a train_step of its own"):
        train(examples, write(tmp_path / "own.py", stepping), tmp_path / "out", teacher=teachers / "softmax")


def module(*, size=3, activation="softmax", loss="'sparse_categorical_crossentropy'", start=START) -> str:
    text = LINEAR.replace("SIZE", str(size)).replace("ACTIVATION", activation).replace("LOSS", loss)
    return text.replace("START", start)


def fixed(model, folder):
    """Save the model as a SavedModel with batch size 7 and the output name of the student."""
    loaded = keras_models.load(KerasModel.open(model))
    spec = tf.TensorSpec([7, 4], tf.float32, name="image")
    body = tf.function(lambda image: {"student": loaded(image)}, input_signature=[spec])
    holder = tf.Module()
    holder.model, holder.body = loaded, body
    tf.saved_model.save(holder, str(folder / "Format-Serving"), signatures={"serving_default": body})
    return folder


def softmax(z):
    powers = np.exp(z - z.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def answers(trained, image):
    """Return the logits, computed from the weights."""
    kernel, bias = keras_models.load(trained).get_weights()
    return image @ kernel + bias


def last_metric(trained, name) -> float:
    return json.loads((trained.path / "history.json").read_text())["epochs"][0][name]


def assert_weights(trained, kernel, bias) -> None:
    weights = keras_models.load(trained).get_weights()
    np.testing.assert_allclose(weights[0], kernel, atol=2e-5)
    np.testing.assert_allclose(weights[1], bias, atol=2e-5)
