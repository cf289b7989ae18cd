"""int8 form of an ONNX file: by ONNX Runtime's static quantizer, or with the ranges of quantization-aware training."""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
import onnx
import onnx.version_converter
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.calibrate import TensorsData, create_calibrator, save_tensors_data
from onnxruntime.quantization.quant_utils import QUANT_INPUT_SUFFIX
from onnxruntime.quantization.shape_inference import quant_pre_process

from tfopt.conversion.activation_ranges import AUTO, Histogram, Method, choose_method, select_ranges
from tfopt.conversion.calibration import compare_halves
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.mixes.fastest_mix import call_seconds
from tfopt.conversion.mixes.mixed_precision import ERROR_RECORDS, Layer, MixedModel, compare_tensors
from tfopt.conversion.mixes.sensitivity_table import Kernel, describe_kernel
from tfopt.conversion.onnx import block_weights as onnx_block_weights
from tfopt.conversion.onnx import float_part as onnx_float_part
from tfopt.conversion.onnx.quantizer_names import shorten_names
from tfopt.conversion.rounded_weights import Rounded
from tfopt.data.batches import Batch
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.runtimes.onnx import decode_text

# Options for TensorRT: activations in int8 with zero point 0, and biases in float.
SYMMETRIC = {
    "activation_type": QuantType.QInt8,
    "extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False},
}
# They have no precision of their own: 8 bits stay 8 bits, and activations become part of the ranges.
MOVES = {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split", "Gather", "Expand", "Identity", "Tile"}
MOVES |= {"Relu", "Clip"}
BLOCK_BITS = {"int4": 4, "dynamic": 8}  # kinds of weights with a scale for each block
LAST = {"Sigmoid", "Softmax", "Tanh", "Softplus", "Add", "Sub"}  # activations of outputs, and biases
LEVELS, FOUR_BIT_LEVELS = 127, 7  # on either side of zero
INT4_OPSET = 21  # the first one in which a Cast reads 4 bits
EXACT = 1e-3  # of a scale: rounding errors of two float multiplications are smaller
AXES = {"Conv": 0, "ConvTranspose": 1, "MatMul": 1, "Gemm": 1}  # of the output channels of a kernel

Floats = NDArray[np.float32]


class QuantizableFile(MixedModel[onnx.ModelProto]):
    """A float32 file with calibrated ranges, whose nodes can be quantized with a kind for each.

    Kinds are int8, with weights and activations in 8 bits (static ranges), and float32; for products with stored
    matrices also int4 and dynamic: weights of 4 or 8 bits with a scale for each block, in ONNX Runtime's MatMulNBits.
    """

    def __init__(self, source: Path, folder: Path, feed: list[Batch], *, lowest: str = "int8", **options: Any) -> None:
        """Prepare a file in a folder for temporary files; the ``options`` are arguments of the quantizer.

        Raises:
            ComponentError: If the file cannot be prepared, or an output, or what a layer reads, is NaN or infinite.
        """
        self._lowest, self._options, self._folder = lowest, options, folder
        self.prepared, self._ranges = folder / "prepared.onnx", folder / "ranges.json"  # ranges of all forms
        self._feed = [
            {name: decode_text(name, array) if array.dtype.kind in "OS" else array for name, array in batch.items()}
            for batch in feed
        ]
        with readable_errors():
            quant_pre_process(source, self.prepared, skip_symbolic_shape=True)
            self._float = onnx.load(self.prepared)
            self._floating = onnx_float_part.find(self._float)
            onnx.save(self._float, self.prepared)  # with the names of its nodes
            self._histograms, infinite = _histograms(self.prepared, self._feed)
            for name in onnx_float_part.read_by_layers(self._float, infinite):
                raise infinite[name]
        ranges = select_ranges(self._histograms, "min_max")
        self._floating = onnx_float_part.add_few_levels(self._floating, self._float, ranges, infinite)
        self._excluded = [*self._floating.operations, *find_read_for_shapes(self._float.graph)]
        floating = [node for node in self._float.graph.node if node.name in self._floating.operations]
        for name in {name for node in floating for name in (*node.input, *node.output)} & self._histograms.keys():
            self._histograms[name].is_exact = True
        self.facts: ConversionFacts = {"stability": compare_halves(self._histograms.values()), **self._floating.facts()}
        self._producers = {name: node for node in self._float.graph.node for name in node.output}
        self._matrices = onnx_block_weights.find_matrices(self._float.graph, self._floating.operations)
        self._store_ranges("min_max")

    def choose_ranges(
        self, method: Method | Literal["auto"], measure_error: Callable[[onnx.ModelProto], float]
    ) -> ConversionFacts:
        """Select the ranges of all forms by a method; return metadata for the model card.

        ``measure_error`` returns the error of a form on records that it was not calibrated on: of that in int8.
        """

        def measure(method: Method) -> float:
            self._store_ranges(method)
            return measure_error(self.quantize(dict.fromkeys(self._matrices, "int8")))

        _, chosen, facts = choose_method(method, lambda method: method, measure, AUTO)
        self._store_ranges(chosen)
        return facts

    def _store_ranges(self, method: Method) -> None:
        symmetric = self._options.get("extra_options", {}).get("ActivationSymmetric", False)
        ranges = select_ranges(self._histograms, method, symmetric=symmetric)
        stored = {name: tuple(np.array(end, np.float32) for end in ends) for name, ends in ranges.items()}
        save_tensors_data(TensorsData(CalibrationMethod.MinMax, stored), self._ranges)

    @cached_property
    def layers(self) -> list[Layer]:
        """Return the nodes that the quantizer quantizes, without those that only move values."""
        graph = self.quantize({}, "int8").graph
        kernels = _describe_kernels(self._float.graph)
        origins: dict[str, str] = {}  # the tensor that was quantized; empty for constants
        layers = []
        for node in graph.node:
            output = node.output[0].removesuffix(QUANT_INPUT_SUFFIX)
            if node.op_type == "QuantizeLinear":
                origins[output] = node.input[0].removesuffix(QUANT_INPUT_SUFFIX)
            elif node.op_type == "DequantizeLinear":
                origins[output] = origins.get(node.input[0], "")
            elif node.op_type not in MOVES and origins.keys() & set(node.input):
                kinds = (
                    ("int4", "int8", "dynamic") if self._lowest == "int4" and output in self._matrices else ("int8",)
                )
                inputs = [origins.get(name, name) for name in node.input]
                inputs = [moves[-1].input[0] if (moves := self._moves(name)) else name for name in inputs]
                layers.append(Layer(inputs, output, (*kinds, "float32"), kernel=kernels.get(output)))
        return layers

    @cached_property
    def _rounded(self) -> Mapping[str, Rounded]:
        """Return the matrices in 4 bits, rounded on the calibration records."""
        with readable_errors():
            rounded, self.facts["rounding"] = onnx_block_weights.round_matrices(self._float, self._matrices, self._feed)
        return rounded

    def _moves(self, name: str) -> list[onnx.NodeProto]:
        """Return the nodes that only move the values of a tensor after they are computed, last first."""
        nodes = []
        while (node := self._producers.get(name)) is not None and node.op_type in MOVES:
            nodes.append(node)
            name = node.input[0]
        return nodes

    def quantize(self, kinds: Mapping[str, str] | None = None, lowest: str | None = None) -> onnx.ModelProto:
        """Return the file with these kinds of nodes; the others are int8, matrices have the kind ``lowest``.

        Raises:
            ComponentError: If the quantizer fails.
        """
        chosen = {**dict.fromkeys(self._matrices, lowest or self._lowest), **(kinds or {})}
        raised = {output: kind for output, kind in chosen.items() if kind != "int8"}
        nodes = [node for node in self._float.graph.node if node.output[0] in raised]
        moves = [move for node in nodes for name in node.input for move in self._moves(name)]
        names = [node.name for node in (*nodes, *moves)]
        target = self._folder / "quantized.onnx"
        # The quantizer removes activations whose range does their work; to rank layers, tensors of both files are
        # compared, and by then no node in float reads what was computed without its activation (MOVES).
        options = {"QDQKeepRemovableActivations": bool(lowest), **self._options.get("extra_options", {})}
        with readable_errors():
            quantize_static(
                self.prepared,
                target,
                None,
                quant_format=QuantFormat.QDQ,
                weight_type=QuantType.QInt8,
                nodes_to_exclude=[*self._excluded, *names],
                calibration_cache_path=self._ranges,
                **{"activation_type": QuantType.QUInt8, **self._options, "extra_options": options},
            )
        model = onnx.load(target)
        _leave_outputs(model.graph)
        leave_inputs_of_bodies(model.graph)
        onnx_float_part.restore_inputs(model, {*self._floating.operations, *names}, self._float)
        block_bits = {name: bits for name, kind in raised.items() if (bits := BLOCK_BITS.get(kind))}
        onnx_block_weights.store(model, block_bits, self._rounded if "int4" in raised.values() else {})
        return model

    def measure_noise(self, file: onnx.ModelProto) -> dict[str, float]:
        """Return the noise-to-signal ratio of each tensor before it is quantized itself."""
        return compare_tensors(zip(self._run(self._float), self._run(file), strict=True))

    def count_bytes(self, file: onnx.ModelProto) -> int:
        """Return the size of a file as it is written."""
        written = onnx.ModelProto()
        written.CopyFrom(file)
        shorten_names(written)
        return int(written.ByteSize())

    def measure_seconds(self, files: Sequence[onnx.ModelProto]) -> list[float]:
        """Return the time of a call of each file with one record and one thread, measured in turns."""
        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        sessions = []
        for file in files:
            onnx.save(file, self._folder / "timed.onnx")
            source = str(self._folder / "timed.onnx")
            sessions.append(InferenceSession(source, options, providers=["CPUExecutionProvider"]))
        return call_seconds([partial(session.run, None, self._feed[0]) for session in sessions])

    def _run(self, model: onnx.ModelProto) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the results of all layers for each of the first records."""
        computed = {name for node in model.graph.node for name in node.output}
        tensors = {name for layer in self.layers for name in (layer.output, *layer.inputs)}
        names = {name: f"{name}{QUANT_INPUT_SUFFIX}" for name in tensors}
        names = {name: renamed if renamed in computed else name for name, renamed in names.items()}
        names = {name: tensor for name, tensor in names.items() if tensor in computed}
        augmented = onnx.ModelProto()
        augmented.CopyFrom(model)
        del augmented.graph.output[:]
        augmented.graph.output.extend(onnx.ValueInfoProto(name=tensor) for tensor in names.values())
        onnx.save(augmented, self._folder / "augmented.onnx")
        options = SessionOptions()
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
        session = InferenceSession(str(self._folder / "augmented.onnx"), options, providers=["CPUExecutionProvider"])
        for batch in self._feed[:ERROR_RECORDS]:
            yield dict(zip(names, session.run(list(names.values()), batch), strict=True))


@contextlib.contextmanager
def readable_errors() -> Iterator[None]:
    """Turn exceptions of ONNX Runtime's quantizers into ComponentErrors, and log only errors meanwhile."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # the quantizer recommends the preprocessing that was just done
    try:
        yield
    except ComponentError:
        raise
    except Exception as error:
        received = f"the quantizer failed: {first_line(error)[:300]}"
        raise ComponentError(received, "a graph that ONNX Runtime can quantize", "choose float32 or float16") from error
    finally:
        root.setLevel(level)


def _leave_outputs(graph: onnx.GraphProto) -> None:
    """Leave the outputs of the model in float if they are activations or products, whose kernels can return floats.

    The range of an output, as of logits or rare probabilities, cuts off what exceeds it in records that were not
    calibrated on. So does the range of what the last activation or bias reads.
    """
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {
        node.output[0] for node in graph.node if node.op_type == "DequantizeLinear" and node.input[0] in constants
    }
    producers = {name: node for node in graph.node for name in node.output}
    read = Counter(name for node in graph.node for name in _names_read(node))
    read.update(output.name for output in graph.output)
    names = [output.name for output in graph.output]
    for name in names:
        dequantizer = producers.get(name)
        if dequantizer is not None and dequantizer.op_type == "Softmax":  # it was left in float itself
            names.append(dequantizer.input[0])
        if dequantizer is None or dequantizer.op_type != "DequantizeLinear" or read[name] > 1:
            continue
        quantizer = producers.get(dequantizer.input[0])
        last = producers.get(quantizer.input[0]) if quantizer is not None else None
        if quantizer is None or last is None or last.op_type not in {"MatMul", "Gemm", *LAST}:  # others need 8 bits
            continue
        computed = [tensor for tensor in last.input if tensor not in constants]
        if last.op_type in LAST and len(computed) > 1:
            continue
        if read[quantizer.output[0]] == read[last.output[0]] == 1:
            graph.node.remove(dequantizer)
            graph.node.remove(quantizer)
            last.output[0] = name
            names += computed if last.op_type in LAST else []


def leave_inputs_of_bodies(graph: onnx.GraphProto) -> None:
    """Leave what only moves between a quantized tensor and the body of a loop or branch in float.

    ONNX Runtime propagates the DequantizeLinear to the readers of such a tensor, and aborts at one that is in a body.
    """
    producers = {name: node for node in graph.node for name in node.output}
    for name in {inner for node in graph.node for inner in _names_read(node) if inner not in node.input}:
        moved, node = None, producers.get(name)
        while node is not None and node.op_type in MOVES:
            moved, node = node, producers.get(node.input[0])
        if moved is None or node is None or node.op_type != "DequantizeLinear":
            continue
        if (quantizer := producers.get(node.input[0])) is not None:
            moved.input[0] = quantizer.input[0]


def _describe_kernels(graph: onnx.GraphProto) -> dict[str, Kernel]:
    """Return the stored kernels of convolutions and products, by the node's output."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    nodes = [node for node in graph.node if node.op_type in AXES and node.input[1] in stored]
    return {node.output[0]: describe_kernel(numpy_helper.to_array(stored[node.input[1]])) for node in nodes}


def find_read_for_shapes(graph: onnx.GraphProto) -> list[str]:
    """Return the names of the nodes whose results are used for their shapes only, as Keras computes those of a loop.

    8 bits would store their weights, which the loop has in float, a second time.
    """
    read, needed = {value.name for value in graph.output}, set()
    for node in reversed(graph.node):  # they are in topological order
        if read.isdisjoint(node.output):
            continue
        needed.add(node.name)
        if node.op_type not in ("Shape", "Size"):
            read.update(_names_read(node))
    return [node.name for node in graph.node if node.name not in needed]


def _names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of the tensors that a node reads, in the bodies of a loop or branch too."""
    yield from node.input
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            yield from (value.name for value in body.output)
            for inner in body.node:
                yield from _names_read(inner)


def _histograms(file: Path, feed: list[Batch]) -> tuple[dict[str, Histogram], dict[str, ComponentError]]:
    """Return the histogram of each activation that ONNX Runtime may quantize, and the error of infinite ones."""
    augmented = file.with_name("augmented.onnx")  # with all of them as outputs
    calibrator = create_calibrator(
        file, augmented_model_path=str(augmented), calibrate_method=CalibrationMethod.Entropy
    )
    augmented.unlink()
    session, selected = calibrator.infer_session, calibrator.tensors_to_calibrate
    names = [output.name for output in session.get_outputs() if output.name in selected]
    histograms = {name: Histogram(name) for name in names}
    infinite: dict[str, ComponentError] = {}
    for batch in feed:
        for name, values in zip(names, session.run(names, batch), strict=True):
            try:
                histograms[name].add(values)
            except ComponentError as error:  # as the logarithm of 0 is before it is replaced
                infinite[name] = error
    return {name: histogram for name, histogram in histograms.items() if name not in infinite}, infinite


def quantize_trained(source: Path, target: Path, *, in_four: bool = False) -> ConversionFacts:
    """Write the int8 form of a float32 file that has trained ranges, and return metadata for the model card.

    With ``in_four``, kernels on levels of 4 bits are stored so, which takes opset 21.

    The file has a pair of QuantizeLinear and DequantizeLinear for each fake-quantized activation. Fake-quantized
    kernels are constants: floats, but each an integer multiple of a scale, also if a batch norm was folded in, which
    gives every channel another scale. The scales are recovered, and the kernels are stored as those integers. Nothing
    is rounded a second time. A kernel that was not quantized is no multiple of a scale and stays as it is.

    Raises:
        ComponentError: If no kernel was quantized.
    """
    options = SessionOptions()  # for ONNX Runtime to fold remaining batch norms into convolutions, without rounding
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    model = onnx.load(target)
    stored, four = _store(model.graph, in_four=in_four)
    if not stored:
        received = "a model with trained ranges, and no kernel on 8-bit levels"
        fix = "export it with export_tflite, or pass the model from before it was quantized and calibrate"
        raise ComponentError(received, "a model from tfopt quantize or from TensorFlow's toolkit", fix)
    if four:
        model = onnx.version_converter.convert_version(model, INT4_OPSET)
    onnx.save(model, target)
    return {
        "ranges": "trained",
        "kernels": stored,
        **({"kernels_in_4_bits": four, "opset": INT4_OPSET} if four else {}),
    }


def find_scales(kernel: Floats, axis: int) -> Floats | None:
    """Return scales that divide all weights into integers of at most 127; None if there are none.

    There is one scale if it fits all channels, else one for each output channel, which are on ``axis``.
    """
    for by_channel in (kernel.reshape(1, -1), np.moveaxis(kernel, axis, 0).reshape(kernel.shape[axis], -1)):
        largest = np.abs(by_channel).max(1).astype(np.float64)
        scales = np.where(largest == 0, 1.0, 0.0)
        for levels in range(LEVELS, 0, -1):
            scale = largest / levels
            ratio = by_channel / np.where(scale == 0, 1, scale)[:, None]
            exact = np.abs(ratio - np.round(ratio)).max(1) < EXACT
            scales = np.where((scales == 0) & exact, scale, scales)
            if scales.all():
                return scales.astype(np.float32)
    return None


def _store(graph: onnx.GraphProto, *, in_four: bool) -> tuple[list[str], list[str]]:
    """Replace kernels by integers in the graph, and return the names of these kernels, and of those in 4 bits."""
    floats = {item.name: item for item in graph.initializer if item.data_type == onnx.TensorProto.FLOAT}
    stored: dict[str, str] = {}
    four: list[str] = []
    for name, axis in list(_kernels(graph)):
        if name not in floats or name in stored:
            continue
        kernel = numpy_helper.to_array(floats[name])
        scale = find_scales(kernel, axis)
        if scale is not None:
            integers, scale = _levels(kernel, scale, axis)
            four += [name] * bool(in_four and np.abs(integers).max(initial=0) <= FOUR_BIT_LEVELS)
            stored[name] = _add_dequantizer(graph, name, integers, scale, axis, in_four=name in four)
            graph.initializer.remove(floats[name])
    for node in graph.node:
        node.input[:] = [stored.get(name, name) for name in node.input]
    return sorted(stored), sorted(four)


def _levels(kernel: Floats, scale: Floats, axis: int) -> tuple[NDArray[np.int8], Floats]:
    """Return the integers of a kernel and its scales: those of 4 bits if they have a common factor that allows it."""
    shape = [1] * kernel.ndim
    shape[axis] = scale.size
    integers = np.round(kernel / scale.reshape(shape)).astype(np.int8)
    others = tuple(place for place in range(kernel.ndim) if scale.size == 1 or place != axis)
    factors = np.maximum(np.gcd.reduce(integers.astype(np.int64), axis=others, keepdims=True), 1)
    smaller = (integers // factors).astype(np.int8)
    if np.abs(smaller).max(initial=0) > FOUR_BIT_LEVELS:
        return integers, scale
    return smaller, (scale * factors.ravel()).astype(np.float32)


def _kernels(graph: onnx.GraphProto) -> Iterator[tuple[str, int]]:
    for node in graph.node:
        if node.op_type in AXES:
            transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
            yield node.input[1], 0 if transposed else AXES[node.op_type]


def _add_dequantizer(
    graph: onnx.GraphProto, name: str, integers: NDArray[np.int8], scale: Floats, axis: int, *, in_four: bool
) -> str:
    """Add a kernel's integers and scales and a DequantizeLinear of them; return the name of its output.

    Integers in 4 bits are cast to 8 bits first: ONNX Runtime does this once, when it loads the file, and computes the
    layer as any other in 8 bits. It has no convolution of 4 bits.
    """
    per_tensor = scale.size == 1
    scale = scale.reshape(()) if per_tensor else scale
    constants = {"int8": integers, "step": scale, "zero": np.zeros(scale.shape, np.int8)}
    inputs, output = [f"{name}_{part}" for part in constants], f"{name}_dequantized"
    if in_four:
        constants = {"int4": integers.astype(ml_dtypes.int4), **constants}
        del constants["int8"]
    graph.initializer.extend(numpy_helper.from_array(array, f"{name}_{part}") for part, array in constants.items())
    options = {} if per_tensor else {"axis": axis}
    graph.node.insert(0, helper.make_node("DequantizeLinear", inputs, [output], name=output, **options))
    if in_four:
        cast = helper.make_node("Cast", [f"{name}_int4"], inputs[:1], name=inputs[0], to=onnx.TensorProto.INT8)
        graph.node.insert(0, cast)
    return output
