"""Tests of the conversion between TensorProto and NumPy arrays."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tfopt.graph.const_arrays import array_of, proto_of

ARRAYS = [
    np.float32([[1, -2, np.nan]]),
    np.zeros((0, 3)),
    np.arange(6).reshape(2, 3).T,
    np.float16(3),
    np.array([True, False]),
    np.array([b"a", b""], object),
    np.ones((2, 1), np.complex64),
    np.ones(3, ml_dtypes.bfloat16),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: array.dtype.name)
def test_conversions_equal_those_of_tensorflow(array):
    actual, expected = proto_of(array), tf.make_tensor_proto(array)
    assert actual.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)
    for proto in (actual, tf.compat.v1.AttrValue(tensor=expected).tensor):
        received = array_of(proto)
        assert received.dtype == array.dtype
        np.testing.assert_array_equal(received, array)
        assert received.flags.writeable
