"""Random Keras graphs with all supported layers and connections, for property tests of channel pruning."""

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from tfopt.components.prune.channels.cost import count_cost
from tfopt.components.prune.channels.groups import find_groups, follow_channels
from tfopt.components.prune.channels.surgery import build_smaller_model, zero_channels

# Zeros in these weights make a channel zero; weights that read it remain.
MAKERS = ("makes", "filters", "bias", "scales", "follows")

ACTIVATIONS = ["relu", "tanh", "gelu", "swish", None]  # all are zero at zero, so that a channel of zeros is dead
BLOCKS = ["conv", "strided", "residual", "concat", "dense_block", "depthwise", "separable", "squeeze"]
BLOCKS += ["transposed", "nested", "twice", "norm", "prelu", "pool", "reshape", "permute", "operations", "layer_norm"]
HEADS = ["average", "max", "flatten", "reshape"]

programs = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 1000),
        "blocks": st.lists(st.tuples(st.sampled_from(BLOCKS), st.integers(2, 5)), min_size=3, max_size=5),
        "head": st.sampled_from(HEADS),
    }
)


def build(keras, program):
    """Build a model with random weights and statistics, and two outputs at different depths."""
    rng = np.random.default_rng(program["seed"])
    image = keras.layers.Input((8, 8, 2), name="image")
    flow = _conv(keras, rng, image, 4)
    for kind, width in program["blocks"]:
        flow = _block(keras, rng, flow, kind, width)
    features = _head(keras, flow, program["head"])
    hidden = keras.layers.Dense(5, activation="relu")(features)
    outputs = [
        keras.layers.Dense(3, activation="softmax", name="kind")(hidden),
        keras.layers.Dense(1, name="size")(features),
    ]
    model = keras.Model(image, outputs)
    randomize_weights(model, rng)
    return model


def randomize_weights(model, rng):
    """Give every weight random values: none is zero or one, and variances are positive."""
    for layer in model._flatten_layers(include_self=False):
        if getattr(layer, "layers", None) or not getattr(layer, "weights", None):
            continue
        arrays = [rng.normal(0, 0.4, weight.shape) for weight in layer.weights]
        if "BatchNormalization" in type(layer).__name__:
            arrays[-1] = rng.uniform(0.5, 2, arrays[-1].shape)
        layer.set_weights(arrays)


def assert_dead_channels_change_nothing(model, records, seed):
    """Remove random channels, and compare outputs and costs with those of the model with zeros for them."""
    graph = follow_channels(model)
    remaining = random_selection(graph, np.random.default_rng(seed))
    small = build_smaller_model(model, graph, remaining)
    dead = zero_channels(model, graph, remaining, MAKERS)
    answers = [tf.nest.flatten(one(records, training=False)) for one in (dead, small)]
    for expected, received in zip(*answers, strict=True):
        np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-5)
    expected_cost = count_cost(model, graph, remaining)
    again = follow_channels(small)
    assert count_cost(small, again, np.ones(len(again.roots()), bool)) == expected_cost
    assert small.count_params() == expected_cost.parameters
    assert [tensor.shape for tensor in small.outputs] == [tensor.shape for tensor in model.outputs]
    assert [layer.name for layer in small.layers] == [layer.name for layer in model.layers]


def random_selection(graph, rng):
    """Select random channels; each group that is not frozen loses some and retains at least one."""
    remaining = np.ones(len(graph.roots()), bool)
    for group in find_groups(graph):
        if not group.frozen:
            removed = rng.permutation(group.bundles)[: rng.integers(1, len(group.bundles))]
            remaining[removed] = False
    return remaining[graph.roots()]


def _conv(keras, rng, flow, width, **more):
    layers = keras.layers
    flow = layers.Conv2D(width, 3, padding="same", use_bias=bool(rng.integers(2)), **more)(flow)
    flow = layers.BatchNormalization()(flow) if rng.integers(2) else flow
    return layers.Activation(ACTIVATIONS[rng.integers(4)])(flow)


def _block(keras, rng, flow, kind, width):
    layers, channels = keras.layers, flow.shape[-1]
    if kind == "conv":
        return _conv(keras, rng, flow, width)
    if kind == "strided":
        return layers.ZeroPadding2D()(_conv(keras, rng, flow, width, strides=2)) if flow.shape[1] > 2 else flow
    if kind == "residual":
        return layers.Add()([flow, _conv(keras, rng, _conv(keras, rng, flow, width), channels)])
    if kind == "concat":
        wide = layers.Concatenate()([flow, _conv(keras, rng, flow, width), _conv(keras, rng, flow, 2)])
        return _conv(keras, rng, wide, width)
    if kind == "dense_block":
        wide = layers.Concatenate()([flow, _conv(keras, rng, flow, width)])
        return layers.ReLU()(layers.BatchNormalization()(wide))
    if kind == "depthwise":
        return layers.DepthwiseConv2D(3, padding="same", depth_multiplier=1 + width % 2, activation="relu")(flow)
    if kind == "separable":
        return layers.SeparableConv2D(width, 3, padding="same", depth_multiplier=1 + width % 2)(flow)
    if kind == "squeeze":
        gate = layers.Reshape((1, 1, channels))(layers.GlobalAveragePooling2D()(flow))
        gate = layers.Conv2D(channels, 1, activation="sigmoid")(layers.Conv2D(width, 1, activation="relu")(gate))
        return layers.Multiply()([flow, gate])
    if kind == "transposed":
        return layers.Conv2DTranspose(width, 3, padding="same", activation="relu")(flow)
    if kind in ("nested", "twice"):
        start = layers.Input(flow.shape[1:])
        inner = keras.Model(start, layers.Add()([start, _conv(keras, rng, start, channels)]))
        return inner(inner(flow)) if kind == "twice" else inner(flow)
    if kind == "norm":
        return layers.BatchNormalization(scale=bool(width % 2))(layers.Dropout(0.2)(flow))
    if kind == "prelu":
        return layers.PReLU(shared_axes=[1, 2] if width % 2 else None)(flow)
    if kind == "pool":
        return layers.UpSampling2D(2)(layers.AveragePooling2D(2, padding="same")(flow))
    if kind == "reshape":
        return layers.Reshape(flow.shape[1:])(layers.Reshape((-1, channels))(flow))
    if kind == "permute":
        return layers.Permute((2, 1, 3))(flow)
    if kind == "layer_norm":
        return layers.Add()([flow, layers.LayerNormalization()(_conv(keras, rng, flow, channels))])
    return (flow + _conv(keras, rng, flow, channels)) * 0.5


def _head(keras, flow, kind):
    layers = keras.layers
    if kind == "average":
        return layers.GlobalAveragePooling2D()(flow)
    if kind == "max":
        return layers.Flatten()(layers.GlobalMaxPooling2D(keepdims=True)(flow))
    return layers.Flatten()(flow) if kind == "flatten" else layers.Reshape((int(np.prod(flow.shape[1:])),))(flow)
