"""OpenVINO files whose layers have different precisions: NNCF's int8 and weights, and weights in 16 bits."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.components.export_openvino import openvino_graph
from tfopt.conversion.mixes.fastest_mix import call_seconds
from tfopt.conversion.mixes.mixed_precision import BITS, ERROR_RECORDS, Layer, MixedModel, compare_tensors
from tfopt.conversion.mixes.sensitivity_table import describe_kernel
from tfopt.data.batches import Batch
from tfopt.runtimes.openvino import compile_model
from tfopt.runtimes.openvino_import import openvino, without_telemetry

with without_telemetry():
    import nncf
    from nncf.quantization.advanced_parameters import AdvancedCompressionParameters
    from openvino import opset13

LOOKUP, PRODUCT = "Gather", "MatMul"
# In 4 bits, one scale for as many weights of a column, or 32 if the number of rows is no multiple of it. NNCF stores
# others in 8 bits.
GROUP = 64
IN_4_BITS = {
    "group_size": GROUP,
    "ratio": 1.0,
    "all_layers": True,
    "advanced_parameters": AdvancedCompressionParameters(group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST),
}
WEIGHTS: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "int4": (nncf.CompressWeightsMode.INT4_SYM, IN_4_BITS),
    "dynamic": (nncf.CompressWeightsMode.INT8_SYM, {}),
}


class MixedFile(MixedModel[Any]):
    """A float ``openvino.Model`` whose layers have a kind each.

    In int8, convolutions and products compute in 8 bits. The other kinds are those of stored weights, and compute in
    float32: int4 for products and lookups, dynamic (8 bits), float16 and float32.
    """

    by_bytes = True

    def __init__(self, model: Any, feed: list[Batch], quantize: Callable[[Collection[str]], Any]) -> None:
        """Store a float model and records; ``quantize`` returns its int8 form, with the named layers in float."""
        self._model, self._feed = model, feed
        self._quantize = lru_cache(maxsize=4)(quantize)

    @cached_property
    def layers(self) -> list[Layer]:
        """Return the convolutions, products and lookups that have stored weights."""
        kernels = {node: kernel for node in self._model.get_ordered_ops() if (kernel := _kernel(node)) is not None}
        # NNCF stores tables in 8 bits as well, and then quantizes no values that are read from them.
        lookups = frozenset(node.get_friendly_name() for node in kernels if node.get_type_name() == LOOKUP)
        in_8_bits = set(openvino_graph.int8_layers(self._quantize(lookups)))
        layers = []
        for node, kernel in kernels.items():
            name, is_lookup = node.get_friendly_name(), node.get_type_name() == LOOKUP
            has_four = kernel.ndim == 2 and (is_lookup or node.get_type_name() == PRODUCT)
            has_half = np.abs(kernel).max(initial=0) <= np.finfo(np.float16).max
            conditions = {"int4": has_four, "int8": name in in_8_bits, "dynamic": True, "float16": has_half}
            kinds = [*(kind for kind, has_it in conditions.items() if has_it), "float32"]
            inputs = [] if is_lookup else [node.input_value(0).get_node().get_friendly_name()]
            layers.append(Layer(inputs, name, kinds, kernel.size, describe_kernel(kernel)))
        return layers

    def quantize(self, kinds: Mapping[str, str], lowest: str | None = None) -> Any:
        """Return the model with these kinds of layers; the others have their lowest one from ``lowest`` on."""
        order = list(BITS)
        least = order.index(lowest) if lowest else 0
        own = {layer.output: [kind for kind in layer.kinds if order.index(kind) >= least] for layer in self.layers}
        chosen = {name: kinds.get(name, own[name][0]) for name in own}
        in_float = frozenset(name for name, kind in chosen.items() if kind != "int8")
        model = (self._model if len(in_float) == len(chosen) else self._quantize(in_float)).clone()
        for kind, (mode, options) in WEIGHTS.items():
            others = [name for name, chosen_kind in chosen.items() if chosen_kind != kind]
            if len(others) < len(chosen):
                ignored = nncf.IgnoredScope(names=others, validate=False)
                model = nncf.compress_weights(model, mode=mode, ignored_scope=ignored, **options)
        for node in model.get_ordered_ops():
            if chosen.get(node.get_friendly_name()) == "float16":
                _store_in_16_bits(node)
        return model

    def measure_noise(self, file: Any) -> Mapping[str, float]:
        """Return the noise-to-signal ratio of the outputs of layers, and of what they read."""
        return compare_tensors(zip(self._values(self._model), self._values(file), strict=True))

    def count_bytes(self, file: Any) -> int:
        """Return the size of the files that are written."""
        return openvino_graph.written_size(file)

    def measure_seconds(self, files: Sequence[Any]) -> list[float]:
        """Return the time of a call of each file with one record and one thread, measured in turns."""
        requests = [compile_model(file, threads=1).create_infer_request() for file in files]
        return call_seconds([partial(request.infer, dict(self._feed[0]), share_inputs=True) for request in requests])

    def _values(self, model: Any) -> Iterator[dict[str, NDArray[Any]]]:
        copy = model.clone()  # results of activations would stay in the model
        nodes = {node.get_friendly_name(): node for node in copy.get_ordered_ops()}
        names = dict.fromkeys(name for layer in self.layers for name in (layer.output, *layer.inputs))
        outputs = {name: nodes[name].output(0) for name in names if name in nodes}
        request = compile_model(openvino.Model([*outputs.values()], copy.get_parameters(), "")).create_infer_request()
        for batch in self._feed[:ERROR_RECORDS]:
            yield dict(zip(outputs, request.infer(dict(batch), share_inputs=True).to_tuple(), strict=True))


def _kernel(node: Any) -> NDArray[np.float32] | None:
    """Return the stored float32 weights of a layer; None for others."""
    if node.get_type_name() not in (*openvino_graph.LAYERS, LOOKUP):
        return None
    source = node.input_value(_place(node)).get_node()
    is_stored = source.get_type_name() == "Constant" and source.get_element_type().to_dtype() == np.float32
    return np.asarray(source.get_data()) if is_stored and len(source.get_output_shape(0)) > 1 else None


def _place(node: Any) -> int:
    return 0 if node.get_type_name() == LOOKUP else 1


def _store_in_16_bits(node: Any) -> None:
    """Store the weights of a layer as float16, which a Convert makes float32 when the file is loaded."""
    kernel = _kernel(node)
    if kernel is not None:
        floats = opset13.convert(opset13.constant(kernel.astype(np.float16)), np.float32)
        node.input(_place(node)).replace_source_output(floats.output(0))
