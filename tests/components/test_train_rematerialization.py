"""`train` with rematerialize: the same losses and weights, of activations that are really computed twice."""

import logging
from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.components.train_modules import DIGITS, STOPS, write
from tfopt import keras_models
from tfopt.components.train.component import train
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child
from tfopt.training.distribution import EXAMPLE
from tfopt.training.rematerialization import rematerialized

IMAGES = np.random.default_rng(0).normal(size=(64, 8, 8, 1)).astype("float32")
CLASSES = np.random.default_rng(1).integers(0, 10, 64)
WORDS = np.random.default_rng(2).integers(0, 5, (64, 6))


def everything():
    """What draws, what keeps averages, what adds to the loss, a model in the model, branches and plain operations."""
    image = layers.Input((8, 8, 1))
    flow = layers.Conv2D(4, 3, padding="same")(layers.GaussianNoise(0.1)(image))
    inner = within = layers.Input((8, 8, 4))
    for _ in range(3):
        branch = layers.BatchNormalization(momentum=0.9)(layers.Conv2D(4, 3, padding="same")(within))
        within = layers.Add()([within, layers.Dropout(0.2)(layers.ReLU()(branch))])
    flow = layers.Flatten()(keras.ops.relu(keras.Model(inner, within)(flow)) + 1.0)
    flow = keras.Sequential([layers.Dense(16, "tanh", kernel_regularizer="l2"), layers.Dropout(0.3)])(flow)
    for _ in range(3):
        flow = layers.Dropout(0.3)(layers.Dense(16, "relu", activity_regularizer="l2")(flow))
    return keras.Model(
        image, [layers.Dense(10, "softmax", name="a")(flow), layers.Dense(10, "softmax", name="b")(flow)]
    )


def sequence():
    """Whole numbers at the beginning, and a mask on the way through, into a model that was built without one too."""
    flow = given = layers.Input((6,), dtype="int64")
    inner = within = layers.Input((6, 8))
    for _ in range(2):
        within = layers.LSTM(8, return_sequences=True)(within)
    flow = keras.Model(inner, within)(layers.Embedding(5, 8, mask_zero=True)(flow))
    for _ in range(2):
        flow = layers.Dropout(0.2)(layers.LSTM(8, return_sequences=True)(flow))
    flow = layers.GlobalAveragePooling1D()(flow)
    return keras.Model(given, layers.Dense(10, "softmax")(flow))


def backbone():
    """Batch norms that are frozen, and others that are not."""
    image = layers.Input((32, 32, 3))
    inner = keras.applications.MobileNetV2((32, 32, 3), 0.35, weights=None, include_top=False)
    for layer in inner.layers[:40]:
        layer.trainable = False
    flow = layers.GlobalAveragePooling2D()(inner(image))
    return keras.Model(image, layers.Dense(10, "softmax")(flow))


