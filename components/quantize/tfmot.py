"""Quantization-aware training of Keras 2 models with TensorFlow's Model Optimization Toolkit.

The toolkit refuses a model with any layer that it does not support. Here only supported layers are annotated, and the
outputs of the others are rounded. The ranges start at the minimum and maximum in the float model, instead of -6 to 6.
Zeros and shared weights are preserved by a projection after each step, as in Keras 3 models: with the toolkit's own
schemes the saved file cannot be loaded, and its scales per channel separate shared weights.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_model_optimization as tfmot
from tensorflow_model_optimization.python.core.quantization.keras import quantize_wrapper
from tensorflow_model_optimization.python.core.quantization.keras.default_8bit import (
    default_8bit_quantize_configs,
    default_8bit_quantize_registry,
)
from tf_keras import Model, Sequential, layers

from tfopt import keras_models
from tfopt.errors import ComponentError
from tfopt.keras_models.layer_graph import Layer, calls, is_graph, rebuild
from tfopt.keras_models.weight_constraints import Projection, add_projection, is_clustered, is_sparse
from tfopt.value_types import JsonObject, Tensors

FOLDED = (layers.Conv2D, layers.DepthwiseConv2D, layers.Dense)  # a batch norm right after them is folded in
PREFIX, RANGE = "quant_", "_range"


class ToolkitTrainee:
    """A Keras 2 model with fake quantization, with the methods of `fake_quant_training.Trainee`."""

    def __init__(
        self,
        model: Layer,
        keep_float: Sequence[str],
        bits: Mapping[str, int],
        *,
        zeros: bool,
        clusters: bool,
        learned: bool = False,
    ) -> None:
        """Insert fake quantization, and preserve zeros and shared weights; 8 bits and no learned scales only.

        Raises:
            ComponentError: If no layer has an 8-bit form, or the model contains another model.
        """
        _check_not_nested(model)
        is_sequential = isinstance(model, Sequential) and is_graph(model)
        self._float = Model(model.inputs[0], model.outputs[0], name=model.name) if is_sequential else model
        self._names = keras_models.served_names(model)
        self.left: dict[str, str] = {}
        quantized = {id(layer) for layer in self._quantized_layers(keep_float)}
        if not any(
            hasattr(layer, "kernel") or hasattr(layer, "depthwise_kernel")
            for layer in self._float.layers
            if id(layer) in quantized
        ):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in list(self.left.items())[:5])
            received = f"model {model.name}: nothing to quantize ({reasons or 'no layer has a kernel'})"
            expected = "a layer that TensorFlow's toolkit quantizes, such as Dense or Conv2D"
            raise ComponentError(received, expected, "leave this step out")
        with tfmot.quantization.keras.quantize_scope():
            annotated = rebuild(self._float, lambda layer: _annotate(layer, id(layer) in quantized))
            self._quantized = tfmot.quantization.keras.quantize_apply(annotated)
        self._preserved: dict[str, list[str]] = {"zeros": [], "clusters": []}
        for layer in self._quantized.layers:
            self._add_projection(layer, zeros, clusters)
        self.model = _name_outputs(self._quantized, self._names)

    def observe(self, batches: Iterable[Any]) -> None:
        """Set the initial ranges to the minimum and maximum in the float model over the batches."""
        ranges = dict(_range_variables(self._quantized))
        tensors = {name: tensor for name, tensor in _tensors(self._float).items() if name in ranges}
        observer = Model(self._float.inputs, tensors)
        low, high = dict.fromkeys(tensors, 0.0), dict.fromkeys(tensors, 0.0)
        for inputs, _ in batches:
            for name, values in observer(inputs, training=False).items():
                low[name] = min(low[name], float(tf.reduce_min(values)))
                high[name] = max(high[name], float(tf.reduce_max(values)))
        for name in tensors:
            minimum, maximum = ranges[name]
            minimum.assign(low[name])
            maximum.assign(max(high[name], low[name] + 1e-6))

    def finish(self) -> None:
        """Set the limits of the kernels from their final weights, which changed after the last measurement."""
        for layer in self._quantized.layers:
            for weight, quantizer, limits in getattr(layer, "_weight_vars", ()):
                quantizer(weight, True, weights=limits)

    def report(self) -> JsonObject:
        """Return the quantized kernels, the layers in floats with reasons, and the preserved zeros and clusters."""
        wrapped = [layer for layer in self._quantized.layers if layer.name.startswith(PREFIX)]
        kernels = [_facts(layer) for layer in wrapped if hasattr(layer.layer, "kernel")]
        summary = f"{len(kernels)} kernels in 8 bits"
        summary += f", {len(self.left)} layers in floats" if self.left else ""
        return {"summary": summary, "left": self.left, "kept": self._preserved, "kernels": kernels}

    def _add_projection(self, layer: Layer, zeros: bool, clusters: bool) -> None:
        quantizers = []
        for weight, quantizer, limits in getattr(layer, "_weight_vars", ()):
            values, name = weight.numpy(), layer.name.removeprefix(PREFIX)
            sparse, shared = zeros and is_sparse(values), clusters and is_clustered(values)
            if sparse or shared:
                add_projection(weight, Projection(values, zeros=sparse, clusters=shared))
            self._preserved["zeros"] += [name] * sparse
            self._preserved["clusters"] += [name] * shared
            quantizers.append((weight, _one_scale if shared and limits["max_var"].shape.rank else quantizer, limits))
        if quantizers:
            layer._weight_vars = quantizers  # assigned, since a SavedModel cannot track a list changed in place

    def _quantized_layers(self, keep_float: Sequence[str]) -> Iterator[Layer]:
        """Yield the layers that the toolkit quantizes; a batch norm only directly after the layer it is folded into."""
        registry = default_8bit_quantize_registry.Default8BitQuantizeRegistry()
        previous = {id(call.layer): _maker(call.inputs[0]) for call in calls(self._float) if call.inputs}
        for layer in self._float.layers:
            folded = isinstance(layer, layers.BatchNormalization) and type(previous[id(layer)]) in FOLDED
            if layer.name in keep_float or (folded and previous[id(layer)].name in keep_float):
                self.left[layer.name] = "in keep_float"
            elif isinstance(layer.input, list | dict) and _reads_input(layer):
                self.left[layer.name] = "merges inputs of the model, which the toolkit does not round here"
            elif (folded or registry.supports(layer)) and not isinstance(layer, layers.InputLayer):
                yield layer
            elif not isinstance(layer, layers.InputLayer):
                self.left[layer.name] = f"{type(layer).__name__} is not quantized by TensorFlow's toolkit"


def _check_not_nested(model: Layer) -> None:
    nested = [layer.name for layer in model.layers if isinstance(layer, Model)]
    if nested:
        received = f"model {model.name}: nested models ({', '.join(nested)})"
        fix = "call the nested model's layers in the outer one, or build the model in Keras 3"
        raise ComponentError(received, "a Keras 2 model without nested models, as TensorFlow's toolkit requires", fix)


def _annotate(layer: Layer, quantized: bool) -> Layer:
    """Return the layer to call instead, which also rounds inputs of the model and outputs in floats."""
    if quantized:
        annotated = tfmot.quantization.keras.quantize_annotate_layer(layer)
        # The toolkit's own layer for inputs, QuantizeLayer, creates its variables twice when a .keras file is loaded.
        return (lambda tensor: annotated(_range(f"{layer.name}_input")(tensor))) if _reads_input(layer) else annotated
    is_single = not isinstance(layer.input, list | dict) and not isinstance(layer.output, list | dict)
    if is_single and layer._outbound_nodes and layer.output.dtype == tf.float32:
        return lambda tensor: _range(layer.name)(layer(tensor))
    return layer


def _reads_input(layer: Layer) -> bool:
    return any(isinstance(_maker(tensor), layers.InputLayer) for tensor in tf.nest.flatten(layer.input))


def _range(name: str) -> Layer:
    """Return a layer that rounds its input. It is wrapped here because the toolkit gives linear layers no range."""
    identity = layers.Activation("linear", name=f"{name}{RANGE}")
    config = default_8bit_quantize_configs.Default8BitOutputQuantizeConfig()
    return quantize_wrapper.QuantizeWrapperV2(identity, config, name_prefix=PREFIX)


def _maker(tensor: Any) -> Layer:
    return tensor._keras_history.layer


def _name_outputs(model: Layer, names: list[str]) -> Layer:
    """Restore the names of the outputs: outputs are named by their layers, and the toolkit renames layers."""
    names_by_id = {id(tensor): name for tensor, name in zip(model.outputs, names, strict=True)}

    def rename(tensor: Any) -> Any:
        name = names_by_id[id(tensor)]
        return tensor if _maker(tensor).name == name else layers.Activation("linear", name=name)(tensor)

    return Model(model.input, tf.nest.map_structure(rename, model.output), name=model.name)


def _range_variables(model: Layer) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the minimum and maximum variables of each activation, with the tensor's name in `_tensors`."""
    for layer in model.layers:
        variables = {weight.name.split("/")[-1].split(":")[0]: weight for weight in layer.non_trainable_weights}
        name = layer.name.removeprefix(PREFIX).removesuffix(RANGE)
        for tensor in ("output", "post_activation", "pre_activation"):
            if f"{tensor}_min" in variables and f"{tensor}_max" in variables:
                key = f"{name} before" if tensor == "pre_activation" else name
                yield key, (variables[f"{tensor}_min"], variables[f"{tensor}_max"])


