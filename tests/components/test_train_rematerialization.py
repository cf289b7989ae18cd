"""Test `train` with rematerialize: equal losses and weights, and activations that are computed twice."""

import logging
from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.components.train_modules import DIGITS, SMALL, STOPS, write
from tfopt import keras_models
from tfopt.components.train.component import train
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child
from tfopt.training.compute.distribution import EXAMPLE
from tfopt.training.compute.rematerialization import rematerialized

IMAGES = np.random.default_rng(0).normal(size=(64, 8, 8, 1)).astype("float32")
CLASSES = np.random.default_rng(1).integers(0, 10, 64)
WORDS = np.random.default_rng(2).integers(0, 5, (64, 2))


def stateful_model():
    """Return a model with random layers, moving averages, regularizers, a nested model, branches and plain ops."""
    image = layers.Input((8, 8, 1))
    flow = layers.Conv2D(4, 3, padding="same")(layers.GaussianNoise(0.1)(image))
    inner = within = layers.Input((8, 8, 4))
    for _ in range(2):
        branch = layers.BatchNormalization(momentum=0.9)(layers.Conv2D(4, 3, padding="same")(within))
        within = layers.Add()([within, layers.Dropout(0.2)(layers.ReLU()(branch))])
    flow = layers.Flatten()(keras.ops.relu(keras.Model(inner, within)(flow)) + 1.0)
    flow = keras.Sequential([layers.Dense(16, "tanh", kernel_regularizer="l2"), layers.Dropout(0.3)])(flow)
    for _ in range(2):
        flow = layers.Dropout(0.3)(layers.Dense(16, "relu", activity_regularizer="l2")(flow))
    return keras.Model(
        image, [layers.Dense(10, "softmax", name="a")(flow), layers.Dense(10, "softmax", name="b")(flow)]
    )


def sequence():
    """Return a model with integer inputs and a mask, which also reaches a nested model that was built without one."""
    flow = inputs = layers.Input((2,), dtype="int64")
    inner = within = layers.Input((2, 8))
    for _ in range(2):
        within = layers.SimpleRNN(8, return_sequences=True, unroll=True)(within)
    flow = keras.Model(inner, within)(layers.Embedding(5, 8, mask_zero=True)(flow))
    for _ in range(2):
        flow = layers.Dropout(0.2)(layers.SimpleRNN(8, return_sequences=True, unroll=True)(flow))
    flow = layers.GlobalAveragePooling1D()(flow)
    return keras.Model(inputs, layers.Dense(10, "softmax")(flow))


def in_16_bits():
    """Return a model that computes in 16 bits."""
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        image = layers.Input((8, 8, 1))
        flow = layers.Flatten()(image)
        for _ in range(3):
            flow = layers.Dropout(0.2)(layers.Dense(16, "tanh")(flow))
        return keras.Model(image, layers.Dense(10, "softmax", dtype="float32")(flow))
    finally:
        keras.mixed_precision.set_global_policy("float32")


def backbone():
    """Return a model with frozen and trainable batch norms."""
    image = layers.Input((32, 32, 3))
    inner = keras.applications.MobileNetV2((32, 32, 3), 0.35, weights=None, include_top=False)
    for layer in inner.layers[:40]:
        layer.trainable = False
    flow = layers.GlobalAveragePooling2D()(inner(image))
    return keras.Model(image, layers.Dense(10, "softmax")(flow))


@pytest.fixture(scope="module")
def traced():
    """Traced training steps of `stateful_model`, plain and recomputed."""
    return [TracedSteps(rematerialize) for rematerialize in (False, True)]


