"""ResNet50 with random weights for `train`, on the examples of `waves.py`; RESNET=small is a small network instead."""

import os
from typing import Any

import keras
from keras import layers

SIZE = int(os.environ.get("IMAGE_SIZE", "224"))


def preprocess(features: dict[str, Any]) -> dict[str, Any]:
    """Scale the pixels to the range from -1 to 1."""
    image = layers.Reshape((SIZE, SIZE, 3))(features["image"])
    return {"image": layers.Rescaling(1 / 127.5, offset=-1.0, name="scale")(image)}


def build_model() -> keras.Model:
    """Return the compiled network."""
    image = layers.Input((SIZE, SIZE, 3), name="image")
    features = _small(image) if os.environ.get("RESNET") == "small" else _resnet50(image)
    output = layers.Dense(10, activation="softmax", name="class", dtype="float32")(features)
    model = keras.Model(image, output)
    model.compile(keras.optimizers.SGD(0.02, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _resnet50(image: Any) -> Any:
    network = keras.applications.ResNet50(weights=None, include_top=False, pooling="avg", input_tensor=image)
    for layer in network.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.8  # few steps must be enough for the statistics
    return network.output


def _small(image: Any) -> Any:
    flow = image
    for filters in (16, 32):
        flow = layers.Conv2D(filters, 3, strides=2, use_bias=False)(flow)
        flow = layers.ReLU()(layers.BatchNormalization(momentum=0.8)(flow))
    return layers.GlobalAveragePooling2D()(flow)
