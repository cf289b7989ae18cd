"""A network of embeddings and dense layers that predicts whether a flight from New York (`data.py`) arrives late.

It takes each column by its name and returns the probabilities of "on time" and "over 15 minutes late".
"""

import keras
from keras import layers

CODES = {"carrier": (16, 8), "origin": (3, 4), "dest": (105, 16), "month": (12, 8), "weekday": (7, 4), "hour": (24, 8)}
MEASURED = ["minute", "distance", "scheduled", "day"]
MEASURED += ["temp", "dewp", "wind_dir", "wind_speed", "precip", "pressure", "visib"]
WIDTHS = (512, 384, 256, 64)  # 345 thousand weights with the embeddings, so that weights are most of the file


def build_model() -> keras.Model:
    """Build a network with an embedding for each code, the unchanged measurements, and four hidden layers."""
    codes = {name: layers.Input((1,), dtype="int32", name=name) for name in CODES}
    measured = {name: layers.Input((1,), name=name) for name in MEASURED}
    flow = [layers.Flatten()(layers.Embedding(*CODES[name], name=f"{name}_of")(code)) for name, code in codes.items()]
    flow = layers.Concatenate()([*flow, *measured.values()])
    for number, width in enumerate(WIDTHS):
        flow = layers.Dense(width, activation="relu", name=f"hidden_{number}")(flow)
        flow = layers.Dropout(0.1)(flow)
    late = layers.Dense(2, activation="softmax", name="late")(flow)
    model = keras.Model([*codes.values(), *measured.values()], late, name="flights")
    rate = keras.optimizers.schedules.CosineDecay(1e-3, decay_steps=5000)  # 10 epochs of 230,000 flights by 512
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
