"""Run models of every format with one interface: numpy arrays by input name.

May import `tfopt.artifacts`, `tfopt.data`, `tfopt.keras_models`, `tfopt.tensorrt` and what is below them.
"""

import functools
import importlib

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec as TensorSpec
from tfopt.errors import ComponentError
from tfopt.processes.call_limit import call_within, limit_seconds
from tfopt.runtimes import environment
from tfopt.runtimes.preprocessed import PreprocessedRuntime
from tfopt.runtimes.runtime import Arrays as Arrays
from tfopt.runtimes.runtime import Runtime as Runtime
from tfopt.runtimes.subprocess_runtime import SubprocessRuntime


def load(model: Model, *, signature: str | None = None, threads: int | None = None) -> Runtime:
    """Load a model with the runtime of its format (``Model.format``).

    A model that requires environment variables which this process does not have, as set by `configure_runtime`, runs in
    a process of its own until the runtime is closed. A model with `Model.preprocessing` has the inputs of that.

    Args:
        model: Any model artifact.
        signature: Key of the signature, for formats with several; None for ``model.signature``.
        threads: Number of threads per call; None for the runtime's default.

    Raises:
        ComponentError: If the file is damaged, the signature does not exist, or the artifact is a failed model.
    """
    if model.failure:
        raise ComponentError(f"not made: {model.failure}", "a model", "fix the step that should make it")
    signature = signature or model.signature
    if variables := environment.missing_variables(model):
        return SubprocessRuntime(model, variables, signature=signature, threads=threads)
    module = importlib.import_module(f"tfopt.runtimes.{model.format}")
    size = sum(file.stat().st_size for file in model.payload())
    load_model = functools.partial(module.load, model, signature=signature, threads=threads)
    runtime: Runtime
    if model.format == "keras":  # in another thread it would not have the caller's custom objects
        runtime = load_model()
    else:  # initializers, and loops that are optimized, may not end
        runtime = call_within(limit_seconds(size), load_model, f"loading {model.uri}")
    runtime.size, runtime.name = size, model.uri
    if not runtime.outputs:
        received = f"{model.uri}: a model without outputs"
        raise ComponentError(received, "at least one output", "convert or export it again")
    if model.preprocessing is None:
        return runtime
    return PreprocessedRuntime(load(Model(model.preprocessing)), runtime)
