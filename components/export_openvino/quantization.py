"""int8 quantization by NNCF: ranges by one of our methods or the best one, and a limit on the degradation."""

import contextlib
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from tfopt.components.export_openvino import float_part, openvino_graph
from tfopt.components.export_openvino.parameters import BiasCorrection, OpenVINOConversion
from tfopt.conversion import calibration
from tfopt.conversion.activation_ranges import Histogram, Method, choose_method
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.int8_overflow import is_range_reduced
from tfopt.data.batches import Batch
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.measurement.evidence import DEGRADATION_NOTE, describe_first_form
from tfopt.measurement.parity import compare, degradation
from tfopt.runtimes import Arrays, Runtime
from tfopt.runtimes.openvino import OpenVINORuntime, compile_model
from tfopt.runtimes.openvino_import import openvino, without_telemetry

with without_telemetry():
    import nncf
    from nncf.common.quantization.structs import QuantizationScheme, QuantizerGroup
    from nncf.common.tensor_statistics.collectors import (
        AggregatorBase,
        MaxAggregator,
        MeanAggregator,
        MinAggregator,
        TensorCollector,
    )
    from nncf.common.tensor_statistics.statistics import MinMaxTensorStatistic
    from nncf.quantization.advanced_parameters import OverflowFix
    from nncf.quantization.algorithms import pipeline
    from nncf.quantization.algorithms.min_max.algorithm import MinMaxQuantization
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet, StatisticsType
    from nncf.tensor import Tensor

ENDS = (MinMaxTensorStatistic.MIN_STAT, MinMaxTensorStatistic.MAX_STAT)
# By NNCF itself; None is its default, the mean of the records' ends.
ESTIMATORS: dict[Method, Any] = {"min_max": RangeEstimatorParametersSet.MINMAX, "moving_average": None}
CORRECTIONS: tuple[BiasCorrection, ...] = ("none", "fast")  # that ``auto`` compares


class _Aggregator(AggregatorBase):  # type: ignore[misc]
    """Our histogram of a tensor as one of NNCF's statistics."""

    def __init__(self, method: Method, *, symmetric: bool) -> None:
        super().__init__()
        self._method, self._symmetric, self._histogram = method, symmetric, Histogram("an activation")

    def _register_reduced_input_impl(self, x: Any) -> None:
        self._histogram.add(x.data)

    def _aggregate_impl(self) -> dict[str, Any]:
        symmetric = self._symmetric and self._histogram.low < 0  # others are unsigned
        low, high = self._histogram.range_of(self._method, symmetric=symmetric)
        high = max(-low, high) if symmetric else high  # of symmetric ranges NNCF reads the upper end
        return dict(zip(ENDS, (Tensor(np.float32(low)), Tensor(np.float32(high))), strict=True))


class _Statistics:
    """Statistics of NNCF for all methods of `ESTIMATORS`, from one pass over the records.

    The steps of NNCF's pipeline that collect statistics do not depend on the method, only the aggregated values do. Nor
    do they depend on the layers in float, but for points that there are only then.
    """

    def __init__(self) -> None:
        self._passes: dict[int, dict[Any, dict[Method, Any]]] = {}  # statistics of each target point

    @contextlib.contextmanager
    def used(self, method: Method) -> Iterator[None]:
        """Let NNCF take the ranges of a method, and its statistics from here if they serve several methods."""
        is_shared = method in ESTIMATORS
        sharing = self.shared(method) if is_shared else contextlib.nullcontext()
        with _calibrated_by(method, shared=is_shared), sharing:
            yield

    @contextlib.contextmanager
    def shared(self, method: Method) -> Iterator[None]:
        """Let NNCF collect only what was not collected for another method."""
        passes, collect_statistics = itertools.count(), pipeline.collect_statistics

        def collect(points: Any, model: Any, graph: Any, dataset: Any) -> Any:
            collectors = _collectors(points)
            collected = self._passes.setdefault(next(passes), {})
            if not collectors.keys() <= collected.keys():
                collect_statistics(points, model, graph, dataset)
                collected |= {key: _aggregate(collector) for key, collector in collectors.items()}
            for key, collector in collectors.items():
                collector.set_cache(collected[key][method])
            return points

        with mock.patch.object(pipeline, "collect_statistics", collect):
            yield


