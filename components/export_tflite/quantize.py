"""Conversion by LiteRT's converter or, layer by layer, by ai-edge-quantizer, and the stability of the ranges."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.components.export_tflite import flatbuffer, float_part, litert_converter, lookup_tables
from tfopt.components.export_tflite.parameters import BY_LAYER, TFLiteConversion
from tfopt.conversion import calibration
from tfopt.conversion.activation_ranges import AUTO, Histogram, Method, choose_method, select_ranges
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.exact_values import FloatPart, count_kinds
from tfopt.conversion.mixes.fastest_mix import is_fastest, minimize_latency
from tfopt.conversion.mixes.mixed_precision import limit_degradation
from tfopt.conversion.mixes.sensitivity_table import SensitivityTable
from tfopt.data.batches import Batch
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.measurement.parity import Parity, degradation, noise
from tfopt.value_types import JsonObject

MIN_SAVING, MIN_SAVED_BYTES = 0.02, 4096  # of the file, to justify a second conversion with one scale per dense layer
MAX_EXTRA_DEGRADATION = 0.004  # by that: one of the 256 compared records changes its class

Measure = Callable[[bytes], float]  # the degradation of a file, on records it was not calibrated on


def quantize(
    serving: Path,
    parameters: TFLiteConversion,
    feed: list[Batch] | None,
    sensitivities: SensitivityTable | None,
    calibrated: bool,
    compare: Callable[[bytes], list[Parity]],
) -> tuple[bytes, ConversionFacts]:
    """Return the flatbuffer of a SavedModel, and metadata for the model card.

    ``calibrated`` is True if the feed determines the ranges of the activations. ``compare`` compares a file with the
    parent, on records it was not calibrated on.

    Raises:
        ComponentError: If an op cannot be converted, nothing is sparse, or the degradation exceeds the limit.
    """
    quantization = _Quantization(
        serving, parameters, feed or [], sensitivities, calibrated, compare, parameters.calibration
    )
    quantization.inspect_activations()
    whole = quantization.quantize_whole() if quantization.is_whole() else None
    content, facts = whole or quantization.quantize_by_layer()
    return content, facts | {"float32_bytes": len(quantization.floats)} if quantization.floats else facts


@dataclass
class _Quantization:
    """The quantization of one SavedModel, with what was found in its activations."""

    serving: Path
    parameters: TFLiteConversion
    feed: list[Batch]
    sensitivities: SensitivityTable | None
    calibrated: bool
    compare: Callable[[bytes], list[Parity]]
    method: Method | Literal["auto"]
    floats: bytes = b""
    facts: ConversionFacts = field(default_factory=ConversionFacts)
    floating: FloatPart = field(default_factory=FloatPart)
    last_activations: Sequence[str] = ()
    normalizations: Sequence[str] = ()
    histograms: Mapping[str, Histogram] = field(default_factory=dict)

    @property
    def in_parts(self) -> bool:
        """Return True if LiteRT quantizes a converted float file, with ranges of our own.

        Its quantizer to 16 bits takes no ranges, and a sparse file is not quantized after its conversion.
        """
        return self.calibrated and self.parameters.precision == "int8" and not self.parameters.sparse

    def measure(self, content: bytes) -> float:
        return degradation(self.compare(content))

    def measure_noise(self, content: bytes) -> float:
        return noise(self.compare(content))

    def measure_both(self, content: bytes) -> tuple[float, float]:
        parities = self.compare(content)
        return degradation(parities), noise(parities)

    def inspect_activations(self) -> None:
        """Read the histograms of the activations from a float file, and find what stays in float."""
        if not (self.calibrated and self.feed):
            return
        if self.in_parts:
            self.floats = self._calibrate(self.feed[:1])  # their ranges are replaced by those of all records
        else:
            self.floats = litert_converter.convert_float(self.serving, self.parameters)
        self.facts, self.floating, self.histograms = _inspect(self.floats, self.parameters, self.feed)
        if self.in_parts and not _has_all_ranges(self.floats, self.histograms):
            self.floats = self._calibrate(self.feed)
        if not self.parameters.integer_io:
            self.normalizations = float_part.find_normalizations(self.floats)
        if self.parameters.activation_bits == 8 and not self.parameters.integer_io:
            self.last_activations = float_part.find_last_activations(self.floats)
        if not self.histograms:
            self.method = _only_min_max(self.parameters, self.facts)

    def _calibrate(self, feed: list[Batch]) -> bytes:
        return litert_converter.convert(self.serving, self.parameters, feed, only_calibrate=True)

    def is_whole(self) -> bool:
        """Return whether LiteRT's quantizer is tried.

        It replaces a tensor for all of its readers, ai-edge-quantizer for each of them; and in 16 bits LiteRT's has no
        list of ops to leave in float.
        """
        has_floats = bool(self.floating or self.normalizations)
        in_16_bits = self.parameters.precision == "int16x8" and (has_floats or self.method != "min_max")
        by_layer = self.floating.shared or in_16_bits or self.parameters.recipe
        return self.parameters.precision not in ("int4", "auto") and not by_layer

    def quantize_whole(self) -> tuple[bytes, ConversionFacts] | None:
        """Quantize by LiteRT's converter; None if the degradation is too large, but layers can stay in float."""
        parameters, limit = self.parameters, self.parameters.max_degradation
        if self.in_parts:
            in_float = [*self.floating.operations, *self.normalizations, *self.last_activations]
            convert = partial(
                _quantize_calibrated, self.floats, self.histograms, parameters, self.serving, in_float=in_float
            )
            content, self.method, range_facts = choose_method(self.method, convert, self.measure_noise, AUTO)
            self.facts |= range_facts
            if parameters.tolerance is None:
                smaller = partial(convert, self.method, dense_channels=False)
                content, scale_facts = choose_dense_scales(content, smaller, self.measure, limit)
                self.facts |= scale_facts
        else:
            content = litert_converter.convert(self.serving, parameters, self.feed if self.calibrated else None)
            content = flatbuffer.share_vectors(content)
        if parameters.sparse and not flatbuffer.describe(content)["sparse"]:
            received = "sparse for a model in which no layer's weights are mostly zeros"
            raise ComponentError(received, "a pruned model", "prune it first (tfopt prune), or leave sparse out")
        degraded = None if limit is None else self.measure(content)
        if degraded is None or limit is None or degraded <= limit:
            return content, self.facts
        if parameters.precision not in BY_LAYER or (parameters.precision == "int8" and not self.calibrated):
            received = f"{parameters.precision}: degradation {degraded:.3g}"
            expected = f"at most max_degradation={limit:g}"
            raise ComponentError(received, expected, "allow more, or choose a higher precision")
        return None

    def quantize_by_layer(self) -> tuple[bytes, ConversionFacts]:
        """Quantize by ai-edge-quantizer, with the precision that the rules or ``max_degradation`` give each layer."""
        from tfopt.components.export_tflite import layer_quantization  # ai-edge-quantizer takes a quarter of a second

        parameters, limit, histograms = self.parameters, self.parameters.max_degradation, self.histograms
        if self.in_parts or not self.floats:
            self.floats = litert_converter.convert_float(self.serving, parameters)
        is_static = self.calibrated and parameters.precision != "auto"
        floats = self.floats if is_static else lookup_tables.replace_gathers(self.floats)
        model = layer_quantization.QuantizableModel(floats, parameters, self.feed)
        rules = parameters.rules()
        model.check(rules)
        in_float = dict.fromkeys([*self.floating.operations, *self.normalizations, *self.last_activations], "float32")
        model.rules = [*model.layer_rules(in_float), *rules]
        if self.calibrated and histograms:
            if self.in_parts:  # the names of tensors differ in part
                _, _, histograms = _inspect(self.floats, parameters, self.feed)

            def measure_ranges(method: Method) -> float:
                model.replace_ranges(histograms, method)
                return self.measure_noise(model.quantize())

            _, chosen, range_facts = choose_method(self.method, lambda method: method, measure_ranges, AUTO)
            model.replace_ranges(histograms, chosen)
            self.facts = range_facts | self.facts
        lowest = layer_quantization.LOWEST.get(parameters.precision)
        # The scales of 4 bits take most of the time: not for a search that begins with a faster kind.
        if lowest and self.feed and (parameters.minimize == "size" or is_fastest(model, lowest)):
            self.facts["weight_scales"] = model.choose_scales(self.measure_both)
        if limit is None:
            return model.quantize(), self.facts
        if parameters.minimize == "latency":
            search = minimize_latency
        else:
            search = partial(limit_degradation, mixed=parameters.precision == "auto")
        content, degradation_facts = search(model, limit, self.measure, sensitivities=self.sensitivities)
        return content, self.facts | degradation_facts


