"""Test that batch norms of one operation train like those of Keras, and which keep the implementation of Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.components.train_modules import DIGITS, write
from tfopt.artifacts import Examples
from tfopt.data.feature_schema import stored_features
from tfopt.training.compute.fused_batch_norm import fuse_batch_norms
from tfopt.training.fine_tuner import FineTuner
from tfopt.training.fine_tuning_inputs import FineTuningSettings
from tfopt.training.model_assembly import assemble
from tfopt.training.user_module import UserModule

RNG = np.random.default_rng(5)
IMAGES = RNG.normal(3, 2, (12, 6, 5, 4)).astype("float32")
LABELS = RNG.normal(size=(12, 3)).astype("float32")


def network(policy: str = "float32", **options: object) -> keras.Model:
    """Return a model with two batch norms, the second in an inner model; the same weights in each call."""
    keras.utils.set_random_seed(3)
    policy = keras.DTypePolicy(policy)
    inside = keras.Sequential([layers.Conv2D(8, 3, dtype=policy), layers.BatchNormalization(dtype=policy)])
    image = layers.Input((6, 5, 4))
    norm = layers.BatchNormalization(**{"epsilon": 0.02, "momentum": 0.7, "dtype": policy} | options)
    flow = layers.Flatten()(layers.ReLU()(inside(norm(image))))
    model = keras.Model(image, layers.Dense(3, dtype="float32")(flow))
    for layer in (norm, inside.layers[1]):
        layer.set_weights([RNG_WEIGHTS.uniform(0.5, 1.5, weight.shape) for weight in layer.weights])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


RNG_WEIGHTS = np.random.default_rng(8)


def both(policy: str = "float32", **options: object) -> tuple[keras.Model, keras.Model]:
    """Return the model as it is in Keras, and the same one with fused batch norms."""
    plain, fused = network(policy, **options), network(policy, **options)
    fused.set_weights(plain.get_weights())
    assert fuse_batch_norms(fused) == 2
    return plain, fused


def train(model: keras.Model) -> list[float]:
    return model.fit(IMAGES, LABELS, batch_size=5, epochs=3, shuffle=False, verbose=0).history["loss"]


def operations(model: keras.Model) -> list[str]:
    """Return the kinds of operations of a call in training."""
    graph = tf.function(lambda images: model(images, training=True)).get_concrete_function(tf.constant(IMAGES)).graph
    return [operation.type for operation in graph.get_operations()]


@pytest.mark.parametrize(
    "options",
    [
        {"scale": False},
        *(pytest.param(one, marks=pytest.mark.nightly) for one in ({}, {"center": False}, {"axis": 3})),
    ],
    ids=str,
)
def test_weights_and_averages_are_those_of_keras(options):
    plain, fused = both(**options)
    np.testing.assert_allclose(train(fused), train(plain), rtol=1e-5)
    assert operations(fused).count("FusedBatchNormV3") == 2 and "FusedBatchNormV3" not in operations(plain)
    for expected, weight in zip(plain.weights, fused.weights, strict=True):
        np.testing.assert_allclose(weight, expected, rtol=2e-4, atol=2e-5, err_msg=weight.path)


@pytest.mark.parametrize("policy", ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.nightly)])
def test_sixteen_bits_train_alike(policy):
    plain, fused = both(policy)
    np.testing.assert_allclose(train(fused), train(plain), rtol=0.02)
    assert operations(fused).count("FusedBatchNormV3") == 2
    np.testing.assert_allclose(fused.layers[1].moving_variance, plain.layers[1].moving_variance, rtol=0.02)


def test_inference_and_the_saved_model_are_those_of_keras(tmp_path):
    plain, fused = both()
    np.testing.assert_array_equal(fused.predict(IMAGES, verbose=0), plain.predict(IMAGES, verbose=0))
    fused.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(IMAGES, verbose=0), plain.predict(IMAGES, verbose=0))
    assert "FusedBatchNormV3" not in operations(loaded)


def test_a_frozen_batch_norm_keeps_its_averages():
    _, fused = both()
    fused.layers[1].trainable = False
    before = [np.array(weight) for weight in fused.layers[1].weights]
    train(fused)
    for weight, value in zip(fused.layers[1].weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)


class OwnNorm(layers.BatchNormalization):
    """A batch norm that may compute something else."""


@pytest.mark.parametrize(
    "norm",
    [
        OwnNorm(),
        layers.BatchNormalization(axis=1),
        layers.BatchNormalization(renorm=True),
        layers.BatchNormalization(synchronized=True),
        layers.BatchNormalization(dtype="float64"),
    ],
    ids=["derived", "axis", "renorm", "synchronized", "float64"],
)
def test_other_batch_norms_keep_the_implementation_of_keras(norm):
    model = keras.Sequential([layers.Input((6, 5, 4)), norm])
    assert fuse_batch_norms(model) == 0 and "call" not in vars(norm)


def test_masked_steps_do_not_count_and_tables_are_normalized():
    masked, table = layers.BatchNormalization(), layers.BatchNormalization()
    sequence = keras.Sequential([layers.Input((4, 3)), layers.Masking(), masked])
    rows = keras.Sequential([layers.Input((3,)), table])
    assert fuse_batch_norms(sequence) == fuse_batch_norms(rows) == 1
    values = RNG.normal(2, 1, (6, 4, 3)).astype("float32")
    values[:, 2:] = 0  # masked
    sequence(values, training=True)
    rows(values[:, 0], training=True)
    np.testing.assert_allclose(masked.moving_mean, 0.01 * values[:, :2].mean((0, 1)), rtol=1e-4)
    np.testing.assert_allclose(table.moving_mean, 0.01 * values[:, 0].mean(0), rtol=1e-4)


def test_train_and_fine_tuning_fuse_the_batch_norms_of_a_module(tmp_path, digits_examples):
    examples = Examples(digits_examples)
    user = UserModule(write(tmp_path / "module.py", DIGITS))
    trained = assemble(user, stored_features(examples.split("train")), examples, "label").model
    tuner = FineTuner.__new__(FineTuner)
    tuner.user, tuner.settings = user, FineTuningSettings(learning_rate=None)
    for model in (trained, tuner.compile(keras.models.clone_model(trained))):
        (norm,) = (layer for layer in model.layers if isinstance(layer, layers.BatchNormalization))
        assert "call" in vars(norm)


def test_models_of_keras_2_are_left_alone():
    import tf_keras

    norm = tf_keras.layers.BatchNormalization()
    assert fuse_batch_norms(tf_keras.Sequential([tf_keras.layers.Input((6, 5, 4)), norm])) == 0