@pytest.mark.parametrize(
    ("build", "given", "how"),
    [
        (everything, IMAGES, {}),
        (everything, IMAGES, {"run_eagerly": True}),
        (sequence, WORDS, {}),
        pytest.param(everything, IMAGES, {"jit_compile": True}, marks=pytest.mark.nightly),
    ],
    ids=["all kinds of layers", "eagerly", "masks", "XLA"],
)
def test_losses_weights_averages_and_seeds_are_the_same_step_by_step(build, given, how):
    kept, again = (learnt(build, given, wanted, how) for wanted in (False, True))
    np.testing.assert_allclose(again[0], kept[0], rtol=1e-5)
    for ours, theirs in zip(again[1], kept[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.nightly
def test_the_gradient_of_a_backbone_partly_frozen_is_the_same_but_for_rounding():
    """Which many steps would amplify: some of its gradients are zero but for rounding."""
    kept, again = (gradient(backbone, wanted) for wanted in (False, True))
    assert np.linalg.norm(again - kept) < 1e-4 * np.linalg.norm(kept)


def test_all_but_the_last_piece_is_computed_twice_and_only_while_it_learns():
    plain, twice = (operations(wanted) for wanted in (False, True))
    assert plain["Conv2D"] == 4
    assert twice["Conv2D"] == 8
    assert plain["Conv2DBackpropFilter"] == twice["Conv2DBackpropFilter"] == 4
    assert plain["MatMul"] < twice["MatMul"] < plain["MatMul"] + 6
    with rematerialized(model := fresh(everything)):
        traced = tf.function(lambda image: model(image, training=False)).get_concrete_function(IMAGES)
    assert Counter(each.type for each in traced.graph.get_operations())["Conv2D"] == 4


def test_what_follows_a_model_inside_is_computed_twice_as_well():
    """That model is one piece, the next three layers are another, and the last two are kept."""
    keras.backend.clear_session()
    flow = given = layers.Input((4,))
    flow = keras.Sequential([layers.Input((4,)), layers.Dense(4, "tanh"), layers.Dense(4, "tanh")])(flow)
    for _ in range(5):
        flow = layers.Dense(4, "tanh")(flow)
    model = keras.Model(given, flow)
    model.compile("sgd", "mse")
    with rematerialized(model):
        step = tf.function(lambda x: model.train_step((x, x))).get_concrete_function(np.zeros((2, 4), "float32"))
    assert Counter(each.type for each in step.graph.get_operations())["Tanh"] == 2 * 2 + 2 * 3 + 2


def test_the_model_is_as_it_was_afterwards():
    model = fresh(everything)
    inner = next(layer for layer in model.layers if layer.name.startswith("functional"))
    with rematerialized(model):
        assert "call" in vars(model)
        assert "call" in vars(inner)
    assert "call" not in vars(model)
    assert "call" not in vars(inner)


@pytest.mark.nightly
def test_it_takes_less_memory():
    kept, again = (run_in_child(peak, wanted, doing="learning") for wanted in (False, True))
    assert again < 0.6 * kept


TRACED = DIGITS.replace(
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
).replace("flow = layers.ReLU()", "flow = Traced()(flow)\n    flow = layers.ReLU()")


@pytest.mark.parametrize("batch_size", [64, pytest.param(0, marks=pytest.mark.nightly)])
def test_train_and_its_search_for_a_batch_size_compute_again_and_learn_the_same(tmp_path, digits_examples, batch_size):
    lines, scores = [], []
    for wanted in (False, True):
        file = tmp_path / f"traced {wanted}"
        module = write(tmp_path / "m.py", TRACED.replace("FILE", repr(str(file))))
        given = {"epochs": 1, "batch_size": batch_size, "rematerialize": wanted}
        made = train(digits_examples, module, tmp_path / f"out {wanted}", **given)["trained"]
        lines.append(len(file.read_text().split()))
        scores.append(made.metadata["metrics"]["val_loss"])
    assert lines[1] == 2 * lines[0]
    assert scores[1] == pytest.approx(scores[0], rel=1e-4)


@pytest.mark.parametrize(("how", "near"), [("a teacher", 1e-4), ("16 bits", 0.02)])
def test_so_it_does_with_a_teacher_and_in_16_bits(tmp_path, digits_examples, digits_model, how, near):
    more = {"teacher": digits_model} if how == "a teacher" else {"precision": "mixed_bfloat16"}
    lines, scores = [], []
    for wanted in (False, True):
        file = tmp_path / f"traced {wanted}"
        module = write(tmp_path / "m.py", TRACED.replace("FILE", repr(str(file))))
        made = train(digits_examples, module, tmp_path / f"out {wanted}", epochs=1, rematerialize=wanted, **more)
        lines.append(len(file.read_text().split()))
        scores.append(made["trained"].metadata["metrics"]["val_loss"])
    assert lines[1] == 2 * lines[0]
    assert scores[1] == pytest.approx(scores[0], rel=near)


def test_so_does_a_training_that_was_interrupted_within_an_epoch_and_goes_on(tmp_path, digits_examples, caplog):
    text = DIGITS.replace("def build_model", STOPS.replace("FILE", repr(str(tmp_path / "stop"))) + "\ndef build_model")
    module = write(tmp_path / "m.py", text.replace("keras.Model(image", "Stops(image"))
    given = {"epochs": 3, "rematerialize": True}
    kept = {**given, "checkpoints": str(tmp_path / "kept"), "checkpoint_s": 0}
    (tmp_path / "stop").write_text("")
    with pytest.raises(ComponentError, match="stopped here"):
        train(digits_examples, module, tmp_path / "out", **kept)
    (tmp_path / "stop").unlink()
    with caplog.at_level(logging.INFO, "tfopt"):
        resumed = train(digits_examples, module, tmp_path / "out", **kept)["trained"]
    assert "resuming after epoch 3, batch 21" in caplog.text
    whole = train(digits_examples, module, tmp_path / "whole", **given)["trained"]
    for one, same in zip(keras_models.load(resumed).weights, keras_models.load(whole).weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), same.numpy())


def test_what_cannot_be_computed_again_is_refused(tmp_path, digits_examples, monkeypatch):
    two = write(
        tmp_path / "k2.py", DIGITS.replace("import keras\nfrom keras", "import tf_keras as keras\nfrom tf_keras")
    )
    with pytest.raises(ComponentError, match="rematerialize for digits, a tf_keras Functional"):
        train(digits_examples, two, tmp_path / "out", epochs=1, rematerialize=True)
    assert not (tmp_path / "out").exists()

    class Own(keras.Model):
        """Whose operations nobody knows before it is called."""

        def call(self, image):
            return image

    with pytest.raises(ComponentError, match="a functional or sequential model of Keras 3"), rematerialized(Own()):
        pass
    monkeypatch.setenv("TF_CONFIG", EXAMPLE)
    with pytest.raises(ComponentError, match="distribution=multi_worker with rematerialize"):
        train(digits_examples, two, tmp_path / "out", rematerialize=True, distribution="multi_worker")


class Noise(layers.Layer):
    """Draws with TensorFlow's own generator."""

    def call(self, given):
        return given + tf.random.normal(tf.shape(given))


class InALoop(layers.Layer):
    """Draws so inside a branch of a loop, which are functions of their own."""

    def call(self, given):
        def noisy(row):
            return tf.cond(tf.reduce_sum(row) > 0, lambda: row + tf.random.normal(tf.shape(row)), lambda: row)

        return tf.map_fn(noisy, given)


class Wanders(layers.Layer):
    """Moves what it should learn."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, given):
        self.scale.assign(self.scale * 0.9)
        return given * self.scale


@pytest.mark.parametrize(
    ("layer", "said"), [(Noise, "draws other random numbers"), (InALoop, "others each time"), (Wanders, "assigns")]
)
def test_layers_that_are_another_function_the_second_time_are_refused(layer, said):
    keras.backend.clear_session()
    given = layers.Input((8, 8, 1))
    flow = layers.Flatten()(layer()(given))
    model = keras.Model(given, layers.Dense(10, "softmax")(layers.Dense(8)(flow)))
    model.compile("sgd", "sparse_categorical_crossentropy")
    with pytest.raises(ComponentError, match=said), rematerialized(model):
        model.train_on_batch(IMAGES, CLASSES)


def fresh(build):
    """The same model each time, compiled."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(7)
    model = build()
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "sparse_categorical_crossentropy")
    return model


