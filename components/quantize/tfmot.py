"""Keras 2: quantization-aware training with TensorFlow's Model Optimization Toolkit.

The toolkit refuses a model with any layer it does not know. Here it is told which layers to take, and to round what the
others hand on; and its ranges, which it would start at -6 to 6, start at what the float model computes. Zeros and
shared weights are kept as in Keras 3 models, by a projection after each step: what the toolkit's own schemes for that
add to a layer, a file could not be read into again, and its scales for each channel would take shared weights apart.
"""

from collections.abc import Iterable, Iterator
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

FOLDED = (layers.Conv2D, layers.DepthwiseConv2D, layers.Dense)  # with the batch norm right after them
PREFIX, RANGE = "quant_", "_range"


class ToolkitLearner:
    """What is trained; the same names as `tfopt.components.quantize.fake_quant_training.Learner`.

    Attributes:
        model: With fake quantization, not compiled.
    """

    def __init__(self, model: Layer, keep_float: list[str], *, zeros: bool, clusters: bool) -> None:
        """Take over a model's layers; the arguments are those of ``Learner``.

        Raises:
            ComponentError: When no layer has an 8-bit form, or a model is nested in this one.
        """
        _check(model)
        self._float = Model(model.inputs[0], model.outputs[0], name=model.name) if _is_plain(model) else model
        self._names = keras_models.served_names(model)
        self.left: dict[str, str] = {}
        taken = {id(layer) for layer in self._taken(keep_float)}
        if not any(hasattr(layer, "kernel") or hasattr(layer, "depthwise_kernel") for layer in self._of(taken)):
            why = "; ".join(f"{name}: {reason}" for name, reason in list(self.left.items())[:5])
            raise ComponentError(
                f"model {model.name}: nothing to quantize ({why or 'no layer has a kernel'})",
                "a layer that TensorFlow's toolkit quantizes, such as Dense or Conv2D",
                "leave this step out",
            )
        with tfmot.quantization.keras.quantize_scope():
            annotated = rebuild(self._float, lambda layer: _annotated(layer, id(layer) in taken))
            self._quantized = tfmot.quantization.keras.quantize_apply(annotated)
        self._kept: dict[str, list[str]] = {"zeros": [], "clusters": []}
        for layer in self._quantized.layers:
            self._keep(layer, zeros, clusters)
        self.model = _named(self._quantized, self._names)

    def observe(self, batches: Iterable[Any]) -> None:
        """Start the ranges at what the float model computes on these."""
        ends = dict(_ends(self._quantized))
        seen = {name: tensor for name, tensor in _tensors(self._float).items() if name in ends}
        watching = Model(self._float.inputs, seen)
        low, high = dict.fromkeys(seen, 0.0), dict.fromkeys(seen, 0.0)
        for inputs, _ in batches:
            for name, values in watching(inputs, training=False).items():
                low[name] = min(low[name], float(tf.reduce_min(values)))
                high[name] = max(high[name], float(tf.reduce_max(values)))
        for name in seen:
            least, most = ends[name]
            least.assign(low[name])
            most.assign(max(high[name], low[name] + 1e-6))

    def finish(self) -> None:
        """Set the limits of the kernels to their last values: training changed those after it had measured them."""
        for layer in self._quantized.layers:
            for weight, quantizer, limits in getattr(layer, "_weight_vars", ()):
                quantizer(weight, True, weights=limits)

    def report(self) -> dict[str, Any]:
        """What is quantized, what is not and why, and what was kept."""
        wrapped = [layer for layer in self._quantized.layers if layer.name.startswith(PREFIX)]
        kernels = [_facts(layer) for layer in wrapped if hasattr(layer.layer, "kernel")]
        summary = f"{len(kernels)} kernels in 8 bits"
        summary += f", {len(self.left)} layers in floats" if self.left else ""
        return {"summary": summary, "left": self.left, "kept": self._kept, "kernels": kernels}

    def _keep(self, layer: Layer, zeros: bool, clusters: bool) -> None:
        found = []
        for weight, quantizer, limits in getattr(layer, "_weight_vars", ()):
            values, name = weight.numpy(), layer.name.removeprefix(PREFIX)
            sparse, shared = zeros and is_sparse(values), clusters and is_clustered(values)
            if sparse or shared:
                add_projection(weight, Projection(values, zeros=sparse, clusters=shared))
            self._kept["zeros"] += [name] * sparse
            self._kept["clusters"] += [name] * shared
            found.append((weight, _one_scale if shared and limits["max_var"].shape.rank else quantizer, limits))
        if found:
            layer._weight_vars = found  # put in as a whole: a list changed in place, a SavedModel would not hold

    def _taken(self, keep_float: list[str]) -> Iterator[Layer]:
        """The layers that the toolkit takes; a batch norm only right after what it is folded into."""
        registry = default_8bit_quantize_registry.Default8BitQuantizeRegistry()
        before = {id(call.layer): _maker(call.inputs[0]) for call in calls(self._float) if call.inputs}
        for layer in self._float.layers:
            folded = isinstance(layer, layers.BatchNormalization) and type(before[id(layer)]) in FOLDED
            if layer.name in keep_float or (folded and before[id(layer)].name in keep_float):
                self.left[layer.name] = "as asked"
            elif isinstance(layer.input, list | dict) and _reads_input(layer):
                self.left[layer.name] = "joins inputs of the model, which the toolkit does not round here"
            elif (folded or registry.supports(layer)) and not isinstance(layer, layers.InputLayer):
                yield layer
            elif not isinstance(layer, layers.InputLayer):
                self.left[layer.name] = f"{type(layer).__name__} is not quantized by TensorFlow's toolkit"

    def _of(self, taken: set[int]) -> list[Layer]:
        return [layer for layer in self._float.layers if id(layer) in taken]