def choose_dense_scales(
    content: bytes, convert: Callable[[], bytes], measure: Measure, limit: float | None = None
) -> tuple[bytes, ConversionFacts]:
    """Return the file with one scale for each dense layer if it is notably smaller and degrades little more.

    The scale of a channel takes 4 bytes, and that of its bias another 4: in a network of dense layers of 200 inputs a
    twenty-sixth of the 8-bit file.
    Convolutions are not changed: their channels differ more, and have more weights each. Returned is also metadata for
    the model card, which is empty if there was no choice.
    """
    if flatbuffer.dense_scale_bytes(content) < max(MIN_SAVING * len(content), MIN_SAVED_BYTES):
        return content, {}
    smaller = convert()
    degraded = {"channel": measure(content), "layer": measure(smaller)}
    allowed = min(degraded["channel"] + MAX_EXTRA_DEGRADATION, 1.0 if limit is None else limit)
    choice = "layer" if degraded["layer"] <= allowed and len(smaller) < len(content) else "channel"
    sizes = {"channel": len(content), "layer": len(smaller)}
    facts: JsonObject = {"one_for_each": choice, "bytes": sizes, "degradation": degraded}
    return smaller if choice == "layer" else content, {"dense_scales": facts}


def _quantize_calibrated(
    floats: bytes,
    histograms: Mapping[str, Histogram],
    parameters: TFLiteConversion,
    serving: Path,
    method: Method,
    *,
    in_float: Sequence[str],
    dense_channels: bool = True,
) -> bytes:
    """Return the int8 form of a float flatbuffer, with the ranges that a method selects."""
    ranges = select_ranges(histograms, method)
    content = litert_converter.quantize(
        floats, ranges, parameters, serving, dense_channels=dense_channels, in_float=in_float
    )
    return flatbuffer.share_vectors(content)


