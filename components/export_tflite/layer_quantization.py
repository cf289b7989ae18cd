"""Quantization of LiteRT files layer by layer with ai-edge-quantizer: a rule for each layer, and the layers' errors.

A layer is an op, identified by the name of its output, such as ``model/dense_1/MatMul``.
"""

import re
from collections.abc import Callable, Iterable

from ai_edge_litert import schema_py_generated as schema
from ai_edge_quantizer import qtyping
from ai_edge_quantizer.calibrator import CalibrationMode, Calibrator
from ai_edge_quantizer.quantizer import AlgorithmName, Quantizer, ValidationErrorMetric
from ai_edge_quantizer.recipe_manager import RecipeManager
from ai_edge_quantizer.utils.qsv_utils import min_max_update

from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.components.export_tflite.parameters import Rule
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.data.batches import Batch
from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.measurement.evidence import DEGRADATION_NOTE, describe_first_form
from tfopt.value_types import JsonObject

ALL_OPS = qtyping.TFLOperationName.ALL_SUPPORTED
ENDS = (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT)
ACTIVATION_BITS = {"int8": 8, "int16x8": 16}  # of the precisions with trained or calibrated ranges
ERROR_RECORDS = 16  # to compare layers on; their order hardly depends on more


class QuantizableModel:
    """A float LiteRT file with calibrated ranges, which can be quantized with different rules."""

    def __init__(self, content: bytes, precision: str, feed: list[Batch], *, integer_io: bool) -> None:
        """Store a float32 flatbuffer, and calibrate it if the precision needs ranges, as int8 and int16x8 do."""
        self._content, self._precision, self._feed, self._integer_io = content, precision, feed, integer_io
        self.ranges: JsonObject | None = None
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

    def rank_by_error(self, quantized: bytes) -> list[str]:
        """Return the names of the layers, the one that adds most error first.

        The error of a layer is the noise-to-signal ratio of its output minus the largest one of its inputs. The float
        and the quantized file are run on the same inputs, and all their tensors are compared.
        """
        quantizer = Quantizer(bytearray(self._content), previous_quantized_model=bytearray(quantized))
        comparison = quantizer.validate(
            {SERVING_DEFAULT: self._feed[:ERROR_RECORDS]}, [ValidationErrorMetric.SNR], use_xnnpack=False, num_threads=1
        ).get_signature_comparison_result(SERVING_DEFAULT)
        noise = {
            name: 1 / max(metrics["snr"], 1e-9)
            for name, metrics in {**comparison.intermediate_tensors, **comparison.output_tensors}.items()
        }
        added = {
            output: noise[output] - max((noise.get(name, 0.0) for name in inputs), default=0.0)
            for inputs, output, has_kernel in _layers(self._content)
            if output in noise and (has_kernel or self.ranges)  # without ranges only kernels are quantized
        }
        return sorted(added, key=added.__getitem__, reverse=True)

    def check(self, rules: Iterable[Rule]) -> None:
        """Raise ComponentError if a rule matches no layer."""
        names = [output for _, output, _ in _layers(self._content)]
        for pattern, kind in rules:
            if not any(re.search(pattern, name) for name in names):
                received = f"recipe {pattern}={kind}: no such layer"
                raise ComponentError(received, f"a part of one of: {', '.join(names)[:1000]}", nearest(pattern, names))

    def _quantizer(self, rules: Iterable[Rule]) -> Quantizer:
        quantizer = Quantizer(bytearray(self._content))
        bits = ACTIVATION_BITS.get(self._precision)
        for pattern, kind in ((".*", "int4" if self._precision == "int4" else "int8"), *rules):
            weights, _, block = kind.removeprefix("int").partition("x")
            granularity = qtyping.QuantGranularity[f"BLOCKWISE_{block}" if block else "CHANNELWISE"]
            if kind == "float32":
                quantizer.update_quantization_recipe(pattern, ALL_OPS, algorithm_key=AlgorithmName.NO_QUANTIZE)
            elif bits:
                quantizer.add_static_config(pattern, ALL_OPS, bits, int(weights), granularity)
            else:
                quantizer.add_dynamic_config(pattern, ALL_OPS, int(weights), granularity)
        for end in ENDS if bits and not self._integer_io else ():
            quantizer.update_quantization_recipe(".*", end, algorithm_key=AlgorithmName.NO_QUANTIZE)
        return quantizer


def limit_degradation(
    model: QuantizableModel, rules: list[Rule], limit: float, measure: Callable[[bytes], float]
) -> tuple[bytes, ConversionFacts]:
    """Leave the worst layers in float, twice as many at each try, until the degradation meets the limit.

    At most half of the layers are left in float: a file with more is not of the requested precision. ``measure``
    returns the degradation of a file on records that it was not calibrated on. The first file that meets the limit is
    returned, with metadata for the model card.

    Raises:
        ComponentError: If the limit is exceeded with half of the layers in float.
    """
    content = model.quantize(rules)
    tried = [{"in_float": 0, "degradation": measure(content)}]
    worst = model.rank_by_error(content) if tried[0]["degradation"] > limit else []
    while tried[-1]["degradation"] > limit and tried[-1]["in_float"] < len(worst) // 2:
        count = min(max(1, 2 * int(tried[-1]["in_float"])), len(worst) // 2)
        content = model.quantize([*rules, *float_rules(worst[:count])])
        tried.append({"in_float": count, "degradation": measure(content)})
    last = tried[-1]
    if last["degradation"] > limit:
        raise ComponentError(
            f"degradation {last['degradation']:.3g} with {last['in_float']} of {len(worst)} layers left in float32",
            f"at most max_degradation={limit:g}",
            "allow more, or choose a higher precision",
        )
    facts: ConversionFacts = {"left_in_float": worst[: int(last["in_float"])], "tried": tried}
    if len(tried) > 1:
        facts[DEGRADATION_NOTE] = describe_first_form(len(tried))
    return content, facts


def float_rules(names: Iterable[str]) -> list[Rule]:
    """Return the rules that leave layers in float; each matches one layer."""
    return [(f"^{re.escape(name)}(;|$)", "float32") for name in names]


def _layers(content: bytes) -> list[tuple[list[str], str, bool]]:
    """Return for each float op the names of its inputs and of its output, and whether it has a matrix or kernel."""
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    tensors = file.subgraphs[0].tensors
    float32 = schema.TensorType.FLOAT32
    layers = []
    for op in file.subgraphs[0].operators:
        inputs = [tensors[index] for index in op.inputs if index >= 0]
        outputs = [tensors[index] for index in op.outputs if tensors[index].type == float32]
        stored = [tensor for tensor in inputs if file.buffers[tensor.buffer].data is not None]
        if outputs:
            has_kernel = any(len(tensor.shape) > 1 for tensor in stored if tensor.type == float32)
            layers.append(([tensor.name.decode() for tensor in inputs], outputs[0].name.decode(), has_kernel))
    return layers
