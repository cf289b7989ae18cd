"""Round the kernels of a float LiteRT file on calibration records; see `tfopt.conversion.weight_rounding`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from tensorflow.lite.tools.flatbuffer_utils import convert_object_to_bytearray

from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.components.export_tflite import flatbuffer
from tfopt.conversion.weight_rounding import JUDGED, Moments, round_weights
from tfopt.data.batches import Batch
from tfopt.value_types import JsonObject

Floats = NDArray[np.float32]

LEVELS = 7  # on either side of zero
STAGES = 8  # passes over the records; in each of them a part of the kernels is rounded
MOST_INPUTS = 4608  # of a kernel, as of 3 x 3 x 512: the time grows with their third power
FEWEST = 12  # records, of which the least error is chosen on four
ROWS = 256  # inputs of a kernel in each record, of which neighbors are similar


@dataclass
class _Kernel:
    """A convolution or dense layer with a kernel ``[outputs, ..., inputs]`` of its own."""

    op: Any
    kind: str
    name: str  # of its output
    buffer: int
    weights: Floats
    fitted: Moments = field(default_factory=Moments)
    judged: Moments = field(default_factory=Moments)

    @property
    def matrix(self) -> Floats:
        """Return the kernel as ``[inputs, outputs]``."""
        return self.weights.reshape(len(self.weights), -1).T

    def rows(self, tensor: Floats) -> Floats:
        """Return some of the inputs from which outputs are computed, always the same ones for a shape."""
        if self.kind == "FULLY_CONNECTED":
            rows = tensor.reshape(-1, self.weights.shape[1])
            return rows[_spread(len(rows))]
        options, (height, width) = self.op.builtinOptions, self.weights.shape[1:3]
        strides = options.strideH, options.strideW
        dilations = options.dilationHFactor, options.dilationWFactor
        spans = (height - 1) * dilations[0] + 1, (width - 1) * dilations[1] + 1
        if options.padding == schema.Padding.SAME:
            sizes = zip(tensor.shape[1:3], spans, strides, strict=True)
            lengths = [max((-(-size // stride) - 1) * stride + span - size, 0) for size, span, stride in sizes]
            tensor = np.pad(tensor, ((0, 0), *((length // 2, length - length // 2) for length in lengths), (0, 0)))
        windows = sliding_window_view(tensor, spans, axis=(1, 2))[:, :: strides[0], :: strides[1]]
        windows = windows[..., :: dilations[0], :: dilations[1]]
        places = np.unravel_index(_spread(int(np.prod(windows.shape[:3]))), windows.shape[:3])
        return windows[places].transpose(0, 2, 3, 1).reshape(len(places[0]), -1)


def round_kernels(content: bytes, feed: Sequence[Batch]) -> tuple[dict[str, Floats], JsonObject]:
    """Return kernels on 4-bit levels by the name of their layer's output, and metadata for the model card.

    Kernels stay away if rounding does not lower the error of the layer on the records that it did not see.
    """
    stays: Counter[str] = Counter()
    kernels = list(_find(schema.ModelT.InitFromPackedBuf(content, 0), stays))
    if len(feed) < FEWEST:
        return {}, {"stays": {f"fewer than {FEWEST} records": len(kernels)}}
    rounded: dict[str, Floats] = {}
    layers: dict[str, float] = {}
    exact = _Tensors(content)
    for part in np.array_split(np.arange(len(kernels)), min(STAGES, len(kernels)) or 1):
        stage = [kernels[index] for index in part]
        _measure(stage, exact, _Tensors(replace_kernels(content, rounded)), feed)
        for kernel in stage:
            if not (np.isfinite(kernel.fitted.inputs).all() and np.isfinite(kernel.judged.inputs).all()):
                stays["inputs that are not finite"] += 1
                continue
            result = round_weights(kernel.matrix, kernel.fitted, kernel.judged, LEVELS)
            kernel.fitted, kernel.judged = Moments(), Moments()  # their memory
            if not result.channels:
                stays["no less error on other records"] += 1
                continue
            rounded[kernel.name] = result.weights.T.reshape(kernel.weights.shape)
            layers[kernel.name] = float(np.sqrt(max(result.removed, 0)))
    return rounded, {"removed_noise": layers, "stays": dict(stays.most_common())}


def replace_kernels(content: bytes, kernels: Mapping[str, Floats]) -> bytes:
    """Return a file with other kernels for layers, each by the name of its output."""
    if not kernels:
        return content
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    for kernel in _find(file, Counter()):
        if kernel.name in kernels:
            file.buffers[kernel.buffer].data = np.frombuffer(kernels[kernel.name].tobytes(), np.uint8)
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


def _measure(kernels: Sequence[_Kernel], exact: _Tensors, rounded: _Tensors, feed: Sequence[Batch]) -> None:
    """Add the moments of all records."""
    for number, batch in enumerate(feed):
        exact.compute(**batch)
        rounded.compute(**batch)
        for kernel in kernels:
            inputs, floats = (kernel.rows(file.read(kernel.op.inputs[0])) for file in (rounded, exact))
            moments = kernel.fitted if number % JUDGED else kernel.judged
            moments.add(inputs, floats @ kernel.matrix)
    for kernel in kernels:
        kernel.fitted.finish()
        kernel.judged.finish()


def _find(file: Any, stays: Counter[str]) -> Iterator[_Kernel]:
    """Yield the kernels that can be rounded, and count why others stay."""
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
        if data is None or tensor.type != schema.TensorType.FLOAT32:
            stays["its kernel is no stored float32"] += 1
        elif read[tensor.buffer] > 1:
            stays["several layers read its kernel"] += 1
        elif np.prod(tensor.shape[1:]) > MOST_INPUTS:
            stays[f"more than {MOST_INPUTS} inputs"] += 1
        elif kind == "CONV_2D" and source.shape[-1] != tensor.shape[-1]:
            stays["its inputs are in groups"] += 1
        else:
            weights = np.asarray(data, np.uint8).view(np.float32).reshape(tensor.shape)
            yield _Kernel(op, kind, graph.tensors[op.outputs[0]].name.decode(), tensor.buffer, weights)


def _spread(count: int) -> NDArray[np.intp]:
    """Return the positions of at most `ROWS` of so many elements, drawn evenly."""
    if count <= ROWS:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, ROWS, replace=False))