def _has_all_ranges(content: bytes, histograms: Mapping[str, Histogram]) -> bool:
    """Return whether there are histograms of all tensors that LiteRT calibrated.

    There are none of loops and branches, and of the tensors inside of a fused LSTM.
    """
    main, *others = schema.ModelT.InitFromPackedBuf(content, 0).subgraphs
    calibrated = [tensor for tensor in main.tensors if tensor.quantization is not None and _has_range(tensor)]
    return not others and all(tensor.name.decode() in histograms for tensor in calibrated)


def _has_range(tensor: Any) -> bool:
    return tensor.quantization.min is not None and len(tensor.quantization.min) > 0


def _only_min_max(parameters: TFLiteConversion, facts: ConversionFacts) -> Method:
    """Return the method of LiteRT's converter, the only one for a file whose activations cannot be read."""
    if parameters.calibration != "min_max":
        reason = (facts.get("stability") or {}).get("not_measured", "it needs TensorFlow's Flex delegate")
        received = f"calibration={parameters.calibration!r} for a model whose activations cannot be read here: {reason}"
        raise ComponentError(received, "calibration='min_max', which the converter does itself", "leave it out")
    return "min_max"


def _inspect(
    content: bytes, parameters: TFLiteConversion, feed: list[Batch]
) -> tuple[ConversionFacts, FloatPart, Mapping[str, Histogram]]:
    """Return the stability of the ranges for the model card, the ops to leave in float, and the activations."""
    facts: ConversionFacts = {}
    histograms: Mapping[str, Histogram] = {}
    floating = float_part.find(content)
    if not parameters.select_tf_ops:
        try:
            histograms = measure_histograms(content, feed)
            facts["stability"] = calibration.compare_halves(histograms.values())
        except ComponentError:
            raise
        except Exception as error:  # LiteRT's own converter calibrates this file
            facts["stability"] = {"not_measured": first_line(error)}
    if parameters.activation_bits == 8 and not parameters.integer_io:  # a device without floats has no other range
        floating = float_part.add_few_levels(floating, content, select_ranges(histograms, "min_max"))
    if parameters.activation_bits and histograms and not parameters.integer_io:
        ranges, infinite = select_ranges(histograms, "min_max"), set(_activations(content).values()) - set(histograms)
        floating = float_part.add_masks(floating, content, ranges, parameters.activation_bits, infinite)
    for name in _tensors_of(content, floating.operations) & set(histograms):
        histograms[name].is_exact = True
    if not parameters.integer_io:
        return facts | floating.facts(), floating, histograms
    if floating.exact:
        kinds = count_kinds(floating.exact)
        raise ComponentError(
            f"integer_io with operations that need exact values, not {parameters.precision}: {kinds}",
            "a model without such operations on floats, because a device without floats cannot compute them",
            "leave integer_io out, which leaves these operations in float, pass codes by an input of integers, or "
            "compute this part before the model",
        )
    # A device without floats cannot compute a part in float. The comparison judges what rounding the columns costs.
    if floating:
        facts["rounded"] = floating.scaling
    return facts, FloatPart(), histograms


