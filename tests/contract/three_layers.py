"""The user module of the contract test: a convolution, its batch norm, and a dense layer."""

import keras


def build_model() -> keras.Model:
    """Three layers for 8x8 digits."""
    image = keras.Input((8, 8, 1), name="image")
    flow = keras.layers.Conv2D(4, 3, use_bias=False)(image)
    flow = keras.layers.BatchNormalization(momentum=0.5)(flow)
    outputs = keras.layers.Dense(10, activation="softmax")(keras.layers.Flatten()(flow))
    model = keras.Model(image, outputs)
    # Eagerly: for five steps, tracing would take most of the time.
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"], run_eagerly=True)
    return model