def _collectors(points: Any) -> dict[tuple[Any, type, int], Any]:
    """Return what collects statistics, by point, kind and number: there may be several of a point."""
    collectors: dict[tuple[Any, type, int], Any] = {}
    for _, point, collector in points.get_tensor_collectors():
        of_point = point.target_point, collector._stat_container
        number = next(n for n in itertools.count() if (*of_point, n) not in collectors)
        collectors[*of_point, number] = collector
    return collectors


def _aggregate(collector: Any) -> dict[Method, Any]:
    """Return what NNCF's aggregators return for each method of `ESTIMATORS`; those of means store all records."""
    means, aggregators = collector.get_statistics(), collector.aggregators
    is_mean = all(isinstance(aggregator, MeanAggregator) for aggregator in aggregators.values())
    if not is_mean or not isinstance(means, MinMaxTensorStatistic):
        return dict.fromkeys(ESTIMATORS, means)
    ends = {}
    for end, aggregator in zip(ENDS, (MinAggregator(), MaxAggregator()), strict=True):
        for values in aggregators[collector._stat_container_kwargs_map[end]]._container:
            aggregator.register_reduced_input(values)
        ends[end] = aggregator.aggregate()
    return {"moving_average": means, "min_max": MinMaxTensorStatistic(**ends)}


@contextlib.contextmanager
def _calibrated_by(method: Method, *, shared: bool = False) -> Iterator[None]:
    """Let NNCF take the ranges of tensors from our statistics: it has no parameter for ranges from outside.

    With ``shared``, NNCF's own ranges are aggregated by `_Statistics`, from the means, which store all records.
    """
    collect = MinMaxQuantization._get_stat_collector

    def collect_histogram(algorithm: Any, graph: Any, target: Any, config: Any, batchwise: bool) -> Any:
        if target.is_weight_target_point() or config.per_channel:
            return collect(algorithm, graph, target, config, batchwise)
        collector = TensorCollector(MinMaxTensorStatistic)
        reducer = algorithm._backend_entity.reducer_map[StatisticsType.RAW]()
        aggregator = _Aggregator(method, symmetric=config.mode == QuantizationScheme.SYMMETRIC)
        collector.register_statistic_branch(MinMaxTensorStatistic.MIN_MAX_STAT, reducer, aggregator)
        return collector

    def collect_means(algorithm: Any, graph: Any, target: Any, config: Any, batchwise: bool) -> Any:
        with mock.patch.dict(algorithm._range_estimator_params, {QuantizerGroup.ACTIVATIONS: None}):
            return collect(algorithm, graph, target, config, batchwise)

    own = collect_histogram if method not in ESTIMATORS else collect_means if shared else collect
    with mock.patch.object(MinMaxQuantization, "_get_stat_collector", own):
        yield


@dataclass(frozen=True)
class Quantization:
    """The int8 form of a float ``openvino.Model``, and what it was quantized by: method and arguments of NNCF."""

    source: Any
    feed: list[Batch]
    quantized: Any
    settings: dict[str, Any]
    method: Method
    statistics: _Statistics

    def leave_in_float(self, names: Collection[str]) -> Any:
        """Return the int8 form with the named layers in float as well."""
        if not names:
            return self.quantized
        scope = self.settings["ignored_scope"]
        ignored = nncf.IgnoredScope(names=[*(scope.names if scope else ()), *names], validate=False)
        # SmoothQuant, for transformers, changes what the activations are by the layers that are quantized.
        statistics = _Statistics() if self.settings["model_type"] else self.statistics
        with statistics.used(self.method):
            return _quantize(self.source, self.feed, self.settings | {"ignored_scope": ignored})


