"""Rebuild a Keras 3 model with fake quantization: on each kernel, and wherever LiteRT needs a scale.

LiteRT needs a scale after each op that it runs. There is none between a convolution, the batch norm that is folded into
it and the clipping that is fused into it, nor after ops whose output has the scale of their input.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import keras

from tfopt.components.quantize.decompose_layers import decompose, whole_names
from tfopt.components.quantize.layer_kinds import fixed_range, is_custom, layer_kind
from tfopt.keras_models.fake_quantization import FakeQuantize, QuantizedKernel
from tfopt.keras_models.layer_graph import Call, Layer, calls, is_graph
from tfopt.keras_models.weight_constraints import is_clustered

Tensor = Any
FUSED = {"kernel": ("norm", "clip"), "norm": ("clip",), "calculate": ("clip",)}  # ops that LiteRT fuses into an op


@dataclass
class Rewritten:
    """A model with fake quantization."""

    keep_float: Sequence[str]  # names of layers that stay in floats
    bits: Mapping[str, int]  # of the weights of layers of the original model, by name; 8 for the others
    one_scale: bool  # True if kernels with shared weights have one scale for all channels
    learned: bool  # True if the scales of the other kernels are trained
    model: Layer = None  # Functional, with the same names of inputs and outputs
    kernels: list[QuantizedKernel] = field(default_factory=list)  # layers with a quantized kernel
    ranges: list[FakeQuantize] = field(default_factory=list)  # layers that round activations
    left: dict[str, str] = field(default_factory=dict)  # reason why a layer stays in floats, by its name
    new_layers: dict[int, Layer] = field(default_factory=dict)  # by the id of the layers that they replace


def rewrite(
    model: Layer, keep_float: Sequence[str], bits: Mapping[str, int], *, one_scale: bool, learned: bool = False
) -> Rewritten:
    """Return a model with fake quantization. The layers of the original model become part of it.

    ``bits`` has those of the weights of some layers by name; the others have 8. ``one_scale`` gives all channels of a
    kernel with shared weights the same scale, so that they stay shared. With ``learned`` the other scales are trained.
    """
    result = Rewritten(keep_float, bits, one_scale, learned)
    result.model = _GraphRewriter(decompose(model, keep_float), result, outermost=True).rewrite()
    return result


class _GraphRewriter:
    """Rewrite one graph: the model, or one nested in it. New tensors are stored by the id of the old ones."""

    def __init__(self, model: Layer, result: Rewritten, *, outermost: bool) -> None:
        self.model, self.result, self.outermost = model, result, outermost
        self.new: dict[int, Tensor] = {id(tensor): tensor for tensor in model.inputs}
        # Tensors with a scale, or inside a fused op. Inputs of a nested graph have their scale outside.
        self.scaled: set[int] = set() if outermost else {id(tensor) for tensor in model.inputs}
        self.consumers: dict[int, list[Call]] = defaultdict(list)
        self.makers: dict[int, Call] = {}
        for call in calls(model):
            self.makers |= {id(tensor): call for tensor in call.outputs}
            for tensor in call.inputs:
                self.consumers[id(tensor)].append(call)

    def rewrite(self) -> Layer:
        for call in calls(self.model):
            kind = self._kind(call)
            for tensor in call.inputs if kind not in ("float", "same") else ():
                if "float" in str(tensor.dtype) and not self._is_scaled(tensor):  # of the model, or of an op in floats
                    self._round(tensor, None)
                    self.scaled.add(id(self.new[id(tensor)]))
            for old, new in zip(call.outputs, self._results(call, kind), strict=True):
                self.new[id(old)] = new
                self._scale_output(call, kind, old)
        return keras.Model(self.model.input, self._mapped(self.model.output), name=self.model.name)

    def _kind(self, call: Call) -> str:
        name, layer = call.layer.name, call.layer
        if name in self.result.keep_float:
            self.result.left[name] = "in keep_float"
            return "float"
        if is_graph(layer):
            return "graph"
        kind = layer_kind(layer)
        if kind == "norm" and self._fusing_kind(call.inputs[0]) != "kernel" and not self._is_between_scales(call):
            self.result.left[name] = "this batch norm does not directly follow a convolution that it can be folded into"
            return "float"
        if kind == "float":
            reason = "a custom layer" if is_custom(layer) else f"{type(layer).__name__} has no 8-bit form here"
            self.result.left[name] = reason
        return kind

    def _results(self, call: Call, kind: str) -> list[Tensor]:
        layer, new_layers = call.layer, self.result.new_layers
        if kind in ("kernel", "graph"):
            if id(layer) not in new_layers and kind == "graph":
                new_layers[id(layer)] = _GraphRewriter(layer, self.result, outermost=False).rewrite()
            elif id(layer) not in new_layers:
                new_layers[id(layer)] = self._kernel(layer)
            layer = new_layers[id(layer)]
        args, kwargs = self._mapped((call.args, call.kwargs))
        if kind == "norm" and self._fusing_kind(call.inputs[0]) != "kernel":
            args, kwargs = self._multiply_by_ones(call, args, kwargs)
        return list(keras.tree.flatten(layer(*args, **kwargs)))

    def _kernel(self, layer: Layer) -> QuantizedKernel:
        kernel = next(weight for weight in layer.weights if weight.name == "kernel")
        one_scale = self.result.one_scale and is_clustered(kernel.numpy())
        bits = next((self.result.bits[name] for name in whole_names(layer.name) if name in self.result.bits), 8)
        learned = self.result.learned and layer.trainable
        self.result.kernels.append(QuantizedKernel(layer, one_scale=one_scale, bits=bits, learned=learned))
        return self.result.kernels[-1]

    def _is_between_scales(self, call: Call) -> bool:
        """Return True if a batch norm has 8-bit image inputs, so that it can become a convolution."""
        (tensor,) = call.inputs
        return self._is_scaled(tensor) and len(tensor.shape) == 4 and call.layer.axis in (3, -1)

    def _multiply_by_ones(self, call: Call, args: Any, kwargs: Any) -> Any:
        """Multiply a batch norm's input by one, with a convolution that LiteRT folds it into: it has no 8-bit form."""
        norm, tensor, new_layers = call.layer, self.new[id(call.inputs[0])], self.result.new_layers
        if id(norm) not in new_layers:
            ones = {"use_bias": False, "depthwise_initializer": "ones", "trainable": False}
            layer = keras.layers.DepthwiseConv2D(1, **ones, name=f"{norm.name}_kernel", dtype=norm.dtype_policy)
            layer.build(tensor.shape)
            new_layers[id(norm)] = self._kernel(layer)
        multiplied = new_layers[id(norm)](tensor)
        return keras.tree.map_structure(lambda leaf: multiplied if leaf is tensor else leaf, (args, kwargs))

    def _scale_output(self, call: Call, kind: str, old: Tensor) -> None:
        """Add a scale to an output, unless it has one, needs none, or the next op is fused into this one."""
        if kind == "float" or (kind == "same" and not all(map(self._is_scaled, call.inputs))):
            return
        exact = kind == "fixed" and self.outermost and not self.consumers[id(old)]
        if exact:  # a loss needs unrounded probabilities, and LiteRT prescribes their scale
            return
        if kind not in ("same", "graph") and not self._fusing_kind(old):
            self._round(old, fixed_range(call.layer) if kind == "fixed" else None)
        self.scaled.add(id(self.new[id(old)]))

    def _fusing_kind(self, tensor: Tensor) -> str | None:
        """Return the kind of the op that computes a tensor if LiteRT fuses the next op into it, or None."""
        maker = self.makers.get(id(tensor))
        readers = self.consumers[id(tensor)]
        if maker is None or len(readers) != 1 or id(tensor) in map(id, self.model.outputs):
            return None
        first, second = layer_kind(maker.layer), layer_kind(readers[0].layer)
        in_floats = {maker.layer.name, readers[0].layer.name} & set(self.result.keep_float)
        return first if second in FUSED.get(first, ()) and not in_floats else None

    def _round(self, tensor: Tensor, fixed: tuple[float, float] | None) -> None:
        maker = self.new[id(tensor)]._keras_history.operation
        names = {layer.name for layer in self.result.ranges}
        own = f"{maker.name}_range"
        name = next(name for name in chain([own], (f"{own}_{n}" for n in count(1))) if name not in names)
        if self.outermost and id(tensor) in map(id, self.model.outputs):  # an output is named by its last layer
            name, maker.name = maker.name, f"{maker.name}_exact"
        self.result.ranges.append(FakeQuantize(fixed, name=name))
        self.new[id(tensor)] = self.result.ranges[-1](self.new[id(tensor)])

    def _is_scaled(self, tensor: Tensor) -> bool:
        return id(self.new[id(tensor)]) in self.scaled

    def _mapped(self, structure: Any) -> Any:
        return keras.tree.map_structure(lambda leaf: self.new.get(id(leaf), leaf), structure)
