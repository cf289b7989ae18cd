"""Train the batch norms of Keras 3 with one TensorFlow operation each.

Keras 3 computes a batch norm in training from about ten operations that read or write the whole tensor, and stores
several of their results for the backward pass. ``FusedBatchNormV3`` and its gradient read the input once or
twice and store nothing else. Both compute Ioffe and Szegedy, Batch Normalization, 2015,
https://arxiv.org/abs/1502.03167; the results differ by rounding. `docs/adr/0059-fused-batch-norms.md` has the numbers.
"""

import functools
from typing import Any

import keras
import tensorflow as tf

from tfopt import keras_models

DTYPES = ("float32", "float16", "bfloat16")  # of the inputs of FusedBatchNormV3; it computes in float32


def fuse_batch_norms(model: Any) -> int:
    """Let the batch norms of a model use the fused operation in training, and return their number.

    Only the behavior of these layer objects in training changes: inference, and models that are saved, exported or
    cloned, are those of Keras. A layer keeps Keras's implementation if it is derived from `BatchNormalization`, has
    another axis than the last, renormalizes, synchronizes devices, or has variables that are not float32; and in calls
    with a mask, or inputs that are not images. Keras 2 fuses batch norms itself: its models are left alone.
    """
    if keras_models.is_keras_2(model):
        return 0
    norms = [layer for layer in model._flatten_layers() if _can_be_fused(layer)]
    for norm in norms:
        norm.call = functools.partial(_call, norm)
    return len(norms)


def _can_be_fused(layer: Any) -> bool:
    return (
        type(layer) is keras.layers.BatchNormalization
        and layer.axis in (-1, 3)
        and layer.variable_dtype == "float32"
        and not layer.renorm
        and not layer.synchronized
    )


def _call(norm: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
    """Replace the ``call`` of a batch norm, for inputs ``[batch, height, width, channels]``."""
    is_image = isinstance(inputs, tf.Tensor) and inputs.shape.rank == 4 and inputs.dtype.name in DTYPES
    if not (training and norm.trainable and is_image and mask is None):
        return type(norm).call(norm, inputs, training=training, mask=mask)
    channels = norm.moving_mean.shape
    result = tf.raw_ops.FusedBatchNormV3(
        x=inputs,
        scale=keras.ops.cast(norm.gamma, "float32") if norm.scale else tf.ones(channels),  # Keras reads 16 bits of it
        offset=keras.ops.cast(norm.beta, "float32") if norm.center else tf.zeros(channels),
        mean=[],
        variance=[],
        epsilon=norm.epsilon,
        is_training=True,
    )
    # The operation returns the sample variance, with n - 1; Keras 3 averages the one with n.
    count = tf.cast(tf.size(inputs, tf.int64) // channels[0], tf.float32)
    variance = result.batch_variance * (count - 1) / count
    for average, value in ((norm.moving_mean, result.batch_mean), (norm.moving_variance, variance)):
        average.assign(average * norm.momentum + value * (1.0 - norm.momentum))
    return keras.ops.cast(result.y, norm.compute_dtype)
