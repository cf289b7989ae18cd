"""LiteRT files quantized layer by layer with ai-edge-quantizer: a rule for each, and which of them suffer most.

A layer is an op, known by the name of what it returns, such as ``model/dense_1/MatMul``.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ai_edge_litert import schema_py_generated as schema
from ai_edge_quantizer import qtyping
from ai_edge_quantizer.quantizer import AlgorithmName, Quantizer, ValidationErrorMetric

from tfopt.conversion import calibration
from tfopt.data.batches import Batch
from tfopt.errors import ComponentError, first_line, nearest

SIGNATURE = "serving_default"
EVERY = qtyping.TFLOperationName.ALL_SUPPORTED
ENDS = (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT)
ACTIVATION_BITS = {"int8": 8, "int16x8": 16}  # of the precisions with trained or calibrated ranges
NOISY = 16  # records to compare layers on; their order hardly depends on more


class Recipe:
    """A float file, and what is known of it, to be quantized under one set of rules after another."""

    def __init__(self, content: bytes, precision: str, feed: list[Batch], *, integer_io: bool) -> None:
        """Calibrate, where the precision asks for it.

        Args:
            content: The float32 flatbuffer.
            precision: dynamic, int4, int8 or int16x8.
            feed: Inputs by name, to calibrate and to compare layers on.
            integer_io: Whether inputs and outputs are integers as well.
        """
        self._content, self._precision, self._feed, self._integer_io = content, precision, feed, integer_io
        self._ranges = self._calibrated(feed) if precision in ACTIVATION_BITS else None

    def quantized(self, rules: Iterable[tuple[str, str]]) -> bytes:
        """Return the file under these rules, pairs of a layer's pattern and a kind; of several that match the last.

        Raises:
            ComponentError: When the quantizer fails.
        """
        quantizer = self._quantizer(rules)
        try:
            return bytes(quantizer.quantize(self._ranges).quantized_model)
        except Exception as error:
            raise ComponentError(
                f"the quantizer failed: {first_line(error)[:300]}",
                f"layers that can be {self._precision}",
                "leave the layer it names in float32 by recipe=['NAME=float32'], or choose another precision",
            ) from error

    def worst(self, quantized: bytes) -> list[str]:
        """Return the names of the layers, the one that adds most error first.

        The error of a layer is the power of the noise in what it returns, as a fraction of its own, less that in what
        it was given: float and quantized file are run side by side on the same inputs, every tensor kept.
        """
        quantizer = Quantizer(bytearray(self._content), previous_quantized_model=bytearray(quantized))
        found = quantizer.validate(
            {SIGNATURE: self._feed[:NOISY]}, [ValidationErrorMetric.SNR], use_xnnpack=False, num_threads=1
        ).get_signature_comparison_result(SIGNATURE)
        noise = {
            name: 1 / max(metrics["snr"], 1e-9)
            for name, metrics in {**found.intermediate_tensors, **found.output_tensors}.items()
        }
        added = {
            made: noise[made] - max((noise.get(name, 0.0) for name in given), default=0.0)
            for given, made, weighted in _layers(self._content)
            if made in noise and (weighted or self._ranges)  # without ranges nothing else is quantized
        }
        return sorted(added, key=added.__getitem__, reverse=True)

    def check(self, rules: Iterable[tuple[str, str]]) -> None:
        """Raise ComponentError when a rule's pattern is found in no layer's name."""
        names = [made for _, made, _ in _layers(self._content)]
        for pattern, kind in rules:
            if not any(re.search(pattern, name) for name in names):
                raise ComponentError(
                    f"recipe {pattern}={kind}: no such layer",
                    f"a part of one of: {', '.join(names)[:1000]}",
                    nearest(pattern, names),
                )

    def _calibrated(self, feed: list[Batch]) -> dict[str, Any]:
        ranges: dict[str, Any] = self._quantizer(()).calibrate({SIGNATURE: feed}, num_threads=1)
        return ranges

    def _quantizer(self, rules: Iterable[tuple[str, str]]) -> Quantizer:
        quantizer = Quantizer(bytearray(self._content))
        bits = ACTIVATION_BITS.get(self._precision)
        for pattern, kind in ((".*", "int4" if self._precision == "int4" else "int8"), *rules):
            weights, _, block = kind.removeprefix("int").partition("x")
            grain = qtyping.QuantGranularity[f"BLOCKWISE_{block}" if block else "CHANNELWISE"]
            if kind == "float32":
                quantizer.update_quantization_recipe(pattern, EVERY, algorithm_key=AlgorithmName.NO_QUANTIZE)
            elif bits:
                quantizer.add_static_config(pattern, EVERY, bits, int(weights), grain)
            else:
                quantizer.add_dynamic_config(pattern, EVERY, int(weights), grain)
        for end in ENDS if bits and not self._integer_io else ():
            quantizer.update_quantization_recipe(".*", end, algorithm_key=AlgorithmName.NO_QUANTIZE)
        return quantizer


def stability(content: bytes, feed: list[Batch]) -> dict[str, Any]:
    """Compare the ranges of a float file's activations on two disjoint halves of what is calibrated on."""
    one, other = (Recipe(content, "int8", half, integer_io=False)._ranges or {} for half in calibration.halves(feed))
    return calibration.stability(_spans(one), _spans(other))


def _spans(ranges: Mapping[str, Any]) -> calibration.Ranges:
    return {
        name: (float(found["min"].min()), float(found["max"].max())) for name, found in ranges.items() if "min" in found
    }


def _layers(content: bytes) -> list[tuple[list[str], str, bool]]:
    """What each op of floats is given and returns, by name, and whether it has a matrix or kernel of weights."""
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    tensors = file.subgraphs[0].tensors
    float32 = schema.TensorType.FLOAT32
    found = []
    for op in file.subgraphs[0].operators:
        given = [tensors[index] for index in op.inputs if index >= 0]
        made = [tensors[index] for index in op.outputs if tensors[index].type == float32]
        stored = [one for one in given if file.buffers[one.buffer].data is not None and one.type == float32]
        if made:
            weighted = any(len(one.shape) > 1 for one in stored)
            found.append(([one.name.decode() for one in given], made[0].name.decode(), weighted))
    return found
