"""The transformer encoders of graph.py and peers.py, as Keras exports them."""

import importlib
from pathlib import Path
from typing import Any

WORDS, LENGTH = 1000, 64  # the number of different words, and of words in a text


def export_transformer(
    folder: Path, width: int, *, library: str = "keras", masked: bool, approximate: bool, random_biases: bool
) -> None:
    """Export an encoder of four blocks with four heads each, and a head for ten classes.

    Args:
        folder: The folder of the SavedModel.
        width: The width of the blocks; the layer between is four times as wide.
        library: ``keras`` or ``tf_keras``.
        masked: The word 0 is padding, which attention leaves out.
        approximate: GELU with tanh instead of erf.
        random_biases: Draw biases, and gains and shifts of normalizations, which are 0 and 1 otherwise.
    """
    import numpy as np

    draw = np.random.default_rng(0)
    model = build_transformer(width, library=library, masked=masked, approximate=approximate)
    for weight in model.weights if random_biases else ():
        kind = (weight.path if library == "keras" else weight.name.partition(":")[0]).rpartition("/")[2]
        if kind in ("bias", "beta", "gamma"):
            weight.assign((kind == "gamma") + draw.normal(0, 0.3, weight.shape))
    model.export(str(folder), **({"verbose": False} if library == "keras" else {}))


def build_transformer(width: int, *, library: str, masked: bool, approximate: bool, classes: int = 10) -> Any:
    """Return the untrained encoder; the parameters are those of `export_transformer`."""
    keras = importlib.import_module(library)
    layers = keras.layers
    keras.utils.set_random_seed(0)

    def approximate_gelu(values: Any) -> Any:
        return keras.activations.gelu(values, approximate=True)

    ids = layers.Input((LENGTH,), dtype="int32", name="ids")
    flow = layers.Embedding(WORDS, width, mask_zero=masked)(ids)
    for _ in range(4):
        flow = layers.LayerNormalization()(flow + layers.MultiHeadAttention(4, width // 4)(flow, flow))
        wide = layers.Dense(4 * width)(flow)
        wide = layers.Activation(approximate_gelu if approximate else "gelu")(wide)
        flow = layers.LayerNormalization()(flow + layers.Dense(width)(wide))
    return keras.Model(ids, layers.Dense(classes)(layers.GlobalAveragePooling1D()(flow)))
