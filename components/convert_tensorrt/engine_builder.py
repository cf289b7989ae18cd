"""TensorRT's builder: an ONNX file in, a serialized engine out, in the types that the file names."""

from pathlib import Path
from typing import Any

import tensorrt as trt

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.convert_tensorrt import inspecting, timing_cache
from tfopt.components.convert_tensorrt import layer_report as layers
from tfopt.components.convert_tensorrt.request import Request
from tfopt.data.batches import Batch
from tfopt.errors import ComponentError
from tfopt.tensorrt.messages import Messages, load_plugins
from tfopt.tensorrt.profiles import Profile


def build(
    source: Path,
    plan: Path,
    profile: Profile,
    specs: dict[str, TensorSpec],
    sampled: Batch | None,
    model: Model,
    request: Request,
) -> dict[str, Any]:
    """Write the engine of an ONNX file, and return what the model card says of it.

    Args:
        source: The file.
        plan: Where the engine goes.
        profile: The shapes to build for.
        specs: The model's inputs.
        sampled: What to calibrate on, for the calibrator ``entropy``.
        model: The parent, by whose content calibrations are kept.
        request: What was asked for.

    Raises:
        ComponentError: When TensorRT cannot read or build the file; with what it says, and of which node.
    """
    messages = Messages()
    load_plugins()
    builder = messages.started(trt.Builder)
    implicit = request.calibrator == "entropy"
    network, parser = _parsed(builder, messages, source, implicit=implicit)
    config = builder.create_builder_config()
    _configure(config, builder, profile, request)
    if request.version_compatible:  # which carries the plugins that its operators need
        config.plugins_to_serialize = parser.get_used_vc_plugin_libraries()
    if implicit:
        from tfopt.components.convert_tensorrt import calibrator

        assert sampled is not None
        kept = calibrator.calibrate(config, builder, sampled, specs, model, request)
    with timing_cache.lent(config, request.timing_cache) as found:
        serialized = builder.build_serialized_network(network, config)
        if implicit:
            kept.feed.check()
        if serialized is None:
            raise ComponentError(
                f"TensorRT builds no engine: {messages.last('it gives no reason')}",
                "a network that it has kernels and memory for",
                "choose another precision, smaller shapes or a larger workspace_mb, and see nvidia-smi for memory",
            )
    plan.write_bytes(serialized)
    if implicit:
        kept.feed.close()
    facts = layers.report(inspecting.told(plan, profile, messages, request), request.precision)
    return {"layers": facts, "timing_cache": found} | ({"calibrated": kept.feed.told} if implicit else {})


def _parsed(builder: Any, messages: Messages, source: Path, *, implicit: bool) -> tuple[Any, Any]:
    """The network, with every type as the file has it, and its parser; TensorRT 11 has no other kind and no flag."""
    flags = 0
    strongly = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    if strongly is not None and not implicit:
        flags |= 1 << int(strongly)
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, messages.logger)
    if not parser.parse_from_file(str(source)):
        # As text an error names its node and operator; desc() is only the condition that failed, such as "false".
        said = [" ".join(str(parser.get_error(index)).split()) for index in range(parser.num_errors)]
        raise ComponentError(
            f"TensorRT cannot read the ONNX file: {'; '.join(said)[:500] or messages.last('no reason')}",
            "operators and types that its parser has",
            "express them with other operators in the model, or choose export_onnx",
        )
    return network, parser


def _configure(config: Any, builder: Any, profile: Profile, request: Request) -> None:
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # for the report of layers
    if request.workspace_mb:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, request.workspace_mb << 20)
    if request.precision == "fp32":
        config.clear_flag(trt.BuilderFlag.TF32)  # which is on unless told, and rounds float32
    if request.sparse:
        config.set_flag(trt.BuilderFlag.SPARSE_WEIGHTS)
    if request.version_compatible:
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    shapes = builder.create_optimization_profile()
    for name, (least, usual, most) in profile.ranges.items():
        shapes.set_shape(name, least, usual, most)
    if config.add_optimization_profile(shapes) < 0:
        raise ComponentError(f"shapes {profile}", "shapes that TensorRT can build for", "pass smaller ones")
