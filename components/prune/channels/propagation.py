"""Propagation of channels through layers: one rule per class of layer, the same for Keras 3 and Keras 2.

A rule gets the channels of a call's inputs, records cuts and ties in the graph, and returns the channels of the output.
Kernel layouts are TensorFlow's: conv2d [H, W, in, out], depthwise_conv2d [H, W, in, multiplier],
separable_conv2d (one of each), conv2d_transpose [H, W, out, in]. Those of recurrent layers are [in, gates * units] and
[units, gates * units], those of attention [in, heads, size] and [heads, size, out].

References:
    Which layers propagate channels follows Fang et al., "DepGraph: Towards Any Structural Pruning", CVPR 2023.
    Units of recurrent layers are the components of Wen et al., "Learning Intrinsic Sparse Structures within Long
    Short-Term Memory", ICLR 2018. Heads are removed as in Michel et al., "Are Sixteen Heads Really Better than One?",
    NeurIPS 2019.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.components.prune.channels.labels import ChannelGraph, Channels, Labels, UnsupportedLayerError
from tfopt.keras_models.layer_graph import LIBRARIES, Call, Layer

Rule = Callable[[ChannelGraph, Call, list[Channels]], Channels]

# Functions of one element. A softmax, for example, mixes the channels.
ELEMENTWISE = {
    *("linear", "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "swish", "sigmoid", "tanh"),
    *("hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "softplus", "softsign", "exponential", "mish", "relu_6"),
    *("log_sigmoid", "square", "squareplus", "sparse_plus", "hard_shrink", "soft_shrink", "tanh_shrink"),
    *("ReLU", "LeakyReLU", "ELU"),
}
NORMS = ("LayerNormalization", "GroupNormalization", "UnitNormalization", "RMSNormalization", "Softmax")
GATES = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}  # blocks of columns in the kernels of a recurrent layer
NORMALIZING = "it normalizes over all of its channels, so that removing one would change the others"
REVIVED = ".saved_model."  # in the module of a layer of Keras 2 whose class is not known where it is loaded


def rule_of(layer: Layer) -> Rule:
    """Return the rule of a layer or an operation; raise UnsupportedLayerError if there is none."""
    kind = type(layer).__name__
    symbol = str(getattr(layer, "symbol", "")).rpartition(".")[2] if kind == "TFOpLambda" else ""
    rule = RULES.get(kind) or FUNCTIONS.get(symbol)
    if rule is None or not type(layer).__module__.startswith(LIBRARIES):
        raise UnsupportedLayerError(NORMALIZING if kind in NORMS else f"layers of class {kind} are not followed")
    _check_plain(layer)
    if REVIVED in type(layer).__module__:
        raise UnsupportedLayerError("its function is only in the SavedModel, as that of a lambda is")
    return rule


def _check_plain(layer: Layer) -> None:
    if getattr(layer, "quantization_mode", None) or getattr(layer, "lora_enabled", False):
        raise UnsupportedLayerError("it is quantized or has LoRA weights")


def _dense(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Return the units of a kernel [in, units], which reads the channels of the last axis."""
    layer, rank = call.layer, len(call.inputs[0].shape)
    _check_axis(inputs[0], rank - 1)
    graph.count_use(layer, layer.kernel, call.outputs[0].shape[1:-1])
    graph.add_cut(layer, layer.kernel, 0, inputs[0].labels, "reads")
    return _makes(graph, layer, layer.kernel, 1, "units", rank - 1)


