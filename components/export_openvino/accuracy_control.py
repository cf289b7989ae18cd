"""int8 quantization with a limit on the degradation, by NNCF's accuracy control."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from numpy.typing import NDArray

from tfopt.components.export_openvino import openvino_graph
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.data.batches import Batch
from tfopt.errors import ComponentError
from tfopt.measurement.evidence import DEGRADATION_NOTE, describe_first_form
from tfopt.measurement.parity import compare, degradation
from tfopt.runtimes import Arrays, Runtime
from tfopt.runtimes.openvino import OpenVINORuntime, compile_model
from tfopt.runtimes.openvino_import import without_telemetry

with without_telemetry():
    import nncf


def quantize(
    model: Any,
    quantized: Any,
    feed: list[Batch],
    held_out: list[Batch],
    parent: Runtime,
    *,
    limit: float,
    settings: Mapping[str, object],
) -> tuple[Any, ConversionFacts]:
    """Return an int8 form that degrades by at most the limit, and metadata for the model card.

    NNCF ranks the layers by the degradation that each of them alone causes, and returns them to float32 one after
    another until the degradation on the held-out records, one in each batch, meets the limit. The degradation is that
    of `tfopt.measurement.parity.degradation`. ``quantized`` is the model entirely in int8.

    Raises:
        ComponentError: If the limit is exceeded although half of the layers are left in float.
    """
    cached_parent = _CachedRuntime(parent)
    controlled = nncf.quantize_with_accuracy_control(
        model.clone(),
        nncf.Dataset(feed),
        nncf.Dataset(range(len(held_out))),
        partial(_measure, cached_parent, held_out),
        max_drop=limit,
        drop_type=nncf.DropType.ABSOLUTE,
        subset_size=len(feed),
        preset=settings["preset"],
        model_type=settings["model_type"],
        ignored_scope=settings["ignored_scope"],
        advanced_quantization_parameters=settings["advanced_parameters"],
    )
    with OpenVINORuntime(compile_model(controlled), "an int8 form") as child:
        reached = degradation(compare(cached_parent, child, held_out).values())
    before, after = openvino_graph.int8_layers(quantized), openvino_graph.int8_layers(controlled)
    in_float = sorted(set(before) - set(after))
    if reached > limit or len(in_float) > len(before) / 2:
        raise ComponentError(
            f"degradation {reached:.3g} with {len(in_float)} of {len(before)} layers left in float32",
            f"at most max_degradation={limit:g} with at most half of them in float32",
            "allow more, calibrate on more examples, or choose a higher precision",
        )
    facts: ConversionFacts = {"left_in_float": in_float, "degradation": reached}
    if in_float:
        facts[DEGRADATION_NOTE] = describe_first_form(len(in_float) + 1)
    return controlled, facts


def _measure(
    parent: Runtime, held_out: list[Batch], compiled: Any, indices: Iterable[int]
) -> tuple[float, list[float]]:
    """Return 1 - degradation of a compiled model, and the negative error of each record, as NNCF ranks layers."""
    child, batches = OpenVINORuntime(compiled, "an int8 form"), [held_out[index] for index in indices]
    errors = [sum(parity.mean_abs_error for parity in compare(parent, child, [batch]).values()) for batch in batches]
    return 1 - degradation(compare(parent, child, batches).values()), [-error for error in errors]


class _CachedRuntime(Runtime):
    """A runtime that computes the outputs of each record once."""

    def __init__(self, runtime: Runtime) -> None:
        self.inputs, self.outputs = runtime.inputs, runtime.outputs
        self._runtime = runtime
        self._results: dict[bytes, dict[str, NDArray[Any]]] = {}

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        key = b"".join(arrays[name].tobytes() for name in self.inputs)
        if key not in self._results:
            self._results[key] = self._runtime.call(arrays)
        return self._results[key]
