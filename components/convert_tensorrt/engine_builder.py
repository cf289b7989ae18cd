"""TensorRT's builder and inspector: from an ONNX file to a serialized engine and a report on its layers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorrt as trt

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.convert_tensorrt import caches, layer_report
from tfopt.components.convert_tensorrt.calibration_feed import CalibrationFeed, split_full_batches
from tfopt.components.convert_tensorrt.parameters import TensorRTConversion
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.data.batches import Batch
from tfopt.errors import ComponentError
from tfopt.tensorrt.device import Buffers
from tfopt.tensorrt.machine import build_error
from tfopt.tensorrt.messages import Messages, load_plugins
from tfopt.tensorrt.profiles import Profile


def build(
    source: Path,
    plan: Path,
    profile: Profile,
    specs: dict[str, TensorSpec],
    sampled: Batch | None,
    model: Model,
    parameters: TensorRTConversion,
) -> ConversionFacts:
    """Write the engine of an ONNX file to ``plan``, and return metadata for the model card.

    The calibrator ``entropy`` runs on the ``sampled`` inputs; its cache is valid for the digest of the parent.

    Raises:
        ComponentError: If TensorRT cannot read or build the file, with its message, which names the node.
    """
    messages = Messages()
    load_plugins()
    builder = messages.create(trt.Builder)
    implicit = parameters.calibrator == "entropy"
    network, parser = _parse(builder, messages, source, implicit=implicit)
    config = builder.create_builder_config()
    _configure(config, builder, profile, parameters)
    if parameters.version_compatible:  # the engine then contains the plugins of its operators
        config.plugins_to_serialize = parser.get_used_vc_plugin_libraries()
    if implicit:
        assert sampled is not None
        calibrator = _add_calibrator(config, builder, sampled, specs, model, parameters)
    with caches.timing_cache(config, parameters.timing_cache) as timing_facts:
        serialized = builder.build_serialized_network(network, config)
        if implicit:
            calibrator.feed.check()
        if serialized is None:
            raise build_error(messages.last_error("it gives no reason"))
    plan.write_bytes(serialized)
    if implicit:
        calibrator.feed.close()
    layers = layer_report.summarize(_inspect(plan, profile, messages, parameters), parameters.precision)
    facts: ConversionFacts = {"layers": layers, "timing_cache": timing_facts}
    if implicit:
        facts["calibrated"] = calibrator.feed.facts
    return facts


def _parse(builder: Any, messages: Messages, source: Path, *, implicit: bool) -> tuple[Any, Any]:
    """Return the network, strongly typed unless calibrated implicitly, and its parser."""
    flags = 0
    strongly_typed = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)  # always on in TensorRT 11
    if strongly_typed is not None and not implicit:
        flags |= 1 << int(strongly_typed)
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, messages)
    if not parser.parse_from_file(str(source)):
        # As text an error names its node and operator; desc() is only the condition that failed, such as "false".
        errors = [" ".join(str(parser.get_error(index)).split()) for index in range(parser.num_errors)]
        received = f"TensorRT cannot read the ONNX file: {'; '.join(errors)[:500] or messages.last_error('no reason')}"
        fix = "express them with other operators in the model, or choose export_onnx"
        raise ComponentError(received, "operators and types that its parser has", fix)
    return network, parser


def _configure(config: Any, builder: Any, profile: Profile, parameters: TensorRTConversion) -> None:
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # for the report on the layers
    if parameters.workspace_mb:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, parameters.workspace_mb << 20)
    if parameters.precision == "fp32":
        config.clear_flag(trt.BuilderFlag.TF32)  # on by default, and rounds float32
    if parameters.sparse:
        config.set_flag(trt.BuilderFlag.SPARSE_WEIGHTS)
    if parameters.version_compatible:
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    shapes = builder.create_optimization_profile()
    for name, (least, usual, most) in profile.ranges.items():
        shapes.set_shape(name, least, usual, most)
    if config.add_optimization_profile(shapes) < 0:
        raise ComponentError(f"shapes {profile}", "shapes that TensorRT can build for", "pass smaller ones")


def _inspect(plan: Path, profile: Profile, messages: Messages, parameters: TensorRTConversion) -> str:
    """Return TensorRT's JSON description of an engine's layers, at the usual shapes."""
    runtime = messages.create(trt.Runtime)
    runtime.engine_host_code_allowed = parameters.version_compatible
    engine = _require(runtime.deserialize_cuda_engine(plan.read_bytes()), "does not load", messages)
    # Types that depend on open sizes are reported only for a context whose inputs have shapes. The inspector does not
    # keep the context alive.
    context = _require(engine.create_execution_context(), "has no memory to run in", messages)
    for name, (_, usual, _) in profile.ranges.items():
        context.set_input_shape(name, usual)
    inspector = _require(engine.create_engine_inspector(), "cannot be inspected", messages)
    inspector.execution_context = context
    description: str = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    return description


def _require(result: Any, problem: str, messages: Messages) -> Any:
    """Return a result of TensorRT; raise ComponentError if it is None, TensorRT's sign of failure."""
    if result is None:
        received = f"the engine just built {problem}: {messages.last_error('no reason')}"
        expected = "one that loads and runs here"
        raise ComponentError(received, expected, "see nvidia-smi for free memory; else report this, with the model")
    return result


def _add_calibrator(
    config: Any,
    builder: Any,
    sampled: Batch,
    specs: dict[str, TensorSpec],
    model: Model,
    parameters: TensorRTConversion,
) -> Any:
    """Return a calibrator on these inputs, added to a builder's configuration. It must live as long as the build."""
    if not hasattr(trt, "IInt8EntropyCalibrator2"):
        received = f"calibrator='entropy' with TensorRT {trt.__version__}"
        expected = "TensorRT 10: later versions take ranges from the ONNX file only"
        raise ComponentError(received, expected, "leave calibrator out: explicit ranges work with every version")
    size = parameters.usual_batch
    batches = split_full_batches(sampled, specs, size)
    cache = caches.CalibrationCache(
        parameters.calibration_cache,
        model=model.digest,
        examples=caches.digest_inputs(sampled),
        batch=size,
        tensorrt=trt.__version__,
    )
    profile = builder.create_optimization_profile()
    for name, array in batches[0].items():
        profile.set_shape(name, array.shape, array.shape, array.shape)
    config.set_flag(trt.BuilderFlag.INT8)
    config.set_calibration_profile(profile)
    config.int8_calibrator = calibrator = _create_calibrator(CalibrationFeed(batches, Buffers(), cache))
    return calibrator


def _create_calibrator(feed: CalibrationFeed) -> Any:
    # The class can only be defined where TensorRT is installed and still has its base.
    class Calibrator(trt.IInt8EntropyCalibrator2):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IInt8EntropyCalibrator2.__init__(self)
            self.feed = feed

        def get_batch_size(self) -> int:
            return feed.batch_size

        def get_batch(self, names: Sequence[str]) -> list[int] | None:
            return feed.next_batch(names)

        def read_calibration_cache(self) -> bytes | None:
            return feed.read_cache()

        def write_calibration_cache(self, cache: Any) -> None:
            feed.write_cache(cache)

    return Calibrator()
