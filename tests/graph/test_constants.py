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
def test_constants_go_in_and_out_as_tensorflow_would_have_them(array):
    given, theirs = proto_of(array), tf.make_tensor_proto(array)
    assert given.SerializeToString(deterministic=True) == theirs.SerializeToString(deterministic=True)
    for proto in (given, tf.compat.v1.AttrValue(tensor=theirs).tensor):
        received = array_of(proto)
        assert received.dtype == array.dtype
        np.testing.assert_array_equal(received, array)
        assert received.flags.writeable
