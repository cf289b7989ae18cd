"""A Python backend of Triton for machines without NVIDIA's backends; it runs a model of any format with tfopt."""

from pathlib import Path

import numpy as np
import triton_python_backend_utils as triton

from tfopt import runtimes
from tfopt.artifacts import Model

NAMES = ("model.savedmodel", "model.onnx", "model.xml")  # possible files of a version


class TritonPythonModel:
    """An instance of the model; the name is prescribed by Triton."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the version."""
        version = Path(args["model_repository"], args["model_version"])
        (model,) = (version / name for name in NAMES if (version / name).exists())
        self._runtime = runtimes.load(Model(model))

    def execute(self, requests: list) -> list:
        """Return the responses to a group of requests."""
        return [triton.InferenceResponse(self._outputs(request)) for request in requests]

    def _outputs(self, request) -> list:
        # Not as NumPy arrays: Triton's stub was built for NumPy 1, and loses their content under NumPy 2.
        inputs = {
            name: np.from_dlpack(triton.get_input_tensor_by_name(request, name)).astype(spec.dtype, copy=False)
            for name, spec in self._runtime.inputs.items()
        }
        return [triton.Tensor.from_dlpack(name, np.array(output)) for name, output in self._runtime.run(inputs).items()]