def _tensors(model: Layer) -> Tensors:
    """Return inputs and outputs of each layer of the float model, and the values before its activation."""
    tensors = {layer.name: layer.output for layer in model.layers if not isinstance(layer.output, list | dict)}
    for layer in model.layers:
        if not isinstance(layer.input, list | dict):
            tensors[f"{layer.name}_input"] = layer.input
        if getattr(layer, "activation", None) and hasattr(layer, "kernel"):
            linear = type(layer).from_config({**layer.get_config(), "activation": "linear", "name": f"{layer.name}_"})
            tensors[f"{layer.name} before"] = linear(layer.input)
            linear.set_weights(layer.get_weights())
    return tensors


def _one_scale(kernel: Any, training: bool, weights: Tensors) -> Any:
    """Round a convolution's kernel as the toolkit does, but with one scale for all channels: values stay shared."""
    if training:
        limits = tf.fill(weights["max_var"].shape, tf.reduce_max(tf.abs(kernel)))
        weights["min_var"].assign(-limits)
        weights["max_var"].assign(limits)
    return tf.quantization.fake_quant_with_min_max_vars_per_channel(
        kernel, weights["min_var"], weights["max_var"], narrow_range=True
    )


def _facts(layer: Layer) -> JsonObject:
    kernel = np.asarray(next(weight for weight in layer.trainable_weights if "kernel" in weight.name))
    name = layer.name.removeprefix(PREFIX)
    return {"layer": name, "sparsity": float((kernel == 0).mean()), "values": len(np.unique(kernel))}