@pytest.mark.parametrize(
    ("build", "inputs", "how"),
    [
        (sequence, WORDS, {}),
        pytest.param(stateful_model, IMAGES, {"run_eagerly": True}, marks=pytest.mark.nightly),
        pytest.param(in_16_bits, IMAGES, {}, marks=pytest.mark.nightly),
        pytest.param(stateful_model, IMAGES, {"jit_compile": True}, marks=pytest.mark.nightly),
    ],
    ids=["masks", "eagerly", "16 bits", "XLA"],
)
def test_losses_weights_averages_and_seeds_are_equal_in_each_step(build, inputs, how):
    assert_equal_steps(*(train_steps(build, inputs, rematerialize, how) for rematerialize in (False, True)))


def test_losses_weights_averages_and_seeds_of_all_kinds_of_layers_are_equal_in_each_step(traced):
    assert_equal_steps(*((each.losses, each.variables) for each in traced))


def assert_equal_steps(plain: tuple[np.ndarray, list], recomputed: tuple[np.ndarray, list]) -> None:
    np.testing.assert_allclose(recomputed[0], plain[0], rtol=1e-5)
    for ours, theirs in zip(recomputed[1], plain[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.nightly
def test_the_gradient_of_a_partly_frozen_backbone_is_equal_except_for_rounding():
    """Compare one gradient: several steps would amplify rounding errors of gradients that are nearly zero."""
    plain, recomputed = (gradient(backbone, rematerialize) for rematerialize in (False, True))
    assert np.linalg.norm(recomputed - plain) < 1e-4 * np.linalg.norm(plain)


def test_all_segments_but_the_last_are_computed_twice_and_only_in_training(traced):
    plain, twice = (each.operations for each in traced)
    assert plain["Conv2D"] == 3
    assert twice["Conv2D"] == 6
    assert plain["Conv2DBackpropFilter"] == twice["Conv2DBackpropFilter"] == 3
    assert plain["MatMul"] < twice["MatMul"] < plain["MatMul"] + 6
    assert traced[1].inference["Conv2D"] == 3


def test_layers_after_a_nested_model_are_computed_twice_as_well():
    """Check the pieces: the nested model, the next three layers, and the last two, which are not computed again."""
    keras.backend.clear_session()
    flow = inputs = layers.Input((4,))
    flow = keras.Sequential([layers.Input((4,)), layers.Dense(4, "tanh"), layers.Dense(4, "tanh")])(flow)
    for _ in range(5):
        flow = layers.Dense(4, "tanh")(flow)
    model = keras.Model(inputs, flow)
    model.compile("sgd", "mse")
    with rematerialized(model):
        step = tf.function(lambda x: model.train_step((x, x))).get_concrete_function(np.zeros((2, 4), "float32"))
    assert Counter(each.type for each in step.graph.get_operations())["Tanh"] == 2 * 2 + 2 * 3 + 2


def test_the_model_is_restored_afterwards():
    model = fresh(stateful_model)
    inner = next(layer for layer in model.layers if layer.name.startswith("functional"))
    with rematerialized(model):
        assert "call" in vars(model)
        assert "call" in vars(inner)
    assert "call" not in vars(model)
    assert "call" not in vars(inner)


@pytest.mark.nightly
def test_rematerialization_needs_less_memory():
    plain, recomputed = (run_in_child(peak, rematerialize, doing="training") for rematerialize in (False, True))
    assert recomputed < 0.6 * plain


TRACED = SMALL.replace(
    "import keras\n",
    """import keras

@keras.saving.register_keras_serializable("tests")
class Traced(keras.layers.Layer):
    def call(self, x, training=False):
        if training:
            with open(FILE, "a") as file:
                file.write("traced\\n")
        return x
""",
).replace("flow = layers.Dropout", "flow = layers.Dense(16, 'relu')(Traced()(flow))\n    flow = layers.Dropout")
WAYS = {
    "a teacher": ({}, 1e-4),
    "16 bits": ({"precision": "mixed_bfloat16"}, 0.02),
    "a batch size search": ({"batch_size": 0}, 1e-4),
}


NIGHTLY = [pytest.param(how, marks=pytest.mark.nightly) for how in ("16 bits", "a batch size search")]


@pytest.mark.parametrize("how", ["a teacher", *NIGHTLY])
def test_train_recomputes_and_gives_equal_losses(tmp_path, digits_examples, digits_model, how):
    more, near = WAYS[how]
    more = {**more, "teacher": digits_model} if how == "a teacher" else more
    lines, scores = [], []
    for rematerialize in (False, True):
        file = tmp_path / f"traced {rematerialize}"
        module = write(tmp_path / "m.py", TRACED.replace("FILE", repr(str(file))))
        outputs = train(
            digits_examples, module, tmp_path / f"out {rematerialize}", epochs=1, rematerialize=rematerialize, **more
        )
        lines.append(len(file.read_text().split()))
        scores.append(outputs["trained"].metadata["metrics"]["val_loss"])
    assert lines[1] == 2 * lines[0]
    assert scores[1] == pytest.approx(scores[0], rel=near)


@pytest.mark.nightly  # daily with a teacher: test_train_teacher.py
def test_a_training_interrupted_within_an_epoch_resumes_to_the_same_weights(tmp_path, digits_examples, caplog):
    text = TRACED.replace("FILE", repr(str(tmp_path / "traced")))
    text = text.replace("def build_model", STOPS.replace("FILE", repr(str(tmp_path / "stop"))) + "\ndef build_model")
    module = write(tmp_path / "m.py", text.replace("keras.Model(image", "Stops(image"))
    parameters = {"epochs": 3, "batch_size": 350, "rematerialize": True}
    with_checkpoints = {**parameters, "checkpoints": str(tmp_path / "checkpoints"), "checkpoint_s": 0}
    (tmp_path / "stop").write_text("")
    with pytest.raises(ComponentError, match="stopped here"):
        train(digits_examples, module, tmp_path / "out", **with_checkpoints)
    (tmp_path / "stop").unlink()
    with caplog.at_level(logging.INFO, "tfopt"):
        resumed = train(digits_examples, module, tmp_path / "out", **with_checkpoints)["trained"]
    assert "resuming after epoch 3, batch 3" in caplog.text
    whole = train(digits_examples, module, tmp_path / "whole", **parameters)["trained"]
    for one, same in zip(keras_models.load(resumed).weights, keras_models.load(whole).weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), same.numpy())


def test_models_that_cannot_be_recomputed_are_refused(tmp_path, digits_examples, monkeypatch):
    two = write(
        tmp_path / "k2.py", DIGITS.replace("import keras\nfrom keras", "import tf_keras as keras\nfrom tf_keras")
    )
    with pytest.raises(ComponentError, match="rematerialize for digits, a tf_keras Functional"):
        train(digits_examples, two, tmp_path / "out", epochs=1, rematerialize=True)
    assert not (tmp_path / "out").exists()

    class Own(keras.Model):
        """A model whose operations are unknown before it is called."""

        def call(self, image):
            return image

    with pytest.raises(ComponentError, match="a functional or sequential model of Keras 3"), rematerialized(Own()):
        pass
    monkeypatch.setenv("TF_CONFIG", EXAMPLE)
    with pytest.raises(ComponentError, match="distribution=multi_worker with rematerialize"):
        train(digits_examples, two, tmp_path / "out", rematerialize=True, distribution="multi_worker")


class Noise(layers.Layer):
    """A layer that draws from TensorFlow's own generator."""

    def call(self, inputs):
        return inputs + tf.random.normal(tf.shape(inputs))


class InALoop(layers.Layer):
    """A layer that draws inside a branch of a loop, which is a function of its own."""

    def call(self, inputs):
        def noisy(row):
            return tf.cond(tf.reduce_sum(row) > 0, lambda: row + tf.random.normal(tf.shape(row)), lambda: row)

        return tf.map_fn(noisy, inputs)


class Wanders(layers.Layer):
    """A layer that changes its own trainable weight."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, inputs):
        self.scale.assign(self.scale * 0.9)
        return inputs * self.scale


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (Noise, "draws other random numbers"),
        (InALoop, "while/cond/.*draws other random numbers in each run"),
        (Wanders, "assigns"),
    ],
)
def test_layers_with_other_outputs_the_second_time_are_refused(layer, reason):
    keras.backend.clear_session()
    inputs = layers.Input((8, 8, 1))
    flow = layers.Flatten()(layer()(inputs))
    model = keras.Model(inputs, layers.Dense(10, "softmax")(layers.Dense(8)(flow)))
    model.compile("sgd", "sparse_categorical_crossentropy")
    with pytest.raises(ComponentError, match=reason), rematerialized(model):
        model.train_on_batch(IMAGES, CLASSES)


def fresh(build):
    """Return the same model each time, compiled."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(7)
    model = build()
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "sparse_categorical_crossentropy")
    model.optimizer.build(model.trainable_variables)  # a step that creates its variables is traced twice
    return model


