"""Read kernels of an .onnx file."""

from pathlib import Path

import numpy as np
import onnx


def whole_numbers(file: Path) -> list[np.ndarray]:
    """Return the int8 kernels, those of convolutions first."""
    arrays = [onnx.numpy_helper.to_array(item) for item in onnx.load(file).graph.initializer]
    kernels = [array for array in arrays if array.dtype == np.int8 and array.ndim > 1]
    return sorted(kernels, key=lambda array: (-array.ndim, array.shape))
