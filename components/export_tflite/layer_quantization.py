"""Quantization of LiteRT files layer by layer with ai-edge-quantizer: a rule for each layer, and the layers' errors.

A layer is an op, identified by the name of its output, such as ``model/dense_1/MatMul``.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_quantizer import qtyping
from ai_edge_quantizer.calibrator import CalibrationMode, Calibrator
from ai_edge_quantizer.quantizer import AlgorithmName, Quantizer, ValidationErrorMetric
from ai_edge_quantizer.recipe_manager import RecipeManager
from ai_edge_quantizer.utils.qsv_utils import min_max_update

from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.components.export_tflite.parameters import Rule
from tfopt.conversion.activation_ranges import Histogram, Method, select_ranges
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.data.batches import Batch
from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.measurement.evidence import DEGRADATION_NOTE, describe_first_form
from tfopt.value_types import JsonObject

ALL_OPS = qtyping.TFLOperationName.ALL_SUPPORTED
ENDS = (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT)
ACTIVATION_BITS = {"int8": 8, "int16x8": 16}  # of the precisions with trained or calibrated ranges
BITS = {"int4": 4, "int8": 8, "float16": 16, "float32": 32}  # of a weight; the first kinds of a mix come first
LOWEST = {"int4": "int4", "auto": "int4"}  # kind of the weights that a precision begins with; int8 for the others
# How the scale of a channel follows from its weights: the largest one, or the least mean squared error, in closed form
# (OCTAV: Sakr et al., 2022, https://arxiv.org/abs/2206.06501) or assuming a Gaussian.
SCALES = (AlgorithmName.MIN_MAX_UNIFORM_QUANT, AlgorithmName.MSE, AlgorithmName.OCTAV)
ERROR_RECORDS = 16  # to compare layers on; their order hardly depends on more
FINEST = 8  # the number of layers in a higher precision is found up to an eighth of it


@dataclass(frozen=True)
class _Layer:
    """An op: names of its inputs and its output, and number and largest magnitude of its weights (0 without any)."""

    inputs: list[str]
    output: str
    weights: int
    largest: float

    def kinds(self, lowest: str) -> list[str]:
        """Return the kinds that the layer may have, from the lowest one to float32."""
        kinds = list(BITS)[list(BITS).index(lowest) :]
        if not self.weights:
            return list(dict.fromkeys((lowest, "float32")))
        return [kind for kind in kinds if kind != "float16" or self.largest <= np.finfo(np.float16).max]


@dataclass(frozen=True)
class _Step:
    """A higher kind for a layer, with the noise that it removes and the cost that it adds."""

    layer: str
    kind: str
    removed: float
    added: float
    last: bool

    @property
    def use(self) -> float:
        return self.removed / self.added


class QuantizableModel:
    """A float LiteRT file with calibrated ranges, which can be quantized with different rules."""

    def __init__(self, content: bytes, precision: str, feed: list[Batch], *, integer_io: bool) -> None:
        """Store a float32 flatbuffer, and calibrate it if the precision needs ranges, as int8 and int16x8 do."""
        self._content, self._precision, self._feed, self._integer_io = content, precision, feed, integer_io
        self._lowest, self._scales = LOWEST.get(precision, "int8"), SCALES[0]
        self.ranges: dict[str, Any] | None = None
        if precision in ACTIVATION_BITS:
            # The default mode reads every tensor, also texts and tables that no operation has set: some reads crash.
            has_texts = any(array.dtype.kind in "OSU" for array in feed[0].values())
            name = "CALIBRATION_PROFILER_BASED" if has_texts else "CALIBRATION_PRESERVE_ALL_TENSORS"
            mode = CalibrationMode[name]
            # Smallest and largest values, as LiteRT's converter: by default the quantizer averages over the records,
            # which cuts off the largest values.
            calibrator = Calibrator(content, num_threads=1, mode=mode, qsv_update_func=min_max_update)
            recipe = RecipeManager()
            recipe.load_quantization_recipe(self._quantizer(()).get_quantization_recipe())
            calibrator.calibrate({SERVING_DEFAULT: feed}, recipe)
            self.ranges = calibrator.get_model_qsvs()

    def replace_ranges(self, histograms: Mapping[str, Histogram], method: Method) -> None:
        """Replace the ranges of the activations by those that a method selects."""
        ranges = select_ranges(histograms, method, bits=ACTIVATION_BITS[self._precision])
        for name, ends in (self.ranges or {}).items():
            if name in ranges:
                low, high = ranges[name]
                ends |= {"min": np.full_like(ends["min"], low), "max": np.full_like(ends["max"], high)}

    def quantize(self, rules: Iterable[Rule]) -> bytes:
        """Return the file quantized by these rules; of several that match a layer, the last one applies.

        Raises:
            ComponentError: If the quantizer fails.
        """
        quantizer = self._quantizer(rules)
        try:
            return bytes(quantizer.quantize(self.ranges).quantized_model)
        except Exception as error:
            received = f"the quantizer failed: {first_line(error)[:300]}"
            fix = "leave the layer it names in float32 by recipe=['NAME=float32'], or choose another precision"
            raise ComponentError(received, f"layers that can be {self._precision}", fix) from error

    def choose_scales(self, rules: Iterable[Rule], measure: Callable[[bytes], float]) -> JsonObject:
        """Choose how the scales of 4-bit weights are found, by the degradation of whole files; return it for the card.

        No method is best for all models: a scale for the largest weight of a channel costs the others their precision.
        """
        degradation = {}
        for self._scales in SCALES:
            try:
                degradation[str(self._scales.value)] = measure(self.quantize(rules))
            except ComponentError:  # some find the scale 0 for a channel of zeros, which LiteRT does not load
                degradation[str(self._scales.value)] = 1.0
        self._scales = min(SCALES, key=lambda scales: degradation[scales.value])
        return {"used": str(self._scales.value), "degradation": degradation}

    def rank_promotions(self, rules: Sequence[Rule]) -> list[Rule]:
        """Return the steps that take each layer from its lowest kind to float32, best first.

        The best one removes most noise for each byte that it adds; in integer precisions, where each layer in float
        costs conversions, just most noise. A step leaves out the kinds that help less than the next one. Steps from
        float16, which is nearly exact, come last. The noise of a layer is the noise-to-signal ratio of its output minus
        the largest one of its inputs, in a file whose layers are all of one kind.
        """
        kinds = list(BITS)[list(BITS).index(self._lowest) : -1]
        noise = {kind: self._added_noise(self.quantize([(".*", kind), *rules])) for kind in kinds}
        steps = []
        for layer in _layers(self._content):
            if layer.output not in noise[kinds[0]] or not (layer.weights or self.ranges):
                continue
            path: list[_Step] = []
            chosen = [kind.partition("x")[0] for pattern, kind in rules if re.search(pattern, layer.output)]
            lowest = max((self._lowest, *chosen[-1:]), key=BITS.__getitem__)  # a step never lowers what a rule gives
            for kind, following in pairwise(layer.kinds(lowest)):
                removed = noise[kind][layer.output] - noise.get(following, {}).get(layer.output, 0.0)
                added = 1 if self.ranges else layer.weights * (BITS[following] - BITS[kind]) / 8
                step = _Step(layer.output, following, removed, added, last=kind == "float16")
                while path and not step.last and path[-1].use <= step.use:
                    step = replace(step, removed=step.removed + path[-1].removed, added=step.added + path.pop().added)
                path.append(step)
            steps += path
        steps.sort(key=lambda step: (step.last, -step.use))  # stable: the steps of a layer stay in order
        return [(step.layer, step.kind) for step in steps]

    def _added_noise(self, quantized: bytes) -> dict[str, float]:
        """Return for each layer the noise-to-signal ratio of its output minus the largest one of its inputs."""
        noise = self._noise(quantized)
        return {
            layer.output: noise[layer.output] - max((noise.get(name, 0.0) for name in layer.inputs), default=0.0)
            for layer in _layers(self._content)
            if layer.output in noise
        }

    def _noise(self, quantized: bytes) -> dict[str, float]:
        """Return the noise-to-signal ratio of each tensor: both files are run on the same inputs."""
        quantizer = Quantizer(bytearray(self._content), previous_quantized_model=bytearray(quantized))
        comparison = quantizer.validate(
            {SERVING_DEFAULT: self._feed[:ERROR_RECORDS]}, [ValidationErrorMetric.SNR], use_xnnpack=False, num_threads=1
        ).get_signature_comparison_result(SERVING_DEFAULT)
        tensors = {**comparison.intermediate_tensors, **comparison.output_tensors}
        # The signal-to-noise ratio of an overflow is NaN.
        return {name: 1 / max(float(np.nan_to_num(metrics["snr"])), 1e-9) for name, metrics in tensors.items()}

    def check(self, rules: Iterable[Rule]) -> None:
        """Raise ComponentError if a rule matches no layer."""
        names = [layer.output for layer in _layers(self._content)]
        for pattern, kind in rules:
            if not any(re.search(pattern, name) for name in names):
                received = f"recipe {pattern}={kind}: no such layer"
                raise ComponentError(received, f"a part of one of: {', '.join(names)[:1000]}", nearest(pattern, names))

    def _quantizer(self, rules: Iterable[Rule]) -> Quantizer:
        quantizer = Quantizer(bytearray(self._content))
        bits = ACTIVATION_BITS.get(self._precision)
        # Ops without a 4-bit kernel have 8-bit weights.
        for pattern, kind in (("(?:.*)", "int8"), (".*", self._lowest), *rules):
            if kind.startswith("float"):
                quantizer.update_quantization_recipe(pattern, ALL_OPS, algorithm_key=AlgorithmName.NO_QUANTIZE)
            if kind == "float16":  # in groups, since a second rule of the same pattern would replace the first one
                quantizer.add_weight_only_config(
                    f"(?:{pattern})", ALL_OPS, 16, algorithm_key=AlgorithmName.FLOAT_CASTING
                )
            if kind.startswith("float"):
                continue
            weights, _, block = kind.removeprefix("int").partition("x")
            granularity = qtyping.QuantGranularity[f"BLOCKWISE_{block}" if block else "CHANNELWISE"]
            scales = self._scales if kind == "int4" else SCALES[0]
            if bits:
                quantizer.add_static_config(pattern, ALL_OPS, bits, int(weights), granularity, scales)
            else:
                quantizer.add_dynamic_config(pattern, ALL_OPS, int(weights), granularity, scales)
        for end in ENDS if bits and not self._integer_io else ():
            quantizer.update_quantization_recipe(".*", end, algorithm_key=AlgorithmName.NO_QUANTIZE)
        return quantizer


def limit_degradation(
    model: QuantizableModel, rules: list[Rule], limit: float, measure: Callable[[bytes], float], *, mixed: bool
) -> tuple[bytes, ConversionFacts]:
    """Raise the precision of the layers that add most noise, one kind at a time, until the degradation meets the limit.

    The number of steps is doubled until it does, then the smallest one is searched between the last two. Unless
    ``mixed``, at most half of the layers are left in float: a file with more is not of the requested precision.
    ``measure`` returns the degradation of a file on records that it was not calibrated on. Returned are the file and
    metadata for the model card.

    Raises:
        ComponentError: If the limit is exceeded even so.
    """
    files: dict[int, bytes] = {}
    tried: list[dict[str, float]] = []
    promotions: list[Rule] = []

    def meets_limit(steps: int) -> bool:
        files[steps] = model.quantize([*rules, *_layer_rules(dict(promotions[:steps]))])
        tried.append({"steps": steps, "bytes": len(files[steps]), "degradation": measure(files[steps])})
        return tried[-1]["degradation"] <= limit

    failed = steps = most = 0
    if not (met := meets_limit(0)):
        promotions = model.rank_promotions(rules)
        half = len(dict(promotions)) // 2
        allowed = (n for n in range(len(promotions), 0, -1) if mixed or len(_in_float(promotions[:n])) <= half)
        most = next(allowed, 0)
    while not met and steps < most:
        failed, steps = steps, min(max(1, 2 * steps), most)
        met = meets_limit(steps)
    if not met:
        left = f"{len(_in_float(promotions[:steps]))} of {len(dict(promotions))} layers left in float"
        raise ComponentError(
            f"degradation {tried[-1]['degradation']:.3g} with {left}",
            f"at most max_degradation={limit:g}",
            "allow more, or choose a higher precision",
        )
    while steps - failed > max(1, steps // FINEST):
        middle = (failed + steps) // 2
        failed, steps = (failed, middle) if meets_limit(middle) else (middle, steps)
    facts: ConversionFacts = {"tried": tried, "left_in_float": _in_float(promotions[:steps])}
    facts["raised"] = dict(promotions[:steps])
    if len(tried) > 1:
        facts[DEGRADATION_NOTE] = describe_first_form(len(tried))
    return files[steps], facts


def _in_float(promotions: Iterable[Rule]) -> list[str]:
    """Return the names of the layers that are in 16 or 32 bits after these steps."""
    return [name for name, kind in dict(promotions).items() if kind.startswith("float")]


def float_rules(names: Iterable[str]) -> list[Rule]:
    """Return the rules that leave layers in float32."""
    return _layer_rules(dict.fromkeys(names, "float32"))


def _layer_rules(kinds: Mapping[str, str]) -> list[Rule]:
    """Return the rules for the kinds of layers; each matches one layer."""
    return [(f"^{re.escape(name)}(;|$)", kind) for name, kind in kinds.items()]


def _layers(content: bytes) -> list[_Layer]:
    """Return the float ops of a file."""
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
            layers.append(_Layer(names, outputs[0].name.decode(), weights, largest))
    return layers