def quantize(
    model: Any, feed: list[Batch], parameters: OpenVINOConversion, measure_error: Callable[[Any], float]
) -> tuple[Quantization, ConversionFacts]:
    """Return the int8 form of a float ``openvino.Model`` and metadata for the model card.

    ``measure_error`` returns the error of a form on records that it was not calibrated on.

    Raises:
        ComponentError: If NNCF fails, or nothing in the model can be computed in 8 bits.
    """
    logging.getLogger("nncf").setLevel(logging.ERROR)
    if openvino_graph.count_ops(model).get(openvino_graph.FAKE_QUANTIZE):
        received = "a model that was quantized already"
        fix = "pass the model from before it was quantized, or choose precision='float32' to convert it as it is"
        raise ComponentError(received, "a float model: quantizing twice adds up two rounding errors", fix)
    floating, statistics = float_part.find(model), _Statistics()

    @cache
    def quantize_by(method: Method, correction: BiasCorrection) -> tuple[Any, dict[str, Any]]:
        settings = _settings(model, parameters, method, correction, floating.operations)
        with statistics.used(method):
            return _quantize(model, feed, settings), settings

    def error_of(form: tuple[Any, dict[str, Any]]) -> float:
        return measure_error(form[0])

    requested = parameters.bias_correction
    first = CORRECTIONS[0] if requested == "auto" else requested
    _, method, range_facts = choose_method(
        parameters.calibration, lambda method: quantize_by(method, first), error_of, list(ESTIMATORS)
    )
    (quantized, settings), _, correction_facts = choose_method(
        requested, partial(quantize_by, method), error_of, CORRECTIONS
    )
    names, activations = _compile_activations(model, quantized)
    halves = calibration.split_halves(feed)
    stability = calibration.compare_ranges(*(_ranges(names, activations, half, method) for half in halves))
    facts: ConversionFacts = {
        "preset": settings["preset"].value,
        "attention": openvino_graph.has_attention(model),
        "reduce_range": is_range_reduced(parameters.reduce_range),
        "stability": stability,
        "bias_correction": correction_facts["activation_ranges"],
    }
    quantization = Quantization(model, feed, quantized, settings, method, statistics)
    return quantization, facts | range_facts | floating.facts()


def _quantize(model: Any, feed: list[Batch], settings: dict[str, Any]) -> Any:
    try:
        quantized = nncf.quantize(model.clone(), nncf.Dataset(feed), subset_size=len(feed), **settings)
    except Exception as error:  # its exceptions share no base
        received = f"the quantizer failed: {first_line(error)[:300]}"
        raise ComponentError(received, "a graph that NNCF can quantize", "choose float32 or float16") from error
    if not openvino_graph.int8_layers(quantized):
        received = "8 bits for a model without a convolution or matrix product of its own weights"
        raise ComponentError(received, "a layer that can be computed in 8 bits", "choose float32 or float16")
    return quantized


def _settings(
    model: Any,
    parameters: OpenVINOConversion,
    method: Method,
    correction: BiasCorrection,
    in_float: Collection[str],
) -> dict[str, Any]:
    attention = openvino_graph.has_attention(model)
    preset = parameters.preset if parameters.preset != "auto" else "mixed" if attention else "performance"
    advanced = nncf.AdvancedQuantizationParameters(
        overflow_fix=OverflowFix.ENABLE if is_range_reduced(parameters.reduce_range) else OverflowFix.DISABLE,
        disable_bias_correction=correction == "none",
    )
    if estimator := ESTIMATORS.get(method):
        advanced.activations_range_estimator_params = estimator
    return {
        "preset": nncf.QuantizationPreset[preset.upper()],
        "model_type": nncf.ModelType.TRANSFORMER if attention else None,
        "ignored_scope": nncf.IgnoredScope(names=list(in_float), validate=False) if in_float else None,
        "fast_bias_correction": correction != "full",
        "advanced_parameters": advanced,
    }