def _convolution(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Return the filters of a kernel [*window, in, out], or [*window, out, in] if transposed."""
    layer, axis = call.layer, _channel_axis(call)
    _check_axis(inputs[0], axis)
    if getattr(layer, "groups", 1) > 1:
        raise UnsupportedLayerError(f"its channels are in {layer.groups} groups of equal size")
    transposed = type(layer).__name__.endswith("Transpose")
    graph.count_use(layer, layer.kernel, _positions(call.inputs[0] if transposed else call.outputs[0], axis))
    graph.add_cut(layer, layer.kernel, -1 if transposed else -2, inputs[0].labels, "reads")
    return _makes(graph, layer, layer.kernel, -2 if transposed else -1, "filters", axis)


def _depthwise(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Return the channels of a kernel [*window, in, multiplier], which filters each of them separately."""
    layer, axis = call.layer, _channel_axis(call)
    kernel = layer.kernel if hasattr(layer, "kernel") else layer.depthwise_kernel
    labels = _filter(graph, call, inputs[0], kernel, axis)
    if layer.use_bias:
        graph.add_cut(layer, layer.bias, 0, labels, "bias")
    _freeze_mixed(graph, layer, labels)
    return Channels(axis, labels)


def _separable(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Return the filters of a pointwise kernel [1, 1, in * multiplier, out] after a depthwise one."""
    layer, axis = call.layer, _channel_axis(call)
    labels = _filter(graph, call, inputs[0], layer.depthwise_kernel, axis)
    graph.count_use(layer, layer.pointwise_kernel, _positions(call.outputs[0], axis))
    graph.add_cut(layer, layer.pointwise_kernel, -2, labels, "reads")
    return _makes(graph, layer, layer.pointwise_kernel, -1, "filters", axis)


def _filter(graph: ChannelGraph, call: Call, channels: Channels, kernel: Any, axis: int) -> Any:
    """Return the output labels of a depthwise kernel [*window, in, multiplier]: each label ``multiplier`` times."""
    _check_axis(channels, axis)
    graph.count_use(call.layer, kernel, _positions(call.outputs[0], axis))
    graph.add_cut(call.layer, kernel, -2, channels.labels, "filters")
    return np.repeat(channels.labels, int(kernel.shape[-1]))


def _embedding(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Return the columns of a table [rows, columns]."""
    graph.freeze(inputs[0].labels, "they are looked up in a table")
    return _makes(graph, call.layer, call.layer.embeddings, 1, "output_dim", len(call.outputs[0].shape) - 1)


def _recurrent(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Return the units of a recurrent layer."""
    _check_sequence(graph, call, inputs)
    return Channels(len(call.outputs[0].shape) - 1, _units(graph, call, call.layer, inputs[0]))


def _bidirectional(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Return the units of two recurrent layers. Those at the same index are tied: Keras expects equal numbers."""
    wrapper = call.layer
    for layer in (wrapper.forward_layer, wrapper.backward_layer):
        rule_of(layer)
    _check_sequence(graph, call, inputs)
    ahead, back = (_units(graph, call, layer, inputs[0]) for layer in (wrapper.forward_layer, wrapper.backward_layer))
    graph.tie(ahead, back)
    labels = np.concatenate([ahead, back]) if wrapper.merge_mode == "concat" else ahead
    return Channels(len(call.outputs[0].shape) - 1, labels)


def _check_sequence(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> None:
    """Raise UnsupportedLayerError if units have a state outside of the layer; freeze the channels of a mask."""
    if call.layer.stateful or getattr(call.layer, "time_major", False):
        raise UnsupportedLayerError("it is stateful, or time is the first axis of its inputs")
    if len(call.args) != 1 or isinstance(call.args[0], list | tuple) or call.kwargs.get("initial_state") is not None:
        raise UnsupportedLayerError("it is called with an initial state, or not with one positional argument")
    _check_axis(inputs[0], 2)
    for channels in inputs[1:]:
        graph.freeze(channels.labels, "they are a mask")


def _units(graph: ChannelGraph, call: Call, layer: Layer, channels: Channels) -> Labels:
    """Return the units of a recurrent layer, which is called or wrapped.

    A unit has a column for each of its gates in the kernel [in, gates * units], the recurrent kernel [units, gates *
    units] and the bias [..., gates * units]. The row of the recurrent kernel reads the output of the unit.
    """
    owner, cell, gates = call.layer, layer.cell, GATES[type(layer).__name__]
    graph.add_cut(owner, cell.kernel, 0, channels.labels, "reads")
    columns = graph.produce(owner, cell.kernel, 1, gates)
    units = columns[: len(columns) // gates]
    graph.add_cut(owner, cell.recurrent_kernel, 1, columns, "makes")
    graph.add_cut(owner, cell.recurrent_kernel, 0, units, "reads")
    if cell.use_bias:
        graph.add_cut(owner, cell.bias, -1, columns, "bias")
    for kernel in (cell.kernel, cell.recurrent_kernel):
        graph.count_use(owner, kernel, call.inputs[0].shape[1:2])
    graph.widths.setdefault(id(owner), {})["units", None] = units
    _freeze_mixed(graph, owner, units, cell)
    return units


def _attention(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Return the outputs of attention. Its heads, which only its own projections have, are channels too.

    The output of a head is linear in the kernel of the values, which makes the head. Those of queries and keys follow.
    """
    layer = call.layer
    tensors = dict(zip(("query", "value", "key", "attention_mask"), call.args, strict=False)) | call.kwargs
    if tensors.get("key") is None:
        tensors["key"] = tensors["value"]
    if len(layer._output_dense.kernel.shape) > 3 or len(getattr(tensors.get("attention_mask"), "shape", ())) > 3:
        raise UnsupportedLayerError("its output has several axes of channels, or its mask an axis of heads")
    for dense in (layer._query_dense, layer._key_dense, layer._value_dense, layer._output_dense):
        _check_plain(dense)
    read = {name: tensors[name] for name in ("query", "key", "value")}
    channels = dict(zip(map(id, call.inputs), inputs, strict=True))
    for tensor in read.values():
        _check_axis(channels[id(tensor)], len(tensor.shape) - 1)
    for tensor in call.inputs:
        if not any(tensor is other for other in read.values()):
            graph.freeze(channels[id(tensor)].labels, "they are a mask")
    heads = graph.produce(layer, layer._value_dense.kernel, 1)
    graph.sizes |= dict.fromkeys(heads.tolist(), int(layer._value_dense.kernel.shape[2]))
    widths = graph.widths.setdefault(id(layer), {})
    for name, tensor in read.items():
        _project(graph, layer, getattr(layer, f"_{name}_dense"), tensor, channels[id(tensor)], heads)
        if hasattr(layer, f"_{name}_shape"):  # Keras 2 builds the weights from it
            widths[f"{name}_shape", len(tensor.shape) - 1] = channels[id(tensor)].labels
    if getattr(layer, "_use_gate", False):
        _project(graph, layer, layer._gate_dense, read["query"], channels[id(read["query"])], heads)
    output = layer._output_dense
    graph.add_cut(layer, output.kernel, 0, heads, "reads")
    graph.count_use(layer, output.kernel, read["query"].shape[1:-1])
    labels = graph.produce(layer, output.kernel, 2)
    if output.bias is not None:
        graph.add_cut(layer, output.bias, 0, labels, "bias")
    widths |= {("num_heads", None): heads, ("output_shape", None): labels}
    return Channels(len(call.outputs[0].shape) - 1, labels)


def _project(graph: ChannelGraph, layer: Layer, dense: Layer, tensor: Any, channels: Channels, heads: Labels) -> None:
    """Record the kernel [in, heads, size] and the bias [heads, size] of a projection to heads."""
    makes = dense is layer._value_dense
    graph.add_cut(layer, dense.kernel, 0, channels.labels, "reads")
    graph.add_cut(layer, dense.kernel, 1, heads, "makes" if makes else "follows")
    if dense.bias is not None:
        graph.add_cut(layer, dense.bias, 0, heads, "bias" if makes else "follows")
    graph.count_use(layer, dense.kernel, tensor.shape[1:-1])


def _batch_norm(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Return the channels, to which gamma, beta, mean and variance [channels] belong."""
    norm, rank = call.layer, len(call.inputs[0].shape)
    axes = [norm.axis] if isinstance(norm.axis, int) else list(norm.axis)
    if len(axes) > 1 or getattr(norm, "virtual_batch_size", None) or getattr(norm, "renorm", False):
        raise UnsupportedLayerError("it is not a standard batch norm over one axis")
    _check_axis(inputs[0], axes[0] % rank)
    for variable in (norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance):
        if variable is not None:
            role = "scales" if variable is norm.gamma else "bias" if variable is norm.beta else "follows"
            graph.add_cut(norm, variable, 0, inputs[0].labels, role)  # type: ignore[arg-type]
    return inputs[0]


def _prelu(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Return the channels, to which alpha [..., channels] belongs unless it is shared."""
    alpha, axis = call.layer.alpha, inputs[0].axis - 1
    if int(alpha.shape[axis]) > 1:
        graph.add_cut(call.layer, alpha, axis, inputs[0].labels, "follows")
    return inputs[0]


def _pass_through(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    return inputs[0]


def _activation(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    if _mixing_activation(call.layer):
        raise UnsupportedLayerError(f"its activation {_mixing_activation(call.layer)} may mix the channels")
    return inputs[0]


def _comparison(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    graph.freeze(inputs[0].labels, "a mask depends on them")
    return _elementwise(graph, call, inputs)


def _repeat_vector(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    return Channels(2, inputs[0].labels)


def _rescaling(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    if np.ndim(call.layer.scale) or np.ndim(call.layer.offset):
        raise UnsupportedLayerError("it scales each channel by a different constant")
    return inputs[0]


def _spatial(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    _check_axis(inputs[0], _channel_axis(call))
    return inputs[0]


def _global_pooling(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    _check_axis(inputs[0], _channel_axis(call))
    return inputs[0] if call.layer.keepdims else Channels(1, inputs[0].labels)


def _elementwise(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Tie the channels at the same index of all inputs (sums, products, maxima); a single channel is broadcast."""
    constants = [leaf for leaf in (*call.args, *call.kwargs.values()) if _is_array(leaf)]
    if constants:
        raise UnsupportedLayerError("it has a constant for each channel")
    if len({len(tensor.shape) for tensor in call.inputs}) > 1:
        raise UnsupportedLayerError("its inputs differ in rank")
    widest = max(inputs, key=lambda channels: len(channels.labels))
    for channels in inputs:
        _check_axis(channels, widest.axis)
        if len(channels.labels) == 1 < len(widest.labels):
            graph.freeze(channels.labels, "it is broadcast over all channels of another input")
        else:
            graph.tie(widest.labels, channels.labels)
    return widest


def _concatenate(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Return the labels of all inputs one after another, or tie them if another axis is concatenated."""
    axis = int(call.layer.axis) % len(call.outputs[0].shape)
    for channels in inputs[1:]:
        _check_axis(channels, inputs[0].axis)
    if axis == inputs[0].axis:
        return Channels(axis, np.concatenate([channels.labels for channels in inputs]))
    for channels in inputs[1:]:
        graph.tie(inputs[0].labels, channels.labels)
    return inputs[0]


def _flatten(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Flatten H x W x C to one axis, on which each channel occurs once per position."""
    if getattr(call.layer, "data_format", None) == "channels_first" and len(call.inputs[0].shape) > 2:
        raise UnsupportedLayerError("it moves the channels to the end before it flattens")
    return Channels(1, _labels_by_element(call, inputs[0]).ravel())


def _reshape(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Find the output axis that carries the channels. If there is none, tie the labels along the last axis."""
    sizes = list(call.outputs[0].shape[1:])
    if None in sizes:
        raise UnsupportedLayerError("a size of its output is unknown")
    labels = _labels_by_element(call, inputs[0]).reshape(sizes)
    rows = [np.moveaxis(labels, axis, 0).reshape(size, -1) for axis, size in enumerate(sizes)]
    carrying = [axis for axis, row in enumerate(rows) if (row == row[:, :1]).all()]
    axis = carrying[-1] if carrying else len(sizes) - 1
    if not carrying:
        for column in rows[axis].T:
            graph.tie(rows[axis][:, 0], column)
    graph.widths.setdefault(id(call.layer), {})["target_shape", axis] = rows[axis][:, 0]
    return Channels(axis + 1, rows[axis][:, 0])


def _permute(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Return the channels on their new axis."""
    return Channels(list(call.layer.dims).index(inputs[0].axis) + 1, inputs[0].labels)


def _labels_by_element(call: Call, channels: Channels) -> Labels:
    """Return the label of every element of one record, in the shape of the input without the batch."""
    sizes = list(call.inputs[0].shape[1:])
    if None in sizes:
        raise UnsupportedLayerError("a size of its input is unknown")
    shape = [1] * len(sizes)
    shape[channels.axis - 1] = -1
    return np.broadcast_to(channels.labels.reshape(shape), sizes)


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, list | tuple):
        return all(isinstance(item, int | float) for item in leaf)
    return bool(np.ndim(leaf.numpy() if hasattr(leaf, "numpy") else leaf if isinstance(leaf, np.ndarray) else 0))


def _makes(graph: ChannelGraph, layer: Layer, kernel: Any, axis: int, width: str, output_axis: int) -> Channels:
    """Return the channels that a kernel makes along an axis; ``width`` is their number in the configuration."""
    labels = graph.produce(layer, kernel, axis)
    if getattr(layer, "use_bias", False):
        graph.add_cut(layer, layer.bias, 0, labels, "bias")
    graph.widths.setdefault(id(layer), {})[width, None] = labels
    _freeze_mixed(graph, layer, labels)
    return Channels(output_axis, labels)


def _freeze_mixed(graph: ChannelGraph, layer: Layer, labels: Any, cell: Layer | None = None) -> None:
    """Freeze the labels if an activation of a layer, or of its cell, is not known to be elementwise."""
    for attribute in ("activation", "recurrent_activation"):
        if name := _mixing_activation(cell or layer, attribute):
            graph.freeze(labels, f"the activation {name} of {graph.names[id(layer)]!r} may mix them")


def _mixing_activation(layer: Layer, attribute: str = "activation") -> str | None:
    """Return the name of the activation, unless it is known to be elementwise."""
    activation = getattr(layer, attribute, None)
    name = getattr(activation, "__name__", type(activation).__name__)
    is_elementwise = activation is None or (
        name in ELEMENTWISE
        and str(getattr(activation, "__module__", type(activation).__module__)).startswith((*LIBRARIES, "tensorflow."))
    )
    return None if is_elementwise else name


def _channel_axis(call: Call) -> int:
    return 1 if getattr(call.layer, "data_format", None) == "channels_first" else len(call.inputs[0].shape) - 1


def _check_axis(channels: Channels, axis: int) -> None:
    if channels.axis != axis:
        raise UnsupportedLayerError(f"its channel axis is {axis}, but the channels are on axis {channels.axis}")


def _positions(tensor: Any, axis: int) -> list[int | None]:
    return [size for index, size in enumerate(tensor.shape) if index not in (0, axis)]


def _each(rule: Rule, *names: str, ranks: tuple[int, ...] = ()) -> dict[str, Rule]:
    return {name + (f"{rank}D" if rank else ""): rule for name in names for rank in ranks or (0,)}


_ALL = (1, 2, 3)
FUNCTIONS: dict[str, Rule] = {  # TensorFlow's functions on Keras 2 tensors
    **_each(_elementwise, "add", "sub", "subtract", "multiply", "mul", "maximum", "minimum"),
    **_each(_elementwise, "__add__", "__radd__", "__mul__", "__rmul__"),
    **_each(_pass_through, "relu", "relu6", "sigmoid", "tanh", "silu", "swish", "elu", "selu", "gelu", "identity"),
}
RULES: dict[str, Rule] = {
    **_each(_dense, "Dense"),
    **_each(_convolution, "Conv", ranks=_ALL),
    **{f"Conv{rank}DTranspose": _convolution for rank in _ALL},
    **_each(_depthwise, "DepthwiseConv", ranks=(1, 2)),
    **_each(_separable, "SeparableConv", ranks=(1, 2)),
    **_each(_embedding, "Embedding"),
    **_each(_recurrent, *GATES),
    **_each(_bidirectional, "Bidirectional"),
    **_each(_attention, "MultiHeadAttention"),
    **_each(_repeat_vector, "RepeatVector"),
    **_each(_batch_norm, "BatchNormalization", "SyncBatchNormalization"),
    **_each(_prelu, "PReLU"),
    **_each(_activation, "Activation"),
    **_each(_rescaling, "Rescaling"),
    **_each(_pass_through, "ReLU", "LeakyReLU", "ELU", "ThresholdedReLU", "ActivityRegularization", "Identity"),
    **_each(_pass_through, "Dropout", "AlphaDropout", "GaussianDropout", "GaussianNoise"),
    **_each(_spatial, "SpatialDropout", "MaxPooling", "AveragePooling", ranks=_ALL),
    **_each(_spatial, "UpSampling", "ZeroPadding", "Cropping", ranks=_ALL),
    **_each(_global_pooling, "GlobalAveragePooling", "GlobalMaxPooling", ranks=_ALL),
    **_each(_flatten, "Flatten"),
    **_each(_reshape, "Reshape"),
    **_each(_permute, "Permute"),
    **_each(_elementwise, "Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"),  # layers and operations
    **_each(_pass_through, "Relu", "Relu6", "Sigmoid", "Silu", "Tanh", "HardSigmoid", "HardSilu", "HardTanh"),
    **_each(_pass_through, "Elu", "Selu", "Gelu", "Celu", "LeakyRelu", "Softplus", "Softsign", "LogSigmoid", "Square"),
    **_each(_concatenate, "Concatenate"),
    **_each(_comparison, "NotEqual"),  # the mask of an Embedding in Keras 3
}
