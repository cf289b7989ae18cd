"""Quantization of LiteRT files layer by layer with ai-edge-quantizer: a rule for each layer, and the layers' errors.

A layer is an op, identified by the name of its output, such as ``model/dense_1/MatMul``.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any
from unittest import mock

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from ai_edge_quantizer import qtyping
from ai_edge_quantizer.calibrator import CalibrationMode, Calibrator
from ai_edge_quantizer.quantizer import AlgorithmName, Quantizer, ValidationErrorMetric
from ai_edge_quantizer.recipe_manager import RecipeManager
from ai_edge_quantizer.transformations import duplicate_tensor
from ai_edge_quantizer.utils.qsv_utils import min_max_update
from numpy.typing import NDArray

from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.components.export_tflite.flatbuffer import share_vectors
from tfopt.components.export_tflite.parameters import Rule, TFLiteConversion
from tfopt.components.export_tflite.rounded_kernels import replace_kernels, round_kernels
from tfopt.conversion.activation_ranges import Histogram, Method, select_ranges
from tfopt.conversion.mixes.fastest_mix import call_seconds
from tfopt.conversion.mixes.mixed_precision import BITS, ERROR_RECORDS, Layer, MixedModel
from tfopt.conversion.mixes.sensitivity_table import describe_kernel
from tfopt.data.batches import Batch
from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.value_types import JsonObject

ALL_OPS = qtyping.TFLOperationName.ALL_SUPPORTED
ENDS = (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT)
KINDS = ("int4", "int8", "float16", "float32")  # of the weights of a layer
# In a mix with ranges of activations, integer kinds but dynamic have them: those are rounded to 8 bits, too.
KINDS_WITH_RANGES = ("int4", "int8", "dynamic", "float16", "float32")
LOWEST = {"int4": "int4", "auto": "int4"}  # kind of the weights that a precision begins with; int8 for the others
# How the scale of a channel follows from its weights: the largest one, or the least mean squared error, in closed form
# (OCTAV: Sakr et al., 2022, https://arxiv.org/abs/2206.06501) or assuming a Gaussian.
SCALES = (AlgorithmName.MIN_MAX_UNIFORM_QUANT, AlgorithmName.MSE, AlgorithmName.OCTAV)
COMPENSATED = "compensated_rounding"  # of the weights, whose scales are then those of the largest ones


class QuantizableModel(MixedModel[bytes]):
    """A float LiteRT file with calibrated ranges, which can be quantized with different rules.

    Of several ``rules`` that match a layer, the last one applies.
    """

    def __init__(self, content: bytes, parameters: TFLiteConversion, feed: list[Batch]) -> None:
        """Store a float32 flatbuffer, and calibrate it if activations have ranges, as in int8 and int16x8."""
        self._content, self._feed, self._precision = content, feed, parameters.precision
        self._bits, self._integer_io = parameters.activation_bits, parameters.integer_io
        self._lowest, self._scales = LOWEST.get(self._precision, "int8"), SCALES[0]
        self._rounded: Mapping[str, NDArray[np.float32]] = {}  # kernels in 4 bits, by the output of their layer
        self.rules: list[Rule] = []
        self.ranges: dict[str, Any] | None = None
        self.by_bytes = self._bits is None
        if self._precision != "auto" or not self._bits:  # else it depends on the kind
            self.inputs = f"int{self._bits}" if self._bits else "dynamic"
        if self._bits:
            # The default mode reads every tensor, also texts and tables that no operation has set: some reads crash.
            has_texts = any(array.dtype.kind in "OSU" for array in feed[0].values())
            name = "CALIBRATION_PROFILER_BASED" if has_texts else "CALIBRATION_PRESERVE_ALL_TENSORS"
            mode = CalibrationMode[name]
            # Smallest and largest values, as LiteRT's converter: by default the quantizer averages over the records,
            # which cuts off the largest values.
            calibrator = Calibrator(content, num_threads=1, mode=mode, qsv_update_func=min_max_update)
            recipe = RecipeManager()
            recipe.load_quantization_recipe(self._quantizer({}).get_quantization_recipe())
            calibrator.calibrate({SERVING_DEFAULT: feed}, recipe)
            self.ranges = calibrator.get_model_qsvs()

    @property
    def layers(self) -> list[Layer]:
        """Return the float ops; those without weights have a precision only if activations have."""
        names = [(layer, largest) for layer, largest in _layers(self._content) if layer.weights or self.ranges]
        return [replace(layer, kinds=self._kinds(layer, largest)) for layer, largest in names]

    def replace_ranges(self, histograms: Mapping[str, Histogram], method: Method) -> None:
        """Replace the ranges of the activations by those that a method selects."""
        ranges = select_ranges(histograms, method, bits=self._bits or 8)
        for name, ends in (self.ranges or {}).items():
            if name in ranges:
                low, high = ranges[name]
                ends |= {"min": np.full_like(ends["min"], low), "max": np.full_like(ends["max"], high)}

    def quantize(self, kinds: Mapping[str, str] | None = None, lowest: str | None = None) -> bytes:
        """Return the file quantized by the rules and with these kinds of layers.

        Raises:
            ComponentError: If the quantizer fails.
        """
        quantizer = self._quantizer(kinds or {}, lowest)
        try:
            with mock.patch.object(duplicate_tensor, "duplicate_tensor", _duplicate):
                return share_vectors(bytes(quantizer.quantize(self.ranges).quantized_model))
        except Exception as error:
            received = f"the quantizer failed: {first_line(error)[:300]}"
            fix = "leave the layer it names in float32 by recipe=['NAME=float32'], or choose another precision"
            raise ComponentError(received, f"layers that can be {self._precision}", fix) from error

    def choose_scales(self, measure: Callable[[bytes], tuple[float, float]]) -> JsonObject:
        """Choose how 4-bit weights are found, by the degradation of whole files, then by noise; return it for the card.

        No scale is best for all models: one for the largest weight of a channel costs the others their precision.
        Kernels that cannot be rounded with compensation have the best scale.
        """

        def measure_file() -> tuple[float, float]:
            try:
                return measure(self.quantize())
            except ComponentError:  # some find the scale 0 for a channel of zeros, which LiteRT does not load
                return 1.0, 1.0

        measured = {}
        for self._scales in SCALES:
            measured[str(self._scales.value)] = measure_file()
        self._scales = min(SCALES, key=lambda scales: measured[scales.value])
        used = str(self._scales.value)
        self._rounded, facts = self._round_kernels()
        if self._rounded:
            measured[COMPENSATED] = measure_file()
            used = min(COMPENSATED, used, key=measured.__getitem__)
        if used != COMPENSATED:
            self._rounded = {}
        parts = {
            part: {name: pair[place] for name, pair in measured.items()}
            for place, part in enumerate(("degradation", "noise"))
        }
        return {"used": used, **parts, "rounding": facts}

    def _round_kernels(self) -> tuple[Mapping[str, NDArray[np.float32]], JsonObject]:
        try:
            return round_kernels(self._content, self._feed)
        except Exception as error:  # LiteRT's interpreter, of a file that needs a delegate
            return {}, {"not_measured": first_line(error)}

    def measure_noise(self, file: bytes) -> dict[str, float]:
        """Return the noise-to-signal ratio of each tensor: both files are run on the same inputs."""
        quantizer = Quantizer(bytearray(self._content), previous_quantized_model=bytearray(file))
        comparison = quantizer.validate(
            {SERVING_DEFAULT: self._feed[:ERROR_RECORDS]}, [ValidationErrorMetric.SNR], use_xnnpack=False, num_threads=1
        ).get_signature_comparison_result(SERVING_DEFAULT)
        tensors = {**comparison.intermediate_tensors, **comparison.output_tensors}
        # The signal-to-noise ratio of an overflow is NaN.
        return {name: 1 / max(float(np.nan_to_num(metrics["snr"])), 1e-9) for name, metrics in tensors.items()}

    def count_bytes(self, file: bytes) -> int:
        """Return the size of a file."""
        return len(file)

    def measure_seconds(self, files: Sequence[bytes]) -> list[float]:
        """Return the time of a call of each file with one record and one thread, infinite if it does not load."""
        calls = [self._load(file) for file in files]
        seconds = iter(call_seconds([call for call in calls if call]))
        return [next(seconds) if call else math.inf for call in calls]

    def _load(self, file: bytes) -> Callable[[], object] | None:
        """Return a call of a file with one record; None if XNNPACK refuses it, as scales that differ by 10,000."""
        try:
            interpreter = Interpreter(model_content=file, num_threads=1)
            interpreter.allocate_tensors()
        except RuntimeError:
            return None
        return partial(interpreter.get_signature_runner(SERVING_DEFAULT), **self._feed[0])

    @cached_property
    def _scopes(self) -> dict[str, str]:
        """Return the names of all outputs of each op, joined as the quantizer joins them, by that of the first one."""
        graph = schema.ModelT.InitFromPackedBuf(self._content, 0).subgraphs[0]
        outputs = [op.outputs for op in graph.operators if op.outputs is not None and len(op.outputs)]
        names = [[graph.tensors[index].name.decode() for index in indices] for indices in outputs]
        return {joined[0]: ";".join(joined) for joined in names}

    def layer_rules(self, kinds: Mapping[str, str]) -> list[Rule]:
        """Return the rules for the kinds of layers; each matches one layer.

        The quantizer matches the names of all outputs of an op, and a converter joins names of ops that it fuses, so
        that the name of another layer may begin with that of this one.
        """
        rules = []
        for name, kind in kinds.items():
            names = dict.fromkeys((name, self._scopes.get(name, name)))
            rules.append((f"^(?:{'|'.join(map(re.escape, names))});?$", kind))
        return rules

    def check(self, rules: Iterable[Rule]) -> None:
        """Raise ComponentError if a rule matches no layer."""
        names = [layer.output for layer, _ in _layers(self._content)]
        for pattern, kind in rules:
            if not any(re.search(pattern, name) for name in names):
                received = f"recipe {pattern}={kind}: no such layer"
                raise ComponentError(received, f"a part of one of: {', '.join(names)[:1000]}", nearest(pattern, names))

    def _kinds(self, layer: Layer, largest: float) -> list[str]:
        """Return the kinds of a layer, from the lowest one to float32, by its largest weight."""
        chosen = [kind.partition("x")[0] for pattern, kind in self.rules if re.search(pattern, layer.output)]
        lowest = max((self._lowest, *chosen[-1:]), key=BITS.__getitem__)  # a step never lowers what a rule gives
        if not layer.weights:
            return ["float32"] if lowest.startswith("float") else ["int8", "float32"]
        all_kinds = KINDS_WITH_RANGES if self._precision == "auto" and self._bits else KINDS
        kinds = all_kinds[all_kinds.index(lowest) :]
        return [kind for kind in kinds if kind != "float16" or largest <= np.finfo(np.float16).max]

    def _quantizer(self, layer_kinds: Mapping[str, str], lowest: str | None = None) -> Quantizer:
        bits, lowest = self._bits, lowest or self._lowest
        # Ops without a 4-bit kernel have 8-bit weights.
        base = [("(?:.*)", "int8"), (".*", lowest)] if lowest == "int4" else [(".*", lowest)]
        rules = [*base, *self.rules, *self.layer_rules(layer_kinds)]
        kinds = {name: [kind for pattern, kind in rules if re.search(pattern, name)][-1] for name in self._rounded}
        rounded = {name: self._rounded[name] for name, kind in kinds.items() if kind == "int4"}
        quantizer = Quantizer(bytearray(replace_kernels(self._content, rounded)))
        on_grid = self.layer_rules(dict.fromkeys(rounded, "int4"))
        for pattern, kind in (*rules, *on_grid):
            weights, _, block = kind.replace("dynamic", "int8").removeprefix("int").partition("x")
            has_ranges = bool(bits) and kind.startswith("int") and not block
            group = f"(?:{pattern})"  # a second rule of the same pattern would replace the first one
            if kind.startswith("float") or (bits and not has_ranges):
                quantizer.update_quantization_recipe(pattern, ALL_OPS, algorithm_key=AlgorithmName.NO_QUANTIZE)
            if kind == "float16":
                quantizer.add_weight_only_config(group, ALL_OPS, 16, algorithm_key=AlgorithmName.FLOAT_CASTING)
            if kind.startswith("float"):
                continue
            granularity = qtyping.QuantGranularity[f"BLOCKWISE_{block}" if block else "CHANNELWISE"]
            scales = self._scales if kind == "int4" and (pattern, kind) not in on_grid else SCALES[0]
            if has_ranges:
                quantizer.add_static_config(pattern, ALL_OPS, bits, int(weights), granularity, scales)
            else:
                quantizer.add_dynamic_config(group if bits else pattern, ALL_OPS, int(weights), granularity, scales)
        for end in ENDS if bits and not self._integer_io else ():
            # A pattern of its own, so that this rule comes after those of single layers, which name outputs as well.
            quantizer.update_quantization_recipe("^", end, algorithm_key=AlgorithmName.NO_QUANTIZE)
        return quantizer


def _duplicate(graph: Any, duplicate: Callable[..., Any] = duplicate_tensor.duplicate_tensor) -> Any:
    """Copy a constant that layers of several kinds read, with a name in bytes: the quantizer appends bytes to it."""
    info = duplicate(graph)
    tensor = graph.subgraph.tensors[info.output_tensor_id]
    tensor.name = tensor.name.encode()
    return info


def _layers(content: bytes) -> list[tuple[Layer, float]]:
    """Return the float ops of a file, each with the largest magnitude of its weights."""
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    tensors = file.subgraphs[0].tensors
    float32 = schema.TensorType.FLOAT32
    layers = []
    for op in file.subgraphs[0].operators:
        inputs = [tensors[index] for index in op.inputs if index >= 0]
        outputs = [tensors[index] for index in op.outputs if tensors[index].type == float32]
        stored = [tensor for tensor in inputs if tensor.type == float32 and len(tensor.shape) > 1]
        buffers = [file.buffers[tensor.buffer].data for tensor in stored]
        kernels = [np.asarray(data, np.uint8).view(np.float32) for data in buffers if data is not None]
        if outputs:
            largest = max((float(np.abs(kernel).max(initial=0)) for kernel in kernels), default=0.0)
            weights = sum(kernel.size for kernel in kernels)
            names = [tensor.name.decode() for tensor in inputs]
            kernel = describe_kernel(kernels[0]) if kernels else None
            layers.append((Layer(names, outputs[0].name.decode(), (), weights, kernel), largest))
    return layers