def measure_histograms(content: bytes, feed: list[Batch]) -> dict[str, Histogram]:
    """Return the histogram of each float activation of a float flatbuffer over all records."""
    tensors = _activations(content)
    interpreter = Interpreter(
        model_content=content,
        num_threads=1,
        # Of the ops that a delegate computes, only the outputs of the last one would be readable.
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    call = interpreter.get_signature_runner(SERVING_DEFAULT)
    histograms, broken = {name: Histogram(name) for name in tensors.values()}, set()
    for batch in feed:
        call(**batch)
        for index, name in tensors.items():
            try:
                histograms[name].add(interpreter.get_tensor(index))
            except ComponentError:  # NaN, as a mean of no values is before it is replaced
                broken.add(name)
    return {name: histogram for name, histogram in histograms.items() if name not in broken}


def _tensors_of(content: bytes, operations: Collection[str]) -> set[str]:
    """Return the names of the tensors that operations read and write, each of them named by its first output."""
    graph = schema.ModelT.InitFromPackedBuf(content, 0).subgraphs[0]
    names = [tensor.name.decode() for tensor in graph.tensors]
    # Some ops, as of hash tables, have no inputs or outputs.
    ends = [
        ([] if op.inputs is None else op.inputs, [] if op.outputs is None else op.outputs) for op in graph.operators
    ]
    matches = [(*read, *made) for read, made in ends if any(names[index] in operations for index in made[:1])]
    return {names[index] for indices in matches for index in indices if index >= 0}


def _activations(content: bytes) -> dict[int, str]:
    """Return the names of the float tensors that are inputs or results of operations, by index."""
    graph = schema.ModelT.InitFromPackedBuf(content, 0).subgraphs[0]
    outputs = [op.outputs for op in graph.operators if op.outputs is not None]
    indices = [*graph.inputs, *(index for indices in outputs for index in indices)]
    tensors = {int(index): graph.tensors[index] for index in indices}
    return {
        index: tensor.name.decode() for index, tensor in tensors.items() if tensor.type == schema.TensorType.FLOAT32
    }
