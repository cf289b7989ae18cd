"""A backend of Triton in Python, for machines without NVIDIA's: it runs a model of any format as tfopt does."""

from pathlib import Path

import numpy as np
import triton_python_backend_utils as triton

from tfopt import runtimes
from tfopt.artifacts import Model

NAMES = ("model.savedmodel", "model.onnx", "model.xml")  # what a version's folder may hold


class TritonPythonModel:
    """What Triton's Python backend makes one of for each instance."""

    def initialize(self, given: dict[str, str]) -> None:
        """Load the version."""
        version = Path(given["model_repository"], given["model_version"])
        (place,) = (version / name for name in NAMES if (version / name).exists())
        self._runtime = runtimes.load(Model(place))

    def execute(self, requests: list) -> list:
        """Answer what Triton put together."""
        return [triton.InferenceResponse(self._answers(request)) for request in requests]

    def _answers(self, request) -> list:
        # Not by NumPy's arrays: what hands them over was built for NumPy 1, and loses their content under NumPy 2.
        given = {
            name: np.from_dlpack(triton.get_input_tensor_by_name(request, name)).astype(spec.dtype, copy=False)
            for name, spec in self._runtime.inputs.items()
        }
        return [triton.Tensor.from_dlpack(name, np.array(answer)) for name, answer in self._runtime.run(given).items()]
