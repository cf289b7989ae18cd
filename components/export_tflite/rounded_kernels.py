"""Round the kernels of a float LiteRT file on calibration records; see `tfopt.conversion.rounded_weights`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.lib.stride_tricks import sliding_window_view
from tensorflow.lite.tools.flatbuffer_utils import convert_object_to_bytearray

from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.components.export_tflite import flatbuffer
from tfopt.conversion.rounded_weights import Floats, Grid, draw_rows, round_layers
from tfopt.data.batches import Batch
from tfopt.value_types import JsonObject

LEVELS = 7  # on either side of zero
# ai-edge-quantizer's, from the largest weight of a channel.
GRID = Grid(-LEVELS, LEVELS, lambda matrix: np.abs(matrix).max(axis=0) / np.float32(LEVELS), is_found_again=True)


def round_kernels(content: bytes, feed: Sequence[Batch]) -> tuple[dict[str, Floats], JsonObject]:
    """Return kernels on 4-bit levels by the name of their layer's output, and metadata for the model card."""
    kernels = {kernel.name: kernel for kernel in _find(schema.ModelT.InitFromPackedBuf(content, 0))}
    exact = _Tensors(content)

    def read(names: Sequence[str], weights: Mapping[str, Floats]) -> Iterator[dict[str, tuple[Floats, Floats]]]:
        file = _Tensors(replace_kernels(content, {name: kernels[name].reshape(weights[name]) for name in weights}))
        for batch in feed:
            file.compute(**batch)
            exact.compute(**batch)
            yield {name: (kernels[name].read_rows(file), kernels[name].read_rows(exact)) for name in names}

    matrices = {name: kernel.matrix for name, kernel in kernels.items()}
    rounded, facts = round_layers(matrices, GRID, len(feed), read)
    return {name: kernels[name].reshape(result.weights) for name, result in rounded.items()}, facts


def replace_kernels(content: bytes, weights: Mapping[str, Floats]) -> bytes:
    """Return a file with other kernels for layers, each by the name of its output."""
    if not weights:
        return content
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    for kernel in _find(file):
        if kernel.name in weights:
            file.buffers[kernel.buffer].data = np.frombuffer(weights[kernel.name].tobytes(), np.uint8)
    return bytes(convert_object_to_bytearray(file))


class _Tensors:
    """The values of all tensors of a file."""

    def __init__(self, content: bytes) -> None:
        self._interpreter = Interpreter(
            model_content=content,
            num_threads=1,
            # Of the ops that a delegate computes, only the outputs of the last one would be readable.
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            experimental_preserve_all_tensors=True,
        )
        self.compute = self._interpreter.get_signature_runner(SERVING_DEFAULT)

    def read(self, index: int) -> Floats:
        return np.asarray(self._interpreter.get_tensor(index), np.float32)


@dataclass(frozen=True)
class _Kernel:
    """The kernel ``[outputs, ..., inputs]`` of a convolution or dense layer, which no other op reads."""

    op: Any
    is_dense: bool
    name: str  # of its output
    buffer: int
    weights: Floats

    @property
    def matrix(self) -> Floats:
        """Return the kernel as ``[inputs, outputs]``."""
        return self.weights.reshape(len(self.weights), -1).T

    def reshape(self, matrix: Floats) -> Floats:
        """Return such a matrix as a kernel."""
        return matrix.T.reshape(self.weights.shape)

    def read_rows(self, tensors: _Tensors) -> Floats:
        """Return some of the vectors that are multiplied by the matrix."""
        values = tensors.read(self.op.inputs[0])
        if self.is_dense:
            rows = values.reshape(-1, self.weights.shape[1])
            return rows[draw_rows(len(rows))]
        options = self.op.builtinOptions
        strides, dilations = (
            (options.strideH, options.strideW),
            (options.dilationHFactor, options.dilationWFactor),
        )
        spans = [(size - 1) * step + 1 for size, step in zip(self.weights.shape[1:3], dilations, strict=True)]
        if options.padding == schema.Padding.SAME:
            sizes = zip(values.shape[1:3], spans, strides, strict=True)
            added = [max((-(-size // stride) - 1) * stride + span - size, 0) for size, span, stride in sizes]
            values = np.pad(values, [(0, 0), *((count // 2, count - count // 2) for count in added), (0, 0)])
        windows = sliding_window_view(values, spans, axis=(1, 2))[:, :: strides[0], :: strides[1]]
        windows = windows[..., :: dilations[0], :: dilations[1]]
        drawn = draw_rows(int(np.prod(windows.shape[:3])))
        chosen = windows[np.unravel_index(drawn, windows.shape[:3])]  # [rows, inputs, height, width]
        return chosen.transpose(0, 2, 3, 1).reshape(len(drawn), -1)


def _find(file: Any) -> Iterator[_Kernel]:
    """Yield the kernels that can be rounded."""
    graph = file.subgraphs[0]
    codes = [flatbuffer.op_name(code) for code in file.operatorCodes]
    operators = [(part, op) for part in file.subgraphs for op in part.operators or [] if op.inputs is not None]
    read = Counter(part.tensors[index].buffer for part, op in operators for index in op.inputs if index >= 0)
    for op in graph.operators:
        kind = codes[op.opcodeIndex]
        if kind not in ("CONV_2D", "FULLY_CONNECTED"):
            continue
        tensor, source = graph.tensors[op.inputs[1]], graph.tensors[op.inputs[0]]
        data = file.buffers[tensor.buffer].data
        in_groups = kind == "CONV_2D" and source.shape[-1] != tensor.shape[-1]
        if data is None or tensor.type != schema.TensorType.FLOAT32 or in_groups or read[tensor.buffer] > 1:
            continue
        weights = np.asarray(data, np.uint8).view(np.float32).reshape(tensor.shape)
        yield _Kernel(op, kind != "CONV_2D", graph.tensors[op.outputs[0]].name.decode(), tensor.buffer, weights)
