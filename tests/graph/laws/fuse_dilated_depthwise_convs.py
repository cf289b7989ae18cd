"""Rows for `fuse_dilated_depthwise_convs`; those of `fuse_dilated_convs` test the conditions."""

import tensorflow as tf

from tests.graph.laws.fuse_dilated_convs import GONE, dilated
from tests.graph.table import holds, refuses, weights


def depthwise(*sizes, **options):
    """A depthwise convolution between SpaceToBatchND and BatchToSpaceND."""
    return dilated(*sizes, depthwise=True, **options)


TABLE = [
    holds("SAME", lambda: depthwise(8, (2, 2)), gone=GONE),
    holds("SAME of an odd size, with crops", lambda: depthwise(9, (2, 3), (0, 1)), gone=GONE),
    holds("VALID", lambda: depthwise(8, (0, 0)), gone=GONE),
    holds("blocks of 3", lambda: depthwise(10, (3, 5), (0, 2), block=3), gone=GONE),
    holds("a bias in between", lambda: depthwise(8, (2, 2), bias=lambda y: tf.nn.bias_add(y, weights(8))), gone=GONE),
    refuses("strides", lambda: depthwise(9, (3, 4), stride=2), because="strides"),
    refuses("a causal convolution", lambda: depthwise(8, (4, 0)), because="neither"),
]
