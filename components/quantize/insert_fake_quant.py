"""A Keras 3 model made anew with fake quantization: on each kernel, and wherever LiteRT wants a scale.

A scale belongs after each op that LiteRT runs, and so not between a convolution, the batch norm folded into it and the
clipping done within it; nor after ops that keep the scale of their input.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import keras

from tfopt.components.quantize.decompose_layers import take_apart
from tfopt.components.quantize.layer_kinds import fixed_range, is_custom, kind
from tfopt.keras_models.fake_quantization import FakeQuantize, QuantizedKernel
from tfopt.keras_models.layer_graph import Call, Layer, calls, is_graph
from tfopt.keras_models.weight_constraints import is_clustered

Tensor = Any
WITHIN = {"kernel": ("norm", "clip"), "norm": ("clip",), "calculate": ("clip",)}  # what LiteRT does within which op


@dataclass
class Rewritten:
    """A model with fake quantization.

    Attributes:
        model: Functional; inputs and outputs are called as before.
        kernels: Every layer with a kernel that is quantized.
        ranges: Every activation's.
        left: Why each layer that stays in floats does so, by its name.
    """

    model: Layer = None
    kernels: list[QuantizedKernel] = field(default_factory=list)
    ranges: list[FakeQuantize] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


def rewrite(model: Layer, keep_float: list[str], *, one_scale: bool) -> Rewritten:
    """Return the model with fake quantization; the layers of the one given become part of it.

    Args:
        model: A Keras 3 graph model.
        keep_float: Names of layers that are left in floats.
        one_scale: Give a kernel with shared weights the same scale in all channels, so that they stay shared.
    """
    result = Rewritten()
    level = _Level(take_apart(model, keep_float), result, keep_float, one_scale, {}, outermost=True)
    result.model = level.rewritten()
    return result


class _Level:
    """One graph, the model or one nested in it. Tensors of the new graph are looked up by the old one's."""

    def __init__(
        self,
        model: Layer,
        result: Rewritten,
        keep_float: list[str],
        one_scale: bool,
        made: dict[int, Layer],
        *,
        outermost: bool,
    ) -> None:
        self.model, self.result, self.keep_float, self.one_scale = model, result, keep_float, one_scale
        self.made, self.outermost = made, outermost
        self.new: dict[int, Tensor] = {id(tensor): tensor for tensor in model.inputs}
        # Those that LiteRT will have in 8 bits, or within one op: what feeds a nested graph has its scale outside.
        self.scaled: set[int] = set() if outermost else {id(tensor) for tensor in model.inputs}
        self.consumers: dict[int, list[Call]] = defaultdict(list)
        self.makers: dict[int, Call] = {}
        for call in calls(model):
            self.makers |= {id(tensor): call for tensor in call.outputs}
            for tensor in call.inputs:
                self.consumers[id(tensor)].append(call)

    def rewritten(self) -> Layer:
        """Return the new graph."""
        for call in calls(self.model):
            what = self._kind(call)
            if what not in ("float", "same"):
                for tensor in call.inputs:
                    self._give_scale(tensor)
            for old, new in zip(call.outputs, self._results(call, what), strict=True):
                self.new[id(old)] = new
                self._finish(call, what, old)
        return keras.Model(self.model.input, self._mapped(self.model.output), name=self.model.name)

    def _kind(self, call: Call) -> str:
        name, layer = call.layer.name, call.layer
        if name in self.keep_float:
            self.result.left[name] = "as asked"
            return "float"
        if is_graph(layer):
            return "graph"
        what = kind(layer)
        if what == "norm" and self._waiting(call.inputs[0]) != "kernel" and not self._is_between(call):
            self.result.left[name] = "no convolution right before this batch norm takes it in"
            return "float"
        if what == "float":
            words = "a layer of your own" if is_custom(layer) else f"{type(layer).__name__} has no 8-bit form here"
            self.result.left[name] = words
        return what

    def _results(self, call: Call, what: str) -> list[Tensor]:
        layer = call.layer
        if what in ("kernel", "graph"):
            if id(layer) not in self.made:
                self.made[id(layer)] = self._nested(layer) if what == "graph" else self._kernel(layer)
            layer = self.made[id(layer)]
        args, kwargs = self._mapped((call.args, call.kwargs))
        if what == "norm" and self._waiting(call.inputs[0]) != "kernel":
            args, kwargs = self._through_ones(call, args, kwargs)
        return list(keras.tree.flatten(layer(*args, **kwargs)))

    def _kernel(self, layer: Layer) -> QuantizedKernel:
        kernel = next(weight for weight in layer.weights if weight.name == "kernel")
        self.result.kernels.append(QuantizedKernel(layer, one_scale=self.one_scale and is_clustered(kernel.numpy())))
        return self.result.kernels[-1]

    def _is_between(self, call: Call) -> bool:
        """Whether a batch norm takes and gives images in 8 bits, so that a convolution may do its work."""
        (tensor,) = call.inputs
        return self._is_scaled(tensor) and len(tensor.shape) == 4 and call.layer.axis in (3, -1)

    def _through_ones(self, call: Call, args: Any, kwargs: Any) -> Any:
        """Multiply by one what a batch norm takes: LiteRT has no 8-bit batch norm, but a convolution takes one in."""
        norm, taken = call.layer, self.new[id(call.inputs[0])]
        if id(norm) not in self.made:
            ones = {"use_bias": False, "depthwise_initializer": "ones", "trainable": False}
            layer = keras.layers.DepthwiseConv2D(1, **ones, name=f"{norm.name}_kernel", dtype=norm.dtype_policy)
            layer.build(taken.shape)
            self.made[id(norm)] = self._kernel(layer)
        multiplied = self.made[id(norm)](taken)
        return keras.tree.map_structure(lambda leaf: multiplied if leaf is taken else leaf, (args, kwargs))

    def _nested(self, model: Layer) -> Layer:
        return _Level(model, self.result, self.keep_float, self.one_scale, self.made, outermost=False).rewritten()

    def _finish(self, call: Call, what: str, old: Tensor) -> None:
        """Give an answer its scale, unless it has one, needs none, or the next op is done within this one."""
        if what == "float" or (what == "same" and not all(map(self._is_scaled, call.inputs))):
            return
        exact = what == "fixed" and self.outermost and not self.consumers[id(old)]
        if exact:  # a loss needs the probabilities as they are, and LiteRT prescribes their scale
            return
        if what not in ("same", "graph") and not self._waiting(old):
            self._round(old, fixed_range(call.layer) if what == "fixed" else None)
        self.scaled.add(id(self.new[id(old)]))

    def _waiting(self, tensor: Tensor) -> str | None:
        """The kind of op that made this, when LiteRT does the next op within it."""
        maker = self.makers.get(id(tensor))
        readers = self.consumers[id(tensor)]
        if maker is None or len(readers) != 1 or id(tensor) in map(id, self.model.outputs):
            return None
        made, follows = kind(maker.layer), kind(readers[0].layer)
        kept = {maker.layer.name, readers[0].layer.name} & set(self.keep_float)
        return made if follows in WITHIN.get(made, ()) and not kept else None

    def _give_scale(self, tensor: Tensor) -> None:
        """Round what comes from an input or from an op in floats."""
        if "float" in str(tensor.dtype) and not self._is_scaled(tensor):
            self._round(tensor, None)
            self.scaled.add(id(self.new[id(tensor)]))

    def _round(self, tensor: Tensor, fixed: tuple[float, float] | None) -> None:
        maker = self.new[id(tensor)]._keras_history.operation
        taken = {layer.name for layer in self.result.ranges}
        name = next(name for name in _numbered(f"{maker.name}_range") if name not in taken)
        if self.outermost and id(tensor) in map(id, self.model.outputs):  # an output is called as its last layer
            name, maker.name = maker.name, f"{maker.name}_exact"
        self.result.ranges.append(FakeQuantize(fixed, name=name))
        self.new[id(tensor)] = self.result.ranges[-1](self.new[id(tensor)])

    def _is_scaled(self, tensor: Tensor) -> bool:
        return id(self.new[id(tensor)]) in self.scaled

    def _mapped(self, structure: Any) -> Any:
        return keras.tree.map_structure(lambda leaf: self.new.get(id(leaf), leaf), structure)


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 1
    while True:
        yield f"{name}_{number}"
        number += 1