def _compile_activations(model: Any, quantized: Any) -> tuple[list[str], Any]:
    """Return the names of the ``FakeQuantize`` ops, and the float model compiled with their inputs as outputs."""
    copy = model.clone()  # results of activations would stay in the model
    nodes = {node.get_friendly_name(): node for node in copy.get_ops()}
    activations = {}
    for op in quantized.get_ops():
        if op.get_type_name() == openvino_graph.FAKE_QUANTIZE:
            source = op.input(0).get_source_output()
            while source.get_node().get_friendly_name() not in nodes and source.get_node().inputs():
                source = source.get_node().input(0).get_source_output()  # NNCF inserted this node
            node = nodes.get(source.get_node().get_friendly_name())
            if node and node.get_type_name() != "Constant":
                activations[op.get_friendly_name()] = node.output(source.get_index())
    return list(activations), compile_model(openvino.Model(list(activations.values()), copy.get_parameters(), ""))


def _ranges(names: list[str], activations: Any, feed: list[Batch], kind: str) -> calibration.Ranges:
    """Return the range of each activation: the means of the records' ends, or the ends of all records."""
    request = activations.create_infer_request()
    ends = []
    for batch in feed:
        values = request.infer(dict(batch), share_inputs=True, share_outputs=True).to_tuple()
        ends.append([(array.min(), array.max()) for array in values])
    lows, highs = np.moveaxis(np.asarray(ends, np.float64), -1, 0)
    if kind == "moving_average":
        low, high = lows.mean(axis=0), highs.mean(axis=0)
    else:
        low, high = lows.min(axis=0), highs.max(axis=0)
    return dict(zip(names, zip(low.tolist(), high.tolist(), strict=True), strict=True))


def quantize_within_limit(
    quantization: Quantization, held_out: list[Batch], parent: Runtime, limit: float
) -> tuple[Any, ConversionFacts]:
    """Return an int8 form that degrades by at most the limit, and metadata for the model card.

    NNCF ranks the layers by the degradation that each of them alone causes, and returns them to float32 one after
    another until the degradation on the held-out records, one in each batch, meets the limit. The degradation is that
    of `tfopt.measurement.parity.degradation`.

    Raises:
        ComponentError: If the limit is exceeded although half of the layers are left in float.
    """
    cached_parent, settings = CachedRuntime(parent), quantization.settings
    with _calibrated_by(quantization.method):
        controlled = nncf.quantize_with_accuracy_control(
            quantization.source.clone(),
            nncf.Dataset(quantization.feed),
            nncf.Dataset(range(len(held_out))),
            partial(_measure, cached_parent, held_out),
            max_drop=limit,
            drop_type=nncf.DropType.ABSOLUTE,
            subset_size=len(quantization.feed),
            preset=settings["preset"],
            model_type=settings["model_type"],
            ignored_scope=settings["ignored_scope"],
            fast_bias_correction=settings["fast_bias_correction"],
            advanced_quantization_parameters=settings["advanced_parameters"],
        )
    with OpenVINORuntime(compile_model(controlled), "an int8 form") as child:
        reached = degradation(compare(cached_parent, child, held_out).values())
    before, after = openvino_graph.int8_layers(quantization.quantized), openvino_graph.int8_layers(controlled)
    in_float = sorted(set(before) - set(after))
    if reached > limit or len(in_float) > len(before) / 2:
        received = f"degradation {reached:.3g} with {len(in_float)} of {len(before)} layers left in float32"
        expected = f"at most max_degradation={limit:g} with at most half of them in float32"
        raise ComponentError(received, expected, "allow more, or choose a higher precision")
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


class CachedRuntime(Runtime):
    """A runtime that computes the outputs of each record once."""

    def __init__(self, runtime: Runtime) -> None:
        """Store the runtime."""
        self.inputs, self.outputs, self.size = runtime.inputs, runtime.outputs, runtime.size
        self._runtime = runtime
        self._results: dict[bytes, dict[str, NDArray[Any]]] = {}

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Return the outputs of records, which are computed if they are new."""
        key = b"".join(arrays[name].tobytes() for name in self.inputs)
        if key not in self._results:
            self._results[key] = self._runtime.call(arrays)
        return self._results[key]
