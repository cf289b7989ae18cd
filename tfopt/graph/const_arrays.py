"""Convert between the tensors of Const nodes and NumPy arrays, faster than TensorFlow for common dtypes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64  # bytes, of TensorFlow's tensors
RAW_KINDS = "fiu"  # NumPy dtype kinds whose bytes a TensorProto stores unchanged


def array_of(tensor: Any) -> NDArray[Any]:
    """Return the array that a TensorProto contains."""
    from tensorflow import as_dtype, make_ndarray

    content = tensor.tensor_content  # a copy
    dtype = np.dtype(as_dtype(tensor.dtype).as_numpy_dtype)
    if not content or dtype.kind not in RAW_KINDS:
        return np.asarray(make_ndarray(tensor))
    aligned = _aligned(len(content))
    aligned[:] = np.frombuffer(content, np.uint8)
    array: NDArray[Any] = aligned.view(dtype).reshape([size.size for size in tensor.tensor_shape.dim])
    return array


def _aligned(size: int) -> NDArray[np.uint8]:
    """Return an array of bytes at an address from which TensorFlow reads a fed array without a copy."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def proto_of(array: NDArray[Any]) -> Any:
    """Return the TensorProto of an array: the same bytes as ``make_tensor_proto``, in a ninth of the time."""
    from tensorflow import as_dtype, make_tensor_proto
    from tensorflow.core.framework.tensor_pb2 import TensorProto

    if array.dtype.kind not in RAW_KINDS or array.size < 2:
        return make_tensor_proto(array)
    proto = TensorProto(dtype=as_dtype(array.dtype).as_datatype_enum, tensor_content=array.tobytes())
    proto.tensor_shape.SetInParent()
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    return proto
