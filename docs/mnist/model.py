"""A small convolutional network for 28x28 grayscale digits: the module that the pipeline `retrain` trains.

It takes ``image``, raw pixels from 0 to 255, and returns the probabilities of the ten digits.
"""

from typing import Any

import keras
from keras import layers


def preprocess(features: dict[str, Any]) -> dict[str, Any]:
    """Scale the pixels to 0..1; this becomes the first layer of the saved model."""
    return {"image": layers.Rescaling(1 / 255, name="scale")(features["image"])}


def build_model() -> keras.Model:
    """Build a network with plain, depthwise and separable convolutions, each with a batch norm that can be folded."""
    image = layers.Input((28, 28, 1), name="image")
    flow = layers.RandomTranslation(0.08, 0.08, fill_mode="constant", name="shift")(image)
    flow = _normalized(layers.Conv2D(32, 3, strides=2, padding="same", use_bias=False)(flow))
    flow = _normalized(layers.DepthwiseConv2D(3, padding="same", use_bias=False)(flow))
    flow = _normalized(layers.Conv2D(64, 1, use_bias=False)(flow))
    flow = _normalized(layers.SeparableConv2D(96, 3, strides=2, padding="same", use_bias=False)(flow))
    flow = _normalized(layers.SeparableConv2D(192, 3, padding="same", use_bias=False)(flow))
    flow = layers.GlobalAveragePooling2D()(flow)
    flow = layers.Dropout(0.2)(flow)
    digit = layers.Dense(10, activation="softmax", name="digit")(flow)
    model = keras.Model(image, digit, name="mnist")
    rate = keras.optimizers.schedules.CosineDecay(4e-3, decay_steps=750)  # 12 epochs of 4,000 digits by 64
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _normalized(tensor: Any) -> Any:
    return layers.ReLU(6.0)(layers.BatchNormalization(momentum=0.9)(tensor))