def train_steps(build, inputs, rematerialize: bool, how: dict) -> tuple[list, list]:
    """Return the losses of some steps, and all variables after them."""
    model = fresh(build)
    for name, value in how.items():
        setattr(model, name, value)
    losses = []
    with rematerialized(model, rematerialize):
        for at in range(0, len(inputs), 16):
            part = slice(at, at + 16)
            truth = [CLASSES[part]] * len(model.outputs)
            losses.append(model.train_on_batch(inputs[part], truth if len(truth) > 1 else truth[0]))
    return np.array(losses), [variable.numpy() for variable in model.variables]


def gradient(build, rematerialize: bool) -> np.ndarray:
    """Return the gradient of all weights on one batch, as one vector."""
    model, images = fresh(build), np.tile(IMAGES[:16], (1, 4, 4, 3))
    with rematerialized(model, rematerialize):

        @tf.function
        def traced():
            with tf.GradientTape() as tape:
                loss = model.compute_loss(images, CLASSES[:16], model(images, training=True))
            return tape.gradient(loss, model.trainable_weights)

        return np.concatenate([each.numpy().ravel() for each in traced()])


class TracedSteps:
    """Operations of a training step and of a gradient in inference mode; losses of some steps, variables after them."""

    def __init__(self, rematerialize: bool) -> None:
        model = fresh(stateful_model)
        with rematerialized(model, rematerialize):
            step = tf.function(lambda x, y: model.train_step((x, [y, y])))
            step = step.get_concrete_function(IMAGES[:16], CLASSES[:16])
            inference = tf.function(lambda x: inference_gradient(model, x)).get_concrete_function(IMAGES)
            parts = [slice(at, at + 16) for at in range(0, len(IMAGES), 16)]
            steps = [step(tf.constant(IMAGES[part]), tf.constant(CLASSES[part])) for part in parts]
        self.operations, self.inference = (
            Counter(each.type for each in function.graph.get_operations()) for function in (step, inference)
        )
        self.losses = np.array([float(metrics["loss"]) for metrics in steps])
        self.variables = [variable.numpy() for variable in model.variables]


def inference_gradient(model, images):
    """Return the gradient of the sum of all outputs, computed as in inference."""
    with tf.GradientTape() as tape:
        total = tf.add_n([tf.reduce_sum(output) for output in model(images, training=False)])
    return tape.gradient(total, model.trainable_weights[0])


def peak(rematerialize: bool) -> int:
    """Return the additional peak memory of training in bytes, for 36 layers of 16 MB each."""
    from tfopt.processes.memory import peak_memory

    flow = inputs = layers.Input((1024,))
    for _ in range(36):
        flow = layers.Dense(1024, "tanh", kernel_initializer="identity")(flow)
    model = keras.Model(inputs, layers.Dense(1)(flow))
    model.compile("sgd", "mse")
    examples, truth = np.zeros((4096, 1024), "float32"), np.zeros((4096, 1))
    before = peak_memory()
    with rematerialized(model, rematerialize):
        model.train_on_batch(examples, truth)
    return peak_memory() - before
