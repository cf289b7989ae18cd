"""Rows for `fuse_products_of_batch`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, unknown, weights

raw = tf.raw_ops


def batched(x, kernel, **transposed):
    """The products of all matrices of a batch with one matrix, or with several."""
    return raw.BatchMatMulV2(x=x, y=kernel, **transposed)


TABLE = [
    holds("sequences", lambda: batched(feed(None, 3, 4), weights(4, 5)), gone="BatchMatMulV2"),
    holds("the kernel transposed", lambda: batched(feed(None, 3, 4), weights(5, 4), adj_y=True), gone="BatchMatMulV2"),
    holds("four axes", lambda: batched(feed(2, None, 3, 4), weights(4, 5)), gone="BatchMatMulV2"),
    holds("a static shape", lambda: batched(feed(2, 3, 4), weights(4, 5)), gone="BatchMatMulV2"),
    holds("in 64 bits", lambda: batched(feed(2, 3, 4, dtype="float64"), weights(4, 5, dtype="float64"))),
    refuses("integers", lambda: batched(feed(2, 3, 4, dtype="int32"), tf.ones([4, 5], tf.int32)), because="int32"),
    refuses("several kernels", lambda: batched(feed(2, 3, 4), weights(2, 4, 5)), because="several kernels"),
    refuses("transposed matrices", lambda: batched(feed(2, 4, 3), weights(4, 5), adj_x=True), because="transposed"),
    refuses("one matrix", lambda: batched(feed(3, 4), weights(4, 5)), because="a batch"),
    refuses("an unknown rank", lambda: batched(unknown(feed(2, 3, 4)), weights(4, 5)), because="a batch"),
    refuses("two open sizes", lambda: batched(feed(None, None, 4), weights(4, 5)), because="several sizes"),
    refuses("no rows", lambda: batched(feed(None, 0, 4), weights(4, 5)), because="is 0"),
]
