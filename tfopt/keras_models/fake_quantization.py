"""Keras 3 layers that simulate 8-bit arithmetic, with weights in 4 or 8 bits, in floats during training.

Both layers round in the forward pass and pass gradients through. Their ranges are inputs of TensorFlow's
fake-quantization ops. The TFLite converter reads its scales from these ops.

Reference:
    Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", CVPR
    2018, sections 3 and 3.1; the integer kernels' rules: TensorFlow, "LiteRT 8-bit quantization specification".
"""

import math
from typing import Any

import keras
import tensorflow as tf

MOMENTUM = 0.99  # of the moving ranges


@keras.saving.register_keras_serializable("tfopt")
class FakeQuantize(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """Round activations to 256 levels between ``low`` and ``high``, moving averages over the training batches.

    While ``observing``, widen the range to the minimum and maximum of the inputs, and return the inputs.
    """

    def __init__(self, fixed: tuple[float, float] | None = None, **kwargs: Any) -> None:
        """Use a fixed range, for an op whose 8-bit form requires it (softmax, sigmoid, tanh), or learn the range."""
        super().__init__(**{"dtype": "float32", **kwargs})
        self.fixed = tuple(fixed) if fixed else None
        self.observing = False

    def build(self, input_shape: Any) -> None:
        """Create the ends of the range, which always contains zero."""
        low, high = self.fixed or (0.0, 0.0)
        self.low = _number(self, "low", low, ())
        self.high = _number(self, "high", high, ())

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Return the rounded values, float32 of the same shape."""
        if not self.fixed and (self.observing or training):
            low, high = tf.minimum(tf.reduce_min(inputs), 0.0), tf.maximum(tf.reduce_max(inputs), 0.0)
            if self.observing:
                self.low.assign(tf.minimum(self.low, low))
                self.high.assign(tf.maximum(self.high, high))
            else:
                self.low.assign(MOMENTUM * self.low + (1 - MOMENTUM) * low)
                self.high.assign(MOMENTUM * self.high + (1 - MOMENTUM) * high)
        if self.observing:
            return inputs
        return tf.quantization.fake_quant_with_min_max_vars(inputs, self.low, self.high)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the input's shape."""
        return input_shape

    def get_config(self) -> dict[str, object]:
        """Return the arguments."""
        return {**super().get_config(), "fixed": self.fixed}


@keras.saving.register_keras_serializable("tfopt")
class QuantizedKernel(keras.layers.Wrapper):  # type: ignore[misc]
    """A Dense, Conv1D, Conv2D or DepthwiseConv2D layer whose kernel is rounded to levels around zero.

    In 8 bits there are 255 levels, in 4 bits 15. A convolution has one scale per output channel: folding a batch norm
    into it changes scales only, not levels. A Dense layer has one scale, since the TFLite converter supports no others
    here. The limits are the largest weights or, with ``learned``, trained with them (LSQ: Esser et al., "Learned Step
    Size Quantization", ICLR 2020). While ``observing``, update the limits and compute with the kernel unrounded.
    """

    def __init__(
        self, layer: Any, one_scale: bool = False, bits: int = 8, learned: bool = False, **kwargs: Any
    ) -> None:
        """Wrap a layer. With ``one_scale`` all channels have the same scale, so that shared weights stay shared."""
        super().__init__(layer, **{"dtype": layer.dtype_policy, "name": layer.name, **kwargs})
        self.one_scale, self.bits, self.learned = one_scale, bits, learned and not one_scale
        self.observing = False

    def build(self, input_shape: Any) -> None:
        """Create the limits, one or one per channel, and set them from the kernel."""
        super().build(input_shape)
        shape = self._by_channel().shape
        self.low = _number(self, "low", 0.0, shape)
        self.high = _number(self, "high", 0.0, shape, trainable=self.learned)
        self.high.assign(self._by_channel())
        self.measure()

    @property
    def kernel(self) -> Any:
        """Return the wrapped layer's kernel, unrounded."""
        return next(weight for weight in self.layer.weights if weight.name == "kernel")

    def measure(self) -> None:
        """Set the limits to the kernel's largest absolute values, or the lower ones to the learned upper ones."""
        if not self.learned:
            self.high.assign(self._by_channel())
        self.low.assign(-tf.convert_to_tensor(self.high.value))

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Call the layer with the rounded kernel."""
        if training or self.observing:
            self.measure()
        if self.observing:
            return self.layer(inputs)
        rounded = self._rounded_by_learned_steps() if self.learned and training else self.rounded()
        with keras.StatelessScope(state_mapping=[(self.kernel, rounded)]):
            return self.layer(inputs)

    def rounded(self) -> Any:
        """Return the rounded kernel, float32."""
        values = tf.cast(tf.convert_to_tensor(self.kernel.value), tf.float32)
        options = {"num_bits": self.bits, "narrow_range": True}
        if self.high.ndim == 0:
            return tf.quantization.fake_quant_with_min_max_vars(values, self.low, self.high, **options)
        channels_last = tf.reshape(values, self._channels_last())
        rounded = tf.quantization.fake_quant_with_min_max_vars_per_channel(
            channels_last, self.low, self.high, **options
        )
        return tf.reshape(rounded, values.shape)

    def _rounded_by_learned_steps(self) -> Any:
        """Return the rounded kernel, with the gradient of LSQ for the limits."""
        values = tf.cast(tf.convert_to_tensor(self.kernel.value), tf.float32)
        flat, levels = tf.reshape(values, self._channels_last()), 2 ** (self.bits - 1) - 1
        step = tf.maximum(tf.convert_to_tensor(self.high.value), 1e-8) / levels
        scaling = (levels * math.prod(self.kernel.shape) / math.prod(step.shape)) ** -0.5
        step = scaling * step + tf.stop_gradient(step - scaling * step)
        levels_of = tf.clip_by_value(flat / step, -levels, levels)
        return tf.reshape((levels_of + tf.stop_gradient(tf.round(levels_of) - levels_of)) * step, values.shape)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the layer's output shape."""
        return self.layer.compute_output_shape(input_shape)

    def get_config(self) -> dict[str, object]:
        """Return the arguments."""
        return {**super().get_config(), "one_scale": self.one_scale, "bits": self.bits, "learned": self.learned}

    def _channels_last(self) -> tuple[int, ...]:
        """Return the kernel's shape with all output channels on the last axis."""
        shape = tuple(self.kernel.shape)
        depthwise = isinstance(self.layer, keras.layers.DepthwiseConv2D)
        return (*shape[:-2], 1, shape[-2] * shape[-1]) if depthwise else shape

    def _by_channel(self) -> Any:
        size = tf.abs(tf.cast(tf.convert_to_tensor(self.kernel.value), tf.float32))
        if isinstance(self.layer, keras.layers.Dense):
            return tf.reduce_max(size)
        channels = tf.reshape(size, [-1, self._channels_last()[-1]])
        largest = tf.reduce_max(channels, axis=0)
        return tf.fill(tf.shape(largest), tf.reduce_max(largest)) if self.one_scale else largest


def _number(layer: Any, name: str, value: float, shape: tuple[int, ...], *, trainable: bool = False) -> Any:
    return layer.add_weight(
        name=name, shape=shape, initializer=keras.initializers.Constant(value), trainable=trainable, dtype="float32"
    )
