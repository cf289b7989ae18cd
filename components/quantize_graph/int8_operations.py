"""Replace layers by TensorFlow's 8-bit operations.

An 8-bit tensor has one scale and no zero point. If no value is negative, ``value = integer * limit / 255`` in
``quint8``, else ``value = integer * limit / 127`` in ``qint8``. Operations take limits as the scalars ``min``, ``max``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfopt.components.quantize_graph.layers import CONVOLUTION, PRODUCT, Layer, passes, producer
from tfopt.graph.law import attr
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import attributes
from tfopt.graph_def import FLOAT, QINT8, QUINT8

FUSED = {"Conv2D": "_FusedQuantizedConv2D", "DepthwiseConv2dNative": "_FusedQuantizedDepthwiseConv2D"}
FUSED |= {"MatMul": "_QuantizedMatMul"}
LEVELS, REDUCED_LEVELS = 127, 63  # of a weight, on each side of zero
RELU6 = 6.0
SMALLEST = 1e-30  # limit of a tensor that is always zero


class Int8(NamedTuple):
    """A tensor of 8-bit integers and the scalars of its limits."""

    tensor: Tensor
    low: Tensor
    high: Tensor
    dtype: int


class Int8Writer:
    """Adds 8-bit operations to a graph."""

    def __init__(
        self, graph: Graph, layers: Sequence[Layer], ranges: Mapping[Tensor, tuple[float, float]], *, reduced: bool
    ) -> None:
        """Prepare the replacement of layers in topological order; ``reduced`` uses 7 bits of the weights."""
        self._graph, self._ranges = graph, ranges
        self._waiting = {layer.end: layer for layer in layers}
        self._levels = REDUCED_LEVELS if reduced else LEVELS
        self._ends = {layer.end for layer in layers}
        self._tensors: dict[Tensor, Int8] = {}
        tensors = [tensor for layer in layers for tensor in (layer.source, layer.residual) if tensor]
        sources = [producer(graph, self._ends, tensor) for tensor in tensors]
        self._read_in_8_bits = {end for end in sources if end}

    def replace_layers(self) -> None:
        """Replace every layer; its last operation becomes one that returns its float32 values under the same name."""
        while self._waiting:
            self._replace_layer(next(iter(self._waiting)))
        for tensor, integers in self._tensors.items():
            self._read_shapes(tensor, integers)

    def _replace_layer(self, end: str) -> None:
        layer = self._waiting.pop(end)
        if layer.kernel.op == PRODUCT and layer.end not in self._read_in_8_bits and layer.activation != "Relu6":
            self._add_float_product(layer)
        else:
            self._add_layer(layer)

    def _add_layer(self, layer: Layer) -> None:
        """Add a layer that returns 8-bit values, and the conversion of these to float32."""
        unsigned = layer.activation is not None
        limit = self._limit(Tensor(layer.end))
        if layer.activation == "Relu6":
            limit = min(limit, RELU6)  # integers saturate, which is what ReLU6 does
        residual = None if layer.residual is None else self._in_8_bits(layer.residual)
        if residual is not None and residual.dtype == QINT8:
            limit *= 255 / 127  # the kernel adds to the signed integers in place, so only 127 levels can be used
        low, high = self._limits(layer.end, limit, signed=not unsigned)
        kind = QUINT8 if unsigned else QINT8
        fused = ["BiasAdd", *(["Sum"] if residual else []), *(["Relu"] if unsigned else []), "Requantize"]
        inputs, options = self._operation(layer, residual, (low, high), kind, fused)
        integers = self._add(f"{layer.end}/int8", FUSED[layer.kernel.op], inputs, layer.kernel, options)
        self._tensors[Tensor(layer.end)] = Int8(integers, low, high, kind)
        options = {"T": kind, "dtype": FLOAT, "mode": "SCALED", "narrow_range": kind == QINT8}
        self._replace(layer.end, "Dequantize", [integers, low, high], attributes("Dequantize", {}, options))

    def _add_float_product(self, layer: Layer) -> None:
        limits = self._limits(layer.end, self._limit(Tensor(layer.end)), signed=True)  # not used for float32
        fused = ["BiasAdd", *(["Relu"] if layer.activation else []), "Dequantize"]
        inputs, options = self._operation(layer, None, limits, FLOAT, fused)
        self._replace(layer.end, FUSED[PRODUCT], inputs, attributes(FUSED[PRODUCT], {}, options))

    def _operation(
        self, layer: Layer, residual: Int8 | None, limits: tuple[Tensor, Tensor], kind: int, fused: list[str]
    ) -> tuple[list[Tensor], dict[str, object]]:
        """Return the inputs and the attributes of an operation that returns values of a dtype between limits."""
        inputs, types, ranges = self._operands(layer, residual)
        options: dict[str, object] = {
            "Tdevice_inputs": types,
            "Thost_inputs": [FLOAT] * (len(ranges) + len(limits)),
            "Tdevice_outputs": [kind],
            "Thost_outputs": [] if kind == FLOAT else [FLOAT] * 2,
            "Tbias": FLOAT,
            "is_bias_const": True,
            "fused_ops": fused,
        }
        if layer.kernel.op == PRODUCT:
            options |= {"T1": types[0], "T2": types[1], "U": FLOAT, "Tout": kind, "is_weight_const": True}
            options |= {"transpose_a": False, "transpose_b": False}
            options |= {"input_quant_mode": "SCALED", "output_quant_mode": "SCALED"}
        else:
            options |= {"Tinput": types[0], "Tfilter": types[1], "out_type": kind, "is_filter_const": True}
            options |= {"Tsummand": residual.dtype if residual else kind}
        return [*inputs, *ranges, *limits], options

    def _operands(self, layer: Layer, residual: Int8 | None) -> tuple[list[Tensor], list[int], list[Tensor]]:
        """Return the operands of a layer with their dtypes, and the limits of input, weights and residual."""
        source = self._in_8_bits(layer.source)
        weights, limits = quantized_weights(layer.kernel, self._graph.array(layer.kernel.inputs[1]), self._levels)
        bias = np.zeros(limits.size, np.float32) if layer.bias is None else self._graph.array(layer.bias).reshape(-1)
        inputs = [
            source.tensor,
            self._constant(f"{layer.end}/weights", weights, QINT8),
            self._constant(f"{layer.end}/bias", bias),
        ]
        ranges = [source.low, source.high]
        ranges += [
            self._constant(f"{layer.end}/{side}_weights", sign * limits) for side, sign in (("min", -1), ("max", 1))
        ]
        types = [source.dtype, QINT8, FLOAT]
        if residual:
            inputs.append(residual.tensor)
            types.append(residual.dtype)
            ranges += [residual.low, residual.high]
        return inputs, types, ranges

    def _in_8_bits(self, tensor: Tensor) -> Int8:
        """Return a tensor in 8 bits: from the layer that computes it, or converted."""
        if tensor.node in self._waiting and not tensor.output:
            self._replace_layer(tensor.node)
        if tensor in self._tensors:
            return self._tensors[tensor]
        node = self._graph.nodes[tensor.node]
        if producer(self._graph, self._ends, tensor) and passes(self._graph, node):
            integers = self._passed_on(node, self._in_8_bits(node.inputs[0]))
        else:
            signed = self._ranges[tensor][0] < 0
            name = str(tensor).replace(":", "_")
            low, high = self._limits(name, self._limit(tensor), signed=signed)
            kind = QINT8 if signed else QUINT8
            options = {"mode": "SCALED", "round_mode": "HALF_TO_EVEN", "narrow_range": signed, "T": kind}
            options["axis"] = -1  # one scale for the tensor; Pack and Unpack have an axis of their own
            quantized = self._add(f"{name}/quantize", "QuantizeV2", [tensor, low, high], node, options)
            integers = Int8(quantized, low, high, kind)
        self._tensors[tensor] = integers
        return integers

    def _passed_on(self, node: Node, source: Int8) -> Int8:
        op, others = node.op, node.inputs[1:]
        if op == "MaxPool":
            op, others = "QuantizedMaxPool", [source.low, source.high]
        made = self._add(f"{node.name}/int8", op, [source.tensor, *others], node, {"T": source.dtype})
        return source._replace(tensor=made)

    def _read_shapes(self, tensor: Tensor, source: Int8) -> None:
        """Compute shapes from the 8-bit tensor, so that its float32 form is not computed only for its shape."""
        for reader in self._graph.readers(tensor.node):
            if reader.op == "Shape" and reader.inputs == [tensor] and not reader.controls:
                self._replace(
                    reader.name, "Shape", [source.tensor], attributes("Shape", reader.attr, {"T": source.dtype})
                )

    def _limit(self, tensor: Tensor) -> float:
        return max(*map(abs, self._ranges[tensor]), SMALLEST)

    def _limits(self, name: str, limit: float, *, signed: bool) -> tuple[Tensor, Tensor]:
        low, high = (np.asarray(value, np.float32) for value in (-limit if signed else 0.0, limit))
        return self._constant(f"{name}/min", low), self._constant(f"{name}/max", high)

    def _replace(self, name: str, op: str, inputs: list[Tensor], attributes: dict[str, object]) -> None:
        self._graph.replace(self._graph.nodes[name], op=op, inputs=inputs, controls=[], attr=attributes)

    def _add(self, name: str, op: str, inputs: list[Tensor], like: Node, changed: Mapping[str, object]) -> Tensor:
        made = attributes(op, like.attr, changed)
        made.pop("_class", None)
        fresh = self._graph.fresh(name)
        self._graph.insert(Node(fresh, op, inputs, [], made, like.device))
        return Tensor(fresh)

    def _constant(self, name: str, values: NDArray[Any], dtype: int | None = None) -> Tensor:
        """Add a constant; the dtype is one of 8 bits if it is not that of the values."""
        from tensorflow import make_tensor_proto
        from tensorflow.core.framework.attr_value_pb2 import AttrValue

        proto = make_tensor_proto(values)
        proto.dtype = dtype or proto.dtype
        fresh = self._graph.fresh(name)
        attr = {"value": AttrValue(tensor=proto), "dtype": AttrValue(type=proto.dtype)}
        self._graph.insert(Node(fresh, "Const", [], [], attr))
        return Tensor(fresh)


def quantized_weights(
    kernel: Node, weights: NDArray[np.float32], levels: int
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return the weights as integers, and the value that 127 stands for in each channel."""
    if kernel.op == PRODUCT and attr(kernel, "transpose_b"):
        weights = np.ascontiguousarray(weights.T)
    axes = (0, 1) if kernel.op not in (PRODUCT, CONVOLUTION) else tuple(range(weights.ndim - 1))
    largest = np.abs(weights).max(axis=axes, keepdims=True)
    scale = np.where(largest > 0, largest, 1).astype(np.float64) / levels
    integers = np.clip(np.rint(weights / scale), -levels, levels).astype(np.int8)
    return integers, (scale * LEVELS).astype(np.float32).reshape(-1)
