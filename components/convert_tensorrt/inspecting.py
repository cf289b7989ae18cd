"""What TensorRT tells of an engine's layers, as JSON."""

from pathlib import Path
from typing import Any

import tensorrt as trt

from tfopt.components.convert_tensorrt.request import Request
from tfopt.errors import ComponentError
from tfopt.tensorrt.messages import Messages
from tfopt.tensorrt.profiles import Profile


def told(plan: Path, profile: Profile, messages: Messages, request: Request) -> str:
    """Load an engine and ask its inspector, at the shapes it is fastest at.

    Args:
        plan: The serialized engine.
        profile: The shapes it was built for.
        messages: What TensorRT speaks to.
        request: What was asked for.

    Raises:
        ComponentError: When the engine does not load, or TensorRT has nothing to ask.
    """
    runtime = messages.started(trt.Runtime)
    runtime.engine_host_code_allowed = request.version_compatible
    engine = _found(runtime.deserialize_cuda_engine(plan.read_bytes()), "does not load", messages)
    # Types that depend on open sizes are told of a context whose inputs have shapes, and of nothing else. The inspector
    # does not keep the context alive. What is not told still, the report counts as unknown.
    context = _found(engine.create_execution_context(), "has no room to run in", messages)
    for name, (_, usual, _) in profile.ranges.items():
        context.set_input_shape(name, usual)
    inspector = _found(engine.create_engine_inspector(), "cannot be inspected", messages)
    inspector.execution_context = context
    found: str = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    return found


def _found(made: Any, otherwise: str, messages: Messages) -> Any:
    """What TensorRT made, which is None where it could not."""
    if made is None:
        raise ComponentError(
            f"the engine just built {otherwise}: {messages.last('no reason')}",
            "one that loads and runs here",
            "see nvidia-smi for free memory; else report this, with the model",
        )
    return made