def learnt(build, given, wanted: bool, how: dict) -> tuple[list, list]:
    """The losses of some steps, and every variable after them."""
    model = fresh(build)
    for name, value in how.items():
        setattr(model, name, value)
    losses = []
    with rematerialized(model, wanted):
        for _ in range(2):
            for at in range(0, len(given), 16):
                part = slice(at, at + 16)
                truth = [CLASSES[part]] * len(model.outputs)
                losses.append(model.train_on_batch(given[part], truth if len(truth) > 1 else truth[0]))
    return np.array(losses), [variable.numpy() for variable in model.variables]


def gradient(build, wanted: bool) -> np.ndarray:
    """Of one batch, all weights in a row."""
    model, images = fresh(build), np.tile(IMAGES[:16], (1, 4, 4, 3))
    with rematerialized(model, wanted):

        @tf.function
        def traced():
            with tf.GradientTape() as tape:
                loss = model.compute_loss(images, CLASSES[:16], model(images, training=True))
            return tape.gradient(loss, model.trainable_weights)

        return np.concatenate([each.numpy().ravel() for each in traced()])


def operations(wanted: bool) -> Counter:
    """Of a traced training step."""
    model = fresh(everything)
    with rematerialized(model, wanted):
        step = tf.function(lambda x, y: model.train_step((x, [y, y])))
        graph = step.get_concrete_function(IMAGES, CLASSES).graph
    return Counter(each.type for each in graph.get_operations())


def peak(wanted: bool) -> int:
    """What learning needs on top of what was there before it, in bytes: 36 layers of 16 MB each."""
    from tfopt.processes.rpc import peak_memory

    flow = given = layers.Input((1024,))
    for _ in range(36):
        flow = layers.Dense(1024, "tanh", kernel_initializer="identity")(flow)
    model = keras.Model(given, layers.Dense(1)(flow))
    model.compile("sgd", "mse")
    examples, truth = np.zeros((4096, 1024), "float32"), np.zeros((4096, 1))
    before = peak_memory()
    with rematerialized(model, wanted):
        model.train_on_batch(examples, truth)
    return peak_memory() - before
