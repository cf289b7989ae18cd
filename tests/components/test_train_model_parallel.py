"""Test `train` with the layers of a model on several virtual devices: same losses and weights as on one device."""

import collections
import re
from pathlib import Path

import numpy as np
import pytest

from tests.components.train_modules import write
from tfopt import keras_models
from tfopt.artifacts import Examples, KerasModel
from tfopt.components.train.component import train
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child

STACK = """
import keras
from keras import layers

def preprocess(features):
    return {"image": layers.Rescaling(1 / 16, name="scale")(features["image"])}

def build_model():
    image = layers.Input((8, 8, 1), name="image")
    flow = layers.BatchNormalization(momentum=0.9)(layers.Flatten()(image))
    flow = layers.Dropout(0.1)(layers.Dense(128, "relu", kernel_regularizer="l2")(flow))
    inner = keras.Sequential([layers.Input((128,)), layers.Dense(128, "relu"), layers.Dropout(0.1)])
    shared = layers.Dense(128, "tanh", activity_regularizer="l2")
    flow = layers.Add()([flow, shared(shared(inner(flow)))])
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(flow), name="digits")
    model.compile(keras.optimizers.Adam(0.005), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


def train_on_parts(counts, examples: str, module: str, folder: str, parameters: dict) -> dict:
    divide_cpu(max(counts))
    results = {}
    for count in counts:
        trained = train(examples, module, f"{folder}/{count}", model_parallel=count, gpu_memory_mb=1, **parameters)["trained"]
        results[count] = trained.metadata
    return results


def divide_cpu(count: int) -> None:
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)


@pytest.mark.parametrize("keras", ["keras", "tf_keras"])
def test_layers_on_two_and_four_devices_give_the_losses_and_weights_of_one(tmp_path, digits_examples, keras):
    module = write(tmp_path / "m.py", STACK.replace("keras", keras))
    arguments = (1, 2, 4), str(digits_examples), str(module), str(tmp_path), {"epochs": 2, "batch_size": 140}
    facts = run_in_child(train_on_parts, *arguments, doing="training")
    for each in facts.values():
        print(each.get("model_parallel"), each["metrics"])
    one, *others = [keras_models.load(KerasModel.open(tmp_path / str(count))).get_weights() for count in (1, 2, 4)]
    for other in others:
        print(max(np.abs(a - b).max() for a, b in zip(one, other, strict=True)))