def _check(model: Layer) -> None:
    nested = [layer.name for layer in model.layers if isinstance(layer, Model)]
    if nested:
        raise ComponentError(
            f"model {model.name}: models nested in it ({', '.join(nested)})",
            "one flat Keras 2 model, which is all that TensorFlow's toolkit quantizes",
            "call the nested model's layers in the outer one, or make the model in Keras 3",
        )


def _is_plain(model: Layer) -> bool:
    return isinstance(model, Sequential) and is_graph(model)


def _annotated(layer: Layer, taken: bool) -> Layer:
    if taken:
        known = tfmot.quantization.keras.quantize_annotate_layer(layer)
        return _FromInput(layer.name, known) if _reads_input(layer) else known
    return _Rounded(layer) if _hands_on_floats(layer) else layer


def _reads_input(layer: Layer) -> bool:
    return any(isinstance(_maker(tensor), layers.InputLayer) for tensor in tf.nest.flatten(layer.input))


class _FromInput:
    """A layer that reads an input, which is rounded as `_Rounded` rounds answers.

    The toolkit's own layer for that, QuantizeLayer, makes its variables twice when a ``.keras`` file is read.
    """

    def __init__(self, name: str, layer: Layer) -> None:
        self.name, self.layer = name, layer

    def __call__(self, tensor: Any) -> Any:
        return self.layer(_range(f"{self.name}_input")(tensor))


class _Rounded:
    """A layer that stays in floats, with something after it whose answer is rounded for those that do not."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer

    def __call__(self, tensor: Any) -> Any:
        return _range(self.layer.name)(self.layer(tensor))


def _range(name: str) -> Layer:
    """Hands on what it is given, rounded. Annotated it would not be: the toolkit gives no range to what is linear."""
    handing_on = layers.Activation("linear", name=f"{name}{RANGE}")
    rounded = default_8bit_quantize_configs.Default8BitOutputQuantizeConfig()
    return quantize_wrapper.QuantizeWrapperV2(handing_on, rounded, name_prefix=PREFIX)


def _hands_on_floats(layer: Layer) -> bool:
    one = not isinstance(layer.input, list | dict) and not isinstance(layer.output, list | dict)
    followed = bool(layer._outbound_nodes)
    return one and followed and layer.output.dtype == tf.float32


def _maker(tensor: Any) -> Layer:
    return tensor._keras_history.layer


def _named(model: Layer, names: list[str]) -> Layer:
    """The outputs called as before: the toolkit calls layers otherwise, and outputs are called as their layers."""
    places = {id(tensor): name for tensor, name in zip(model.outputs, names, strict=True)}

    def named(tensor: Any) -> Any:
        name = places[id(tensor)]
        return tensor if _maker(tensor).name == name else layers.Activation("linear", name=name)(tensor)

    return Model(model.input, tf.nest.map_structure(named, model.output), name=model.name)


def _ends(model: Layer) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """The variables of each activation's range, by the name under which `_tensors` has what passes there."""
    for layer in model.layers:
        found = {weight.name.split("/")[-1].split(":")[0]: weight for weight in layer.non_trainable_weights}
        name = layer.name.removeprefix(PREFIX).removesuffix(RANGE)
        for place in ("output", "post_activation", "pre_activation"):
            if f"{place}_min" in found and f"{place}_max" in found:
                key = f"{name} before" if place == "pre_activation" else name
                yield key, (found[f"{place}_min"], found[f"{place}_max"])


def _tensors(model: Layer) -> dict[str, Any]:
    """What each layer of the float model answers, and what it has before its activation."""
    found = {layer.name: layer.output for layer in model.layers if not isinstance(layer.output, list | dict)}
    for layer in model.layers:
        if not isinstance(layer.input, list | dict):
            found[f"{layer.name}_input"] = layer.input
        if getattr(layer, "activation", None) and hasattr(layer, "kernel"):
            linear = type(layer).from_config({**layer.get_config(), "activation": "linear", "name": f"{layer.name}_"})
            found[f"{layer.name} before"] = linear(layer.input)
            linear.set_weights(layer.get_weights())
    return found


def _one_scale(kernel: Any, training: bool, weights: dict[str, Any]) -> Any:
    """Round a convolution's kernel as the toolkit does, with one scale for all channels: then they share values."""
    if training:
        limits = tf.fill(weights["max_var"].shape, tf.reduce_max(tf.abs(kernel)))
        weights["min_var"].assign(-limits)
        weights["max_var"].assign(limits)
    return tf.quantization.fake_quant_with_min_max_vars_per_channel(
        kernel, weights["min_var"], weights["max_var"], narrow_range=True
    )


def _facts(layer: Layer) -> dict[str, Any]:
    kernel = np.asarray(next(weight for weight in layer.trainable_weights if "kernel" in weight.name))
    name = layer.name.removeprefix(PREFIX)
    return {"layer": name, "sparsity": float((kernel == 0).mean()), "values": len(np.unique(kernel))}
