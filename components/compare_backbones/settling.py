"""What stands in for learning in a model that is measured before it has learnt."""

from typing import Any

import keras
import numpy as np

from tfopt.components.compare_backbones.reading import Size

BATCH = 8  # whose statistics the batch norms keep


def settle(model: Any, stored: Size, seed: int) -> None:
    """Make the weights such as training leaves them: what costs something then must cost it now.

    Biases, scales and shifts are made as zeros and ones, which converters leave out; here they are drawn. The batch
    norms get the statistics of random pixels: with those they are made with, activations shrink from layer to layer, to
    nothing that an exporter's check could compare.
    """
    draw = np.random.default_rng(seed)
    for weight in model.trainable_weights:
        value = np.array(weight)
        if value.min() == value.max():
            weight.assign(value + 0.1 * draw.standard_normal(value.shape))
    norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    model(draw.integers(0, 256, (BATCH, *stored)).astype("float32"), training=True)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
