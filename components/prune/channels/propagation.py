"""How channels pass through each kind of layer: one rule a kind, the same for Keras 3 and Keras 2.

A rule is given the channels of the call's inputs, notes what it knows, and returns the channels of the output. Layouts
of the kernels are those of TensorFlow's ops (tf.nn.conv2d, depthwise_conv2d, separable_conv2d, conv2d_transpose).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.components.prune.channel_shapes import flatten, permute, reshape
from tfopt.components.prune.channels.labels import Book, Channels, NotFollowedError
from tfopt.keras_models.layer_graph import LIBRARIES, Call, Layer

Rule = Callable[[Book, Call, list[Channels]], Channels]

# Functions of one number; a softmax, say, mixes the channels.
ELEMENTWISE = {
    *("linear", "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "swish", "sigmoid", "tanh"),
    *("hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "softplus", "softsign", "exponential", "mish", "relu_6"),
    *("log_sigmoid", "square", "squareplus", "sparse_plus", "hard_shrink", "soft_shrink", "tanh_shrink"),
    *("ReLU", "LeakyReLU", "ELU"),
}


def rule_of(layer: Layer) -> Rule:
    """Return the rule of a layer or an operation.

    Raises:
        NotFollowedError: When there is none.
    """
    kind = type(layer).__name__
    symbol = str(getattr(layer, "symbol", "")).rpartition(".")[2] if kind == "TFOpLambda" else ""
    rule = RULES.get(kind) or FUNCTIONS.get(symbol)
    if rule is None or not type(layer).__module__.startswith(LIBRARIES):
        raise NotFollowedError(NORMALIZING if kind in NORMS else f"{kind} is no kind that is followed")
    if getattr(layer, "quantization_mode", None) or getattr(layer, "lora_enabled", False):
        raise NotFollowedError("it is quantized or has LoRA weights")
    return rule


NORMS = ("LayerNormalization", "GroupNormalization", "UnitNormalization", "RMSNormalization", "Softmax")
NORMALIZING = "it normalizes over its channels together, so that removing one would change the others"


def _dense(book: Book, call: Call, given: list[Channels]) -> Channels:
    layer, rank = call.layer, len(call.inputs[0].shape)
    _on_axis(given[0], rank - 1)
    book.use(layer, layer.kernel, call.outputs[0].shape[1:-1])
    book.cut(layer, layer.kernel, 0, given[0].labels, "reads")
    return _makes(book, layer, layer.kernel, 1, "units", rank - 1)


def _convolution(book: Book, call: Call, given: list[Channels]) -> Channels:
    layer, axis = call.layer, _channel_axis(call)
    _on_axis(given[0], axis)
    if getattr(layer, "groups", 1) > 1:
        raise NotFollowedError(f"its channels are in {layer.groups} groups, and each must keep as many")
    transposed = type(layer).__name__.endswith("Transpose")
    book.use(layer, layer.kernel, _positions(call.inputs[0] if transposed else call.outputs[0], axis))
    book.cut(layer, layer.kernel, -1 if transposed else -2, given[0].labels, "reads")
    return _makes(book, layer, layer.kernel, -2 if transposed else -1, "filters", axis)


def _depthwise(book: Book, call: Call, given: list[Channels]) -> Channels:
    layer, axis = call.layer, _channel_axis(call)
    kernel = layer.kernel if hasattr(layer, "kernel") else layer.depthwise_kernel
    labels = _filter(book, call, given[0], kernel, axis)
    if layer.use_bias:
        book.cut(layer, layer.bias, 0, labels, "bias")
    _freeze_mixed(book, layer, labels)
    return Channels(axis, labels)


def _separable(book: Book, call: Call, given: list[Channels]) -> Channels:
    layer, axis = call.layer, _channel_axis(call)
    labels = _filter(book, call, given[0], layer.depthwise_kernel, axis)
    book.use(layer, layer.pointwise_kernel, _positions(call.outputs[0], axis))
    book.cut(layer, layer.pointwise_kernel, -2, labels, "reads")
    return _makes(book, layer, layer.pointwise_kernel, -1, "filters", axis)


def _filter(book: Book, call: Call, channels: Channels, kernel: Any, axis: int) -> Any:
    """A depthwise kernel [*window, in, multiplier] makes ``multiplier`` neighbours of each channel."""
    _on_axis(channels, axis)
    book.use(call.layer, kernel, _positions(call.outputs[0], axis))
    book.cut(call.layer, kernel, -2, channels.labels, "filters")
    return np.repeat(channels.labels, int(kernel.shape[-1]))


def _embedding(book: Book, call: Call, given: list[Channels]) -> Channels:
    book.freeze(given[0].labels, "they are looked up in a table")
    return _makes(book, call.layer, call.layer.embeddings, 1, "output_dim", len(call.outputs[0].shape) - 1)


def _batch_norm(book: Book, call: Call, given: list[Channels]) -> Channels:
    norm, rank = call.layer, len(call.inputs[0].shape)
    axes = [norm.axis] if isinstance(norm.axis, int) else list(norm.axis)
    if len(axes) > 1 or getattr(norm, "virtual_batch_size", None) or getattr(norm, "renorm", False):
        raise NotFollowedError("it is no plain batch norm of one axis")
    _on_axis(given[0], axes[0] % rank)
    for variable in (norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance):
        if variable is not None:
            role = "scales" if variable is norm.gamma else "bias" if variable is norm.beta else "follows"
            book.cut(norm, variable, 0, given[0].labels, role)  # type: ignore[arg-type]
    return given[0]


def _prelu(book: Book, call: Call, given: list[Channels]) -> Channels:
    alpha, axis = call.layer.alpha, given[0].axis - 1
    if int(alpha.shape[axis]) > 1:
        book.cut(call.layer, alpha, axis, given[0].labels, "follows")
    return given[0]


def _keep(book: Book, call: Call, given: list[Channels]) -> Channels:
    return given[0]


def _activation(book: Book, call: Call, given: list[Channels]) -> Channels:
    if _mixing(call.layer):
        raise NotFollowedError(f"its activation {_mixing(call.layer)} may mix the channels")
    return given[0]


def _rescaling(book: Book, call: Call, given: list[Channels]) -> Channels:
    if np.ndim(call.layer.scale) or np.ndim(call.layer.offset):
        raise NotFollowedError("it scales each channel by another constant")
    return given[0]


def _spatial(book: Book, call: Call, given: list[Channels]) -> Channels:
    _on_axis(given[0], _channel_axis(call))
    return given[0]


def _global_pooling(book: Book, call: Call, given: list[Channels]) -> Channels:
    _on_axis(given[0], _channel_axis(call))
    return given[0] if call.layer.keepdims else Channels(1, given[0].labels)


def _elementwise(book: Book, call: Call, given: list[Channels]) -> Channels:
    """Sums, products, maxima: channels at the same place live and die together; a single one is spread over all."""
    constants = [leaf for leaf in (*call.args, *call.kwargs.values()) if _is_array(leaf)]
    if constants:
        raise NotFollowedError("it takes a constant for each channel")
    if len({len(tensor.shape) for tensor in call.inputs}) > 1:
        raise NotFollowedError("its inputs differ in rank")
    widest = max(given, key=lambda channels: len(channels.labels))
    for channels in given:
        _on_axis(channels, widest.axis)
        if len(channels.labels) == 1 < len(widest.labels):
            book.freeze(channels.labels, "it is spread over all channels of another")
        else:
            book.tie(widest.labels, channels.labels)
    return widest


def _concatenate(book: Book, call: Call, given: list[Channels]) -> Channels:
    axis = int(call.layer.axis) % len(call.outputs[0].shape)
    for channels in given[1:]:
        _on_axis(channels, given[0].axis)
    if axis == given[0].axis:
        return Channels(axis, np.concatenate([channels.labels for channels in given]))
    for channels in given[1:]:
        book.tie(given[0].labels, channels.labels)
    return given[0]


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, list | tuple):
        return all(isinstance(item, int | float) for item in leaf)
    return bool(np.ndim(leaf.numpy() if hasattr(leaf, "numpy") else leaf if isinstance(leaf, np.ndarray) else 0))


def _makes(book: Book, layer: Layer, kernel: Any, axis: int, width: str, place: int) -> Channels:
    labels = book.made(layer, kernel, axis)
    if getattr(layer, "use_bias", False):
        book.cut(layer, layer.bias, 0, labels, "bias")
    book.widths.setdefault(id(layer), {})[width, None] = labels
    _freeze_mixed(book, layer, labels)
    return Channels(place, labels)


def _freeze_mixed(book: Book, layer: Layer, labels: Any) -> None:
    if _mixing(layer):
        book.freeze(labels, f"the activation {_mixing(layer)} of {book.names[id(layer)]!r} may mix them")


def _mixing(layer: Layer) -> str | None:
    """The name of an activation that is not known to take each number by itself."""
    activation = getattr(layer, "activation", None)
    name = getattr(activation, "__name__", type(activation).__name__)
    known = activation is None or (
        name in ELEMENTWISE
        and str(getattr(activation, "__module__", type(activation).__module__)).startswith((*LIBRARIES, "tensorflow."))
    )
    return None if known else name


def _channel_axis(call: Call) -> int:
    return 1 if getattr(call.layer, "data_format", None) == "channels_first" else len(call.inputs[0].shape) - 1


def _on_axis(channels: Channels, axis: int) -> None:
    if channels.axis != axis:
        raise NotFollowedError(f"what it takes for channels is axis {axis}, and they are axis {channels.axis}")


def _positions(tensor: Any, axis: int) -> list[int | None]:
    return [size for place, size in enumerate(tensor.shape) if place not in (0, axis)]


def _each(rule: Rule, *names: str, ranks: tuple[int, ...] = ()) -> dict[str, Rule]:
    return {name + (f"{rank}D" if rank else ""): rule for name in names for rank in ranks or (0,)}


_ALL = (1, 2, 3)
FUNCTIONS: dict[str, Rule] = {  # TensorFlow's functions on Keras 2 tensors
    **_each(_elementwise, "add", "sub", "subtract", "multiply", "mul", "maximum", "minimum"),
    **_each(_elementwise, "__add__", "__radd__", "__mul__", "__rmul__"),
    **_each(_keep, "relu", "relu6", "sigmoid", "tanh", "silu", "swish", "elu", "selu", "gelu", "identity"),
}
RULES: dict[str, Rule] = {
    **_each(_dense, "Dense"),
    **_each(_convolution, "Conv", ranks=_ALL),
    **{f"Conv{rank}DTranspose": _convolution for rank in _ALL},
    **_each(_depthwise, "DepthwiseConv", ranks=(1, 2)),
    **_each(_separable, "SeparableConv", ranks=(1, 2)),
    **_each(_embedding, "Embedding"),
    **_each(_batch_norm, "BatchNormalization", "SyncBatchNormalization"),
    **_each(_prelu, "PReLU"),
    **_each(_activation, "Activation"),
    **_each(_rescaling, "Rescaling"),
    **_each(_keep, "ReLU", "LeakyReLU", "ELU", "ThresholdedReLU", "ActivityRegularization", "Identity"),
    **_each(_keep, "Dropout", "AlphaDropout", "GaussianDropout", "GaussianNoise"),
    **_each(_spatial, "SpatialDropout", "MaxPooling", "AveragePooling", ranks=_ALL),
    **_each(_spatial, "UpSampling", "ZeroPadding", "Cropping", ranks=_ALL),
    **_each(_global_pooling, "GlobalAveragePooling", "GlobalMaxPooling", ranks=_ALL),
    **_each(flatten, "Flatten"),
    **_each(reshape, "Reshape"),
    **_each(permute, "Permute"),
    **_each(_elementwise, "Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"),  # layers and operations
    **_each(_keep, "Relu", "Relu6", "Sigmoid", "Silu", "Tanh", "HardSigmoid", "HardSilu", "HardTanh", "Elu", "Selu"),
    **_each(_keep, "Gelu", "Celu", "LeakyRelu", "Softplus", "Softsign", "LogSigmoid", "Square"),
    **_each(_concatenate, "Concatenate"),
}
